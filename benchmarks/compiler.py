"""How much a node's JVM still compiles: until it is quiet, its compiler is most of a fast query's tail."""

from collections.abc import Iterable
from pathlib import Path

import psutil

_THREADS = ("C1 CompilerThre", "C2 CompilerThre")  # as the kernel cuts their names


def compiler_s(pids: Iterable[int]) -> float:
    """Processor seconds that the compilers' threads of the processes have taken so far."""
    return sum(_of_process(pid) for pid in pids)


def _of_process(pid: int) -> float:
    total = 0.0
    for thread in psutil.Process(pid).threads():
        try:
            name = Path(f"/proc/{pid}/task/{thread.id}/comm").read_text().rstrip()
        except FileNotFoundError:  # it has ended: the JVM has as many as there is work for
            continue
        if name in _THREADS:
            total += thread.user_time + thread.system_time
    return total
