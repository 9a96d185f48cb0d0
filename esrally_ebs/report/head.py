"""The head of a report: verdict, arms best first, cost, and the labels that every output shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

import pyarrow.compute as pc

from esrally_ebs.analysis.compare import Claim, Comparison, Overall, RoundsClaim, Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.gate import GateLimit, Outcome, TaskDecision, decide
from esrally_ebs.analysis.pooling import PooledRatio
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import MIN_ROUNDS, PERCENTILES, by_start
from esrally_ebs.catalog.cost import ArmCost
from esrally_ebs.model import Check, Event, Kind, State
from esrally_ebs.report.cells import arm_names, percent_change
from esrally_ebs.report.knee import Knees
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_share, number_of

SCOPE = "scope: "  # prefix of the label that says which volumes and JVMs a verdict holds for


def labels(session: Session) -> tuple[str, ...]:
    """Labels: what is emulated, the state of the caches, whether segments differ."""
    emulated = [arm.spec.name for arm in session.arms if arm.kind is Kind.EMULATED]
    lines = [f"emulated volumes: {', '.join(emulated)}"] if emulated else []
    if session.kind == "simulate":
        lines.append("simulated in virtual time from the volume models: nothing was measured")
    if session.plan.race and session.kind != "simulate":
        lines.append(f"cache: {session.plan.cache.mode}{_dropped(session)}{_steadiness(session)}")
        if session.plan.design.nodes == "one":
            lines.append("node: one for all arms, requests in pairs")
        lines.append(f"{SCOPE}{_scope(session)}")
        if session.dataset.get("copied") is False:
            lines.append("segments differ: each arm indexed by itself")
        if any(event.kind == "brought-back" for event in session.events):
            lines.append("documents added beside searches; each block begins with the same bytes")
        in_turn = [event.fields.get("text") for event in session.events if event.kind == "in-turn"]
        lines.extend(f"in turn, though the track runs them in parallel: {names}" for names in in_turn)
    return tuple(lines)


def _scope(session: Session) -> str:
    """Which volumes and JVMs a verdict holds for."""
    design = session.plan.design
    if design.starts == 1:
        return f"these volumes under {'this JVM' if design.nodes == 'one' else 'these JVMs'}"
    if design.volumes == 1:
        return f"these volumes under any JVM: nodes were started {number_of(_started(session), 'time')}"
    if design.nodes == "one":
        return f"any volumes of these types under this JVM: {design.volumes} of each were measured"
    return f"any volumes of these types under any JVM: {design.volumes} of each, a node each, were measured"


def _started(session: Session) -> int:
    """Number of starts of the nodes with rounds; a cut session has fewer than planned."""
    last = pc.max(session.samples["round"]).as_py() or 0
    return len(by_start(session.plan.design.rounds_of_starts, range(1, last + 1)))


def _any(session: Session) -> str:
    """``_scope`` in a few words; "" for these volumes and JVMs."""
    design = session.plan.design
    if design.starts == 1:
        return ""
    volumes = ", any volumes" if design.volumes > 1 else ""
    return volumes + ("" if volumes and design.nodes == "one" else ", any JVM")


def _dropped(session: Session) -> str:
    """How often caches were dropped; "" if before each request."""
    cache = session.plan.cache
    if cache.mode != "cold" or cache.drop_every == 1:
        return ""
    return f", dropped {f'every {cache.drop_every} requests' if cache.drop_every else 'once a block'}"


def _steadiness(session: Session) -> str:
    """Requests until the misses of each arm were steady; "" in other modes.

    For several volumes of a type, the largest number.
    """
    if session.plan.cache.mode != "steady":
        return ""
    parts = []
    for arm in session.arm_names:
        volumes = session.plan.types.get(arm, (arm,))
        requests = [_requests_until_steady(session.events, volume) for volume in volumes]
        after = "after" if len(volumes) == 1 else "each after at most"
        parts.append(f"{arm} {after} {max(requests):,.0f} requests" if all(requests) else f"{arm} never was")
    return f", what the node's memory leaves of it ({', '.join(parts)})"


def _requests_until_steady(events: Iterable[Event], arm: str) -> float:
    """0 if the misses never were steady."""
    own = [event for event in events if event.arm == arm]
    if any(event.kind == "not-steady" for event in own):
        return 0
    return sum(event.number("requests") or 0 for event in own if event.kind == "steady")


def verdict(
    session: Session,
    findings: Findings,
    checks: Sequence[Check],
    knees: Knees | None = None,
    waits: Findings | None = None,
) -> str:
    """The verdict's sentence; a second one about latency if ``waits`` has tasks that kept to a schedule."""
    broken = [check.text for check in checks if check.forbids]
    if broken:
        return f"Not comparable: {'; '.join(broken)}."
    text = _compared(session, findings) if knees is None else knees.verdict()
    if waits and ranking(waits):
        text += f" Latency: {_compared(session, waits)}"
    if session.state is State.COMPLETE:
        return text
    if session.state is State.RUNNING:
        return f"Still running; so far: {text}"
    why = f" ({session.reason})" if session.reason else ""
    ended = "was cancelled" if session.state is State.CANCELLED else "failed"
    return f"This session {ended}{why}; from what was recorded before: {text}"


def _uncompared(session: Session, findings: Findings) -> str:
    measured = " and ".join(arm_names(session).values())
    if session.kind == "trace":
        predicts = "; 'esrally-ebs advise' predicts its requests" if session.samples.num_rows else ""
        recorded = f"I/Os of {measured} were recorded and nothing is compared"
        return f"{recorded}: 'esrally-ebs usage' reads this folder{predicts}."
    if findings.summaries:
        return f"No search was compared; the tables show what was measured on {measured}."
    if not session.baseline.num_rows:
        return f"Nothing was measured on {measured}." if measured else "Nothing was measured."
    is_simulated = session.kind == "simulate"
    is_lost = session.plan.race and not is_simulated and not session.samples.num_rows
    what = "No request of the race was recorded" if is_lost else "No search was compared"
    did = "would measure" if is_simulated else "measured"
    return f"{what}; the tables show what fio {did} on {measured}."


def _compared(session: Session, findings: Findings) -> str:
    if not findings.comparisons:
        return _uncompared(session, findings)
    names = arm_names(session)
    ranked = ranking(findings)
    if not ranked:
        rounds = max(c.rounds for c in findings.comparisons)
        needed = f"; at least {MIN_ROUNDS} are needed" if rounds < MIN_ROUNDS else ""
        starts = max(c.starts for c in findings.comparisons)
        least = findings.min_observations
        if not needed and findings.starts and starts < least:
            needed = f" at {number_of(starts, 'start')} of the nodes; at least {least} starts are needed"
        arms = " and ".join(names[arm] for arm in dict.fromkeys(x for pair in findings.pairs for x in pair))
        if lacking := without_verdict(findings):
            return f"No verdict on {arms} over all tasks: {lacking} too few successful requests for one."
        over = " over all volumes of a type" if findings.volumes > 1 else ""
        return f"No verdict on {arms}: {number_of(rounds, 'round')} measured{over}{needed}."
    under = f"{session.plan.cache.mode} caches{_dropped(session)}{_any(session)}"
    tasks = findings.tasks
    scope = f"50th percentile of {number_of(len(tasks), 'task') if len(tasks) > 1 else tasks[0]}"
    if len(ranked) > 1:
        return f"{_of_many(names, findings, ranked)} ({scope}, {under})."
    only = ranked[0]
    claim = f"{_of_pair(names, only, findings)}: {percent_change(only.ratio)} ({scope}, {under})"
    return f"{claim}{contrary(findings.comparisons, only, findings)}."


def without_verdict(findings: Findings) -> str:
    """Tasks without a verdict, and their verb, if others have one; else ""."""
    lacking = list(dict.fromkeys(c.task for c in findings.comparisons if c.p_different is None))
    if len(lacking) == len(findings.tasks) or not lacking:
        return ""
    some = lacking[0] if len(lacking) == 1 else f"{len(lacking)} of {len(findings.tasks)} tasks"
    return f"{some} {'has' if len(lacking) == 1 else 'have'}"


def _of_pair(names: Mapping[str, str], result: Overall, findings: Findings) -> str:
    a, b = names[result.a], names[result.b]
    if result.verdict is Verdict.EQUIVALENT:
        within = f"within {findings.margin * 100:.3g} %"
        return f"{b} is as fast as {a} {within}{though(result, findings.confidence)}"
    if result.verdict is Verdict.INCONCLUSIVE:
        return f"Inconclusive whether {b} differs from {a}"
    return f"{b} is {result.verdict} than {a}"


def though(result: Claim, confidence: float) -> str:
    """A note for equivalent arms whose difference is proven all the same; else ""."""
    if result.verdict is not Verdict.EQUIVALENT or result.p_different is None:
        return ""
    return ", with a difference that is shown" if result.p_different <= 1 - confidence else ""


def contrary(
    tasks: Sequence[Comparison | PooledRatio], result: Claim, findings: Findings | None = None
) -> str:
    """On how many tasks the opposite of the overall claim is proven; "" if on none.

    With ``findings``, includes percentiles above the 50th.
    """
    opposite = Verdict.FASTER if result.verdict is Verdict.SLOWER else Verdict.SLOWER
    own = [task for task in tasks if (task.a, task.b) == (result.a, result.b)]
    other = [task for task in own if task.verdict is opposite]
    parts: list[str] = []
    if other and result.verdict is not Verdict.INCONCLUSIVE:
        parts.append(f"{opposite} on {len(other)} of {number_of(len(own), 'task')}{_most(opposite, other)}")
    parts += _tails(findings, result, opposite) if findings else []
    return f", but {' and '.join(parts)}" if parts else ""


def _tails(findings: Findings, result: Claim, opposite: Verdict) -> Sequence[str]:
    """Opposite results of percentiles above the 50th, if beyond the margin.

    They form a family of claims of their own, decided as by a gate.
    """
    own = [c for c in findings.comparisons if (c.a, c.b) == (result.a, result.b)]
    is_slower = opposite is Verdict.SLOWER
    bound = 1 + findings.margin if is_slower else 1 / (1 + findings.margin)
    tails = [tail.ratio for c in own for tail in c.percentiles[1:]]
    # the usual case; a gate would go through all times again
    if not any((t.low or 0) > bound if is_slower else (t.high or bound) < bound for t in tails):
        return []
    limits = [GateLimit(percentile=percentile, slowdown=bound - 1) for percentile in PERCENTILES[1:]]
    confidence = 1 - (1 - findings.confidence) / len(findings.pairs)
    decisions = decide(own, findings.blocks, limits=limits, confidence=confidence).decisions
    shown = [d for d in decisions if d.outcome is (Outcome.FAIL if is_slower else Outcome.PASS)]
    if not shown:
        return []
    which = " and ".join(dict.fromkeys(f"p{d.limit.percentile}" for d in shown))
    tasks = f"{len({d.task for d in shown})} of {number_of(len(own), 'task')}"
    return [f"{which} {opposite} on {tasks}{_most(opposite, shown)}"]


def _of_many(names: Mapping[str, str], findings: Findings, ranked: Sequence[Overall]) -> str:
    base, best = ranked[0].a, _best_first(ranked)[0]
    if all(result.verdict is Verdict.EQUIVALENT for result in ranked):
        alike = " and ".join(names[result.b] for result in ranked)
        return f"{alike} are as fast as {names[base]} within {findings.margin * 100:.3g} %"
    others = [arm for arm in (base, *(result.b for result in ranked)) if arm != best]
    proven = all(_is_faster(findings, best, other) for other in others)
    ratio = next((result.ratio for result in ranked if result.b == best), None)
    change = f", {percent_change(ratio)} against {names[base]}" if ratio else ""
    claim = "is the fastest" if proven else "leads, but is not proven the fastest,"
    return f"{names[best]} {claim} of {len(ranked) + 1} arms{change}"


def ranking(findings: Findings) -> list[Overall]:
    """Every other arm against the first, over all tasks; empty with too few rounds."""
    if not findings.pairs or findings.is_refused:
        return []
    base = findings.pairs[0][0]
    results = [between(findings, a, b) for a, b in findings.pairs if a == base]
    return [result for result in results if result is not None]


def between(findings: Findings, a: str, b: str) -> Overall | None:
    """One arm against another, over all tasks or the only task; None with too few rounds."""
    for overall in findings.overall:
        if (overall.a, overall.b) == (a, b):
            return overall
    of_pair = [c for c in findings.comparisons if (c.a, c.b) == (a, b)]
    if len(of_pair) != 1 or of_pair[0].p_different is None:
        return None
    only = of_pair[0]
    claim = {field.name: getattr(only, field.name) for field in fields(RoundsClaim)}
    return Overall(tasks=1, ratio=only.ratio, **claim)


def _is_faster(findings: Findings, arm: str, other: str) -> bool:
    forwards, backwards = between(findings, other, arm), between(findings, arm, other)
    if forwards is not None or backwards is not None:
        return (forwards is not None and forwards.verdict is Verdict.FASTER) or (
            backwards is not None and backwards.verdict is Verdict.SLOWER
        )
    # both were compared with the reference, and lie on opposite sides of it
    base = findings.arms[0]
    ours, theirs = between(findings, base, arm), between(findings, base, other)
    return bool(ours and theirs and (ours.verdict, theirs.verdict) == (Verdict.FASTER, Verdict.SLOWER))


def _best_first(ranked: Sequence[Overall]) -> list[str]:
    ratios = {ranked[0].a: 1.0} | {result.b: result.ratio.value for result in ranked}
    return sorted(ratios, key=lambda arm: ratios[arm])


def details(session: Session, findings: Findings) -> tuple[str, ...]:
    """For two arms, how tasks differ; for more, a line per arm, best first."""
    ranked, names = ranking(findings), arm_names(session)
    if not ranked:
        return ()
    if len(ranked) == 1:
        return tuple(_by_task(findings, ranked[0]))
    lines = []
    for arm in _best_first(ranked):
        result = next((result for result in ranked if result.b == arm), None)
        if result is None:
            lines.append(f"{names[arm]}: the arm that the others are compared with")
        else:
            why = not_proven(result.verdict, result.ratio, len(ranked))
            words = _words(result.verdict, findings.margin) + though(result, findings.confidence)
            words += f" ({why})" if why else contrary(findings.comparisons, result, findings)
            lines.append(f"{names[arm]}: {percent_change(result.ratio)}, {words}")
    return tuple(lines)


def _by_task(findings: Findings, result: Overall) -> Sequence[str]:
    lines = []
    if result.tasks > 1:
        lines.append(f"By task: {_counts(findings.comparisons, findings.margin)}.")
    if why := not_proven(result.verdict, result.ratio, 1, tasks=result.tasks):
        lines.append(f"{why[0].upper()}{why[1:]} at {format_share(findings.confidence)}.")
    return lines


def not_proven(verdict: Verdict, ratio: Estimate, arms: int, *, tasks: int = 2) -> str:
    """Why a verdict is inconclusive although its interval excludes 0; "" for any other.

    Claims are corrected together: over ``arms``, the number compared with the reference, or for a single arm
    over its ``tasks``.
    """
    low, high = ratio.low, ratio.high
    if verdict is not Verdict.INCONCLUSIVE or low is None or high is None or low <= 1 <= high:
        return ""
    if arms == tasks == 1:
        return "the interval leaves out 0, but by so few rounds, or times so often equal, it is not proven"
    others = "on each task (Holm)" if arms == 1 else "on the other arms (Bonferroni)"
    return f"the interval leaves out 0 by itself; counted together with the claims {others} it is not proven"


def _counts(comparisons: Sequence[Comparison], margin: float) -> str:
    parts: list[str] = []
    for word in Verdict:
        of_kind = [c for c in comparisons if c.verdict is word]
        if of_kind:
            share = f"{len(of_kind)}" if parts else f"{len(of_kind)} of {len(comparisons)}"
            share = f"all {len(of_kind)}" if len(of_kind) == len(comparisons) else share
            parts.append(f"{_words(word, margin)} on {share}{_most(word, of_kind)}")
    return ", ".join(parts)


def _words(word: Verdict, margin: float) -> str:
    return f"equivalent within {margin * 100:.3g} %" if word is Verdict.EQUIVALENT else word.value


def _most(word: Verdict, tasks: Sequence[Comparison | PooledRatio | TaskDecision]) -> str:
    changes = [abs(task.ratio.value - 1) for task in tasks]
    return f" (by up to {max(changes) * 100:,.1f} %)" if word in (Verdict.FASTER, Verdict.SLOWER) else ""


def cost(arm_costs: Sequence[ArmCost], reference: str) -> str:
    """Monthly cost of each arm, also relative to the reference; "" if none has a price."""
    usd = {one.arm: one.price.usd for one in arm_costs if one.price is not None}
    if not usd:
        return ""
    base = usd.get(reference)
    parts = [
        f"{arm} {price:,.2f} USD"
        + (f" ({price / base - 1:+z,.0%})".replace("%", " %") if base and arm != reference else "")
        for arm, price in usd.items()
    ]
    region = next(one.price.region for one in arm_costs if one.price is not None)
    return f"{', '.join(parts)} a month in {region}."
