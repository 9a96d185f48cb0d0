"""``io`` events to windows: requests of one task on one arm, and what the volume's counters grew meanwhile.

An event has the counters right before a request and right after it. Requests of several clients overlap;
those are joined into one window from the first counters to the last, so that nothing is counted twice.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from esrally_ebs.model import Event

KIND = "io"
CREDITS = "emulator.credits"  # a level, which also falls; all other counters only grow
_NO_COUNTERS = frozenset({"device.in_flight"})
# /proc/diskstats prints times as 32-bit milliseconds: after 49.7 days of I/O they begin at 0 again.
_TIME_WRAPS_S = 2**32 / 1000
_TIMES = frozenset({"device.read_s", "device.write_s", "device.weighted_s"})
# A time that seems to have wrapped must be one that so many requests in flight can explain.
_MOST_IN_FLIGHT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some requests of one task on one arm in one round."""

    arm: str
    task: str
    round: int
    requests: int
    start_s: float  # seconds since the epoch
    end_s: float
    grown: Mapping[str, float]  # by counter; what one of the two snapshots lacks is not in it

    @property
    def seconds(self) -> float:
        """How long the window was."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class _Observed:
    """A window with its absolute counters."""

    window: Window
    begin: Mapping[str, float]
    end: Mapping[str, float]


def windows(events: Iterable[Event]) -> tuple[tuple[Window, ...], int]:
    """Windows in order of time, and how many events were no use: broken, or of counters that began anew."""
    observed, broken = [], 0
    for event in events:
        if event.kind != KIND:
            continue
        found = _observed(event)
        if found is None:
            broken += 1
        else:
            observed.append(found)
    found_windows = []
    for joined in _joined(observed):
        grown = _grown(joined)
        if grown is None:
            broken += 1
        else:
            found_windows.append(replace(joined.window, grown=grown))
    return tuple(sorted(found_windows, key=lambda window: window.start_s)), broken


def _observed(event: Event) -> _Observed | None:
    fields = event.fields
    try:
        window = Window(
            arm=str(event.arm),
            task=str(fields["task"]),
            round=int(fields["round"]),
            requests=int(fields["requests"]),
            start_s=float(fields["started_s"]),
            end_s=float(event.at_s),
            grown={},
        )
        begin, end = _counters(fields["begin"]), _counters(fields["end"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    sound = event.arm is not None and window.requests > 0 and window.seconds > 0
    return _Observed(window, begin, end) if sound else None


def _counters(table: Mapping[str, object]) -> dict[str, float]:
    counters = {str(name): float(value) for name, value in table.items()}  # type: ignore[arg-type]
    if not all(math.isfinite(value) for value in counters.values()):
        raise ValueError("a counter is not a number")
    return counters


def _joined(observed: Iterable[_Observed]) -> list[_Observed]:
    """Overlapping windows of one block as one; others as they are."""
    last: dict[tuple[str, str, int], _Observed] = {}
    done: list[_Observed] = []
    for found in sorted(observed, key=lambda one: one.window.start_s):
        key = found.window.arm, found.window.task, found.window.round
        before = last.get(key)
        if before is not None and found.window.start_s < before.window.end_s:
            last[key] = _both(before, found)
            continue
        if before is not None:
            done.append(before)
        last[key] = found
    return done + list(last.values())


def _both(first: _Observed, second: _Observed) -> _Observed:
    later = max(first, second, key=lambda one: one.window.end_s)
    window = replace(
        first.window,
        requests=first.window.requests + second.window.requests,
        end_s=later.window.end_s,
    )
    return _Observed(window, first.begin, later.end)


def _grown(observed: _Observed) -> dict[str, float] | None:
    """None when a counter fell: the volume was attached again in between."""
    grown = {}
    for name in (observed.begin.keys() & observed.end.keys()) - _NO_COUNTERS:
        growth = _growth(name, observed.begin[name], observed.end[name], observed.window.seconds)
        if growth is None:
            return None
        grown[name] = growth
    return grown


def _growth(name: str, begin: float, end: float, seconds: float) -> float | None:
    if name == CREDITS or end >= begin:
        return end - begin
    wrapped = end - begin + _TIME_WRAPS_S
    return wrapped if name in _TIMES and 0 <= wrapped <= seconds * _MOST_IN_FLIGHT else None
