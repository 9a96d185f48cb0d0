"""When a session that stops itself looks at its results, and how certain each look must be.

Who looks after every round and stops at the first "faster" has been wrong far more often than his 5 %. Here
the looks are few, fixed before the session, and share what may go wrong: with K looks each claims at
``1 - (1 - confidence) / K``. The chance that any of them, and so the one that ends the session, claims
anything false is then at most ``1 - confidence``, however looks depend on one another: error spending (Lan
and DeMets 1983) in equal parts, summed (Bonferroni). The intervals of a look are repeated confidence
intervals (Jennison and Turnbull 1989). Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from esrally_ebs.analysis.compare import Verdict, judge
from esrally_ebs.analysis.summary import MIN_ROUNDS, Blocks, Off
from esrally_ebs.plan import DesignPlan

_LOOK_FACTOR = 1.5  # ratio of successive looks, so that rarely more than a third of the rounds is wasted
_LEAST_TO_LAST = 1.25  # a look closer than this factor before the last is skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimResult:
    """Verdicts after some of the rounds."""

    rounds: int  # so far
    confidence: float  # of its claims
    tasks: int
    undecided: tuple[str, ...]  # undecided tasks on any pair of arms

    @property
    def decides(self) -> bool:
        """Whether everything is decided."""
        return self.tasks > 0 and not self.undecided


def looks(most: int) -> tuple[int, ...]:
    """Numbers of rounds after which results are looked at, ending with ``most``."""
    at, rounds = float(MIN_ROUNDS), list[int]()
    while at * _LEAST_TO_LAST <= most:
        rounds.append(math.ceil(at))
        at *= _LOOK_FACTOR
    return (*rounds, most)


def confidence_of_a_look(confidence: float, most: int) -> float:
    """Confidence of each look such that all together have ``confidence``."""
    return 1 - (1 - confidence) / len(looks(most))


def confidence_of(design: DesignPlan) -> float:
    """Confidence of a session's claims: that of one look if its design has looks."""
    return confidence_of_a_look(design.confidence, design.max_rounds) if design.is_auto else design.confidence


def look(
    blocks: Sequence[Blocks],
    arms: Sequence[str],
    *,
    margin: float,
    confidence: float,
    most: int,
    off: Off | None = None,
) -> InterimResult:
    """Judge what was measured so far; ``confidence`` is the whole session's.

    If requests are due at a rate, there are ``blocks`` of service times and of latencies: a task is decided
    when both are.
    """
    own = confidence_of_a_look(confidence, most)
    comparisons = [
        comparison
        for of in blocks
        for comparison in judge(of, arms, margin=margin, confidence=own, off=off, intervals=False).comparisons
    ]
    return InterimResult(
        rounds=max((comparison.rounds for comparison in comparisons), default=0),
        confidence=own,
        tasks=len({comparison.task for comparison in comparisons}),
        undecided=tuple(dict.fromkeys(c.task for c in comparisons if c.verdict is Verdict.INCONCLUSIVE)),
    )
