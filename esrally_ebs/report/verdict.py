"""The one sentence that a report begins with, and the labels that no output may leave out."""

from collections.abc import Iterable, Sequence

from esrally_ebs.model import Check, Kind, State
from esrally_ebs.report.cells import percent_change
from esrally_ebs.report.search import Findings
from esrally_ebs.stats import MIN_ROUNDS, Comparison, Verdict
from esrally_ebs.stats.comparable import is_cold
from esrally_ebs.store.session import Session


def labels(session: Session) -> tuple[str, ...]:
    """What is emulated, the state of the caches, and whether segments differ."""
    emulated = [arm.spec.name for arm in session.arms if arm.kind is Kind.EMULATED]
    found = [f"emulated volumes: {', '.join(emulated)}"] if emulated else []
    if session.kind == "simulate":
        found.append("simulated in virtual time from the volume models: nothing was measured")
    if session.plan.get("race"):
        found.append("cache: cold" if is_cold(session) else "cache: warm")
        if session.dataset.get("copied") is False:
            found.append("segments differ: each arm indexed by itself")
    return tuple(found)


def sentence(session: Session, findings: Findings, checks: Sequence[Check]) -> str:
    """The verdict of the session."""
    broken = [check.text for check in checks if check.forbids]
    if broken:
        return f"Not comparable: {'; '.join(broken)}."
    said = _of_pairs(session, findings)
    if session.state is State.COMPLETE:
        return said
    if session.state is State.RUNNING:
        return f"Still running; so far: {said}"
    why = f" ({session.reason})" if session.reason else ""
    return f"This session {_ended(session.state)}{why}; from what was recorded before: {said}"


def _ended(state: State) -> str:
    return "was cancelled" if state is State.CANCELLED else "failed"


def _of_pairs(session: Session, findings: Findings) -> str:
    names = arm_names(session)
    if not findings.comparisons:
        measured = " and ".join(names.values()) or "no arm"
        if not session.baseline.num_rows:
            return f"Nothing was measured on {measured}."
        did = "would measure, as simulated," if session.kind == "simulate" else "measured"
        return f"No search was compared; the tables show what fio {did} on {measured}."
    pairs = dict.fromkeys((c.a, c.b) for c in findings.comparisons)
    cache = "cold" if is_cold(session) else "warm"
    sentences = [
        f"{names[b]} against {names[a]}, 50th percentile of service time, cache: {cache}: "
        f"{_counts([c for c in findings.comparisons if (c.a, c.b) == (a, b)], findings.margin)}"
        f"{_together(a, b, findings)}"
        for a, b in pairs
    ]
    return f"{'; '.join(sentences)}."


def arm_names(session: Session) -> dict[str, str]:
    """What each arm is called in a sentence: an emulated one never without saying so."""
    return {
        arm.spec.name: f"{arm.spec.name} (emulated)" if arm.kind is Kind.EMULATED else arm.spec.name
        for arm in session.arms
    }


def _counts(comparisons: Sequence[Comparison], margin: float) -> str:
    if all(c.p_different is None for c in comparisons):
        rounds = max(c.rounds for c in comparisons)
        needed = f" and at least {MIN_ROUNDS} are needed" if rounds < MIN_ROUNDS else ""
        return f"no verdict, {_number(rounds, 'round')} measured{needed}"
    total = len(comparisons)
    parts: list[str] = []
    for verdict in Verdict:
        of_kind = [c for c in comparisons if c.verdict is verdict]
        if of_kind:
            share = str(len(of_kind)) if parts else _share(len(of_kind), total)
            parts.append(f"{_words(verdict, margin)} on {share}{_most(verdict, of_kind)}")
    return ", ".join(parts)


def _together(a: str, b: str, findings: Findings) -> str:
    for overall in findings.overall:
        if (overall.a, overall.b) == (a, b):
            change = percent_change(overall.ratio)
            return f"; over all tasks {_words(overall.verdict, findings.margin)}, {change}"
    return ""


def _words(verdict: Verdict, margin: float) -> str:
    words = {
        Verdict.EQUIVALENT: f"equivalent within {margin * 100:.3g} %",
        Verdict.INCONCLUSIVE: "inconclusive",
    }
    return words.get(verdict, verdict.value)


def _share(count: int, total: int) -> str:
    if count == total:
        return "the one task" if total == 1 else f"all {total} tasks"
    return f"{count} of {_number(total, 'task')}"


def _most(verdict: Verdict, comparisons: Iterable[Comparison]) -> str:
    changes = [abs(c.percentiles[0].ratio.value - 1) for c in comparisons]
    return f" (by up to {max(changes) * 100:.1f} %)" if verdict in (Verdict.FASTER, Verdict.SLOWER) else ""


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
