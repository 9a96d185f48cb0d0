"""One index, built once on a plain directory, and copied byte by byte to every arm.

Takes documents and a way to start a node, gives a data directory in the cache, keyed by all that shapes it.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import elasticsearch

from esrally_ebs import node as nodes
from esrally_ebs.context import INDEX
from esrally_ebs.emulator import control
from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.units import format_bytes

_FORMAT = 1
_BULK_DOCUMENTS = 5000
_BULK_CLIENTS = 2  # as many as keep two cores busy together with Elasticsearch's own threads
_TIMEOUT_S = 300.0
_ACTION = b'{"index":{}}\n'
# Room that an index needs while segments merge, against its size at rest.
_MERGE_ROOM = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A built index at rest."""

    key: str
    path: Path  # the folder that holds ``elasticsearch/``
    documents: int
    bytes: int
    segments: tuple[Mapping[str, Any], ...]
    hash: str  # over the names and contents of all segment files

    def record(self) -> dict[str, Any]:
        """What of it belongs into the session."""
        return {
            **asdict(self),
            "path": str(self.path),
            "segments": [dict(segment) for segment in self.segments],
        }


def key_of(*, documents: int | str, corpus: str, index_body: Mapping[str, Any], image: str) -> str:
    """A short hash of everything that shapes the built index."""
    shape = [_FORMAT, documents, corpus, index_body, image]
    return hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]


def ensure(
    home: Path,
    key: str,
    *,
    documents: Callable[[], Path],
    index_body: Mapping[str, Any],
    start: Callable[[Volume], Node],
    session: str,
    say: Callable[[str], None],
) -> Dataset:
    """The dataset of that key: from the cache, or built now with a node that ``start`` starts.

    Raises SetupError without room or when Elasticsearch refuses documents; a broken build leaves nothing.
    """
    path = home / "datasets" / key
    held = _load(path)
    if held is not None:
        return held
    shutil.rmtree(path, ignore_errors=True)  # what lost the record of what it is
    corpus = documents()
    _require_room(home, corpus)
    unfinished = home / "datasets" / f"{key}.{session[:8]}.unfinished"  # clean.py removes what is called so
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        say(f"Indexing {corpus.name} once; later sessions copy the result")
        node = start(_plain_directory(unfinished))
        try:
            count = _index(node, corpus, index_body)
            segments = nodes.segments(node, INDEX)
        finally:
            nodes.stop(node)
        data = unfinished / "elasticsearch"
        dataset = Dataset(
            key=key,
            path=path,
            documents=count,
            bytes=_size(data),
            segments=tuple(segments),
            hash=content_hash(data),
        )
        (unfinished / "dataset.json").write_text(json.dumps(dataset.record(), indent=2))
        unfinished.rename(path)
    except BaseException:
        nodes.remove(session)
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return dataset


def copy_to(dataset: Dataset, volume: Volume) -> None:
    """Copy the dataset onto a volume at full speed, then check that every segment file arrived as it is."""
    target = volume.mount / "elasticsearch"
    free = shutil.disk_usage(volume.mount).free
    if free < dataset.bytes * _MERGE_ROOM:
        raise SetupError(
            f"arm {volume.spec.name}: {volume.mount} has {format_bytes(free)} free, the index needs "
            f"{format_bytes(dataset.bytes * _MERGE_ROOM)}; use a larger volume or fewer documents"
        )
    if volume.control is not None:
        control.change(volume.control, unlimited=True)
    try:
        shutil.copytree(dataset.path / "elasticsearch", target, dirs_exist_ok=True)
        os.sync()
    except OSError as error:
        raise SetupError(f"arm {volume.spec.name}: copying the index to {volume.mount}: {error}") from error
    finally:
        if volume.control is not None:
            control.change(volume.control, unlimited=False)
    found = content_hash(target)
    if found != dataset.hash:
        raise MeasurementError(
            f"arm {volume.spec.name}: the copied index differs from the dataset ({found[:16]} against "
            f"{dataset.hash[:16]}); "
            f"the volume at {volume.mount} does not keep data, check it"
        )


def content_hash(data: Path) -> str:
    """SHA-256 over the names and contents of an index's segment files in a node's data directory."""
    return hashlib.sha256(json.dumps(nodes.hashes(data), sort_keys=True).encode()).hexdigest()


def _plain_directory(path: Path) -> Volume:
    """Where the dataset is built: no volume under comparison, so without limits."""
    spec = VolumeSpec(name="dataset", type="directory", size_bytes=0)
    return Volume(spec=spec, kind=Kind.DIRECTORY, mount=path)


def _load(path: Path) -> Dataset | None:
    try:
        record = json.loads((path / "dataset.json").read_text())
        return Dataset(**{**record, "path": path, "segments": tuple(record["segments"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(
            f"{path / 'dataset.json'}: not the record of a built index; remove {path}, then it is built again"
        ) from error


def _require_room(home: Path, corpus: Path) -> None:
    free = shutil.disk_usage(home).free
    needed = corpus.stat().st_size * _MERGE_ROOM  # an index of these documents is about as large as they are
    if free < needed:
        raise SetupError(
            f"{home}: {format_bytes(free)} free, building the index needs about {format_bytes(needed)}; "
            "make room or set ESRALLY_EBS_HOME"
        )


def _size(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())


def _index(node: Node, corpus: Path, index_body: Mapping[str, Any]) -> int:
    client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=_TIMEOUT_S)
    settings = {
        **index_body.get("settings", {}),
        "index.refresh_interval": "-1",
        "index.translog.durability": "async",
    }
    client.indices.create(index=INDEX, settings=settings, mappings=index_body["mappings"])
    with corpus.open("rb") as lines, ThreadPoolExecutor(_BULK_CLIENTS) as pool:
        pending: deque[Future[None]] = deque()
        sent = 0
        for body in _bulks(lines):
            sent += len(body) // 2
            pending.append(pool.submit(_bulk, client, body))
            if len(pending) > 2 * _BULK_CLIENTS:
                pending.popleft().result()
        for future in pending:
            future.result()
    client.indices.refresh(index=INDEX)
    client.indices.flush(index=INDEX, wait_if_ongoing=True)
    client.indices.put_settings(
        index=INDEX, settings={"index.refresh_interval": None, "index.translog.durability": None}
    )
    count = int(client.count(index=INDEX)["count"])
    require_all(count, sent, corpus)
    return count


def require_all(count: int, sent: int, corpus: Path) -> None:
    """Raise MeasurementError when the index does not hold just the documents of the corpus."""
    if count != sent:
        raise MeasurementError(
            f"indexing the dataset: the index has {count:,} documents, {corpus} has {sent:,}; "
            "nothing was kept of it, start again"
        )


def _bulks(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    documents = iter(lines)
    while chunk := list(islice(documents, _BULK_DOCUMENTS)):
        yield [line for document in chunk for line in (_ACTION.rstrip(), document.rstrip())]


def _bulk(client: elasticsearch.Elasticsearch, body: list[Any]) -> None:
    answer = client.bulk(index=INDEX, operations=body, filter_path="errors,items.*.error")
    if answer.get("errors"):
        first = next(item for item in answer["items"] if item.get("index", {}).get("error"))
        raise SetupError(f"indexing the dataset: Elasticsearch refused a document: {first['index']['error']}")
