"""Rally as a user runs it, with homes of its own, for the system tests of races."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from esrally_ebs.resources import resource


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    exit_code: int
    output: str


@dataclass(frozen=True)
class Homes:
    """Where one test's races keep what they write, apart from everybody else's."""

    rally: Path
    pack: Path
    run: Path  # short: it holds Unix sockets

    @property
    def variables(self) -> dict[str, str]:
        """The environment that leads Rally and the pack there."""
        return {
            **os.environ,
            "RALLY_HOME": str(self.rally),
            "ESRALLY_EBS_HOME": str(self.pack),
            "ESRALLY_EBS_RUN": str(self.run),
        }

    def race(self, *flags: str, timeout_s: float = 400) -> Ended:
        """``esrally race`` on the pack's track; waits while Rally sees another Rally on this machine.

        To Rally every Python process with "esrally" in its command line is one, so mypy in a checkout too.
        """
        rally = Path(sys.executable).with_name("esrally")
        command = [str(rally), "race", f"--track-path={resource('tracks/noaa-ebs')}", *flags]
        until = time.monotonic() + timeout_s
        while True:
            ended = subprocess.run(
                command, env=self.variables, capture_output=True, text=True, timeout=timeout_s, check=False
            )
            output = ended.stdout + ended.stderr
            if "other Rally processes" not in output or time.monotonic() > until:
                return Ended(exit_code=ended.returncode, output=output)
            time.sleep(2)

    def configure(self, text: str) -> None:
        """Rally's own configuration with ``text`` after it."""
        folder = self.rally / ".rally"
        folder.mkdir(exist_ok=True)
        template = (files("esrally") / "resources" / "rally.ini").read_text()
        (folder / "rally.ini").write_text(template.replace("${CONFIG_DIR}", str(folder)) + text)


@contextmanager
def homes(tmp: Path) -> Iterator[Homes]:
    """Homes below ``tmp``; gone after the block, since a dataset is large."""
    run = Path(tempfile.mkdtemp(prefix="ebs-", dir="/run"))
    made = Homes(rally=tmp / "rally", pack=tmp / "home", run=run)
    made.rally.mkdir(parents=True)
    try:
        yield made
    finally:
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(tmp, ignore_errors=True)
