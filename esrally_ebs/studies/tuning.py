"""tuning-2023: for every run of gp3, the limit that held it back, from the limits' own waiting times, and
what to raise next.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from esrally_ebs.catalog.limits import Model, per_second
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.report.bottleneck import MIN_WAITING, NAMES, STEPS
from esrally_ebs.report.model import Plot, Table, Value, curve_through, plain_table
from esrally_ebs.studies.published import Inputs, Parts
from esrally_ebs.studies.runs import Run, bandwidth_of, grouped, iops_of, observed, simulated
from esrally_ebs.units import MIB
from esrally_ebs.volumes.emulated.law.queue import saved_of
from esrally_ebs.volumes.virtual import SimulatedInstance

QUEUE = "queue depth"
_STEPS = STEPS | {QUEUE: "keep more I/Os in flight"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    arm: str
    job: str
    iops: float
    bytes_per_s: float
    limit: str  # name of a limit of the volume or its instance, or QUEUE
    share: float  # of all latency, waiting for it
    next_limit: str  # the one that applies if this one is raised
    next_bytes_per_s: float | None


def run(inputs: Inputs) -> Parts:
    specs = {spec.name: spec for spec in inputs.plan.arm}
    jobs = {job.name: job for job in inputs.plan.baseline}
    runs = inputs.runner.jobs(inputs.plan, {})
    figures = observed(runs)
    bottlenecks = [
        bottleneck_of(group[0], jobs[name], model_for(specs[of]))
        for (of, name), group in grouped(runs).items()
        if group[0].waited_s
    ]
    if inputs.runner.virtual:
        copied, bottleneck = _copy(inputs, specs)
        figures[copied.arm, copied.job, "network"] = bandwidth_of(copied)
        bottlenecks.append(bottleneck)
    return Parts(
        observed=figures,
        conclusion=_conclusion(bottlenecks),
        tables=(_table(bottlenecks), _agreement(inputs, bottlenecks)),
        plots=(_plot(bottlenecks),),
    )


def _conclusion(bottlenecks: Sequence[Bottleneck]) -> str:
    counts = Counter(NAMES.get(bottleneck.limit, bottleneck.limit) for bottleneck in bottlenecks)
    parts = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return f"Of {len(bottlenecks)} runs these limits held back: {parts}."


def bottleneck_of(
    run: Run, job: BaselineJob, model: Model, more: Mapping[str, float] | None = None
) -> Bottleneck:
    """The limit with most of the waiting; the queue, if there was hardly any.

    ``more``: limits in bytes per second beyond those of the volume and its instance.
    """
    waits = {name: seconds / run.latency_s for name, seconds in run.waited_s.items() if seconds > 0}
    limit = max(waits, key=lambda name: waits[name], default=QUEUE)
    if sum(waits.values()) < MIN_WAITING:
        limit = QUEUE
    others = {name: at for name, at in ceilings(run, job, model, more).items() if name != limit}
    next_limit = min(others, key=lambda name: others[name], default="")
    return Bottleneck(
        arm=run.arm,
        job=run.job,
        iops=iops_of(run),
        bytes_per_s=bandwidth_of(run),
        limit=limit,
        share=waits.get(limit, 0.0),
        next_limit=next_limit,
        next_bytes_per_s=others.get(next_limit),
    )


def ceilings(
    run: Run, job: BaselineJob, model: Model, more: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Bytes per second for this load under each limit alone, and under its own queue depth."""
    per_operation = min(job.bs, model.accounting.max_io_bytes) / (1 - _merged(job, model))
    ceiling_of = dict(more or {})
    for limit in (*model.limits, *model.instance_limits):
        if not limit.of_credits:  # how long a burst lasts is a separate question
            ceiling_of[limit.name] = limit.rate * (per_operation if limit.counts == "operations" else 1.0)
    services = {"read": model.read, "write": model.write}
    served_s = sum(x.ios * services[x.op].median_s(job.bs) for x in run.directions) / run.ios
    depth = job.numjobs * job.in_flight
    ceiling_of[QUEUE] = depth * job.bs / served_s
    return ceiling_of


def _merged(job: BaselineJob, model: Model) -> float:
    """Share of a sequential job's I/Os that are not counted, as they are merged with the one before."""
    if job.rw.startswith("rand"):
        return 0.0
    return saved_of(job.bs, model.accounting.max_io_bytes, model.accounting.merges_over)


def _copy(inputs: Inputs, specs: Mapping[str, VolumeSpec]) -> tuple[Run, Bottleneck]:
    """The copy over a VPN, with the network as a further limit before the volume."""
    settings = inputs.study.settings["network"]
    spec = specs[settings["like"]]
    model = model_for(spec)
    rate = settings["bits_per_s"] / 8
    job = BaselineJob(
        name=settings["job"],
        rw="write",
        bs=settings["block"],
        engine="libaio",
        iodepth=settings["queue"],
        size=1 << 30,
        runtime=settings["seconds"],
    )
    network = per_second("network", "bytes", rate, 0.1)
    ours = simulated(spec, job, instance=SimulatedInstance((*model.instance_limits, network)))
    copied = replace(ours, arm=settings["arm"])
    return copied, bottleneck_of(copied, job, model, {"network": rate})


def _table(bottlenecks: Sequence[Bottleneck]) -> Table:
    rows: list[list[Value]] = []
    for of in bottlenecks:
        limit = (NAMES.get(of.limit, of.limit), f"{of.share * 100:.0f} %", _STEPS.get(of.limit, ""))
        at = None if of.next_bytes_per_s is None else of.next_bytes_per_s / MIB
        then = (NAMES.get(of.next_limit, of.next_limit), at)
        rows.append([of.arm, of.job, of.bytes_per_s / MIB, of.iops, *limit, *then])
    columns = ["arm", "job", "MiB/s", "IOPS", "held back by", "of all latency", "next step"]
    columns += ["then", "at MiB/s"]
    note = "Held back by: the limit that I/Os waited for, from its own count of seconds; no wait: the queue."
    return plain_table("bottlenecks", "What held each run back", columns, rows, note)


def _agreement(inputs: Inputs, bottlenecks: Sequence[Bottleneck]) -> Table:
    """The article's explanation of each run, and ours."""
    ours = {(bottleneck.arm, bottleneck.job): bottleneck.limit for bottleneck in bottlenecks}
    rows: list[list[Value]] = []
    for arm, job, theirs in inputs.study.settings["verdicts"]:
        limit = ours.get((arm, job))
        if limit is not None:
            published = "instance" if theirs == "instance" else NAMES[theirs]
            agrees = limit.startswith(theirs)
            rows.append([arm, job, published, NAMES.get(limit, limit), "yes" if agrees else "no"])
    columns = ("arm", "job", "the article", "ours", "agree")
    note = (
        "t3.small lets 248.6 MiB/s through, a little less than 250: the instance holds that arm back, not the"
        " volume."
    )
    return plain_table("agreement", "The article's reading and ours", columns, rows, note)


def _plot(bottlenecks: Sequence[Bottleneck]) -> Plot:
    arms = list(dict.fromkeys(bottleneck.arm for bottleneck in bottlenecks))
    jobs = list(dict.fromkeys(bottleneck.job for bottleneck in bottlenecks))
    points = {
        job: [(float(arms.index(of.arm)), of.bytes_per_s / MIB) for of in bottlenecks if of.job == job]
        for job in jobs
    }
    curves = tuple(curve_through(job, of_job, "marks") for job, of_job in points.items())
    return Plot(title="Throughput", across="arm", up="MiB/s", curves=curves, places=tuple(arms))
