"""CloudWatch's minutes of volumes, instance and file systems: a window in, telemetry points out, base units.

Everything here is of the policy ``policies/telemetry.json``. A metric costs 0.01 USD per 1,000 asked for
(GetMetricData, us-east-1, 2025); ``price_usd`` is what a window costs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from esrally_ebs.aws.clients import Api
from esrally_ebs.model import TelemetryPoint

PERIOD_S = 60
_BATCH = 500  # metrics per call
_USD_PER_METRIC = 0.01 / 1000
_LOOK_BACK_S = 1800  # for the latest value: basic metrics of an instance come every five minutes


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of CloudWatch, and what it is called and measured in here."""

    theirs: str
    statistic: str
    ours: str
    unit: str
    scale: float = 1.0


# Percent become fractions, milliseconds seconds. Checks are 0 or 1: the maximum says whether it was ever 1.
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
class Subject:
    """An arm and what of AWS's it stands on."""

    arm: str
    volume_ids: tuple[str, ...] = ()
    file_system_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One metric of one thing."""

    arm: str
    device: str  # the volume's, file system's or instance's id
    namespace: str
    dimensions: tuple[tuple[str, str], ...]
    metric: Metric


def queries(subjects: Sequence[Subject], instance_id: str = "") -> list[Query]:
    """All metrics of these arms; without the instance's id, those of the instance are left out."""
    result: list[Query] = []
    for subject in subjects:
        for volume in subject.volume_ids:
            result += _queries(subject.arm, "AWS/EBS", volume, _VOLUME)
            if instance_id:
                result += _queries(subject.arm, "AWS/EBS", volume, _VOLUME_OF_INSTANCE, instance=instance_id)
        if subject.file_system_id:
            result += _queries(subject.arm, "AWS/EFS", subject.file_system_id, _FILE_SYSTEM)
        if subject.volume_ids and instance_id:  # the same for all arms, and shown with each
            result += _queries(subject.arm, "AWS/EC2", instance_id, _INSTANCE)
    return result


def fetch(api: Api, queries: Sequence[Query], start_s: float, end_s: float) -> list[TelemetryPoint]:
    """All minutes that CloudWatch has between two times (epoch): ``at_s`` is each minute's end.

    Ordered by time. Raises AwsError.
    """
    points = [
        point
        for at in range(0, len(queries), _BATCH)
        for point in _fetch(api, queries[at : at + _BATCH], start_s, end_s)
    ]
    return sorted(points, key=lambda point: (point.at_s, point.arm, point.metric))


def price_usd(queries: Sequence[Query]) -> float:
    """What one ``fetch`` costs."""
    return len(queries) * _USD_PER_METRIC


def burst_balances(api: Api, volume_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """The latest BurstBalance (a fraction) of those volumes that have one. Raises AwsError."""
    return _latest(
        api, [q for volume in volume_ids for q in _queries("", "AWS/EBS", volume, _VOLUME[:1])], now_s
    )


def burst_credits(api: Api, file_system_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """The latest BurstCreditBalance (bytes) of those EFS file systems that have one. Raises AwsError."""
    credits = (_BURST_CREDITS,)
    return _latest(api, [q for id_ in file_system_ids for q in _queries("", "AWS/EFS", id_, credits)], now_s)


def instance_balances(api: Api, instance_id: str, now_s: float) -> dict[str, float]:
    """The instance's latest ``io`` and ``byte`` balance, as far as it has them. Raises AwsError."""
    points = fetch(api, _queries("", "AWS/EC2", instance_id, _INSTANCE[2:]), now_s - _LOOK_BACK_S, now_s)
    return {point.metric.split("_")[1]: point.value for point in points}


def _latest(api: Api, queries: Sequence[Query], now_s: float) -> dict[str, float]:
    """The last value of each device's one metric."""
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
    return {
        "Id": f"m{number}",
        "MetricStat": {
            "Metric": {
                "Namespace": query.namespace,
                "MetricName": query.metric.theirs,
                "Dimensions": [{"Name": name, "Value": value} for name, value in query.dimensions],
            },
            "Period": PERIOD_S,
            "Stat": query.metric.statistic,
        },
    }


def _whole_minute(epoch_s: float) -> datetime:
    return datetime.fromtimestamp(epoch_s // PERIOD_S * PERIOD_S, UTC)
