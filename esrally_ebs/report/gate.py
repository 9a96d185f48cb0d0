"""A gate on a recorded session: from the folder's records to a decision, and to lines of text."""

from collections.abc import Iterator, Sequence

from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import State
from esrally_ebs.report import search
from esrally_ebs.report.cells import percent_change
from esrally_ebs.report.verdict import arm_names
from esrally_ebs.stats.comparable import all_checks
from esrally_ebs.stats.gate import Gate, Limit, Outcome, TaskDecision, decide
from esrally_ebs.store.parts import UNREADABLE
from esrally_ebs.store.session import Session

EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 5}
_SAID = {
    Outcome.PASS: "passed",
    Outcome.FAIL: "failed",
    Outcome.INCONCLUSIVE: "inconclusive",
}


def judge_session(
    session: Session, limits: Sequence[Limit], *, base: str | None = None, other: str | None = None
) -> Gate:
    """Decide on ``other`` against ``base``: by default the second arm of the plan against the first.

    Raises PlanError when no limit is given or the arms are not named well, MeasurementError when the session
    did not complete, has samples that cannot be read, may not be compared, or has no rounds of these arms.
    """
    if not limits:
        raise PlanError("gate: no limit given; add for example --max-slowdown p50=5%")
    if session.state is not State.COMPLETE and not session.arms:
        raise _unfinished(session)
    base, other = _arms(session, base, other)
    unread = [warning for warning in session.warnings if _is_unread(warning)]
    if unread:
        raise MeasurementError(f"session {session.id}: samples are missing: {'; '.join(unread)}")
    broken = "; ".join(check.text for check in all_checks(session) if check.forbids)
    if broken:
        raise MeasurementError(f"session {session.id}: not comparable: {broken}; see its report")
    if session.state is not State.COMPLETE:
        raise _unfinished(session)
    findings = search.find(session, arms=(base, other))
    if not findings.comparisons:
        raise MeasurementError(
            f"session {session.id}: no search was compared; gate a session with rounds of {base} and {other}"
        )
    return decide(findings.comparisons, limits, findings.blocks, confidence=findings.confidence)


def _is_unread(warning: str) -> bool:
    return warning.startswith("samples/") and UNREADABLE in warning


def _unfinished(session: Session) -> MeasurementError:
    why = f" ({session.reason})" if session.reason else ""
    return MeasurementError(f"session {session.id}: {session.state}{why}; gate a complete session")


def _arms(session: Session, base: str | None, other: str | None) -> tuple[str, str]:
    names = [arm.spec.name for arm in session.arms]
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
    """The reason in one line, then a line per task and limit."""
    return "\n".join((reason(session, gate), *_task_lines(gate))) + "\n"


def reason(session: Session, gate: Gate) -> str:
    """The outcome and what it rests on, in one line."""
    names = arm_names(session)
    about = f"gate {_SAID[gate.outcome]}: {names[gate.b]} against {names[gate.a]}"
    return f"{about}: {_reason(gate)}"


def _reason(gate: Gate) -> str:
    deciding = [d for d in gate.decisions if d.outcome is gate.outcome]
    alone = len(gate.decisions) == 1
    share = "the one limit is" if alone else f"{len(deciding)} of {len(gate.decisions)} limits are"
    if gate.outcome is Outcome.PASS:
        kept = "the one limit is kept, with" if alone else f"all {len(deciding)} limits are kept, with"
        return f"{kept} {gate.confidence:.0%} confidence{'' if alone else ' for all together'}"
    if gate.outcome is Outcome.FAIL:
        worst = max(deciding, key=lambda d: d.ratio.value / (1 + d.limit.slowdown))
        return f"{share} broken{'' if alone else '; the most'}: {found_text(worst)}"
    doubts = ", ".join(dict.fromkeys(d.why for d in deciding))
    return f"{share} not decided ({doubts}); more rounds may decide"


def found_text(decision: TaskDecision) -> str:
    """What was found of one limit on one task."""
    name = f"p{decision.limit.percentile} of {decision.task}"
    return f"{name} {percent_change(decision.ratio)}, limit {_limit(decision.limit)}"


def _limit(limit: Limit) -> str:
    return f"+{limit.slowdown * 100:.4g} %"


def _task_lines(gate: Gate) -> Iterator[str]:
    width = max(len(decision.task) for decision in gate.decisions)
    for d in gate.decisions:
        change = percent_change(d.ratio)
        name = f"p{d.limit.percentile}  {d.task:<{width}}"
        line = f"  {d.outcome:<12}  {name}  {change:<26}  limit {_limit(d.limit)}"
        yield f"{line}: {d.why}" if d.why else line
