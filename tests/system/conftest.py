"""What holds for all system tests."""

from collections.abc import Iterator

import pytest
from emulated_arms import arms
from faulted import able_machine, afterwards, home
from moto_server import aws, moto
from small_race import own, race

# fixtures: a folder for emulated volumes; one server for all tests of AWS; what faults have in common; the
# race that most tests of races look at, and its homes
__all__ = ["able_machine", "afterwards", "arms", "aws", "home", "moto", "own", "race"]


@pytest.fixture(scope="module")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run directory of its own for a file's nodes: 'clean' in a test beside it would remove them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ESRALLY_EBS_RUN", str(tmp_path_factory.mktemp("run")))
        yield
