"""Makes indices once, on plain directories (one per node), and copies them byte by byte to every arm.

From a source and a way to start a node to a data directory in the cache; its key covers all that shapes it.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from esrally_ebs import node as nodes
from esrally_ebs.errors import FormatError, MeasurementError, SetupError
from esrally_ebs.machine.private import opened_below, private_directory
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec, short_name
from esrally_ebs.node import api, identity
from esrally_ebs.node.page_cache import sync_filesystem
from esrally_ebs.store.encoding import dump, parse_sealed, seal
from esrally_ebs.store.files import copy_tree, sync_folder
from esrally_ebs.units import format_bytes
from esrally_ebs.volumes.emulated import control

_NAME = "dataset"  # name of the node that builds it
RECORD = "dataset.json"
_FORMAT = 3
_TIMEOUT_S = 300.0
_MERGES_S = 3600.0  # to merge the largest segments, a hundred gigabytes in some tracks
_POLL_S = 0.2
_ALL_OPEN = "expand_wildcards=open,hidden"  # includes the hidden indices behind data streams
_CLUSTER_SETTINGS: tuple[Mapping[str, bool | None], ...] = (
    # Set one by one, blocks of the user's cluster first: while it is read-only nothing else can be set.
    {"cluster.blocks.read_only": None},
    {"cluster.blocks.read_only_allow_delete": None},
    {"cluster.deprecation_indexing.enabled": False},
    {"xpack.monitoring.collection.enabled": False},
)
# Room that an index needs while segments merge, relative to its size at rest.
MERGE_ROOM = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Built indices at rest."""

    key: str
    path: Path  # folder with ``elasticsearch/``; for several nodes, a folder for each by its number
    nodes: int = 1
    documents: int
    bytes: int
    segments: tuple[Mapping[str, Any], ...]
    hash: str  # over the names and contents of all segment files

    @property
    def folders(self) -> tuple[Path, ...]:
        return _folders(self.path, self.nodes)

    def part(self, at: Sequence[int]) -> "Dataset":
        """The part of nodes at these places, as a dataset whose folders do not exist yet."""
        places = [self.folders[one] / "elasticsearch" for one in at]
        key = f"{self.key}-{''.join(str(one + 1) for one in at)}"
        size = sum(map(_size, places))
        return replace(self, key=key, path=Path(), nodes=len(at), bytes=size, hash=content_hash(*places))

    def sealed(self) -> str:
        """The record with a checksum, as stored beside the folders."""
        return seal(dump(self, indent=2))


class Source(Protocol):
    @property
    def repository(self) -> Path | None:
        """A directory of snapshots that nodes must read while making the dataset."""

    @property
    def label(self) -> str:
        """Short name of what is taken."""

    def require(self, image: str) -> None:
        """Raise PlanError or SetupError if a node of that image cannot take it."""

    def shape(self) -> Mapping[str, Any]:
        """Everything that decides the index's contents, as JSON."""

    def room_bytes(self) -> float:
        """Free bytes needed to make it; first makes all inputs ready."""

    def lay_out(self, data: Path) -> None:
        """Put files into the data directory of a node that is not started yet."""

    def build(self, node: Node) -> None:
        """Make the node (its cluster) serve the whole index and nothing else; it is stopped afterwards."""


class NodeServer(Protocol):
    """Runs nodes on directories of this process's user."""

    def serve(
        self, on: Sequence[Volume], repository: Path | None = None, linked: Sequence[Path] = ()
    ) -> AbstractContextManager[Sequence[Node]]:
        """Nodes of one cluster during the block; afterwards all files belong to the user again.

        ``repository`` has snapshots, which they may read; ``linked`` are mounts with other names of the same
        files, which the nodes may remove.
        """

    def segments(self, cluster: Sequence[Node]) -> Sequence[nodes.Segment]:
        """Segments of the running nodes' index, with hashes of their files."""


def _folders(path: Path, nodes: int) -> tuple[Path, ...]:
    return (path,) if nodes == 1 else tuple(path / str(number) for number in range(1, nodes + 1))


def key_of(source: Source, image: str, nodes: int = 1) -> str:
    """A short hash of everything that shapes the built index."""
    shape = [_FORMAT, source.shape(), image, *([nodes] if nodes > 1 else [])]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]


def ensure(
    home: Path,
    source: Source,
    *,
    image: str,
    server: NodeServer,
    session: str,
    say: Callable[[str], None],
    nodes_per_arm: int = 1,
) -> Dataset:
    """The dataset of the source: cached, or built now with nodes of ``server``.

    The nodes see the source's repository of snapshots, if it has one. Raises SetupError if there is no room
    or Elasticsearch refuses documents; a failed build leaves nothing.
    """
    key = key_of(source, image, nodes_per_arm)
    path = home / "datasets" / key
    existing = cached(home, key)
    if existing is not None:
        return existing
    shutil.rmtree(path, ignore_errors=True)  # lost its record
    _require_room(home, source)  # may take long; another session may make the dataset meanwhile
    with made_whole(path, session) as unfinished:
        folders = _folders(unfinished, nodes_per_arm)
        places = [folder / "elasticsearch" for folder in folders]
        for folder in folders:
            folder.mkdir(mode=0o700, exist_ok=True)
        say(f"Making the index of {source.label} once; later sessions copy the result")
        source.lay_out(places[0])
        with server.serve(_plain_directories(folders), source.repository) as cluster:
            segments, count = _build(source, cluster, server)
        dataset = Dataset(
            key=key,
            path=path,
            nodes=nodes_per_arm,
            documents=count,
            bytes=sum(map(_size, places)),
            segments=tuple(segments),
            hash=content_hash(*places),
        )
        (unfinished / RECORD).write_text(dataset.sealed())
    return cached(home, key) or dataset  # if two sessions build at once, both use the first one's segments


def _build(
    source: Source, cluster: Sequence[Node], server: NodeServer
) -> tuple[Sequence[Mapping[str, Any]], int]:
    """Build; returns segments and number of documents that the nodes then have on disk."""
    first = cluster[0]
    _set_cluster(first)
    source.build(first)
    if len(cluster) > 1:
        identity.settled(cluster)
    _let_settle(first)
    return server.segments(cluster), int(api.get(first.port, f"/_count?{_ALL_OPEN}")["count"])


def _set_cluster(node: Node) -> None:
    """Make a node, and those that get its data, accept commands and write to no index of their own."""
    for settings in _CLUSTER_SETTINGS:
        with suppress(SetupError):  # the image lacks this module
            api.put(node.port, "/_cluster/settings", {"persistent": settings})


def _let_settle(node: Node) -> None:
    """Wait until everything is on disk and no merge runs: exactly this is copied to every arm."""
    api.post(node.port, f"/_flush?wait_if_ongoing=true&{_ALL_OPEN}", timeout_s=_TIMEOUT_S)

    def is_merged() -> bool:
        stats = api.get(node.port, f"/_stats/merge?{_ALL_OPEN}", timeout_s=_TIMEOUT_S)
        merges = stats["_all"]["total"]["merges"]
        return not merges["current"]

    if not SYSTEM_CLOCK.wait_until(is_merged, limit_s=_MERGES_S, poll_s=_POLL_S):
        raise SetupError(
            f"{node.data_dir}: still merging after {_MERGES_S / 60:.0f} minutes; have the track (or your own "
            "node) force-merge it, and wait for that"
        )
    # inputs of a merge stay until they are no longer searched, and the merge is committed
    api.post(node.port, f"/_refresh?{_ALL_OPEN}", timeout_s=_TIMEOUT_S)
    api.post(node.port, f"/_flush?force=true&wait_if_ongoing=true&{_ALL_OPEN}", timeout_s=_TIMEOUT_S)


def copy_to(dataset: Dataset, *volumes: Volume, go_on: Callable[[], object] = lambda: None) -> None:
    """Copy the dataset to an arm's volumes at full speed, then verify every segment file.

    ``go_on`` is called before each file, and may raise an error of ours to stop. Raises SetupError if the
    dataset itself has changed, MeasurementError if the copy differs.
    """
    for folder, volume in zip(dataset.folders, volumes, strict=True):
        _copy(folder / "elasticsearch", volume, go_on)
    actual = content_hash(*(volume.mount / "elasticsearch" for volume in volumes))
    if actual != dataset.hash:
        if content_hash(*(folder / "elasticsearch" for folder in dataset.folders)) != dataset.hash:
            raise SetupError(
                f"{dataset.path}: the index that is kept there is no longer what was built; see what wrote "
                "there, or whether its disk fails, and remove it, then it is built again"
            )
        names = ", ".join(volume.spec.name for volume in volumes)
        mounts = ", ".join(str(volume.mount) for volume in volumes)
        raise MeasurementError(
            f"arm {names}: the copied index differs from the dataset ({actual[:16]} against "
            f"{dataset.hash[:16]}); the volume at {mounts} does not keep data, check it"
        )


def _copy(source: Path, volume: Volume, go_on: Callable[[], object]) -> None:
    target, free, size = volume.mount / "elasticsearch", shutil.disk_usage(volume.mount).free, _size(source)
    if free < size * MERGE_ROOM:
        raise SetupError(
            f"arm {volume.spec.name}: {volume.mount} has {format_bytes(free)} free, the index needs "
            f"{format_bytes(size * MERGE_ROOM)}; use a larger volume or fewer documents"
        )
    with control.unlimited(volume.control):
        try:
            copy_tree(source, target, go_on=go_on)
            with opened_below(target) as folder:
                sync_filesystem(folder)  # not sync(): any other file system that hangs would be waited for
        except OSError as error:
            raise SetupError(
                f"arm {volume.spec.name}: copying the index to {volume.mount}: {error}"
            ) from error


def require_all(count: int, sent: int, corpus: str) -> None:
    """Raise MeasurementError unless the index has exactly the corpus's documents."""
    if count != sent:
        raise MeasurementError(
            f"indexing the dataset: the index has {count:,} documents, {corpus} has {sent:,}; "
            "nothing was kept of it, start again"
        )


def content_hash(*places: Path) -> str:
    """SHA-256 over names and contents of an index's segment files, over the nodes' data directories."""
    return hash_of(map(nodes.hashes, places))


def hash_of(hashes: Iterable[Mapping[str, str]]) -> str:
    digest = hashlib.sha256()
    for of_node in hashes:
        digest.update(json.dumps(of_node, sort_keys=True).encode())
    return digest.hexdigest()


def _plain_directories(folders: Sequence[Path]) -> list[Volume]:
    """Directories for building: no volumes under comparison, so without limits."""
    names = [_NAME] if len(folders) == 1 else [f"{_NAME}-{number}" for number in range(1, len(folders) + 1)]
    return [
        Volume(spec=VolumeSpec(name=name, type="directory", size_bytes=0), kind=Kind.DIRECTORY, mount=folder)
        for name, folder in zip(names, folders, strict=True)
    ]


def unfinished_folder(home: Path, key: str, session: str) -> Path:
    """Folder where a session builds what will be kept under that key; taking the session down removes it."""
    return home / "datasets" / f"{key}.{short_name(session)}.unfinished"


@contextmanager
def made_whole(path: Path, session: str) -> Iterator[Path]:
    """A folder that becomes ``path`` when the block ends, and is removed if it fails.

    Also removed if ``path`` exists by then: another session was quicker, and may be using it.
    """
    new = unfinished_folder(path.parents[1], path.name, session)
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        yield new
        sync_folder(new, {})  # so that a power cut leaves it whole or unfinished
        try:
            new.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def cached(home: Path, key: str) -> Dataset | None:
    """The dataset kept under that key; None if there is none."""
    path = home / "datasets" / key
    if path.exists():
        private_directory(path).chmod(0o700)  # earlier releases' datasets may belong to the node's user
    try:
        record = parse_sealed((path / RECORD).read_text(), str(path / RECORD))
        return Dataset(**{**record, "path": path, "segments": tuple(record["segments"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, FormatError) as error:
        raise SetupError(
            f"{path / 'dataset.json'}: not the record of a built index; remove {path}, then it is built again"
        ) from error


def _require_room(home: Path, source: Source) -> None:
    free, needed = shutil.disk_usage(home).free, source.room_bytes()
    if free < needed:
        raise SetupError(
            f"{home}: {format_bytes(free)} free, making the index of {source.label} needs about "
            f"{format_bytes(needed)}; make room or set ESRALLY_EBS_HOME"
        )


def _size(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
