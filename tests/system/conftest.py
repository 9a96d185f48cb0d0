"""What holds for all system tests."""

import setproctitle
from emulated_arms import arms
from faulted import able_machine, afterwards, home
from moto_server import aws, moto
from small_race import own, race

# fixtures: a folder for emulated volumes; one server for all tests of AWS; what faults have in common; the
# race that most tests of races look at, and its homes
__all__ = ["able_machine", "afterwards", "arms", "aws", "home", "moto", "own", "race"]

# To Rally, a Python process with "esrally" in its command line is another Rally; it refuses to race beside
# one. Such a process is pytest, too, when the checkout's path has that word.
setproctitle.setproctitle("pytest")
