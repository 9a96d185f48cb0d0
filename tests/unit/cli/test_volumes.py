"""``run --accept`` and ``volumes list`` as they are typed: what reaches the plan, and what is printed."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_machine import FakeMachine

from esrally_ebs.cli import main
from esrally_ebs.machine.processes import Clock
from esrally_ebs.machine.resources import plan_path
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import Plan, load_plan, parse_plan
from esrally_ebs.rally.settings import plan_for
from esrally_ebs.session import manual, runs
from esrally_ebs.store import running
from esrally_ebs.store.context import Arm, Context, Member
from esrally_ebs.volumes.emulated.backend import members_of
from esrally_ebs.volumes.emulated.control import together
from esrally_ebs.volumes.emulated.daemon.admission import Admission

PLAN = """
name = "tiny"

[[arm]]
name = "a"
type = "directory"
mount = "{mount}"

[[baseline]]
name = "read"
rw = "randread"
bs = "4k"
"""


@pytest.fixture(autouse=True)
def run(own_folders: Path) -> Path:
    return own_folders / "run"


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Of fio alone; its path."""
    path = tmp_path / "tiny.toml"
    path.write_text(PLAN.format(mount=tmp_path))
    return str(path)


def test_volumes_load_nothing_of_what_reports_are_computed_with() -> None:
    code = "import sys; from esrally_ebs.cli import volumes; print([m for m in sys.modules if 'scipy' in m])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_accepted_checks_reach_the_plan_of_a_session_of_fio_alone(
    plan: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[tuple[str, ...]] = []

    def measure(plan: Plan, say: Callable[[str], None]) -> tuple[Path, str]:
        measured.append(plan.accept)
        return Path("home"), "the report"

    monkeypatch.setattr(runs, "measure_plan", measure)
    assert main(["run", plan, "--accept", "clock", "--accept", "other-io"]) == 0
    assert main(["run", plan]) == 0
    assert measured == [("clock", "other-io"), ()]
    assert capsys.readouterr().out.splitlines()[-2:] == ["the report", "The report is home/report.html"]


def test_accepted_checks_reach_the_plan_of_a_race_through_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands: list[Sequence[str]] = []

    def run_in_terminal(command: Sequence[str], env: object) -> int:
        commands.append(command)
        return 7

    monkeypatch.setattr(runs, "run_in_terminal", run_in_terminal)
    monkeypatch.setattr(runs, "be_called", lambda title: None)
    monkeypatch.setattr(runs, "running_races", lambda: ())
    assert main(["run", "smoke", "--set", "design.rounds=2", "--accept", "size"]) == 7
    (command,) = commands
    (params,) = [word.partition("=")[2] for word in command if word.startswith("--track-params=")]
    raced = plan_for(json.loads(params))
    assert (raced.accept, raced.design.rounds) == (("size",), 2)
    assert raced.name == load_plan(plan_path("smoke"), {}).name


@pytest.mark.parametrize("place", ["env/bin", "local/bin", "user/bin"])
def test_rally_is_called_where_pip_has_put_it(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(runs, "run_in_terminal", lambda command, env: called.append(command[0]) or 0)
    monkeypatch.setattr(runs, "be_called", lambda title: None)
    monkeypatch.setattr(runs, "running_races", lambda: ())
    monkeypatch.setattr(runs.sys, "executable", str(tmp_path / "env" / "bin" / "python"))
    monkeypatch.setattr(runs.sysconfig, "get_path", lambda name: str(tmp_path / "local" / "bin"))
    monkeypatch.setattr(runs.site, "getuserbase", lambda: str(tmp_path / "user"))
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "esrally").touch()
    assert runs.call_rally([], "smoke") == 0
    assert called == [str(tmp_path / place / "esrally")]


@pytest.mark.parametrize(("going_s", "waited_s"), [(0.0, 0.0), (1.0, 1.0), (1e9, 10.0)])
def test_a_race_waits_a_moment_for_one_before_it_that_rally_refuses_to_race_beside(
    going_s: float, waited_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s: list[float] = []
    clock = Clock(monotonic=lambda: sum(passed_s), sleep=passed_s.append)
    monkeypatch.setattr(runs, "run_in_terminal", lambda command, env: 0)
    monkeypatch.setattr(runs, "be_called", lambda title: None)
    monkeypatch.setattr(runs, "running_races", lambda: (1,) if sum(passed_s) < going_s else ())

    assert runs.call_rally([], "smoke", clock=clock) == 0
    assert sum(passed_s) == pytest.approx(waited_s, abs=0.2)


def test_a_check_that_there_is_none_of_is_one_line_before_anything_is_measured(
    plan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", plan, "--accept", "nosuch"]) == 2
    error = capsys.readouterr().err
    assert "tiny.toml: accept: no check is named 'nosuch'; use one of identity, " in error
    assert error.count("\n") == 1


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    made = FakeMachine(tmp_path / "machine")
    root = made.nvme("nvme0n1", "259:0", serial="vol00000000000000001")
    made.partition(root, "nvme0n1p1", "259:1")
    made.mount("/", "/dev/nvme0n1p1", "259:1", "ext4")
    for name, number in (("nvme1n1", "259:2"), ("nvme2n1", "259:3")):
        made.nvme(name, number, serial=f"vol0123456789abcdef{number[-1]}")
        made.mount(f"/mnt/{name}", f"/dev/{name}", number)
    monkeypatch.setattr(manual, "Roots", lambda: made.roots)
    return made


@pytest.fixture
def attached(machine: FakeMachine, plan: str, run: Path) -> None:
    """An arm in a folder of the second volume, as 'volumes up' leaves it."""
    volume = Volume(
        spec=VolumeSpec(name="gp3", type="mounted", size_bytes=100 * 1024**3),
        kind=Kind.EBS,
        mount=Path("/mnt/nvme2n1/ours"),
        device="nvme2n1",
        identity="vol-0123456789abcdef3",
    )
    running.begin("by-hand-tiny")
    arm = Arm(name="gp3", cluster="gp3", members=(Member(volume=volume),))
    folder = run / "by-hand-tiny"
    Context(session="by-hand-tiny", folder=folder, run=folder, plan=load_plan(Path(plan)), arms=(arm,)).save()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("│")[1:-1]]


@pytest.mark.usefixtures("attached")
def test_the_list_has_attached_arms_and_the_mounts_that_no_arm_is_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["volumes", "list"]) == 0
    rows = [cells(line) for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert rows == [
        ["gp3", "mounted", "ebs", "100.0 GiB", "nvme2n1", "/mnt/nvme2n1/ours"],
        [
            "/",
            "ebs",
            "ext4",
            "partition nvme0n1p1 on nvme0n1",
            "vol-00000000000000001",
            "the system's own disk",
        ],
        ["/mnt/nvme1n1", "ebs", "xfs", "nvme1n1", "vol-0123456789abcdef2", ""],
    ]


@pytest.mark.usefixtures("attached")
def test_the_list_as_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", "list", "--json"]) == 0
    listed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert [(each["attached"], each["mount"], each["device"], each["identity"]) for each in listed] == [
        (True, "/mnt/nvme2n1/ours", "nvme2n1", "vol-0123456789abcdef3"),
        (False, "/", "nvme0n1p1", "vol-00000000000000001"),
        (False, "/mnt/nvme1n1", "nvme1n1", "vol-0123456789abcdef2"),
    ]
    assert [each.get("root_device") for each in listed] == [None, True, False]


@pytest.mark.usefixtures("machine")
def test_without_an_attached_arm_every_mount_is_free(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", "list"]) == 0
    rows = [cells(line)[0] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert rows == ["/", "/mnt/nvme1n1", "/mnt/nvme2n1"]


@pytest.fixture
def striped(run: Path) -> Volume:
    """An emulated arm of two volumes that the kernel stripes, as 'volumes up' leaves it."""
    size = {"size_bytes": 100 * 1024**3, "stripes": 2}
    spec = VolumeSpec(name="gp3", type="gp3", striped_by="btrfs", instance="m5.large", **size)
    folder = running.begin("by-hand-tiny")
    volume = Volume(spec=spec, kind=Kind.EMULATED, mount=folder / "gp3" / "mnt", control=folder / "gp3")
    arm = Arm(name="gp3", cluster="gp3", members=(Member(volume=volume),))
    plan = parse_plan('name = "tiny"\n[[arm]]\nname = "gp3"\ntype = "gp3"\n', "tiny.toml")
    Context(session="by-hand-tiny", folder=folder, run=folder, plan=plan, arms=(arm,)).save()
    return volume


@pytest.mark.usefixtures("machine")
def test_the_list_has_the_size_of_a_stripe_as_reports_have_it(
    striped: Volume, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(manual, "mount_at", {striped.mount: "mounted"}.get)
    monkeypatch.setattr(manual, "mounts", lambda used: [])
    assert main(["volumes", "list"]) == 0
    assert "2 x 100.0 GiB" in capsys.readouterr().out


@pytest.mark.usefixtures("machine", "striped")
def test_the_list_has_no_emulated_arm_that_a_reboot_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", "list"]) == 0
    shown = capsys.readouterr()
    rows = [cells(line)[0] for line in shown.out.splitlines() if "│" in line]
    assert rows == ["/", "/mnt/nvme1n1", "/mnt/nvme2n1"]
    assert shown.err.startswith("gp3: not mounted any more, as after a reboot; 'esrally-ebs volumes down'")


def test_limiters_of_volumes_that_the_kernel_stripes_are_shown_with_those_of_their_instance(
    striped: Volume, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"seed": 1, "credits": 1.0, "time_scale": 1.0, "instance_page": None}
    states = {
        str(number): Admission({**settings, "model": model.to_json()}, 0.0).state(0.0, in_flight=0, errors=0)
        for number, (_, model) in enumerate(members_of(striped.spec), 1)
    }
    monkeypatch.setattr(manual, "read_state", lambda control: together(states))
    assert main(["volumes", "show", "gp3"]) == 0
    limits = [cells(line)[0] for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert {"1-iops", "2-throughput", "1-instance-iops", "2-instance-throughput"} <= set(limits)
