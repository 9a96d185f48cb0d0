"""A process that has ended, and whose parent has not asked for its exit code."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_process() -> Iterator[int]:
    """Its pid, which is listed until the end of the block."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()
