"""Looking at AWS over real HTTP, and a whole session whose arms moto has made, loop devices as volumes."""

import datetime
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from hanging_server import hanging
from instance_on_moto import make_instance
from moto_server import ACCOUNT, KEY_ID, SECRET, TOKEN, Moto
from planted import PLANTED, leaks, refusing
from quick_node import NODE_TABLE
from rally_command import Homes, homes

from esrally_ebs.aws import cloudwatch, describe
from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.cloudwatch import PATIENCE_S
from esrally_ebs.aws.instance import REHEARSAL_VARIABLE
from esrally_ebs.cli import main
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import State
from esrally_ebs.report import RENDERERS
from esrally_ebs.report.documents import documents
from esrally_ebs.session import clean
from esrally_ebs.store import find_session, load_session, running
from esrally_ebs.units import MIB

pytestmark = pytest.mark.system

PLAN = """name = "rehearsed"
[aws]
[[arm]]
name = "gp2"
type = "gp2"
size = "1GiB"
[[arm]]
name = "gp3"
type = "gp3"
size = "1GiB"
iops = 3000
throughput = "128MiB/s"
[[baseline]]
name = "read"
rw = "randread"
bs = "16k"
size = "4m"
"""
RACE = """[dataset]
documents = 2000
[race]
iterations = 1
warmup_iterations = 1
[design]
nodes = "per-arm"
rounds = 1
order = "fixed"
"""
HELD = {"moto's account": ACCOUNT, "our key id": KEY_ID, "our secret key": SECRET, "our token": TOKEN}


@pytest.fixture
def instance(aws: Moto) -> tuple[Aws, str, str]:
    """An instance with one gp2 volume besides its own: the way to AWS, and both ids."""
    api = Aws()
    return api, *make_instance(api, size_gib=100)


@pytest.mark.beside
def test_aws_is_understood_as_it_answers(instance: tuple[Aws, str, str]) -> None:
    api, instance_id, volume = instance
    described = describe.describe_volumes(api, [volume])[volume]
    assert (described.type, described.size_bytes, described.state) == ("gp2", 100 * 1024**3, "in-use")
    assert describe.device_mapping(api, instance_id)["/dev/sdf"] == volume
    limits = describe.describe_instance_type(api, "m5.large")
    assert limits is not None
    # 650 and 4,750 Mbit/s, as AWS publishes them
    assert (limits.baseline_bytes_per_s, limits.maximum_bytes_per_s) == (81_250_000, 593_750_000)
    api.call("ec2", "ModifyVolume", VolumeId=volume, VolumeType="gp3", Iops=4000)
    assert describe.describe_modifications(api, [volume])[volume][0] in (
        "modifying",
        "optimizing",
        "completed",
    )
    made = api.call("efs", "CreateFileSystem", CreationToken="t", ThroughputMode="elastic", Encrypted=True)
    system = describe.describe_file_system(api, made["FileSystemId"])
    assert (system.throughput_mode, system.encrypted, system.state) == ("elastic", True, "available")
    assert api.clock_off_s is not None
    assert abs(api.clock_off_s) < 2


def put(api: Aws, volume: str, metric: str, *values: float, at_s: float | None = None) -> None:
    """Values of the last minutes, one a minute; the last one is of now, or of ``at_s`` (epoch)."""
    now = datetime.datetime.fromtimestamp(time.time() if at_s is None else at_s, datetime.UTC)
    api.call(
        "cloudwatch",
        "PutMetricData",
        Namespace="AWS/EBS",
        MetricData=[
            {
                "MetricName": metric,
                "Dimensions": [{"Name": "VolumeId", "Value": volume}],
                "Timestamp": now - datetime.timedelta(minutes=len(values) - 1 - number),
                "Value": value,
            }
            for number, value in enumerate(values)
        ],
    )


@pytest.mark.beside
def test_cloudwatch_tells_the_latest_balance(instance: tuple[Aws, str, str]) -> None:
    api, _, volume = instance
    put(api, volume, "BurstBalance", 90.0, 80.0)
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert cloudwatch.burst_balances(api, [volume], now) == {volume: pytest.approx(0.8)}


@pytest.fixture
def rehearsed(
    instance: tuple[Aws, str, str], monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> Iterator[Path]:
    """Home and run directory of a rehearsal on the instance; what a failing session leaves is taken down."""
    monkeypatch.setenv(REHEARSAL_VARIABLE, instance[1])
    (own_folders / "rehearsed.toml").write_text(PLAN)
    yield own_folders
    for session in running.sessions()[0]:
        if (run_dir() / session).exists():
            clean.take_down(session)


def command(*words: str) -> tuple[int, str]:
    """Exit code and all that was printed of one ``esrally-ebs``."""
    program = Path(sys.executable).with_name("esrally-ebs")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.beside
def test_a_session_on_aws_is_guarded_recorded_and_keeps_no_secret(
    rehearsed: Path, instance: tuple[Aws, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    api, *_ = instance
    code, printed = command("run", str(rehearsed / "rehearsed.toml"))
    assert code == 0, printed
    path = find_session(rehearsed / "home", "latest")
    session = load_session(path)
    checks = {check.name: check.mark for check in session.checks}
    assert (checks["gp3-throughput"], checks["burst-balance"], checks["modification"]) == (
        "ok",
        "unknown",
        "ok",
    )
    assert [arm.spec.type for arm in session.arms] == ["gp2", "gp3"]
    assert session.arms[1].spec.throughput_bytes_per_s == 128 * MIB
    volume = session.arms[0].identity
    assert session.environment["aws"]["arms"]["gp2"]["volume_ids"] == [volume]
    assert session.ended_at is not None
    put(api, volume, "BurstBalance", 99.0, at_s=session.ended_at)  # now is another minute at times
    assert main(["cloudwatch", session.id]) == 0
    assert main(["report", session.id]) == 0
    output = capsys.readouterr().out
    assert output.startswith("1 new value of ")
    assert "burst balance" in output
    texts = {"run": printed, "cloudwatch and report": output}
    assert leaks([rehearsed], texts, planted=HELD, but=is_image) == []
    assert len(leaks([rehearsed], texts, planted={"volume": volume}, but=is_image)) > 3


def is_image(path: Path) -> bool:
    """A volume's blocks: what Elasticsearch or fio wrote there."""
    return path.name == "image"


@pytest.mark.beside
def test_a_gp3_that_is_slower_than_gp2_is_not_measured(rehearsed: Path) -> None:
    plan = rehearsed / "slow.toml"
    plan.write_text(PLAN.replace('"128MiB/s"', '"125MiB/s"'))
    code, printed = command("run", str(plan))
    assert code == 4
    assert "gp3-throughput: gp3 (gp3) has 125 MiB/s, gp2 (gp2) reaches 128" in printed
    assert not list(run_dir().iterdir())


@pytest.mark.beside
def test_a_session_ends_although_cloudwatch_never_answers(
    rehearsed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hanging(refused=1) as server:  # the balance before the session; what is asked after it hangs
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", server.url)
        start = time.monotonic()
        code, printed = command("run", str(rehearsed / "rehearsed.toml"))
        took_s = time.monotonic() - start
        assert server.hung_up.wait(15)
    assert code == 0, printed
    assert PATIENCE_S < took_s < PATIENCE_S + 45  # attaching, fio and the reports
    session = load_session(find_session(rehearsed / "home", "latest"))
    assert session.state is State.COMPLETE
    assert [row["job"] for row in session.baseline.to_pylist()] == ["read", "read"]
    assert [text for text in session.warnings if "no answer within 30 s" in text]
    assert "no answer within 30 s" in " ".join(printed.split())
    assert not list(run_dir().iterdir())


@pytest.fixture
def racing(
    instance: tuple[Aws, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Homes]:
    """Homes of a race on AWS, in which Rally logs all that anything says."""
    with homes(tmp_path / "race") as own:
        monkeypatch.setenv(REHEARSAL_VARIABLE, instance[1])
        for name, value in own.variables.items():
            monkeypatch.setenv(name, value)
        (own.rally / "aws.toml").write_text(PLAN + NODE_TABLE + RACE)
        logging = json.loads((files("esrally") / "resources" / "logging.json").read_text())
        logging["root"]["level"] = "DEBUG"
        (own.rally / ".rally").mkdir()
        (own.rally / ".rally" / "logging.json").write_text(json.dumps(logging))
        yield own
        for session in running.sessions()[0]:
            if (own.run / session).exists():
                clean.take_down(session)


def test_nothing_that_a_race_on_aws_writes_holds_a_secret(
    racing: Homes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with refusing() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", url)
        ended = racing.race(
            f"--track-params=plan:{racing.rally / 'aws.toml'}", "--include-tasks=range_field_big_range"
        )
    assert ended.exit_code == 0, ended.output
    session = load_session(find_session(racing.pack, "latest"))
    assert [text for text in session.warnings if "SignatureDoesNotMatch" in text]  # it quoted every secret
    outputs = {
        "race": ended.output,
        "metrics store": json.dumps([d.fields for d in documents(session, "env")]),
    }
    for words in (["sessions", "--json"], *(["report", session.id, "--format", form] for form in RENDERERS)):
        assert main(words) == 0
        shown = capsys.readouterr()
        outputs[" ".join(words)] = shown.out + shown.err
    written = [racing.rally, racing.pack, racing.run]
    assert leaks(written, outputs, planted=PLANTED | HELD, but=is_image) == []
    # the search has seen the session, both race.json, and Rally's log with what is only said for a fault
    volume = session.arms[0].identity
    assert {"session.json", "report.html"} <= naming(volume, racing.pack)
    assert "race.json" in naming('"noaa-ebs"', racing.pack) & naming('"noaa-ebs"', racing.rally)
    assert "rally.log" in naming(" DEBUG ", racing.rally)


def naming(text: str, folder: Path) -> set[str]:
    """Names of the files below a folder in which the search finds a text."""
    places = leaks([folder], planted={"it": text}, but=is_image)
    return {Path(line.removesuffix(": it")).name for line in places}
