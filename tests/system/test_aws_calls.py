"""Calls to AWS over real HTTP, answered by moto's server."""

from pathlib import Path

import pytest
from moto_server import ACCOUNT, KEY_ID, SECRET, TOKEN, Moto

from esrally_ebs.aws import s3
from esrally_ebs.aws.clients import Aws, AwsError

pytestmark = [pytest.mark.system, pytest.mark.beside]


def test_a_call_reaches_the_endpoint_that_the_environment_names(aws: Moto) -> None:
    api = Aws()
    made = api.call("ec2", "CreateVolume", AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3")
    answer = api.call("ec2", "DescribeVolumes", Filters=[{"Name": "size", "Values": ["8"]}])
    assert [volume["VolumeId"] for volume in answer["Volumes"]] == [made["VolumeId"]]
    assert api.clock_off_s == pytest.approx(0, abs=3)


def test_all_pages_of_an_answer_are_fetched(aws: Moto) -> None:
    api = Aws()
    for _ in range(7):
        api.call("ec2", "CreateVolume", AvailabilityZone="us-east-1a", Size=8, VolumeType="gp3")
    assert len(api.call("ec2", "DescribeVolumes", MaxResults=5)["Volumes"]) == 7
    made = [api.call("efs", "CreateFileSystem", CreationToken=f"t{n}")["FileSystemId"] for n in range(12)]
    assert len(api.call("efs", "DescribeFileSystems", MaxItems=5)["FileSystems"]) == len(made)


def test_what_aws_refuses_is_one_line_without_account_or_key(aws: Moto) -> None:
    with pytest.raises(AwsError) as caught:
        Aws().call("ec2", "DescribeVolumes", VolumeIds=["vol-00000000000000000"])
    assert caught.value.code == "InvalidVolume.NotFound"
    text = str(caught.value)
    assert text.startswith("AWS ec2:DescribeVolumes: ")
    assert "\n" not in text
    assert not any(secret in text for secret in (ACCOUNT, KEY_ID, SECRET, TOKEN))


@pytest.mark.usefixtures("aws")
def test_objects_of_a_repository_are_listed_and_fetched_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_PIECE_BYTES", 1000)
    api = Aws()
    api.call("s3", "CreateBucket", Bucket="backups")
    contents = {"indices/i/empty": b"", "index-0": bytes(range(256)) * 9}
    for name, content in contents.items():
        api.call("s3", "PutObject", Bucket="backups", Key=f"prod/{name}", Body=content)
    objects = s3.Objects.of(Path("s3://backups/prod"))
    assert objects is not None
    assert objects.sizes("") == {name: len(content) for name, content in contents.items()}
    assert objects.read("index-0", 10_000) == contents["index-0"]
    with pytest.raises(ValueError, match="index-0 has 2,304 bytes"):
        objects.read("index-0", 2303)
    with pytest.raises(FileNotFoundError, match="s3://backups has no prod/index-1"):
        objects.read("index-1", 10_000)
    objects.fetch("index-0", 2304, tmp_path)
    assert (tmp_path / "index-0").read_bytes() == contents["index-0"]
    nowhere = s3.Objects(bucket="nowhere", prefix="")
    with pytest.raises(AwsError, match=r"^AWS s3:ListObjectsV2: NoSuchBucket: .+"):
        nowhere.sizes("")
