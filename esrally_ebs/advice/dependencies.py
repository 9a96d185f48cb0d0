"""What each request computes, and which I/Os it waits for.

A request is modelled as one thread. Whenever it does something (issues an I/O, or ends) it is not waiting, so
it waited only between two such events, until the I/O that it needed was done. If threads were watched, it is
known which one slept for an I/O, and when; the rest was computing. Otherwise this is inferred from the times
when I/Os were issued and done:

- An I/O that does not continue an earlier one is a missing page. The thread stops at once, and goes on when
  the I/O is done.
- An I/O that continues an earlier one is read ahead. The kernel marks its first page, and reads the next part
  when the thread comes to the mark; then the thread needs this one. So the I/O that continues this one shows
  when this one was needed. If none does, it may never have been. If a task's I/Os come later the longer the
  one before takes, nothing is read ahead (as with direct I/O): each is waited for at once.
- The thread also waited for whatever was done right before it went on, unless that was so shortly before that
  the thread could not know, or was read ahead and is reached only later.

No thread sleeps for an I/O that was done in time, so when that one was needed is inferred in either case.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from esrally_ebs.advice.recording import Recording, continuing
from esrally_ebs.analysis.rounds import critical_t
from esrally_ebs.units import KIB
from esrally_ebs.volumes.virtual.replay import Column, Thread

SOON_S = 400e-6  # a thread that continues this soon after an I/O was done has waited for it
# Share of the path's time to the volume: the I/O has to come back before a thread can continue.
_REACTION = 0.5
PAGE_BYTES = 4 * KIB  # the kernel's
_MAX_EARLY = 0.01  # of I/Os that continue another: those that come before it is done, if none is read ahead
_MIN_SLOPE = 0.5  # delay of an I/O per delay of the one before: 0 if read ahead, else 1
_CONFIDENCE = 0.95

_Edge = tuple[int, int, float]  # event, the I/O that it needs, seconds of computing in between


def thread_of(recording: Recording) -> Thread:
    """The requests of a recording as events; see ``Thread``."""
    ios, first = recording.ios, recording.first
    requests = np.arange(recording.requests)
    places = np.arange(len(ios["at_s"])) + np.repeat(requests, np.diff(first))  # of I/Os among the events
    events = len(places) + recording.requests
    columns: dict[str, Column] = {name: np.zeros(events, np.int64) for name in ("offset", "size", "write")}
    columns |= {name: np.zeros(events) for name in ("path_s", "compute_s")}
    for name in ("offset", "write"):
        columns[name][places] = ios[name]
    columns["size"][places] = ios["bytes"]
    columns["path_s"][places] = ios["path_s"] - recording.slower_s
    edges: list[tuple[int, int, float]] = []  # event, the event that it needs, seconds after that one
    unknown = ios["ahead"] == -1
    tasks = _read_one_by_one(recording) if unknown.any() else []
    at_once = unknown & np.isin(recording.task, tasks)[np.repeat(requests, np.diff(first))]
    ios = ios | {"ahead": np.where(at_once, 0, ios["ahead"])}
    for number in requests:
        here = slice(int(first[number]), int(first[number + 1]))
        base = here.start + int(number)
        events_s = np.append(ios["at_s"][here], recording.began_s[number] + recording.latency_s[number])
        find = _seen if recording.waits_seen else _inferred
        own = {name: column[here] for name, column in ios.items()}
        compute_s, needs = find(own, events_s, float(recording.began_s[number]))
        columns["compute_s"][base : base + len(events_s)] = compute_s
        edges += [(base + event, base + io, after_s) for event, io, after_s in needs]
    edges.sort()
    ended_s = np.append(recording.began_s[0], (recording.began_s + recording.latency_s)[:-1])
    return Thread(
        **columns,
        first_needed=np.searchsorted([event for event, _, _ in edges], np.arange(events + 1)),
        needed=np.array([io for _, io, _ in edges], np.int64),
        after_s=np.array([after_s for _, _, after_s in edges]),
        rest_s=recording.began_s - ended_s,
        refilled=recording.cold,
    )


def _read_one_by_one(recording: Recording) -> list[str]:
    """Tasks that wait for each of their I/Os, judged by when I/Os come that continue another.

    The first I/O of a run is waited for in any case: only I/Os tell that continue another and are continued.
    """
    ios, pairs = recording.ios, list[tuple[int, int]]()
    for begin, end in pairwise(recording.first.tolist()):
        follows = _followers({name: column[begin:end] for name, column in ios.items()})
        continues = set(follows.values())
        pairs += [(begin + one, begin + after) for one, after in follows.items() if one in continues]
    one, after = np.array(pairs, np.int64).reshape(-1, 2).T
    all_took_s, all_come_s = ios["done_s"][one] - ios["at_s"][one], ios["at_s"][after] - ios["at_s"][one]
    task = recording.task[np.searchsorted(recording.first, one, "right") - 1]
    tasks = []
    for name in dict.fromkeys(task):
        mine = task == name
        took_s, come_s = all_took_s[mine], all_come_s[mine]
        if np.mean(come_s < took_s) > _MAX_EARLY:
            continue
        # compare I/Os of one size: more bytes take longer to read, and then to process
        slope, half = slope_within(ios["bytes"][one][mine], took_s, come_s)
        if slope - half > _MIN_SLOPE:
            tasks.append(str(name))
    return tasks


def slope_within(groups: Column, x: Column, y: Column) -> tuple[float, float]:
    """Slope of y over x by least squares within groups, and half of its interval: infinite if not known."""
    x, y = within(groups, x), within(groups, y)
    squares, spare = float(np.sum(x**2)), len(x) - len(np.unique(groups)) - 1
    if spare <= 0 or squares <= 0:
        return 0.0, math.inf
    slope = float(np.sum(x * y)) / squares
    error = math.sqrt(float(np.sum((y - slope * x) ** 2)) / spare / squares)
    return slope, critical_t(spare + 1, _CONFIDENCE) * error


def within(groups: Column, values: Column) -> Column:
    """Differences from the means of their groups."""
    group = np.unique(groups, return_inverse=True)[1]
    differences: Column = values - (np.bincount(group, values) / np.bincount(group))[group]
    return differences


def computed_s(thread: Thread) -> Column:
    """What each request computes."""
    ends = np.append(0, np.flatnonzero(thread.size == 0) + 1)
    seconds: Column = np.diff(np.append(0.0, np.cumsum(thread.compute_s))[ends])
    return seconds


def _inferred(ios: dict[str, Column], events_s: Column, began_s: float) -> tuple[Column, list[_Edge]]:
    """Computing before each event of one request, and what each event needs, from times and places alone."""
    follows = _read_ahead(ios)
    needs = _touches(ios, events_s, follows) | _last_done(ios, events_s, follows)
    compute_s = np.diff(events_s, prepend=began_s)
    # the path's time passes between an I/O and the thread's next action, but is no computing
    path_s = ios["path_s"]
    gaps_s = {(event, io): float(events_s[event] - ios["done_s"][io]) for event, io in needs}
    for (event, io), gap_s in gaps_s.items():
        compute_s[event] = min(compute_s[event], max(0.0, gap_s - path_s[io]))
    return compute_s, [
        (event, io, float(min(gap_s, compute_s[event] + path_s[io]))) for (event, io), gap_s in gaps_s.items()
    ]


def _seen(ios: dict[str, Column], events_s: Column, began_s: float) -> tuple[Column, list[_Edge]]:
    """As ``_inferred``, if it is known which I/Os threads slept for.

    A sleeper continues with its own next I/O, and computes until then, also while others sleep; or, if it
    issues none (it is done and another thread takes over, or others issue for it), with any thread's. An I/O
    that was done in time may be late on another volume; then its thread would sleep, and be woken, too.
    """
    computed_s = _clock_of_computing(ios["slept_s"], ios["woken_s"])
    asleep = ~np.isnan(ios["waiter"])
    own_s = {
        waiter: _clock_of_computing(*(ios[name][ios["waiter"] == waiter] for name in ("slept_s", "woken_s")))
        for waiter in set(ios["waiter"][asleep].tolist())
    }
    waking_s = ios["woken_s"] - ios["done_s"]
    waking_s[~asleep] = np.median(waking_s[asleep]) if asleep.any() else 0.0
    compute_s = np.diff(computed_s(events_s), prepend=computed_s(np.array([began_s])))
    touches = _touches(ios, events_s, _read_ahead(ios))
    needs = {(event, io): computed_s for event, io in touches if not asleep[io]}
    for io in map(int, np.flatnonzero(asleep)):
        later = events_s >= ios["woken_s"][io]
        own = np.append(ios["thread"] == ios["waiter"][io], False) & later
        may_be_next = own if own.any() else later
        if may_be_next.any():
            clock = own_s[ios["waiter"][io]] if own.any() else computed_s
            needs[int(np.argmax(may_be_next)), io] = clock
    edges = []
    for (event, io), clock in needs.items():
        after_s = float(np.diff(clock(np.array([ios["done_s"][io], events_s[event]])))[0])
        most_s = np.inf if asleep[io] else compute_s[event]
        edges.append((event, io, float(min(after_s, most_s) + waking_s[io])))
    return compute_s, edges


def _clock_of_computing(slept_s: Column, woken_s: Column) -> Callable[[Column], Column]:
    """A clock that stops while a thread sleeps for an I/O."""
    order = np.argsort(slept_s)[: np.count_nonzero(~np.isnan(slept_s))]
    till_s = np.maximum.accumulate(woken_s[order])
    from_s = np.maximum(slept_s[order], np.append(-np.inf, till_s)[: len(order)])
    asleep_s = np.append(0.0, np.maximum(till_s - from_s, 0.0))
    from_s = np.append(-np.inf, from_s)
    before_s = np.cumsum(asleep_s) - asleep_s

    def clock(times_s: Column) -> Column:
        last = np.searchsorted(from_s, times_s, "right") - 1
        computed_s: Column = times_s - before_s[last] - np.minimum(times_s - from_s[last], asleep_s[last])
        return computed_s

    return clock


def _touches(ios: dict[str, Column], events_s: Column, follows: dict[int, int]) -> set[tuple[int, int]]:
    """Pairs (event, I/O needed by then) of one request, by index; the last event is the request's end."""
    done_s = ios["done_s"]
    consumer = np.searchsorted(events_s, done_s, "left")  # the first event after each I/O is done
    reaction_s = _REACTION * ios["path_s"]
    continues = set(follows.values())
    needs = set()
    for io in map(int, np.flatnonzero(ios["write"] == 0)):
        event = int(consumer[io])
        if event < len(events_s) and events_s[event] - done_s[io] < reaction_s[io]:
            event += 1
        if io in continues:
            follower = follows.get(io)
            event = len(events_s) if follower is None else max(event, follower + 1)
        if event < len(events_s):
            needs.add((event, io))
    return needs


def _followers(ios: dict[str, Column]) -> dict[int, int]:
    """From each read to the request's later read that begins where it ends."""
    ends: dict[int, int] = {}
    follows = {}
    for io in map(int, np.flatnonzero(ios["write"] == 0)):
        before = ends.pop(int(ios["offset"][io]), None)
        if before is not None:
            follows[before] = io
        ends[int(ios["offset"][io] + ios["bytes"][io])] = io
    return follows


def _read_ahead(ios: dict[str, Column]) -> dict[int, int]:
    """The pairs of ``_followers`` that may be readahead.

    Single pages in sequence are not: they are missed one by one, as with a readahead of 4 KiB or MADV_RANDOM,
    since the kernel reads ahead more than a page. It marks such pages as readahead all the same.
    """
    ahead, bytes_ = ios["ahead"], ios["bytes"]
    return {
        before: io
        for before, io in _followers(ios).items()
        if ahead[io] != 0 and max(bytes_[before], bytes_[io]) > PAGE_BYTES
    }


def _last_done(ios: dict[str, Column], events_s: Column, follows: dict[int, int]) -> set[tuple[int, int]]:
    """For each event the last I/O done before it, if shortly before and after the previous event.

    Skips I/Os that were read ahead and not reached yet: nobody waits for them before the I/O that continues
    them.
    """
    continues = set(follows.values())
    done_s, reaction_s = ios["done_s"], _REACTION * ios["path_s"]
    needs = set()
    order = np.argsort(done_s)
    before = np.searchsorted(done_s[order], events_s)
    for event in range(1, len(events_s)):
        for io in order[: before[event]][::-1]:
            gap_s = events_s[event] - done_s[io]
            if gap_s >= reaction_s[io]:
                if io in continues and follows.get(io, -1) >= event:
                    continue
                if gap_s <= SOON_S and done_s[io] > events_s[event - 1]:
                    needs.add((event, int(io)))
                break
    return needs


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPattern:
    """How a task's requests use the volume, on average."""

    task: str
    ios: float  # per request
    bytes: float  # per request
    writes: float  # share of I/Os
    continuing: float  # share of I/Os that begin where an earlier one of the request ends
    waited_for: float  # share of I/Os
    in_flight: float  # when an I/O is issued, including it
    computing: float  # share of the request's time


def access_patterns(recording: Recording, thread: Thread) -> list[AccessPattern]:
    """A pattern per task, in the order of their first requests."""
    ios, first = recording.ios, recording.first
    request = np.repeat(np.arange(recording.requests), np.diff(first))
    places = np.arange(len(request)) + request
    continues = continuing(ios["offset"], ios["bytes"], request)
    done = np.searchsorted(np.sort(ios["done_s"]), ios["at_s"], "right")
    in_flight = np.arange(1, len(request) + 1) - done
    waited = np.isin(places, thread.needed)
    patterns, computing_s = [], computed_s(thread)
    for task in dict.fromkeys(recording.task):
        of = recording.task == task
        mine = of[request]
        requests = int(of.sum())
        took_s = float(recording.latency_s[of].sum()) or 1.0  # times from a log may all be 0

        def mean(values: Column, chosen: Column = mine) -> float:
            return float(values[chosen].mean()) if chosen.any() else 0.0

        patterns.append(
            AccessPattern(
                task=str(task),
                ios=float(mine.sum()) / requests,
                bytes=float(ios["bytes"][mine].sum()) / requests,
                writes=mean(ios["write"]),
                continuing=mean(continues),
                waited_for=mean(waited),
                in_flight=mean(in_flight),
                computing=float(computing_s[of].sum()) / took_s,
            )
        )
    return patterns
