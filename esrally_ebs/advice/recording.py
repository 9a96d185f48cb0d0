"""Matches a session's trace with its samples: one arm's requests, each with its I/Os."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.profile import read_windows
from esrally_ebs.analysis.summary import is_of_rounds
from esrally_ebs.catalog.volume_types import as_sold, model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Phase, VolumeSpec
from esrally_ebs.store.session import Session
from esrally_ebs.volumes.virtual.replay import Column

# In sound recordings at most 1 % of requests have a read in flight at their beginning or end, and 90 % of
# reads fall into requests; with clocks 5 ms apart, a quarter of requests have one.
MAX_CROSSING, MIN_WITHIN = 0.05, 0.5
# Likewise just outside requests of a query log, on a node that may do other things.
MAX_AROUND = 0.1
# A run of at least this many requests without I/O, between requests nearly all of which have some, is a hole.
MIN_HOLE, MOST_HAVE = 8, 0.9
_CHECKED_S = 30.0  # after the last request, for reads of requests by a clock that was set
# With the right clock as many reads fall into a log's requests as with a slightly shifted one, within this.
_MIN_FIT, _MAX_WORSE, _MAX_WORSE_READS = 0.95, 0.05, 8
_MAX_SHIFT_MS, _MAX_SHIFTED_READS = 20, 100_000
# Reads must be this many times as frequent during a log's requests, unless requests fill most of the time.
MIN_DENSER, MOSTLY = 3, 0.7
# Reads of a foreign volume may differ from its type's by this share; beyond, it is of another type.
MAX_OFF = 0.5
_QUARTILE = -0.6745  # lower quartile of a normal distribution, in sigma
MAX_HALVES = 0.01  # of a foreign trace's I/Os: in flight at its beginning or end
MAX_UNCOUNTED = 0.05  # difference from the reads that the volume counted during observed requests
_READS = "emulator.reads"
IOS = ("at_s", "done_s", "offset", "bytes", "path_s")
_WAITS = ("thread", "waiter", "slept_s", "woken_s")
# Share of reads that a thread slept for, or that came from one that slept for other reads. With fewer, the
# wrong threads were watched.
_MIN_WATCHED = 0.5
_TICK_S = 1e-6  # above the rounding of seconds since the epoch
_OF_LOG = ", has the log both query and fetch, and does nobody else read there"
LOG_S = 1e-3  # resolution of a query log's times and durations


class PerturbedRound(NamedTuple):
    """Median times in a round in which reads were slower by a factor."""

    times: float
    medians_s: dict[str, float]  # by task


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Requests of one arm in order of time, and their I/Os, as columns."""

    spec: VolumeSpec
    task: Column  # per request
    round: Column
    began_s: Column  # since the epoch
    latency_s: Column  # of the service
    pause_s: Column  # of the load generator before each request
    cold: Column  # whether caches were dropped, and buckets full, right before
    ios: dict[str, Column]  # of ``_columns``
    first: Column  # I/Os of request r are first[r] up to first[r + 1], excluded
    halves: int = 0  # I/Os of the trace without issue or completion, which are left out
    earlier: int = 0  # requests from before the oldest I/O that the volume had room for, likewise
    slower_s: float = 0.0  # what reads took longer than the volume's model, of a volume that is none of ours
    logged: bool = False  # requests are those of a query log, and the volume is none of ours
    perturbed: tuple[PerturbedRound, ...] = ()  # of all rounds, those of the usual latency included

    @property
    def waits_seen(self) -> bool:
        """Whether it is known which I/Os threads slept for."""
        return "waiter" in self.ios

    @property
    def requests(self) -> int:
        return len(self.began_s)

    def medians_s(self, chosen: Column | slice = slice(None)) -> dict[str, float]:
        """Median latency of the chosen requests, by task."""
        task, latency_s = self.task[chosen], self.latency_s[chosen]
        return {str(name): float(np.median(latency_s[task == name])) for name in dict.fromkeys(task)}

    @property
    def quickening(self) -> float:
        """How much less the second half of the tasks' requests took, as a share (median)."""
        halves = np.zeros(self.requests, bool)
        for task in dict.fromkeys(self.task):
            own = np.flatnonzero(self.task == task)
            halves[own[len(own) // 2 :]] = True
        first, second = self.medians_s(~halves), self.medians_s(halves)
        ratios = [second[task] / first[task] for task in first if first[task] > 0]
        return 1.0 - float(np.median(ratios)) if ratios else 0.0

    def part(self, chosen: Column) -> "Recording":
        """Only the chosen requests, by a boolean column."""
        ios = np.repeat(chosen, np.diff(self.first))
        return replace(
            self,
            **{
                name: getattr(self, name)[chosen]
                for name in ("task", "round", "began_s", "latency_s", "pause_s", "cold")
            },
            ios={name: column[ios] for name, column in self.ios.items()},
            first=np.append(0, np.cumsum(np.diff(self.first)[chosen])),
        )


def recording_of(session: Session, trace: pa.Table, arm: str) -> Recording:
    """An arm's measured requests, with the I/Os of ``trace`` that were issued during each.

    Requests before the oldest remaining I/O are left out. Raises MeasurementError, with the reason, if
    requests overlap, or if I/Os are missing or do not belong to these requests.
    """
    spec = next((as_sold(volume.spec) for volume in session.arms if volume.spec.name == arm), None)
    ios = trace.filter(pc.equal(trace["arm"], arm)).sort_by("at_s")
    notes = [event for event in session.events if event.kind == "trace" and event.arm == arm]
    if spec is None or not (ios.num_rows or notes):
        raise MeasurementError(
            f"session {session.id}: no trace of arm {arm!r}; record it with trace = true in the plan"
        )
    _require_searches_alone(session)
    since_s, halves = _require_whole(session, arm, ios)
    ios = _as_one_volume(ios.filter(pc.is_valid(ios["done_s"])), spec.chunk_bytes)
    reads = pc.equal(ios["op"], "read")
    reads_at_s = ios.filter(reads)["at_s"].to_numpy()
    counted = _require_counted(session, arm, reads_at_s, since_s=since_s)
    at_s = ios["at_s"].to_numpy()
    rows = _measured(session, arm, since_s=since_s)
    began_s, latency_s = rows["started_s"].to_numpy(), rows["service_time_s"].to_numpy()
    if session.kind == "trace":
        began_s, latency_s = _with_their_ios(began_s, latency_s, ios)
    _require_one_by_one(session, arm, began_s, latency_s)
    request = np.searchsorted(began_s, at_s, "right") - 1
    within = (request >= 0) & (at_s <= (began_s + latency_s)[request])
    if counted == 0 and not np.any(within[reads.to_numpy()]):
        raise _read_nothing(session, arm)
    served = latency_s.sum() / max(began_s[-1] + latency_s[-1] - began_s[0], _TICK_S)
    _require_same_clock(session, arm, ios, _edges(session, rows), within, min(float(served), 1.0))
    columns = _columns(ios, waits=not any(event.number("missed_waits") for event in notes))
    columns = {name: column[within] for name, column in columns.items()}
    whole = Recording(
        spec=spec,
        task=np.array(rows["task"].to_pylist()),
        round=rows["round"].to_numpy(),
        began_s=began_s,
        latency_s=latency_s,
        pause_s=_pauses(session, began_s, latency_s),
        cold=(rows["iteration"].to_numpy() == 1) & (session.plan.cache.mode == "cold"),
        ios=columns,
        first=np.searchsorted(request[within], np.arange(len(began_s) + 1)),
        halves=halves,
        earlier=_measured(session, arm, since_s=0.0).num_rows - rows.num_rows,
        slower_s=_slower_than_model(session, spec, ios) if session.kind == "trace" else 0.0,
        logged=session.kind == "trace",
    )
    _require_no_hole(session, arm, whole, reads_at_s[~within[reads.to_numpy()]])
    return _unperturbed(whole, session)


def _kept_since_s(ios: pa.Table) -> float:
    """When the last of the devices began to keep all I/Os: those it had no room for were done before."""
    devices = ios["device"].cast(pa.string())
    first_s = [pc.min(ios.filter(pc.equal(devices, name))["done_s"]) for name in devices.unique()]
    return max(float(second.as_py()) for second in first_s)


def _as_one_volume(ios: pa.Table, chunk_bytes: int) -> pa.Table:
    """Offsets in the striped whole, if several devices were recorded; each device's begin at 0."""
    devices = ios["device"].cast(pa.string())
    names = sorted(devices.unique().to_pylist())
    if len(names) < 2:
        return ios
    member = pc.index_in(devices, pa.array(names)).to_numpy()
    chunk, within = np.divmod(ios["offset"].to_numpy(), chunk_bytes)
    places = (chunk * len(names) + member) * chunk_bytes + within
    column = ios.schema.get_field_index("offset")
    return ios.set_column(column, ios.schema.field(column), pa.array(places))


def _pauses(session: Session, began_s: Column, latency_s: Column) -> Column:
    """Time from the previous request of the arm to each request, without others' requests, per turn."""
    samples = session.samples.sort_by("started_s")
    starts_s = samples["started_s"].to_numpy()
    served_s = np.append(0.0, np.cumsum(samples["service_time_s"].to_numpy()))
    ended_s = np.append(began_s[0], (began_s + latency_s)[:-1])
    first, last = np.searchsorted(starts_s, ended_s), np.searchsorted(starts_s, began_s)
    pauses: Column = np.maximum(began_s - ended_s - served_s[last] + served_s[first], 0.0) / (
        last - first + 1
    )
    return pauses


def _columns(ios: pa.Table, *, waits: bool) -> dict[str, Column]:
    """Columns ``IOS``, ``write`` and ``ahead`` (1, 0, or -1 if unknown).

    With ``waits``, and if the reading threads were watched, also ``_WAITS``; NaN for I/Os that no thread
    slept for.
    """
    columns: dict[str, Column] = {name: ios[name].to_numpy() for name in IOS}
    columns["write"] = pc.equal(ios["op"], "write").to_numpy().astype(np.int64)
    columns["ahead"] = pc.fill_null(pc.cast(ios["ahead"], pa.int64()), -1).to_numpy()
    waiters = ios["waiter"].drop_null().unique()
    # kernels mark all reads of the page cache as readahead, also those that are waited for
    watched = pc.or_(pc.is_valid(ios["waiter"]), pc.is_in(ios["thread"], waiters)).to_numpy()
    reads = columns["write"] == 0
    if waits and reads.any() and watched[reads].mean() >= _MIN_WATCHED:
        columns |= {name: ios[name].cast("float64").to_numpy() for name in _WAITS}
    return columns


def _unperturbed(whole: Recording, session: Session) -> Recording:
    """The rounds at the usual read latency, with the medians of all rounds."""
    times = {number: session.plan.read_latency_of(int(number)) for number in np.unique(whole.round)}
    if set(times.values()) == {1.0}:
        return whole
    perturbed = [PerturbedRound(times[n], whole.medians_s(whole.round == n)) for n in times]
    usual = np.array([times[number] == 1.0 for number in whole.round])
    if not usual.any():
        raise MeasurementError(
            f"session {session.id}: the trace has no round in which reads took as long as usual; record fewer"
            " iterations in a round"
        )
    return replace(whole.part(usual), perturbed=tuple(perturbed))


def requests_of(session: Session, arm: str) -> pa.Table:
    """Samples of an arm's measured requests in rounds; without bulks of indexing before them."""
    samples = session.samples
    return samples.filter(pc.and_(pc.equal(samples["arm"], arm), is_of_rounds(samples)))


def measured_during_s(session: Session) -> list[float]:
    """When a race's first measured request began and the last one ended; nothing of another session.

    What its volume did before is in its trace, too: the index was copied to it.
    """
    measured = session.samples.filter(is_of_rounds(session.samples))
    if session.kind == "trace" or not measured.num_rows:
        return []
    ended_s = pc.add(measured["started_s"], measured["service_time_s"])
    return [pc.min(measured["started_s"]).as_py(), pc.max(ended_s).as_py()]


def _measured(session: Session, arm: str, *, since_s: float) -> pa.Table:
    """Those of ``requests_of`` that succeeded and began after ``since_s``, in order of time."""
    requests = requests_of(session, arm)
    began_later = pc.greater(requests["started_s"], since_s)
    return requests.filter(pc.and_(requests["success"], began_later)).sort_by("started_s")


def _with_their_ios(began_s: Column, latency_s: Column, ios: pa.Table) -> tuple[Column, Column]:
    """Requests of a query log, in milliseconds, extended to begin with their first I/O at the latest.

    Durations were truncated to a millisecond: half of one is added. An I/O that is issued or done within a
    millisecond of a request belongs to it; requests never overlap.
    """
    at_s, done_s = ios["at_s"].to_numpy(), np.append(-np.inf, np.sort(ios["done_s"].to_numpy()))
    ended_s = began_s + latency_s + LOG_S / 2
    first = at_s[np.minimum(np.searchsorted(at_s, began_s - LOG_S), len(at_s) - 1)]
    last = done_s[np.searchsorted(done_s, ended_s + LOG_S) - 1]
    first = np.where(first >= began_s - LOG_S, np.minimum(first, began_s), began_s)
    last = np.where(last >= began_s, np.maximum(last, ended_s), ended_s)
    # if two are closer than the log's resolution, I/Os between cannot be attributed
    close = (first[1:] < last[:-1]) & (began_s[1:] > ended_s[:-1] - 2 * LOG_S)
    middle = (ended_s[:-1] + began_s[1:]) / 2
    first[1:] = np.where(close, middle, first[1:])
    last[:-1] = np.where(close, middle - _TICK_S, last[:-1])
    return first, np.maximum(last - first, 0.0)


def _edges(session: Session, rows: pa.Table) -> tuple[Column, Column]:
    """Begins and ends of requests; for a query log, nearby times at which surely none was served."""
    began_s = rows["started_s"].to_numpy()
    ended_s = began_s + rows["service_time_s"].to_numpy()
    if session.kind != "trace":
        return began_s, ended_s
    ended_s = ended_s + LOG_S / 2
    apart = began_s[1:] - ended_s[:-1] > 3 * LOG_S
    return began_s[np.append(True, apart)] - LOG_S, ended_s[np.append(apart, True)] + LOG_S


def _slower_than_model(session: Session, spec: VolumeSpec, ios: pa.Table) -> float:
    """How much longer reads take here than by the model (s), by the lower quartile, which has no waits.

    Raises MeasurementError if it is so much that this must be another volume.
    """
    service = model_for(spec).read
    reads = ios.filter(pc.equal(ios["op"], "read"))
    fixed_s, per_byte_s = service.line_s()
    expected_s = (fixed_s + per_byte_s * reads["bytes"].to_numpy()) * np.exp(_QUARTILE * service.sigma)
    took_s = reads["done_s"].to_numpy() - reads["at_s"].to_numpy()
    slower_s = float(np.percentile(took_s - expected_s, 25)) if len(took_s) else 0.0
    usual_s = float(np.median(expected_s)) if len(took_s) else 0.0
    if abs(slower_s) > MAX_OFF * usual_s:
        raise MeasurementError(
            f"session {session.id}: reads of arm {spec.name!r} take {slower_s * 1e3:+z.2f} ms from those of"
            f" {spec.type}, which take {usual_s * 1e3:.2f} ms; is that its volume{doubt_of_credits(spec)}?"
            " record with its --type and settings"
        )
    return slower_s


def doubt_of_credits(spec: VolumeSpec) -> str:
    """Question about burst credits, if the volume bursts: a foreign volume's credits are unknown."""
    if not model_for(spec).bursts:
        return ""
    return f", and had it {spec.credits:.0%} of its burst credits at first (of a 'trace' --credits says it)"


def _require_searches_alone(session: Session) -> None:
    if pc.any(pc.equal(session.samples["phase"], str(Phase.BESIDE))).as_py():
        raise MeasurementError(
            f"session {session.id}: documents were added beside its searches, so I/Os of both cannot be told "
            "apart; record a challenge that only searches"
        )


def _require_one_by_one(session: Session, arm: str, began_s: Column, latency_s: Column) -> None:
    if not len(began_s):
        raise MeasurementError(
            f"session {session.id}: arm {arm!r} has no measured requests in its trace; record it anew, by"
            " 'trace --log' with a query log of that time, or by a race whose plan has trace = true"
        )
    if np.any(began_s[1:] < began_s[:-1] + latency_s[:-1]):
        raise MeasurementError(
            f"session {session.id}: requests of arm {arm!r} overlap, so their I/Os cannot be told apart;"
            " record with one client, or with esrally-ebs trace when there are few"
        )


def _require_whole(session: Session, arm: str, ios: pa.Table) -> tuple[float, int]:
    """Since when the volume kept all I/Os (0: always), and how many lack their issue or completion.

    Raises MeasurementError if others are missing, or too many of the latter.
    """
    halves = ios["done_s"].null_count
    if halves > MAX_HALVES * ios.num_rows:
        raise MeasurementError(
            f"session {session.id}: of {halves:,} I/Os of arm {arm!r} the trace has no issue or no"
            " completion, so requests are not predicted; 'esrally-ebs usage' takes such a trace"
        )
    notes = [event for event in session.events if event.kind == "trace" and event.arm == arm]
    if not notes:
        return 0.0, halves
    kept, missed = notes[-1].number("ios"), notes[-1].number("missed")
    if missed:
        raise MeasurementError(
            f"session {session.id}: {missed:,.0f} events of arm {arm!r} were lost while it was recorded;"
            " record it again, when the machine has more time"
        )
    if kept != ios.num_rows:
        raise MeasurementError(
            f"session {session.id}: the trace of arm {arm!r} has {ios.num_rows:,} I/Os, {kept or 0:,.0f} were"
            " written; copy the session again"
        )
    return _kept_since_s(ios) if notes[-1].number("lost") else 0.0, halves


def _require_counted(session: Session, arm: str, reads_at_s: Column, *, since_s: float) -> float | None:
    """Reads that the volume counted during observed requests (None: it did not); the trace must have them."""
    windows = [
        window
        for window in read_windows(session.events)[0]
        if window.arm == arm and _READS in window.grown and window.start_s > since_s
    ]
    counted = sum(window.grown[_READS] for window in windows)
    ends = np.searchsorted(reads_at_s, [(window.start_s, window.end_s) for window in windows] or [(0.0, 0.0)])
    traced = np.sum(ends[:, 1] - ends[:, 0])
    if abs(traced - counted) > MAX_UNCOUNTED * counted:
        raise MeasurementError(
            f"session {session.id}: the trace of arm {arm!r} has {traced:,} reads during requests, its volume"
            f" counted {counted:,.0f}; is it of this arm, whole, and by this machine's clock?"
        )
    if not len(reads_at_s):
        raise _read_nothing(session, arm)
    return counted if windows else None


def _read_nothing(session: Session, arm: str) -> MeasurementError:
    return MeasurementError(
        f"session {session.id}: requests of arm {arm!r} read nothing, so a faster volume answers them no"
        " sooner; record with cold caches to know what they would read"
    )


def _require_same_clock(
    session: Session,
    arm: str,
    ios: pa.Table,
    edges_s: tuple[Column, Column],
    within: Column,
    served: float,
) -> None:
    """Reads must not be in flight when a request begins or has ended, and most must fall into requests.

    For a query log, more than by chance: ``served`` is the share of time with a request.
    """
    are_reads = pc.equal(ios["op"], "read")
    reads, within = ios.filter(are_reads), within[are_reads.to_numpy()]
    at_s = reads["at_s"].to_numpy()
    during = np.sum((at_s >= edges_s[0][0]) & (at_s <= edges_s[1][-1]))
    logged = session.kind == "trace"
    most = MAX_AROUND if logged else MAX_CROSSING
    by_chance = MIN_DENSER * served / (MIN_DENSER * served + 1 - served)
    least = max(MIN_WITHIN, by_chance) if logged and served < MOSTLY else MIN_WITHIN
    few = np.sum(within) < least * during or not np.any(within)
    if few or _crossing(reads, edges_s, closely=logged) > most or (logged and _fit_shifted(at_s, edges_s)):
        raise MeasurementError(
            f"session {session.id}: the I/Os of arm {arm!r} do not fit its requests in time; is the trace of"
            f" this arm, this session, and this machine's clock{_OF_LOG if logged else ''}?"
        )


def _fit_shifted(at_s: Column, edges_s: tuple[Column, Column]) -> bool:
    """Whether nearly all reads fall between these edges with a slightly shifted clock, and fewer without."""
    during = at_s[(at_s >= edges_s[0][0] - 1.0) & (at_s <= edges_s[1][-1] + 1.0)]
    during = during[:: 1 + len(during) // _MAX_SHIFTED_READS]
    counts = []
    for shift_s in np.arange(-_MAX_SHIFT_MS, _MAX_SHIFT_MS + 1) * 1e-3:
        before, until = (np.searchsorted(during, side_s - shift_s) for side_s in edges_s)
        counts.append(int(np.sum(until - before)))
    most = max(counts)
    worse = most - counts[_MAX_SHIFT_MS]  # with the clock unshifted
    return most >= _MIN_FIT * len(during) and worse > max(_MAX_WORSE * most, _MAX_WORSE_READS)


def _crossing(reads: pa.Table, edges_s: tuple[Column, Column], *, closely: bool) -> float:
    """Share of the begins or ends of requests at which a read is in flight; the larger one.

    At ends, ignores reads that continue another of the request: they were read ahead, and may never be
    needed. At begins, too, if the next request may follow ``closely``.
    """
    begin, size, at_s = (reads[name].to_numpy() for name in ("offset", "bytes", "at_s"))
    asked = reads.filter(pa.array(~continuing(begin, size, np.searchsorted(edges_s[0], at_s, "right"))))
    shares = [0.0]
    for times_s, ios in zip(edges_s, (asked if closely else reads, asked), strict=True):
        before = np.searchsorted(ios["at_s"].to_numpy(), times_s) - 1
        done_s = np.maximum.accumulate(ios["done_s"].to_numpy())
        if len(done_s):
            shares.append(float(np.mean((before >= 0) & (done_s[before] > times_s))))
    return max(shares)


def _require_no_hole(session: Session, arm: str, whole: Recording, outside_s: Column) -> None:
    """Require no run of requests without I/O among requests with some; ``outside_s``: reads of no request.

    Another tool's trace may lack a stretch without saying so. The first or last requests may have been
    answered from memory, unless, of a log, the volume read as much meanwhile: then a clock was set.
    """
    ios = np.diff(whole.first)
    ended_s = whole.began_s[-1] + whole.latency_s[-1]
    changes = np.flatnonzero(np.diff(np.concatenate(([0], ios == 0, [0]))))
    for begin, end in zip(changes[::2], changes[1::2], strict=True):
        others = [side for side in (ios[:begin], ios[end:]) if len(side)]
        if min((end - begin, *map(len, others))) < MIN_HOLE or not others:
            continue
        if min(np.mean(side > 0) for side in others) < MOST_HAVE:
            continue
        since_s = whole.began_s[begin]
        # long after the last request reads are nobody's of the log
        until_s = whole.began_s[end] if end < len(ios) else ended_s + max(ended_s - since_s, _CHECKED_S)
        first, last = np.searchsorted(outside_s, (since_s, until_s))
        reads = np.median(ios[ios > 0]) * (end - begin)
        doubt = "is a part of the trace missing" if len(others) > 1 else "was a clock set meanwhile"
        if len(others) > 1 or (whole.logged and last - first > reads / 2):
            raise MeasurementError(
                f"session {session.id}: {end - begin:,} requests of arm {arm!r} one after the other have no"
                f" I/O, others have; {doubt}? give the log of the time before or after it"
            )


def continuing(begin: Column, size: Column, request: Column) -> Column:
    """Mask of I/Os that begin where an earlier one of the same request ends."""
    ends = zip(request.tolist(), (begin + size).tolist(), strict=True)
    ended: dict[tuple[int, int], int] = {}
    for place, end in enumerate(ends):
        ended.setdefault(end, place)
    begins = enumerate(zip(request.tolist(), begin.tolist(), strict=True))
    return np.array([ended.get(begun, place) < place for place, begun in begins], bool)
