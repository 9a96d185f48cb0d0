"""How long one I/O on a volume has to wait, and settings of that which can change while it runs.

For an I/O and a time, gives when it is due: the limiters' wait, plus the service time, less the path's own
time. Pure, except for the page that volumes of one instance share.
"""

import fcntl
import json
import math
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Self

from esrally_ebs.catalog.limits import Model
from esrally_ebs.model import MAX_READ_LATENCY
from esrally_ebs.units import MIB
from esrally_ebs.volumes.emulated.control import LimiterState
from esrally_ebs.volumes.emulated.law.buckets import Limiter, pieces
from esrally_ebs.volumes.emulated.law.queue import Latency, Queue

_NUMBER = struct.Struct("d")
_MAX_LATENCY_S = 60.0  # longer, and the volume would seem to hang

_GOLDEN = (math.sqrt(5) - 1) / 2

Lines = tuple[tuple[float, float], ...]  # for reads and writes: seconds per I/O and per byte
NO_OVERHEAD: tuple[Lines, Lines] = (((0.0, 0.0),) * 2,) * 2


def spread_over(least: float, most: float) -> Iterator[float]:
    """Endless numbers in the range; any few in a row are spread over it (multiples of the golden ratio)."""
    return (least + (most - least) * (number * _GOLDEN % 1) for number in count())


class InstancePage:
    """Buckets of one instance, in a page of memory shared by the daemons of its volumes.

    A file in the session's run directory, mapped by each daemon: level and last filling time of each limit.
    Each I/O holds a record lock on it during its admission (a few microseconds). The kernel releases the lock
    of a dead holder; a half-done update is then off by one I/O at most.
    """

    def __init__(self, path: Path, initial: list[float]) -> None:
        """Map the page; the first daemon creates it from ``initial``."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = len(initial) * _NUMBER.size
        with self._locked():
            if os.fstat(self._descriptor).st_size != size:
                os.truncate(self._descriptor, 0)
                os.pwrite(self._descriptor, b"".join(map(_NUMBER.pack, initial)), 0)
            self._numbers = memoryview(mmap.mmap(self._descriptor, size)).cast("d")

    @contextmanager
    def numbers(self) -> "Iterator[memoryview[float]]":
        """The shared numbers, locked during the block."""
        with self._locked():
            yield self._numbers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


class Admission:
    """The limiters, latencies and counters of one volume."""

    def __init__(self, settings: Mapping[str, Any], now: float) -> None:
        """Start with full buckets and credits as set; unlimited until ``change`` ends that.

        ``settings``: ``model`` (``Model.to_json``), ``seed`` of latencies, ``credits`` (a fraction),
        ``time_scale``, and ``instance_page`` (a path, or None for a volume that shares no limits).
        """
        model = Model.from_json(settings["model"])
        self._limiter = Limiter(
            model.limits,
            model.accounting,
            now,
            shared=model.instance_limits,
            stripes=model.stripes,
            chunk_bytes=model.chunk_bytes,
        )
        self._queue = Queue(model)
        self._time_scale = float(settings["time_scale"])  # already applied to the model's limits
        self._limiter.set_credits(settings["credits"], now)
        self._page: InstancePage | None = None
        if settings["instance_page"] is not None:
            self._page = InstancePage(Path(settings["instance_page"]), self._limiter.shared_state())
        self._latency = Latency(model.read, model.write, settings["seed"])
        self._striped = model.stripes, model.chunk_bytes
        self.unlimited = True
        self._fixed_s: Iterator[float] | None = None
        self._overhead = NO_OVERHEAD
        self._counts = [0, 0]  # reads, writes
        self._bytes = [0, 0]
        self._target_s = [0.0, 0.0]  # intended duration of reads and writes, added up

    @classmethod
    def load(cls, settings: Path, now: float) -> Self:
        """An admission from the settings file in a volume's directory."""
        return cls(json.loads(settings.read_text()), now)

    def count(self, size: int, *, write: bool) -> None:
        """Count an I/O that has arrived."""
        self._counts[write] += 1
        self._bytes[write] += size

    def schedule(
        self, offset: int, size: int, now: float, *, write: bool, in_flight: int
    ) -> tuple[float, float, float]:
        """Charge one I/O; returns its wait for a limit (s), when it is due, and the path's own time (s).

        ``in_flight``: number of other I/Os; any of them make the path itself slower.
        """
        if self._fixed_s is None:
            limited_s = self._limited_s(offset, size, now, write, in_flight)
            target_s = limited_s + self._service_s(offset, size, write)
        else:
            limited_s, target_s = 0.0, next(self._fixed_s)
        self._target_s[write] += target_s
        seconds, seconds_per_byte = self._overhead[in_flight > 0][write]
        path_s = seconds + seconds_per_byte * size
        return limited_s, now + target_s - path_s, path_s

    def _service_s(self, offset: int, size: int, write: bool) -> float:
        """For striped volumes, the service time of the slowest part."""
        stripes, chunk_bytes = self._striped
        if stripes == 1:
            return self._latency.seconds(size, write=write)
        lengths = [length for _, _, length in pieces(offset, size, stripes, chunk_bytes)]
        return max(self._latency.seconds(length, write=write) for length in lengths)

    def _limited_s(self, offset: int, size: int, now: float, write: bool, in_flight: int) -> float:
        saved = self._queue.saved(offset, size, in_flight, write=write)
        if self._page is None:
            return self._limiter.charge(offset, size, now, write=write, saved=saved)
        with self._shared():
            return self._limiter.charge(offset, size, now, write=write, saved=saved)

    def change(self, settings: Mapping[str, Any], now: float) -> None:
        """Apply settings as in ``control.change``. Raises ValueError, changing nothing, for any other."""
        changes: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], object]]] = {  # check, apply
            "unlimited": (bool, partial(setattr, self, "unlimited")),
            "time_scale": (_time_scale, lambda times: self._set_time_scale(times, now)),
            "refill": (bool, lambda on: self._limiter.refill(now) if on else None),
            "drain": (bool, lambda on: self._limiter.drain(now) if on else None),
            "drain_instance": (bool, lambda on: self._limiter.drain_instance(now) if on else None),
            "credits": (_fraction, lambda fraction: self._limiter.set_credits(fraction, now)),
            "fixed_latency_s": (_between, self._fix),
            "read_latency": (_read_latency, self._latency.slow_reads),
            "overhead": (_overhead, partial(setattr, self, "_overhead")),
        }
        unknown = sorted(settings.keys() - changes.keys())
        if unknown:
            raise ValueError(f"no setting {unknown[0]!r}; there are {', '.join(changes)}")
        checked = {key: changes[key][0](value) for key, value in settings.items()}
        with self._shared():
            for key, (_, apply) in changes.items():  # in this order, not the request's
                if key in checked:
                    apply(checked[key])

    @contextmanager
    def _shared(self) -> Iterator[None]:
        """Load the instance's buckets from the shared page, and store them after the block."""
        if self._page is None:
            yield
            return
        with self._page.numbers() as numbers:
            self._limiter.set_shared_state(numbers)
            yield
            for i, number in enumerate(self._limiter.shared_state()):
                numbers[i] = number

    def _fix(self, between: tuple[float, float] | None) -> None:
        self._fixed_s = None if between is None else spread_over(*between)

    def _set_time_scale(self, times: float, now: float) -> None:
        self._limiter.shrink(times / self._time_scale, now)
        self._time_scale = times

    def state(self, now: float, *, in_flight: int, errors: int) -> LimiterState:
        with self._shared():
            levels = self._limiter.levels(now)
            buckets = self._limiter.buckets.items()
            full_s = self._limiter.seconds_until_full(now)
        capacities = {name: bucket.limit.capacity for name, bucket in buckets}
        own = [
            name for name, bucket in buckets if bucket.limit.of_credits and not name.startswith("instance")
        ]
        return LimiterState(
            levels=levels,
            capacities=capacities,
            credits=sum(levels[name] for name in own) if own else None,
            credits_capacity=sum(capacities[name] for name in own) if own else None,
            seconds_until_full=full_s,
            waited_s={name: bucket.waited_s for name, bucket in buckets},
            reads=self._counts[0],
            writes=self._counts[1],
            read_bytes=self._bytes[0],
            written_bytes=self._bytes[1],
            target_s={"read": self._target_s[0], "write": self._target_s[1]},
            in_flight=in_flight,
            unlimited=self.unlimited,
            time_scale=self._time_scale,
            errors=errors,
        )


def _number(value: Any) -> float:  # noqa: ANN401 - whatever JSON held
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a setting is no finite number")
    return float(value)


def _fraction(value: Any) -> float:  # noqa: ANN401
    number = _number(value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"a fraction of {number:g} is outside 0 to 1")
    return number


def _time_scale(value: Any) -> float:  # noqa: ANN401
    times = _number(value)
    if times < 1.0:
        raise ValueError(f"a time scale of {times:g} is less than 1")
    return times


def _read_latency(value: Any) -> float:  # noqa: ANN401
    times = _number(value)
    if not 0.0 < times <= MAX_READ_LATENCY:
        raise ValueError(
            f"reads cannot take {times:g} times as long; give more than 0, at most {MAX_READ_LATENCY}"
        )
    return times


def _between(value: Any) -> tuple[float, float] | None:  # noqa: ANN401
    if value is None:
        return None
    least, most = (_number(seconds) for seconds in value)
    if not 0.0 <= least <= most <= _MAX_LATENCY_S:
        said = f"a latency between {least:g} and {most:g} s is none"
        raise ValueError(f"{said}; give 0 <= least <= most <= {_MAX_LATENCY_S:g}")
    return least, most


def _overhead(value: Any) -> tuple[Lines, Lines]:  # noqa: ANN401
    alone, beside = (_lines(lines) for lines in value)
    return alone, beside


def _lines(value: Any) -> Lines:  # noqa: ANN401
    read, write = value
    return _line(*read), _line(*write)


def _line(each: Any, each_byte: Any) -> tuple[float, float]:  # noqa: ANN401
    seconds, per_byte = _number(each), _number(each_byte)
    if abs(seconds) + abs(per_byte) * MIB > _MAX_LATENCY_S:
        raise ValueError(f"no path costs {seconds:g} s and {per_byte:g} s a byte")
    return seconds, per_byte
