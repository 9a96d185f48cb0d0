"""What must agree between arms: an index's segments, by name and content, and which node has what.

A cluster's nodes are numbered from 1, in the order of the arm's volumes.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict  # pydantic does not accept Python 3.11's own

from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.private import opened_below
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import Node
from esrally_ebs.node import api

# Elasticsearch starts at the copy in a shard's list that a hash of the preference selects. With 24 texts,
# each of two or three copies is selected, except in one of millions of clusters.
PREFERENCES = tuple(f"ebs-{number}" for number in range(24))
_SETTLE_S = 120.0
_POLL_S = 0.5
_MAX_PROMOTIONS = 20  # of one shard; with two replicas, each succeeds with a probability of one half


class Segment(TypedDict):
    """A Lucene segment of one shard."""

    index: str
    shard: int
    name: str
    generation: int
    docs: int
    size: int  # bytes
    sha256: str  # over the names and contents of its files, in the order of their names


def segments(node: Node, *others: Node, index: str = "_all") -> list[Segment]:
    """Segments of the primary shards of a cluster, with a hash of their files in their node's data directory.

    Ordered by index, shard and name. Raises MeasurementError if a segment has no files there.
    """
    names = {id_: each["name"] for id_, each in api.get(node.port, "/_nodes/_all/none")["nodes"].items()}
    places = {each.arm: each.data_dir for each in (node, *others)}
    uuids = {
        name: settings["settings"]["index"]["uuid"]
        for name, settings in api.get(node.port, f"/{index}/_settings?expand_wildcards=all").items()
    }
    # a closed index, which is never searched, would make the whole request fail
    answer = api.get(node.port, f"/{index}/_segments?expand_wildcards=open,hidden", timeout_s=30.0)
    parts = []
    for name, shards in answer["indices"].items():
        for number, copies in shards["shards"].items():
            for copy in (copy for copy in copies if copy["routing"]["primary"]):
                place = places[names[copy["routing"]["node"]]]
                files = place / "indices" / uuids[name] / number / "index"
                parts += [_segment(name, int(number), part, files) for part in copy["segments"].items()]
    return sorted(parts, key=lambda segment: (segment["index"], segment["shard"], segment["generation"]))


def _segment(index: str, shard: int, part: tuple[str, dict[str, Any]], directory: Path) -> Segment:
    name, facts = part
    return Segment(
        index=index,
        shard=shard,
        name=name,
        generation=facts["generation"],
        docs=facts["num_docs"],
        size=facts["size_in_bytes"],
        sha256=segment_hash(directory, name),
    )


def segment_hash(directory: Path, name: str) -> str:
    """SHA-256 over one segment's files (``_c.cfs``, ``_c_1.liv`` ...) in a shard's index folder."""
    files = sorted(
        path for path in directory.glob(f"{name}*") if path.name[len(name) : len(name) + 1] in (".", "_")
    )
    if not files:
        raise MeasurementError(
            f"{directory}: no file of segment {name}; flush the index, then compare segments again"
        )
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        _add_content(digest, path)
    return digest.hexdigest()


def hashes(data_dir: Path) -> dict[str, str]:
    """SHA-256 of every segment file under a data directory, by relative path; needs no running node.

    Leaves out ``segments_N`` and locks, which differ from start to start for the same index.
    """
    digests = {}
    for path in sorted(data_dir.glob("indices/*/*/index/_*")):
        digest = hashlib.sha256()
        _add_content(digest, path)
        digests[str(path.relative_to(data_dir))] = digest.hexdigest()
    return digests


def segment_files(data_dir: Path) -> set[tuple[Path, int]]:
    """Segment files under a data directory, by relative path and inode; Lucene never changes one."""
    paths = data_dir.glob("indices/*/*/index/_*")
    return {(path.relative_to(data_dir), path.lstat().st_ino) for path in paths}


@contextmanager
def same_segments(of: Sequence[Node]) -> Iterator[None]:
    """Raise MeasurementError if nodes that the block restarts have other segment files afterwards."""
    before = [segment_files(node.data_dir) for node in of]
    yield
    for node, files in zip(of, before, strict=True):
        changed = {str(path) for path, _ in files ^ segment_files(node.data_dir)}
        if changed:
            raise MeasurementError(
                f"arm {node.arm}: its node was started anew and changed {min(changed)}; its starts would not "
                "be comparable, see the node's log"
            )


def _add_content(digest: "hashlib._Hash", path: Path) -> None:
    # the data directory belongs to the node's user: follow no link below it, open nothing that would block
    with opened_below(path.parents[4], *path.parts[-5:-1]) as folder:
        descriptor = os.open(
            path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    with os.fdopen(descriptor, "rb") as file:
        hashlib.file_digest(file, lambda: digest)


@dataclass(frozen=True, slots=True, order=True)
class Shard:
    index: str
    number: int
    role: str  # primary or replica
    node: int


def settled(cluster: Sequence[Node], clock: Clock = SYSTEM_CLOCK) -> tuple[Shard, ...]:
    """All copies of shards and their nodes, once every copy is started and none is moving.

    Raises MeasurementError if that does not happen: more replicas than the nodes can hold.
    """
    numbers = {node.arm: number for number, node in enumerate(cluster, start=1)}
    until = clock.monotonic() + _SETTLE_S
    while True:
        shards = api.get(cluster[0].port, "/_cat/shards?format=json&h=index,shard,prirep,state,node")
        waiting = [shard for shard in shards if shard["state"] != "STARTED"]
        if not waiting:
            roles = {"p": "primary", "r": "replica"}
            every = (
                (of["index"], int(of["shard"]), roles[of["prirep"]], numbers[of["node"]]) for of in shards
            )
            return tuple(Shard(*of) for of in sorted(every))
        if clock.monotonic() > until:
            worst = waiting[0]
            raise MeasurementError(
                f"arm {cluster[0].arm}: shard {worst['shard']} of {worst['index']} is {worst['state']} after "
                f"{_SETTLE_S:.0f} s; a cluster of {len(cluster)} nodes has room for {len(cluster) - 1} "
                "replicas, lower number_of_replicas or raise node.count"
            )
        clock.sleep(_POLL_S)


def settled_as(cluster: Sequence[Node], wanted: Sequence[Shard]) -> tuple[Shard, ...]:
    """Like ``settled``, after making copies primary that are so in ``wanted``, as far as they exist here.

    When nodes end together, the first one's end makes the others promote their copies: then two copies of a
    shard are primary on disk, and the next start picks one by chance.
    """
    for _ in range(_MAX_PROMOTIONS):
        shards = settled(cluster)
        replicas = {replace(shard, role="primary") for shard in shards if shard.role == "replica"}
        demoted = {(shard.index, shard.number) for shard in replicas & set(wanted)}
        if not demoted:
            break
        commands = [
            {
                "cancel": {
                    "index": shard.index,
                    "shard": shard.number,
                    "node": cluster[shard.node - 1].arm,
                    "allow_primary": True,  # a replica takes its place, and it becomes a replica
                }
            }
            for shard in shards
            if shard.role == "primary" and (shard.index, shard.number) in demoted
        ]
        api.post(cluster[0].port, "/_cluster/reroute", {"commands": commands})
    return shards


def searched(cluster: Sequence[Node], preference: str) -> tuple[Shard, ...]:
    """The copy of each shard that a search with this preference uses."""
    answer = api.get(cluster[0].port, f"/_all/_search_shards?preference={preference}")
    numbers = {node.arm: number for number, node in enumerate(cluster, start=1)}
    names = {id_: numbers[node["name"]] for id_, node in answer["nodes"].items()}
    firsts = (group[0] for group in answer["shards"])
    roles = {True: "primary", False: "replica"}
    every = ((of["index"], of["shard"], roles[of["primary"]], names[of["node"]]) for of in firsts)
    return tuple(Shard(*of) for of in sorted(every))


def preference(cluster: Sequence[Node], copies: Sequence[Shard]) -> str | None:
    """A preference for which searches use these copies; None if there is none.

    A master lists a shard's copies in an order of nodes that it draws when it starts (that of Java's
    unmodifiable maps). So a text selects other copies on another cluster, and for some orders of more than
    two nodes no text selects the same.
    """
    return next((text for text in PREFERENCES if list(searched(cluster, text)) == list(copies)), None)


def difference(arm: str, own: Sequence[Shard], other: str, others: Sequence[Shard]) -> str:
    """Shards that one arm has elsewhere than another; "" if all agree."""
    mine, theirs = sorted(set(own) - set(others)), sorted(set(others) - set(own))
    if not mine and not theirs:
        return ""
    return f"{_text(arm, mine)}, {_text(other, theirs)}"


def _text(arm: str, shards: Sequence[Shard]) -> str:
    if not shards:
        return f"{arm} has none such"
    first = shards[0]
    return f"{arm} has {first.role} {first.number} of {first.index} on node {first.node}"
