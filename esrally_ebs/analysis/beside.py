"""Searches measured beside writes: requests grouped by what the node did meanwhile, and the writes' rates.

Telemetry reads Elasticsearch's counters of merges and refreshes once a second. So whether a request had one
beside it is known to the second, no finer; a request counted under ``NEITHER`` certainly had none. A refresh
is counted, with its duration, when it ends: it may have begun before the second that shows it.

Documents are counted while searches are measured, so without the second in which the buckets of an emulated
volume were still full. Each round gives one rate per arm; Student's t is applied to the ratios, one per
round.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.compare import Claim, Verdict, verdict_of
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.multiplicity import holm
from esrally_ebs.analysis.profile import BESIDE, Profile, block_profiles, pooled
from esrally_ebs.analysis.rounds import ArmTimes, Estimate, Floats, Mean
from esrally_ebs.analysis.summary import by_start, counted, is_time, rows_by
from esrally_ebs.model import Phase
from esrally_ebs.store.session import Session

NEITHER, REFRESH, MERGE = "neither", "a refresh", "a merge"  # a merge takes precedence over a refresh
_WHATS: Final = (NEITHER, REFRESH, MERGE)
_NO_SPANS: Final = np.zeros((2, 0))
_COUNTERS: Final = ("index.merging", "index.merges", "index.refreshes", "index.refresh_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Requests of one task on one arm with the same activity beside them."""

    requests: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """One bulk task beside one search on one arm, in all rounds."""

    rates: Mapping[int, float]  # documents per second by round, while searches were measured
    documents_per_s: float  # over all rounds
    p50_s: float  # of a bulk request, from when it was due
    p99_s: float
    failed: int
    profile: Profile | None  # the volume's profile while searches were measured; None if not observed


@dataclass(frozen=True, slots=True, kw_only=True)
class RateComparison(Claim):
    """One bulk task's rates on two arms."""

    task: str
    ratio: Estimate  # documents per second, b / a; interval for this task alone


def searches_apart(session: Session) -> Mapping[tuple[str, str], Mapping[str, Apart]]:
    """Requests by (task, activity beside them), then arm. Empty for sessions without writes beside searches.

    Where requests kept to a schedule, both their times and the activity beside them count from when they were
    due: a request that waited for a client may owe its time to a merge that ended before it was sent.
    """
    samples = session.samples
    mask = pc.and_(counted(samples), is_time(samples["latency_s"]))
    own = samples.select(["task", "arm", "started_s", "service_time_s", "latency_s"]).filter(mask)
    starts, lengths, times = (own[name].to_numpy() for name in ("started_s", "service_time_s", "latency_s"))
    ends = starts + lengths
    busy = {arm.spec.name: _seconds(session.telemetry, arm.spec.name) for arm in session.arms}
    apart: dict[tuple[str, str], dict[str, Apart]] = {}
    for (task, arm), rows in rows_by(own, ["task", "arm"]):
        places = _places(busy.get(arm, _NEVER), ends[rows] - times[rows], ends[rows])
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
    """Writes in rounds, by bulk task (each beside one search) and arm."""
    samples = session.samples
    beside = pc.and_(pc.equal(samples["phase"], Phase.BESIDE.value), pc.greater(samples["round"], 0))
    names = ["task", "arm", "round", "started_s", "service_time_s", "latency_s", "ops", "success"]
    own = samples.select(names).filter(beside)
    profiles = block_profiles(session, BESIDE)
    searched = samples.select(["arm", "started_s", "service_time_s"]).filter(counted(samples))
    searches = {arm: _spans(searched.take(rows)) for (arm,), rows in rows_by(searched, ["arm"])}
    return {
        (task, arm): _writes(own.take(rows), searches.get(arm, _NO_SPANS), profiles.get((task, arm), {}))
        for (task, arm), rows in rows_by(own, ["task", "arm"])
    }


def _spans(requests: pa.Table) -> Floats:
    """When each request begins and ends: two rows."""
    starts = requests["started_s"].to_numpy()
    return np.stack([starts, starts + requests["service_time_s"].to_numpy()])


def _writes(own: pa.Table, searches: Floats, profiles: Mapping[int, Profile]) -> Writes:
    done = own["success"].to_numpy(zero_copy_only=False)
    ops = np.where(done, own["ops"].to_numpy(), 0.0)
    spans, added = _spans(own), dict[int, tuple[float, float]]()
    for (round_,), rows in rows_by(own, ["round"]):
        added[round_] = _added(spans[:, rows], ops[rows], searches)
    documents, seconds = np.sum(list(added.values()), axis=0)
    latencies = ArmTimes([own["latency_s"].to_numpy()])
    return Writes(
        rates={round_: count / took_s for round_, (count, took_s) in added.items() if took_s > 0},
        documents_per_s=float(documents / seconds) if seconds > 0 else 0.0,
        p50_s=latencies.percentile(50),
        p99_s=latencies.percentile(99),
        failed=int((~done).sum()),
        profile=pooled(profiles.values()) if profiles else None,
    )


def _added(spans: Floats, ops: Floats, searches: Floats) -> tuple[float, float]:
    """Documents of one block and the seconds in which they were added: during its searches, else all of it.

    A bulk request that is only partly inside counts by the part of its time inside.
    """
    begins, ends = float(spans[0].min()), float(spans[1].max())
    own = searches[:, (searches[0] >= begins) & (searches[0] < ends)]
    if own.size:
        begins, ends = float(own[0].min()), min(float(own[1].max()), ends)
    within = np.clip(np.minimum(spans[1], ends) - np.maximum(spans[0], begins), 0.0, None)
    took = spans[1] - spans[0]
    shares = np.divide(within, took, out=np.zeros_like(took), where=took > 0)
    return float((ops * shares).sum()), ends - begins


def compare_rates(
    written: Mapping[tuple[str, str], Writes], findings: Findings
) -> tuple[RateComparison, ...]:
    """Each arm's documents per second against the first arm's, for every bulk task, at the session's margin.

    All claims of faster and slower hold together with the session's confidence; so, separately, do all claims
    of equivalence. No claims with fewer than six rounds (or too few starts of nodes, if several) or where a
    check forbids comparing.
    """
    pairs = []
    for task in dict.fromkeys(task for task, _ in written):
        for arm in findings.arms[1:]:
            pair = [written.get((task, name)) for name in (findings.arms[0], arm)]
            if pair[0] is not None and pair[1] is not None:
                pairs.append((task, arm, _log_ratios(pair[0].rates, pair[1].rates, findings)))
    enough = [mean for *_, mean in pairs if mean.count >= findings.min_observations]
    decidable = [] if findings.is_refused else enough
    different = iter(holm([mean.p_different() for mean in decidable]))
    equivalent = iter(holm([mean.p_equivalent(math.log1p(findings.margin)) for mean in decidable]))
    alpha, comparisons = 1 - findings.confidence, []
    for task, arm, mean in pairs:
        verdict, p_different, p_equivalent = Verdict.INCONCLUSIVE, None, None
        ratio = Estimate(math.exp(mean.value)) if mean.count else Estimate(math.nan)
        if mean in decidable:
            p_different, p_equivalent = next(different), next(equivalent)
            verdict = verdict_of(-mean.t(0.0), p_different <= alpha, p_equivalent <= alpha)
            ratio = mean.ratio(findings.confidence)
        comparisons.append(
            RateComparison(
                task=task,
                a=findings.arms[0],
                b=arm,
                ratio=ratio,
                verdict=verdict,
                p_different=p_different,
                p_equivalent=p_equivalent,
            )
        )
    return tuple(comparisons)


def _log_ratios(a: Mapping[int, float], b: Mapping[int, float], findings: Findings) -> Mean:
    """One observation per round that both arms have, or per start of the nodes if there are several.

    Empty if an arm added nothing in any round: leaving that round out would make the arm seem faster.
    """
    rounds = sorted(a.keys() & b.keys())
    if not all(a[round_] > 0 and b[round_] > 0 for round_ in rounds):
        return Mean(())
    groups = by_start(findings.starts, rounds) if findings.starts else [[round_] for round_ in rounds]
    return Mean(tuple(float(np.mean([math.log(b[r] / a[r]) for r in group])) for group in groups))


# Per activity (as in _WHATS), its begins and ends in two rows.
_Spans = Sequence[Floats]
_NEVER: Final[_Spans] = [_NO_SPANS] * len(_WHATS)


def _seconds(telemetry: pa.Table, arm: str) -> _Spans:
    """Spans between two reads of a node's counters, by activity; NEITHER has all of them."""
    of_arm = pc.and_(pc.equal(telemetry["arm"], arm), pc.is_in(telemetry["metric"], pa.array(_COUNTERS)))
    by_time: dict[float, dict[str, float]] = {}
    for row in telemetry.select(["at_s", "metric", "value"]).filter(of_arm).to_pylist():
        by_time.setdefault(row["at_s"], {})[row["metric"]] = row["value"]
    whole = sorted((at_s, values) for at_s, values in by_time.items() if len(values) == len(_COUNTERS))
    spans: list[list[tuple[float, float]]] = [[] for _ in _WHATS]
    for (begins, before), (ends, now) in pairwise(whole):
        # a counter that fell has restarted at 0
        grown = {name: now[name] - (before[name] if now[name] >= before[name] else 0.0) for name in now}
        spans[_WHATS.index(NEITHER)].append((begins, ends))
        if grown["index.refreshes"]:
            spans[_WHATS.index(REFRESH)].append((begins - grown["index.refresh_s"], ends))
        if grown["index.merges"] or before["index.merging"] or now["index.merging"]:
            spans[_WHATS.index(MERGE)].append((begins, ends))
    return [np.array(each).reshape(-1, 2).T for each in spans]


def _places(spans: _Spans, starts: Floats, ends: Floats) -> npt.NDArray[np.int64]:
    """For each request, the last of _WHATS whose spans it touches; -1 if nobody watched the node then."""
    places = np.full(len(starts), -1)
    looked = spans[_WHATS.index(NEITHER)]
    if looked.size:
        seen = (starts >= looked[0, 0]) & (ends <= looked[1, -1])
        for place, (begun, over) in enumerate(spans):
            touched = np.searchsorted(np.sort(begun), ends, "left") > np.searchsorted(over, starts, "right")
            places[seen & touched] = place
    return places
