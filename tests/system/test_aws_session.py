"""Looking at AWS over real HTTP, and a whole session whose arms moto has made, loop devices as volumes."""

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from instance_on_moto import make_instance
from moto_server import ACCOUNT, KEY_ID, SECRET, TOKEN, Moto

from esrally_ebs import clean
from esrally_ebs.aws import cloudwatch, describe
from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.provision.place import REHEARSAL_VARIABLE
from esrally_ebs.cli import main
from esrally_ebs.resources import run_dir
from esrally_ebs.store import find_session, load_session
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


@pytest.fixture
def instance(aws: Moto) -> tuple[Aws, str, str]:
    """An instance with one gp2 volume besides its own: the way to AWS, and both ids."""
    api = Aws()
    return api, *make_instance(api, size_gib=100)


def test_aws_is_understood_as_it_answers(instance: tuple[Aws, str, str]) -> None:
    api, instance_id, volume = instance
    told = describe.describe_volumes(api, [volume])[volume]
    assert (told.type, told.size_bytes, told.state) == ("gp2", 100 * 1024**3, "in-use")
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


def put(api: Aws, volume: str, metric: str, *values: float) -> None:
    """Values of the last minutes, one a minute."""
    now = datetime.datetime.now(datetime.UTC)
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


def test_cloudwatch_tells_the_latest_balance(instance: tuple[Aws, str, str]) -> None:
    api, _, volume = instance
    put(api, volume, "BurstBalance", 90.0, 80.0)
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert cloudwatch.burst_balances(api, [volume], now) == {volume: pytest.approx(0.8)}


@pytest.fixture
def rehearsed(
    instance: tuple[Aws, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """Home and run directory of a rehearsal on the instance; what a failing session leaves is taken down."""
    monkeypatch.setenv(REHEARSAL_VARIABLE, instance[1])
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    (tmp_path / "rehearsed.toml").write_text(PLAN)
    yield tmp_path
    for session in clean.live_sessions():
        if (run_dir() / session).exists():
            clean.take_down(session)


def command(*words: str) -> tuple[int, str]:
    """Exit code and all that was printed of one ``esrally-ebs``."""
    program = Path(sys.executable).with_name("esrally-ebs")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


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
    put(api, volume, "BurstBalance", 99.0)
    assert main(["cloudwatch", session.id]) == 0
    assert main(["report", session.id]) == 0
    told = capsys.readouterr().out
    assert told.startswith("1 new values of ")
    assert "burst balance" in told
    printed += told
    kept = [file.read_bytes() for file in rehearsed.rglob("*") if file.is_file() and file.name != "image"]
    assert len(kept) > 10
    for secret in (ACCOUNT, KEY_ID, SECRET, TOKEN):
        assert secret not in printed
        assert not [text for text in kept if secret.encode() in text]
    assert volume in printed


def test_a_gp3_that_is_slower_than_gp2_is_not_measured(rehearsed: Path) -> None:
    plan = rehearsed / "slow.toml"
    plan.write_text(PLAN.replace('"128MiB/s"', '"125MiB/s"'))
    code, printed = command("run", str(plan))
    assert code == 4
    assert "gp3-throughput: gp3 (gp3) has 125 MiB/s, gp2 (gp2) reaches 128" in printed
    assert not list(run_dir().iterdir())
