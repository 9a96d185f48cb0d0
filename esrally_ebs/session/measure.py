"""One fio job of the plan on one arm, into the session's record; raises what really broke, in one line."""

import time
from collections.abc import Callable, Mapping

from esrally_ebs.errors import EbsError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.plan import BaselineJob
from esrally_ebs.session import diagnosis
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context
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
    before: dict[str, float] = {}
    began_at = 0.0

    def refill() -> float:
        nonlocal began_at
        waited.append(wait_refilled(arm.volume, clock=SYSTEM_CLOCK))
        if prepare is not None:
            prepare(arm, job)
        before.update(_waited_s(arm))
        began_at = time.time()
        return waited[-1]

    try:
        text, rows = baseline.run_job(
            job, arm.volume, round_=round_, pid_file=context.fio_pid_file, refill=refill
        )
    except EbsError as error:
        raise diagnosis.explain(error, arm) or error from error
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
        waited_s={name: until - before.get(name, 0.0) for name, until in _waited_s(arm).items()},
    )


def _waited_s(arm: Arm) -> Mapping[str, float]:
    """By limit, since the volume was attached; nothing for a volume that has no such counters."""
    return {} if arm.volume.control is None else read_state(arm.volume.control).waited_s
