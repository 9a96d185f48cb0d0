"""Residency and the refusals of an eviction; what needs root is in tests/system/test_eviction.py."""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from es_gp3 import node_of

from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.machine.processes import is_root
from esrally_ebs.node import page_cache
from esrally_ebs.node.eviction import evict, make_cold
from esrally_ebs.node.page_cache import Files, cached_pages, pages_in_core, residency

needs_root = pytest.mark.skipif(not is_root(), reason="only root may evict another process's pages")


def test_a_file_just_written_is_resident_to_the_byte(tmp_path: Path) -> None:
    (tmp_path / "_0.cfs").write_bytes(b"x" * 10_000)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "_1.cfs").write_bytes(b"x" * 5_000)

    before = residency(tmp_path)

    # 10,000 bytes lie on three pages and 5,000 on two: the last of each counts only as far as the file goes.
    assert (before.resident_bytes, before.total_bytes) == (15_000, 15_000)
    assert set(before.resident) == {str(tmp_path / "_0.cfs"), str(tmp_path / "sub" / "_1.cfs")}
    assert before.fraction == 1.0


def test_both_ways_to_measure_agree(tmp_path: Path) -> None:
    (tmp_path / "_0.cfs").write_bytes(b"x" * 1_000_000)

    with (tmp_path / "_0.cfs").open("rb") as file:
        assert cached_pages(file.fileno(), 1_000_000) == pages_in_core(file.fileno(), 1_000_000) == 245


def test_an_empty_directory_is_cold(tmp_path: Path) -> None:
    (tmp_path / "write.lock").touch()

    assert residency(tmp_path).fraction == 0.0


def test_links_and_pipes_in_the_directory_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc/self/maps")
    os.mkfifo(tmp_path / "pipe")

    assert residency(tmp_path).total_bytes == 0


def test_each_count_has_the_files_that_are_there_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_TICK_NS", 20_000_000)  # of the kernel's own file systems
    (tmp_path / "0" / "index").mkdir(parents=True)
    (tmp_path / "0" / "index" / "_0.cfs").write_bytes(b"x" * 4096)
    (tmp_path / "0" / "translog").touch()
    with Files(tmp_path) as files:
        assert files.residency().total_bytes == 4096
        (tmp_path / "0" / "translog").write_bytes(b"x" * 100)
        assert files.residency().total_bytes == 4196
        for number in range(1, 5):  # no file may be missed because its folder changed twice within a tick
            (tmp_path / "0" / "index" / f"_{number}.cfs").write_bytes(b"x" * 4096)
            assert files.residency().total_bytes == 4196 + number * 4096
        time.sleep(0.03)
        assert files.residency() == residency(tmp_path) == residency(tmp_path)
        (tmp_path / "0" / "index" / "_0.cfs").unlink()
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "_0.cfs").write_bytes(b"x" * 50)
        assert files.residency().total_bytes == 4196 + 3 * 4096 + 50
    assert _open_descriptors(tmp_path) == []


def test_of_very_many_files_some_are_opened_for_each_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_MAX_OPEN", 3)
    for number in range(10):
        (tmp_path / f"_{number}.cfs").write_bytes(b"x" * 1000)
    with Files(tmp_path) as files:
        assert files.residency().resident_bytes == 10_000
        assert len(_open_descriptors(tmp_path)) == 3  # with the folder's
        assert len(files.residency().resident) == 10


def test_of_very_many_shards_all_nodes_of_a_cluster_have_few_folders_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_MAX_OPEN", 3)
    monkeypatch.setattr(page_cache, "_TICK_NS", 20_000_000)
    for shard in (tmp_path / node / str(number) for node in "ab" for number in range(10)):
        shard.mkdir(parents=True)
        (shard / "_0.cfs").write_bytes(b"x" * 1000)
    time.sleep(0.03)
    with Files(tmp_path / "a") as a, Files(tmp_path / "b") as b:
        for number in range(3):
            assert (a.residency().total_bytes, b.residency().total_bytes) == (10_000, 10_000 + number * 1000)
            assert len(_open_descriptors(tmp_path)) == 3
            (tmp_path / "b" / "9" / f"_{number + 1}.cfs").write_bytes(b"x" * 1000)
        shutil.rmtree(tmp_path / "b" / "8")
        assert b.residency().total_bytes == 12_000
    assert _open_descriptors(tmp_path) == []


def _open_descriptors(directory: Path) -> list[Path]:
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(descriptor.readlink())
    return [name for name in names if name.is_relative_to(directory)]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"/none: not a directory; give the index's directory"):
        residency(tmp_path / "none")


def test_files_that_nobody_maps_are_evicted_without_root(tmp_path: Path) -> None:
    (tmp_path / "_0.cfs").write_bytes(b"x" * 1_000_000)

    done = evict([], tmp_path)

    assert (done.bytes, done.resident_before) == (1_000_000, 1.0)
    assert done.resident_after == 0.0


def test_the_volume_refills_while_files_are_evicted_and_what_comes_back_meanwhile_is_evicted_again(
    tmp_path: Path,
) -> None:
    file = tmp_path / "_0.cfs"
    file.write_bytes(b"x" * 1_000_000)
    fractions: list[float] = []

    def refill() -> float:
        fractions.append(residency(tmp_path).fraction)
        file.read_bytes()
        return 0.25

    began = time.monotonic()
    done = evict([], tmp_path, refill=refill)

    assert fractions == [0.0]  # once, when all was evicted
    assert (done.resident_after, done.refill_s) == (0.0, 0.25)
    assert done.seconds + done.refill_s <= time.monotonic() - began  # each by itself


@needs_root
@pytest.mark.parametrize("ended", [os.WEXITED, os.WEXITED | os.WNOWAIT], ids=["died", "zombie"])
def test_a_node_that_has_died_is_named(ended: int, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, ended)
        gone = rf"process {process.pid}: gone; the node has stopped, see its log"
        with pytest.raises(SetupError, match=gone):
            evict([process.pid], tmp_path)


@pytest.mark.skipif(is_root(), reason="root may")
def test_without_root_the_refusal_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="run as root or with cache:warm"):
        evict([os.getpid()], tmp_path)


@needs_root
def test_a_directory_without_an_index_is_not_called_cold(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="holds no index; is this the data directory of es-gp3"):
        make_cold(
            [node_of(os.getpid(), tmp_path)],
            max_resident=0.01,
            clear=lambda: None,
            evict=lambda node: evict([node.pid], node.data_dir),
        )
