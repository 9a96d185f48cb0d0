"""CloudWatch's minutes of volumes, instances and file systems, as telemetry points in base units.

All calls are in ``policies/telemetry.json``. Metrics cost 0.01 USD per 1,000 requested (GetMetricData,
us-east-1, 2025); ``price_usd`` is a window's cost. Metrics come with some minutes' delay; failing to collect
them never makes a session fail.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc

from esrally_ebs.aws.clients import Api, Aws, AwsError, redacted
from esrally_ebs.aws.survey import MakeApi
from esrally_ebs.errors import EbsError
from esrally_ebs.model import Event, TelemetryPoint
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.reading import read_record
from esrally_ebs.store.session import Session

PERIOD_S = 60
KEPT_DAYS = 15  # for which CloudWatch has values of each minute
_BATCH = 500  # metrics per call
_USD_PER_METRIC = 0.01 / 1000
_LOOK_BACK_S = 1800  # to find the latest value: an instance's basic metrics come every five minutes

PATIENCE_S = 30.0
_MISSING = "CloudWatch's minutes are missing: "
_LATER = "'esrally-ebs cloudwatch' fetches them later"


@dataclass(frozen=True, slots=True)
class Metric:
    """A CloudWatch metric, with its name and unit here."""

    theirs: str
    statistic: str
    ours: str
    unit: str
    scale: float = 1.0


# Percentages become fractions, milliseconds seconds. Checks are 0 or 1: the maximum says whether it ever was
# 1.
_VOLUME = (
    Metric("BurstBalance", "Average", "burst_balance", "", 0.01),
    Metric("VolumeQueueLength", "Average", "queue_length", ""),
    Metric("VolumeReadOps", "Sum", "reads", ""),
    Metric("VolumeWriteOps", "Sum", "writes", ""),
    Metric("VolumeTotalReadTime", "Sum", "read_time_s", "s"),
    Metric("VolumeTotalWriteTime", "Sum", "write_time_s", "s"),
)
_VOLUME_OF_INSTANCE = (
    Metric("VolumeAvgReadLatency", "Average", "read_latency_s", "s", 1e-3),
    Metric("VolumeAvgWriteLatency", "Average", "write_latency_s", "s", 1e-3),
    Metric("VolumeIOPSExceededCheck", "Maximum", "volume_exceeded_iops", ""),
    Metric("VolumeThroughputExceededCheck", "Maximum", "volume_exceeded_throughput", ""),
    Metric("VolumeStalledIOCheck", "Maximum", "stalled", ""),
)
_INSTANCE = (
    Metric("InstanceEBSIOPSExceededCheck", "Maximum", "instance_exceeded_iops", ""),
    Metric("InstanceEBSThroughputExceededCheck", "Maximum", "instance_exceeded_throughput", ""),
    Metric("EBSIOBalance%", "Average", "instance_io_balance", "", 0.01),
    Metric("EBSByteBalance%", "Average", "instance_byte_balance", "", 0.01),
)
_BURST_CREDITS = Metric("BurstCreditBalance", "Average", "burst_credit_bytes", "B")
_FILE_SYSTEM = (
    Metric("PermittedThroughput", "Average", "permitted_bytes_per_s", "B/s"),
    _BURST_CREDITS,
    Metric("MeteredIOBytes", "Sum", "metered_bytes", "B"),
    Metric("PercentIOLimit", "Average", "io_limit", "", 0.01),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One metric of one resource."""

    arm: str
    device: str  # the volume's, file system's or instance's id
    namespace: str
    dimensions: tuple[tuple[str, str], ...]
    metric: Metric


def queries(arms: Mapping[str, Mapping[str, Any]], instance_id: str = "") -> list[Query]:
    """All metrics of these arms, as recorded; without an instance id, those of the instance are left out."""
    result: list[Query] = []
    for arm, of in arms.items():
        for volume in of["volume_ids"]:
            result += _queries(arm, "AWS/EBS", volume, _VOLUME)
            if instance_id:
                result += _queries(arm, "AWS/EBS", volume, _VOLUME_OF_INSTANCE, instance=instance_id)
        if of["file_system_id"]:
            result += _queries(arm, "AWS/EFS", of["file_system_id"], _FILE_SYSTEM)
        if of["volume_ids"] and instance_id:  # the same for all arms, shown with each
            result += _queries(arm, "AWS/EC2", instance_id, _INSTANCE)
    return result


def fetch(api: Api, queries: Sequence[Query], start_s: float, end_s: float) -> list[TelemetryPoint]:
    """All minutes between two times (epoch seconds); ``at_s`` is a minute's end.

    In order of time. Raises AwsError.
    """
    points = [
        point
        for at in range(0, len(queries), _BATCH)
        for point in _fetch(api, queries[at : at + _BATCH], start_s, end_s)
    ]
    return sorted(points, key=lambda point: (point.at_s, point.arm, point.metric))


def price_usd(queries: Sequence[Query]) -> float:
    """Cost of one ``fetch``, in USD."""
    return len(queries) * _USD_PER_METRIC


def burst_balances(api: Api, volume_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """Latest BurstBalance (a fraction) of the volumes that have one. Raises AwsError."""
    return _latest(
        api, [q for volume in volume_ids for q in _queries("", "AWS/EBS", volume, _VOLUME[:1])], now_s
    )


def burst_credits(api: Api, file_system_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """Latest BurstCreditBalance (bytes) of the EFS file systems that have one. Raises AwsError."""
    credits = (_BURST_CREDITS,)
    return _latest(api, [q for id_ in file_system_ids for q in _queries("", "AWS/EFS", id_, credits)], now_s)


def instance_balances(api: Api, instance_id: str, now_s: float) -> dict[str, float]:
    """The instance's latest ``io`` and ``byte`` balances, if it has them. Raises AwsError."""
    points = fetch(api, _queries("", "AWS/EC2", instance_id, _INSTANCE[2:]), now_s - _LOOK_BACK_S, now_s)
    return {point.metric.split("_")[1]: point.value for point in points}


def _latest(api: Api, queries: Sequence[Query], now_s: float) -> dict[str, float]:
    """Latest value by device, of one metric each."""
    return {point.device: point.value for point in fetch(api, queries, now_s - _LOOK_BACK_S, now_s)}


def _queries(
    arm: str, namespace: str, device: str, metrics: Iterable[Metric], *, instance: str = ""
) -> list[Query]:
    dimension = {"AWS/EBS": "VolumeId", "AWS/EFS": "FileSystemId", "AWS/EC2": "InstanceId"}[namespace]
    dimensions: tuple[tuple[str, str], ...] = ((dimension, device),)
    if instance:
        dimensions = (("InstanceId", instance), *dimensions)
    return [
        Query(arm=arm, device=device, namespace=namespace, dimensions=dimensions, metric=metric)
        for metric in metrics
    ]


def _fetch(api: Api, queries: Sequence[Query], start_s: float, end_s: float) -> Iterator[TelemetryPoint]:
    results = api.call(
        "cloudwatch",
        "GetMetricData",
        MetricDataQueries=[_parameters(number, query) for number, query in enumerate(queries)],
        StartTime=_whole_minute(start_s),
        EndTime=_whole_minute(end_s + PERIOD_S),
        ScanBy="TimestampAscending",
    )["MetricDataResults"]
    # a metric's last part says whether all of it came
    states = {result["Id"]: result.get("StatusCode", "Complete") for result in results}
    if lacking := [state for state in states.values() if state != "Complete"]:
        text = f"{len(lacking)} of {len(states)} metrics did not come whole ({lacking[0]}); ask again"
        raise AwsError("cloudwatch:GetMetricData", lacking[0], text)
    for result in results:
        query = queries[int(result["Id"].removeprefix("m"))]
        for at, value in zip(result["Timestamps"], result["Values"], strict=True):
            yield TelemetryPoint(
                arm=query.arm,
                device=query.device,
                at_s=at.timestamp() + PERIOD_S,
                metric=f"cloudwatch.{query.metric.ours}",
                value=value * query.metric.scale,
                unit=query.metric.unit,
            )


def _parameters(number: int, query: Query) -> Mapping[str, Any]:
    of = [{"Name": name, "Value": value} for name, value in query.dimensions]
    metric = {"Namespace": query.namespace, "MetricName": query.metric.theirs, "Dimensions": of}
    wanted = {"Metric": metric, "Period": PERIOD_S, "Stat": query.metric.statistic}
    return {"Id": f"m{number}", "MetricStat": wanted}


def _whole_minute(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s // PERIOD_S * PERIOD_S, UTC)


def collect_in_time(folder: SessionFolder, *, patience_s: float = PATIENCE_S) -> None:
    """``collect`` for at most ``patience_s``; failures become a warning of the session."""
    try:
        session = load_session(folder.path)
        wanted = queries_of(session)
        if wanted:
            _keep(folder, session, wanted, _ask_in_time(session, wanted, patience_s))
    except queue.Empty:
        folder.add_warning(_missing(f"no answer within {patience_s:g} s"))
    except Exception as error:  # noqa: BLE001 - the session has been measured, whatever this is
        why = " ".join(str(error).split()) if isinstance(error, EbsError) else redacted(repr(error))
        folder.add_warning(_missing(why))


def _missing(why: str) -> str:
    return f"{_MISSING}{why}; {_LATER}"


def _ask_in_time(session: Session, wanted: Sequence[Query], patience_s: float) -> list[TelemetryPoint]:
    """CloudWatch's answer; raises any error of asking, or queue.Empty after ``patience_s``.

    Asks in a thread, since the SDK's timeouts do not limit a whole call: an answer may come byte by byte. The
    thread only asks: a late answer is dropped, so nobody writes to a concluded session or has to wait for the
    thread.
    """
    answers: queue.SimpleQueue[list[TelemetryPoint] | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(_ask(session, wanted, _there))
        except Exception as error:  # noqa: BLE001 - a thread has no caller: whoever waits has it
            answers.put(error)

    threading.Thread(target=work, name="ebs-cloudwatch", daemon=True).start()
    answer = answers.get(timeout=patience_s)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _there(region: str | None, on_call: Callable[[str], None]) -> Api:
    """Access to AWS in a session's region, whatever region the environment names now."""
    return Aws(region, on_call=on_call)


def collect(folder: SessionFolder, *, make_api: MakeApi = _there) -> int:
    """Fetch missing minutes of the session's window; returns the number of new values.

    Raises AwsError or SetupError if AWS does not answer.
    """
    session = load_session(folder.path)
    wanted = queries_of(session)
    return _keep(folder, session, wanted, _ask(session, wanted, make_api)) if wanted else 0


def _ask(session: Session, wanted: Sequence[Query], make_api: MakeApi) -> list[TelemetryPoint]:
    api = make_api(session.instance.get("region"), lambda action: None)
    return fetch(api, wanted, session.started_at, session.ended_at or time.time())


def _keep(
    folder: SessionFolder, session: Session, wanted: Sequence[Query], points: Sequence[TelemetryPoint]
) -> int:
    kept = _kept(session)
    new = [point for point in points if (point.arm, point.device, point.metric, point.at_s) not in kept]
    with folder.part_writer("telemetry") as writer:
        writer.add(new)
    folder.compact()
    folder.event(Event(at_s=time.time(), kind="cloudwatch", fields=_summary(wanted, points)))
    warnings = read_record(folder.path).warnings
    if points and any(text.startswith(_MISSING) for text in warnings):
        folder.update(warnings=[text for text in warnings if not text.startswith(_MISSING)])
    return len(new)


def queries_of(session: Session) -> list[Query]:
    """All queries about a session; empty if it was not on AWS."""
    return queries(session.aws.get("arms", {}), session.instance.get("instance_id", ""))


def _kept(session: Session) -> set[tuple[str, str, str, float]]:
    own = session.telemetry.filter(pc.starts_with(session.telemetry["metric"].cast("string"), "cloudwatch."))
    rows = own.select(["arm", "device", "metric", "at_s"]).to_pylist()
    return {(row["arm"], row["device"], row["metric"], row["at_s"]) for row in rows}


def _summary(wanted: Sequence[Query], points: Sequence[TelemetryPoint]) -> dict[str, Any]:
    return {
        "metrics": len(wanted),
        "values": len(points),
        "until_s": max((point.at_s for point in points), default=None),
        "usd": price_usd(wanted),
    }
