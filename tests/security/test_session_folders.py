"""Session folders that somebody else wrote, or that a disk changed: one line each, and nothing hangs."""

import fcntl
import json
import os
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import golden_session
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_plan import small_plan
from stored import ROW, SAMPLE

from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.model import Event, State
from esrally_ebs.store import SessionFolder, list_sessions, load_session
from esrally_ebs.store.encoding import SAMPLES, to_table
from esrally_ebs.store.files import locked
from esrally_ebs.store.parts import write_table


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sessions: ``good`` is whole, ``bad`` is for the test to spoil."""
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    for name in ("bad", "good"):
        folder = SessionFolder.create(tmp_path, name, kind="race", plan=small_plan(race={}))
        folder.event(Event(at_s=1.0, kind="drop", arm="gp2"))
        folder.rows_baseline([ROW])
        with folder.part_writer("samples") as writer:
            writer.add([replace(SAMPLE, round=number) for number in range(1, 7)])
        folder.finish(State.COMPLETE)
    return tmp_path


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def many_brackets(path: Path) -> None:
    path.write_text("[" * 100_000)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # of holes: it takes no room


SPOIL: list[Callable[[Path], None]] = [os.mkfifo, link_to_zero, many_brackets, huge, Path.mkdir]


@pytest.mark.parametrize("spoil", SPOIL, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "name", ["session.json", "events.jsonl", "samples/part-0.parquet", "baseline.parquet"]
)
def test_no_pipe_link_hole_or_nesting_hangs_or_hides_other_sessions(
    home: Path, name: str, spoil: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / "sessions" / "bad" / name
    path.unlink(missing_ok=True)
    spoil(path)
    assert {one.id: one.state for one in list_sessions(home)}["good"] is State.COMPLETE
    assert main(["sessions"]) == 0
    assert main(["report", "good"]) == 0
    if name in ("session.json", "baseline.parquet"):
        with pytest.raises(FormatError, match=rf"{name}: ") as raised:
            load_session(home / "sessions" / "bad")
        assert "\n" not in str(raised.value)
        assert main(["report", "bad"]) == 4
    else:
        assert any(name in warning for warning in load_session(home / "sessions" / "bad").warnings)
        assert main(["report", "bad"]) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        '{"at_s": 1e308, "kind": "drop", "arm": null}',
        '{"at_s": 1.0, "kind": [], "arm": null}',
        '{"at_s": 1.0, "kind": "gc", "arm": {}, "seconds": 1}',
        f'{{"at_s": 1.0, "kind": "gc", "arm": null, "seconds": {10**400}}}',
        f'{{"at_s": 1.0, "kind": "gc", "arm": null, "x": {"[" * 100_000}}}',
        '{"kind": "gc"}',
        "3",
    ],
    ids=range(7),
)
def test_an_event_that_nobody_wrote_is_left_out_with_a_warning(home: Path, line: str) -> None:
    path = home / "sessions" / "bad"
    (path / "events.jsonl").write_text(line + "\n")
    session = load_session(path)
    assert session.events == ()
    assert session.warnings == ("events.jsonl:1: not an event; was the session cut there?",)
    assert main(["report", "bad"]) == 0


def test_a_parquet_bomb_is_left_out_before_it_fills_the_memory(home: Path) -> None:
    rows = 60_000_000
    zeros = pa.array([0] * 1000, pa.float64())
    column = pa.chunked_array([zeros] * (rows // 1000))
    path = home / "sessions" / "bad" / "samples" / "part-0.parquet"
    pq.write_table(pa.table({"service_time_s": column}), path, compression="zstd")
    assert path.stat().st_size < 1_000_000
    warnings = load_session(home / "sessions" / "bad").warnings
    assert warnings == ("samples/part-0.parquet: not readable as Parquet; its rows are left out",)


@pytest.mark.parametrize("column", ["arm", "round", "task", "started_s"])
def test_a_part_with_a_value_missing_is_left_out(home: Path, column: str) -> None:
    folder = home / "sessions" / "bad" / "samples"
    table = to_table([SAMPLE], SAMPLES)
    place = SAMPLES.get_field_index(column)
    write_table(folder / "part-9.parquet", table.set_column(place, column, pa.nulls(1, SAMPLES.types[place])))
    warnings = load_session(home / "sessions" / "bad").warnings
    assert warnings == ("samples/part-9.parquet: not readable as Parquet; its rows are left out",)


def test_no_flipped_bit_of_samples_changes_them_silently(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    draw = random.Random(1)
    with folder.part_writer("samples") as writer:
        writer.add(
            [
                golden_session.sample("gp2", n % 7, "t", 1.7e9 + n, draw.lognormvariate(-4, 0.3))
                for n in range(300)
            ]
        )
    path = next((folder.path / "samples").iterdir())
    whole = path.read_bytes()
    before = load_session(folder.path).samples
    silent = []
    for place in draw.sample(range(8 * len(whole)), 1000):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        session = load_session(folder.path)
        if not session.warnings and not session.samples.equals(before):
            silent.append(place)
    assert silent == []


@pytest.mark.parametrize("name", ["session.json", "events.jsonl"])
def test_no_flipped_bit_of_json_changes_what_it_says_silently(home: Path, name: str) -> None:
    path = home / "sessions" / "bad" / name
    before = load_session(path.parent)
    whole = path.read_bytes()
    for place in random.Random(2).sample(range(8 * len(whole)), 400):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            session = load_session(path.parent)
        except FormatError:
            continue
        same = (session.plan, session.started_at, session.state) == (
            before.plan,
            before.started_at,
            before.state,
        )
        pairs = zip(session.events, before.events, strict=True) if not session.warnings else ()
        same &= all(one.fields.items() >= other.fields.items() for one, other in pairs)
        assert session.warnings or same, place


def test_what_an_earlier_release_wrote_without_checksums_is_read(home: Path) -> None:
    path = home / "sessions" / "bad"
    for name in ("session.json", "events.jsonl"):
        text = (path / name).read_text()
        assert '"crc32": "' in text
        (path / name).write_text(re.sub(r',\s*"crc32": "\w{8}"', "", text))
    assert replace(load_session(path), path=Path()).events == load_session(path).events != ()
    assert load_session(path).warnings == ()


def test_a_merged_file_deletes_nothing_but_parts_beside_it(home: Path, tmp_path: Path) -> None:
    folder = SessionFolder(home / "sessions" / "bad")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    beside = folder.path / "session.json"
    for number, names in enumerate(
        ([str(victim), "../../../victim", "../session.json", "part-../session.json", 3, None], 5, {"a": 1})
    ):
        schema = SAMPLES.with_metadata({b"esrally_ebs.replaces": json.dumps(names).encode()})
        table = to_table([SAMPLE], SAMPLES).cast(schema)
        write_table(folder.path / "samples" / f"merged-{number}.parquet", table)
    folder.compact()
    load_session(folder.path)
    assert victim.read_text() == "precious"
    assert beside.exists()


def test_nothing_is_written_through_a_link_in_a_session_folder(home: Path, tmp_path: Path) -> None:
    folder = SessionFolder(home / "sessions" / "bad")
    victim, elsewhere = tmp_path / "sudoers", tmp_path / "etc"
    victim.write_text("")
    elsewhere.mkdir()
    (folder.path / "events.jsonl").unlink()
    (folder.path / "events.jsonl").symlink_to(victim)
    (folder.path / "telemetry").symlink_to(elsewhere)
    (folder.path / "baseline").symlink_to(elsewhere)
    for write in (
        lambda: folder.event(Event(at_s=1.0, kind="x")),
        lambda: folder.part_writer("telemetry"),
        lambda: folder.write_baseline(0, "gp2", "job", "{}"),
        folder.compact,
    ):
        with pytest.raises(SetupError, match="cannot be written"):
            write()
    (folder.path / "report.md").symlink_to(victim)
    folder.write_file("report.md", "replaced, not followed")
    assert victim.read_text() == ""
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("of_spec", [{"iops": "9" * 400}, {"readahead_bytes": "9" * 400}, None])
def test_a_number_of_400_digits_in_quotes_is_refused(of_spec: dict[str, str] | None, tmp_path: Path) -> None:
    path = golden_session.record(tmp_path)
    record = json.loads((path / "session.json").read_text())
    del record["crc32"]
    record["arms"][0]["spec"].update(of_spec or {})
    if of_spec is None:
        record["arms"][0]["readahead_bytes"] = "9" * 400
    (path / "session.json").write_text(json.dumps(record))
    with pytest.raises(FormatError, match="does not fit its format"):
        load_session(path)


def test_a_home_that_is_no_utf8_is_written_and_read(tmp_path: Path) -> None:
    home = tmp_path / os.fsdecode(b"h\xff")
    folder = SessionFolder.create(home, "s", kind="race", plan=small_plan())
    folder.add_warning(f"{home} and \ud800")
    folder.event(Event(at_s=1.0, kind="fault", fields={"text": str(home)}))
    folder.rows_baseline([ROW])
    with folder.part_writer("samples") as writer:
        writer.add([SAMPLE])
    folder.finish(State.COMPLETE)
    session = load_session(folder.path)
    assert session.warnings == (f"{home} and \ud800",)
    assert (session.samples.num_rows, session.baseline.num_rows) == (1, 1)
    assert session.events[0].fields["text"] == str(home)


@pytest.mark.parametrize("shared", [False, True])
def test_a_lock_that_whoever_reads_a_folder_may_hold_is_not_waited_for_without_end(
    tmp_path: Path, shared: bool
) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        with (
            pytest.raises(SetupError, match=f"{tmp_path}: another process has locked it for 0.1 s"),
            locked(tmp_path, shared=shared, patience_s=0.1),
        ):
            raise AssertionError
    finally:
        os.close(other)
    with locked(tmp_path, shared=shared, patience_s=0.1):
        pass
