"""Makes an index cold and proves it: evicts a directory's files, also from processes that map them.

``drop_caches`` and ``posix_fadvise`` keep every page that a process has mapped (17 to 79 % of a Lucene
index). So first the node's mapped pages are paged out, then the rest is dropped, then what is left is
counted.
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
from esrally_ebs.units import format_beside, format_bytes, format_share

_PASSES = 2  # pages on a CPU's own list cannot be taken; the first pass drains these lists
_RETRY_PAUSE_S = 0.2  # lets a merge or refresh that reads the index finish

Refill = Callable[[], float]  # waits until a volume's buckets are full; returns the seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One eviction of a directory; the fractions are of ``bytes``."""

    bytes: int
    resident_before: float
    resident_after: float
    seconds: float  # without ``refill_s``
    refill_s: float  # waited for the volume after the eviction


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The result of making an index cold, for ``events.jsonl`` and each sample."""

    before: float  # fraction of the index in the page cache
    after: float
    attempts: int
    seconds: float  # without ``refill_s``
    refill_s: float  # waited for the volumes' buckets, beyond the time of eviction


def evict(
    pids: Sequence[int], directory: Path, *, metadata: bool = False, refill: Refill = lambda: 0.0
) -> Eviction:
    """Remove files under ``directory`` from the page cache, even if the processes ``pids`` map them.

    ``metadata`` also drops the machine's clean dentries, inodes and file system buffers. ``refill`` waits
    until the volume's buckets, which also refill during eviction, are full; pages that come back meanwhile
    are counted and evicted again. Pages that another process maps as well stay, and so does tmpfs: check
    ``resident_after``. Raises SetupError without root, for a missing process, or without process_madvise(2)
    (Linux 5.10).
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
    """``evict`` a node's whole data directory."""
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
    """Clear Elasticsearch's caches by ``clear``, evict its nodes' files, and return once all are cold.

    For several nodes, the largest cached fraction counts. Raises MeasurementError if a node has no data, or
    if more than the fraction ``max_resident`` is cached after ``retries`` more attempts; SetupError like
    ``evict``.
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
        f"{warmest.data_dir}: {format_beside(last.resident_after, max_resident, least=1)} of"
        f" {format_bytes(last.bytes)} still in the page cache after {retries + 1} evictions"
        f" ({format_share(max_resident)} allowed); end whatever else reads the index of "
        f"{warmest.container} (other clients of a search do, too), or use cache:warm"
    )


def _at_once(evict: Callable[[Node], Eviction], nodes: Sequence[Node]) -> list[Eviction]:
    """Evict nodes simultaneously: else one might read pages while another is being evicted."""
    if len(nodes) == 1:  # no thread: it would compete with all others of the process
        return [evict(nodes[0])]
    with ThreadPoolExecutor(len(nodes)) as pool:
        return list(pool.map(evict, nodes))


def _sync(directory: Path) -> None:
    """Write dirty pages first: neither method drops them."""
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
    """Page out what ``pid`` maps of these files, under any name."""
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
    # maps has the super block's device, which differs from st_dev on btrfs and overlayfs: ask the mapping.
    with suppress(FileNotFoundError):  # unmapped meanwhile
        mapped = Path(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}").stat()
        return (mapped.st_dev, mapped.st_ino) in files
    return False
