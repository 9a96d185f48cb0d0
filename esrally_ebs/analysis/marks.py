"""Marks blocks in which an event (garbage collection, a limiter, a fault, ...) hit one arm of a round only.

A block is the requests of one task on one arm in one round. It is marked, never dropped: whoever gives a
verdict can give it with and without the marked rounds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.comparable import cut_round
from esrally_ebs.analysis.profile import Profile, Profiles, block_profiles, tasks_beside_writes
from esrally_ebs.analysis.summary import is_of_rounds, rows_by
from esrally_ebs.model import Event
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_beside, format_share, number_of

# Least share of the time of a block's requests for an event to count.
MATTERS = 0.01
# The kernel counts stolen time in hundredths of a second, of which a block has a few dozen.
_STOLEN_MATTERS = 0.1
# Emulated volumes beside two nodes on a quiet machine of two cores are -2 to 11 % late (the kernel's path is
# longer when it is busy), beside other work 27 to 200 %. Blocks vary more than whole sessions.
_LATE_MATTERS = 0.25
_LATE_MATTERS_S = 5e-3  # the kernel counts I/O time in milliseconds

Block = tuple[str, str, int]  # arm, task, round
# Start and end (seconds since the epoch) of each request, one row each, in order
Spans = Mapping[Block, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An event that made a block slower or faster."""

    kind: str  # limiter | stolen | late | gc | fault | failed | resident | retried
    what: str  # short name: "throughput limiter"
    text: str
    # Share of the time of the block's requests; for a limiter of I/O time, for steal of processor time, for a
    # late emulated volume of the time that its model wanted.
    share: float | None = None


def marked_blocks(
    session: Session, *, compared_as: Callable[[Block], Block] = lambda block: block
) -> Mapping[Block, tuple[Cause, ...]]:
    """Blocks, in order of time, with causes that not all arms of the same task and round have.

    An event on every arm of a round marks none of its blocks; two different limiters do. The round in which a
    session was cut off is not compared, so not marked. ``compared_as`` maps a recorded block to the arm and
    round under which it is compared.
    """
    requests = _requests(session.samples)
    cut, causes = cut_round(session), dict[Block, list[Cause]]()
    for block, cause in _causes(session, block_profiles(session), requests):
        if block[2] != cut:
            causes.setdefault(compared_as(block), []).append(cause)
    begins = {compared_as(block): float(spans[0, 0]) for block, spans in requests.items()}
    arms_of: dict[tuple[str, int], set[str]] = {}
    for arm, task, round_ in begins:
        arms_of.setdefault((task, round_), set()).add(arm)
    marked = {}
    for block in sorted(causes, key=lambda block: begins.get(block, 0.0)):
        _, task, round_ = block
        arms = arms_of.get((task, round_), set())
        on_each_arm = [{cause.what for cause in causes.get((arm, task, round_), ())} for arm in arms]
        on_all = set.intersection(*on_each_arm) if len(arms) > 1 else set()
        own = tuple(cause for cause in causes[block] if cause.what not in on_all)
        if own:
            marked[block] = own
    return marked


def _requests(samples: pa.Table) -> Spans:
    """Start and end of the measured requests of each block."""
    columns = ["arm", "task", "round", "started_s", "service_time_s"]
    own = samples.select(columns).filter(is_of_rounds(samples))
    starts, lengths = own["started_s"].to_numpy(), own["service_time_s"].to_numpy()
    spans: dict[Block, npt.NDArray[np.float64]] = {}
    for (arm, task, round_), rows in rows_by(own, ["arm", "task", "round"]):
        rows = rows[np.argsort(starts[rows], kind="stable")]
        spans[arm, task, round_] = np.stack([starts[rows], starts[rows] + lengths[rows]], axis=1)
    return spans


def _causes(session: Session, profiles: Profiles, requests: Spans) -> Iterator[tuple[Block, Cause]]:
    timed = [event for event in session.events if event.has_time]
    beside = tasks_beside_writes(session.events)
    for (task, arm), by_round in profiles.items():
        for round_, profile in by_round.items():
            is_limited = task in beside and profile.is_held_back
            for cause in _profile_causes(profile):
                if cause.kind != "late" or not is_limited:
                    yield (arm, task, round_), cause
    yield from _pauses(timed, requests)
    yield from _faults(timed, requests)
    yield from _failed(session.samples)
    yield from _resident(session)
    yield from _retried(session.events)


def _profile_causes(profile: Profile) -> Iterator[Cause]:
    """Causes shown by a block's counters: limits, stolen processor time, a late emulated volume."""
    for limit, share in profile.held_back.items():
        if share > MATTERS:
            if limit in profile.exceeded_s:
                text = f"it asked for more than its {limit} limit for {share:.0%} of its time"
            else:
                text = f"its {limit} limiter held it back for {share:.0%} of its I/O time"
            yield Cause(kind="limiter", what=f"{limit} limiter", text=text, share=share)
    stolen, late, late_s = profile.stolen, profile.late, profile.late_s
    if stolen is not None and stolen > _STOLEN_MATTERS:
        text = f"the host kept {stolen:.0%} of the processor time from this machine"
        yield Cause(kind="stolen", what="stolen processors", text=text, share=stolen)
    if late is not None and late_s is not None and late > _LATE_MATTERS and late_s > _LATE_MATTERS_S:
        text = f"its emulated volume took {late:.0%} longer than its model"
        yield Cause(kind="late", what="late volume", text=text, share=late)


def _pauses(events: Iterable[Event], requests: Spans) -> Iterator[tuple[Block, Cause]]:
    """Garbage collections that overlap requests, by the share of the requests' time."""
    pauses = [
        (event.arm, event.at_s - (event.number("seconds") or 0.0), event.at_s)
        for event in events
        if event.kind == "gc" and (event.number("seconds") or 0.0) > 0
    ]
    for block, spans in requests.items():
        starts, ends = spans.T
        own = [(p, q) for arm, p, q in pauses if arm == block[0] and p < ends.max() and q > starts[0]]
        overlaps = np.array([np.maximum(0.0, np.minimum(q, ends) - np.maximum(p, starts)) for p, q in own])
        total = float((ends - starts).sum())
        share = float(overlaps.sum()) / total if total > 0 else 0.0
        if share > MATTERS:
            counted = number_of(int((overlaps > 0).sum()), "garbage collection pause")
            text = f"{counted} took {share:.0%} of its time"
            yield block, Cause(kind="gc", what="garbage collection", text=text, share=share)


def _faults(events: Iterable[Event], requests: Spans) -> Iterator[tuple[Block, Cause]]:
    """Faults; each marks the block that it fell into or ended: the arm's last block to begin before it."""
    for event in events:
        if event.kind != "fault" or event.arm is None:
            continue
        begun = [
            (float(spans[0, 0]), block)
            for block, spans in requests.items()
            if block[0] == event.arm and spans[0, 0] <= event.at_s
        ]
        if begun:
            yield (
                max(begun)[1],
                Cause(kind="fault", what="fault", text=str(event.fields.get("text", "fault"))),
            )


def _failed(samples: pa.Table) -> Iterator[tuple[Block, Cause]]:
    failed = samples.filter(pc.and_(is_of_rounds(samples), pc.invert(samples["success"])))
    blocks = zip(*(failed[name].to_pylist() for name in ("arm", "task", "round")), strict=True)
    for block, count in Counter(blocks).items():
        yield block, Cause(kind="failed", what="failed requests", text=f"{count} of its requests failed")


def _resident(session: Session) -> Iterator[tuple[Block, Cause]]:
    cache = session.plan.cache
    if cache.mode != "cold":
        return
    bound = cache.max_resident
    samples = session.samples
    above = pc.fill_null(pc.greater(samples["resident_before"], bound), False)
    own = samples.filter(pc.and_(above, pc.greater(samples["round"], 0)))
    most: dict[Block, float] = {}
    columns = ("arm", "task", "round", "resident_before")
    for arm, task, round_, resident in zip(*(own[name].to_pylist() for name in columns), strict=True):
        most[arm, task, round_] = max(resident, most.get((arm, task, round_), 0.0))
    for block, resident in most.items():
        share = format_beside(resident, bound, least=2)
        text = f"{share} of the index was in the page cache ({format_share(bound)} allowed)"
        yield block, Cause(kind="resident", what="not cold", text=text)


def _retried(events: Iterable[Event]) -> Iterator[tuple[Block, Cause]]:
    again: dict[Block, int] = {}
    for event in events:
        attempts = event.number("attempts") or 0.0
        task, round_ = event.fields.get("task"), event.fields.get("round")
        if event.kind == "drop" and attempts > 1 and event.arm and isinstance(round_, int):
            block = event.arm, str(task), round_
            again[block] = again.get(block, 0) + int(attempts) - 1
    for block, count in again.items():
        text = f"caches had to be dropped {number_of(count, 'more time')}"
        yield block, Cause(kind="retried", what="eviction repeated", text=text)
