"""Searches beside writes: a session in; searches apart by what the node did meanwhile, and the writes, out.

Elasticsearch counts merges and refreshes, and telemetry reads that once a second. So a request is known to
have had one beside it to the second, no finer: those said to have had none are sure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.grouping import rows_by
from esrally_ebs.analysis.profile import Profile, pooled, profiles_of, read_windows
from esrally_ebs.analysis.rounds import ArmTimes, Floats
from esrally_ebs.analysis.summary import counted, is_time
from esrally_ebs.model import Phase
from esrally_ebs.store.session import Session

BESIDE: Final = "beside"  # kind of the events of writes that were observed
NEITHER, REFRESH, MERGE = "neither", "a refresh", "a merge"  # a merge comes before a refresh
_WHATS: Final = (NEITHER, REFRESH, MERGE)
_COUNTERS: Final = ("index.merging", "index.merges", "index.refreshes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Requests of one task on one arm that had the same beside them."""

    requests: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """One bulk task beside one search on one arm, in all rounds."""

    documents_per_s: float
    p50_s: float  # of a bulk request, from when it was due
    p99_s: float
    failed: int
    profile: Profile | None  # of the volume while some of them ran


def searches_apart(session: Session) -> Mapping[tuple[str, str], Mapping[str, Apart]]:
    """By task and what was beside its requests, by arm. Empty for a session without writes beside searches.

    Times are from when a request was due, where it kept to a schedule.
    """
    samples = session.samples
    mask = pc.and_(counted(samples), is_time(samples["latency_s"]))
    own = samples.select(["task", "arm", "started_s", "service_time_s", "latency_s"]).filter(mask)
    starts, lengths, times = (own[name].to_numpy() for name in ("started_s", "service_time_s", "latency_s"))
    busy = {arm.spec.name: _seconds(session.telemetry, arm.spec.name) for arm in session.arms}
    apart: dict[tuple[str, str], dict[str, Apart]] = {}
    for (task, arm), rows in rows_by(own, ["task", "arm"]):
        places = _places(busy.get(arm, _NONE), starts[rows], starts[rows] + lengths[rows])
        for place, what in enumerate(_WHATS):
            some = times[rows][places == place]
            if len(some):
                ordered = ArmTimes([some])
                apart.setdefault((task, what), {})[arm] = Apart(
                    requests=len(some), p50_s=ordered.percentile(50), p99_s=ordered.percentile(99)
                )
    tasks = [task for task, _ in apart]
    return {
        key: apart[key] for key in sorted(apart, key=lambda key: (tasks.index(key[0]), _WHATS.index(key[1])))
    }


def writes(session: Session) -> Mapping[tuple[str, str], Writes]:
    """By bulk task (each beside one search) and arm, of the rounds."""
    samples = session.samples
    beside = pc.and_(pc.equal(samples["phase"], Phase.BESIDE.value), pc.greater(samples["round"], 0))
    names = ["task", "arm", "round", "started_s", "service_time_s", "latency_s", "ops", "success"]
    own = samples.select(names).filter(beside)
    profiles = profiles_of(read_windows(session.events, BESIDE)[0])
    return {
        (task, arm): _writes(own.take(rows), profiles.get((task, arm), {}))
        for (task, arm), rows in rows_by(own, ["task", "arm"])
    }


def _writes(own: pa.Table, profiles: Mapping[int, Profile]) -> Writes:
    starts, times, ops = (own[name].to_numpy() for name in ("started_s", "service_time_s", "ops"))
    done = own["success"].to_numpy(zero_copy_only=False)
    seconds = sum(
        float((starts[rows] + times[rows]).max() - starts[rows].min()) for _, rows in rows_by(own, ["round"])
    )
    latencies = ArmTimes([own["latency_s"].to_numpy()])
    return Writes(
        documents_per_s=float(ops[done].sum()) / seconds if seconds > 0 else 0.0,
        p50_s=latencies.percentile(50),
        p99_s=latencies.percentile(99),
        failed=int((~done).sum()),
        profile=pooled(profiles.values()) if profiles else None,
    )


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Times between two looks at a node, in order: when they end, and what went on in each."""

    begins: Floats
    ends: Floats
    places: npt.NDArray[np.int64]  # in _WHATS


_NONE: Final = _Seconds(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))


def _seconds(telemetry: pa.Table, arm: str) -> _Seconds:
    of_arm = pc.and_(pc.equal(telemetry["arm"], arm), pc.is_in(telemetry["metric"], pa.array(_COUNTERS)))
    by_time: dict[float, dict[str, float]] = {}
    for row in telemetry.select(["at_s", "metric", "value"]).filter(of_arm).to_pylist():
        by_time.setdefault(row["at_s"], {})[row["metric"]] = row["value"]
    whole = sorted((at_s, values) for at_s, values in by_time.items() if len(values) == len(_COUNTERS))
    places = [_place(before, now) for (_, before), (_, now) in pairwise(whole)]
    times = np.array([at_s for at_s, _ in whole])
    return _Seconds(times[:-1], times[1:], np.array(places, np.int64)) if places else _NONE


def _place(before: Mapping[str, float], now: Mapping[str, float]) -> int:
    """What went on between two looks; a counter that fell began anew, at 0."""
    merges, refreshes = (now[name] != before[name] and now[name] > 0 for name in _COUNTERS[1:])
    if merges or before["index.merging"] or now["index.merging"]:
        return _WHATS.index(MERGE)
    return _WHATS.index(REFRESH if refreshes else NEITHER)


def _places(seconds: _Seconds, starts: Floats, ends: Floats) -> npt.NDArray[np.int64]:
    """For each request the most that went on in any second that it touches; -1 where nobody looked."""
    first = np.searchsorted(seconds.ends, starts, "right")
    last = np.searchsorted(seconds.begins, ends, "left")
    places = np.full(len(starts), -1)
    for place in range(len(_WHATS)):
        so_far = np.concatenate([[0], np.cumsum(seconds.places == place)])
        places[(first < last) & (so_far[np.maximum(first, last)] > so_far[first])] = place
    return places
