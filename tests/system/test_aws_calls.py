"""Calls to AWS over real HTTP, answered by moto's server."""

import pytest
from moto_server import ACCOUNT, KEY_ID, SECRET, TOKEN, Moto

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
