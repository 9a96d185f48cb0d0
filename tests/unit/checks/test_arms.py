"""Before a session: arms on real mounts are found out and judged, asking only what policies allow."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fake_imds import TOKEN, imds
from fake_machine import FakeMachine
from recorded_aws import ALL, GP2, GP3, ID_GP2, ID_GP3, METADATA, RecordedAws

from esrally_ebs.catalog.cost import monthly, sustained
from esrally_ebs.checks import arms as guarding
from esrally_ebs.checks.arms import Guarded
from esrally_ebs.checks.preflight import check_plan
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.model import AwsSpec, Check, Kind, Severity, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.settings import plan_for
from esrally_ebs.store.context import Arm, Member

POLICIES = Path(__file__).parents[3] / "esrally_ebs" / "aws" / "policies"
JOB = '[[baseline]]\nname = "j"\nrw = "randread"\nbs = "16k"\nsize = "1g"\n'
ARM = '[[arm]]\nname = "a"\ntype = "mounted"\nmount = "/mnt/a"\n'
PLAN = parse_plan(f'name = "p"\n{ARM}{JOB}', "p.toml")
SHARED = Check(name="processors", ok=False, value="steal 9%", text="shared", severity=Severity.WARN)
STATS = "259 2 nvme1n1 {0} 0 {0} 0 0 0 0 0 0 0 0\n259 3 nvme2n1 0 0 0 0 0 0 0 0 0 0 0"


def balance(percent: float) -> Any:  # noqa: ANN401 - CloudWatch's answer to whatever is asked
    def answer(**params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        at = datetime(2026, 1, 1, tzinfo=UTC)
        queries = params["MetricDataQueries"]
        return {
            "MetricDataResults": [{"Id": q["Id"], "Timestamps": [at], "Values": [percent]} for q in queries]
        }

    return answer


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """An instance with a gp2 and a gp3 volume, and its metadata service."""
    made = FakeMachine(tmp_path)
    for arm, disk, number, volume in (("a", 1, "259:2", ID_GP2), ("b", 2, "259:3", ID_GP3)):
        made.nvme(f"nvme{disk}n1", number, serial=volume.replace("-", ""))
        made.mount(f"/mnt/{arm}", f"/dev/nvme{disk}n1", number)
    made.write("proc/diskstats", STATS.format(0))
    with imds(METADATA) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
        yield made


def arm(name: str, kind: Kind = Kind.EBS, **spec: Any) -> Arm:  # noqa: ANN401
    volume = Volume(
        spec=VolumeSpec(**{"name": name, "type": "mounted", "size_bytes": 500 * 1024**3, **spec}),
        kind=kind,
        mount=Path("/mnt") / name / "esrally-ebs-1",
        device="nvme1n1",
        filesystem="xfs",
        mount_options="rw,noatime",
    )
    return Arm(name=name, cluster=name, members=(Member(volume=volume),))


def look(machine: FakeMachine, aws: RecordedAws, plan: Plan = PLAN, *arms: Arm) -> Guarded:
    def busy(seconds: float) -> None:
        machine.write("proc/diskstats", STATS.format(20))

    return guarding.look_at(
        plan,
        arms or (arm("a"), arm("b")),
        roots=machine.roots,
        make_api=aws.make,
        clock=Clock(sleep=busy, monotonic=iter([0.0, 1.0]).__next__, epoch=lambda: 1e9),
        processors=lambda: SHARED,
    )


def marks(guarded: Guarded) -> dict[str, str]:
    return {check.name: check.mark for check in guarded.checks}


def test_arms_get_the_type_and_limits_that_aws_tells(machine: FakeMachine) -> None:
    gp2, gp3 = look(machine, RecordedAws(**ALL, GetMetricData=balance(100.0))).arms
    assert (gp2.volume.identity, gp2.volume.spec.type, gp2.volume.spec.iops) == (ID_GP2, "gp2", 1500)
    assert sustained(gp2.volume.spec) == (1500, 250 * 1024**2)  # although AWS tells its IOPS, too
    assert (gp3.volume.spec.type, gp3.volume.spec.throughput_bytes_per_s) == ("gp3", 125 * 1024**2)
    assert (gp3.volume.kind, gp3.volume.readahead_bytes, gp3.volume.scheduler) == (
        Kind.EBS,
        128 * 1024,
        "none",
    )


def striped(machine: FakeMachine, aws: RecordedAws) -> VolumeSpec:
    """What an arm is that lies on both volumes of the instance."""
    disks = [f"sys/devices/pci0/nvme/nvme{number}n1" for number in (1, 2)]
    machine.array("md0", "9:0", disks, level="raid0")
    machine.mount("/mnt/c", "/dev/md0", "9:0")
    (both,) = look(machine, aws, PLAN, arm("c")).arms
    return both.volume.spec


@pytest.mark.parametrize(
    ("of_system", "usd"),
    [
        ({"ThroughputMode": "elastic"}, 500 * 0.30),
        ({"ThroughputMode": "bursting", "AvailabilityZoneName": "us-east-1a"}, 500 * 0.16),
        # 1 MiB/s for every 20 GiB is in the price of storage
        ({"ThroughputMode": "provisioned", "ProvisionedThroughputInMibps": 225.0}, 500 * 0.30 + 200 * 6.0),
    ],
)
def test_an_efs_of_one_s_own_is_billed_as_aws_tells(
    machine: FakeMachine, of_system: Mapping[str, Any], usd: float
) -> None:
    machine.mount("/mnt/efs", "fs-0a1b2c3d.efs.us-east-1.amazonaws.com:/", "0:45", "nfs4")
    answer = {"FileSystemId": "fs-0a1b2c3d", "SizeInBytes": {"Value": 6144}, **of_system}
    aws = RecordedAws(
        **ALL, DescribeFileSystems={"FileSystems": [answer]}, GetMetricData=balance(2.0 * 1024**4)
    )
    planned = arm("efs", Kind.EFS, type="efs", mode="elastic", mount=Path("/mnt/efs"))
    (priced,) = look(machine, aws, PLAN, planned).arms
    assert monthly(priced.volume.spec, "us-east-1").usd == pytest.approx(usd)


def test_a_stripe_is_so_many_volumes_each_with_its_own_limits_and_price(machine: FakeMachine) -> None:
    volumes = {"Volumes": [{**GP3, "VolumeId": ID_GP2}, GP3]}
    both = striped(machine, RecordedAws(**{**ALL, "DescribeVolumes": volumes}))
    assert (both.type, both.stripes, both.size_bytes, both.iops) == ("gp3", 2, 500 * 1024**3, 3000)
    assert monthly(both, "us-east-1").usd == pytest.approx(2 * 500 * 0.08)  # all else is included in each
    assert sustained(both) == (6000, 250 * 1024**2)


def test_nobody_sells_a_stripe_of_unlike_volumes(machine: FakeMachine) -> None:
    volumes = {"Volumes": [{**GP3, "VolumeId": ID_GP2, "Iops": 4000}, GP3]}
    both = striped(machine, RecordedAws(**{**ALL, "DescribeVolumes": volumes}))
    assert (both.type, both.stripes, both.size_bytes, both.iops) == ("gp3+gp3", 1, 1000 * 1024**3, 7000)
    with pytest.raises(PlanError, match=r"price of gp3\+gp3 gb in us-east-1: not known"):
        monthly(both, "us-east-1")


def test_the_accident_of_a_gp3_at_125_stops_the_session_by_name(machine: FakeMachine) -> None:
    guarded = look(machine, RecordedAws(**ALL, GetMetricData=balance(100.0)))
    mark_of = marks(guarded)
    assert {mark_of[name] for name in ("identity", "size", "burst-balance", "modification")} == {"ok"}
    assert (mark_of["gp3-throughput"], mark_of["instance-burst"], mark_of["other-io"]) == (
        "FAILED",
        "warning",
        "warning",
    )
    with pytest.raises(
        MeasurementError,
        match=r"^gp3-throughput: b \(gp3\) has 125 .*run --accept gp3-throughput; .*=accept:gp3-throughput; "
        r"knee and esrally-ebs race --set 'accept=\[\"gp3-throughput\"\]'\)$",
    ):
        guarded.require()


def test_what_is_accepted_is_measured_and_on_record(machine: FakeMachine) -> None:
    plan = PLAN.model_copy(update={"accept": ("gp3-throughput",)})
    guarded = look(machine, RecordedAws(**ALL, GetMetricData=balance(100.0)), plan)
    assert marks(guarded)["gp3-throughput"] == "accepted"
    guarded.require()


def test_credits_below_what_the_plan_spends_stop_it(machine: FakeMachine) -> None:
    # 1 % of 5.4 million; 65,536 reads at 3000 IOPS, of which 1500 are earned, spend half of them
    (check,) = (
        c
        for c in look(machine, RecordedAws(**ALL, GetMetricData=balance(0.5))).checks
        if c.name == "burst-balance"
    )
    assert check.forbids
    assert "has 27,000 credits, the plan spends 32,768" in check.text


def test_an_efs_in_bursting_mode_is_asked_for_its_credits_although_no_volume_is_there(
    machine: FakeMachine,
) -> None:
    system = "fs-0a1b2c3d"
    machine.mount("/mnt/efs", f"{system}.efs.eu-west-1.amazonaws.com:/", "0:45", "nfs4")
    answer = {"FileSystemId": system, "ThroughputMode": "bursting", "SizeInBytes": {"Value": 6144}}
    metrics: list[Any] = []

    def answering(**params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        metrics.extend(query["MetricStat"]["Metric"] for query in params["MetricDataQueries"])
        return balance(2.0 * 1024**3)(**params)

    aws = RecordedAws(**ALL, DescribeFileSystems={"FileSystems": [answer]}, GetMetricData=answering)
    (check,) = (c for c in look(machine, aws, PLAN, arm("efs", Kind.EFS)).checks if c.name == "burst-balance")
    assert check.ok
    assert f"efs {system} has 2.0 GiB credits, the plan spends 1.3 GiB" in check.text  # 1 GiB and a third
    assert metrics == [
        {
            "Namespace": "AWS/EFS",
            "MetricName": "BurstCreditBalance",
            "Dimensions": [{"Name": "FileSystemId", "Value": system}],
        }
    ]
    assert set(aws.actions) <= allowed("identity", "telemetry")


def test_without_permission_everything_else_is_told_and_the_rest_is_unknown(machine: FakeMachine) -> None:
    guarded = look(machine, RecordedAws())
    assert [each.volume.identity for each in guarded.arms] == [ID_GP2, ID_GP3]
    assert marks(guarded)["identity"] == "unknown"
    assert marks(guarded)["filesystem"] == "ok"
    assert guarded.record is not None
    assert any("ec2:DescribeVolumes: not allowed" in reason for reason in guarded.record["unknown"])
    guarded.require()


def test_emulated_arms_and_directories_pass_by(machine: FakeMachine) -> None:
    arms = (arm("a", Kind.EMULATED, type="gp2"), arm("b", Kind.DIRECTORY, type="directory"))
    aws = RecordedAws(**ALL)
    assert look(machine, aws, PLAN, *arms) == Guarded(arms=arms, checks=(SHARED,))
    assert aws.actions == []


def test_processors_that_are_shared_are_on_record_and_stop_no_session(machine: FakeMachine) -> None:
    guarded = look(machine, RecordedAws(), PLAN)
    assert marks(guarded)["processors"] == "warning"
    guarded.require()


def test_an_arm_made_here_is_what_its_maker_says_although_a_loop_device_stands_for_it(
    machine: FakeMachine,
) -> None:
    machine.device("loop3", "7:3")
    machine.mount("/mnt/made", "/dev/loop3", "7:3")
    made = arm("made", aws=AwsSpec(snapshot="snap-1"))
    volume = {**GP3, "SnapshotId": "snap-1"}
    answers = {**ALL, "DescribeVolumes": {"Volumes": [volume]}, "GetMetricData": balance(100.0)}
    volume = Volume(spec=made.volume.spec, kind=Kind.EBS, mount=made.volume.mount, identity=ID_GP3)
    identified = Arm(name="made", cluster="made", members=(Member(volume=volume),))
    guarded = look(machine, RecordedAws(**answers), PLAN, identified)
    assert (guarded.arms[0].volume.identity, guarded.arms[0].volume.spec.type) == (ID_GP3, "gp3")
    assert marks(guarded)["initialised"] == "ok"  # it was read through when it was attached


def test_the_record_holds_no_token_and_no_account(machine: FakeMachine) -> None:
    account = {**GP3, "OwnerId": "123456789012", "VolumeArn": "arn:aws:ec2:eu-west-1:123456789012:volume/x"}
    answers = {**ALL, "DescribeVolumes": {"Volumes": [GP2, account]}}
    text = json.dumps(look(machine, RecordedAws(**answers)).record)
    assert ID_GP3 in text
    assert "123456789012" not in text
    assert TOKEN not in text


def allowed(*names: str) -> set[str]:
    documents = [json.loads((POLICIES / f"{name}.json").read_text()) for name in names]
    return {action for document in documents for s in document["Statement"] for action in s["Action"]}


def test_every_action_that_is_asked_for_is_in_the_policies_and_no_other(machine: FakeMachine) -> None:
    machine.device("xvdf", "202:80")
    machine.mount("/mnt/x", "/dev/xvdf", "202:80")
    machine.mount("/mnt/efs", "fs-0a1b2c3d.efs.eu-west-1.amazonaws.com:/", "0:45", "nfs4")
    restored = {**GP2, "SnapshotId": "snap-1"}
    aws = RecordedAws(**{**ALL, "DescribeVolumes": {"Volumes": [restored, GP3]}}, GetMetricData=balance(1.0))
    look(machine, aws, PLAN, arm("a"), arm("b"), arm("x"), arm("efs", Kind.EFS))
    assert set(aws.actions) == allowed("identity", "telemetry")
    assert allowed("telemetry") == {"cloudwatch:GetMetricData"}
    read_only = ("ec2:Describe", "elasticfilesystem:Describe", "cloudwatch:Get")
    assert all(action.startswith(read_only) for action in aws.actions)


def test_a_track_parameter_accepts_checks_by_name_and_a_wrong_name_is_refused() -> None:
    plan = plan_for({"accept": "other-io;clock"})
    assert plan.accept == ("other-io", "clock")
    with pytest.raises(PlanError, match="accept: no check is named 'clok'"):
        check_plan(plan_for({"accept": "clok"}))
