"""burst-2014: credits spent, exhausted, earned again; five-minute sums, await and queue second by second."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from esrally_ebs.catalog.limits import Limit
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.report.model import Plot, Table, Value, curve_through, plain_table
from esrally_ebs.studies.published import Inputs, Parts
from esrally_ebs.studies.runs import LoadPhase, simulated

_WINDOW_S = 300  # of CloudWatch's VolumeWriteOps in 2014
_SETTLING_S = 5  # first seconds of a phase, which spend saved tokens
_QUEUE_RUN_S = 60.0
_POINTS = 900  # of a line in a plot


def run(inputs: Inputs) -> Parts:
    spec = inputs.plan.arm[0]
    credit = next(limit for limit in model_for(spec).limits if limit.of_credits)
    return analysed(inputs, inputs.runner.phases(inputs.plan), spec, credit)


def analysed(inputs: Inputs, phases: Sequence[LoadPhase], spec: VolumeSpec, credit: Limit) -> Parts:
    """Figures, tables and plots from the phases, virtual or measured."""
    figures: dict[tuple[str, str, str], float] = {
        ("", "", "full"): credit.capacity / credit.rate,
        ("", "", "token"): 1 / credit.rate,
    }
    scale = inputs.runner.scale
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
    if lengths.keys() >= set(inputs.study.settings["spent"]):
        spent_s = sum(lengths[name] for name in inputs.study.settings["spent"])
        figures["", "", "length"] = float(spent_s * scale)
    figures["", "", "again"] = float(lengths["again"] * scale)
    queues = _queues(inputs, spec, credit)
    return Parts(
        observed=figures,
        conclusion=(
            f"Spent credits leave {credit.rate:,.0f} IOPS; after two hours of rest they last "
            f"{figures['', '', 'again'] / 60:.1f} min of burst, and from empty to full they take "
            f"{credit.capacity / credit.rate / 3600:.1f} h."
        ),
        tables=(_phase_table(plateaus, lengths, scale), _queue_table(queues)),
        plots=(_sums_plot(sums, scale), *_second_plots(phases)),
        remarks=_remarks(
            inputs, lengths, _whole_sums(sums, by_name["again"], _WINDOW_S // scale), queues, credit
        ),
    )


def five_minute_sums(phases: Sequence[LoadPhase], window_s: int = _WINDOW_S) -> list[tuple[int, int]]:
    """I/Os in each five minutes of the study's clock, as (start in seconds, I/Os); including idle ones."""
    end_s = max(phase.start_s + len(phase.seconds) for phase in phases)
    sums = [0] * (end_s // window_s + 1)
    for phase in phases:
        for i, (done, _) in enumerate(phase.seconds):
            sums[(phase.start_s + i) // window_s] += done
    return [(i * window_s, count) for i, count in enumerate(sums)]


def _whole_sums(sums: Sequence[tuple[int, int]], phase: LoadPhase, window_s: int) -> list[int]:
    """Sums of windows completely inside a phase."""
    end_s = phase.start_s + len(phase.seconds)
    return [count for start, count in sums if phase.start_s <= start and start + window_s <= end_s + 1]


def _queues(inputs: Inputs, spec: VolumeSpec, credit: Limit) -> list[tuple[int, float, float, float]]:
    """Await of the exhausted volume by queue: in flight; ms: ours, Little's law, the article's estimate."""
    job = inputs.plan.baseline[-1]
    guess_s = inputs.study.settings["guess_s"]
    rows = []
    for queue in inputs.study.settings["queues"]:
        alone = job.model_copy(
            update={"iodepth": queue, "runtime": _QUEUE_RUN_S, "rest": 0.0, "name": f"queue-{queue}"}
        )
        ours = simulated(replace(spec, credits=0.0), alone, compiled=None)  # few I/Os: no need to compile
        rows.append((queue, ours.latency_s / ours.ios * 1e3, queue / credit.rate * 1e3, guess_s * 1e3))
    return rows


def _queue_table(rows: Sequence[tuple[int, float, float, float]]) -> Table:
    columns = ("in flight", "await, ours (ms)", "Little: in flight / IOPS (ms)", "a token every 300 ms (ms)")
    note = "In virtual time, credits spent. Were a token to come only every 300 ms, no queue could be faster."
    return plain_table("queues", "What await after the burst depends on", columns, rows, note)


def _phase_table(plateaus: Mapping[str, LoadPhase], lengths: Mapping[str, float], scale: int) -> Table:
    rows: list[list[Value]] = []
    for name, phase in plateaus.items():
        if phase.seconds:
            lasts_s = lengths.get(name, len(phase.seconds)) * scale
            served = (phase.iops, phase.await_s * 1e3, phase.iops * phase.await_s)
            rows.append([name, phase.start_s, lasts_s, *served])
    columns = ("phase", "from (s)", "lasts (s)", "IOPS", "await (ms)", "VolumeQueueLength")
    return plain_table("phases", "Phases", columns, rows, "Queue length is IOPS times await.")


def _remarks(
    inputs: Inputs,
    lengths: Mapping[str, float],
    again: Sequence[int],
    queues: Sequence[tuple[int, float, float, float]],
    credit: Limit,
) -> tuple[str, ...]:
    full = sum(count > 0.98 * max(again) for count in again)
    worst = max(abs(ours_ms / little_ms - 1) for _, ours_ms, little_ms, _ in queues[1:])
    rest_s = next(job.rest for job in inputs.plan.baseline if job.name == "again")
    saved = rest_s * credit.rate
    # Credits are spent at the burst rate minus the rate at which they are earned.
    arithmetic_s = saved / (next(x.rate for x in model_for(inputs.plan.arm[0]).limits) - credit.rate)
    ours_s = lengths["again"] * inputs.runner.scale
    return (
        f"Little's law holds within {worst * 100:.1f} % for every queue of more than one; with one in flight"
        f" await is {queues[0][1]:.2f} ms, so tokens cannot come every 300 ms.",
        f"In {rest_s:,.0f} s of rest {saved:,.0f} tokens are saved up: {arithmetic_s:,.0f} s of burst by"
        f" arithmetic, {ours_s:,.0f} s here ({(ours_s / arithmetic_s - 1) * 100:+z.1f} %); it fills"
        f" {full} sums of five minutes, {full * _WINDOW_S // 60} minutes.",
    )


def _sums_plot(sums: Sequence[tuple[int, int]], scale: int) -> Plot:
    ours = curve_through("ours", ((start * scale / 60, float(count * scale)) for start, count in sums))
    return Plot(title="VolumeWriteOps, sums of five minutes", across="min", up="I/Os", curves=(ours,))


def _second_plots(phases: Sequence[LoadPhase]) -> tuple[Plot, Plot]:
    awaits = tuple(curve_through(phase.name, _thinned(phase, by_io=True)) for phase in phases)
    queues = tuple(curve_through(phase.name, _thinned(phase, by_io=False)) for phase in phases)
    return (
        Plot(title="await by second", across="min", up="ms", curves=awaits, log_y=True),
        Plot(title="Queue length by second", across="min", up="I/Os in flight", curves=queues),
    )


def _thinned(phase: LoadPhase, *, by_io: bool) -> list[tuple[float, float]]:
    """Await in ms of every n-th second, or the queue's length (a second's latencies added up)."""
    step = -(-len(phase.seconds) // _POINTS) or 1
    points = []
    for begin in range(0, len(phase.seconds), step):
        part = phase.seconds[begin : begin + step]
        done, latency = sum(n for n, _ in part), sum(s for _, s in part)
        if done:
            up = latency / done * 1e3 if by_io else latency / len(part)
            points.append(((phase.start_s + begin) / 60, up))
    return points
