"""What requests did to their volume: ``io`` events to windows, windows to profiles by task, arm and round.

An event has the counters right before and right after a request. Overlapping requests of several clients are
joined into one window from the first counters to the last, so that nothing is counted twice.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.model import Event, Phase, of_any
from esrally_ebs.store.session import Session

KIND = "io"
BESIDE = "beside"  # same form, for writes while a search is measured
FIO = "fio"  # same form, for a fio job
CALIBRATION = "calibration"  # of an arm's emulated volumes: ``error_s`` of a read, by size in bytes
WAITED = "emulator.waited_s."  # and the limiter's name
EXCEEDED = "ebs.exceeded_s."  # and the limit's name
_TARGET = "emulator.target_s."  # and read or write
CREDITS = "emulator.credits"  # a level: may fall; all other counters only grow
_LEVELS = frozenset({"device.in_flight"})  # values that are no counters
# /proc/diskstats has times as 32-bit milliseconds: they wrap after 49.7 days of I/O.
_TIME_WRAPS_S = 2**32 / 1000
_TIMES = frozenset({"device.read_s", "device.write_s", "device.weighted_s"})
# A wrapped time must be explicable by at most this many requests in flight.
_MAX_IN_FLIGHT = 10_000
# The kernel's and the emulated volume's counts of I/Os may differ by this share. They differ more where the
# kernel splits or merges I/Os; then the times of one do not compare with those of the other.
_MAX_COUNT_DIFFERENCE = 0.01
_HELD_BACK = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Requests of one task on one arm in one round, with counters before and after."""

    arm: str
    task: str
    round: int
    requests: int
    start_s: float  # seconds since the epoch
    end_s: float
    begin: Mapping[str, float]  # counters before the requests
    end: Mapping[str, float]  # counters after them
    grown: Mapping[str, float]  # growth of counters in both; empty until windows are joined

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def read_windows(events: Iterable[Event], kind: str = KIND) -> tuple[tuple[Window, ...], int]:
    """Windows in order of time, and the number of useless events: broken, or with counters that restarted."""
    parsed = [_window(event) for event in events if event.kind == kind]
    joined = _joined(window for window in parsed if window is not None)
    windows = [replace(window, grown=grown) for window in joined if (grown := _grown(window)) is not None]
    useless = parsed.count(None) + len(joined) - len(windows)
    return tuple(sorted(windows, key=lambda window: window.start_s)), useless


def _window(event: Event) -> Window | None:
    fields = event.fields
    try:
        window = Window(
            arm=str(event.arm),
            task=str(fields["task"]),
            round=int(fields["round"]),
            requests=int(fields["requests"]),
            start_s=float(fields["started_s"]),
            end_s=float(event.at_s),
            begin=_counters(fields["begin"]),
            end=_counters(fields["end"]),
            grown={},
        )
    except (KeyError, TypeError, ArithmeticError, ValueError, AttributeError):
        return None
    sound = event.arm is not None and 0 < window.requests < 2**53 and window.seconds > 0
    return window if sound else None


def _counters(table: Mapping[str, object]) -> dict[str, float]:
    counters = {str(name): float(value) for name, value in table.items()}  # type: ignore[arg-type]
    if not all(math.isfinite(value) for value in counters.values()):
        raise ValueError("a counter is not a number")
    return counters


def _joined(windows: Iterable[Window]) -> list[Window]:
    """Windows, with overlapping ones of one block joined."""
    last: dict[tuple[str, str, int], Window] = {}
    done: list[Window] = []
    for window in sorted(windows, key=lambda one: one.start_s):
        key = window.arm, window.task, window.round
        before = last.get(key)
        if before is not None and window.start_s < before.end_s:
            later = max(before, window, key=lambda one: one.end_s)
            requests = before.requests + window.requests
            last[key] = replace(before, requests=requests, end_s=later.end_s, end=later.end)
            continue
        if before is not None:
            done.append(before)
        last[key] = window
    return done + list(last.values())


def _grown(window: Window) -> dict[str, float] | None:
    """Growth of each counter; None if one fell: the volume was attached again in between."""
    grown = {}
    for name in (window.begin.keys() & window.end.keys()) - _LEVELS:
        growth = _growth(name, window.begin[name], window.end[name], window.seconds)
        if growth is None:
            return None
        grown[name] = growth
    return grown


def _growth(name: str, begin: float, end: float, seconds: float) -> float | None:
    if name == CREDITS or end >= begin:
        return end - begin
    wrapped = end - begin + _TIME_WRAPS_S
    return wrapped if name in _TIMES and 0 <= wrapped <= seconds * _MAX_IN_FLIGHT else None


def with_counter(counter: str, windows: Sequence[Window]) -> Sequence[Window]:
    """Windows with this counter, if any has it; else all: an unread counter would leave its arm unchecked."""
    return [window for window in windows if counter in window.grown] or windows


def tasks_beside_writes(events: Iterable[Event]) -> set[str]:
    """Searches with writes beside them, according to events of bringing arms back."""
    brought_back = (event.fields for event in events if event.kind == "brought-back")
    # older sessions' events do not list the writes; they have a task only where there were any
    return {str(fields["task"]) for fields in brought_back if fields.get("writes", fields.get("task"))}


def whole_blocks(windows: Sequence[Window], tasks: Collection[str], samples: pa.Table) -> list[Window]:
    """Windows with each block of ``tasks`` joined, from its first counters to its last; others unchanged.

    Activity between requests, such as writes, may last longer than they: counters around one request would
    have the end of I/Os that began before it, and only the beginning of others.
    """
    blocks: dict[tuple[str, str, int], list[Window]] = {}
    for window in windows:
        if window.task in tasks:
            blocks.setdefault((window.arm, window.task, window.round), []).append(window)
    searches = _measured(samples) if blocks else {}
    whole = []
    for (arm, *_), of_block in blocks.items():
        block = _without_warm_up(of_block, searches.get(arm, np.zeros((2, 0))))
        first, last = block[0], max(block, key=lambda one: one.end_s)
        requests = sum(window.requests for window in block)
        joined = replace(first, requests=requests, end_s=last.end_s, end=last.end)
        if (grown := _grown(joined)) is not None:
            whole.append(replace(joined, grown=grown))
    return [window for window in windows if window.task not in tasks] + whole


def _measured(samples: pa.Table) -> dict[str, npt.NDArray[np.float64]]:
    """Begins and ends of each arm's measured requests in rounds, in two rows."""
    of_rounds = pc.and_(pc.equal(samples["phase"], Phase.MEASURE.value), pc.greater(samples["round"], 0))
    own = samples.select(["arm", "started_s", "service_time_s"]).filter(of_rounds)
    spans = {}
    for arm in pc.unique(own["arm"].cast(pa.string())).to_pylist():
        of_arm = own.filter(pc.equal(own["arm"], arm))
        starts = of_arm["started_s"].to_numpy()
        spans[arm] = np.stack([starts, starts + of_arm["service_time_s"].to_numpy()])
    return spans


def _without_warm_up(block: Iterable[Window], searches: npt.NDArray[np.float64]) -> list[Window]:
    """Windows from the last one that begins before the first measured search; all if the block has none.

    During a block's warm-up buckets are still full, and none of its files is in the page cache.
    """
    ordered = sorted(block, key=lambda window: window.start_s)
    begins, ends = ordered[0].start_s, max(window.end_s for window in ordered)
    starts = searches[0, (searches[1] > begins) & (searches[0] < ends)]
    warms = [window for window in ordered if starts.size and window.start_s < starts.min()]
    return ordered[max(0, len(warms) - 1) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """I/O of some requests; values that were not recorded are None."""

    requests: int
    seconds: float  # total of the windows
    grown: Mapping[str, float]  # growth by counter, added up

    def per_request(self, counter: str) -> float | None:
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
        """Mean time of a read at the device, including limiters; the kernel counts it in milliseconds.

        None without any: many kernels (5.10 from 5.10.91 on) count I/Os of md arrays, and not their times.
        """
        return self._ratio("device.read_s", "device.reads") or None

    @property
    def depth(self) -> float | None:
        """Mean number of I/Os in flight while requests ran."""
        weighted = self.grown.get("device.weighted_s")
        return None if weighted is None or not self.seconds else weighted / self.seconds

    @property
    def io_s(self) -> float | None:
        """Time of all I/Os, added up."""
        return self._sum("device.read_s", "device.write_s")

    @property
    def processor_s(self) -> float | None:
        """Processor time of the whole node per request, over all threads."""
        return self.per_request("node.processor_s")

    @property
    def waited_s(self) -> Mapping[str, float]:
        """Seconds that I/Os waited for each limiter of an emulated volume, added up.

        For striped volumes, the sum over them: each has its own limiters and a share of the I/Os.
        """
        waited: dict[str, float] = {}
        for name, seconds in self.grown.items():
            if name.startswith(WAITED):
                limit = of_any(name.removeprefix(WAITED))
                waited[limit] = waited.get(limit, 0.0) + seconds
        return waited

    @property
    def exceeded_s(self) -> Mapping[str, float]:
        """Seconds during which demand exceeded each limit of a real volume or its instance."""
        return {name.removeprefix(EXCEEDED): s for name, s in self.grown.items() if name.startswith(EXCEEDED)}

    @property
    def held_back(self) -> Mapping[str, float]:
        """By limit: the waiting share of I/O time (emulated), or the exceeded share of the requests' time."""
        # nodes of a cluster are added up, though they may have exceeded it at the same time
        shares = {limit: min(1.0, s / self.seconds) for limit, s in self.exceeded_s.items() if self.seconds}
        io_s = self.io_s
        if io_s:
            # In milliseconds, the kernel may round a short time below the wait that it includes.
            shares |= {limit: min(1.0, s / io_s) for limit, s in self.waited_s.items()}
        return shares

    @property
    def is_held_back(self) -> bool:
        """Whether most of the time that an emulated volume's model wants is waiting for limits.

        With many I/Os in flight the limits alone then decide how long one takes: a delay on its way to the
        volume shortens its wait there. A machine slower than the limits leaves nothing to wait for.
        """
        wanted_s = sum(s for name, s in self.grown.items() if name.startswith(_TARGET))
        return 0 < _HELD_BACK * wanted_s <= sum(self.waited_s.values())

    @property
    def longest_wait(self) -> tuple[str, float]:
        """The limit of ``held_back`` with the largest share, and the share; ("", 0) if none was counted."""
        return max(self.held_back.items(), key=lambda item: item[1], default=("", 0.0))

    @property
    def late_s(self) -> float | None:
        """How much longer I/Os of an emulated volume took than its model wanted, added up."""
        times = self._late_times()
        return None if times is None else times[0] - times[1]

    @property
    def late(self) -> float | None:
        """``late_s`` as a share of the model's time; None without I/O."""
        took_s, wanted_s = self._late_times() or (0.0, 0.0)
        return took_s / wanted_s - 1 if took_s > 0 and wanted_s > 0 else None

    def _late_times(self) -> tuple[float, float] | None:
        """Seconds that an emulated volume's I/Os took, and that its model wanted; reads and writes added up.

        Only of directions that kernel and volume counted alike: the kernel counts a flush as a write.
        """
        times = []
        for way in ("read", "write"):
            names = f"device.{way}s", f"emulator.{way}s", f"device.{way}_s", f"{_TARGET}{way}"
            if self.grown.keys() >= {*names}:
                of_device, emulated, took_s, wanted_s = (self.grown[name] for name in names)
                if abs(emulated - of_device) <= _MAX_COUNT_DIFFERENCE * emulated:
                    times.append((took_s, wanted_s))
        return (sum(took_s for took_s, _ in times), sum(wanted_s for _, wanted_s in times)) if times else None

    @property
    def stolen(self) -> float | None:
        """Share of the requested processor time that the host gave to others."""
        stolen, busy = (self.grown.get(f"processor.{name}_s") for name in ("stolen", "busy"))
        if stolen is None or busy is None or stolen + busy <= 0:
            return None
        return stolen / (stolen + busy)

    @property
    def credits_spent(self) -> float | None:
        """Burst credits spent, less those earned meanwhile."""
        grown = self.grown.get(CREDITS)
        return None if grown is None else -grown

    def _sum(self, *counters: str) -> float | None:
        values = [self.grown[name] for name in counters if name in self.grown]
        return sum(values) if len(values) == len(counters) else None

    def _ratio(self, counter: str, by: str) -> float | None:
        divisor = self.grown.get(by)
        dividend = self.grown.get(counter)
        return dividend / divisor if divisor and dividend is not None else None


# task and arm to round to profile; tasks and arms in order of appearance
Profiles = Mapping[tuple[str, str], Mapping[int, Profile]]


def singles(windows: Iterable[Window]) -> Mapping[tuple[str, str], Sequence[Profile]]:
    """A profile for each window, by task and arm, in order of time."""
    profiles: dict[tuple[str, str], list[Profile]] = {}
    for window in windows:
        profiles.setdefault((window.task, window.arm), []).append(_sum([window]))
    return profiles


def block_profiles(session: Session, kind: str = KIND) -> Profiles:
    """Profiles of arms while requests ran; for searches beside writes, and their writes, of whole blocks."""
    windows = read_windows(session.events, kind)[0]
    beside = tasks_beside_writes(session.events) if kind == KIND else {window.task for window in windows}
    return profiles_of(whole_blocks(windows, beside, session.samples))


def profiles_of(windows: Iterable[Window]) -> Profiles:
    """Profile by task and arm, and by round."""
    blocks: dict[tuple[str, str], dict[int, list[Window]]] = {}
    for window in windows:
        rounds = blocks.setdefault((window.task, window.arm), {})
        rounds.setdefault(window.round, []).append(window)
    return {
        key: {round_: _sum(block) for round_, block in by_round.items()} for key, by_round in blocks.items()
    }


def arm_profiles(profiles: Profiles, arms: Iterable[str]) -> Iterator[tuple[str, Profile]]:
    """One profile per observed arm, over all its tasks and rounds."""
    for arm in arms:
        own = [p for (_, of), by_round in profiles.items() if of == arm for p in by_round.values()]
        if own:
            yield arm, pooled(own)


def pooled(profiles: Iterable[Profile]) -> Profile:
    """One profile for several. Raises ValueError for none."""
    return _sum(list(profiles))


def _sum(parts: list[Window] | list[Profile]) -> Profile:
    """Sum of profiles, without counters that one part lacks: their sums would cover fewer requests."""
    if not parts:
        raise ValueError("no requests were observed")
    shared = set.intersection(*(set(part.grown) for part in parts))
    return Profile(
        requests=sum(part.requests for part in parts),
        seconds=sum(part.seconds for part in parts),
        grown={name: sum(part.grown[name] for part in parts) for name in sorted(shared)},
    )


def unlimited(profiles: Profiles, tasks: Collection[str]) -> Profiles:
    """``profiles`` without those of ``tasks`` that a limit held back most of the time on an arm."""
    return {
        (task, arm): by_round
        for (task, arm), by_round in profiles.items()
        if not (task in tasks and by_round and pooled(by_round.values()).is_held_back)
    }


def calibration_errors(events: Sequence[Event]) -> dict[tuple[str, str], float]:
    """By task and arm: a request's standard error, as a share, from the error of its emulated volume's reads.

    It is at most the error of all its reads together and, where they overlap, at most the share of each.
    """
    errors = {event.arm: _read_errors(event) for event in events if event.kind == CALIBRATION}
    by_task = profiles_of(read_windows(events)[0]) if any(errors.values()) else {}
    shares = {}
    for (task, arm), by_round in by_task.items():
        of_reads, profile = errors.get(arm), pooled(by_round.values())
        if of_reads and profile.io_bytes and profile.await_s and profile.reads:
            error_s = float(np.interp(profile.io_bytes, list(of_reads), list(of_reads.values())))
            most = error_s * profile.reads * profile.requests / profile.seconds
            shares[task, arm] = min(most, error_s / profile.await_s, 1.0)  # "1.0": the record may be broken
    return shares


def _read_errors(event: Event) -> dict[int, float]:
    """Errors by read size, sorted; empty if the event has no such table."""
    try:
        table = {int(size): float(s) for size, s in event.fields["error_s"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return dict(sorted(table.items())) if all(math.isfinite(s) and s >= 0 for s in table.values()) else {}
