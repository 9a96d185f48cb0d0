"""One sample of all arms: every source asked once, a row per value, and a mark for what is missing."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from esrally_ebs.model import Node, TelemetryPoint, Volume
from esrally_ebs.system import SYSTEM_CLOCK, Clock
from esrally_ebs.telemetry.ebs import ebs_statistics
from esrally_ebs.telemetry.sources import Device, Limiters, Memory, ReadState, ReadText, Source, Value

CUT = "cut"  # the metric that says how many of an arm's sources gave nothing at that second

Arms = Sequence[tuple[Volume, Node | None]]


def _ignore(arm: str, text: str) -> None:
    """Nobody asked to hear of cuts; they are in the rows."""


class Sampler:
    """Asks every source of every arm; a source that fails never stops the others."""

    def __init__(
        self,
        arms: Arms,
        *,
        read_state: ReadState,
        clock: Clock = SYSTEM_CLOCK,
        read_text: ReadText = Path.read_text,
        on_cut: Callable[[str, str], None] = _ignore,
    ) -> None:
        """``read_state`` turns a control socket's path into a record or mapping of numbers.

        ``on_cut`` is told arm and reason each time that a source begins to fail, not every second.
        """
        self._clock = clock
        self._on_cut = on_cut
        self._arms = [(volume, list(_sources(volume, node, read_text, read_state))) for volume, node in arms]
        self._failing: set[Source] = set()

    def sample(self) -> list[TelemetryPoint]:
        """All values now; ``CUT`` is 0 for an arm that is complete. Raises nothing that a source raises."""
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
            values = source.read(self._clock.monotonic())
        except Exception as error:  # noqa: BLE001 - whatever it is, the other sources go on and the row says so
            if source not in self._failing:
                self._failing.add(source)
                self._on_cut(arm, str(error) or repr(error))
            return []
        self._failing.discard(source)
        return values


def _sources(
    volume: Volume, node: Node | None, read_text: ReadText, read_state: ReadState
) -> Iterator[Source]:
    if volume.device is not None:
        yield Device(volume.device, read_text)
    if node is not None and node.memory_cgroup is not None:
        yield Memory(node.memory_cgroup, read_text)
    if volume.control is not None:
        yield Limiters(volume.control, read_state)
    statistics = ebs_statistics(volume)
    if statistics is not None:
        yield statistics
