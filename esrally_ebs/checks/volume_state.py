"""Guards on the volumes themselves: root device, credits, gp3's throughput, snapshots, modifications."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from esrally_ebs.aws.describe import EbsVolume
from esrally_ebs.catalog.limits import CREDITS, Limit, Model, charged_bytes, operations_of
from esrally_ebs.checks.facts import ArmFacts, Facts, bad, good, listed, unknown
from esrally_ebs.model import Check, Severity
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.units import GIB, KIB, MIB, format_bytes

# 2,000,000 documents took 1,089,899,474 bytes, 300,000 took 163,909,003.
_INDEX_BYTES_PER_DOCUMENT = 546
_OFFICIAL_DOCUMENTS = 33_659_481  # of Rally's noaa corpus
# 139 device reads of 107 KiB per cold request at 1.02 GiB; 32 to 42 at 0.15 GiB.
_READS_PER_REQUEST_AND_GIB = 140
_LEAST_READS = 42
_READ_BYTES = 107 * KIB
_TASKS = 8  # searches of the challenge search-only
_TELEMETRY_POLICY = "allow what policies/telemetry.json lists"
_IN_CHANGE = ("modifying", "optimizing")
_MEND_EFS = (
    "wait until it has filled, shorten the plan, or let it be elastic:"
    " aws efs update-file-system --throughput-mode elastic --file-system-id fs-..."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Credits needed, in the bucket's unit: operations (gp2) or bytes (st1, sc1, EFS)."""

    jobs: float
    copy: float
    race: float

    @property
    def total(self) -> float:
        return self.jobs + self.copy + self.race


def credit_limit(model: Model) -> Limit | None:
    """The volume's own bucket of burst credits, if there is one."""
    return next((limit for limit in model.limits if limit.name == CREDITS), None)


def demand(plan: Plan, model: Model, *, arm: str = "", share: float = 1.0) -> Demand | None:
    """Credits that the plan spends on a volume with ``share`` of the arm's I/O; None if it has no credits.

    Jobs are counted exactly, at the volume's burst rate. The index and its requests' reads are estimates from
    sessions of the track noaa-ebs, on the safe side for a bucket that refills meanwhile. For other tracks, or
    a user's own index, nothing is known beforehand: then only jobs are counted. An EFS file system in
    bursting mode counts as a volume; its reads cost less than writes. For an arm that is modified in place,
    counts the passes before the change.
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
    def __init__(self, model: Model, credits: Limit) -> None:
        self._model = model
        self._credits = credits

    def job(self, job: BaselineJob) -> float:
        """Credits that a job spends: laying out its file, then its I/O."""
        layout = self.spent(job.size / MIB, MIB, continues=True, read=0.0)
        sequential, read = not job.rw.startswith("rand"), _read_part(job)
        count = job.numjobs * job.size / job.bs
        if job.lasts_s is not None:
            by_rate = job.numjobs / job.gap_s if job.gap_s else math.inf
            count = min(self._most_per_s(job.bs, sequential, read), by_rate) * job.lasts_s
        return layout + self.spent(count, job.bs, continues=sequential, read=read)

    def spent(self, count: float, size: int, *, continues: bool, read: float) -> float:
        """Credits for ``count`` I/Os at full speed, less those earned meanwhile.

        ``read`` is the share of reads.
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
        return min(rate / cost for rate, cost in costs if cost)  # some of EFS's limits do not count reads

    def _cost(self, limit: Limit, size: int, continues: bool, read: float) -> float:
        accounting = self._model.accounting
        weight = limit.reads * read + limit.writes * (1 - read)
        if limit.counts == "operations":
            return weight * operations_of(size, accounting.max_io_bytes)
        charged = charged_bytes(size, continues, accounting.max_io_bytes, accounting.merges_over)
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
    """Approximate bytes; 0 without an index, or for an unknown one."""
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


def root_device(facts: Facts) -> Check | None:
    """An arm on the disk that the system, its swap and its logs use."""
    on_root = [f"{arm.name} ({arm.volume.device or arm.volume.filesystem})" for arm in facts.arms if arm.root]
    if on_root:  # also for btrfs, which has no single device
        text = f"on the system's own disk: {listed(on_root)}"
        return bad("root-device", text, "give the arm a volume of its own")
    on_disks = [arm for arm in facts.arms if arm.volume.device or arm.volume.filesystem == "btrfs"]
    if not on_disks:
        return None
    untold = [arm for arm in on_disks if arm.root is None]
    if untold:
        text = f"not known whether {listed(arm.name for arm in untold)} is on the system's own disk"
        return unknown("root-device", text, "here / is on no disk (a container's is not): ask lsblk outside")
    return good("root-device", "no", "no arm is on the system's own disk")


def caches_below(facts: Facts) -> Check | None:
    """A cache below the file system answers reads although the node's pages were evicted."""
    if not facts.arms:
        return None
    caches = [f"{arm.name}: {cache}" for arm in facts.arms for cache in arm.caches]
    if not caches:
        return good(
            "caches-below", "none", "no cache is seen below an arm's file system (a hypervisor's never is)"
        )
    mend = "losetup --direct-io=on for a loop device; else take a volume without a cache of this machine"
    severity = Severity.STOP if facts.plan.cache.mode == "cold" else Severity.WARN
    return bad("caches-below", f"reads may not reach the disk: {listed(caches)}", mend, severity=severity)


def burst_balance(facts: Facts) -> Check | None:
    """Fewer burst credits than the plan will spend: the volume's speed would change half-way."""
    needs = list(_needs(facts))
    if not needs:
        return None
    enough, untold = [], []
    for need in needs:
        if need.credits is None:
            untold.append(need.id)
            continue
        has, spends = _credits(need.credits, need.counts), _spent(need.demand, need.counts)
        sums = f"{need.arm} {need.id} has {has} credits, the plan spends {spends}"
        if need.credits < need.demand.total:
            return bad("burst-balance", sums, need.mend, value=sums)
        enough.append(sums)
    if untold:
        text = f"CloudWatch does not tell the burst balance of {listed(untold)}"
        return unknown("burst-balance", text, f"{_TELEMETRY_POLICY}, or wait some minutes after attaching")
    return good("burst-balance", listed(enough), f"enough: {listed(enough)}")


def gp3_throughput(facts: Facts) -> Check | None:
    """A gp3 with its included 125 MiB/s beside a gp2 that reaches 250: a comparison would show only that."""
    of_type = {wanted: [arm for arm in facts.arms if _type(arm) == wanted] for wanted in ("gp2", "gp3")}
    for gp3 in of_type["gp3"]:
        for gp2 in of_type["gp2"]:
            low, high = _throughput(gp3), _throughput(gp2)
            if low is None or high is None:
                text = f"not known how fast {gp3.name} (gp3) and {gp2.name} (gp2) can be"
                return unknown("gp3-throughput", text, "see docs/aws.md for what AWS must be asked")
            if low < high:
                text = (
                    f"{gp3.name} (gp3) has {low / MIB:.0f} MiB/s, {gp2.name} (gp2) reaches {high / MIB:.0f}"
                )
                mend = f"esrally-ebs volumes modify gives it more: at least {high / MIB:.0f} MiB/s"
                return bad("gp3-throughput", text, mend, value=f"{low / MIB:.0f} MiB/s")
    if of_type["gp2"] and of_type["gp3"]:
        return good("gp3-throughput", "", "gp3 has at least gp2's throughput")
    return None


def initialised(facts: Facts) -> Check | None:
    """A volume from a snapshot fetches each block from S3 when it is first read."""
    made = [(arm, each) for arm in facts.arms for each in arm.members if each.snapshot_id]
    slow = [(arm, each) for arm, each in made if not each.fast_restored and each.initialised != 1.0]
    mend = "read every block once: fio --name=init --rw=read --bs=1M --direct=1 --filename=<device>"
    known = [(arm, each) for arm, each in slow if each.initialised is not None]
    if known:
        volumes = listed(f"{arm.name} {each.volume_id} {each.initialised:.0%}" for arm, each in known)
        text = f"made from a snapshot and not yet all read from it: {volumes}"
        return bad("initialised", text, mend, value=volumes)
    if slow:
        volumes = listed(f"{arm.name} {each.volume_id}" for arm, each in slow)
        text = f"made from a snapshot, and AWS does not say how much was read: {volumes}"
        return unknown("initialised", text, mend)
    if not any(arm.members for arm in facts.arms):
        return None
    return good("initialised", f"{len(made)} from snapshots", "no volume has blocks to fetch")


def modification(facts: Facts) -> Check | None:
    """A volume being modified performs between its old and new settings."""
    members = [(arm, each) for arm in facts.arms for each in arm.members]
    changing = [(arm, each) for arm, each in members if each.modification in _IN_CHANGE]
    if changing:
        volumes = listed(
            f"{arm.name} {each.volume_id} {each.modification}{_progress(each)}" for arm, each in changing
        )
        return bad("modification", f"in change: {volumes}", "wait until it says completed", value=volumes)
    untold = [each.volume_id for _, each in members if each.modification is None]
    if untold:
        text = f"not told whether {listed(untold)} is being modified"
        return unknown("modification", text, "allow ec2:DescribeVolumesModifications")
    return good("modification", "", "no volume is being modified") if members else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """Balance and need of one volume or file system that lives on burst credits."""

    arm: str
    id: str
    credits: float | None  # in the unit of ``counts``; None: unknown
    counts: str
    demand: Demand
    mend: str = "wait until it has filled, or shorten the plan"


def _needs(facts: Facts) -> Iterator[_Need]:
    for arm in facts.arms:
        for member, model in zip(arm.members, arm.models, strict=False):
            needed = demand(facts.plan, model, arm=arm.name, share=1 / len(arm.members))
            credits = credit_limit(model)
            if needed is None or credits is None:
                continue
            full = arm.balances.get(member.volume_id)
            balance = None if full is None else full * credits.capacity
            yield _Need(
                arm=arm.name, id=member.volume_id, credits=balance, counts=credits.counts, demand=needed
            )
        system = arm.bursting
        needed = demand(facts.plan, system, arm=arm.name) if system else None
        if system and needed:
            yield _Need(
                arm=arm.name,
                id=system.name,
                credits=arm.credit_bytes,
                counts="bytes",
                demand=needed,
                mend=_MEND_EFS,
            )


def _spent(needed: Demand, counts: str) -> str:
    parts = {"fio": needed.jobs, "the copy": needed.copy, "searches, estimated": needed.race}
    parts_text = listed(f"{_credits(value, counts)} by {what}" for what, value in parts.items() if value)
    return f"{_credits(needed.total, counts)} ({parts_text})" if parts_text else "none"


def _credits(count: float, counts: str) -> str:
    return format_bytes(count) if counts == "bytes" else f"{count:,.0f}"


def _type(arm: ArmFacts) -> str:
    types = {member.type for member in arm.members}
    return types.pop() if len(types) == 1 else ""


def _throughput(arm: ArmFacts) -> float | None:
    """Throughput of all its volumes; for types beyond the catalog, from AWS's description."""
    rates = [member.throughput_bytes_per_s for member in arm.members]
    known = [rate for rate in rates if rate is not None]
    whole = len(known) == len(rates) >= len(arm.volume_ids)
    modelled = arm.rate("throughput")
    return modelled if modelled is not None else float(sum(known)) if known and whole else None


def _progress(volume: EbsVolume) -> str:
    return "" if volume.modified is None else f" ({volume.modified:.0%})"
