"""One ``esrally race`` after another, as benchmarks need them: patient with a Rally that has not gone yet."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import setproctitle

from esrally_ebs.machine.resources import resource

TRACK = resource("tracks/noaa-ebs")
_ESRALLY = Path(sys.executable).with_name("esrally")
_RETRY_S = 2.0


def race_command(*words: str, track: Path = TRACK, program: Path = _ESRALLY) -> list[str]:
    """The command line of a race of ``track``."""
    return [str(program), "race", f"--track-path={track}", *words]


def race(
    *words: str,
    track: Path = TRACK,
    env: Mapping[str, str] | None = None,
    program: Path = _ESRALLY,
    retry_s: float = _RETRY_S,
) -> float:
    """One race of ``track``; how long it took (s), without waiting for Rallys before it to go.

    ``env`` comes on top of this process's environment. Raises RuntimeError when the race fails.
    """
    command = race_command(*words, track=track, program=program)
    while True:
        began = time.monotonic()
        ended = subprocess.run(
            command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
        )
        output = ended.stdout + ended.stderr
        # Rally refuses to race beside another Rally, and beside the last actors of the race before
        if "other Rally processes" not in output:
            break
        time.sleep(retry_s)
    if ended.returncode:
        raise RuntimeError(f"exit code {ended.returncode}: {' '.join(command)}\n{output[-2000:]}")
    return time.monotonic() - began


def be_called(name: str) -> None:
    """Change this process's title: "esrally" in a checkout's path would look like a Rally to Rally."""
    setproctitle.setproctitle(name)
