"""What a comparison of arms finds, as frozen values that carry their own warnings."""

from dataclasses import dataclass, replace
from enum import StrEnum

from esrally_ebs.stats.rounds import Estimate


class Verdict(StrEnum):
    """What may be said of arm b against arm a, from the 50th percentile."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileComparison:
    """One percentile of two arms; the intervals are for this task alone, not corrected for many tasks."""

    percentile: int
    a_s: float
    b_s: float
    difference_s: Estimate  # b - a
    ratio: Estimate  # b / a


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One task on two arms; the verdict says how ``b`` does against ``a``."""

    task: str
    a: str
    b: str
    rounds: int  # in which both arms were measured
    percentiles: tuple[PercentileComparison, ...]
    verdict: Verdict
    p_different: float | None  # adjusted for all tasks; None without an interval
    p_equivalent: float | None
    more_rounds: int | None  # estimate; None when decided, or when it cannot be estimated
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overall:
    """All tasks of two arms together, as if one ratio held for all of them."""

    a: str
    b: str
    tasks: int
    rounds: int
    ratio: Estimate  # geometric mean of the tasks' ratios of the 50th percentile
    verdict: Verdict
    p_different: float  # adjusted together with those of the tasks
    p_equivalent: float
    more_rounds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a session's requests say of its arms."""

    comparisons: tuple[Comparison, ...]
    overall: tuple[Overall, ...]  # a pair of arms each; none for a pair with too few rounds

    def withheld(self) -> "Judgement":
        """The same times without any claim, for arms that may not be compared."""
        without = (
            replace(c, verdict=Verdict.INCONCLUSIVE, p_different=None, p_equivalent=None, more_rounds=None)
            for c in self.comparisons
        )
        return Judgement(comparisons=tuple(without), overall=())
