"""From raw samples to verdicts: percentiles, intervals with the round as the unit, what may be compared.

Pure: takes a loaded session, gives frozen values that carry their own warnings; ``docs/statistics.md`` says
why.
"""

from esrally_ebs.stats.comparable import check_comparable
from esrally_ebs.stats.compare import (
    MIN_ROUNDS,
    PERCENTILES,
    Comparison,
    PercentileComparison,
    Verdict,
    compare,
)
from esrally_ebs.stats.resample import Estimate
from esrally_ebs.stats.summary import Blocks, Summary, measured_blocks, summarize

__all__ = [
    "MIN_ROUNDS",
    "PERCENTILES",
    "Blocks",
    "Comparison",
    "Estimate",
    "PercentileComparison",
    "Summary",
    "Verdict",
    "check_comparable",
    "compare",
    "measured_blocks",
    "summarize",
]
