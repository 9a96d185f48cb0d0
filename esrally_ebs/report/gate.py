"""A gate on a recorded session: decides from its records; renders lines of text or JUnit XML."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

from esrally_ebs.analysis.beside import compare_rates, writes
from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.compare import Comparison
from esrally_ebs.analysis.findings import Findings, find
from esrally_ebs.analysis.gate import Gate, GateLimit, Outcome, TaskDecision, decide, decide_fio
from esrally_ebs.analysis.profile import block_profiles
from esrally_ebs.analysis.summary import Blocks
from esrally_ebs.analysis.volumes import by_type
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import State
from esrally_ebs.report import beside
from esrally_ebs.report.bottleneck import bottleneck_lines, held_back
from esrally_ebs.report.build import faults
from esrally_ebs.report.cells import arm_names, percent_change
from esrally_ebs.store.session import Session
from esrally_ebs.units import digits_beside, format_share, one_line, printable

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 5}
_SAID = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.INCONCLUSIVE: "inconclusive"}


def judge_session(
    session: Session, limits: Sequence[GateLimit], *, base: str | None = None, other: str | None = None
) -> Gate:
    """Decide on ``other`` against ``base``: by default, the plan's other arm against its reference.

    Raises PlanError when no limit is given or the arms are not named well, MeasurementError when the session
    did not complete, has samples that cannot be read, may not be compared, or has no rounds of these arms.
    """
    if not limits:
        raise PlanError("gate: no limit given; add for example --max-slowdown p50=5%")
    limits = list(dict.fromkeys(limits))  # a repeated limit would count as two questions
    if session.state is not State.COMPLETE and not session.arms:
        raise _unfinished(session)
    compared = by_type(session, base, other)
    base, other = _arms(compared, base, other)
    _require_valid(session)
    session = compared
    findings = find(session, arms=(base, other))
    if findings.comparisons:
        waits = find(session, "latency", arms=(base, other)) if session.plan.has_latency else None
        return decide(*_with_latency(findings, waits), limits=limits, confidence=findings.confidence)
    judged = decide_fio(session.baseline, limits, (base, other), confidence=findings.confidence)
    if session.plan.race is not None or not judged.decisions:
        sought = session.plan.design.knee is not None
        why = "looked for a knee, at rates of each arm's own" if sought else "no search was compared"
        raise MeasurementError(
            f"session {session.id}: {why}; gate a session with rounds of {base} and {other}"
        )
    return judged


def _with_latency(findings: Findings, waits: Findings | None) -> tuple[list[Comparison], Blocks]:
    """Comparisons for the limits: each task's service time and, where requests were due, its latency."""
    comparisons, blocks = list(findings.comparisons), dict(findings.blocks)
    if waits is not None:
        comparisons += (replace(c, task=f"latency of {c.task}") for c in waits.comparisons)
        blocks |= {(f"latency of {task}", arm): rounds for (task, arm), rounds in waits.blocks.items()}
    return comparisons, blocks


def _require_valid(session: Session) -> None:
    if session.kind == "simulate":
        raise MeasurementError(f"session {session.id}: is simulated, nothing was measured; gate one that was")
    broken = "; ".join(check.text for check in all_checks(session) if check.forbids)
    if broken:
        raise MeasurementError(f"session {session.id}: not comparable: {broken}; see its report")
    if session.state is not State.COMPLETE:
        raise _unfinished(session)


def _unfinished(session: Session) -> MeasurementError:
    why = f" ({session.reason})" if session.reason else ""
    return MeasurementError(f"session {session.id}: {session.state}{why}; gate a complete session")


def _arms(session: Session, base: str | None, other: str | None) -> tuple[str, str]:
    names = session.plan.design.reference_first(session.arm_names)
    for option, name in (("--base", base), ("--other", other)):
        if name is not None and name not in names:
            raise PlanError(f"{option} {name}: not an arm of this session; choose one of {', '.join(names)}")
    base = base or next((name for name in names if name != other), "")
    left = [name for name in names if name != base]
    if other is None and len(left) > 1:
        raise PlanError(f"session {session.id}: has arms {', '.join(names)}; name one with --other")
    other = other or next(iter(left), "")
    if len(names) < 2:
        raise PlanError(f"session {session.id}: a gate compares two arms, and it has {len(names)}")
    if base == other:
        raise PlanError(f"session {session.id}: a gate needs two different arms, not {base!r} and {other!r}")
    return base, other


def render_gate(session: Session, gate: Gate) -> str:
    """The reason in one line, a line per task and limit, what held the arms back, and warnings."""
    compared = by_type(session, gate.b)
    marked = [(check.mark, check.text) for check in all_checks(session)]
    marked += [("warning", text) for text in (*faults(session.events), *_of_writes(compared, gate))]
    doubts = (f"{mark}: {text}" for mark, text in marked if mark in ("accepted", "warning"))
    profiles = block_profiles(compared)
    limits = bottleneck_lines(compared, held_back(compared, profiles, (gate.a, gate.b)))
    return "\n".join((reason(session, gate), *_task_lines(gate), *map(one_line, (*limits, *doubts)))) + "\n"


def _of_writes(session: Session, gate: Gate) -> Iterator[str]:
    """Warnings about unequal or failed writes beside searches; none without writes."""
    arms = gate.a, gate.b
    written = {key: of for key, of in writes(session).items() if key[1] in arms}
    if written:
        yield from beside.warnings(written, compare_rates(written, find(session, arms=arms)))


def reason(session: Session, gate: Gate) -> str:
    """The outcome and its basis, in one line."""
    compared = by_type(session, gate.b)
    names = arm_names(compared)
    about = f"gate {_SAID[gate.outcome]}: {names[gate.b]} against {names[gate.a]}"
    more = "passes" if session.plan.race is None else "rounds"
    if compared.plan.design.starts > 1:  # for types, the parts of a session are their volumes
        is_of_types = compared.plan.design.volumes > 1
        more = f"{'volumes of each type' if is_of_types else 'starts of the nodes'}, or more rounds of each,"
    return one_line(f"{about}: {_reason(gate, more)}")


def _reason(gate: Gate, more: str) -> str:
    deciding = [d for d in gate.decisions if d.outcome is gate.outcome]
    alone = len(gate.decisions) == 1
    are = "is" if len(deciding) == 1 else "are"
    share = "the one limit is" if alone else f"{len(deciding)} of {len(gate.decisions)} limits {are}"
    if gate.outcome is Outcome.PASS:
        kept = "the one limit is kept, with" if alone else f"all {len(deciding)} limits are kept, with"
        return f"{kept} {format_share(gate.confidence)} confidence{'' if alone else ' for all together'}"
    if gate.outcome is Outcome.FAIL:
        worst = max(deciding, key=lambda d: d.ratio.value / (1 + d.limit.slowdown))
        return f"{share} broken{'' if alone else '; the most'}: {result_text(worst)}"
    doubts = "; ".join(dict.fromkeys(d.why for d in deciding))  # "; ": some contain commas
    return f"{share} not decided ({doubts}); {_way_on([d.more_rounds for d in deciding], more)}"


def _way_on(needed: Sequence[float | None], more: str) -> str:
    """About how many further rounds would decide what is not decided."""
    known = [count for count in needed if count is not None]
    if len(known) < len(needed):
        return f"more {more} may decide"
    if math.isinf(most := max(known)):
        return f"more {more} would hardly decide, as a limit is too near to what was measured"
    return f"more {more} may decide (about {most:g})"


def result_text(decision: TaskDecision) -> str:
    """The result for one limit on one task."""
    name = f"p{decision.limit.percentile} of {decision.task}"
    return f"{name} {_change(decision)}, limit {_limit(decision.limit)}"


def _change(decision: TaskDecision) -> str:
    """The change, with as many digits as tell its interval's ends from the limit."""
    ratio, limit = decision.ratio, decision.limit.slowdown
    ends = [end - 1 for end in (ratio.low, ratio.high) if end is not None]
    return percent_change(ratio, max((digits_beside(end, limit, 1) for end in ends), default=1))


def _limit(limit: GateLimit) -> str:
    return f"+{limit.slowdown * 100:.4g} %"


def _task_lines(gate: Gate) -> Iterator[str]:
    width = max(len(decision.task) for decision in gate.decisions)
    for d in gate.decisions:
        change = _change(d)
        name = f"p{d.limit.percentile}  {d.task:<{width}}"
        line = f"  {d.outcome:<12}  {name}  {change:<26}  limit {_limit(d.limit)}"
        yield one_line(f"{line}: {d.why}" if d.why else line)


def render_junit(session: Session, gate: Gate) -> str:
    """A JUnit test case per task and limit: a broken limit is a failure, an undecided one an error."""
    suite = _suite(session, tests=len(gate.decisions))
    counts = {outcome: [d.outcome for d in gate.decisions].count(outcome) for outcome in Outcome}
    suite.set("failures", str(counts[Outcome.FAIL]))
    suite.set("errors", str(counts[Outcome.INCONCLUSIVE]))
    _property(suite, "reason", reason(session, gate))
    limits = {decision.limit for decision in gate.decisions}
    for decision in gate.decisions:
        name = f"p{decision.limit.percentile} {decision.task}"
        if sum(limit.percentile == decision.limit.percentile for limit in limits) > 1:
            name += f" {_limit(decision.limit)}"  # CI keeps one result per name
        case = _case(suite, f"{gate.b} against {gate.a}", name)
        if decision.outcome is Outcome.FAIL:
            _add_result(case, "failure", "slower", result_text(decision))
        elif decision.outcome is Outcome.INCONCLUSIVE:
            _add_result(case, "error", "inconclusive", f"{result_text(decision)}: {decision.why}")
    return _xml(suite, out=render_gate(session, gate))


def render_junit_refused(session: Session | None, error: MeasurementError) -> str:
    """One test case with the reason why a session (None: unreadable) could not be judged."""
    suite = _suite(session, tests=1)
    suite.set("failures", "0")
    suite.set("errors", "1")
    _add_result(_case(suite, "session", "comparable"), "error", "invalid", str(error))
    return _xml(suite, out="")


def _suite(session: Session | None, *, tests: int) -> ElementTree.Element:
    started = 0.0 if session is None else session.started_at
    ended = None if session is None else session.ended_at
    suite = ElementTree.Element(
        "testsuite",
        name="esrally-ebs gate",
        package="esrally-ebs",
        id="0",
        # the schema allows no time zone; this is UTC
        timestamp=datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        hostname=_token(str(session.environment.get("host") or "")) if session else "localhost",
        time=f"{max(0.0, (ended or started) - started):.3f}",
        tests=str(tests),
    )
    ElementTree.SubElement(suite, "properties")
    if session is not None:
        _property(suite, "session", session.id)
        _property(suite, "plan", session.plan.name)
        _property(suite, "emulated", str(session.emulated).lower())
    return suite


def _property(suite: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(suite[0], "property", name=name, value=printable(value))


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    # all decisions are made together from the record, so none has a time of its own
    names = {"classname": _token(f"esrally-ebs.{group}"), "name": _token(name), "time": "0"}
    return ElementTree.SubElement(suite, "testcase", names)


def _add_result(case: ElementTree.Element, kind: str, type_: str, message: str) -> None:
    ElementTree.SubElement(case, kind, type=type_, message=printable(message))


def _token(text: str) -> str:
    """A name that the schema allows: legal characters, not empty, single spaces."""
    return " ".join(printable(text).split()) or "localhost"


def _xml(suite: ElementTree.Element, *, out: str) -> str:
    for name, text in (("system-out", out), ("system-err", "")):
        ElementTree.SubElement(suite, name).text = printable(text)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}\n'
