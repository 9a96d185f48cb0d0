"""The next step: mend a check, measure more rounds, raise a limit, or take one of the arms."""

from collections.abc import Mapping, Sequence

from esrally_ebs.analysis.compare import Overall, Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.summary import MIN_ROUNDS
from esrally_ebs.catalog.cost import ArmCost
from esrally_ebs.model import Check, State, VolumeSpec
from esrally_ebs.report.bottleneck import HeldBack, limit_name, step_of
from esrally_ebs.report.causes import SharedReason
from esrally_ebs.report.cells import arm_names, percent_change
from esrally_ebs.report.head import contrary, ranking, without_verdict
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, number_of

_MANY_TIMES = 10  # more than this many times the rounds so far are hardly worth measuring
_MORE_STARTS = "start the nodes more often (design.starts), or measure more rounds at each start"
_MORE_VOLUMES = "measure more volumes of each type (design.volumes), or each in more rounds"


def next_step(
    session: Session,
    findings: Findings,
    checks: Sequence[Check],
    shared: Sequence[SharedReason],
    arm_costs: Sequence[ArmCost],
    held_back: HeldBack,
    waits: Findings | None = None,
) -> str:
    """One thing to do: mend a check, measure more rounds, raise a limit, or take an arm.

    By latency where all tasks have one: it holds the service time and what requests waited for it.
    """
    broken = next((check for check in checks if check.forbids), None)
    if broken is not None:
        return f"{broken.mend or f'mend what the check {broken.name} names'}; then measure again."
    if session.kind == "simulate":
        return "run the plan on volumes; nothing was measured yet."
    if not findings.comparisons:
        return (
            "add a [race] table to the plan to see what searches make of it."
            if session.baseline.num_rows and session.plan.race is None
            else ""
        )
    by_latency = ranking(waits) if waits and waits.tasks == findings.tasks else []
    ranked = by_latency or ranking(findings)
    if not ranked:
        if lacking := without_verdict(findings):
            return f"see why {lacking} too few successful requests, or leave out what cannot be answered."
        rounds = max(c.rounds for c in findings.comparisons)
        wanted, design = max(MIN_ROUNDS, rounds + 1), session.plan.design
        wanted += -wanted % design.starts  # round up to parts of equal length
        if to_its_end := _to_its_end(session, wanted):
            return f"{to_its_end}."
        # a round of the plan is one round on each of a type's volumes
        more, wanted = (wanted - rounds) // design.volumes, wanted // design.volumes
        return f"measure {number_of(more, 'more round')} (design.rounds = {wanted})."
    usd = {one.arm: one.price.usd for one in arm_costs if one.price is not None}
    best = _best(ranked, usd)
    judged = {(c.task, c.b): c for c in (*findings.comparisons, *(waits.comparisons if waits else ()))}
    but = contrary([*judged.values()], best, waits if by_latency else findings)
    step = _step(session, best, shared, usd, held_back, but)
    confirm = (
        " Emulated here: confirm on real volumes." if session.emulated and step.startswith("take") else ""
    )
    disks = [arm.spec.name for arm in session.arms if arm.spec.type == "instance-store"]
    ends = " Its data end when its instance stops." if best.b in disks and f"take {best.b}:" in step else ""
    return f"{'by latency, ' if by_latency else ''}{step}.{confirm}{ends}"


def _best(ranked: Sequence[Overall], usd: Mapping[str, float]) -> Overall:
    """The fastest of the arms that are proven faster, else of all.

    If it costs more than the reference, the fastest of those that cost less; among equally fast arms, the
    cheapest.
    """
    faster = [one for one in ranked if one.verdict is Verdict.FASTER]
    fastest = min(faster or ranked, key=lambda result: result.ratio.value)
    cheaper = [one for one in ranked if one.verdict is fastest.verdict and (_more(one, usd) or 0) < 0]
    if fastest.verdict is Verdict.EQUIVALENT:
        return min(cheaper, key=lambda result: usd[result.b], default=fastest)
    if not faster or (_more(fastest, usd) or 0) <= 0:
        return fastest
    return min(cheaper, key=lambda result: result.ratio.value, default=fastest)


def _more(result: Overall, usd: Mapping[str, float]) -> float | None:
    """Monthly cost above the reference's, USD; None if either has no price."""
    return round(usd[result.b] - usd[result.a], 2) if {result.a, result.b} <= usd.keys() else None


def _step(
    session: Session,
    result: Overall,
    shared: Sequence[SharedReason],
    usd: Mapping[str, float],
    held_back: HeldBack,
    but: str,
) -> str:
    """``but`` names tasks that are slower although all tasks together are not."""
    a, b, more = result.a, result.b, _more(result, usd)
    price = f" and {abs(more):,.2f} USD a month {'more' if more > 0 else 'less'}" if more else ""
    price = price if more != 0 else ", at the same price"
    if result.verdict is Verdict.INCONCLUSIVE:
        more_of = _MORE_VOLUMES if session.plan.design.volumes > 1 else _MORE_STARTS
        return _more_rounds(session, result) if result.starts == 1 else more_of
    if _is_of_processors(session, result, shared):
        is_one = session.plan.design.nodes == "one"
        same = "" if is_one else ', or under one for all arms (design.nodes = "one")'
        return (
            "choose neither by this: the node's processors make most of the difference, which no volume "
            f"causes; measure under other JVMs (design.starts){same}"
        )
    if result.verdict is Verdict.SLOWER:
        return _slower_step(session, result, shared, more, held_back)
    verb = "weigh task by task whether to take" if but else "take"
    if result.verdict is Verdict.EQUIVALENT:
        is_cheaper = more is not None and more < 0
        return f"{verb} {b}: as fast{price}{but}" if is_cheaper else f"keep {a}: {b} is as fast{price}{but}"
    if more is not None and more > 0:
        change = percent_change(result.ratio)
        return f"weigh {more:,.2f} USD a month more for {b} against {change}{but}"
    return f"{verb} {b}: faster{price}{but}"


def _is_of_processors(session: Session, result: Overall, shared: Sequence[SharedReason]) -> bool:
    """Whether, under one JVM, the nodes' processor time explains most tasks' difference."""
    names = arm_names(session)
    slower, faster = names[result.a], names[result.b]
    if result.verdict is Verdict.SLOWER:
        slower, faster = faster, slower
    wanted = "processors", slower, faster
    tasks = sum(len(tasks) for tasks, (first, *_) in shared if first.subject[:3] == wanted)
    is_shown = result.verdict in (Verdict.FASTER, Verdict.SLOWER)
    return is_shown and result.starts == 1 and 2 * tasks > result.tasks


def _to_its_end(session: Session, wanted: int) -> str:
    """What to do if the plan has ``wanted`` rounds but not all were measured; else ""."""
    if session.state is State.COMPLETE or session.plan.design.most_rounds < wanted:
        return ""
    if session.state is State.RUNNING:
        return "wait for the other rounds of this session"
    return "measure again, to the end of the plan's rounds"


def _more_rounds(session: Session, result: Overall) -> str:
    if to_its_end := _to_its_end(session, result.rounds + (result.more_rounds or 1)):
        return to_its_end
    if result.more_rounds is None:
        return "measure more rounds (design.rounds); how many cannot be estimated from these"
    wanted = result.rounds + result.more_rounds
    step = f"measure about {number_of(result.more_rounds, 'more round')} (design.rounds = {wanted})"
    wide = result.more_rounds > _MANY_TIMES * result.rounds
    return f"{step}, or allow a wider design.margin" if wide else step


def _slower_step(
    session: Session,
    result: Overall,
    shared: Sequence[SharedReason],
    more: float | None,
    held_back: HeldBack,
) -> str:
    a, b = result.a, result.b
    name, spec = arm_names(session)[b], next(arm.spec for arm in session.arms if arm.spec.name == b)
    own = [reasons[0] for _, reasons in shared if reasons[0].slower == name]
    for reason in own:
        limit = limit_name(reason.limit)
        step = step_of(spec, limit)
        is_said = limit in held_back.get(b, ())  # Limits names one, over all tasks
        if step:
            if step != f"raise {limit}":
                return f"for {b}{' as Limits says' if is_said else ''}: {step}; or keep {a}"
            if is_said:
                return f"{step} of {b} as Limits says, or keep {a}"
            return f"{step} of {b}{_now(spec, limit)}, which held it back, or keep {a}"
    save = f", unless {abs(more):,.2f} USD a month less are worth it" if more is not None and more < 0 else ""
    known = held_back.get(b) == {} and {reason.kind for reason in own} == {"reads"}
    useless = "; no limit held it back, so more IOPS or throughput would not help" if known else ""
    return f"keep {a}{save}{useless}"


def _now(spec: VolumeSpec, limit: str) -> str:
    if limit == "throughput" and spec.throughput_bytes_per_s:
        return f" (now {spec.throughput_bytes_per_s / MIB:.0f} MiB/s)"
    return f" (now {spec.iops:,})" if limit == "iops" and spec.iops else ""
