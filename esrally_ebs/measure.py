"""One fio job of the plan on one arm, into the session's record; raises what really broke, in one line."""

import time

from esrally_ebs import baseline, diagnosis
from esrally_ebs.context import Arm, Context
from esrally_ebs.errors import EbsError
from esrally_ebs.model import Event
from esrally_ebs.plan import BaselineJob
from esrally_ebs.store import SessionFolder
from esrally_ebs.system import SYSTEM_CLOCK
from esrally_ebs.volumes import wait_refilled


def measure_baseline(context: Context, arm: Arm, job: BaselineJob, round_: int) -> None:
    """Run the job and keep fio's output and rows; ``round_`` is 0 at the session's start, 1 at its end."""
    folder = SessionFolder(context.folder)
    started = time.monotonic()
    waited: list[float] = []

    def refill() -> float:
        waited.append(wait_refilled(arm.volume, clock=SYSTEM_CLOCK))
        return waited[-1]

    try:
        text, rows = baseline.run_job(
            job, arm.volume, round_=round_, pid_file=context.fio_pid_file, refill=refill
        )
    except EbsError as error:
        raise diagnosis.explain(error, arm) or error from error
    folder.write_baseline(round_, arm.name, job.name, text)
    folder.rows_baseline(rows)
    fields = {
        "job": job.name,
        "round": round_,
        "seconds": time.monotonic() - started,
        "refill_s": sum(waited),
    }
    folder.event(Event(at_s=time.time(), kind="baseline", arm=arm.name, fields=fields))
