"""What holds for all system tests."""

from emulated_arms import arms
from faulted import able_machine, afterwards, home
from moto_server import aws, moto
from small_race import own, race

# fixtures: a folder for emulated volumes; one server for all tests of AWS; what faults have in common; the
# race that most tests of races look at, and its homes
__all__ = ["able_machine", "afterwards", "arms", "aws", "home", "moto", "own", "race"]
