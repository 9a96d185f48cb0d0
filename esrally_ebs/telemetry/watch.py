"""Once-a-second values to events: a limiter begins or ends to hold an arm back, credits run out or return.

Takes each second's rows, gives the events of that second; between two of them nothing is reported twice.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from esrally_ebs.model import Event, TelemetryPoint

# Seconds waited, or seconds over a limit, per second; below this a limiter is at work but nobody notices.
HOLDS_BACK = 0.01
_WAITS = ("emulator.waited_s.", "ebs.exceeded_s.")
_CREDITS = "emulator.credits"
_BURST = "emulator.capacities.iops"  # one second at burst speed, in operations


@dataclass(slots=True)
class _Arm:
    before: dict[str, tuple[float, float]] = field(default_factory=dict)  # metric to time and value
    since: dict[str, tuple[float, float]] = field(default_factory=dict)  # limit to when, and waited by then
    out_since: float | None = None


class Watch:
    """Remembers the last second of every arm."""

    def __init__(self) -> None:
        self._arms: dict[str, _Arm] = {}

    def look(self, points: Iterable[TelemetryPoint]) -> list[Event]:
        """Events between the last call's values and these."""
        by_arm: dict[str, list[TelemetryPoint]] = {}
        for point in points:
            by_arm.setdefault(point.arm, []).append(point)
        return [
            event
            for name, own in by_arm.items()
            for event in _look(name, self._arms.setdefault(name, _Arm()), own)
        ]


def _look(name: str, arm: _Arm, points: list[TelemetryPoint]) -> Iterator[Event]:
    values = {point.metric: point.value for point in points}
    for point in points:
        if point.metric.startswith(_WAITS):
            yield from _limiter(name, arm, point)
        elif point.metric == _CREDITS:
            yield from _credits(name, arm, point, values.get(_BURST, 0.0))


def _limiter(name: str, arm: _Arm, point: TelemetryPoint) -> Iterator[Event]:
    before = arm.before.get(point.metric)
    arm.before[point.metric] = point.at_s, point.value
    if before is None or point.at_s <= before[0] or point.value < before[1]:  # the first, or begun anew
        arm.since.pop(point.metric, None)
        return
    limit = point.metric.split(".", 2)[2]
    holds = (point.value - before[1]) / (point.at_s - before[0]) >= HOLDS_BACK
    if holds and point.metric not in arm.since:
        arm.since[point.metric] = before
        yield Event(at_s=before[0], kind="limiter-begin", arm=name, fields={"limit": limit})
    elif not holds and point.metric in arm.since:
        since, waited = arm.since.pop(point.metric)
        fields = {"limit": limit, "seconds": before[0] - since, "waited_s": before[1] - waited}
        yield Event(at_s=before[0], kind="limiter-end", arm=name, fields=fields)


def _credits(name: str, arm: _Arm, point: TelemetryPoint, burst: float) -> Iterator[Event]:
    """Exhausted at none left; recovered with enough for a second of burst."""
    if arm.out_since is None and point.value <= 0:
        arm.out_since = point.at_s
        yield Event(at_s=point.at_s, kind="credits-exhausted", arm=name, fields={"credits": point.value})
    elif arm.out_since is not None and point.value > max(burst, 0.0):
        fields = {"credits": point.value, "seconds": point.at_s - arm.out_since}
        arm.out_since = None
        yield Event(at_s=point.at_s, kind="credits-recovered", arm=name, fields=fields)
