"""What is found out about arms: by the machine alone, by the metadata service, by AWS where it answers."""

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_imds import imds
from fake_machine import FakeMachine
from recorded_aws import ALL, GP3, METADATA, RecordedAws

from esrally_ebs.aws import instance
from esrally_ebs.aws.clients import Api
from esrally_ebs.aws.instance import Instance, endpoint, instance_here, this_instance
from esrally_ebs.aws.survey import Survey, survey
from esrally_ebs.errors import SetupError

VOLUME = {**GP3, "Size": 100}
ID = GP3["VolumeId"]
HERE = {**ALL, "DescribeVolumes": {"Volumes": [VOLUME]}}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    made = FakeMachine(tmp_path)
    made.nvme("nvme1n1", "259:2", serial=ID.replace("-", ""))
    made.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    return made


def look(machine: FakeMachine, aws: RecordedAws, path: str = "/mnt/a") -> Survey:
    return survey({"a": Path(path)}, roots=machine.roots, make_api=aws.make)


def test_a_volume_is_told_with_its_provisioned_limits_and_its_instance(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws = RecordedAws(**HERE)
    with imds(METADATA) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        result = look(machine, aws)
    (volume,) = result.volumes_of("a")
    assert (volume.type, volume.size_bytes, volume.iops) == ("gp3", 100 * 1024**3, 3000)
    assert (volume.throughput_bytes_per_s, volume.state, volume.modification) == (125 * 1024**2, "in-use", "")
    assert result.limits is not None
    assert result.limits.baseline_bytes_per_s == 81_250_000  # 650 Mbit/s
    assert result.limits.bursts
    assert aws.region == "eu-west-1"
    assert result.unknown == ()
    assert result.calls == {f"ec2:{operation}": 1 for operation in HERE}


def test_what_is_not_allowed_is_unknown_with_its_reason_and_the_rest_is_told(machine: FakeMachine) -> None:
    result = look(machine, RecordedAws(DescribeVolumes=HERE["DescribeVolumes"]))
    (volume,) = result.volumes_of("a")
    assert (volume.type, volume.modification) == ("gp3", None)
    assert result.unknown == (
        "could not tell whether the volumes are being modified:"
        " AWS ec2:DescribeVolumesModifications: not allowed",
    )


def test_without_a_way_to_aws_the_volume_id_is_still_known(machine: FakeMachine) -> None:
    def none(region: str | None, on_call: Callable[[str], None]) -> Api:
        raise SetupError("boto3: not installed")

    result = survey({"a": Path("/mnt/a")}, roots=machine.roots, make_api=none)
    assert result.identities["a"].volume_ids == (ID,)
    assert result.volumes_of("a") == ()
    assert result.unknown == ("could not ask AWS: boto3: not installed",)


def test_mounts_of_other_kinds_are_no_reason_to_ask_aws(machine: FakeMachine) -> None:
    machine.device("loop3", "7:3")
    machine.mount("/mnt/loop", "/dev/loop3", "7:3")
    aws = RecordedAws(**HERE)
    result = look(machine, aws, "/mnt/loop")
    assert (aws.actions, result.on_aws, result.unknown) == ([], False, ())


def test_a_volume_made_from_a_snapshot_is_told_with_what_has_been_read_from_it(machine: FakeMachine) -> None:
    restored = {**VOLUME, "SnapshotId": "snap-1"}
    status = {"VolumeId": ID, "InitializationStatusDetails": {"Progress": 40}}
    answers = {**HERE, "DescribeVolumes": {"Volumes": [restored]}}
    result = look(machine, RecordedAws(**answers, DescribeVolumeStatus={"VolumeStatuses": [status]}))
    assert result.volumes_of("a")[0].initialised == 0.4
    assert look(machine, RecordedAws(**answers)).volumes_of("a")[0].initialised is None


def test_the_latest_of_several_modifications_counts(machine: FakeMachine) -> None:
    states = [("2026-02-01", "optimizing", 30), ("2026-01-01", "completed", 100)]
    changes = [
        {"VolumeId": ID, "StartTime": at, "ModificationState": state, "Progress": percent}
        for at, state, percent in states
    ]
    answers = {**HERE, "DescribeVolumesModifications": {"VolumesModifications": changes}}
    (volume,) = look(machine, RecordedAws(**answers)).volumes_of("a")
    assert (volume.modification, volume.modified) == ("optimizing", 0.3)


def test_a_xen_disk_is_looked_up_in_its_instances_mapping(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.device("xvdf", "202:80")
    machine.mount("/mnt/x", "/dev/xvdf", "202:80")
    mapping = [{"DeviceName": "/dev/sdf", "Ebs": {"VolumeId": ID}}, {"DeviceName": "/dev/sdb"}]
    instances = {"Reservations": [{"Instances": [{"BlockDeviceMappings": mapping}]}]}
    with imds(METADATA) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        result = look(machine, RecordedAws(**HERE, DescribeInstances=instances), "/mnt/x")
    assert result.volumes_of("a")[0].volume_id == ID


def test_efs_is_told_with_its_throughput_mode(machine: FakeMachine) -> None:
    machine.mount("/mnt/efs", "fs-0a1b2c3d.efs.eu-west-1.amazonaws.com:/", "0:45", "nfs4")
    answer = {
        "FileSystemId": "fs-0a1b2c3d",
        "ThroughputMode": "provisioned",
        "ProvisionedThroughputInMibps": 100.0,
        "Encrypted": True,
    }
    result = look(machine, RecordedAws(DescribeFileSystems={"FileSystems": [answer]}), "/mnt/efs")
    system = result.file_systems["fs-0a1b2c3d"]
    assert (system.throughput_mode, system.provisioned_bytes_per_s, system.encrypted) == (
        "provisioned",
        100 * 1024**2,
        True,
    )


def test_an_instance_that_may_not_be_asked_for_is_not_called_none(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "Roots", lambda: machine.roots)
    with pytest.raises(SetupError, match=r"^AWS_EC2_METADATA_DISABLED=true keeps"):
        instance_here()
    machine.write("sys/class/dmi/id/sys_vendor", "QEMU")
    with pytest.raises(SetupError, match="and this is none"):
        instance_here()


def test_the_metadata_service_is_asked_with_a_token_where_the_firmware_says_ec2(machine: FakeMachine) -> None:
    with imds(METADATA) as service:
        here = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}
        assert this_instance(machine.roots, here) == Instance(
            instance_id="i-0123456789abcdef0", instance_type="r5.large", zone="eu-west-1b", region="eu-west-1"
        )
        assert service.requests[0] == "PUT /latest/api/token"
        count = len(service.requests)
        assert this_instance(machine.roots, {**here, "AWS_EC2_METADATA_DISABLED": "True"}) is None
        machine.write("sys/class/dmi/id/sys_vendor", "QEMU")
        assert this_instance(machine.roots, here) is None
        assert len(service.requests) == count


def test_an_older_service_without_region_and_id_is_filled_in(machine: FakeMachine) -> None:
    machine.write("sys/class/dmi/id/board_asset_tag", "i-0fedcba9876543210")
    with imds({"instance-type": "m5.large", "placement/availability-zone": "us-gov-west-1b"}) as service:
        instance = this_instance(machine.roots, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url})
    assert instance == Instance(
        instance_id="i-0fedcba9876543210",
        instance_type="m5.large",
        zone="us-gov-west-1b",
        region="us-gov-west-1",
    )


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"token_status": 403}, "IMDSv2 gives no token"),
        ({"token": "<html>\n<body>"}, "token: not an answer of IMDSv2"),
        ({"items": {"instance-type": "<html>\n"}}, "not an answer of IMDSv2"),
        ({"items": METADATA, "cut": 3}, "IncompleteRead.*3 more expected"),
    ],
)
def test_a_service_that_is_none_is_one_clear_error(
    machine: FakeMachine, answers: dict[str, Any], why: str
) -> None:
    with imds(**{"items": {}, **answers}) as service:
        here = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}
        with pytest.raises(SetupError, match=why):
            this_instance(machine.roots, here)
    with pytest.raises(SetupError, match="does not answer"):
        this_instance(machine.roots, here)


@pytest.mark.parametrize("endpoint_", ["nowhere", "http://127.0.0.1:x"])
def test_an_endpoint_that_is_no_address_is_one_clear_error(machine: FakeMachine, endpoint_: str) -> None:
    with pytest.raises(SetupError, match="is not http://host"):
        this_instance(machine.roots, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint_})


@pytest.mark.parametrize("endpoint_", ["http://a..b", "http://a b"])
def test_an_endpoint_whose_host_cannot_be_is_one_clear_error(machine: FakeMachine, endpoint_: str) -> None:
    with pytest.raises(SetupError, match=f"{endpoint_}: the metadata service does not answer"):
        this_instance(machine.roots, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint_})


def test_by_ipv6_the_whole_address_is_asked(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(connection: http.client.HTTPConnection) -> None:
        asked.append((connection.host, connection.port))
        raise ConnectionRefusedError

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    with pytest.raises(SetupError, match="does not answer"):
        this_instance(machine.roots, {"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6"})
    assert asked == [("fd00:ec2::254", 80)]  # and not port 254 of "fd00:ec2:"


def test_the_endpoint_is_the_one_of_the_sdks() -> None:
    assert endpoint({}) == "http://169.254.169.254"
    assert endpoint({"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6"}) == "http://[fd00:ec2::254]"
    assert endpoint({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9/"}) == "http://127.0.0.1:9"
