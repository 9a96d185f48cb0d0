"""When a session that stops itself is looked at, and how sure each look must be.

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

_LOOK_FACTOR = 1.5  # from one look to the next, so that seldom more than a third of the rounds was too many
_LEAST_TO_LAST = 1.25  # what is less before the last look is not worth one


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimResult:
    """The verdicts so far, after some of the rounds."""

    rounds: int  # so far
    confidence: float  # at which it claims
    tasks: int
    undecided: tuple[str, ...]  # tasks on any pair of arms

    @property
    def decides(self) -> bool:
        """Whether nothing is left to find out."""
        return self.tasks > 0 and not self.undecided


def looks(most: int) -> tuple[int, ...]:
    """The numbers of rounds after which is looked, up to ``most``, the last."""
    at, rounds = float(MIN_ROUNDS), list[int]()
    while at * _LEAST_TO_LAST <= most:
        rounds.append(math.ceil(at))
        at *= _LOOK_FACTOR
    return (*rounds, most)


def confidence_of_a_look(confidence: float, most: int) -> float:
    """How sure each look must be for all of them together to have ``confidence``."""
    return 1 - (1 - confidence) / len(looks(most))


def confidence_of(design: DesignPlan) -> float:
    """At which a session of this design claims: that of a look where it has looks."""
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
    """Judge what was measured so far; ``confidence`` is that of the whole session.

    ``blocks`` of service times, and of latencies where requests are due at a rate: a task is decided when
    both are.
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
