"""One sentence that says why a task is faster or slower, or none: profiles, expectation and measurement in.

A sentence is only made for a difference that is proven, and only of what explains it: a limiter that held
back the slower arm for most of the difference, or fio's difference at the very reads of the query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from esrally_ebs.causes.expected import Expected
from esrally_ebs.causes.profile import Profile, pooled
from esrally_ebs.units import format_bytes

# A limiter explains a difference when it took this share of the slower arm's I/O time, this many times as
# much as on the other arm, and its waits make up this part of the difference. What differs is the 50th
# percentile, so they must do so in the middle request as well: a few that waited long do not move it.
_SHARE = 0.1
_TIMES = 2.0
_PART = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How much longer a query took on arm b than on arm a, in seconds, and whether that is proven."""

    value: float
    low: float | None
    high: float | None
    is_proven: bool  # by the verdict of all tasks together


def why(
    a: str,
    b: str,
    of_a: Sequence[Profile],
    of_b: Sequence[Profile],
    expectation: Expected | None,
    measured: Measured,
) -> str | None:
    """Why ``b`` (as it is to be called) differs from ``a``; None when the data do not say.

    ``of_a`` and ``of_b`` are profiles of single requests, as far as these did not overlap.
    """
    if not measured.is_proven or not of_a or not of_b:
        return None
    slower, faster = _Requests(b, of_b), _Requests(a, of_a)
    if measured.value < 0:
        slower, faster = faster, slower
    parts = [
        *_limiters(slower, faster, abs(measured.value)),
        *_fio(a, b, pooled(of_a), pooled(of_b), expectation, measured),
    ]
    return "; ".join(parts) or None


class _Requests:
    """An arm by what it is called, and its requests: each, and all as one."""

    def __init__(self, arm: str, each: Sequence[Profile]) -> None:
        self.arm, self.each, self.whole = arm, each, pooled(each)

    def mean_wait_s(self, limit: str) -> float:
        return _waits(self.whole, limit)

    def middle_wait_s(self, limit: str) -> float:
        return median(_waits(one, limit) for one in self.each)

    def middle_share(self, limit: str) -> float:
        return median(one.held_back.get(limit, 0.0) for one in self.each)


def _limiters(slower: _Requests, faster: _Requests, difference_s: float) -> Iterator[str]:
    for limit, share in slower.whole.held_back.items():
        elsewhere = faster.whole.held_back.get(limit, 0.0)
        if share < _SHARE or share < _TIMES * elsewhere:
            continue
        if limit in slower.whole.exceeded_s:  # how long, but not how much longer requests took because of it
            if slower.middle_share(limit) >= _SHARE:
                what = f"{slower.arm} asked for more than its {limit} limit for {share:.0%} of the time"
                yield f"{what} ({faster.arm} {elsewhere:.0%})"
        elif _waited_longer_s(slower, faster, limit) >= _PART * difference_s:
            what = f"{slower.arm} waited {share:.0%} of its I/O time in its {limit} limiter"
            yield f"{what} ({faster.arm} {elsewhere:.0%})"


def _waited_longer_s(slower: _Requests, faster: _Requests, limit: str) -> float:
    """By how much more the slower arm waited: per query in the mean and in the middle one, the less."""
    in_the_mean = slower.mean_wait_s(limit) - faster.mean_wait_s(limit)
    return min(in_the_mean, slower.middle_wait_s(limit) - faster.middle_wait_s(limit))


def _waits(profile: Profile, limit: str) -> float:
    """Seconds that a limiter added to a query, waits of I/Os at once counted once."""
    return profile.waited_s.get(limit, 0.0) / profile.requests / max(1.0, profile.depth or 1.0)


def _fio(
    a: str,
    b: str,
    profile_a: Profile,
    profile_b: Profile,
    expectation: Expected | None,
    measured: Measured,
) -> Iterator[str]:
    if expectation is None or not _agree(expectation, measured):
        return
    reads = f"{b} reads {expectation.reads:.1f} I/Os of {format_bytes(expectation.io_bytes)} per query"
    of_a = profile_a.reads or 0.0
    if abs(of_a - expectation.reads) > 0.1 * expectation.reads:
        reads += f" ({a} {of_a:.1f} of {format_bytes(profile_a.io_bytes or 0.0)})"
    more = "more" if expectation.per_read_s > 0 else "less"
    yield (
        f"{reads}; each I/O waits {abs(expectation.per_read_s) * 1e3:.2f} ms {more} in fio: "
        f"expected {expectation.value * 1e3:+.2f} ms, measured {measured.value * 1e3:+.2f} ms"
    )


def _agree(expectation: Expected, measured: Measured) -> bool:
    """Same direction beyond doubt, and intervals that meet."""
    low, high = expectation.low, expectation.high
    if low is None or high is None or measured.low is None or measured.high is None:
        return False
    one_direction = (low > 0 and measured.value > 0) or (high < 0 and measured.value < 0)
    return one_direction and low <= measured.high and high >= measured.low
