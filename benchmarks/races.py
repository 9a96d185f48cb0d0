"""One ``esrally race`` after another, as benchmarks need them, and their results: a file of lines of JSON.

Patient with a Rally that has not gone yet; whatever ends a benchmark, its next call goes on from that file.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import setproctitle

from esrally_ebs.errors import EbsError
from esrally_ebs.machine.resources import resource

TRACK = resource("tracks/noaa-ebs")
_ESRALLY = Path(sys.executable).with_name("esrally")
_RETRY_S = 2.0
_MOST_FAILED = 3  # one after the other: then it is not chance
Line = Mapping[str, Any]


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
        said = output.partition("Getting further help")[0]  # what follows is the same for every failure
        raise RuntimeError(f"exit code {ended.returncode}: {' '.join(command)}\n{said.strip()[-2000:]}")
    return time.monotonic() - began


def lines_of(results: Path) -> list[Line]:
    """What a file of results holds so far; nothing where it is not there yet."""
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def append(results: Path, line: Line) -> None:
    """Add a line to a file of results."""
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")


@contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """Wait for a lock that others of this machine take, too, and have it until the block ends."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def record_sessions(
    results: Path, wanted: int, one: Callable[[str], Line], *, lock: Path, endure: bool = False
) -> None:
    """Add a session's line, as ``one`` gives it for an id, until there are so many.

    Three that fail one after the other are the end, unless it is to ``endure`` them.
    """
    failed = 0
    while len(lines_of(results)) < wanted and (failed < _MOST_FAILED or endure):
        session = str(uuid.uuid4())
        try:
            with in_turn(lock):
                line, failed = one(session), 0
        except (EbsError, RuntimeError, ValueError) as error:
            line, failed = {"session": session, "failed": str(error)[-500:]}, failed + 1
        append(results, line)


def be_called(name: str) -> None:
    """Change this process's title: "esrally" in a checkout's path would look like a Rally to Rally."""
    setproctitle.setproctitle(name)
