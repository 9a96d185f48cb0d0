"""Which limit held each arm back, by the waits that its volume counted, and the price of raising it.

A limit that holds back a closed loop serves just its rate. When a share of the I/Os' time is waiting for it,
they take 1 / (1 - share) times as long as without it: ``rate / (1 - share)`` is what was asked for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf

from esrally_ebs.analysis.profile import BESIDE, WAITED, Profile, Profiles, block_profiles, pooled
from esrally_ebs.catalog.generations import generation_of
from esrally_ebs.catalog.limits import CREDITS, charged_bytes
from esrally_ebs.catalog.volume_types import efs_mode, known_model, most_sold
from esrally_ebs.model import VolumeSpec, of_any
from esrally_ebs.report.cells import arm_names
from esrally_ebs.report.costs import costs
from esrally_ebs.store.session import Session
from esrally_ebs.units import KIB, MIB

MIN_WAITING = 0.1  # of the I/Os' time: below it, no limit counts as holding the load back
# Each limit in words, and what to change if it held an arm back.
_LIMITS = {
    "throughput": ("volume throughput", "raise throughput"),
    "iops": ("volume IOPS", "raise iops"),
    "instance-throughput": ("instance throughput", "take a larger instance"),
    "instance-iops": ("instance IOPS", "take a larger instance"),
    "network": ("network", "take a faster network: no setting of the volume helps"),
    "credits": ("volume credits", "raise size, or take gp3"),
    "instance-throughput-credits": ("instance burst", "take an instance with a higher baseline"),
    "instance-iops-credits": ("instance burst", "take an instance with a higher baseline"),
}
NAMES = {limit: name for limit, (name, _) in _LIMITS.items()}
STEPS = {limit: step for limit, (_, step) in _LIMITS.items()}
_BOUGHT = ("throughput", "iops")
_OF_VOLUME = (*_BOUGHT, "credits")
_BY_IOPS = ("io1", "io2", "io2-block-express")
_HDD = ("st1", "sc1")
_SSD_IO_BYTES = 256 * KIB  # the largest I/O that counts as one operation
_MAGNETIC = ("standard", "magnetic")
_BY_SIZE = ("gp2", *_HDD, *_MAGNETIC)  # gp3 reaches the same by settings bought apart from its size
_EFS_STEPS = {"bursting": "take gp3, or another mode of EFS", "provisioned": "raise throughput"}


def step_of(spec: VolumeSpec, limit: str) -> str:
    """What to change if this limit held a volume back; "" if unknown.

    A type whose limits follow its size is replaced, not enlarged; io1 and io2 have no throughput setting; a
    volume at its type's maximum is replaced. If the instance sustains no more, no volume helps.
    """
    model = known_model(spec)
    for one in model.instance_limits if model else ():
        is_same = one.name.removesuffix(f"-{CREDITS}") == f"instance-{limit}"
        if is_same and one.rate <= _rate(spec, limit) * spec.stripes:
            return STEPS[one.name]
    step = _step_of_type(spec, limit)
    if limit not in _BOUGHT or spec.type not in (*_BY_SIZE, *_BY_IOPS, "gp3"):
        return step
    if limit == "throughput" and spec.type in _BY_IOPS:
        step = _step_by_iops(spec)
    first = ("gp3", "take gp3") if spec.type in _BY_SIZE else (spec.type, step)
    for type_, way in (first, ("io2", "take io2")):
        if _rate(most_sold(spec, type_), limit) > _rate(spec, limit):
            return way
    return "stripe more volumes" if _rate(spec, limit) else step


def _step_of_type(spec: VolumeSpec, limit: str) -> str:
    """The step for limits that cannot be bought directly: an instance's disks, most modes of EFS, and
    magnetic volumes, which size makes no faster.
    """
    if spec.type == "instance-store" and limit in _BOUGHT:
        return "take an instance with faster disks"
    if spec.type == "efs" and limit in ("throughput", CREDITS) and known_model(spec):
        return _EFS_STEPS.get(efs_mode(spec), "")
    return "take gp3" if spec.type in _MAGNETIC and limit == CREDITS else STEPS.get(limit, "")


def _step_by_iops(spec: VolumeSpec) -> str:
    """The step where throughput follows IOPS, with exceptions: an io1 has 500 MiB/s from 2,000 to 32,000
    IOPS.
    """
    rate = _rate(spec, "throughput")
    if not rate or _rate(replace(spec, iops=(spec.iops or 0) + 1), "throughput") > rate:
        return "raise iops, which throughput follows"
    if _rate(replace(spec, type="io2"), "throughput") > rate:
        return "take io2"
    ends = (up_to for up_to, _, _ in generation_of(spec).constants["throughput_mib_per_iops"])
    last = next(up_to for up_to in ends if (spec.iops or 0) <= up_to)
    return f"raise iops above {last:,}, from where throughput follows"


def _rate(spec: VolumeSpec | None, limit: str) -> float:
    """Rate of a volume's limit per second; 0 if the volume is not sold or has no such limit."""
    model = None if spec is None else known_model(spec)
    return sum(one.rate for one in model.limits if one.name == limit) if model else 0.0


def limit_name(counter: str) -> str:
    """The catalog's name of a limit: EBS counts ``volume_iops``, striped volumes ``2-iops``."""
    return of_any(counter.replace("_", "-")).removeprefix("volume-")


# By arm, a sentence per limit that held it back, by the limit's name; empty if none did.
HeldBack = Mapping[str, Mapping[str, str]]


def held_back(session: Session, profiles: Profiles, arms: Sequence[str] = ()) -> dict[str, dict[str, str]]:
    """The limits that held each arm back; see HeldBack.

    Leaves out arms whose waits were not counted. For sessions without searches, fio's jobs count.
    """
    loads: dict[str, dict[str, Profile]] = {}
    of_writes = block_profiles(session, BESIDE)
    for (task, arm), rounds in (*profiles.items(), *of_writes.items()):
        loads.setdefault(arm, {})[task] = pooled(rounds.values())
    loads = loads or _fio_loads(session)
    names, sentences = arm_names(session), dict[str, dict[str, str]]()
    for spec in (volume.spec for volume in session.arms if volume.spec.name in (arms or names)):
        counted = {item: _shares(load) for item, load in loads.get(spec.name, {}).items()}
        waiting = {
            item: shares
            for item, shares in counted.items()
            if max(shares.values(), default=0.0) >= MIN_WAITING
        }
        if waiting:
            limit, text = _main_limit(session, spec, loads[spec.name], waiting)
            sentences[spec.name] = {limit: f"{names[spec.name]} {text}."}
        elif any(counted.values()):
            sentences[spec.name] = {}
    return sentences


def bottleneck_lines(session: Session, sentences: HeldBack) -> tuple[str, ...]:
    """The sentences of ``held_back``, and one for arms that no limit held back."""
    names = arm_names(session)
    free = [names[arm] for arm, of_arm in sentences.items() if not of_arm]
    lines = [sentence for of_arm in sentences.values() for sentence in of_arm.values()]
    return (*lines, *([f"No limit held back {', '.join(free)}."] if free else ()))


def _shares(load: Profile) -> dict[str, float]:
    shares: dict[str, float] = {}
    for counter, share in load.held_back.items():
        shares[limit_name(counter)] = min(1.0, shares.get(limit_name(counter), 0.0) + share)
    return shares


def _main_limit(
    session: Session,
    spec: VolumeSpec,
    loads: Mapping[str, Profile],
    held_back: Mapping[str, Mapping[str, float]],
) -> tuple[str, str]:
    """The limit with the longest waits over all tasks, and its sentence."""
    sums: dict[str, float] = {}
    for shares in held_back.values():
        for name, share in shares.items():
            sums[name] = sums.get(name, 0.0) + share
    limit = max(sums, key=lambda name: sums[name])
    items = [item for item, shares in held_back.items() if shares.get(limit, 0.0) >= MIN_WAITING]
    load = pooled(loads[item] for item in items)
    share = _shares(load).get(limit, 0.0)
    where = items[0] if len(items) == 1 else f"{len(items)} of {len(loads)} tasks"
    where = "" if len(items) == len(loads) else f" on {where}"
    of = "I/O time" if load.waited_s else "time"
    step = _priced_step(session, spec, limit, share, load, _busiest(loads.values())) if load.waited_s else ""
    step = step or step_of(spec, limit)
    text = f"is held back by {NAMES.get(limit, limit)} ({share:.0%} of its {of}{where})"
    return limit, f"{text}; {step}" if step else text


def _busiest(loads: Iterable[Profile]) -> tuple[float, float]:
    """The highest I/Os per second and bytes per second of any load."""
    rates = [[count / load.seconds for count in _ios(load)] for load in loads if load.seconds] or [[0.0, 0.0]]
    return max(ios for ios, _ in rates), max(size for _, size in rates)


def _ios(load: Profile) -> tuple[float, float]:
    """Number and bytes of I/Os, reads and writes, without flushes, which the kernel counts as writes."""
    grown = load.grown
    writes = grown.get("emulator.writes", grown.get("device.writes", 0.0))
    size = grown.get("device.read_bytes", 0.0) + grown.get("device.written_bytes", 0.0)
    return grown.get("device.reads", 0.0) + writes, size


def _priced_step(
    session: Session, spec: VolumeSpec, limit: str, share: float, load: Profile, busiest: tuple[float, float]
) -> str:
    """What to buy instead, and its price; "" if no volume setting can be bought for it or has a price."""
    nodes = session.plan.node.count
    own_ios, own_size = _ios(load)
    io_bytes = own_size / own_ios if own_ios else None
    ios, size = busiest  # over all nodes
    wanted = wanted_setting(spec, limit, share, io_bytes, (ios / nodes, size / nodes))
    if wanted is None:
        return ""
    now, then = (one.price for one in costs(session, [spec, wanted]))
    if now is None or then is None:
        return ""
    usd = then.usd - now.usd
    price = f"for {usd:,.2f} USD a month more" if usd >= 0 else f"and save {-usd:,.2f} USD a month"
    parts = [
        text
        for text, changed in (
            (f"{(wanted.throughput_bytes_per_s or 0) / MIB:,.0f} MiB/s",
             wanted.throughput_bytes_per_s != spec.throughput_bytes_per_s),
            (f"{wanted.iops or 0:,} IOPS", wanted.iops != spec.iops),
        )
        if changed
    ]  # fmt: skip
    verb = "raise it to" if wanted.type == spec.type else f"take {wanted.type} with"
    each = f" on each of {spec.stripes * nodes} volumes" if spec.stripes * nodes > 1 else ""
    setting = f"{' and '.join(parts)}{each}" if parts else "what its price includes"
    return f"{verb} {setting} {price}"


def wanted_setting(
    spec: VolumeSpec,
    limit: str,
    share: float,
    io_bytes: float | None,
    busiest: tuple[float, float] = (0.0, 0.0),
) -> VolumeSpec | None:
    """The setting that serves the load, as far as sold and as the instance passes; None if none is better.

    ``share`` of the I/Os' time was waiting for ``limit``; ``io_bytes`` is an I/O's mean size. A gp3 that
    replaces another type must also serve ``busiest``: I/Os and bytes per second of all striped volumes.
    """
    model, most = known_model(spec), most_sold(spec, spec.type if spec.type in _BY_IOPS else "gp3")
    if model is None or most is None or most.iops is None or io_bytes is None:
        return None
    of = model.accounting
    per_operation = min(io_bytes, of.max_io_bytes)
    bytes_per_s = {
        one.name: one.rate * (per_operation if one.counts == "operations" else 1.0)
        for one in (*model.limits, *model.instance_limits)
    }
    if limit not in _OF_VOLUME or limit not in bytes_per_s or io_bytes < 1 or share >= 1.0:
        return None
    instance = min((bytes_per_s[one.name] / spec.stripes for one in model.instance_limits), default=inf)
    served, (other_iops, other_rate) = bytes_per_s[limit], (one / spec.stripes for one in busiest)
    if spec.type in _HDD:  # a random I/O is charged a whole mebibyte, so the limit serves that much less
        random = io_bytes / charged_bytes(ceil(io_bytes), False, of.max_io_bytes, of.merges_over)
        served = min(served, max(served * random, other_rate))
        per_operation = min(per_operation, _SSD_IO_BYTES)
    needed = min(served / (1.0 - share), instance, most.iops * per_operation)
    if spec.type in _BY_IOPS and limit == "iops":
        wanted = replace(spec, iops=_more(_iops(needed / per_operation, most.iops), spec.iops, 0))
    elif spec.type == "gp3" or spec.type in _BY_SIZE:
        if spec.type == "gp3":
            other_iops = other_rate = 0.0
        most_rate = most.throughput_bytes_per_s or needed
        iops = _iops(max(min(needed, most_rate) / per_operation, other_iops), most.iops)
        rate = ceil(min(max(needed, other_rate), most_rate) / MIB) * MIB
        wanted = replace(
            spec,
            type="gp3",
            iops=_more(iops, spec.iops, 3000),
            throughput_bytes_per_s=_more(rate, spec.throughput_bytes_per_s, 125 * MIB),
        )
    else:
        return None
    serves_more = limit == CREDITS or _rate(wanted, limit) > _rate(spec, limit) * served / bytes_per_s[limit]
    return wanted if wanted != spec and serves_more and known_model(wanted) else None


def _iops(needed: float, most: int) -> int:
    """Rounded up to hundreds, at most ``most``."""
    return min(ceil(needed / 100) * 100, most)


def _more(wanted: int, now: int | None, included: int) -> int | None:
    """``wanted``, or the current setting if that is enough."""
    return now if wanted <= (now or included) else wanted


def _fio_loads(session: Session) -> dict[str, dict[str, Profile]]:
    """fio's first pass as profiles, by arm and job; all of its I/Os counted as reads."""
    jobs = {job.name: job for job in session.plan.baseline}
    rows: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for row in session.baseline.to_pylist():
        if row["round"] == 0:
            rows.setdefault((row["arm"], row["job"]), []).append(row)
    loads: dict[str, dict[str, Profile]] = {}
    for event in session.events:
        key = str(event.arm), str(event.fields.get("job"))
        waited_s = event.fields.get("waited_s")
        if event.kind != "baseline" or event.fields.get("round") != 0 or not waited_s:
            continue
        job, iops = jobs.get(key[1]), sum(row["iops"] or 0.0 for row in rows.get(key, ()))
        if job is None or not iops:
            continue
        seconds = job.lasts_s or job.numjobs * job.size / job.bs / iops
        io_s = seconds * sum(row["iops"] * row["mean_s"] for row in rows[key] if row["iops"])
        grown = {"device.reads": seconds * iops, "device.read_bytes": seconds * iops * job.bs}
        grown |= {"device.read_s": io_s, "device.write_s": 0.0}
        grown |= {WAITED + name: float(s) for name, s in waited_s.items()}
        loads.setdefault(key[0], {})[key[1]] = Profile(requests=1, seconds=seconds, grown=grown)
    return loads
