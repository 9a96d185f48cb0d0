"""Runs one fio job of the plan on one arm and records it; raises what really broke, in one line."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.analysis.profile import FIO, WAITED
from esrally_ebs.errors import EbsError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import BaselineRow, Event
from esrally_ebs.plan import BaselineJob
from esrally_ebs.session import diagnosis
from esrally_ebs.session.keeper import root_steps
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context
from esrally_ebs.telemetry.observation import snapshot
from esrally_ebs.volumes import baseline
from esrally_ebs.volumes.backends import wait_refilled
from esrally_ebs.volumes.emulated.control import read_state

Prepare = Callable[[Arm, BaselineJob], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FioRun:
    """A finished job: fio's output and rows, and the volume's counters right before and after."""

    text: str
    rows: list[BaselineRow]
    began_at: float
    ended_at: float
    seconds: float  # including layout and waiting
    refill_s: float
    begin: dict[str, float]
    end: dict[str, float]


def measure_baseline(
    context: Context, arm: Arm, job: BaselineJob, round_: int, *, prepare: Prepare | None = None
) -> None:
    """Run the job and record fio's output and rows; ``round_`` is 0 at the start, else the pass at the end.

    ``prepare`` is called right before the job, when the file is laid out and the volume's buckets are full.
    """
    try:
        done = run_fio(arm, job, round_, pid_file=context.fio_pid_file, prepare=prepare)
    except EbsError as error:
        raise diagnosis.explain(error, root_steps(context).cause(arm.name)) or error from error
    record_fio(SessionFolder(context.folder), arm.name, job, round_, done)


def run_fio(
    arm: Arm,
    job: BaselineJob,
    round_: int,
    *,
    pid_file: Path,
    prepare: Prepare | None = None,
    start: baseline.Start = nullcontext,
) -> FioRun:
    """Run the job on an arm of this machine; see ``measure_baseline``, and ``run_job`` for ``start``."""
    started = time.monotonic()
    waited: list[float] = []
    begin: dict[str, float] = {}
    began_at = 0.0

    def refill() -> float:
        nonlocal began_at
        waited.append(wait_refilled(arm.volume, clock=SYSTEM_CLOCK))
        if prepare is not None:
            prepare(arm, job)
        begin.update(snapshot(arm.volume, read_state=read_state))
        began_at = time.time()
        return waited[-1]

    text, rows = baseline.run_job(
        job, arm.volume, round_=round_, pid_file=pid_file, refill=refill, start=start
    )
    return FioRun(
        text=text,
        rows=rows,
        began_at=began_at,
        ended_at=time.time(),
        seconds=time.monotonic() - started,
        refill_s=sum(waited),
        begin=begin,
        end=snapshot(arm.volume, read_state=read_state),
    )


def record_fio(folder: SessionFolder, arm: str, job: BaselineJob, round_: int, done: FioRun) -> None:
    """Record a finished job; its times must be by this machine's clock."""
    folder.write_baseline(round_, arm, job.name, done.text)
    folder.rows_baseline(done.rows)
    folder.note(
        "baseline",
        arm=arm,
        job=job.name,
        round=round_,
        seconds=done.seconds,
        refill_s=done.refill_s,
        began_at=done.began_at,
        # Time that I/Os of the job waited for each limit, added up over all I/Os.
        waited_s={
            name.removeprefix(WAITED): value - done.begin.get(name, 0.0)
            for name, value in done.end.items()
            if name.startswith(WAITED)
        },
    )
    # As for a request: the counters tell how late an emulated volume was.
    fields = {"task": job.name, "round": round_, "requests": 1, "started_s": done.began_at}
    counted = {"begin": done.begin, "end": done.end}
    folder.event(Event(at_s=done.ended_at, kind=FIO, arm=arm, fields=fields | counted))
