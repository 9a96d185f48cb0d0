"""CloudWatch's minutes after a session: what is asked, kept once in base units, and what reports show."""

import csv
import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from recorded_aws import ID_GP2, RecordedAws
from small_plan import small_plan
from stored import sample_of

from esrally_ebs.analysis.comparable import check_comparable
from esrally_ebs.aws import cloudwatch
from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.cloudwatch import burst_balances, fetch, instance_balances, price_usd, queries
from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Check, Kind, Sample, State, TelemetryPoint, Volume, VolumeSpec
from esrally_ebs.report import RENDERERS, build
from esrally_ebs.store import SessionFolder, load_session

MIB = 1024**2
MINUTE = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
AT = MINUTE.timestamp()
VOLUME = {
    "volume_id": ID_GP2,
    "type": "gp2",
    "size_bytes": 100 * 1024**3,
    "iops": 300,
    "throughput_bytes_per_s": None,
    "encrypted": True,
    "state": "in-use",
    "snapshot_id": "",
    "modification": "optimizing",
}
LIMITS = {
    "instance_type": "r5.large",
    "baseline_iops": 3600,
    "baseline_bytes_per_s": 80 * MIB,
    "maximum_iops": 18750,
    "maximum_bytes_per_s": 600 * MIB,
}
ON_AWS = {
    "instance": {"instance_id": "i-1", "region": "eu-west-1"},
    "limits": LIMITS,
    "arms": {
        "gp2": {
            "volume_ids": [ID_GP2],
            "file_system_id": "",
            "volumes": [VOLUME],
            "file_system": None,
        }
    },
    "unknown": ["could not tell the time"],
}
GP2 = {"gp2": {"volume_ids": [ID_GP2], "file_system_id": ""}}


def answering(*, minutes: int = 1, **values: float) -> Callable[..., Mapping[str, Any]]:
    """CloudWatch with one value a minute for some metrics, and nothing for the others."""

    def answer(**params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        results = []
        for query in params["MetricDataQueries"]:
            name = query["MetricStat"]["Metric"]["MetricName"]
            at = [MINUTE.replace(minute=minute) for minute in range(minutes)] if name in values else []
            results.append({"Id": query["Id"], "Timestamps": at, "Values": [values.get(name, 0.0)] * len(at)})
        return {"MetricDataResults": results}

    return answer


def test_percent_and_milliseconds_become_base_units_at_the_end_of_their_minute() -> None:
    aws = RecordedAws(GetMetricData=answering(BurstBalance=42.0, VolumeAvgReadLatency=0.7))
    points = fetch(aws, queries(GP2, "i-1"), AT, AT + 60)
    assert {(p.metric, p.value, p.unit, p.device, p.at_s) for p in points} == {
        ("cloudwatch.burst_balance", 0.42, "", ID_GP2, AT + 60),
        ("cloudwatch.read_latency_s", 0.0007, "s", ID_GP2, AT + 60),
    }


def test_what_is_asked_of_a_volume_needs_the_instance_for_some_and_efs_has_its_own() -> None:
    alone = queries(GP2)
    whole = queries(GP2, "i-1")
    assert {query.namespace for query in alone} == {"AWS/EBS"}
    assert {query.dimensions for query in whole} == {
        (("VolumeId", ID_GP2),),
        (("InstanceId", "i-1"), ("VolumeId", ID_GP2)),
        (("InstanceId", "i-1"),),
    }
    efs = queries({"efs": {"volume_ids": [], "file_system_id": "fs-1"}})
    assert {query.metric.theirs for query in efs} >= {"PermittedThroughput", "BurstCreditBalance"}
    assert price_usd(whole) == pytest.approx(len(whole) * 0.01 / 1000)


def test_more_metrics_than_one_call_takes_are_asked_in_several() -> None:
    volumes = [f"vol-{n}" for n in range(90)]  # 90 x 6 = 540
    many = {"a": {"volume_ids": volumes, "file_system_id": ""}}
    aws = RecordedAws(GetMetricData=answering(BurstBalance=1.0))
    assert len(fetch(aws, queries(many), AT, AT + 60)) == 90
    assert len(aws.actions) == 2 * 2  # each is heard of, and made


@pytest.mark.parametrize(
    ("states", "whole"), [(["PartialData", "Complete"], True), (["InternalError"], False)]
)
def test_a_metric_of_which_cloudwatch_leaves_values_out_is_not_taken_for_whole(
    states: list[str], whole: bool
) -> None:
    parts = [{"Id": "m0", "Timestamps": [MINUTE], "Values": [1.0], "StatusCode": state} for state in states]
    aws = RecordedAws(GetMetricData={"MetricDataResults": parts})
    wanted = queries(GP2)
    if whole:
        assert len(fetch(aws, wanted, AT, AT + 60)) == len(parts)
        return
    with pytest.raises(AwsError, match=r"^AWS cloudwatch:GetMetricData: 1 of 1 metrics did not come whole"):
        fetch(aws, wanted, AT, AT + 60)


def test_the_latest_balances_are_told_by_volume_and_of_the_instance() -> None:
    balances = {"BurstBalance": 30.0, "EBSIOBalance%": 99.0, "EBSByteBalance%": 50.0}
    aws = RecordedAws(GetMetricData=answering(**balances))
    assert burst_balances(aws, [ID_GP2], AT) == {ID_GP2: 0.3}
    assert instance_balances(aws, "i-1", AT) == {"io": 0.99, "byte": 0.5}


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    """A finished session on one gp2: two tasks of two seconds each, the first over its IOPS."""
    made = SessionFolder.create(tmp_path, "s-1", kind="race", plan=small_plan(), started_at=AT)
    spec = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * 1024**3)
    made.update(
        arms=[Volume(spec=spec, kind=Kind.EBS, mount=Path("/mnt"), identity=ID_GP2)],
        environment={"aws": ON_AWS},
    )
    with made.part_writer("samples") as samples, made.part_writer("telemetry") as telemetry:
        samples.add(
            request(task, at) for at, task in ((10, "hourly"), (11, "hourly"), (20, "range"), (21, "range"))
        )
        telemetry.add(counter(second) for second in range(30))
    made.finish(State.COMPLETE, ended_at=AT + 60)
    return made


def request(task: str, at: float) -> Sample:
    return sample_of(1.0, session="s-1", task=task, started_s=AT + at)


def counter(second: int) -> TelemetryPoint:
    """0.5 s of every second from 10 to 12 was over the volume's IOPS."""
    exceeded = 0.5 * min(max(second - 10, 0), 2)
    return TelemetryPoint(
        arm="gp2", device="nvme1n1", at_s=AT + second, metric="ebs.exceeded_s.iops", value=exceeded, unit="s"
    )


def test_minutes_are_kept_with_the_session_and_each_only_once(folder: SessionFolder) -> None:
    aws = RecordedAws(GetMetricData=answering(BurstBalance=42.0))
    assert cloudwatch.collect(folder, make_api=aws.make) == 1
    assert aws.region == "eu-west-1"
    later = RecordedAws(GetMetricData=answering(BurstBalance=42.0, minutes=2))
    assert cloudwatch.collect(folder, make_api=later.make) == 1
    rows = [row for row in load_session(folder.path).telemetry.to_pylist() if "burst" in row["metric"]]
    assert [row["at_s"] - AT for row in rows] == [60, 120]
    events = [event for event in folder.events() if event.kind == "cloudwatch"]
    assert [event.fields["values"] for event in events] == [1, 2]
    assert events[0].fields["usd"] > 0


def test_cloudwatch_is_asked_where_the_session_was_and_not_where_one_works_now(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = RecordedAws(GetMetricData=answering(BurstBalance=42.0))
    monkeypatch.setattr(cloudwatch, "Aws", aws.make)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert cloudwatch.collect(folder) == 1
    assert aws.region == "eu-west-1"


def test_that_minutes_are_no_longer_kept_is_said(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There were no new values of them, and nobody said why."""
    for minutes, says in ((1, "USD\n"), (0, "CloudWatch keeps minutes for 15 days\n")):
        aws = RecordedAws(GetMetricData=answering(minutes=minutes, BurstBalance=42.0))
        monkeypatch.setattr(cloudwatch, "Aws", aws.make)
        assert main(["cloudwatch", str(folder.path)]) == 0
        assert capsys.readouterr().out.endswith(says)


def test_what_was_exceeded_is_put_down_to_the_task_that_ran(folder: SessionFolder) -> None:
    report = build(load_session(folder.path))
    (table,) = (table for table in report.tables if table.key == "exceeded")
    assert {row.item: row.cells[0].text for row in table.rows} == {
        "hourly": "iops 1.0 s (50%)",
        "range": "none",
    }
    assert table.rows[0].cells[0].facts == {"iops_exceeded_s": pytest.approx(1.0)}


def test_every_report_shows_what_aws_said(folder: SessionFolder) -> None:
    cloudwatch.collect(folder, make_api=RecordedAws(GetMetricData=answering(BurstBalance=42.0)).make)
    report = build(load_session(folder.path))
    texts = {form: render(report) for form, render in RENDERERS.items()}
    for form, text in texts.items():
        assert ID_GP2 in text, form
        assert "burst balance" in text, form
    assert "in-use, optimizing" in texts["text"]
    assert "Not known: could not tell the time." in texts["markdown"]
    assert "All volumes of r5.large together: 3,600 IOPS, 80 MiB/s" in texts["text"]
    assert any("0.42" in row for row in csv.reader(io.StringIO(texts["csv"])))


def test_reads_that_cloudwatch_counted_are_written_out(folder: SessionFolder) -> None:
    cloudwatch.collect(folder, make_api=RecordedAws(GetMetricData=answering(VolumeReadOps=180_000.0)).make)
    (table,) = (table for table in build(load_session(folder.path)).tables if table.key == "cloudwatch")
    assert [row.cells[0].text for row in table.rows] == ["180,000"]


def test_a_session_that_was_not_on_aws_asks_nothing(tmp_path: Path) -> None:
    made = SessionFolder.create(tmp_path, "s-2", kind="race", plan=small_plan())
    aws = RecordedAws()
    assert cloudwatch.collect(made, make_api=aws.make) == 0
    assert aws.actions == []


def test_cloudwatch_that_does_not_answer_is_a_warning_and_no_failure(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    cloudwatch.collect_in_time(folder)
    (warning,) = load_session(folder.path).warnings
    assert (
        "CloudWatch's minutes are missing: AWS cloudwatch:GetMetricData: Unable to locate credentials"
        in warning
    )
    with pytest.raises(SetupError):
        cloudwatch.collect(folder)


@pytest.mark.parametrize("failing", ["fetch", "load_session"])
def test_whatever_goes_wrong_is_one_warning(
    failing: str, folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("volume_ids")

    with monkeypatch.context() as patched:
        patched.setattr(cloudwatch, failing, fail)
        cloudwatch.collect_in_time(folder)
    (warning,) = load_session(folder.path).warnings
    assert "CloudWatch's minutes are missing: KeyError('volume_ids'); 'esrally-ebs cloudwatch'" in warning


def test_a_difference_that_was_accepted_stands_at_the_end_too(tmp_path: Path) -> None:
    made = SessionFolder.create(tmp_path, "s-3", kind="baseline", plan=small_plan())
    arms = [
        Volume(
            spec=VolumeSpec(name=name, type="mounted", size_bytes=1),
            kind=Kind.EBS,
            mount=Path("/mnt"),
            filesystem="xfs",
            readahead_bytes=size,
        )
        for name, size in (("a", 1), ("b", 2))
    ]
    made.update(arms=arms)
    assert [check.ok for check in check_comparable(load_session(made.path)) if check.name == "settings"] == [
        False
    ]
    made.add_check(Check(name="readahead", ok=False, value="", text="differ", mend="mend it", accepted=True))
    session = load_session(made.path)
    assert [check.mark for check in session.checks] == ["accepted"]
    assert [check.ok for check in check_comparable(session) if check.name == "settings"] == [True]
