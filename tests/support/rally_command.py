"""Rally as a user runs it, with homes of its own, for the system tests of races."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from esrally_ebs.machine.resources import resource

_ENDS_S = 60.0  # after Ctrl-C


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

    def race(self, *flags: str, track: Path | None = None, timeout_s: float = 400) -> Ended:
        """``esrally race``, by default on the pack's track; waits while Rally sees another Rally here.

        To Rally every Python process with "esrally" in its command line is one, so mypy in a checkout too.
        """
        track = track or resource("tracks/noaa-ebs")
        return self._patiently("esrally", "race", f"--track-path={track}", *flags, timeout_s=timeout_s)

    def pack_race(self, *flags: str, track: Path, timeout_s: float = 400) -> Ended:
        """``esrally-ebs race``."""
        return self._patiently("esrally-ebs", "race", f"--track-path={track}", *flags, timeout_s=timeout_s)

    def knee(self, plan: Path, *flags: str, timeout_s: float = 400) -> Ended:
        """``esrally-ebs knee``."""
        return self._patiently("esrally-ebs", "knee", str(plan), *flags, timeout_s=timeout_s)

    def _patiently(self, name: str, *words: str, timeout_s: float) -> Ended:
        command = [str(Path(sys.executable).with_name(name)), *words]
        until = time.monotonic() + timeout_s
        while True:
            ended = _run(command, self.variables, timeout_s)
            if "other Rally processes" not in ended.output or time.monotonic() > until:
                break
            time.sleep(2)
        return ended if ended.exit_code == 0 else replace(ended, output=ended.output + self._last_words())

    def _last_words(self) -> str:
        log = self.rally / ".rally" / "logs" / "rally.log"
        return f"\n{log.name}:\n{log.read_text()[-5000:]}" if log.exists() else ""

    def configure(self, text: str) -> None:
        """Rally's own configuration with ``text`` after it."""
        folder = self.rally / ".rally"
        folder.mkdir(exist_ok=True)
        template = (files("esrally") / "resources" / "rally.ini").read_text()
        (folder / "rally.ini").write_text(template.replace("${CONFIG_DIR}", str(folder)) + text)


def _run(command: list[str], env: dict[str, str], timeout_s: float) -> Ended:
    """Run to its end, or end it by Ctrl-C when it takes too long: a killed Rally leaves its actors behind."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=_ENDS_S)
            raise
    return Ended(exit_code=process.returncode, output=output)


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
