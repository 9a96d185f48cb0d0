"""tuning-2023: for every run of gp3 the limit that held it back, from the limits' own waiting times, and what
to raise next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from esrally_ebs.emulator.catalog import Model, model_for
from esrally_ebs.emulator.latency import Service
from esrally_ebs.emulator.limits import per_second
from esrally_ebs.emulator.queue import saved_of
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.published import Cell, Plot, Series, Table
from esrally_ebs.simulate import SimulatedInstance
from esrally_ebs.studies.observed import bandwidth_of, grouped, iops_of, observed
from esrally_ebs.studies.parts import Parts, Task
from esrally_ebs.studies.runs import Run, simulated
from esrally_ebs.units import MIB

QUEUE = "queue depth"
_HELD = 0.1  # of all latency: with less waiting than that, no limit held the load back

_NAMES = {
    "throughput": "volume throughput",
    "iops": "volume IOPS",
    "instance-throughput": "instance throughput",
    "instance-iops": "instance IOPS",
    "network": "network",
    "credits": "volume credits",
    "instance-throughput-credits": "instance burst",
    "instance-iops-credits": "instance burst",
}
_STEPS = {
    "throughput": "raise throughput",
    "iops": "raise iops",
    "instance-throughput": "take a larger instance",
    "instance-iops": "take a larger instance",
    "network": "take a faster network: no setting of the volume helps",
    "credits": "raise size, or take gp3",
    "instance-throughput-credits": "take an instance with a higher baseline",
    "instance-iops-credits": "take an instance with a higher baseline",
    QUEUE: "keep more I/Os in flight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What held one run back."""

    arm: str
    job: str
    iops: float
    bytes_per_s: float
    limit: str  # of the volume or its instance, or QUEUE
    share: float  # of all latency that was spent waiting because of it
    then: str  # the limit that comes next when this one is raised
    then_bytes_per_s: float | None


def run(task: Task) -> Parts:
    """All of the study."""
    specs = {spec.name: spec for spec in task.plan.specs()}
    jobs = {job.name: job for job in task.plan.baseline}
    runs = task.runner.jobs(task.plan, {})
    figures = observed(runs)
    verdicts = [
        verdict_of(group[0], jobs[name], model_for(specs[of]))
        for (of, name), group in grouped(runs).items()
        if group[0].waited_s
    ]
    if task.runner.virtual:
        copied, verdict = _copy(task, specs)
        figures[copied.arm, copied.job, "network"] = bandwidth_of(copied)
        verdicts.append(verdict)
    return Parts(
        observed=figures,
        tables=(_table(verdicts), _agreement(task, verdicts)),
        plots=(_plot(verdicts),),
    )


def verdict_of(run: Run, job: BaselineJob, model: Model, more: Mapping[str, float] | None = None) -> Verdict:
    """The limit that most of the waiting was due to; the queue, when there was hardly any waiting.

    ``more`` are limits in bytes a second that are not the volume's or its instance's.
    """
    waits = {name: seconds / run.latency_s for name, seconds in run.waited_s.items() if seconds > 0}
    limit = max(waits, key=lambda name: waits[name], default=QUEUE)
    if sum(waits.values()) < _HELD:
        limit = QUEUE
    others = {name: at for name, at in ceilings(run, job, model, more).items() if name != limit}
    then = min(others, key=lambda name: others[name], default="")
    return Verdict(
        arm=run.arm,
        job=run.job,
        iops=iops_of(run),
        bytes_per_s=bandwidth_of(run),
        limit=limit,
        share=waits.get(limit, 0.0),
        then=then,
        then_bytes_per_s=others.get(then),
    )


def ceilings(
    run: Run, job: BaselineJob, model: Model, more: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Bytes a second that this load would get from each limit alone, and from the queue that it keeps."""
    per_operation = min(job.bs, model.accounting.max_io_bytes) / (1 - _merged(job, model))
    found = dict(more or {})
    for limit in (*model.limits, *model.instance_limits):
        if not limit.of_credits:  # how long a burst lasts is another question
            found[limit.name] = limit.rate * (per_operation if limit.counts == "operations" else 1.0)
    services = {"read": model.read, "write": model.write}
    served_s = sum(x.ios * _served_s(services[x.op], job.bs) for x in run.directions) / run.ios
    depth = job.numjobs * job.in_flight
    found[QUEUE] = depth * job.bs / served_s
    return found


def _served_s(service: Service, size: int) -> float:
    base_s, per_byte_s = service.line_s()
    return base_s + per_byte_s * size


def _merged(job: BaselineJob, model: Model) -> float:
    """The part of a sequential job's I/Os that is not counted, being merged with the one before."""
    if job.rw.startswith("rand"):
        return 0.0
    return saved_of(job.bs, model.accounting.max_io_bytes, model.accounting.merges_over)


def _copy(task: Task, specs: Mapping[str, VolumeSpec]) -> tuple[Run, Verdict]:
    """The copy over a VPN: the network as one more limit before the volume."""
    settings = task.study.settings["network"]
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
    return copied, verdict_of(copied, job, model, {"network": rate})


def _table(verdicts: Sequence[Verdict]) -> Table:
    rows: list[list[Cell]] = [
        [
            verdict.arm,
            verdict.job,
            verdict.bytes_per_s / MIB,
            verdict.iops,
            _NAMES.get(verdict.limit, verdict.limit),
            f"{verdict.share * 100:.0f} %",
            _STEPS.get(verdict.limit, ""),
            _NAMES.get(verdict.then, verdict.then),
            None if verdict.then_bytes_per_s is None else verdict.then_bytes_per_s / MIB,
        ]
        for verdict in verdicts
    ]
    columns = (
        "arm",
        "job",
        "MiB/s",
        "IOPS",
        "held back by",
        "of all latency",
        "next step",
        "then",
        "at MiB/s",
    )
    note = "Held back by: the limit that I/Os waited for, from its own count of seconds; no wait: the queue."
    return Table(title="What held each run back", columns=columns, rows=rows, note=note)


def _agreement(task: Task, verdicts: Sequence[Verdict]) -> Table:
    """The article's reading of each run beside ours."""
    ours = {(verdict.arm, verdict.job): verdict.limit for verdict in verdicts}
    rows: list[list[Cell]] = []
    for arm, job, theirs in task.study.settings["verdicts"]:
        limit = ours.get((arm, job))
        if limit is not None:
            said = "instance" if theirs == "instance" else _NAMES[theirs]
            agrees = limit.startswith(theirs)
            rows.append([arm, job, said, _NAMES.get(limit, limit), "yes" if agrees else "no"])
    columns = ("arm", "job", "the article", "ours", "agree")
    note = (
        "t3.small lets 248.6 MiB/s through, a little less than 250: the instance holds that arm back, not the"
        " volume."
    )
    return Table(title="The article's reading and ours", columns=columns, rows=rows, note=note)


def _plot(verdicts: Sequence[Verdict]) -> Plot:
    arms = list(dict.fromkeys(verdict.arm for verdict in verdicts))
    jobs = list(dict.fromkeys(verdict.job for verdict in verdicts))
    series = [
        Series(
            name=job,
            marks=True,
            points=[(float(arms.index(v.arm)), v.bytes_per_s / MIB) for v in verdicts if v.job == job],
        )
        for job in jobs
    ]
    return Plot(title="Throughput", across="arm", up="MiB/s", series=series, names=arms)
