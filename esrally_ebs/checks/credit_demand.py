"""How many burst credits a plan spends on one volume: computed from its jobs, its index and its requests.

Jobs are counted exactly, at the volume's burst rate. The index and what requests read of it are estimates,
from sessions of the track noaa-ebs; both are on the safe side for a volume whose bucket fills meanwhile. Of
another track, or of a user's own index, nothing is known before: only the jobs are counted then.
An EFS file system in bursting mode is a volume here: what is read of it costs less than what is written.
"""

import math
from dataclasses import dataclass

from esrally_ebs.catalog.limits import CREDITS, Limit, Model, charged_bytes, operations_of
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.units import GIB, KIB, MIB

# 2,000,000 documents became 1,089,899,474 bytes, 300,000 became 163,909,003.
_INDEX_BYTES_PER_DOCUMENT = 546
_OFFICIAL_DOCUMENTS = 33_659_481  # of Rally's noaa corpus
# 139 device reads of 107 KiB per cold request at 1.02 GiB; 32 to 42 at 0.15 GiB.
_READS_PER_REQUEST_AND_GIB = 140
_LEAST_READS = 42
_READ_BYTES = 107 * KIB
_TASKS = 8  # searches of the challenge search-only


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Credits in the bucket's own unit: operations (gp2) or bytes (st1, sc1, EFS)."""

    jobs: float
    copy: float
    race: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.jobs + self.copy + self.race


def credit_limit(model: Model) -> Limit | None:
    """The volume's own bucket of burst credits, if it has one."""
    return next((limit for limit in model.limits if limit.name == CREDITS), None)


def demand(plan: Plan, model: Model, *, arm: str = "", share: float = 1.0) -> Demand | None:
    """What the plan spends on a volume that gets ``share`` of the arm's I/O; None for one without credits.

    Of an arm that is modified in place it is what its passes before the change spend.
    """
    credits = credit_limit(model)
    if credits is None:
        return None
    load = _Load(model, credits)
    index_bytes = _index_bytes(plan)
    return Demand(
        jobs=share * sum(load.job(job) * _times(plan, job, arm) for job in plan.baseline),
        copy=share * load.spent(index_bytes / MIB, MIB, continues=True, read=0.0),
        race=share * load.spent(_reads(plan, index_bytes), _READ_BYTES, continues=False, read=1.0),
    )


class _Load:
    """I/O on one volume, as its limits let it through."""

    def __init__(self, model: Model, credits: Limit) -> None:
        self._model = model
        self._credits = credits

    def job(self, job: BaselineJob) -> float:
        """What a job spends: laying its file out, and then its I/O."""
        layout = self.spent(job.size / MIB, MIB, continues=True, read=0.0)
        sequential, read = not job.rw.startswith("rand"), _read_part(job)
        count = job.numjobs * job.size / job.bs
        if job.lasts_s is not None:
            by_rate = job.numjobs / job.gap_s if job.gap_s else math.inf
            count = min(self._most_per_s(job.bs, sequential, read), by_rate) * job.lasts_s
        return layout + self.spent(count, job.bs, continues=sequential, read=read)

    def spent(self, count: float, size: int, *, continues: bool, read: float) -> float:
        """Credits for ``count`` I/Os as fast as they go, less what is earned meanwhile.

        ``read`` is the part of them that are reads.
        """
        cost = self._cost(self._credits, size, continues, read)
        took_s = count / self._most_per_s(size, continues, read)
        return max(0.0, count * cost - self._credits.rate * took_s)

    def _most_per_s(self, size: int, continues: bool, read: float) -> float:
        costs = [
            (limit.rate, self._cost(limit, size, continues, read))
            for limit in self._model.limits
            if limit is not self._credits
        ]
        return min(rate / cost for rate, cost in costs if cost)  # EFS has limits that reads do not count in

    def _cost(self, limit: Limit, size: int, continues: bool, read: float) -> float:
        accounting = self._model.accounting
        weight = limit.reads * read + limit.writes * (1 - read)
        if limit.counts == "operations":
            return weight * operations_of(size, accounting.max_io_bytes)
        merge_over = accounting.merge_over_bytes
        charged = charged_bytes(
            size, continues, accounting.max_io_bytes, -1 if merge_over is None else merge_over
        )
        return weight * max(charged, accounting.least_bytes)


def _read_part(job: BaselineJob) -> float:
    if job.is_mix:
        return job.rwmixread / 100
    return 1.0 if job.rw in ("read", "randread") else 0.0


def _times(plan: Plan, job: BaselineJob, arm: str) -> int:
    if plan.modify is not None and plan.modify.arm == arm:
        return plan.modify.passes
    return 1 + job.repeat


def _index_bytes(plan: Plan) -> float:
    """About; 0 where there is no index, or one that is not known."""
    if plan.race is None or plan.race.track != "noaa-ebs" or plan.dataset.is_own:
        return 0.0
    documents = plan.dataset.documents
    return _INDEX_BYTES_PER_DOCUMENT * (_OFFICIAL_DOCUMENTS if documents == "full" else documents)


def _reads(plan: Plan, index_bytes: float) -> float:
    if plan.race is None or not index_bytes:
        return 0.0
    per_request = max(_LEAST_READS, _READS_PER_REQUEST_AND_GIB * index_bytes / GIB)
    cold = plan.cache.mode == "cold"
    requests = _TASKS * plan.design.most_rounds * (plan.race.iterations if cold else 1)
    return requests * per_request
