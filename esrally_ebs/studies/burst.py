"""burst-2014: tokens spent, run out, saved up again; five-minute sums, await and queue second by second."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from esrally_ebs.emulator.catalog import model_for
from esrally_ebs.emulator.limits import Limit
from esrally_ebs.model import VolumeSpec
from esrally_ebs.published import Cell, Plot, Series, Table
from esrally_ebs.studies.parts import Parts, Task
from esrally_ebs.studies.runs import Phase, simulated

_WINDOW_S = 300  # of CloudWatch's VolumeWriteOps in 2014
_SETTLING_S = 5  # a phase's first seconds spend what was saved up
_QUEUE_RUN_S = 60.0
_POINTS = 900  # of a line in a plot


def run(task: Task) -> Parts:
    """All of the study."""
    spec = task.plan.specs()[0]
    credit = next(limit for limit in model_for(spec).limits if limit.of_credits)
    return analysed(task, task.runner.phases(task.plan), spec, credit)


def analysed(task: Task, phases: Sequence[Phase], spec: VolumeSpec, credit: Limit) -> Parts:
    """Figures, tables and plots from the phases, however they were run."""
    figures: dict[tuple[str, str, str], float] = {
        ("", "", "full"): credit.capacity / credit.rate,
        ("", "", "token"): 1 / credit.rate,
    }
    scale = task.runner.scale
    by_name = {phase.name: phase for phase in phases}
    lengths = {name: phase.burst_s(credit.rate) for name, phase in by_name.items()}
    settling = max(1, _SETTLING_S // scale)
    plateaus = {name: phase.part(settling, int(lengths[name])) for name, phase in by_name.items()}
    spent = by_name["burst"]
    begin = int(lengths["burst"]) + settling + 1
    plateaus["baseline"] = spent.part(begin, len(spent.seconds) - settling)
    sums = five_minute_sums(phases, _WINDOW_S // scale)
    for name, plateau in plateaus.items():
        if plateau.seconds:
            figures["", name, "iops"] = plateau.iops
            figures["", name, "await"] = plateau.await_s
    for name, phase in by_name.items():
        whole = _whole_sums(sums, phase, _WINDOW_S // scale)
        if whole:
            figures["", name, "ops_5min"] = max(whole) * scale
    if lengths.keys() >= set(task.study.settings["spent"]):
        spent_s = sum(lengths[name] for name in task.study.settings["spent"])
        figures["", "", "length"] = float(spent_s * scale)
    figures["", "", "again"] = float(lengths["again"] * scale)
    queues = _queues(task, spec, credit)
    return Parts(
        observed=figures,
        tables=(_phase_table(plateaus, lengths, scale), queues),
        plots=(_sums_plot(sums, scale), *_second_plots(phases)),
        remarks=_remarks(
            task, lengths, _whole_sums(sums, by_name["again"], _WINDOW_S // scale), queues, credit
        ),
    )


def five_minute_sums(phases: Sequence[Phase], window_s: int = _WINDOW_S) -> list[tuple[int, int]]:
    """I/Os of every five minutes of the study's clock, as (start in seconds, I/Os); idle ones too."""
    end_s = max(phase.start_s + len(phase.seconds) for phase in phases)
    sums = [0] * (end_s // window_s + 1)
    for phase in phases:
        for i, (done, _) in enumerate(phase.seconds):
            sums[(phase.start_s + i) // window_s] += done
    return [(i * window_s, count) for i, count in enumerate(sums)]


def _whole_sums(sums: Sequence[tuple[int, int]], phase: Phase, window_s: int) -> list[int]:
    """Those that lie within a phase."""
    end_s = phase.start_s + len(phase.seconds)
    return [count for start, count in sums if phase.start_s <= start and start + window_s <= end_s + 1]


def _queues(task: Task, spec: VolumeSpec, credit: Limit) -> Table:
    """The spent volume under queues of several lengths: Little's law against the article's guess."""
    job = task.plan.baseline[-1]
    guess_s = task.study.settings["guess_s"]
    rows: list[list[Cell]] = []
    for queue in task.study.settings["queues"]:
        alone = job.model_copy(
            update={"iodepth": queue, "runtime": _QUEUE_RUN_S, "rest": 0.0, "name": f"queue-{queue}"}
        )
        ours = simulated(replace(spec, credits=0.0), alone, compiled=None)  # few I/Os: no compiling
        rows.append([queue, ours.latency_s / ours.ios * 1e3, queue / credit.rate * 1e3, guess_s * 1e3])
    columns = ("in flight", "await, ours (ms)", "Little: in flight / IOPS (ms)", "a token every 300 ms (ms)")
    note = "In virtual time, credits spent. Were a token to come only every 300 ms, no queue could be faster."
    return Table(title="What await after the burst depends on", columns=columns, rows=rows, note=note)


def _phase_table(plateaus: Mapping[str, Phase], lengths: Mapping[str, float], scale: int) -> Table:
    rows: list[list[Cell]] = [
        [
            name,
            phase.start_s,
            lengths.get(name, len(phase.seconds)) * scale,
            phase.iops,
            phase.await_s * 1e3,
            phase.iops * phase.await_s,
        ]
        for name, phase in plateaus.items()
        if phase.seconds
    ]
    columns = ("phase", "from (s)", "lasts (s)", "IOPS", "await (ms)", "VolumeQueueLength")
    return Table(title="Phases", columns=columns, rows=rows, note="Queue length is IOPS times await.")


def _remarks(
    task: Task, lengths: Mapping[str, float], again: Sequence[int], queues: Table, credit: Limit
) -> tuple[str, ...]:
    full = sum(count > 0.98 * max(again) for count in again)
    worst = max(abs(float(row[1] or 0) / float(row[2] or 1) - 1) for row in queues.rows[1:])
    shortest = queues.rows[0]
    rest_s = next(job.rest for job in task.plan.baseline if job.name == "again")
    saved = rest_s * credit.rate
    # They are spent at what the burst takes beyond what comes in meanwhile.
    arithmetic_s = saved / (next(x.rate for x in model_for(task.plan.specs()[0]).limits) - credit.rate)
    ours_s = lengths["again"] * task.runner.scale
    return (
        f"Little's law holds within {worst * 100:.1f} % for every queue of more than one; with one in flight"
        f" await is {float(shortest[1] or 0):.2f} ms, so tokens cannot come every 300 ms.",
        f"In {rest_s:,.0f} s of rest {saved:,.0f} tokens are saved up: {arithmetic_s:,.0f} s of burst by"
        f" arithmetic, {ours_s:,.0f} s here ({(ours_s / arithmetic_s - 1) * 100:+.1f} %); it fills"
        f" {full} sums of five minutes, {full * _WINDOW_S // 60} minutes.",
    )


def _sums_plot(sums: Sequence[tuple[int, int]], scale: int) -> Plot:
    points = [(start * scale / 60, float(count * scale)) for start, count in sums]
    return Plot(
        title="VolumeWriteOps, sums of five minutes",
        across="min",
        up="I/Os",
        series=[Series(name="ours", points=points)],
    )


def _second_plots(phases: Sequence[Phase]) -> tuple[Plot, Plot]:
    awaits = [Series(name=phase.name, points=_thinned(phase, by_io=True)) for phase in phases]
    queues = [Series(name=phase.name, points=_thinned(phase, by_io=False)) for phase in phases]
    return (
        Plot(title="await by second", across="min", up="ms", series=awaits, logarithmic=True),
        Plot(title="Queue length by second", across="min", up="I/Os in flight", series=queues),
    )


def _thinned(phase: Phase, *, by_io: bool) -> list[tuple[float, float]]:
    """Await in ms of every so many seconds, or the queue's length: latencies of a second added up."""
    step = -(-len(phase.seconds) // _POINTS) or 1
    points = []
    for begin in range(0, len(phase.seconds), step):
        part = phase.seconds[begin : begin + step]
        done, latency = sum(n for n, _ in part), sum(s for _, s in part)
        if done:
            up = latency / done * 1e3 if by_io else latency / len(part)
            points.append(((phase.start_s + begin) / 60, up))
    return points
