"""Samples all arms once a second: reads every source; gives a row per value, and a mark for missing ones.

Each second's rows also give events: a limiter begins or ends to hold an arm back, credits run out or return;
nothing is repeated in between.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock, give_way
from esrally_ebs.machine.procfs import ReadText
from esrally_ebs.model import Event, Node, TelemetryPoint, Volume
from esrally_ebs.telemetry.sources import (
    Device,
    Memory,
    ReadPage,
    ReadState,
    ReadWork,
    Source,
    Value,
    ebs_statistics,
    index_work,
    limiters,
)

CUT = "cut"  # metric: number of an arm's sources that gave nothing

_JOIN_S = 10.0  # a control socket without an answer delays a sample by 5 s

Sink = Callable[[list[TelemetryPoint]], None]

Arms = Sequence[tuple[Volume, Node | None]]

# Seconds of waiting, or over a limit, per second; with less, a limiter is at work but not noticeable.
HOLDS_BACK = 0.01
_WAITS = ("emulator.waited_s.", "ebs.exceeded_s.")
_CREDITS = "emulator.credits"
# Per volume, if striped. Bursts in operations are also limited in bytes, so that limit comes last.
_BURSTS = [re.compile(rf"emulator\.capacities\.(\d+-)?{limit}") for limit in ("iops", "throughput")]


class Sampler:
    """Reads every source of every arm; a failing source never stops others."""

    def __init__(
        self,
        arms: Arms,
        *,
        read_state: ReadState,
        read_work: ReadWork | None = None,
        clock: Clock = SYSTEM_CLOCK,
        read_text: ReadText = Path.read_text,
        read_page: ReadPage | None = None,
        on_cut: Callable[[str, str], None] = lambda arm, text: None,  # cuts are in the rows as well
    ) -> None:
        """``read_state`` reads numbers from a control socket; ``read_work`` reads a node's merges and
        refreshes from Elasticsearch (None: not read); ``read_page`` is as in ``ebs_statistics``.

        ``on_cut`` gets arm and reason whenever a source begins to fail, not every second.
        """

        def sources(volume: Volume, node: Node | None) -> Iterator[Source]:
            if volume.device is not None:
                yield Device(volume.device, read_text).read
            if node is not None and node.memory_cgroup is not None:
                yield Memory(node.memory_cgroup, read_text).read
            if (control := volume.control) is not None:
                yield lambda _: limiters(control, read_state)
            if node is not None and read_work is not None:
                yield lambda _: index_work(node, read_work)
            statistics = ebs_statistics(volume, read_page=read_page)
            if statistics is not None:
                yield statistics.read

        self._clock = clock
        self._on_cut = on_cut
        self._arms = [(volume, list(sources(volume, node))) for volume, node in arms]
        self._failing: set[Source] = set()

    def sample(self) -> list[TelemetryPoint]:
        """All values now; ``CUT`` is 0 for a complete arm. Never raises a source's error."""
        return [point for volume, sources in self._arms for point in self._arm(volume, sources)]

    def _arm(self, volume: Volume, sources: list[Source]) -> Iterator[TelemetryPoint]:
        at_s = self._clock.epoch()
        values = [value for source in sources for value in self._read(source, volume.spec.name)]
        missing = sum(source in self._failing for source in sources)
        for value in (*values, Value(CUT, missing, "sources")):
            yield TelemetryPoint(
                arm=volume.spec.name,
                device=volume.device or "",
                at_s=at_s,
                metric=value.metric,
                value=value.value,
                unit=value.unit,
            )

    def _read(self, source: Source, arm: str) -> list[Value]:
        try:
            values = source(self._clock.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever it is, the other sources go on and the row says so
            if source not in self._failing:
                self._failing.add(source)
                self._on_cut(arm, str(error) or repr(error))
            return []
        self._failing.discard(source)
        return values


class SamplerThread:
    """Samples every ``interval_s`` from the start on; skips beats that are late.

    After a failure the sink is tried again at the next beat; ``error`` keeps the first failure.
    """

    def __init__(
        self, sample: Callable[[], list[TelemetryPoint]], sink: Sink, *, interval_s: float = 1.0
    ) -> None:
        self._sample = sample
        self._sink = sink
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ebs-telemetry", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Start the thread, which takes the first sample at once."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it is sampling: not before its start, after its end, or if it has died."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after the current sample, which the sink has then. May be called twice."""
        if self._thread.ident is not None and not self._stopping.is_set() and not self.is_alive:
            self.error = self.error or SetupError("telemetry: its thread ended before it was stopped")
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self.error = SetupError(f"telemetry: no answer for {_JOIN_S:.0f} s; see the volumes' logs")

    def _run(self) -> None:
        give_way()
        begin = time.monotonic()
        while True:
            self._beat()
            passed = time.monotonic() - begin
            if self._stopping.wait(self._interval_s - passed % self._interval_s):
                return

    def _beat(self) -> None:
        try:
            self._sink(self._sample())
        except Exception as error:  # noqa: BLE001 - a thread has no caller: its owner looks at .error
            self.error = self.error or error


@dataclass(slots=True)
class _Arm:
    before: dict[str, tuple[float, float]] = field(default_factory=dict)  # metric to time and value
    since: dict[str, tuple[float, float]] = field(default_factory=dict)  # limit to begin, and wait until then
    out_since: float | None = None


class Watch:
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
            yield from _credits(name, arm, point, _burst(values))


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


def _burst(values: Mapping[str, float]) -> float:
    """What an arm's volumes do in one second of burst, in the unit of their credits."""
    sums = (sum(value for metric, value in values.items() if name.fullmatch(metric)) for name in _BURSTS)
    return next(filter(None, sums), 0.0)


def _credits(name: str, arm: _Arm, point: TelemetryPoint, burst: float) -> Iterator[Event]:
    """Exhausted at 0; recovered when there is enough for a second of burst."""
    if arm.out_since is None and point.value <= 0:
        arm.out_since = point.at_s
        yield Event(at_s=point.at_s, kind="credits-exhausted", arm=name, fields={"credits": point.value})
    elif arm.out_since is not None and point.value > burst:
        fields = {"credits": point.value, "seconds": point.at_s - arm.out_since}
        arm.out_since = None
        yield Event(at_s=point.at_s, kind="credits-recovered", arm=name, fields=fields)
