"""CloudWatch's minutes of volumes, instance and file systems: a window in, telemetry points out, base units.

Everything here is of the policy ``policies/telemetry.json``. A metric costs 0.01 USD per 1,000 asked for
(GetMetricData, us-east-1, 2025); ``price_usd`` says what a window costs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from esrally_ebs.aws.clients import Api, items
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
    """All that there is to ask of these arms; what needs the instance's id is left out without one."""
    found: list[Query] = []
    for subject in subjects:
        for volume in subject.volume_ids:
            of_volume = (("VolumeId", volume),)
            found += _all(subject.arm, volume, "AWS/EBS", of_volume, _VOLUME)
            if instance_id:
                both = (("InstanceId", instance_id), *of_volume)
                found += _all(subject.arm, volume, "AWS/EBS", both, _VOLUME_OF_INSTANCE)
        if subject.file_system_id:
            of_system = (("FileSystemId", subject.file_system_id),)
            found += _all(subject.arm, subject.file_system_id, "AWS/EFS", of_system, _FILE_SYSTEM)
        if subject.volume_ids and instance_id:  # of all arms alike, and shown with each
            of_instance = (("InstanceId", instance_id),)
            found += _all(subject.arm, instance_id, "AWS/EC2", of_instance, _INSTANCE)
    return found


def fetch(api: Api, asked: Sequence[Query], start_s: float, end_s: float) -> list[TelemetryPoint]:
    """All minutes that CloudWatch has between two times (epoch): ``at_s`` is each minute's end.

    Ordered by time. Raises AwsError.
    """
    points = [
        point
        for at in range(0, len(asked), _BATCH)
        for point in _fetch(api, asked[at : at + _BATCH], start_s, end_s)
    ]
    return sorted(points, key=lambda point: (point.at_s, point.arm, point.metric))


def price_usd(asked: Sequence[Query]) -> float:
    """What one ``fetch`` costs."""
    return len(asked) * _USD_PER_METRIC


def burst_balances(api: Api, volume_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """The latest BurstBalance (a fraction) of those volumes that have one. Raises AwsError."""
    asked = [
        query
        for volume in volume_ids
        for query in _all("", volume, "AWS/EBS", (("VolumeId", volume),), _VOLUME[:1])
    ]
    return {point.device: point.value for point in fetch(api, asked, now_s - _LOOK_BACK_S, now_s)}


def burst_credits(api: Api, file_system_ids: Iterable[str], now_s: float) -> dict[str, float]:
    """The latest BurstCreditBalance (bytes) of those EFS file systems that have one. Raises AwsError."""
    asked = [
        query
        for system in file_system_ids
        for query in _all("", system, "AWS/EFS", (("FileSystemId", system),), (_BURST_CREDITS,))
    ]
    return {point.device: point.value for point in fetch(api, asked, now_s - _LOOK_BACK_S, now_s)}


def instance_balances(api: Api, instance_id: str, now_s: float) -> dict[str, float]:
    """The instance's latest ``io`` and ``byte`` balance, as far as it has them. Raises AwsError."""
    asked = _all("", instance_id, "AWS/EC2", (("InstanceId", instance_id),), _INSTANCE[2:])
    points = fetch(api, asked, now_s - _LOOK_BACK_S, now_s)
    return {point.metric.split("_")[1]: point.value for point in points}


def _all(
    arm: str, device: str, namespace: str, dimensions: tuple[tuple[str, str], ...], metrics: Iterable[Metric]
) -> list[Query]:
    return [
        Query(arm=arm, device=device, namespace=namespace, dimensions=dimensions, metric=metric)
        for metric in metrics
    ]


def _fetch(api: Api, asked: Sequence[Query], start_s: float, end_s: float) -> Iterator[TelemetryPoint]:
    answers = items(
        api,
        "cloudwatch",
        "GetMetricData",
        "MetricDataResults",
        MetricDataQueries=[_asked(number, query) for number, query in enumerate(asked)],
        StartTime=_whole_minute(start_s),
        EndTime=_whole_minute(end_s + PERIOD_S),
        ScanBy="TimestampAscending",
    )
    for answer in answers:
        query = asked[int(answer["Id"].removeprefix("m"))]
        for at, value in zip(answer["Timestamps"], answer["Values"], strict=True):
            yield TelemetryPoint(
                arm=query.arm,
                device=query.device,
                at_s=at.timestamp() + PERIOD_S,
                metric=f"cloudwatch.{query.metric.ours}",
                value=value * query.metric.scale,
                unit=query.metric.unit,
            )


def _asked(number: int, query: Query) -> Mapping[str, Any]:
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
