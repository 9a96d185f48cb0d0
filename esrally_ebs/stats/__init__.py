"""From raw samples to verdicts: percentiles, intervals with the round as the unit, what may be compared.

Pure: takes a loaded session, gives frozen values that carry their own warnings; ``docs/statistics.md`` says
why.
"""

from esrally_ebs.stats.comparable import check_comparable
from esrally_ebs.stats.compare import compare, judge
from esrally_ebs.stats.found import Comparison, Judgement, Overall, PercentileComparison, Verdict
from esrally_ebs.stats.rounds import Estimate
from esrally_ebs.stats.summary import (
    MIN_ROUNDS,
    PERCENTILES,
    Blocks,
    Summary,
    measured_blocks,
    summarize,
)

__all__ = [
    "MIN_ROUNDS",
    "PERCENTILES",
    "Blocks",
    "Comparison",
    "Estimate",
    "Judgement",
    "Overall",
    "PercentileComparison",
    "Summary",
    "Verdict",
    "check_comparable",
    "compare",
    "judge",
    "measured_blocks",
    "summarize",
]
