"""One fio job of the plan on one arm, into the session's record; raises what really broke, in one line."""

import time
from collections.abc import Callable

from esrally_ebs.analysis.profile import FIO, WAITED
from esrally_ebs.errors import EbsError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import Event
from esrally_ebs.plan import BaselineJob
from esrally_ebs.session import diagnosis
from esrally_ebs.session.keeper import root_steps
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context
from esrally_ebs.telemetry.counters import snapshot
from esrally_ebs.volumes import baseline
from esrally_ebs.volumes.backends import wait_refilled
from esrally_ebs.volumes.emulated.control import read_state

Prepare = Callable[[Arm, BaselineJob], None]


def measure_baseline(
    context: Context, arm: Arm, job: BaselineJob, round_: int, *, prepare: Prepare | None = None
) -> None:
    """Run the job and keep fio's output and rows; ``round_`` is 0 at the start, else the pass at the end.

    ``prepare`` is called when the file is laid out and the volume's buckets are full, right before the job.
    """
    folder = SessionFolder(context.folder)
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

    try:
        text, rows = baseline.run_job(
            job, arm.volume, round_=round_, pid_file=context.fio_pid_file, refill=refill
        )
    except EbsError as error:
        raise diagnosis.explain(error, root_steps(context).cause(arm.name)) or error from error
    ended_at, end = time.time(), snapshot(arm.volume, read_state=read_state)
    folder.write_baseline(round_, arm.name, job.name, text)
    folder.rows_baseline(rows)
    folder.note(
        "baseline",
        arm=arm.name,
        job=job.name,
        round=round_,
        seconds=time.monotonic() - started,
        refill_s=sum(waited),
        began_at=began_at,
        # By limit: for how long I/Os of the job waited because of it, all I/Os added up.
        waited_s={
            name.removeprefix(WAITED): value - begin.get(name, 0.0)
            for name, value in end.items()
            if name.startswith(WAITED)
        },
    )
    # As of a request: the counters tell how late an emulated volume was.
    fields = {"task": job.name, "round": round_, "requests": 1, "started_s": began_at}
    folder.event(Event(at_s=ended_at, kind=FIO, arm=arm.name, fields=fields | {"begin": begin, "end": end}))
