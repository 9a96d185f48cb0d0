"""A session's trace and samples: the requests of one arm, each with its I/Os."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.profile import read_windows
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Phase, VolumeSpec
from esrally_ebs.store.session import Session
from esrally_ebs.volumes.virtual.replay import Column

# In recordings at most 1 % of requests have a read in flight as they begin or end, and 90 % of reads are of
# requests; with clocks that are 5 ms apart a quarter of them have.
MAX_CROSSING, MIN_WITHIN = 0.05, 0.5
MAX_UNCOUNTED = 0.05  # of the reads that the volume counted during observed requests
_READS = "emulator.reads"
IOS = ("at_s", "done_s", "offset", "bytes", "queue_s", "path_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Requests of one arm in the order of time, and their I/Os, as columns."""

    spec: VolumeSpec
    task: Column  # by request
    round: Column
    began_s: Column  # since the epoch
    latency_s: Column  # of the service
    cold: Column  # whether caches were dropped, and buckets full, right before
    ios: dict[str, Column]  # columns of IOS, ``write`` and ``ahead`` (1, 0, or -1 for not known)
    first: Column  # I/Os of request r are first[r] up to first[r + 1], excluded

    @property
    def requests(self) -> int:
        """How many."""
        return len(self.began_s)


def recording_of(session: Session, trace: pa.Table, arm: str) -> Recording:
    """The measured requests of an arm, and those of the I/Os in ``trace`` that came while one was served.

    Requests from before the oldest I/O that is left are left out. Raises MeasurementError, saying why, when
    requests cannot be told apart, and when the I/Os are not all there or not those of these requests.
    """
    spec = next((volume.spec for volume in session.arms if volume.spec.name == arm), None)
    ios = trace.filter(pc.equal(trace["arm"], arm)).sort_by("at_s")
    if spec is None or not ios.num_rows:
        raise MeasurementError(
            f"session {session.id}: no trace of arm {arm!r}; record it with trace = true in the plan"
        )
    lost = _require_whole(session, arm, ios.num_rows)
    reads_at_s = ios.filter(pc.equal(ios["op"], "read"))["at_s"].to_numpy()
    _require_counted(session, arm, reads_at_s, since_s=ios["at_s"][0].as_py() if lost else 0.0)
    samples = session.samples
    measured = pc.and_(pc.equal(samples["arm"], arm), pc.equal(samples["phase"], str(Phase.MEASURE)))
    measured = pc.and_(measured, pc.and_(pc.greater(samples["round"], 0), samples["success"]))
    rows = samples.filter(measured).sort_by("started_s")
    began_s = rows["started_s"].to_numpy()
    latency_s = rows["service_time_s"].to_numpy()
    at_s = ios["at_s"].to_numpy()
    if lost:
        rows = rows.filter(pa.array(began_s > at_s[0]))
        began_s, latency_s = rows["started_s"].to_numpy(), rows["service_time_s"].to_numpy()
    if not len(began_s):
        raise MeasurementError(f"session {session.id}: arm {arm!r} has no measured requests in its trace")
    if np.any(began_s[1:] < began_s[:-1] + latency_s[:-1]):
        raise MeasurementError(
            f"session {session.id}: requests of arm {arm!r} overlap, so their I/Os cannot be told apart;"
            " record with one client"
        )
    request = np.searchsorted(began_s, at_s, "right") - 1
    within = (request >= 0) & (at_s <= (began_s + latency_s)[request])
    reads = pc.equal(ios["op"], "read").to_numpy()
    _require_same_clock(session, arm, ios.filter(pa.array(reads)), began_s, latency_s, within[reads])
    columns = {name: ios[name].to_numpy()[within] for name in IOS}
    columns["write"] = pc.equal(ios["op"], "write").to_numpy()[within].astype(np.int64)
    columns["ahead"] = pc.fill_null(pc.cast(ios["ahead"], pa.int64()), -1).to_numpy()[within]
    return Recording(
        spec=spec,
        task=np.array(rows["task"].to_pylist()),
        round=rows["round"].to_numpy(),
        began_s=began_s,
        latency_s=latency_s,
        cold=(rows["iteration"].to_numpy() == 1) & (session.plan.cache.mode == "cold"),
        ios=columns,
        first=np.searchsorted(request[within], np.arange(len(began_s) + 1)),
    )


def _require_whole(session: Session, arm: str, ios: int) -> int:
    """I/Os that the volume had no room for; raises MeasurementError when others are missing."""
    notes = [event for event in session.events if event.kind == "trace" and event.arm == arm]
    if not notes:
        return 0
    kept = notes[-1].number("ios")
    if kept != ios:
        raise MeasurementError(
            f"session {session.id}: the trace of arm {arm!r} has {ios:,} I/Os, {kept or 0:,.0f} were written;"
            " copy the session again"
        )
    return int(notes[-1].number("lost") or 0)


def _require_counted(session: Session, arm: str, reads_at_s: Column, *, since_s: float) -> None:
    """As many reads during observed requests as the volume's own counters say."""
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


def _require_same_clock(
    session: Session, arm: str, reads: pa.Table, began_s: Column, latency_s: Column, within: Column
) -> None:
    """No read of a request is in flight before it begins or when it has ended, and most are of requests."""
    at_s, done_s = reads["at_s"].to_numpy(), np.maximum.accumulate(reads["done_s"].to_numpy())
    for times_s in (began_s, began_s + latency_s):
        before = np.searchsorted(at_s, times_s) - 1
        if np.mean((before >= 0) & (done_s[before] > times_s)) > MAX_CROSSING:
            within = np.zeros(1, bool)
    during = (at_s >= began_s[0]) & (at_s <= began_s[-1] + latency_s[-1])
    if np.sum(within) < MIN_WITHIN * np.sum(during) or not np.any(within):
        raise MeasurementError(
            f"session {session.id}: the I/Os of arm {arm!r} do not fit its requests in time; is the trace of"
            " this arm, this session, and this machine's clock?"
        )
