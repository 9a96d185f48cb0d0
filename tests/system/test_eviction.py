"""A mapped file stays in memory under drop_caches and leaves it under an eviction; real processes."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from es_gp3 import node_of
from mounted import on_loop

from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.processes import Clock, run
from esrally_ebs.node.eviction import evict, make_cold
from esrally_ebs.node.page_cache import PAGE_BYTES, pages_in_core, residency

pytestmark = pytest.mark.system

FILE_BYTES = 8 * 1024**2
FILES = 4

# Maps each file given so many times, touches every page, says so, and waits for the end of stdin.
MAPPER = """
import mmap, sys
maps = []
for path in sys.argv[2:]:
    for _ in range(int(sys.argv[1])):
        with open(path, "rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
for mapped in maps:
    for offset in range(0, len(mapped), mmap.PAGESIZE):
        mapped[offset]
print("warm", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def index() -> Iterator[Path]:
    # /var/tmp is on a disk; /tmp may be a tmpfs, whose pages have nowhere to go.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        for number in range(FILES):
            (Path(name) / f"_{number}.cfs").write_bytes(os.urandom(FILE_BYTES))
        yield Path(name)


@pytest.fixture
def overlaid(index: Path) -> Iterator[Path]:
    """The index as the lower layer of an overlay."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        upper, work, merged = (Path(name) / part for part in ("upper", "work", "merged"))
        for folder in (upper, work, merged):
            folder.mkdir()
        layers = f"lowerdir={index},upperdir={upper},workdir={work}"
        run(["mount", "-t", "overlay", "overlay", "-o", layers, merged], timeout_s=10)
        yield merged
        run(["umount", merged], timeout_s=10)


@contextmanager
def mapper(
    index: Path, times: int = 1, *, below: tuple[str, ...] = (), seen_at: Path | None = None
) -> Iterator[int]:
    """The pid of a process that has mapped and read the index; ``below`` is a command to start it by."""
    files = [str((seen_at or index) / path.name) for path in sorted(index.iterdir())]
    argv = [*below, sys.executable, "-c", MAPPER, str(times), *files]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "warm\n"
        try:
            yield process.pid
        finally:
            process.kill()


def test_drop_caches_leaves_a_mapped_index_and_an_eviction_does_not(index: Path) -> None:
    with mapper(index) as pid:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        assert residency(index).fraction == 1.0

        done = evict([pid], index)

    assert done.resident_before == 1.0
    assert done.resident_after <= 0.01


def test_fadvise_alone_leaves_a_mapped_index(index: Path) -> None:
    with mapper(index):
        done = evict([], index)

    assert done.resident_after == 1.0


def test_pages_written_a_moment_ago_are_evicted_too(index: Path) -> None:
    with mapper(index) as pid:
        (index / "translog").write_bytes(os.urandom(FILE_BYTES))  # dirty, and not mapped

        done = evict([pid], index, metadata=True)

    assert done.resident_after <= 0.01


def _bytes_in_core(directory: Path) -> int:
    """What mincore(2) says, which older kernels and overlays have alone, of files of whole pages."""
    pages = 0
    for path in directory.iterdir():
        with path.open("rb") as file:
            pages += pages_in_core(file.fileno(), path.stat().st_size)
    return pages * PAGE_BYTES


def test_both_measures_agree_in_between(index: Path) -> None:
    with mapper(index) as pid:
        evict([pid], index)
        os.posix_fadvise(descriptor := os.open(index / "_0.cfs", os.O_RDONLY), 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(descriptor, FILE_BYTES // 2, 0)
        os.close(descriptor)

        by_cachestat = residency(index).resident_bytes
        by_mincore = _bytes_in_core(index)

    assert by_cachestat == by_mincore
    assert by_cachestat >= FILE_BYTES // 2


def test_other_files_of_the_process_are_left_alone(index: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        (Path(name) / "other").write_bytes(os.urandom(FILE_BYTES))
        os.link(Path(name) / "other", index / "z-other")
        with mapper(index) as pid:
            (index / "z-other").unlink()
            evict([pid], index)

            assert residency(Path(name)).fraction == 1.0


@pytest.mark.parametrize("filesystem", ["xfs", "btrfs"])
def test_an_index_on_a_block_device_of_its_own_is_evicted(filesystem: str) -> None:
    """XFS caches in large folios; btrfs has another device number in maps than in stat."""
    if shutil.which(f"mkfs.{filesystem}") is None:
        pytest.skip(f"mkfs.{filesystem} is not installed")
    with mounted(filesystem) as mount:
        for number in range(FILES):
            (mount / f"_{number}.cfs").write_bytes(os.urandom(FILE_BYTES))
        with mapper(mount) as pid:
            done = evict([pid], mount)

    assert (done.resident_before, done.bytes) == (1.0, FILES * FILE_BYTES)
    assert done.resident_after <= 0.01


def test_an_eviction_after_another_reads_nothing_of_the_volume() -> None:
    """Of all names and inodes that it drops, those of the index stay as long as it has them open."""
    with mounted("xfs") as mount:
        for folder in ("0/index", "0/_state", "0/translog", "_state"):
            (mount / folder).mkdir(parents=True)
            for number in range(80):
                (mount / folder / f"retention-leases-{number}.st").write_bytes(b"x" * 8192)
        device = mount.stat().st_dev
        counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        run(["mount", "-o", "remount,ro", mount], timeout_s=30)  # what was just written stays for a while
        time.sleep(2.1)  # of folders that changed just now the next change may have the same time
        reads = []
        for _ in range(5):
            assert evict([], mount, metadata=True).resident_after == 0.0
            reads.append(int(counters.read_text().split()[0]))

    assert len(set(reads[1:])) == 1


@contextmanager
def mounted(filesystem: str) -> Iterator[Path]:
    """A new file system that is not in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        image, point = Path(name) / "image", Path(name) / "mount"
        with on_loop(image, point, mib=512, filesystem=filesystem) as mount:
            yield mount


def test_a_process_that_knows_the_index_by_another_name_is_evicted(index: Path, tmp_path: Path) -> None:
    inside = tmp_path / "data"  # as a container: a mount namespace in which the index is elsewhere
    inside.mkdir()
    script = f'mount --bind {index} {inside} && exec "$@"'
    with mapper(index, below=("unshare", "--mount", "sh", "-c", script, "sh"), seen_at=inside) as pid:
        assert str(inside) in Path(f"/proc/{pid}/maps").read_text()
        assert list(inside.iterdir()) == []  # only that process sees it there

        done = evict([pid], index)

    assert done.resident_after <= 0.01


def test_a_file_that_one_process_maps_twice_is_evicted(index: Path) -> None:
    with mapper(index, times=2) as pid:
        assert evict([pid], index).resident_after <= 0.01


def test_a_cold_node_is_had_at_the_first_attempt(index: Path) -> None:
    cleared: list[bool] = []
    with mapper(index) as pid:
        drop = make_cold([node_of(pid, index)], max_resident=0.01, clear=lambda: cleared.append(True))

    assert (drop.before, drop.attempts, cleared) == (1.0, 1, [True])
    assert drop.after <= 0.01


@pytest.mark.parametrize(("retries", "clears"), [(2, 3), (0, 1)])
def test_an_index_that_another_process_holds_is_not_called_cold(
    index: Path, retries: int, clears: int
) -> None:
    cleared: list[bool] = []
    no_pause: Callable[[float], None] = lambda seconds: None  # noqa: E731
    with mapper(index) as pid, mapper(index), pytest.raises(MeasurementError) as raised:
        make_cold(
            [node_of(pid, index)],
            max_resident=0.01,
            retries=retries,
            clear=lambda: cleared.append(True),
            clock=Clock(sleep=no_pause),
        )

    assert len(cleared) == clears
    assert f"{index}: 100.0% of 32.0 MiB still in the page cache after {clears} evictions" in str(
        raised.value
    )
    assert "or use cache:warm" in str(raised.value)


def test_files_of_an_overlay_are_seen_in_memory_and_leave_it(overlaid: Path) -> None:
    with mapper(overlaid) as pid:
        assert residency(overlaid).fraction == 1.0
        assert evict([pid], overlaid).resident_after == 0.0
    assert _bytes_in_core(overlaid) == 0
