"""A session's findings: summaries of tasks, comparisons of arms, and how the rounds ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from esrally_ebs.analysis.compare import Comparison, Overall, judge
from esrally_ebs.analysis.profile import calibration_errors
from esrally_ebs.analysis.sequential import confidence_of, looks
from esrally_ebs.analysis.summary import (
    MIN_ROUNDS,
    Blocks,
    Off,
    Scope,
    Starts,
    Summary,
    failures,
    measured_blocks,
    summarize_blocks,
)
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Check
from esrally_ebs.plan.tables import MIN_STARTS
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Statistics of one scope of requests."""

    scope: Scope
    arms: tuple[str, ...]  # compared arms, the reference first
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    overall: tuple[Overall, ...]
    blocks: Blocks
    margin: float
    confidence: float
    starts: Starts = ()
    off: Off = field(default_factory=dict)
    volumes: int = 1  # per type, if arms are types: then ``starts`` has the rounds of each volume
    ended: str = ""  # for rounds = "auto": how many there were, and why no more
    is_refused: bool = False  # a check forbids comparing: times are shown, without claims

    @property
    def tasks(self) -> list[str]:
        """The compared tasks, in order."""
        return list(dict.fromkeys(c.task for c in self.comparisons))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The compared pairs of arms, in order."""
        return list(dict.fromkeys((c.a, c.b) for c in self.comparisons))

    @property
    def min_observations(self) -> int:
        """Fewest observations for a verdict: starts if the nodes are started several times, else rounds."""
        return MIN_STARTS if self.starts else MIN_ROUNDS

    def word(self, comparison: Comparison) -> str:
        """The verdict as reports write it."""
        return "not comparable" if self.is_refused else comparison.verdict.value

    def without(self, rounds: Mapping[str, set[int]]) -> "Findings":
        """The findings without some rounds of some tasks; verdicts only, no estimates of further rounds."""
        kept = {
            (task, arm): {r: times for r, times in by_round.items() if r not in rounds.get(task, ())}
            for (task, arm), by_round in self.blocks.items()
        }
        blocks = {key: by_round for key, by_round in kept.items() if by_round}
        judged = judge(
            blocks,
            self.arms,
            margin=self.margin,
            confidence=self.confidence,
            starts=self.starts,
            off=self.off,
            intervals=False,
        )
        return replace(self, blocks=blocks, comparisons=judged.comparisons, overall=judged.overall)


def find(
    session: Session,
    scope: Scope = "all",
    *,
    arms: Sequence[str] | None = None,
    against: str | None = None,
    checks: Sequence[Check] = (),
) -> Findings:
    """Summaries and comparisons at the plan's margin and confidence.

    Compares all arms with the plan's reference or with ``against``; or ``arms`` with the first of them. If a
    check forbids comparing, there are times and no verdict. Raises PlanError if ``against`` is no arm.
    """
    margin, confidence = session.plan.design.margin, confidence_of(session.plan.design)
    arms = arms or _reference_first(session, against)
    # a search for the knee gives each arm rates of its own
    blocks = {} if session.plan.design.knee is not None else measured_blocks(session.samples, scope)
    starts = session.plan.design.rounds_of_starts
    volumes = session.plan.design.volumes if starts else 1
    # volumes of a type are calibrated one by one, so their spread includes the calibration's error
    off = calibration_errors(session.events) if volumes == 1 else {}
    judged = judge(blocks, arms, margin=margin, confidence=confidence, starts=starts, off=off)
    is_refused = any(check.forbids for check in checks)
    if is_refused:
        judged = judged.withheld()
    return Findings(
        scope=scope,
        arms=tuple(arms),
        summaries=summarize_blocks(
            blocks,
            failures(session.samples),
            scope,
            confidence=confidence,
            # volumes of a type share its rounds, so their spread says nothing about the accuracy of the
            # type's own times
            starts=starts[:1] if volumes > 1 else starts,
        ),
        comparisons=judged.comparisons,
        overall=judged.overall,
        blocks=blocks,
        margin=margin,
        confidence=confidence,
        starts=starts,
        off=off,
        volumes=volumes,
        ended=_ended(session),
        is_refused=is_refused,
    )


def _reference_first(session: Session, against: str | None) -> list[str]:
    names = session.arm_names
    if against not in (None, *names):
        raise PlanError(
            f"--against {against}: no arm of session {session.id}; write one of {', '.join(names)}"
        )
    return sorted(session.plan.design.reference_first(names), key=lambda name: name != against)


def _ended(session: Session) -> str:
    design = session.plan.design
    if not design.is_auto:
        return ""
    interim = [event.fields for event in session.events if event.kind == "look"]
    most = design.max_rounds
    why = str(interim[-1].get("ends", "")) if interim else ""
    after = ", ".join(str(fields.get("rounds")) for fields in interim) or "no"
    return (
        f"Rounds: at most {most}; looked after {after} rounds{f', and ended as {why}' if why else ''}. "
        f"Each of {len(looks(most))} possible looks claims at {format_share(confidence_of(design))}, "
        f"so all together at {format_share(design.confidence)}."
    )
