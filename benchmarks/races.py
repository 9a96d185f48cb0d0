"""One ``esrally race`` after another, as benchmarks need them: patient with a Rally that has not gone yet."""

import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import setproctitle

from esrally_ebs.errors import EbsError
from esrally_ebs.machine.resources import resource

TRACK = resource("tracks/noaa-ebs")
_ESRALLY = Path(sys.executable).with_name("esrally")
_RETRY_S = 2.0
MOST_FAILED = 3  # one after the other: then it is not chance
Line = Mapping[str, Any]  # what one session gave


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


def lines_of(results: Path) -> list[Line]:
    """The lines of a file of results; none where there is no file yet."""
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def append(results: Path, line: Line) -> None:
    """Add a line to a file of results."""
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")


def go_on(
    results: Path,
    sessions: int,
    session: Callable[[str, int], Line],
    *,
    lock: Path = Path(os.devnull),
    most_failed: float = MOST_FAILED,
) -> None:
    """Make as many sessions as the file of results lacks, until so many in a row have failed.

    ``session`` makes one by an id and its number from 1 on, while this holds the lock, and returns its line.
    One that fails has a line, too, with the reason under "failed".
    """
    failed = 0
    while (number := len(lines_of(results)) + 1) <= sessions and failed < most_failed:
        name = str(uuid.uuid4())
        try:
            with lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                line, failed = session(name, number), 0
        except (EbsError, RuntimeError, ValueError) as error:
            line, failed = {"session": name, "failed": str(error)[-500:]}, failed + 1
        append(results, line)
