"""A source of a dataset: a snapshot in a repository of files or in S3, which is never written to.

A repository's contents are listed in its ``index-N`` with the highest N, as JSON. So most obstacles are known
before a node starts. The node that restores mounts the repository read-only, and registers it as read-only.
In S3 the same files are objects: those of the wanted indices are fetched first, so the node needs neither
plugin nor network.
"""

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, Protocol

import elasticsearch

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import NODE_USER, Node
from esrally_ebs.node import api
from esrally_ebs.node.data_directory import NEEDS_RIGHT, release_of, require_version, take_only
from esrally_ebs.node.life import REPOSITORY
from esrally_ebs.store.files import open_file

_NAME: Final = "ours"  # of the repository on our node
_SUCCESS: Final = 1  # of Elasticsearch's SnapshotState
_STATES: Final = {0: "was never finished", 2: "failed", 3: "is partial: shards are missing in it"}
_OLDEST: Final = (5, 0)  # first version with this layout; OpenSearch counts from 1 again
_OLDEST_FOR_8: Final = (7, 0)
_FIRST_OF_INDEX_VERSIONS: Final[tuple[int, ...]] = (8, 11)  # indices then have versions of their own
_FETCHERS: Final = 8
_TIMEOUT_S: Final = 3600.0
_MAX_LIST_BYTES: Final = 1 << 30  # of a repository's list of contents
_LIST: Final = re.compile(r"index-(\d{1,19})", re.ASCII)  # name of a repository's list of contents
_FOLDER: Final = re.compile(r"(?!\.\.?$)[\w.-]{1,255}", re.ASCII)  # name of an index's folder


class ObjectStore(Protocol):
    """A repository in S3; see ``aws.s3``."""

    def sizes(self, below: str) -> Mapping[str, int]: ...

    def read(self, name: str, most_bytes: int) -> bytes: ...

    def fetch(self, name: str, size: int, folder: Path) -> None: ...


@dataclass(kw_only=True)
class Snapshot:
    """A source that restores a snapshot; see ``dataset.Source``."""

    path: Path  # the repository's path, then the snapshot's name
    objects: ObjectStore | None = None  # if the repository is in S3
    indices: Sequence[str] = ()  # indices or data streams to take; none: all
    searched: Sequence[str] = ()  # names that the track searches

    def __post_init__(self) -> None:
        self.repository = self.path.parent  # for S3: where it is fetched to
        self._in = str(self.path.parent).replace("s3:/", "s3://", 1)  # a path has only one of the slashes
        self._name = f"{self._in}/{self.path.name}"

    @property
    def label(self) -> str:
        return f"snapshot {self._name}"

    def require(self, image: str) -> None:
        """Raise PlanError for an incomplete or missing snapshot, SetupError if such a node cannot take it."""
        state = self._facts.get("state")
        if state != _SUCCESS:
            why = next((why for number, why in _STATES.items() if number == state), "is not whole")
            raise PlanError(f"dataset.snapshot: {self._name} {why}; take one that succeeded")
        version = _version_of(self._facts)
        self._require_able(version, image)
        require_version(f"dataset.snapshot: {self._name} was taken", version, image)
        if self.objects is None:
            _require_readable(self.repository, self._parts)

    def _require_able(self, version: tuple[int, ...], image: str) -> None:
        """Raise PlanError for a snapshot that only another program, or a version in between, can restore."""
        by = ".".join(map(str, version))
        if version and version < _OLDEST:
            raise PlanError(
                f"dataset.snapshot: {self._name} was taken by OpenSearch {by}, whose files no "
                "Elasticsearch reads; reindex it from remote into an Elasticsearch, and take a snapshot there"
            )
        if version and version < _OLDEST_FOR_8 and re.search(r":8\.\d", image):
            raise PlanError(
                f"dataset.snapshot: {self._name} was taken by Elasticsearch {by}, older than {image} "
                "restores (7.0); restore it with 7.17, reindex there, and take a snapshot"
            )

    def shape(self) -> Mapping[str, Any]:
        """The snapshot's own unique identity."""
        return {
            "snapshot": self._facts["uuid"],
            "indices": sorted(self.indices),
            "searched": sorted(self.searched),
        }

    def room_bytes(self) -> float:
        """Bytes that the repository has of the wanted indices, over all snapshots."""
        if self.objects is not None:
            return 2.0 * sum(self._wanted.values())  # fetched, then restored
        folders = (self.repository / "indices" / each for each in self._ids())
        files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
        return float(sum(path.stat().st_size for path in files))

    def _ids(self) -> list[str]:
        uuid = self._facts["uuid"]
        names = map(re.escape, self.indices)
        # backing indices of a data stream; shrunk ones have a prefix
        named = [pattern for name in names for pattern in (name, rf"(.*-)?\.ds-{name}-.*")]
        wanted = re.compile("|".join(named) or ".*")
        indices = self._contents["indices"].items()
        return [each["id"] for name, each in indices if uuid in each["snapshots"] and wanted.fullmatch(name)]

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        """Prefixes of all names, below the repository, that a restore reads."""
        uuid = self._facts["uuid"]
        return ("index", f"snap-{uuid}.", f"meta-{uuid}.", *(f"indices/{each}/" for each in self._ids()))

    @cached_property
    def _wanted(self) -> Mapping[str, int]:
        """Objects that a restore reads, with their sizes."""
        assert self.objects is not None
        sizes = dict[str, int]()
        for below in self._parts:
            sizes |= self.objects.sizes(below)
        return {name: size for name, size in sizes.items() if not name.endswith("/")}  # a console's folders

    def lay_out(self, data: Path) -> None:
        """Fetch a repository in S3 to a place beside the data."""
        if self.objects is None:
            return
        self.repository = data.parent / "repository"
        fetch = partial(self.objects.fetch, folder=self.repository)
        try:
            self.repository.mkdir()
            with ThreadPoolExecutor(_FETCHERS) as pool:
                list(pool.map(fetch, self._wanted.keys(), self._wanted.values()))
        except OSError as error:
            raise SetupError(f"dataset.snapshot: {self._name} cannot be copied: {error}") from error
        for folder in (self.repository, *self.repository.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o755)

    def build(self, node: Node) -> None:
        """Restore it. Raises PlanError for a name that is not in it, SetupError if the node refuses."""
        client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=_TIMEOUT_S)
        settings = {"location": REPOSITORY, "readonly": True}
        try:
            client.snapshot.create_repository(name=_NAME, type="fs", settings=settings)
            (facts,) = client.snapshot.get(repository=_NAME, snapshot=self.path.name)["snapshots"]
            names = self._names(facts)
            answer = client.snapshot.restore(
                repository=_NAME,
                snapshot=self.path.name,
                indices=names,
                include_global_state=False,
                # settings for nodes that we lack, and policies that would act during the restore
                ignore_index_settings=["index.routing.allocation.*", "index.lifecycle.name"],
                wait_for_completion=True,
            )
            failed = answer["snapshot"]["shards"]["failed"]
            client.snapshot.delete_repository(name=_NAME)  # other nodes do not have the directory
        except elasticsearch.ConnectionTimeout as error:
            raise SetupError(
                f"dataset.snapshot: {self._name} was not restored within {_TIMEOUT_S / 60:.0f} minutes; name "
                "fewer indices (dataset.indices), or let nodes restore faster than by default: "
                "--car-params=indices.recovery.max_bytes_per_sec:500mb"
            ) from error
        except (elasticsearch.ApiError, elasticsearch.TransportError) as error:
            reason = api.root_cause(getattr(error, "body", None)) or error
            raise SetupError(
                f"dataset.snapshot: {self._name} cannot be restored: {reason}; see whether its repository is "
                "whole"
            ) from error
        if failed:
            raise SetupError(
                f"dataset.snapshot: {self._name}: {failed} shards could not be restored; see whether the "
                "repository is whole"
            )
        if self.objects is not None:
            shutil.rmtree(self.repository)
        take_only(node, self.indices, self.searched, self.path)

    def _names(self, facts: Mapping[str, Any]) -> list[str]:
        """Names to restore: the named ones, or all but the system's. Raises PlanError for one not in it."""
        there = [*facts["indices"], *facts.get("data_streams", ())]
        unknown = [name for name in self.indices if name not in there]
        if unknown or not there:
            shown = ", ".join(sorted(name for name in there if not name.startswith("."))) or "none"
            what = f"no index is named {unknown[0]!r} in" if unknown else "there is no index in"
            raise PlanError(f"dataset.indices: {what} {self._name}; there are {shown}")
        return list(self.indices) or ["*", "-.*"]

    @cached_property
    def _contents(self) -> Mapping[str, Any]:
        """The repository's list of contents. Raises PlanError if the directory is no repository."""
        try:
            contents = json.loads(self._bytes_of(self._newest()))
            for each in contents["snapshots"]:
                _ = "".join((each["name"], each["uuid"]))
            for index in contents["indices"].values():
                _ = [*index["snapshots"]]
                if not _FOLDER.fullmatch(index["id"]):
                    raise ValueError(f"{index['id']!r} is no folder of an index")
        except PermissionError as error:
            raise _unreadable(error) from error
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(
                f"dataset.snapshot: {self._in} is no repository of snapshots ({error}); give the "
                "'location' of the repository (s3://BUCKET/BASE_PATH in S3), '/', and the snapshot's name"
            ) from error
        return dict(contents)

    def _newest(self) -> str:
        """The list to read, chosen as Elasticsearch does: ``index.latest`` is not always there."""
        if self.objects is None:
            names = [path.name for path in self.path.parent.iterdir()]
        else:
            names = list(self.objects.sizes("index-"))
        numbers = [int(match[1]) for match in map(_LIST.fullmatch, names) if match]
        return f"index-{max(numbers, default=0)}"

    def _bytes_of(self, name: str) -> bytes:
        if self.objects is not None:
            return self.objects.read(name, _MAX_LIST_BYTES)
        with open_file(self.path.parent / name, _MAX_LIST_BYTES) as file:
            return file.read()

    @cached_property
    def _facts(self) -> Mapping[str, Any]:
        """The repository's facts about the snapshot. Raises PlanError if it has none of that name."""
        snapshots = {each["name"]: each for each in self._contents["snapshots"]}
        if self.path.name not in snapshots:
            raise PlanError(
                f"dataset.snapshot: no snapshot is named {self.path.name!r} in {self._in} (one being "
                f"taken is not there yet); there are {', '.join(sorted(snapshots)) or 'none'}"
            )
        return dict(snapshots[self.path.name])


def _version_of(facts: Mapping[str, Any]) -> tuple[int, ...]:
    """Version of the node that took a snapshot, as far as recorded; else empty.

    8.10 wrote a number as ``version``; later releases write "8.11.0", and the number as ``index_version``.
    From 8.11 on that number is a version of indices, and only tells the major version.
    """
    version = facts.get("index_version", facts.get("version", ""))
    if not isinstance(version, int):
        return tuple(map(int, re.findall(r"\d+", str(version))[:3]))
    major = version // 1_000_000
    is_later = major > _FIRST_OF_INDEX_VERSIONS[0]
    return (major,) if is_later else min(release_of(version), _FIRST_OF_INDEX_VERSIONS)


def _require_readable(repository: Path, parts: tuple[str, ...]) -> None:
    """Raise PlanError for a link, SetupError for files that the node's user, who is not root, cannot read."""
    if repository.is_symlink():
        raise PlanError(f"dataset.snapshot: {repository} is a link; give the directory that it leads to")
    for path, needed in _all_of(repository, parts):
        facts = path.lstat()
        if stat.S_ISLNK(facts.st_mode):
            raise SetupError(
                f"dataset.snapshot: {path} is a link, which leads nowhere in a node's container; copy the "
                "repository with what its links lead to (cp -rL)"
            )
        if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)):
            raise SetupError(f"dataset.snapshot: {path} is a pipe or device; give a copy without it")
        mode = facts.st_mode >> (6 if facts.st_uid == NODE_USER else 3 if facts.st_gid == 0 else 0)
        if mode & needed != needed:
            raise SetupError(
                f"dataset.snapshot: {path} cannot be read by the node's user ({NODE_USER}); give a copy of "
                f"the repository that belongs to it (cp -r, chown -R {NODE_USER})"
            )


def _unreadable(error: OSError) -> SetupError:
    return SetupError(f"dataset.snapshot: {error.filename}: {error.strerror}; {NEEDS_RIGHT}")


def _all_of(repository: Path, parts: tuple[str, ...]) -> Iterator[tuple[Path, int]]:
    """Files of a repository whose names begin with one of ``parts``, with the access that reading needs."""

    def refuse(error: OSError) -> None:
        raise _unreadable(error) from error

    def is_part(path: Path) -> bool:
        name = str(path.relative_to(repository))
        return name.startswith(parts) or any(part.startswith(f"{name}/") for part in parts)

    for below, folders, names in os.walk(repository, onerror=refuse):
        folder = Path(below)
        folders[:] = [name for name in folders if is_part(folder / name)]  # skips lost+found
        yield folder, 0o5
        # folders, too: links to folders are not entered, so they are checked only here
        yield from ((folder / name, 0o4) for name in (*folders, *names) if is_part(folder / name))
