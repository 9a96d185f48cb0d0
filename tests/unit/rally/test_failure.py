"""Our errors on their way through Rally's actors to its main process."""

import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from esrally import actor, racecontrol
from esrally.track import loader
from rally_configuration import as_our_command
from thespian.actors import ActorAddress, ActorExitRequest, ChildActorExited

from esrally_ebs.errors import EbsError, MeasurementError, PlanError, SetupError
from esrally_ebs.rally import any_track, patches
from esrally_ebs.rally.patches.outcome import RaceFailure, failure_of, receive_failure


def test_an_error_of_ours_becomes_its_one_line_and_its_exit_code() -> None:
    failure = failure_of(PlanError("plan x: wrong"), "Traceback ...")
    assert (failure.message, failure.exit_code) == ("plan x: wrong", 2)


@pytest.mark.parametrize("error", [PlanError("plan \x1b[31m: wrong"), ValueError("x")])
def test_no_failure_hands_an_escape_to_the_terminal(error: Exception) -> None:
    assert "\x1b" not in failure_of(error, "Error in track [\x1b[31m]").message


def test_our_error_is_found_behind_rallys_wrapping() -> None:
    wrapped = RuntimeError("wrapped by Rally")
    wrapped.__cause__ = MeasurementError("not cold")
    assert failure_of(wrapped, "Traceback ...").exit_code == 4


def test_any_other_error_keeps_rallys_own_message_cause_and_exit_code() -> None:
    failure = failure_of(ValueError("x"), "Traceback ...", "why")
    assert (failure.message, failure.cause, failure.exit_code) == ("Traceback ...", "why", 64)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (
            OSError(28, "No space left on device"),
            r"what Rally reads or writes: No space left on device; .*",
            3,
        ),
        (PermissionError(13, "Permission denied", "/x/race.json"), r"/x/race.json: Permission denied; .*", 3),
        (ValueError("a\nb"), r"ValueError in test_failure.py:\d+: a b; Rally's log has the traceback", 64),
    ],
)
def test_rallys_tracebacks_are_one_line(error: Exception, message: str, code: int) -> None:
    try:
        raise error
    except type(error):
        text = f"KeyError: what came first\n\n{traceback.format_exc()}"
        failure = failure_of(error, text)
    assert re.fullmatch(message, failure.message)
    assert failure.exit_code == code


def test_what_the_machine_refused_is_found_behind_rallys_wrapping() -> None:
    wrapped = RuntimeError("Cannot load track")
    wrapped.__cause__ = FileNotFoundError(2, "No such file or directory", "/arm0/mnt")
    failure = failure_of(wrapped, "Traceback (most recent call last):")
    assert (failure.message.partition(";")[0], failure.exit_code) == (
        "/arm0/mnt: No such file or directory",
        3,
    )


@pytest.mark.usefixtures("rally")
def test_every_failure_can_be_sent_where_rallys_own_name_is_replaced() -> None:
    patches.install([patches.FAILURE])
    arrived = pickle.loads(pickle.dumps(actor.BenchmarkFailure("Error in load generator", "why")))
    assert (arrived.message, arrived.cause, arrived.exit_code) == ("Error in load generator", "why", 64)


def test_rally_takes_our_failure_for_its_own() -> None:
    rallys_own = patches.unpatched(actor, "BenchmarkFailure")
    assert isinstance(pickle.loads(pickle.dumps(RaceFailure("text", 3))), rallys_own)


class Ending:
    """Hears of a race's end, as a session does."""

    why = ""

    def __init__(self) -> None:
        self.faults: list[EbsError] = []

    def fail(self, error: EbsError) -> None:
        self.faults.append(error)

    def first_fault(self) -> tuple[str, int] | None:
        return (str(self.faults[0]), self.faults[0].exit_code) if self.faults else None

    def load_may_go(self) -> None: ...

    def complete(self) -> None: ...
    def end(self, cancelled: bool) -> None: ...
    def last_line(self) -> str: ...


class Control(racecontrol.BenchmarkActor):  # type: ignore[misc]
    """Race control with two children, in no system of actors."""

    def __init__(self) -> None:
        super().__init__()
        self.main_driver, self.mechanic = ActorAddress("driver"), ActorAddress("mechanic")
        self.coordinator = racecontrol.BenchmarkCoordinator(None)
        self.sent: list[object] = []

    def send(self, to: object, message: object) -> None:
        self.sent.append(message)


@pytest.mark.usefixtures("rally")
@pytest.mark.parametrize(
    ("child", "exits", "failure"),
    [
        ("driver", False, "Rally's driver was killed; all was taken down, start the race again"),
        ("mechanic", False, "Rally's mechanic was killed; all was taken down, start the race again"),
        ("another", False, ""),
        ("driver", True, ""),
    ],
)
def test_a_race_does_not_wait_for_a_part_of_rallys_that_was_killed(
    child: str, exits: bool, failure: str
) -> None:
    ending = Ending()
    patches.install(patches.RACE_CONTROL, ending)
    control = Control()
    if exits:
        control.receiveMessage(ActorExitRequest(), "anybody")
    control.receiveMessage(ChildActorExited(ActorAddress(child)), "anybody")
    assert [str(fault) for fault in ending.faults] == ([failure] if failure else [])
    assert [(sent.message, sent.exit_code) for sent in control.sent] == ([(failure, 3)] if failure else [])


def test_the_session_learns_in_one_line_what_rally_says_of_a_race_that_failed() -> None:
    ending, sent = SimpleNamespace(first_fault=lambda: None, why=""), []
    said = RaceFailure("Request returned an error.\n\tError type: api")
    later = RaceFailure("Worker has exited")
    for failure in (said, later):
        receive_failure(lambda _, failure, __: sent.append(failure), ending, None, failure, "driver")
    assert (ending.why, sent) == ("Request returned an error. Error type: api", [said, later])


def test_where_the_failure_arrives_rallys_exit_code_becomes_ours_and_no_other_changes() -> None:
    # Rally's main process ends with rally.sys.exit(64) for every error, and with 130 for Ctrl-C.
    code = """
import pickle, sys
from esrally import rally
pickle.loads(bytes.fromhex(sys.argv[1]))
try:
    rally.sys.exit(130)
except SystemExit as cancelled:
    print(cancelled.code)
rally.sys.exit(64)
"""
    message = pickle.dumps(RaceFailure("text", SetupError.exit_code)).hex()
    command = [sys.executable, "-c", code, message]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("130\n", 3)


@pytest.mark.usefixtures("rally")
def test_an_error_of_the_tracks_own_processor_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a processor runs before the pack's."""
    text = "class Own:\n    def on_after_load_track(self, track):\n        {}['body']\n"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "track.py").write_text(
        f"{text}def register(registry):\n    registry.register_track_processor(Own())\n"
    )
    as_our_command(monkeypatch, {"plan": "smoke"})
    copy = SimpleNamespace(TrackPluginReader=type("Reader", (loader.TrackPluginReader,), {}))
    any_track.join(copy)  # type: ignore[arg-type]
    made: list[Any] = []
    copy.TrackPluginReader(str(tmp_path / "mine"), track_processor_registry=made.append).load()
    try:
        made[0].on_after_load_track(None)
    except KeyError:
        failure = actor.BenchmarkFailure(traceback.format_exc())  # as Rally's actors do
    assert failure.message == "KeyError in track.py:3: 'body'; Rally's log has the traceback"
