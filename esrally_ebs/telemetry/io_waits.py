"""Which I/O a thread slept for: the scheduler's events in, columns of a table of I/Os out.

A thread that waits for a disk sleeps so that no signal wakes it (state D), and is woken by whatever
completes the request: the I/O that was done right before is the one it slept for.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.mounts import pids_using
from esrally_ebs.machine.processes import threads_of
from esrally_ebs.machine.tracefs import (
    THREAD_EVENTS,
    Column,
    EventFormat,
    TracedEvents,
    has_thread_events,
    tracefs,
)
from esrally_ebs.store.encoding import TRACE

ASLEEP = "prev_state & 2"  # of sched_switch: TASK_UNINTERRUPTIBLE
MAX_PROCESSES = 16  # that use a mount, and of which one cannot guess which the node is
_WOKEN_WITHIN_S = 400e-6  # of its I/O's completion; the rest of a longer one was no wait for it
_SWITCH, _WAKING = THREAD_EVENTS
_COLUMNS = ("waiter", "slept_s", "woken_s")


def threads_at(path: Path, pid: int | None) -> tuple[list[int], str]:
    """Threads of the process, or of those that use the file system of ``path``; none, and why, in one line.

    Raises PlanError for a process that is not there.
    """
    inferred = "what requests wait for will be inferred"
    if not has_thread_events(tracefs()):
        return [], f"this kernel has no tracepoints of its scheduler: {inferred}"
    if pid is not None:
        if not (threads := threads_of(pid)):
            raise PlanError(f"--pid {pid}: there is no such process; name the node's")
        return threads, ""
    pids = [one for one in pids_using(path) if one != os.getpid()]
    if not pids:
        return [], f"no process uses {path}: {inferred}; name the node's with --pid"
    if len(pids) > MAX_PROCESSES:
        return [], f"{len(pids)} processes use {path}: {inferred}; name the node's with --pid"
    return [thread for one in pids for thread in threads_of(one)], ""


class IoWaits:
    """The sleeps of watched threads, whose events come in pieces, a processor's after the other's."""

    def __init__(self, formats: Mapping[str, EventFormat], epoch_s: float) -> None:
        """``epoch_s`` is what the events' clock lacks to seconds since the epoch."""
        self._formats = formats
        self._epoch_s = epoch_s
        self._watched = set[int]()
        self._asleep = np.zeros((0, 2), np.int64)  # thread, since when
        self._sleeps = [np.zeros((0, 3), np.int64)]  # thread, from, to

    @property
    def sleeps(self) -> int:
        """How many are held until ``put_into``."""
        return sum(map(len, self._sleeps))

    def add(self, events: TracedEvents, threads: Iterable[int]) -> None:
        """Make sleeps of what there is of ``threads``, and of those before; who sleeps still is remembered.

        The kernel also tells of whoever a watched thread follows on a processor, or wakes.
        """
        self._watched.update(threads)
        slept, woken = events.of(self._formats[_SWITCH]), events.of(self._formats[_WAKING])
        thread = np.concatenate(
            [
                self._asleep[:, 0],
                slept.number(*self._formats[_SWITCH].fields["prev_pid"]),
                woken.number(*self._formats[_WAKING].fields["pid"]),
            ]
        )
        at_ns = np.concatenate([self._asleep[:, 1], slept.at_ns, woken.at_ns])
        is_waking = np.repeat([0, 1], [len(thread) - len(woken.at_ns), len(woken.at_ns)])
        watched = np.flatnonzero(np.isin(thread, list(self._watched)))
        order = watched[np.lexsort((at_ns[watched], thread[watched]))]
        thread, at_ns, is_waking = thread[order], at_ns[order], is_waking[order]
        same = thread[1:] == thread[:-1]
        ends = np.flatnonzero(same & (is_waking[:-1] == 0) & (is_waking[1:] == 1))
        self._sleeps.append(np.column_stack([thread[ends], at_ns[ends], at_ns[ends + 1]]))
        last = np.append(~same, True)[: len(thread)] & (is_waking == 0)
        self._asleep = np.column_stack([thread[last], at_ns[last]])

    def put_into(self, ios: pa.Table) -> pa.Table:
        """The I/Os, a table of ``TRACE``, each with the first thread that slept for it; forgets sleeps."""
        sleeps, self._sleeps = np.concatenate(self._sleeps), self._sleeps[:1]
        sleeps = sleeps[np.argsort(sleeps[:, 2])[::-1]]  # of several for one I/O the first is put there last
        slept_s, woken_s = (sleeps[:, place] / 1e9 + self._epoch_s for place in (1, 2))
        done_s = ios["done_s"].to_numpy()
        order = np.argsort(done_s)
        place = np.searchsorted(done_s[order], woken_s, "right") - 1
        done_before_s = done_s[order][place] if len(order) else np.full(len(place), -np.inf)
        is_waited_for = (place >= 0) & (done_before_s >= np.maximum(slept_s, woken_s - _WOKEN_WITHIN_S))
        values: list[Column] = [np.full(ios.num_rows, np.nan) for _ in _COLUMNS]
        for column, value in zip(values, (sleeps[:, 0], slept_s, woken_s), strict=True):
            column[order[place[is_waited_for]]] = value[is_waited_for]
        for name, column in zip(_COLUMNS, values, strict=True):
            made = pa.array(column, from_pandas=True).cast(TRACE.field(name).type)
            ios = ios.set_column(ios.schema.get_field_index(name), TRACE.field(name), made)
        return ios
