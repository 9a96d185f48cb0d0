"""The five studies in virtual time: how many published figures hold, the others with reason, and the seconds.

python benchmarks/studies.py [NAME ...]
"""

import sys
import time
from collections import Counter

from esrally_ebs import studies
from esrally_ebs.catalog import cost
from esrally_ebs.studies.published import Result, Status, summary

_COLUMNS = ("study", "figures", "ok", "MISS", "not covered", "given", "seconds")


def main() -> None:
    """Run those that are named, or all."""
    prices = cost.price_list()
    widths = [max(14, len(title)) for title in _COLUMNS]
    print("".join(f"{title:>{width}}" for title, width in zip(_COLUMNS, widths, strict=True)))
    reasons = []
    for name in sys.argv[1:] or studies.names():
        begun = time.perf_counter()
        result = studies.run_study(name, studies.VirtualRunner(), prices)
        cells = [name, *_counts(result), f"{time.perf_counter() - begun:.1f}"]
        print("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)))
        reasons += [f"{name}: {line}" for line in summary(result.study, result.figures)[1:]]
    print("\nThe first study's seconds are also those of compiling, once per process.\n")
    print("\n".join(reasons))


def _counts(result: Result) -> list[int]:
    counts = Counter(figure.status for figure in result.figures)
    statuses = (Status.OK, Status.MISS, Status.OUTSIDE, Status.GIVEN)
    return [len(result.figures), *(counts[status] for status in statuses)]


if __name__ == "__main__":
    main()
