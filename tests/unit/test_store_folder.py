"""The session folder: made once, found by name, refused when it is broken."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stored import GP2, ROW

from esrally_ebs.errors import FormatError, PlanError, SetupError
from esrally_ebs.model import Event, State
from esrally_ebs.store import SessionFolder, find_session, list_sessions, load_session
from esrally_ebs.store.encoding import baseline_of, plain


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path, "a-1", kind="race", plan={"name": "p", "mount": Path("/mnt")})


def test_a_baseline_row_that_is_measured_again_replaces_the_first(folder: SessionFolder) -> None:
    folder.rows_baseline([ROW, replace(ROW, op="write")])
    folder.rows_baseline([replace(ROW, iops=1.0)])
    assert {row.op: row.iops for row in baseline_of(load_session(folder.path).baseline)} == {
        "read": 1.0,
        "write": ROW.iops,
    }


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
    path = folder.path / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(FormatError, match=r"format version 99 .* reads 1"):
        load_session(folder.path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 1, "id": 3, "state": "odd"}'])
def test_a_folder_with_a_broken_head_is_listed_as_failed_with_the_reason(tmp_path: Path, text: str) -> None:
    (tmp_path / "sessions" / "broken").mkdir(parents=True)
    (tmp_path / "sessions" / "broken" / "session.json").write_text(text)
    found = list_sessions(tmp_path)
    assert [(one.id, one.state) for one in found] == [("broken", State.FAILED)]
    assert "session.json" in found[0].reason
    with pytest.raises(FormatError, match=r"session\.json: .*edited by hand\?"):
        load_session(found[0].path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("started_at", "yesterday"),
        ("started_at", float("nan")),
        ("ended_at", 1e300),
        ("plan", None),
        ("warnings", 3),
        ("warnings", ["slow", float("nan")]),
        ("id", None),
        ("environment", []),
        ("plan", {"design": None}),
        ("plan", {"race": 3}),
        ("environment", {"nodes": []}),
        ("environment", {"nodes": {"gp2": "8.8.2"}}),
    ],
    ids=str,
)
def test_a_key_of_another_type_is_named(folder: SessionFolder, key: str, value: object) -> None:
    path = folder.path / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(FormatError, match=rf"session.json: {key}[a-z0-9.]*: .* does not fit its format"):
        load_session(folder.path)
    listed = list_sessions(folder.path.parents[1])
    assert key in listed[0].reason


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("readahead_bytes", "much"),
        ("device", -1.5),
        ("kind", "cloud"),
        ("spec", {"name": "gp2"}),
        ("mount", []),
    ],
)
def test_an_arm_of_another_form_is_one_line(folder: SessionFolder, key: str, value: object) -> None:
    folder.update(arms=[{**plain(GP2), key: value}])
    with pytest.raises(FormatError, match=rf"session.json: .*{key}.* does not fit its format") as raised:
        load_session(folder.path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "value", [0, -1, 0.5, float("nan"), float("inf"), "fast", "10", None, True], ids=repr
)
def test_a_time_scale_that_no_volume_has_is_named_with_what_to_write(
    folder: SessionFolder, value: object
) -> None:
    told = plain(GP2)
    path = folder.path / "session.json"
    document = json.loads(path.read_text())
    path.write_text(
        json.dumps({**document, "arms": [told, {**told, "spec": {**told["spec"], "time_scale": value}}]})
    )
    with pytest.raises(
        FormatError,
        match=r"^\S*session\.json: arms\.1\.spec\.time_scale: .* is no number from 1 to 10,000; .*write one$",
    ) as raised:
        load_session(folder.path)
    assert "\n" not in str(raised.value)
    assert "arms.1.spec.time_scale" in list_sessions(folder.path.parents[1])[0].reason


@pytest.mark.parametrize(
    ("part", "key", "value", "allowed"),
    [
        ("design", "margin", 0, "between 0 and 1"),
        ("design", "margin", -1, "between 0 and 1"),
        ("design", "confidence", 0.5, "between 0.5 and 1"),
        ("design", "confidence", "much", "between 0.5 and 1"),
        ("design", "max_rounds", None, "from 1 to 1,000,000"),
        ("cache", "max_resident", 10**400, "from 0 to 1"),
    ],
)
def test_a_number_that_no_plan_has_is_named_with_what_it_may_be(
    folder: SessionFolder, part: str, key: str, value: object, allowed: str
) -> None:
    path = folder.path / "session.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "plan": {**document["plan"], part: {key: value}}}))
    with pytest.raises(FormatError, match=rf"json: plan\.{part}\.{key}: .* is no number {allowed}; was it"):
        load_session(folder.path)


@pytest.mark.parametrize(("key", "value"), [("max_resident", 0), ("max_resident", 1), ("drop_every", 0)])
def test_the_ends_of_what_a_plan_may_have_are_read(folder: SessionFolder, key: str, value: int) -> None:
    path = folder.path / "session.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "plan": {**document["plan"], "cache": {key: value}}}))
    assert load_session(folder.path).plan["cache"] == {key: value}


@pytest.mark.parametrize("key", ["readahead_bytes", "size_bytes", "throughput_bytes_per_s"])
def test_a_number_of_an_arm_beyond_all_volumes_is_named(folder: SessionFolder, key: str) -> None:
    told = plain(GP2)
    arm = {**told, key: 10**400} if key in told else {**told, "spec": {**told["spec"], key: 10**400}}
    folder.update(arms=[arm])
    with pytest.raises(FormatError, match=rf"session\.json: arms\.0\.(spec\.)?{key}: 1000.* is no number of"):
        load_session(folder.path)


def test_what_a_later_release_says_of_an_arm_is_passed_over(folder: SessionFolder) -> None:
    told = plain(GP2)
    folder.update(arms=[{**told, "colour": "red", "spec": {**told["spec"], "colour": "red"}}])
    assert load_session(folder.path).arms == (GP2,)


def test_events_that_cannot_be_read_are_told_and_left_out(folder: SessionFolder) -> None:
    (folder.path / "events.jsonl").mkdir()
    assert load_session(folder.path).warnings == ("events.jsonl: Is a directory; its events are left out",)


def test_a_session_is_found_by_id_start_path_or_as_the_latest(tmp_path: Path) -> None:
    for number, name in enumerate(("abc-1", "abd-2")):
        SessionFolder.create(tmp_path, name, kind="race", plan={}, started_at=float(number))
    first, second = tmp_path / "sessions" / "abc-1", tmp_path / "sessions" / "abd-2"
    assert find_session(tmp_path, "abc-1") == first
    assert find_session(tmp_path, "abc") == first
    assert find_session(tmp_path, str(first)) == first
    assert find_session(tmp_path, "latest") == second
    with pytest.raises(PlanError, match="2 sessions start so"):
        find_session(tmp_path, "ab")
    with pytest.raises(PlanError, match="not found"):
        find_session(tmp_path, "zz")


def test_a_name_that_no_file_can_have_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="not found in"):
        find_session(tmp_path, "a" * 5000)


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
        with pytest.raises(FormatError, match=r"baseline.parquet: not readable as Parquet; its fio output"):
            load_session(folder.path)


def test_a_session_is_created_once_and_its_identity_stays(folder: SessionFolder) -> None:
    with pytest.raises(SetupError, match="exists already"):
        SessionFolder.create(folder.path.parent.parent, "a-1", kind="race", plan={})
    with pytest.raises(FormatError, match="'id'"):
        folder.update(id="other")


def test_how_a_session_first_ended_stays(folder: SessionFolder) -> None:
    folder.finish(State.CANCELLED, "Ctrl-C")
    folder.finish(State.COMPLETE)
    session = load_session(folder.path)
    assert (session.state, session.reason) == (State.CANCELLED, "Ctrl-C")
