"""The order of a session's stages, and what is taken down and reported after a failure at each."""

from pathlib import Path

import pytest
from esrally.utils import console
from recorded_steps import RecordedSession

from esrally_ebs.errors import EbsError, MeasurementError, PlanError, SetupError
from esrally_ebs.model import State
from esrally_ebs.rally import processor
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.store import load_session

PREPARED = [
    *("check plan", "record", "preflight", "begin"),
    *("attach", "check", "copy", "start nodes", "describe"),
]
ENDED = ["take down"]


def test_volumes_are_attached_and_checked_before_anything_is_copied_and_nodes_start_last(
    tmp_path: Path,
) -> None:
    steps = RecordedSession(tmp_path)
    context = LiveSession(steps).prepare()
    assert steps.order == PREPARED
    assert [arm.name for arm in context.arms] == ["a"]


def test_fio_alone_needs_no_index_and_no_node(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, with_nodes=False)
    LiveSession(steps).prepare()
    assert steps.order == [step for step in PREPARED if step not in ("copy", "start nodes")]


def test_what_was_measured_is_reported_after_all_is_taken_down(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path)
    live = LiveSession(steps)
    live.prepare()
    assert live.complete() == "the report"
    assert steps.order == [*PREPARED, "verify", "take down", "collect", "report"]


def test_arms_that_were_not_brought_back_to_the_same_bytes_are_not_reported(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, fails_at="verify", error=MeasurementError("other bytes"))
    live = LiveSession(steps)
    live.prepare()
    with pytest.raises(MeasurementError, match="other bytes"):
        live.complete()
    assert steps.order == [*PREPARED, "verify", "record fault", "take down"]
    assert load_session(tmp_path / "sessions" / "s").state is State.FAILED


@pytest.mark.parametrize("stage", PREPARED[2:])
@pytest.mark.parametrize("error", [SetupError("no room"), MeasurementError("no"), ValueError("a bug")])
def test_a_failure_at_any_stage_is_recorded_then_all_is_taken_down_and_nothing_else_is_done(
    tmp_path: Path, stage: str, error: Exception
) -> None:
    steps = RecordedSession(tmp_path, fails_at=stage, error=error)
    with pytest.raises(type(error), match=str(error)):
        LiveSession(steps).prepare()
    assert steps.order == [*PREPARED[: PREPARED.index(stage) + 1], "record fault", "take down"]
    assert load_session(tmp_path / "sessions" / "s").state is State.FAILED


def test_a_plan_that_cannot_be_carried_out_leaves_no_session(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, fails_at="check plan", error=PlanError("no such mount"))
    with pytest.raises(PlanError, match="no such mount"):
        LiveSession(steps).prepare()
    assert steps.order == ["check plan"]
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_could_not_be_recorded_takes_nothing_down(tmp_path: Path) -> None:
    """Its id may be another session's, which runs."""
    steps = RecordedSession(tmp_path, fails_at="record", error=SetupError("exists already"))
    with pytest.raises(SetupError, match="exists already"):
        LiveSession(steps).prepare()
    assert steps.order == ["check plan", "record"]


@pytest.mark.parametrize("stage", PREPARED[2:])
def test_ctrl_c_at_any_stage_takes_all_down_and_is_no_fault(tmp_path: Path, stage: str) -> None:
    steps = RecordedSession(tmp_path, fails_at=stage, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        LiveSession(steps).prepare()
    assert steps.order == [*PREPARED[: PREPARED.index(stage) + 1], "take down"]
    session = load_session(tmp_path / "sessions" / "s")
    assert (session.state, session.reason) == (State.CANCELLED, "cancelled by the user")


def test_ctrl_c_while_all_is_taken_down_leaves_the_session_cancelled(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, fails_at="take down", error=KeyboardInterrupt())
    live = LiveSession(steps)
    live.prepare()
    with pytest.raises(KeyboardInterrupt):
        live.fail(KeyboardInterrupt())
    assert load_session(tmp_path / "sessions" / "s").state is State.CANCELLED


def test_all_is_taken_down_although_the_fault_cannot_be_recorded(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, fails_at="record fault", error=SetupError("disk full"))
    live = LiveSession(steps)
    live.prepare()
    live.fail(PlanError("wrong"))
    assert steps.order == [*PREPARED, "record fault", "take down"]


def test_a_race_that_ends_early_is_taken_down_once_however_often_rally_says_so(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, stays=("loop3: in use",))
    live = LiveSession(steps)
    live.prepare()
    live.end(cancelled=False)
    live.end(cancelled=False)
    assert steps.order == [*PREPARED, "take down"]
    reason = load_session(tmp_path / "sessions" / "s").reason
    assert reason == "the race ended early; see Rally's log; loop3: in use"
    assert steps.said == ["take down: loop3: in use"]


def test_with_quiet_only_what_stays_of_a_race_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "QUIET", True)
    steps = RecordedSession(tmp_path, stays=("vol-1 stays and goes on costing",))
    live = LiveSession(steps, warn=processor._loud(steps.say))
    live.prepare()
    live.end(cancelled=True)
    line = "take down: vol-1 stays and goes on costing"
    assert steps.said == [line]
    assert capsys.readouterr().out == f"[WARNING] {line}\n"


def test_what_rally_says_of_a_race_that_ends_early_is_the_reason(tmp_path: Path) -> None:
    live = LiveSession(RecordedSession(tmp_path))
    live.prepare()
    live.end(cancelled=False, why="ValueError in timeout.py:147: Timeout value connect was abc")
    reason = load_session(tmp_path / "sessions" / "s").reason
    assert reason == "ValueError in timeout.py:147: Timeout value connect was abc"


def test_the_end_after_a_complete_session_changes_nothing(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path)
    live = LiveSession(steps)
    live.prepare()
    live.complete()
    before = list(steps.order)
    live.end(cancelled=False)
    assert steps.order == before


def test_an_end_before_the_start_does_nothing(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path)
    live = LiveSession(steps)
    live.end(cancelled=True)
    assert steps.order == []
    assert live.first_fault() is None
    with pytest.raises(SetupError, match="never started"):
        _ = live.folder


def test_what_stays_behind_is_raised_after_the_report_of_a_complete_session(tmp_path: Path) -> None:
    live = LiveSession(RecordedSession(tmp_path, stays=("loop3: in use",)))
    live.prepare()
    with pytest.raises(
        SetupError, match=r"^loop3: in use; run 'esrally-ebs clean'. The report: .*report\.md$"
    ):
        live.complete()
    assert load_session(live.folder.path).warnings == ("loop3: in use",)


def test_arms_that_cannot_be_compared_are_reported_and_raised_once_all_is_down(tmp_path: Path) -> None:
    steps = RecordedSession(tmp_path, broken="hits differ")
    live = LiveSession(steps)
    live.prepare()
    with pytest.raises(MeasurementError, match=r"cannot be compared: hits differ; see .*report\.md"):
        live.complete()
    assert steps.order[-3:] == ["take down", "collect", "report"]
    live.end(cancelled=False)
    assert steps.order.count("take down") == 1


@pytest.mark.parametrize("stage", ["take down", "collect", "report"])
def test_a_failure_while_it_is_completed_is_taken_down_by_the_end(tmp_path: Path, stage: str) -> None:
    steps = RecordedSession(tmp_path, fails_at=stage, error=SetupError("no room"))
    live = LiveSession(steps)
    live.prepare()
    with pytest.raises(EbsError):
        live.complete()
    steps._fails_at = ""
    live.end(cancelled=False)
    assert steps.order[-1] == "take down"
    assert load_session(live.folder.path).state is State.FAILED
