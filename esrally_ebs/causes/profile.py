"""Windows to profiles: what the requests of a task on an arm did to the volume, per round and in all."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from esrally_ebs.causes.windows import CREDITS, Window

WAITED = "emulator.waited_s."  # and the limiter's name
EXCEEDED = "ebs.exceeded_s."  # and the limit's name
_TARGET = "emulator.target_s."  # and read or write
# Of the I/Os that the kernel counted an emulated volume must have counted as many, but for so large a share:
# where the kernel splits or joins them on their way, times of one are not those of the other.
_OTHERS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """I/O of some requests; what was not recorded is None."""

    requests: int
    seconds: float  # of the windows, added up
    grown: Mapping[str, float]  # by counter, added up

    def per_request(self, counter: str) -> float | None:
        """Growth of a counter per request."""
        grown = self.grown.get(counter)
        return None if grown is None else grown / self.requests

    @property
    def reads(self) -> float | None:
        """Reads per request."""
        return self.per_request("device.reads")

    @property
    def read_bytes(self) -> float | None:
        """Bytes read per request."""
        return self.per_request("device.read_bytes")

    @property
    def io_bytes(self) -> float | None:
        """Mean size of a read; None when nothing was read."""
        return self._ratio("device.read_bytes", "device.reads")

    @property
    def await_s(self) -> float | None:
        """Mean time of a read at the device, limiters included; the kernel counts it in milliseconds."""
        return self._ratio("device.read_s", "device.reads")

    @property
    def depth(self) -> float | None:
        """Mean number of I/Os in flight while requests ran."""
        weighted = self.grown.get("device.weighted_s")
        return None if weighted is None or not self.seconds else weighted / self.seconds

    @property
    def io_s(self) -> float | None:
        """Time that all I/Os took, added up."""
        parts = [self.grown.get(f"device.{name}") for name in ("read_s", "write_s")]
        return None if None in parts else sum(part for part in parts if part is not None)

    @property
    def waited_s(self) -> Mapping[str, float]:
        """By limiter of an emulated volume: seconds that I/Os waited because of it, added up."""
        return {name.removeprefix(WAITED): s for name, s in self.grown.items() if name.startswith(WAITED)}

    @property
    def exceeded_s(self) -> Mapping[str, float]:
        """By limit of a real volume or its instance: seconds during which more was asked for."""
        return {name.removeprefix(EXCEEDED): s for name, s in self.grown.items() if name.startswith(EXCEEDED)}

    @property
    def held_back(self) -> Mapping[str, float]:
        """By limit: the share of the I/Os' time that was waiting (emulated), or of the requests' time."""
        shares = {limit: s / self.seconds for limit, s in self.exceeded_s.items() if self.seconds}
        io_s = self.io_s
        if io_s:
            # The kernel's milliseconds may round a short time below the wait within it.
            shares |= {limit: min(1.0, s / io_s) for limit, s in self.waited_s.items()}
        return shares

    @property
    def late_s(self) -> float | None:
        """Of an emulated volume: how much longer its I/Os took than they were to, added up; or less."""
        targets = [s for name, s in self.grown.items() if name.startswith(_TARGET)]
        came = [self.grown.get(f"emulator.{name}") for name in ("reads", "writes")]
        made = [self.grown.get(f"device.{name}") for name in ("reads", "writes")]
        io_s = self.io_s
        if io_s is None or not targets or None in came or None in made:
            return None
        count = sum(number for number in came if number is not None)
        others = count - sum(number for number in made if number is not None)
        return io_s - sum(targets) if abs(others) <= _OTHERS * count else None

    @property
    def late(self) -> float | None:
        """``late_s`` as a share of what the I/Os were to take; None where nothing was asked of the volume."""
        late_s, io_s = self.late_s, self.io_s
        if late_s is None or io_s is None or io_s - late_s <= 0:
            return None
        return late_s / (io_s - late_s)

    @property
    def stolen(self) -> float | None:
        """Of the processor time that the machine asked for, the share that its host gave to somebody else."""
        stolen, busy = (self.grown.get(f"processor.{name}_s") for name in ("stolen", "busy"))
        if stolen is None or busy is None or stolen + busy <= 0:
            return None
        return stolen / (stolen + busy)

    @property
    def credits_spent(self) -> float | None:
        """Burst credits that left the bucket, less those that came back meanwhile."""
        grown = self.grown.get(CREDITS)
        return None if grown is None else -grown

    def _ratio(self, counter: str, by: str) -> float | None:
        divisor = self.grown.get(by)
        dividend = self.grown.get(counter)
        return dividend / divisor if divisor and dividend is not None else None


# (task, arm) to round to profile, tasks and arms in order of appearance
Profiles = Mapping[tuple[str, str], Mapping[int, Profile]]


def singles(windows: Iterable[Window]) -> Mapping[tuple[str, str], Sequence[Profile]]:
    """The profile of each window of each task on each arm, in order of time."""
    found: dict[tuple[str, str], list[Profile]] = {}
    for window in windows:
        found.setdefault((window.task, window.arm), []).append(_sum([window]))
    return found


def profiles(windows: Iterable[Window]) -> Profiles:
    """The profile of each task on each arm in each round."""
    blocks: dict[tuple[str, str], dict[int, list[Window]]] = {}
    for window in windows:
        rounds = blocks.setdefault((window.task, window.arm), {})
        rounds.setdefault(window.round, []).append(window)
    return {
        key: {round_: _sum(found) for round_, found in by_round.items()} for key, by_round in blocks.items()
    }


def pooled(found: Iterable[Profile]) -> Profile:
    """Several profiles as one; ValueError for none."""
    return _sum(list(found))


def _sum(parts: list[Window] | list[Profile]) -> Profile:
    """A counter that one part lacks is left out: its sum would stand for fewer requests than the others."""
    if not parts:
        raise ValueError("no requests were observed")
    shared = set.intersection(*(set(part.grown) for part in parts))
    return Profile(
        requests=sum(part.requests for part in parts),
        seconds=sum(part.seconds for part in parts),
        grown={name: sum(part.grown[name] for part in parts) for name in sorted(shared)},
    )
