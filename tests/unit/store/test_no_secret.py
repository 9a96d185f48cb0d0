"""No secret of AWS in what is written: the search finds one in every form, and a session on AWS has none."""

import base64
import gzip
import html
import json
import logging
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import planted
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from fake_imds import imds
from fake_machine import FakeMachine
from planted import ACCOUNT, PLANTED, QUOTING, leaks, refusing
from recorded_aws import ID_GP2, METADATA

from esrally_ebs.aws.clients import Aws, redacted
from esrally_ebs.aws.cloudwatch import collect_in_time
from esrally_ebs.checks import arms as guarding
from esrally_ebs.checks.arms import Guarded
from esrally_ebs.cli import main
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.report import RENDERERS
from esrally_ebs.report.documents import documents
from esrally_ebs.session.steps import conclude
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.context import Arm, Member

ARMS = "".join(
    f'[[arm]]\nname = "{name}"\ntype = "mounted"\nmount = "/mnt/{name}"\n' for name in ("a", "efs")
)
PLAN = parse_plan(f'name = "p"\n{ARMS}', "p.toml")


def parquet(path: Path, text: str) -> None:
    pq.write_table(pa.table({"warning": [f"AWS: {text}", "none"] * 50}), path.with_suffix(".parquet"))


FORMS: dict[str, Callable[[Path, str], object]] = {
    "text": lambda path, secret: path.write_text(f"AWS: {secret}."),
    "json": lambda path, secret: path.write_text(
        json.dumps(secret).replace("/", "\\/").replace("+", "\\u002b")
    ),
    "html": lambda path, secret: path.write_text(html.escape(secret).replace("=", "&#61;")),
    "address": lambda path, secret: path.write_text(f"GET /?t={urllib.parse.quote(secret, safe='')}&x=1"),
    "base64": lambda path, secret: path.write_bytes(base64.b64encode(f"user:{secret}:x".encode())),
    "compressed": lambda path, secret: path.with_suffix(".gz").write_bytes(gzip.compress(secret.encode())),
    "table": parquet,
    "file name": lambda path, secret: path.with_name(urllib.parse.quote(secret, safe="")[:200]).touch(),
    "binary": lambda path, secret: path.write_bytes(b"\xff\x00\x80" + secret.encode() + b"\xfe"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PLANTED)
def test_a_secret_is_found_in_every_form_and_no_other(form: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    (tmp_path / "other").write_text("vol-0123456789abcdef0 took 0.123456789012 s")
    FORMS[form](folder / "file", PLANTED[name])
    assert [line.rpartition(": ")[2] for line in leaks([tmp_path])] == [name]


def test_a_long_secret_is_found_where_a_table_broke_it_and_where_it_was_cut() -> None:
    token = planted.SESSION_TOKEN
    assert leaks([], {"wrapped": f"{token[:15]}\n    {token[15:]}"}) == ["wrapped: session token"]
    assert leaks([], {"cut": f"{token[30:70]}..."}) == ["cut: session token"]
    assert leaks([], {"nothing": "no secret at all"}) == []


def test_what_is_left_out_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "image").write_text(ACCOUNT)
    assert leaks([tmp_path], but=lambda path: path.name == "image") == []


def test_a_message_that_quotes_everything_is_redacted() -> None:
    assert len(leaks([], {"quoted": QUOTING})) == len(PLANTED)
    safe = redacted(QUOTING)
    assert leaks([], {"redacted": safe}) == []
    assert "i-0123456789abcdef0" in safe
    assert safe.startswith("The signature does not match: Credential=<key>/20261122/eu-west-1")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """An instance with a gp2 volume and an EFS; its AWS and its metadata service know the planted secrets."""
    made = FakeMachine(tmp_path / "machine")
    made.nvme("nvme1n1", "259:2", serial=ID_GP2.replace("-", ""))
    made.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    made.mount("/mnt/efs", "fs-0a1b2c3d.efs.eu-west-1.amazonaws.com:/", "0:45", "nfs4")
    made.write("proc/diskstats", "259 2 nvme1n1 0 0 0 0 0 0 0 0 0 0 0 0")
    for name, value in {
        "AWS_ACCESS_KEY_ID": planted.KEY_ID,
        "AWS_SECRET_ACCESS_KEY": planted.SECRET,
        "AWS_SESSION_TOKEN": planted.SESSION_TOKEN,
        "ESRALLY_EBS_HOME": str(tmp_path / "home"),
    }.items():
        monkeypatch.setenv(name, value)
    with imds(METADATA, token=planted.METADATA_TOKEN) as service, refusing() as url:
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield made


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Everything that any library says, as Rally's log has it when somebody looks for a fault."""
    path = tmp_path / "logs" / "rally.log"
    path.parent.mkdir()
    handler, root = logging.FileHandler(path), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield path
    root.removeHandler(handler)
    root.setLevel(level)
    handler.close()


def looked_at(machine: FakeMachine) -> Guarded:
    arms = []
    for name, kind in (("a", Kind.EBS), ("efs", Kind.EFS)):
        spec = VolumeSpec(name=name, type="mounted", size_bytes=1)
        volume = Volume(spec=spec, kind=kind, mount=Path("/mnt") / name, filesystem="xfs")
        arms.append(Arm(name=name, cluster=name, members=(Member(volume=volume),)))
    clock = replace(guarding.SYSTEM_CLOCK, sleep=lambda seconds: None)
    return guarding.look_at(PLAN, arms, roots=machine.roots, clock=clock)


def test_nothing_that_a_session_on_aws_writes_holds_a_secret(
    machine: FakeMachine, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    guarded = looked_at(machine)
    folder = SessionFolder.create(home, "s-1", kind="baseline", plan=PLAN)
    folder.update(arms=[arm.volume for arm in guarded.arms], environment={"aws": guarded.record})
    for check in guarded.checks:
        folder.add_check(check)
    collect_in_time(folder)
    conclude(folder)
    session = load_session(folder.path)
    # the metadata service and AWS were asked, and what they said is kept
    assert session.environment["aws"]["instance"]["instance_id"] == METADATA["instance-id"]
    assert len(session.environment["aws"]["unknown"]) >= 3
    assert any("SignatureDoesNotMatch" in warning for warning in session.warnings)
    logging.getLogger("rally").warning("%s", session.warnings)

    outputs = {
        f"document {n}": json.dumps(document.fields) for n, document in enumerate(documents(session, "env"))
    }
    for words in (
        ["sessions"],
        ["sessions", "--json"],
        *(["report", "s-1", "--format", f] for f in RENDERERS),
    ):
        assert main(words) == 0, words
        shown = capsys.readouterr()
        outputs[" ".join(words)] = shown.out + shown.err
    assert leaks([home, log.parent], outputs) == []
    # the search sees what stands beside them
    assert leaks([home], planted={"volume": ID_GP2})
    beside = {
        line.partition(":")[0] for line in leaks([], outputs, planted={"code": "SignatureDoesNotMatch"})
    }
    assert beside >= {f"report s-1 --format {form}" for form in RENDERERS}
    assert leaks([log.parent], planted={"code": "SignatureDoesNotMatch"})


def test_an_error_that_ends_a_command_holds_no_secret(machine: FakeMachine, log: Path) -> None:
    errors = {}
    for service, operation in (
        ("ec2", "DescribeVolumes"),
        ("cloudwatch", "ListMetrics"),
        ("efs", "DescribeFileSystems"),
    ):
        with pytest.raises(SetupError) as caught:
            Aws("eu-west-1").call(service, operation)
        errors[service] = f"{caught.value}"
        logging.getLogger("rally").error("failed", exc_info=caught.value)
    assert leaks([log.parent], errors) == []
    assert all("SignatureDoesNotMatch" in text for text in errors.values())


def test_the_address_that_a_sign_on_asks_is_logged_without_the_account(
    machine: FakeMachine, log: Path
) -> None:
    """IAM Identity Center has the account in the address, and the SDK asks it before any call of ours."""
    center = boto3.client("sso", region_name="eu-west-1")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        center.get_role_credentials(roleName="bench", accountId=ACCOUNT, accessToken=planted.SESSION_TOKEN)
    assert (
        '"GET /federation/credentials?role_name=bench&account_id=<account> HTTP/1.1" 403' in log.read_text()
    )
    assert leaks([log.parent]) == []
