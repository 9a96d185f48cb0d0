"""The door to AWS: what a failed call says, and what it must not say."""

import logging
import pickle
import re
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError
from botocore.loaders import JSONFileLoader
from fake_imds import imds
from fake_machine import FakeMachine
from loopback_server import serving

from esrally_ebs.aws import clients
from esrally_ebs.aws.clients import (
    REHEARSAL_VARIABLE,
    Aws,
    AwsError,
    action_of,
    credentials_end,
    redacted,
)
from esrally_ebs.errors import SetupError


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_without_credentials_a_call_says_in_one_line_what_to_set() -> None:
    with pytest.raises(AwsError, match=r"AWS ec2:DescribeVolumes: .*credentials; give the instance a role"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")


def test_the_sdk_stays_quiet_also_when_all_loggers_were_given_other_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = []
    listener = logging.Handler()
    listener.emit = lambda record: heard.append(record.name)  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger(), "handlers", [listener])
    monkeypatch.setattr(logging.getLogger("botocore"), "propagate", True)  # as Rally's actors do
    with caplog.at_level(logging.DEBUG), pytest.raises(AwsError):
        Aws("us-east-1").call("ec2", "DescribeVolumes")
    assert [name for name in heard if name.startswith("botocore")] == []


def test_without_a_region_a_call_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(AwsError, match="set AWS_REGION"):
        Aws().call("ec2", "DescribeVolumes")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL_EC2", "https://ec2.us-east-1.amazonaws.com"),
        ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
    ],
)
def test_a_rehearsal_that_would_ask_aws_itself_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REHEARSAL_VARIABLE, "i-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=r"ec2 would be asked at https://ec2\.us-east-1\.amazonaws"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")


def test_a_role_that_a_rehearsal_would_take_at_aws_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile team]\nrole_arn = arn:aws:iam::123456789012:role/x\nsource_profile = base\n"
        "[profile base]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = x\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv(REHEARSAL_VARIABLE, "i-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "https://sts.invalid")  # of no one, should the guard fail
    with pytest.raises(SetupError, match=r"sts would be asked at https://sts\.invalid"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")


def test_an_endpoint_that_is_no_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:5000")
    with pytest.raises(AwsError, match="Invalid endpoint: localhost:5000; correct AWS_ENDPOINT_URL"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")


@pytest.mark.parametrize(
    ("profile", "why"),
    [
        (
            "credential_process = /nowhere/at-all",
            "No such file .*'/nowhere/at-all'; correct where credentials",
        ),
        ("credential_process = echo no JSON", "Expecting value.*; correct credential_process"),
        (
            "role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /nowhere/at-all",
            "No such file .*'/nowhere/at-all'; correct where credentials",
        ),
    ],
)
def test_a_source_of_credentials_that_is_not_there_is_one_line(
    profile: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text(f"[default]\n{profile}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    with pytest.raises(AwsError, match=f"AWS ec2:DescribeVolumes: .*{why}"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")
    assert credentials_end(FakeMachine(tmp_path).roots) is None


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "InternalError"])
def test_what_aws_refuses_for_now_says_to_try_again(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def can_paginate(self, name: str) -> bool:
            return False

        def describe_volumes(self) -> None:
            raise ClientError({"Error": {"Code": code, "Message": "Not now."}}, "DescribeVolumes")

    monkeypatch.setattr(Aws, "_client", lambda self, service: Refusing())
    with pytest.raises(AwsError, match=f"^AWS ec2:DescribeVolumes: {code}: Not now; try again later$"):
        Aws("us-east-1").call("ec2", "DescribeVolumes")


ROLE = "add it to the role's policy, see docs/aws.md"
OTHER = "ask whoever keeps that policy, the role's own cannot allow it"


@pytest.mark.parametrize(
    ("because", "says"),
    [
        ("", f"(UnauthorizedOperation); {ROLE}"),
        (
            "because no identity-based policy allows the ec2:CreateVolume action",
            f"(UnauthorizedOperation); {ROLE}",
        ),
        (
            "with an explicit deny in a service control policy: arn:aws:organizations::123456789012:x",
            f"(UnauthorizedOperation: explicit deny in a service control policy); {OTHER}",
        ),
        (
            "because no permissions boundary allows the ec2:CreateVolume action",
            f"(UnauthorizedOperation: no permissions boundary allows it); {OTHER}",
        ),
    ],
)
def test_a_denial_names_the_policy_that_is_its_reason(because: str, says: str) -> None:
    text = (
        f"You are not authorized. User: x is not authorized to perform: ec2:CreateVolume {because}. Encoded"
    )
    answer = {"Error": {"Code": "UnauthorizedOperation", "Message": text}}
    error = clients._refused("ec2:CreateVolume", ClientError(answer, "CreateVolume"))
    assert str(error) == f"AWS ec2:CreateVolume: not allowed {says}"
    assert error.denied


@pytest.mark.parametrize("code", ["AuthFailure", "RequestExpired", "SignatureDoesNotMatch"])
def test_a_clock_that_was_set_is_named_and_not_the_credentials(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = "Fri, 27 Nov 2026 07:00:00 GMT"
    answer = {
        "Error": {"Code": code, "Message": "AWS was not able to validate the provided access credentials"},
        "ResponseMetadata": {"HTTPHeaders": {"date": date}},
    }
    now_s = parsedate_to_datetime(date).timestamp()
    for ahead_s, says in ((3600.0, r"the clock here is \+3600 s off AWS's"), (2.0, "credentials")):
        now = SimpleNamespace(time=lambda ahead_s=ahead_s: now_s + ahead_s + 0.5)
        monkeypatch.setattr(clients, "time", now)
        error = clients._refused("ec2:DescribeVolumes", ClientError(answer, "DescribeVolumes"))
        assert re.search(says, str(error))


def test_of_an_answer_that_is_none_of_aws_nobody_knows_what_came(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    with serving(Empty) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        with pytest.raises(AwsError, match=r"Unable to parse response .*; see what answers at") as caught:
            Aws("us-east-1").call("ec2", "CreateVolume", AvailabilityZone="us-east-1a", Size=1)
    assert caught.value.unanswered


@pytest.mark.parametrize(("vendor", "asks"), [("QEMU", False), ("Amazon EC2", True)])
def test_only_on_ec2_the_metadata_service_is_asked_for_credentials(
    vendor: str, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine(tmp_path)
    machine.write("sys/class/dmi/id/sys_vendor", vendor)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    with imds({}) as service:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        with pytest.raises(AwsError, match="credentials"):
            Aws("us-east-1", roots=machine.roots).call("ec2", "DescribeVolumes")
        assert bool(service.requests) == asks


def test_what_the_sdk_knows_of_a_service_is_read_once_for_all_regions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    original = JSONFileLoader.load_file

    def load_file(self: JSONFileLoader, path: str) -> object:
        read.append(path)
        return original(self, path)

    monkeypatch.setattr(JSONFileLoader, "load_file", load_file)
    for region in ("us-east-1", "eu-west-1"):
        read.clear()
        with pytest.raises(AwsError, match="credentials"):
            Aws(region).call("ec2", "DescribeVolumes")
    assert [path for path in read if "/ec2/" in path] == []


def test_every_call_is_heard_of_before_it_is_made() -> None:
    heard: list[str] = []
    with pytest.raises(SetupError):
        Aws("us-east-1", on_call=heard.append).call("efs", "DescribeFileSystems")
    assert heard == ["elasticfilesystem:DescribeFileSystems"] == [action_of("efs", "DescribeFileSystems")]


def test_the_error_stays_whole_on_its_way_between_processes() -> None:
    error = AwsError("ec2:DescribeVolumes", "InvalidVolume.NotFound", "no such volume")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.action, copy.code) == (str(error), error.action, error.code)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("User: arn:aws:iam::123456789012:user/x", "User: arn:aws:iam::<account>:user/x"),
        ("key AKIAIOSFODNN7EXAMPLE", "key <key>"),
        ("message: " + "aB3" * 40, "message: <token>"),
        ("key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY!", "key <token>!"),
        (
            "/home/Team1/projects/benchmarks/of/volumes/and/more",
            "/home/Team1/projects/benchmarks/of/volumes/and/more",
        ),
        ("sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709", "sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("AQAEAFOPrVqTJdZ-4P0q_w9Xy1k==: no", "<token>: no"),
        (
            "instance profile AIPAIOSFODNN7EXAMPLE, role_AROAIOSFODNN7EXAMPLE",
            "instance profile <key>, role_<key>",
        ),
        ("arn%3Aaws%3Aiam%3A%3A123456789012%3Arole", "arn%3Aaws%3Aiam%3A%3A<account>%3Arole"),
        ("vol-049df61146c4d7901 and i-1234567890abcdef0", "vol-049df61146c4d7901 and i-1234567890abcdef0"),
        ("vol-123456789012 was 123 GiB", "vol-123456789012 was 123 GiB"),
        ("profile (AdministratorAccess-123456789012)", "profile (AdministratorAccess-<account>)"),
        ("role my-api-123456789012, /fs-123456789012", "role my-api-<account>, /fs-123456789012"),
        ("request 0b1c2d3e-1111-4222-8333-123456789012", "request 0b1c2d3e-1111-4222-8333-123456789012"),
    ],
)
def test_accounts_keys_and_tokens_are_taken_out_and_nothing_else(text: str, safe: str) -> None:
    assert redacted(text) == safe
