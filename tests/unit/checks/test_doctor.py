"""What the doctor says of a machine; machines are made up here, only the last tests look at this one."""

import errno
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from ended_process import ended_process

from esrally_ebs.checks import requirements
from esrally_ebs.checks.requirements import Machine, check_machine, checks_of, is_race, version_of
from esrally_ebs.cli import main
from esrally_ebs.machine import processes
from esrally_ebs.machine.caller import Caller
from esrally_ebs.model import LOCAL_IMAGE, OFFICIAL_IMAGE, Check, Severity
from esrally_ebs.units import GIB

GOOD = Machine(
    root=True,
    engine="28.2.2",
    compose="2.29.7",
    image=OFFICIAL_IMAGE,
    images=(OFFICIAL_IMAGE, LOCAL_IMAGE),
    fio="fio-3.33",
    mkfs_xfs="mkfs.xfs version 6.1.0",
    losetup="losetup from util-linux 2.38.1",
    fuse=True,
    loop_control=True,
    filesystems=("ext4", "xfs"),
    store_free_bytes=16 * GIB,
    home=Path("/home/ada/ebs"),
    home_free_bytes=100 * GIB,
    open_files=65_536,
    memory_maps=262_144,
)


def failed(machine: Machine) -> dict[str, Check]:
    return {check.name: check for check in checks_of(machine) if not check.ok}


def test_a_good_machine_passes_every_check() -> None:
    assert failed(GOOD) == {}


@pytest.mark.parametrize(
    ("worse", "name", "mend"),
    [
        ({"root": False}, "root", "sudo"),
        ({"tracing_problem": "tracefs is not mounted; run mount"}, "tracepoints", "tracefs is not mounted"),
        ({"hook": False}, "rally's actors", "make setup"),
        ({"listening": ("0.0.0.0:1900",)}, "rally's actors", "ESRALLY_EBS_ACTORS in docs/reference.md"),
        ({"engine": None, "image": None}, "docker engine", "make setup"),
        ({"compose": None}, "docker compose", "docker-compose-plugin"),
        ({"compose": "1.29.2"}, "docker compose", "version 2"),
        ({"image": None}, "elasticsearch image", "ES_IMAGE"),
        ({"fio": None}, "fio", "apt-get install fio"),
        ({"fio": "fio-2.19"}, "fio", "3.0 or newer"),
        ({"mkfs_xfs": None}, "mkfs.xfs", "xfsprogs"),
        ({"losetup": None}, "losetup", "apt-get install mount"),
        ({"filesystems": ("ext4",)}, "xfs", "modprobe xfs"),
        ({"fuse": False}, "fuse", "--device /dev/fuse"),
        ({"loop_control": False}, "loop devices", "modprobe loop"),
        ({"store_free_bytes": GIB}, "memory for volumes", "remount"),
        ({"home_free_bytes": GIB}, "disk for sessions", "ESRALLY_EBS_HOME"),
        ({"open_files": 1024}, "open files", "ulimit -n"),
        ({"memory_maps": 65_530}, "vm.max_map_count", "sysctl -w"),
        ({"races": (71, 72)}, "no other race", "wait"),
    ],
)
def test_what_is_missing_is_named_with_its_mend(worse: dict[str, object], name: str, mend: str) -> None:
    problems = failed(replace(GOOD, **worse))  # type: ignore[arg-type]
    assert mend in problems[name].text
    assert problems.keys() <= {name, "elasticsearch image"}  # without an engine no image can be seen


def test_every_text_is_one_line() -> None:
    bad = replace(GOOD, root=False, engine=None, compose=None, image=None, fio=None, fuse=False, races=(1,))
    assert not [check for check in checks_of(bad) if "\n" in check.text + check.value or not check.text]


def test_a_compose_built_from_source_is_accepted() -> None:
    assert failed(replace(GOOD, compose="dev")) == {}


def test_the_local_image_runs_with_few_memory_maps() -> None:
    local = replace(GOOD, image="esrally-ebs/elasticsearch:8.8.2", memory_maps=65_530)
    assert failed(local) == {}


def test_the_engines_own_words_are_shown_when_it_does_not_answer() -> None:
    denied = "docker version: exit code 1: permission denied on /var/run/docker.sock"
    machine = replace(GOOD, engine=None, engine_problem=denied)
    assert failed(machine)["docker engine"].value == denied


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("fio-3.33", (3, 33)),
        ("losetup from util-linux 2.38.1", (2, 38, 1)),
        ("v2.29.7", (2, 29, 7)),
        ("20.10.24+dfsg1", (20, 10, 24)),
        ("dev", ()),
        (None, ()),
    ],
)
def test_versions_are_read_from_what_tools_say(text: str | None, version: tuple[int, ...]) -> None:
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("command", "argv", "race"),
    [
        ("esrally", ["/x/.venv/bin/python", "/x/.venv/bin/esrally", "race"], True),
        ("python3.11", ["python3", "-m", "esrally", "race"], True),
        ("python3.11", ["python3", "-m", "mypy", "esrally_ebs"], True),  # Rally refuses beside this one too
        ("python3.11", ["python3", "esrallyd", "start"], False),
        ("esrally-ebs", ["/x/.venv/bin/python", "/x/.venv/bin/esrally-ebs", "doctor"], False),
        ("ebs-volume", ["ebs-volume gp2"], False),
        ("vim", ["vim", "esrally_ebs/cli.py"], False),
        ("", [], False),
    ],
)
def test_a_race_is_what_rally_takes_for_one(command: str, argv: list[str], race: bool) -> None:
    assert is_race(command, argv) is race


def test_a_race_that_has_ended_is_none_although_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "is_race", lambda *_: True)
    with ended_process() as ended, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as runs:
        races = requirements.running_races()
        assert (ended in races, runs.pid in races) == (False, True)


SHARED = Check(name="processors", ok=False, value="steal 9%", text="shared", severity=Severity.WARN)
MISSING = Check(name="fio", ok=False, value="not found", text="apt-get install fio")


@pytest.mark.parametrize(
    ("checks", "code", "marks"), [([SHARED], 0, ["warning"]), ([SHARED, MISSING], 3, ["warning", "mend"])]
)
def test_a_warning_is_shown_and_only_what_is_missing_is_an_error(
    checks: list[Check],
    code: int,
    marks: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(requirements, "check_machine", lambda signatures: checks)

    assert main(["doctor"]) == code
    lines = capsys.readouterr().out.splitlines()
    for check, mark in zip(checks, marks, strict=True):
        assert [line for line in lines if mark in line and check.name in line and check.text in line]

    assert main(["doctor", "--json"]) == code
    severities = [record["severity"] for record in json.loads(capsys.readouterr().out)]
    assert severities == [check.severity.value for check in checks]


def test_a_tool_of_roots_is_there_also_where_cron_or_su_leaves_its_folder_out_of_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tool := tmp_path / "mkfs.of-root").write_text("#!/bin/sh\necho 6.1.0\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert "/usr/local/bin" in processes.tool_environment()["PATH"].split(":")  # Docker's, by hand
    monkeypatch.setattr(processes, "_OFTEN_LEFT_OUT", str(tmp_path))
    assert requirements._ask(tool.name)[0] == "6.1.0"
    assert processes.run([tool.name], timeout_s=20) == "6.1.0\n"
    assert processes.which(tool.name) == str(tool)


@pytest.mark.parametrize(
    ("error", "root", "there"),
    [(errno.EACCES, False, True), (errno.EACCES, True, False), (errno.EPERM, False, False)],
)
def test_a_device_that_root_alone_may_open_is_there(
    error: int, root: bool, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(requirements.os, "open", refuse)
    monkeypatch.setattr(requirements.system, "is_root", lambda: root)
    assert requirements._opens("/dev/loop-control") is there


def test_processors_are_looked_at() -> None:
    (check,) = (check for check in check_machine() if check.name == "processors")
    assert check.value.startswith("steal ")
    assert not check.forbids


def test_the_checks_of_rally_follow_those_of_the_machine() -> None:
    rally = Check(name="rally version", ok=True, value="2.13.0", text="tested")
    assert check_machine(lambda: [rally])[-1] is rally


def test_by_sudo_there_must_be_room_where_the_callers_sessions_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESRALLY_EBS_HOME", raising=False)
    ada = Caller(uid=1000, gid=1000, name="ada", home="/home/ada")
    monkeypatch.setattr(requirements, "caller", lambda: ada)
    assert requirements._home() == Path("/home/ada/.rally/benchmarks/ebs")
    monkeypatch.setenv("ESRALLY_EBS_HOME", "/data/ebs")
    assert requirements._home() == Path("/data/ebs")
