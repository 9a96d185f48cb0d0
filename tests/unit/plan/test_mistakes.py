"""Mistakes in plans, options, mounts and names: one line each, exit code 2, nothing attached, no session.

The line names the file and the key (or the option), the value, what is allowed, and a near name, if any. The
mistakes in plans stand in ``mistakes.txt``, each with its line; all are made with the command itself.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir

import pytest
from esrally import actor
from esrally.track import loader

from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.resources import resource
from esrally_ebs.rally import any_track, local_actors, patches
from esrally_ebs.rally.settings import plan_for

ARM = 'name = "p"\n[[arm]]\nname = "a"\ntype = "gp3"\n'
LINES = {
    "ARM": ARM,
    "SECOND": '[[arm]]\nname = "b"\ntype = "gp2"\n',
    "JOB": '[[baseline]]\nname = "j"\nrw = "read"\nbs = "16k"\n',
    "HOST": '[[host]]\nname = "x"\nssh = "ssh://root@10.0.0.2:22"\n',
}

TABLE = Path(__file__).with_name("mistakes.txt")
PLANS = [tuple(block.split("\n=> ")) for block in TABLE.read_text().split("\n\n")[1:]]
OF_A_RUN = ("accept", "baseline.0.stonewall", "cost.prices", "race.track")  # 'volumes up' measures nothing

COMMANDS = {
    "run gp2-vs-gp4": "plan 'gp2-vs-gp4': there is none of that name; choose one of ",
    "run /none/p.toml": "/none/p.toml: No such file or directory; plans are TOML files such as ",
    "run gp2-vs-gp3 --set design.round=3": "design.round: unknown key; there are rounds, max_rounds,",
    "run gp2-vs-gp3 --set rounds=3": "rounds: unknown key; there are name, aws, arm,",
    "run gp2-vs-gp3 --set arm.size=1": "--set arm.size: only tables can be set; edit the plan for",
    "run gp2-vs-gp3 --set rounds": "--set rounds: write KEY=VALUE, for example --set design.rounds=2",
    "race --track-path=nowhere": "--track-path nowhere: there is no such track; name its directory",
    "race --track-path=": "--track-path .: there is no such track; name its directory",
    "race --track-path=/dev/null": "--track-path /dev/null: there is no such track; name its",
    "run gp2-vs-gp3 --sessions 1001": "'--sessions': Input should be less than or equal to 1000",
    "report latest": "none in ",
    "report ''": "session '': an empty name; is a variable of your shell not set?",
    "dashboard --output /": "/: is the path of a folder; name a file in it",
    "dashboard --output /none/d": "/none/d: there is no folder /none; make it first",
    "sessions --state done": "'--state': 'done' is not one of 'running', 'complete', ",
    "sessions --lst 2": "see 'esrally-ebs sessions --help'",
    "usage log --size 100": "--size 100 is no whole GiB, which AWS counts in; write for example 100GiB",
    "usage log --size 500GB": "--size 500GB is no whole GiB, which AWS counts in; write for example 466GiB",
    "usage log --size 1GiB": "log: no such file; session 'log': not found in ",
    "usage latest --size 1GiB": "latest: no such file; session 'latest': none in ",
    "advise x --keep p99<100ms": "--keep p99<100ms: write pNN=TIME, a percentile from p50 to p99.9 and a",
    "report x --against=": "--against '': an empty value; is a variable of your shell not set?",
    "gate x --max-slowdown p50=5% --base ''": "--base '': an empty value; is a variable of your shell not",
    "report x --output nowhere/": "nowhere/: is the path of a folder; name a file in it",
    "gate x --max-slowdown p50=5% --junit nowhere/": "nowhere/: is the path of a folder; name a file in it",
    "usage log --size 66TiB": "gp3 volume 'today': 67584 GiB is outside 1 to 65,536 GiB",
    "usage log --size 1GiB --throughput 250MB/s": "--throughput 250MB/s is no whole MiB/s, which AWS",
    "usage log --size 1GiB --throughput 0": "--throughput 0 is no whole MiB/s, which AWS counts in; write",
    "usage log --size 1GiB --iops 0": "'--iops': Input should be greater than or equal to 1",
    "trace --size=1GiB --from=/dev/null --began=1970-01-01T00:00:00+01:00": "choose a time of the years 1971",
    "usage log --size 1GiB --throughput 250": "which AWS counts in; write for example 250MiB/s",
    "study nikei-2021": "did you mean 'nikkei-2021'?",
    "run gp2-vs-gp3 --accept clok": "accept: no check is named 'clok'; use one of ",
    "simulate gp2-vs-gp3 --set race.tracks=x": "race.tracks: unknown key; there are track, challenge,",
}

PARAMETERS = {
    "plan=gp2-vs-gp4": "plan 'gp2-vs-gp4': there is none of that name; choose one of .*; did you mean 'gp2",
    "cache=could": "cache.mode: 'could' is not allowed: .* 'warm' or 'steady'; did you mean 'cold'",
    "volumes=A=/dev/shm": "arm.0.name: 'A' is not a name; use up to 31 lower-case letters, digits and",
}


@pytest.fixture(autouse=True)
def _machine(own_folders: Path) -> None:
    (own_folders / "here").mkdir()
    (own_folders / "file").write_text("x")


def _refused(words: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command is refused with, after which nothing is left behind."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert not (tmp_path / "home" / "sessions").exists()
    assert not (tmp_path / "run").exists()
    return line.removeprefix("esrally-ebs: ")


def test_there_are_at_least_forty() -> None:
    assert len(PLANS) >= 40


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (number, command)
        for number, (_, line) in enumerate(PLANS)
        for command in ("run", "volumes up")
        if command == "run" or not line.startswith(OF_A_RUN)
    ],
)
def test_a_mistake_in_a_plan(
    number: int, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "p.toml"
    text, line = PLANS[number]
    whole = "".join(LINES.get(line, f"{line}\n") for line in text.splitlines())
    plan.write_text(whole.replace("DIR", str(tmp_path)))
    expected = line.strip().replace("DIR", str(tmp_path)).replace("PACK", str(resource("tracks").parent))
    refused = _refused((*command.split(), str(plan)), tmp_path, capsys)
    # a mount that another test has at the moment may have a near name
    assert refused.partition(f"; did you mean '{gettempdir()}/")[0] == f"{plan}: {expected}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistake_in_a_command(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS[command] in _refused(shlex.split(command), tmp_path, capsys)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_mistake_in_a_track_parameter(parameter: str) -> None:
    name, _, value = parameter.partition("=")
    with pytest.raises(PlanError, match=PARAMETERS[parameter]) as refused:
        plan_for({name: value})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("iop", "iops"), ("siez", "size"), ("trougput", "throughput"), ("instnace", "instance")],
)
def test_a_key_that_is_nearly_right_is_asked_about_at_the_end(
    word: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.toml").write_text(f"{ARM}{word} = 1\n")
    line = _refused(("run", str(tmp_path / "p.toml")), tmp_path, capsys)
    assert line.endswith(f"; did you mean '{meant}'?")


def test_a_track_parameter_that_there_is_none_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rally looks for one before it loads the pack by the track: the pack is in its command already."""
    known = loader.CompleteTrackParams
    # what other tests have installed, and what is installed here, goes with this test
    for patch in (patches.FAILURE, *patches.LOADING):
        monkeypatch.setattr(patch.owner, patch.name, patches.unpatched(patch.owner, patch.name))
    monkeypatch.setattr(patches, "_UNPATCHED", {})
    local_actors.refuse_in_one_line(known)
    assert isinstance(actor.BenchmarkFailure, type)  # Rally's main process asks what is one
    given = known(user_specified_track_params={"plann": "x"})
    given.populate_track_defined_params(["plan", "volumes", "rounds"])
    with pytest.raises(PlanError) as refused:
        given.unused_user_defined_track_params()
    assert str(refused.value) == (
        "track parameter plann: the track has none of that name; it has plan, rounds, volumes;"
        " did you mean 'plan'?"
    )
    assert actor.BenchmarkFailure("in 20 lines").exit_code == 64  # race control makes ours from now on

    of_another_track = known(user_specified_track_params={"plann": "x"})
    of_another_track.populate_track_defined_params(["bulk_size"])
    assert of_another_track.unused_user_defined_track_params() == ["plann"]
    for name, value in any_track.environment({"plan": "smoke"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(PlanError, match=r"^track parameter plann: .* of that name; it has bulk_size$"):
        of_another_track.unused_user_defined_track_params()
