"""Brings an arm back: gives its node the dataset's files again after it has added documents.

Lucene never changes a segment's file; it adds files and removes others. So a second name for each file (a
hard link) keeps it through any merge, and costs neither room nor time. Commits and translogs are small, and
copied. Indices are closed while their files are replaced, then opened: that takes a fraction of the time of
restarting the node (benchmarks/bring_back.py), and the JVM keeps its compiled code.
"""

import errno
import os
import shutil
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from esrally_ebs.errors import CommandError, MeasurementError, SetupError
from esrally_ebs.machine.private import opened_below
from esrally_ebs.machine.processes import run
from esrally_ebs.model import NODE_USER, Node, Volume
from esrally_ebs.node import api
from esrally_ebs.node.dataset import content_hash
from esrally_ebs.node.eviction import evict
from esrally_ebs.node.identity import segment_files
from esrally_ebs.volumes.emulated import control

KEPT = "kept"  # beside the node's data directory
_PARTS = ("index", "translog")  # of a shard; its _state, which identifies the copy, stays
_LOCK = "write.lock"
_READ_WRITE = 0o666  # mode bits to copy: no setuid, as users may be able to open the file
_NAMES_AT_ONCE = 15  # indices per request: names of at most 255 bytes in a path of at most 4 KiB
_TIMEOUT_S = 120.0
_READY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtBack:
    seconds: float
    files: int
    bytes: int
    documents: int  # found by a search afterwards
    resident: float  # fraction of the index in the page cache afterwards


def keep(volume: Volume, *, of: int | None = None) -> None:
    """Keep the index on a volume, before any node opens it there, for ``bring_back``. Raises SetupError.

    If ``of`` is given, refuses files of other users: whoever may write there could link to them.
    """
    target = volume.mount / KEPT
    try:
        for part in _parts_of(volume.mount / "elasticsearch"):
            (target / part).mkdir(parents=True, mode=0o700)
            with opened_below(volume.mount, "elasticsearch", *part.parts) as folder:
                for name in os.listdir(folder):  # noqa: PTH208 - below a descriptor
                    if name != _LOCK:
                        _keep_file(name, folder, target / part / name, of)
    except OSError as error:
        raise SetupError(
            f"arm {volume.spec.name}: {error.filename}: {error.strerror}; to be brought back after documents "
            "were added, its files need a second name each: take a file system with hard links"
        ) from error


def _keep_file(name: str, folder: int, target: Path, of: int | None) -> None:
    if _is_segment(name):
        os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
        try:
            _require_file_of(target.lstat(), of, name)
        except OSError:
            target.unlink()
            raise
        return
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(source, "rb") as file, target.open("xb") as copy:
        status = os.fstat(source)
        _require_file_of(status, of, name)
        shutil.copyfileobj(file, copy)
        os.fchmod(copy.fileno(), status.st_mode & _READ_WRITE)


def _require_file_of(status: os.stat_result, user: int | None, name: str) -> None:
    if not stat.S_ISREG(status.st_mode) or user not in (None, status.st_uid):
        raise OSError(errno.EPERM, f"no file of user {user}" if user else "no file", name)


def bring_back(node: Node, volume: Volume) -> BroughtBack:
    """Give a node the files of ``keep`` again, outside the page cache, with full buckets.

    Raises SetupError if the node refuses, MeasurementError if it then has other segments.
    """
    began_s = time.monotonic()
    kept = volume.mount / KEPT
    with control.unlimited(volume.control):
        names = _dataset_indices(node, kept)
        _each(node, names, "_close")
        try:
            files = [_replace(volume, part) for part in _parts_of(kept)]
        except OSError as error:
            raise SetupError(
                f"arm {volume.spec.name}: bringing its index back: {error}; see what else writes there"
            ) from error
        _each(node, names, "_open")
        if not api.is_ready(node.port, patience_s=_READY_S):
            raise SetupError(
                f"arm {node.arm}: its node does not open the index that it was brought back to within "
                f"{_READY_S:.0f} s; see its log with 'docker logs {node.container}'"
            )
        _require_same(node, kept)
        documents = api.get(node.port, "/_count?expand_wildcards=open,hidden", timeout_s=_TIMEOUT_S)["count"]
        eviction = evict([node.pid], node.data_dir)
        if volume.control is not None:  # give what was removed back to its image, which may be in memory
            with suppress(CommandError):  # a kernel without discards: it grows up to the volume's size
                run(["fstrim", volume.mount], timeout_s=_TIMEOUT_S)
    return BroughtBack(
        seconds=time.monotonic() - began_s,
        files=sum(files),
        bytes=eviction.bytes,
        documents=documents,
        resident=eviction.resident_after,
    )


def require_kept(volume: Volume, hash_: str) -> str:
    """Read all kept files, which must still be the dataset's. Returns their hash; raises MeasurementError."""
    with control.unlimited(volume.control):
        actual = content_hash(volume.mount / KEPT)
    if actual != hash_:
        raise MeasurementError(
            f"arm {volume.spec.name}: the files that it was brought back to changed meanwhile ({actual[:16]} "
            f"against {hash_[:16]}); see what else writes to {volume.mount}"
        )
    return actual


def _parts_of(data: Path) -> list[Path]:
    """Folders of each shard's commit and translog, relative to the data directory."""
    return sorted(path.relative_to(data) for name in _PARTS for path in data.glob(f"indices/*/*/{name}"))


def _is_segment(name: str) -> bool:
    """Whether Lucene never changes a file of that name."""
    return name.startswith("_")


def _dataset_indices(node: Node, kept: Path) -> list[str]:
    """The dataset's open indices; deletes others that have been made since (by a template)."""
    uuids = {path.name for path in kept.glob("indices/*")}
    wanted = "filter_path=*.settings.index.uuid,*.data_stream"
    there = api.get(node.port, f"/*?expand_wildcards=open,hidden&{wanted}")
    new = [(name, facts) for name, facts in there.items() if facts["settings"]["index"]["uuid"] not in uuids]
    for stream in {facts["data_stream"] for _, facts in new if "data_stream" in facts}:
        api.delete(node.port, f"/_data_stream/{quote(stream, safe='')}")
    for name in (name for name, facts in new if "data_stream" not in facts):
        api.delete(node.port, f"/{quote(name, safe='')}")
    return [name for name, facts in there.items() if facts["settings"]["index"]["uuid"] in uuids]


def _each(node: Node, names: Sequence[str], what: str) -> None:
    for first in range(0, len(names), _NAMES_AT_ONCE):
        some = ",".join(quote(name, safe="") for name in names[first : first + _NAMES_AT_ONCE])
        api.post(node.port, f"/{some}/{what}", timeout_s=_TIMEOUT_S)


def _replace(volume: Volume, part: Path) -> int:
    """Replace the files of one folder by the kept ones; returns their number.

    The node's user may write there, so names are looked up below a descriptor, and links are not followed.
    """
    with opened_below(volume.mount, "elasticsearch", *part.parts) as folder:
        for name in os.listdir(folder):  # noqa: PTH208 - below a descriptor
            if name != _LOCK:
                os.unlink(name, dir_fd=folder)
        kept = [path for path in (volume.mount / KEPT / part).iterdir() if path.name != _LOCK]
        for path in kept:
            if _is_segment(path.name):
                os.link(path, path.name, dst_dir_fd=folder, follow_symlinks=False)
            else:
                _copy(path, folder)
        return len(kept)


def _copy(path: Path, folder: int) -> None:
    mode = path.stat().st_mode & _READ_WRITE
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path.name, new, mode, dir_fd=folder), "wb") as file:
        os.fchown(file.fileno(), NODE_USER, 0)
        file.write(path.read_bytes())


def _require_same(node: Node, kept: Path) -> None:
    """Require the node's segments to be the kept files: same inodes under the same names."""
    actual, wanted = segment_files(node.data_dir), segment_files(kept)
    if actual != wanted:
        other = min(str(path) for path, _ in actual ^ wanted)
        raise MeasurementError(
            f"arm {node.arm}: was brought back, and then its node changed {other}; arms would not be "
            "comparable, see the node's log"
        )
