"""Growing tables: merged without loss, whole after a crash, patient with a disk that fails."""

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_plan import small_plan
from stored import SAMPLE

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, give_way
from esrally_ebs.model import Sample
from esrally_ebs.store import PartWriter, SessionFolder, load_session
from esrally_ebs.store.encoding import SAMPLES, TRACE, to_table
from esrally_ebs.store.files import cannot_write
from esrally_ebs.store.parts import compact, read_parts, write_table


def parts_of(folder: Path, count: int) -> PartWriter:
    """A writer that has written so many parts of a row each."""
    writer = PartWriter(folder, SAMPLES)
    for iteration in range(1, count + 1):
        writer.add([replace(SAMPLE, iteration=iteration)])
        writer.flush()
    return writer


def test_a_merge_that_crashed_before_it_removed_the_parts_shows_no_row_twice(tmp_path: Path) -> None:
    writer = parts_of(tmp_path, 2)
    parts = {path.name: path.read_bytes() for path in tmp_path.glob("part-*")}
    compact(tmp_path, SAMPLES)
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)
    writer.add([replace(SAMPLE, iteration=3)])
    writer.close()
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2, 3]
    compact(tmp_path, SAMPLES)
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2, 3]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("started_at", [0, 19])
def test_what_was_started_by_nice_need_not_give_way_any_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started_at: int
) -> None:
    """A user may not raise a priority: the thread ended, so nothing was on disk until the session's end."""
    values: list[int] = []

    def setpriority(which: int, who: int, value: int) -> None:
        if value < started_at:
            raise PermissionError(errno.EACCES, "Permission denied")
        values.append(value)

    monkeypatch.setattr(os, "getpriority", lambda which, who: started_at)
    monkeypatch.setattr(os, "setpriority", setpriority)
    writer = PartWriter(tmp_path, SAMPLES)
    writer.close()
    writer._flush_often()  # what its thread does, which has nothing to do
    give_way()
    assert values == [max(10, started_at)] * 2


def test_parts_that_a_crashed_merge_left_go_although_there_is_nothing_to_merge(tmp_path: Path) -> None:
    parts_of(tmp_path, 2).close()
    parts = {path: path.read_bytes() for path in tmp_path.glob("part-*")}
    compact(tmp_path, SAMPLES)
    for path, data in parts.items():
        path.write_bytes(data)
    compact(tmp_path, SAMPLES)
    assert not any(path.exists() for path in parts)
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2]


def test_half_written_files_are_left_out_and_a_broken_part_is_named(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "a-1", kind="race", plan=small_plan())
    with folder.part_writer("samples") as writer:
        writer.add([SAMPLE])
    whole = next((folder.path / "samples").glob("part-*"))
    (folder.path / "samples" / ".part-9.parquet.ab.tmp").write_bytes(whole.read_bytes()[:50])
    (folder.path / "samples" / "part-9.parquet").write_bytes(whole.read_bytes()[:50])
    with (folder.path / "events.jsonl").open("w") as events_file:
        events_file.write('{"at_s": 1.0, "kind": "drop", "arm": null}\n{"at_s": 2.0, "ki')
    session = load_session(folder.path)
    assert session.samples.num_rows == 1
    assert len(session.events) == 1
    assert [warning.split(":")[0] for warning in session.warnings] == [
        "samples/part-9.parquet",
        "events.jsonl",
    ]


@pytest.mark.parametrize("broken", ["cut", "damaged", "lacking"])
def test_a_merge_keeps_what_cannot_be_read_and_merges_the_rest(tmp_path: Path, broken: str) -> None:
    parts_of(tmp_path, 3).close()
    part = min(tmp_path.glob("part-*"))
    data = part.read_bytes()
    if broken == "lacking":
        write_table(part, pq.read_table(part).drop_columns(["hits"]))
    else:
        part.write_bytes(data[:50] if broken == "cut" else data[:4] + bytes(100) + data[104:])

    compact(tmp_path, SAMPLES)

    table, warnings = read_parts(tmp_path, SAMPLES)
    assert table["iteration"].to_pylist() == [2, 3]
    assert warnings == (f"{tmp_path.name}/{part.name}: not readable as Parquet; its rows are left out",)
    assert len(list(tmp_path.glob("*.parquet"))) == 2


def test_a_killed_session_has_more_parts_than_a_process_may_open(tmp_path: Path) -> None:
    write_table(tmp_path / "part-0.parquet", to_table([SAMPLE], SAMPLES))
    for number in range(1, 100):
        (tmp_path / f"part-{number}.parquet").hardlink_to(tmp_path / "part-0.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (sum(1 for _ in Path("/proc/self/fd").iterdir()) + 20, hard))
    try:
        table, warnings = read_parts(tmp_path, SAMPLES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not warnings
    assert table.num_rows == 100


def test_a_disk_that_is_full_gives_one_line_and_loses_no_row(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    writer = PartWriter(folder, SAMPLES)

    def write() -> None:
        writer.add([SAMPLE])  # raises if the thread has failed already
        writer.flush()

    folder.rename(tmp_path / "away")  # every write fails now, as on a disk that went away
    with pytest.raises(SetupError, match="cannot be written"):
        write()
    (tmp_path / "away").rename(folder)
    writer.close()
    assert read_parts(folder, SAMPLES)[0].num_rows == 1
    with pytest.raises(SetupError, match=r"disk is full; free some space"):
        cannot_write(tmp_path, OSError(errno.ENOSPC, "No space left on device"))


def test_a_write_that_fails_in_the_background_is_raised_by_the_next_add_and_loses_no_row(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    writer = PartWriter(folder, SAMPLES, flush_every_s=0.01)
    folder.rename(tmp_path / "away")
    added, raised = 0, False
    until = time.monotonic() + 10
    while not raised and time.monotonic() < until:
        added += 1
        try:
            writer.add([SAMPLE])
        except SetupError:
            raised = True
        time.sleep(0.005)
    (tmp_path / "away").rename(folder)
    writer.close()
    assert raised
    assert read_parts(folder, SAMPLES)[0].num_rows == added


def wait_until_written(folder: Path) -> None:
    """Until a part is there, 10 s at most."""
    assert SYSTEM_CLOCK.wait_until(lambda: list(folder.glob("part-*.parquet")), limit_s=10, poll_s=0.005)


def test_what_is_added_first_is_written_at_once_and_what_follows_a_while_later(tmp_path: Path) -> None:
    with PartWriter(tmp_path, SAMPLES, flush_every_s=60.0) as writer:
        writer.add([SAMPLE])
        wait_until_written(tmp_path)
        writer.add([SAMPLE])
        time.sleep(0.2)
        assert read_parts(tmp_path, SAMPLES)[0].num_rows == 1
    assert read_parts(tmp_path, SAMPLES)[0].num_rows == 2


def test_rows_are_made_in_the_thread_that_writes_them_and_not_lost_if_that_fails(tmp_path: Path) -> None:
    threads: list[str] = []
    both_added = threading.Event()  # else a quick writer fails before the second row, whose add() would raise

    def row(iteration: int) -> Sample:
        assert both_added.wait(timeout=10)
        threads.append(threading.current_thread().name)
        if len(threads) == 2:
            raise SetupError("not now")
        return replace(SAMPLE, iteration=iteration)

    writer = PartWriter(tmp_path, SAMPLES, row=row, flush_every_s=0.01)
    writer.add([1, 2])
    both_added.set()
    wait_until_written(tmp_path)
    with pytest.raises(SetupError, match="not now"):
        writer.add([3])
    writer.close()

    assert "MainThread" not in threads[:4]
    assert read_parts(tmp_path, SAMPLES)[0]["iteration"].to_pylist() == [1, 2, 3]


def test_a_file_whose_note_of_merging_is_broken_counts_as_a_part_like_any_other(tmp_path: Path) -> None:
    noted = SAMPLES.with_metadata({b"esrally_ebs.replaces": b"[not JSON"})
    write_table(tmp_path / "merged-1.parquet", to_table([SAMPLE], SAMPLES).cast(noted))

    rows, broken = read_parts(tmp_path, SAMPLES)

    assert (rows.num_rows, broken) == (1, ())


@pytest.mark.parametrize("size", [0, -4096, 2**50])
def test_a_size_that_no_io_has_is_not_read(tmp_path: Path, size: int) -> None:
    """Machine code that counts by them wrote beyond the end of its memory, or for hours."""
    row = {"arm": "a", "device": "a", "at_s": 1.0, "offset": 0, "bytes": size, "op": "read", "path_s": 0.0}
    pq.write_table(pa.Table.from_pylist([row], schema=TRACE), tmp_path / "part-a-000000.parquet")
    rows, broken = read_parts(tmp_path, TRACE)
    assert rows.num_rows == 0
    assert broken == (
        f"{tmp_path.name}/part-a-000000.parquet: not readable as Parquet; its rows are left out",
    )


READING = """
import os, sys
from pathlib import Path
from esrally_ebs.store.encoding import SAMPLES
from esrally_ebs.store.parts import compact, read_parts

before = os.listdir("/proc/self/task")
assert read_parts(Path(sys.argv[1]), SAMPLES)[0].num_rows == 2
compact(Path(sys.argv[1]), SAMPLES)
assert os.listdir("/proc/self/task") == before
"""


def test_tables_are_read_in_no_other_thread_which_may_outlive_python(tmp_path: Path) -> None:
    """Of fifty commands that were refused once they had read a session, five ended by an abort."""
    parts_of(tmp_path, 2).close()
    subprocess.run([sys.executable, "-c", READING, tmp_path], check=True, timeout=60)
