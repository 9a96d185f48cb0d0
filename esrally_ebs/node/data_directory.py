"""A source of a dataset: the user's own indices in a data directory, which is never written to."""

import errno
import fcntl
import hashlib
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from esrally_ebs.errors import MeasurementError, PlanError, SetupError
from esrally_ebs.model import Node
from esrally_ebs.node import api
from esrally_ebs.store.files import copy_tree, open_file

NEEDS_RIGHT: Final = "run as root alone (SUDO_UID unset) or as its owner"
_LOCK: Final = "node.lock"
_MAX_LOCK_BYTES: Final = 1 << 20  # the lock file is empty
_MAX_COMMIT_BYTES: Final = 1 << 24  # a commit has a few kilobytes
_OLDEST_FOR_8: Final = (7, 17)
_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_VERSION: Final = re.compile(rb"node_version.(\d{6,9})", re.DOTALL)  # user data of a Lucene commit
_OPENSEARCH: Final = 1 << 27  # bit that is set in OpenSearch's version numbers
_UPKEEP: Final[tuple[tuple[Callable[[int, str], object], str], ...]] = (
    (api.post, "/_ilm/stop"),
    (api.post, "/_slm/stop"),
    (api.post, "/_transform/_all/_stop?force=true&wait_for_completion=true&timeout=20s"),
    (api.delete, "/_data_stream/*/_lifecycle?expand_wildcards=all"),  # cannot be stopped
    # results of tasks that ran unattended, such as a polled force-merge; no copy may have this name
    (api.delete, "/.tasks"),
)
# Blocks of an index, by their numbers in the cluster state; "write" (8) and "closed" (4) do not matter. In
# order of removal: "read" cannot be removed while another one is set.
_BLOCKS: Final = {"5": "read_only", "9": "metadata", "12": "read_only_allow_delete", "7": "read"}
_BLOCKS_OF_ALL: Final = {"6": "read_only", "13": "read_only_allow_delete"}  # of the cluster


@dataclass(frozen=True, kw_only=True)
class DataDirectory:
    """A source that copies a data directory; see ``dataset.Source``."""

    path: Path
    repository: None = None
    indices: Sequence[str] = ()  # indices, aliases or data streams to take; none: all
    searched: Sequence[str] = ()  # names that the track searches

    @property
    def label(self) -> str:
        return str(self.path)

    def require(self, image: str) -> None:
        """Raise PlanError if no node wrote it, SetupError if it is in use or too new."""
        try:
            self._require_data()
            _require_stopped(self.path)  # first: files of a running node come and go
            _require_readable(self.path)
            written = version_of(self.path)
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if written:
            self._require_able(written, image)
            require_version(f"dataset.data: {self.path} was written", written, image)

    def _require_data(self) -> None:
        if not any((self.path / below).is_dir() for below in ("indices", "nodes/0/indices")):
            raise PlanError(
                f"dataset.data: {self.path} is no data directory of Elasticsearch (it has no indices/); give "
                "what path.data of the node says"
            )

    def _require_able(self, written: tuple[int, ...], image: str) -> None:
        """Raise PlanError for a directory that only another program, or an intermediate version, can read."""
        if not any(written):
            raise PlanError(
                f"dataset.data: {self.path} was written by OpenSearch, whose files no Elasticsearch reads; "
                "copy its documents to an Elasticsearch (reindex from remote), stop that, and give its data"
            )
        if written < _OLDEST_FOR_8 and re.search(r":8\.\d", image):
            raise PlanError(
                f"dataset.data: {self.path} was written by Elasticsearch {'.'.join(map(str, written))}, "
                f"older than {image} takes over (7.17); start a copy once with 7.17, stop it, give the copy"
            )

    def shape(self) -> Mapping[str, Any]:
        """Names, sizes and times of all files: Lucene never changes a file, so others mean another index."""
        print_ = hashlib.sha256(json.dumps(self._listed()).encode()).hexdigest()
        return {"data": print_, "indices": sorted(self.indices), "searched": sorted(self.searched)}

    def room_bytes(self) -> float:
        return sum(size for _, size, _ in self._listed())

    def _listed(self) -> list[tuple[str, int, int]]:
        """Name, bytes and time of change (ns) of each file. Raises SetupError."""
        try:
            facts = [(name, path.stat()) for name, path in _files(self.path)]
        except OSError as error:  # changed since the first look
            raise SetupError(
                f"dataset.data: {error.filename}: {error.strerror}; keep its node stopped and its mount there"
            ) from error
        return [(name, each.st_size, each.st_mtime_ns) for name, each in facts]

    def lay_out(self, data: Path) -> None:
        """Copy the directory. Raises MeasurementError if it changes meanwhile, or the copy differs."""
        if data.resolve().is_relative_to(self.path.resolve()):
            raise PlanError(
                f"dataset.data: {self.path} holds {data}, into which it is to be copied; set ESRALLY_EBS_HOME"
                " to a directory outside"
            )
        try:
            before = _content(self.path)
            try:
                copy_tree(self.path, data, without=_LOCK)
            finally:  # also after an interrupted copy: its user must be able to remove it
                _make_writable(data)
            after, copied = _content(self.path), _content(data)
        except OSError as error:
            raise SetupError(f"dataset.data: {self.path} cannot be copied: {error}") from error
        _require_stopped(self.path)
        if not before == after == copied:
            raise MeasurementError(
                f"dataset.data: {self.path} changed while it was copied; stop the node that writes there"
            )

    def build(self, node: Node) -> None:
        """Remove all indices that were not named from the copy.

        Raises PlanError for a name that does not exist.
        """
        take_only(node, self.indices, self.searched, self.path)


def take_only(node: Node, indices: Sequence[str], searched: Sequence[str], path: Path) -> None:
    """Keep only the named indices on a node that serves the data of ``path``; all if none was named.

    Raises PlanError for a name that does not exist, and for a searched index that is not among them.
    """
    end_upkeep(node)
    _unblock(node)
    there = api.get(node.port, "/_resolve/index/*?expand_wildcards=all")
    members = _members(there)
    closed = {each["name"] for each in there["indices"] if "closed" in each.get("attributes", ())}
    needed = _members_of("track", searched, members, path)
    named = _members_of("dataset.indices", indices, members, path)
    if unsearchable := closed & (needed | named):
        raise PlanError(
            f"dataset.indices: {min(unsearchable)} is closed in {path}; open it on its own node and stop "
            "that again, or leave it out"
        )
    if not indices:
        return
    if needed - named:
        raise PlanError(f"dataset.indices: lacks {min(needed - named)}, which the track searches; add it")
    streams = [each for each in there["data_streams"] if named.isdisjoint(each["backing_indices"])]
    for stream in streams:
        api.delete(node.port, f"/_data_stream/{quote(stream['name'], safe='')}")
    gone = {index for stream in streams for index in stream["backing_indices"]}
    for name in {entry["name"] for entry in there["indices"]} - named - gone:
        api.delete(node.port, f"/{quote(name, safe='')}")


def _unblock(node: Node) -> None:
    """Remove blocks that prevent searching or deleting indices, or clearing their caches."""
    blocked = api.get(node.port, "/_cluster/state/blocks?filter_path=blocks").get("blocks", {})
    # one at a time: beside any other setting, a block would prevent its own removal
    for setting in (block for number, block in _BLOCKS_OF_ALL.items() if number in blocked.get("global", ())):
        api.put(node.port, "/_cluster/settings", {"persistent": {f"cluster.blocks.{setting}": None}})
    for name, blocks in blocked.get("indices", {}).items():
        for setting in (block for number, block in _BLOCKS.items() if number in blocks):
            api.put(node.port, f"/{quote(name, safe='')}/_settings", {f"index.blocks.{setting}": None})


def end_upkeep(node: Node) -> None:
    """Stop policies, schedules and transforms on a node whose data the arms get.

    They would merge, write and delete, on one arm before the other; and snapshots in a repository that the
    node still knows belong to its user. Also deletes results of tasks.
    """
    for send, path in _UPKEEP:
        with suppress(SetupError):  # the image lacks the module, or there was nothing to stop
            send(node.port, path)


def require_version(what: str, version: tuple[int, ...], image: str) -> None:
    """Raise SetupError if data of this version are newer than an image whose tag says its version.

    A version of fewer than three numbers is a lower bound.
    """
    ours = re.search(r":(\d+)\.(\d+)\.(\d+)", image)
    if ours and version > tuple(map(int, ours.groups())):
        raise SetupError(
            f"{what} by Elasticsearch {'.'.join(map(str, version))}{' or later' if len(version) < 3 else ''},"
            f" newer than {image}; set ES_IMAGE to an image of the same version or later"
        )


def _members_of(key: str, names: Sequence[str], members: Mapping[str, Sequence[str]], path: Path) -> set[str]:
    """Indices behind these names. Raises PlanError for a name that does not exist."""
    unknown = [name for name in names if name not in members]
    if unknown:
        there = ", ".join(sorted(name for name in members if not name.startswith("."))) or "none"
        raise PlanError(f"{key}: no index is named {unknown[0]!r} in {path}; there are {there}")
    return {index for name in names for index in members[name]}


def _members(there: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Indices behind each name that a search may use."""
    members: dict[str, Sequence[str]] = {entry["name"]: [entry["name"]] for entry in there["indices"]}
    members |= {entry["name"]: entry["indices"] for entry in there["aliases"]}
    return members | {entry["name"]: entry["backing_indices"] for entry in there["data_streams"]}


def version_of(data: Path) -> tuple[int, int, int] | None:
    """Version of the last node that wrote there: zeros for OpenSearch, None before 7.6 (not recorded)."""
    for path in sorted(
        data.glob("**/_state/segments_*"), key=lambda path: path.stat().st_mtime, reverse=True
    ):
        with open_file(path, _MAX_COMMIT_BYTES) as file:
            match = _VERSION.search(file.read())
        if match:
            number = int(match[1])
            if number & _OPENSEARCH:
                return 0, 0, 0
            return release_of(number)
    return None


def release_of(number: int) -> tuple[int, int, int]:
    """The release of a version number: 8080299 is 8.8.2."""
    return number // 1_000_000, number // 10_000 % 100, number // 100 % 100


def _make_writable(copy: Path) -> None:
    """A backup may be read-only; then its node would report it as locked by another one."""
    for folder, _, names in os.walk(copy):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))


def _unreadable(data: Path, error: OSError) -> SetupError:
    next_step = NEEDS_RIGHT if isinstance(error, PermissionError) else "give a directory that can be read"
    place = error.filename or data  # failed reads name no file
    return SetupError(f"dataset.data: {place}: {error.strerror}; {next_step}")


def _require_readable(data: Path) -> None:
    for _, path in _files(data):
        if path.is_symlink():
            raise SetupError(
                f"dataset.data: {path} is a link, which leads nowhere in a node's container; give a copy "
                "with what its links lead to (cp -rL)"
            )
        if not path.is_file():
            raise SetupError(f"dataset.data: {path} is a pipe or device; give a copy without it")
        if not os.access(path, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _require_stopped(data: Path) -> None:
    """Raise SetupError if a node holds its lock, according to the kernel; takes no lock, opens read-only."""
    for lock in data.glob(f"**/{_LOCK}"):
        with open_file(lock, _MAX_LOCK_BYTES) as file:
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK:
            raise SetupError(
                f"dataset.data: {data} is in use by a node{f' (process {pid})' if pid > 0 else ''}; stop it, "
                "or give a copy or a snapshot of its volume"
            )


def _files(data: Path) -> Iterator[tuple[str, Path]]:
    """All files except locks, by their relative names."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(data, onerror=refuse):
        folders.sort()
        links = [name for name in folders if Path(folder, name).is_symlink()]  # os.walk does not follow them
        for name in sorted([*names, *links]):
            if name != _LOCK:
                path = Path(folder, name)
                yield str(path.relative_to(data)), path


def _content(data: Path) -> str:
    digest = hashlib.sha256()
    for name, path in _files(data):
        with open_file(path, sys.maxsize) as file:  # another process may have put a link or a pipe there
            digest.update(os.fsencode(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\0"))
    return digest.hexdigest()
