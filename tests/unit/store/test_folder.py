"""The session folder: made once, found by name, refused when it is broken."""

import errno
import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shared_python import NOBODY, as_user
from small_plan import small_plan
from stored import GP2, ROW

from esrally_ebs.errors import FormatError, PlanError, SetupError
from esrally_ebs.model import Event, State
from esrally_ebs.store import SessionFolder, find_session, list_sessions, load_session, reading
from esrally_ebs.store.encoding import baseline_of, plain
from esrally_ebs.store.session import SessionSummary


def test_a_baseline_row_that_is_measured_again_replaces_the_first(folder: SessionFolder) -> None:
    folder.rows_baseline([ROW, replace(ROW, op="write")])
    folder.rows_baseline([replace(ROW, iops=1.0)])
    assert {row.op: row.iops for row in baseline_of(load_session(folder.path).baseline)} == {
        "read": 1.0,
        "write": ROW.iops,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_sessions_that_a_user_may_not_see_are_not_said_to_be_none(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> str:
        try:
            return str(list_sessions(Path()))
        except PermissionError as error:
            return str(error.strerror)

    monkeypatch.chdir(folder.path.parents[1])  # what is above it is closed to others anyway
    for path in (Path(), Path("sessions")):
        path.chmod(0o711)
    assert as_user(NOBODY, seen) == "Permission denied"


def test_a_folder_that_is_gone_gives_one_line(folder: SessionFolder) -> None:
    gone = SessionFolder(folder.path / "gone")
    for write in (
        lambda: gone.update(dataset={}),
        lambda: gone.part_writer("samples"),
        lambda: gone.event(Event(at_s=0.0, kind="drop")),
        lambda: gone.write_file("race.json", "{}"),
    ):
        with pytest.raises(SetupError, match=r"gone.*: cannot be written: No such file"):
            write()


def test_an_event_field_may_not_take_the_name_of_a_column(folder: SessionFolder) -> None:
    with pytest.raises(FormatError, match="'arm' has the name of a column"):
        folder.event(Event(at_s=0.0, kind="drop", fields={"arm": "gp2"}))


def test_events_so_far_can_be_asked_for(folder: SessionFolder) -> None:
    assert folder.events() == ()
    folder.event(Event(at_s=1.0, kind="fault", fields={"text": "x"}))
    assert [event.fields["text"] for event in folder.events()] == ["x"]


def test_an_unknown_format_version_is_refused_by_its_number(folder: SessionFolder) -> None:
    edit(folder, "format", 99)
    with pytest.raises(FormatError, match=r"format version 99 .* reads 1"):
        load_session(folder.path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "id": 3, "state": "odd"}'])
def test_a_folder_with_a_broken_head_is_listed_as_failed_with_the_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "sessions" / "broken").mkdir(parents=True)
    (tmp_path / "sessions" / "broken" / "session.json").write_text(text)
    sessions = list_sessions(tmp_path)
    assert [(one.id, one.state) for one in sessions] == [("broken", State.FAILED)]
    assert "session.json" in sessions[0].reason
    with pytest.raises(FormatError, match=r"session\.json: .*edited by hand\? restore it from a copy"):
        load_session(sessions[0].path)


def edit(folder: SessionFolder, where: str, value: object) -> None:
    """Put a value at a dotted key of ``session.json``, as an editor would."""
    path = folder.path / "session.json"
    document = json.loads(path.read_text())
    document.pop("crc32", None)
    *keys, last = where.split(".")
    table = document
    for key in keys:
        table = table[int(key)] if key.isdigit() else table.setdefault(key, {})
    table[last] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("started_at", "yesterday"),
        ("started_at", -1),
        ("ended_at", 1e300),
        ("plan", None),
        ("warnings", 3),
        ("warnings", ["slow", 1]),
        ("id", None),
        ("environment", []),
        ("plan.design", None),
        ("plan.race", 3),
        ("plan.design.margin", 0),
        ("plan.design.margin", -1),
        ("plan.design.confidence", 0.5),
        ("plan.design.confidence", "much"),
        ("plan.design.max_rounds", None),
        ("plan.cache.max_resident", 1.5),
        ("environment.nodes", []),
        ("environment.nodes", {"gp2": "8.8.2"}),
        ("environment.aws", {"arms": "x"}),
        ("environment.aws", {"arms": {"gp2": {"volume_ids": [], "file_system_id": "", "volumes": [{}]}}}),
        ("environment.aws", {"limits": {"instance_type": "m5.large"}}),
        ("arms.0.readahead_bytes", "much"),
        ("arms.0.device", -1.5),
        ("arms.0.kind", "cloud"),
        ("arms.0.spec", {"name": "gp2"}),
        ("arms.0.mount", []),
        *[("arms.0.spec.time_scale", value) for value in (0, -1, 0.5, "fast", None)],
        ("checks", [{"name": {}, "ok": True, "value": "", "text": ""}]),
        ("owner.start_ticks", 1.5),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_named_in_one_line(
    folder: SessionFolder, where: str, value: object
) -> None:
    folder.update(arms=[GP2])
    edit(folder, where, value)
    with pytest.raises(FormatError, match=r"session.json: .* does not fit its format \(.*a copy$") as raised:
        load_session(folder.path)
    assert "\n" not in str(raised.value)
    first, *_ = where.split(".")
    assert f"session.json: {first}" in str(raised.value)
    assert list_sessions(folder.path.parents[1])[0].reason == str(raised.value)


@pytest.mark.parametrize("where", ["started_at", "plan.design.margin", "arms.0.spec.size_bytes", "dataset.x"])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-1e999", "1" + "0" * 400, "[" * 100_000])
def test_a_number_that_no_computer_has_and_deep_nesting_are_one_line(
    folder: SessionFolder, where: str, text: str
) -> None:
    folder.update(arms=[GP2])
    edit(folder, where, "PLACE")
    path = folder.path / "session.json"
    path.write_text(path.read_text().replace('"PLACE"', text))
    with pytest.raises(
        FormatError, match=r"session.json: not readable as JSON \(.*edited by hand\? restore it from a copy"
    ) as raised:
        load_session(folder.path)
    assert len(str(raised.value)) < 400
    assert list_sessions(folder.path.parents[1])[0].state is State.FAILED


@pytest.mark.parametrize(("key", "value"), [("max_resident", 0), ("max_resident", 1), ("drop_every", 0)])
def test_the_ends_of_what_a_plan_may_have_are_read(folder: SessionFolder, key: str, value: int) -> None:
    edit(folder, f"plan.cache.{key}", value)
    assert getattr(load_session(folder.path).plan.cache, key) == value


def test_what_a_later_release_says_of_an_arm_is_passed_over(folder: SessionFolder) -> None:
    arm = plain(GP2)
    folder.update(arms=[arm])
    edit(folder, "arms.0.colour", "red")
    edit(folder, "arms.0.spec.colour", "red")
    assert load_session(folder.path).arms == (GP2,)


def test_events_that_cannot_be_read_are_told_and_left_out(folder: SessionFolder) -> None:
    (folder.path / "events.jsonl").mkdir()
    assert load_session(folder.path).warnings == (
        "events.jsonl: not a file; remove it; its events are left out",
    )


def test_a_session_is_found_by_id_start_path_or_as_the_latest_complete_one(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none in .* is complete"):
        find_session(tmp_path, "latest")
    for number, name in enumerate(("abc-1", "abd-2", "x-of-a-typo")):
        folder = SessionFolder.create(
            tmp_path, name, kind="race", plan=small_plan(), started_at=float(number)
        )
        folder.finish(State.FAILED if name == "x-of-a-typo" else State.COMPLETE)
    first, second = tmp_path / "sessions" / "abc-1", tmp_path / "sessions" / "abd-2"
    assert find_session(tmp_path, "abc-1") == first
    assert find_session(tmp_path, "abc") == first
    assert find_session(tmp_path, str(first)) == first
    assert find_session(tmp_path, "latest") == second
    failed = SessionFolder.create(tmp_path, "y-late", kind="race", plan=small_plan(), started_at=9.0)
    failed.write_file("report.json", "{}")  # measured to its end, then failed by a check
    failed.finish(State.FAILED)
    assert find_session(tmp_path, "latest") == failed.path
    with pytest.raises(PlanError, match="2 sessions start so"):
        find_session(tmp_path, "ab")
    with pytest.raises(PlanError, match="not found"):
        find_session(tmp_path, "zz")


def test_the_latest_is_known_beside_older_folders_that_are_closed_to_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lost+found of a disk mounted there, or what others have recorded with a umask of 077."""
    folder = SessionFolder.create(tmp_path, "a-1", kind="race", plan=small_plan(), started_at=100.0)
    folder.finish(State.COMPLETE)
    (closed := tmp_path / "sessions" / "lost+found").mkdir()
    is_measured = reading._is_measured

    def look(session: SessionSummary) -> bool:
        if session.path == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(closed / "report.json"))
        return is_measured(session)

    monkeypatch.setattr(reading, "_is_measured", look)
    os.utime(closed, (99.0, 99.0))
    assert find_session(tmp_path, "latest") == folder.path
    os.utime(closed, (101.0, 101.0))
    with pytest.raises(PermissionError):
        find_session(tmp_path, "latest")


def test_a_name_that_no_file_can_have_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="not found in"):
        find_session(tmp_path, "a" * 5000)


def test_a_folder_without_a_record_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"is no folder with a session\.json; 'esrally-ebs"):
        find_session(tmp_path, str(tmp_path))


def test_a_damaged_table_of_fio_is_one_line(folder: SessionFolder) -> None:
    folder.rows_baseline([ROW])
    path = folder.path / "baseline.parquet"
    whole = path.read_bytes()
    pq.write_table(pa.table({"arm": ["gp2"]}), path)
    for damaged in (
        b"",
        whole[:-10],
        bytes(len(whole)),
        whole[:8] + bytes(300) + whole[308:],
        path.read_bytes(),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"baseline.parquet: not readable as Parquet; restore it"):
            load_session(folder.path)


def test_a_session_is_created_once_and_its_identity_stays(folder: SessionFolder) -> None:
    with pytest.raises(SetupError, match="exists already"):
        SessionFolder.create(folder.path.parent.parent, "a-1", kind="race", plan=small_plan())
    with pytest.raises(FormatError, match="'id'"):
        folder.update(id="other")


def test_how_a_session_first_ended_stays(folder: SessionFolder) -> None:
    folder.finish(State.CANCELLED, "Ctrl-C")
    folder.finish(State.COMPLETE)
    session = load_session(folder.path)
    assert (session.state, session.reason) == (State.CANCELLED, "Ctrl-C")


def test_a_session_whose_record_cannot_be_written_leaves_no_folder(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        with pytest.raises(SetupError, match="cannot be written"):
            SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert list((tmp_path / "sessions").iterdir()) == []
