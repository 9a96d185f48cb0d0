"""What an environment or a plan must not hand on: passwords, keys and tokens, and places of the caller's."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shared_python import NOBODY

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.processes import run, tool_environment
from esrally_ebs.model import names_secret
from esrally_ebs.node.settings import environment_file
from esrally_ebs.plan import parse_plan
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.workload.corpus import convert

SECRET = "hunter2-hunter2"
KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "RALLY_REPORTING_DATASTORE_PASSWORD",
)
PLAN = 'name = "p"\n[[arm]]\nname = "a"\ntype = "gp2"\n[[arm]]\nname = "b"\ntype = "gp3"\n'
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", ["xpack.notification.x.secure_password", "s3.client.default.secret_key", "x.api-key"]
)
def test_a_node_parameter_that_looks_like_a_secret_is_refused_without_its_value(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.toml"
    plan.write_text(f'{PLAN}[race]\n[node.params]\n"{name}" = "{SECRET}"\n')
    assert main(["run", str(plan)]) == 2
    printed = capsys.readouterr().err
    assert f"node.params: {name} looks like a secret" in printed
    assert SECRET not in printed
    with pytest.raises(PlanError, match="looks like a secret") as raised:
        load_settings(["defaults"], {name: SECRET})
    assert SECRET not in str(raised.value)


def test_a_password_among_the_options_of_java_is_refused() -> None:
    options = f"-Xss1m -Djavax.net.ssl.trustStorePassword={SECRET}"
    with pytest.raises(PlanError, match="trustStorePassword looks like a secret") as raised:
        parse_plan(f'{PLAN}[node.params]\njava_opts = "{options}"\n', "p.toml")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "name", ["indices.queries.cache.size", "AWS_WEB_IDENTITY_TOKEN_FILE", "index.analyze.max_token_count"]
)
def test_what_only_sounds_like_one_is_none(name: str) -> None:
    assert not names_secret(name)


def test_no_tool_has_our_keys_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.setenv(key, SECRET)
    assert SECRET not in tool_environment().values()
    for env in (None, {"MORE": "x"}):
        assert SECRET not in run(["env"], timeout_s=10, env=env)


def test_a_daemon_that_a_tool_leaves_has_none_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS[1], SECRET)
    script = "import os, time, pathlib\nif os.fork(): os._exit(0)\n"
    script += "pathlib.Path('new').write_text(str(os.getpid()))\nos.rename('new', 'pid')"
    run([sys.executable, "-c", f"{script}\nos.closerange(0, 3)\ntime.sleep(9)"], timeout_s=10, cwd=tmp_path)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    environment = Path(f"/proc/{(tmp_path / 'pid').read_text()}/environ").read_bytes()
    assert b"PATH=" in environment
    assert SECRET.encode() not in environment


@pytest.mark.parametrize(
    "options",
    [
        [f"--client-options=basic_auth_password:'{SECRET}'", "--offline"],
        ["--client-options", f'{{"default": {{"api_key": "{SECRET}"}}}}', "--offline"],
    ],
)
def test_the_log_of_a_race_has_no_password_of_its_options(options: list[str]) -> None:
    script = 'source scripts/common.sh; masked "$@"'
    words = ["bash", "-c", script, "bash", "esrally", *options]
    shown = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.replace("=", " ") == "esrally --client-options ... --offline\n"
    assert 'say "$(masked "${race[@]}")"' in (ROOT / "scripts/race.sh").read_text()


@pytest.mark.parametrize("value", ["x\\", "it\\'s", "\\"])
def test_no_setting_ends_the_quotes_of_another(value: str) -> None:
    with pytest.raises(PlanError, match=r"car variable a\.b: a backslash"):
        environment_file({"a.b": value, "c.d": " ES_EVIL=1"})


def test_a_file_whose_name_is_an_option_is_a_file_to_sort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lists = {name: Path(name) for name in ("stations", "countries", "states")}
    for path in lists.values():
        path.write_text("")
    Path("-ostolen").write_text("AE000041196,20160101,TMIN,155,,,S,\n")
    with pytest.raises(PlanError, match="no row belongs to a station"):
        convert([Path("-ostolen")], Path("out"), **lists)
    assert not Path("stolen").exists()
    Path("bad.csv.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 40)
    with pytest.raises(PlanError, match="cannot be read as gzip"):
        convert([Path("bad.csv.gz")], Path("out"), **lists)


KEEPS = """\
import os, sys, tempfile
from esrally_ebs.session import keeper
listener, _ = keeper.bound()
_, ready = os.pipe()
child = os.fork() or os._exit(0)
keeper.main([str(number) for number in (listener.detach(), ready, child, int(sys.argv[1]))])
print(tempfile.gettempdir(), [name for name in os.environ if name.startswith("DOCKER")])
"""


@pytest.mark.parametrize("variable", ["TMPDIR", "TEMP", "TMP", "DOCKER_CONFIG", "DOCKER_CERT_PATH"])
def test_root_keeps_no_files_where_the_user_can_exchange_them(
    run: Path, variable: str, tmp_path: Path
) -> None:
    """'sudo -E' leaves root these variables: Compose would run what the user writes there."""
    env = {"ESRALLY_EBS_RUN": str(run), "PATH": os.defpath, variable: str(tmp_path)}
    words = [sys.executable, "-c", KEEPS, str(NOBODY)]
    said = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said == "/tmp []\n"
