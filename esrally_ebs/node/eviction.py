"""Makes an index cold and proves it: a directory and the processes that map it in, what was evicted out.

``drop_caches`` and ``posix_fadvise`` leave every page that a process has mapped (17 to 79 % of a Lucene
index). So the node's mapped pages are paged out first, then the rest is dropped, then what is left counted.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock, is_root
from esrally_ebs.machine.procfs import Mapping, parse_maps
from esrally_ebs.model import Node
from esrally_ebs.node.page_cache import FileId, Files, opened, page_out, sync_filesystem
from esrally_ebs.units import format_bytes

_PASSES = 2  # pages on a CPU's own list cannot be taken; the first pass has drained those lists
_RETRY_PAUSE_S = 0.2  # lets a merge or refresh that was reading the index come to its end

Refill = Callable[[], float]  # waits until a volume's buckets are full; the seconds that took


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One eviction of one directory; the fractions are of ``bytes``."""

    bytes: int
    resident_before: float
    resident_after: float
    seconds: float  # without ``refill_s``
    refill_s: float  # waited for the volume once all was evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """What it took to make an index cold; goes into ``events.jsonl`` and with each sample."""

    before: float  # fraction of the index in the page cache
    after: float
    attempts: int
    seconds: float  # without ``refill_s``
    refill_s: float  # waited for the volumes' buckets, beyond the time that evicting took


def evict(
    pids: Sequence[int], directory: Path, *, metadata: bool = False, refill: Refill = lambda: 0.0
) -> Eviction:
    """Take the files under ``directory`` out of the page cache, also where the processes ``pids`` map them.

    ``metadata`` also drops the machine's clean dentries, inodes and file system buffers. ``refill`` waits
    until the volume's buckets, which fill up while pages are evicted, are full; what comes back into memory
    meanwhile is counted, and evicted again. What another process maps as well stays, and so does what is on
    tmpfs: look at ``resident_after``. Raises SetupError when not root, when a process is gone, or when the
    kernel has no process_madvise(2) (Linux 5.10).
    """
    if (pids or metadata) and not is_root():
        raise SetupError(f"{directory}: only root may evict a node's pages; run as root or with cache:warm")
    begin = time.monotonic()
    refill_s = 0.0
    with Files(directory) as counted:
        before = after = counted.residency()
        _sync(directory)
        if metadata:
            Path("/proc/sys/vm/drop_caches").write_text("2")
        for number in range(_PASSES):
            files = set(after.resident.values())
            for pid in pids:
                _page_out(pid, files)
            _forget(after.resident)
            if number == 0:
                refill_s = refill()
            after = counted.residency()
            if not after.resident_bytes:
                break
    return Eviction(
        bytes=before.total_bytes,
        resident_before=before.fraction,
        resident_after=after.fraction,
        seconds=time.monotonic() - begin - refill_s,
        refill_s=refill_s,
    )


def evict_node(node: Node, refill: Refill = lambda: 0.0) -> Eviction:
    """``evict`` all that a node has of its data directory."""
    return evict([node.pid], node.data_dir, metadata=True, refill=refill)


def make_cold(
    nodes: Sequence[Node],
    *,
    max_resident: float,
    retries: int = 2,
    clear: Callable[[], None],
    evict: Callable[[Node], Eviction] = evict_node,
    clock: Clock = SYSTEM_CLOCK,
) -> Drop:
    """Clear Elasticsearch's own caches by ``clear``, evict what its nodes have, and return once all is cold.

    Of several nodes the one with the largest cached fraction counts. Raises MeasurementError when one has no
    data, or when more than the fraction ``max_resident`` is cached after ``retries`` more attempts;
    SetupError as ``evict`` does.
    """
    begin = clock.monotonic()
    before: float | None = None
    refill_s = 0.0
    for attempt in range(1, retries + 2):
        clear()
        evictions = _at_once(evict, nodes)
        for node, eviction in zip(nodes, evictions, strict=True):
            if not eviction.bytes:
                raise MeasurementError(
                    f"{node.data_dir}: holds no index; is this the data directory of {node.container}?"
                )
        refill_s += max(eviction.refill_s for eviction in evictions)
        if before is None:
            before = max(eviction.resident_before for eviction in evictions)
        warmest, last = max(zip(nodes, evictions, strict=True), key=lambda evicted: evicted[1].resident_after)
        if last.resident_after <= max_resident:
            return Drop(
                before=before,
                after=last.resident_after,
                attempts=attempt,
                seconds=clock.monotonic() - begin - refill_s,
                refill_s=refill_s,
            )
        clock.sleep(_RETRY_PAUSE_S)
    raise MeasurementError(
        f"{warmest.data_dir}: {last.resident_after:.1%} of {format_bytes(last.bytes)} still in the page cache"
        f" after {retries + 1} evictions ({max_resident:.1%} allowed); end whatever else reads the index of "
        f"{warmest.container} (other clients of a search do, too), or use cache:warm"
    )


def _at_once(evict: Callable[[Node], Eviction], nodes: Sequence[Node]) -> list[Eviction]:
    """Of several nodes, what one reads while another is evicted would be cached when the search comes."""
    if len(nodes) == 1:  # a thread would wait for its turn beside all others of the process
        return [evict(nodes[0])]
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(evict, nodes))


def _sync(directory: Path) -> None:
    """Neither method drops dirty pages, so they are written first."""
    with opened(directory) as descriptor:
        if descriptor is None:
            raise SetupError(f"{directory}: gone while it was evicted; is the arm still mounted?")
        try:
            sync_filesystem(descriptor)
        except OSError as error:
            raise SetupError(
                f"{directory}: cannot be synced: {error.strerror}; see the kernel log"
            ) from error


def _forget(files: Iterable[str]) -> None:
    for path in files:
        with opened(path) as descriptor:
            if descriptor is not None:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _page_out(pid: int, files: Set[FileId]) -> None:
    """Page out what ``pid`` maps of these files, by whatever names."""
    inodes = {inode for _, inode in files}
    with _process(pid) as descriptor:
        for mapping in _maps_of(pid, inodes):
            if _backed_by(pid, mapping, files):
                try:
                    page_out(descriptor, mapping.start, mapping.length)
                except ProcessLookupError as error:
                    raise _gone(pid) from error


@contextmanager
def _process(pid: int) -> Iterator[int]:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise _gone(pid) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _gone(pid: int) -> SetupError:
    return SetupError(f"process {pid}: gone; the node has stopped, see its log")


def _maps_of(pid: int, inodes: Set[int]) -> list[Mapping]:
    path = Path(f"/proc/{pid}/maps")
    try:
        text = path.read_text(errors="surrogateescape")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise _gone(pid) from error
    if not text:  # a zombie still has a pid, but no memory
        raise _gone(pid)
    return parse_maps(text, str(path), inodes)


def _backed_by(pid: int, mapping: Mapping, files: Set[FileId]) -> bool:
    # The device in maps is the super block's, on btrfs and overlayfs not st_dev: ask the mapping itself.
    with suppress(FileNotFoundError):  # unmapped meanwhile
        mapped = Path(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}").stat()
        return (mapped.st_dev, mapped.st_ino) in files
    return False
