"""An index per arm on one node: same bytes, each on its own volume, mounted into one data directory.

Takes a built dataset and the names of arms. A node that is started once makes the arms' indices, empty, from
the dataset's own; the state that Elasticsearch keeps of them stays in the cache. A session copies it to a
neutral disk, and each index's part of it to the dataset's bytes on its arm.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.private import private_directory
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.node.dataset import Dataset, NodeServer, made_whole
from esrally_ebs.store.encoding import parse_sealed, seal

if TYPE_CHECKING:
    from elasticsearch import Elasticsearch

ALL_ARMS = "all_arms"  # in place of an arm's name, which has no underscore
_FORMAT = 2
_RECORD = "copies.json"
_TIMEOUT_S = 60.0
# What Elasticsearch gives an index, also one that it has shrunk or downsampled, and lets nobody set; and
# "routing", which nodes may have its shards: after shrink-index, the one that made the dataset.
_ITS_OWN = ("uuid", "version", "creation_date", "provided_name", "resize", "downsample", "routing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The state of a node whose indices are an arm's each, without their bytes."""

    data: Path  # its data directory
    uuids: Mapping[str, Mapping[str, str]]  # by arm: the uuid of each of the dataset's indices -> its copy's

    def place_on(self, volume: Volume) -> None:
        """Make the dataset's files on a volume those of its arm's indices."""
        own = volume.mount / "elasticsearch" / "indices"
        for original, copy in self.uuids[volume.spec.name].items():
            there = self.data / "indices" / copy
            for state in there.rglob("_state"):
                target = own / original / state.relative_to(there)
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(state, target)


def suffix_of(arm: str) -> str:
    """How the names of an arm's indices end; of no other arm's, as an arm's name has no underscore."""
    return f"_{arm}"


def prepare(dataset: Dataset, arms: Sequence[str], *, server: NodeServer, session: str) -> Copies:
    """The copies for these arms: from the cache, or made now by a node of ``server``."""
    shape = json.dumps([_FORMAT, dataset.key, *arms]).encode()
    path = dataset.path.with_name(f"{dataset.key}-{hashlib.sha256(shape).hexdigest()[:8]}")
    if path.exists():
        private_directory(path)
    record = path / _RECORD
    if not record.is_file():
        shutil.rmtree(path, ignore_errors=True)  # what lost it
        with made_whole(path, session) as new:
            uuids = _make(dataset, arms, new, server)
            (new / _RECORD).write_text(seal(json.dumps(uuids)))
    return Copies(data=path / "elasticsearch", uuids=parse_sealed(record.read_text(), str(record)))


def _make(dataset: Dataset, arms: Sequence[str], new: Path, server: NodeServer) -> dict[str, dict[str, str]]:
    shutil.copytree(dataset.path / "elasticsearch", new / "elasticsearch", copy_function=_link_segments)
    spec = VolumeSpec(name=ALL_ARMS, type="directory", size_bytes=0)
    on = [Volume(spec=spec, kind=Kind.DIRECTORY, mount=new)]
    with server.serve(on, linked=[dataset.path]) as (node,):
        return _empty_copies(node, arms)


def _empty_copies(node: Node, arms: Sequence[str]) -> dict[str, dict[str, str]]:
    # imported here: the keeper, hosts and most commands make no copies, and it takes half a second
    import elasticsearch

    try:
        client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=_TIMEOUT_S)
        originals = dict(client.indices.get(index="*", expand_wildcards="all"))
        for name, facts in originals.items():
            if facts.get("data_stream"):
                raise _refused(f"{name} is of the data stream {facts['data_stream']}")
        # made for the dataset's own indices, and what one gives these they have: an alias it writes to, twice
        client.indices.delete_template(name="*")
        client.indices.delete_index_template(name="*")
        uuids = {arm: dict(_create(client, originals, arm)) for arm in arms}
        for name in originals:
            client.indices.delete(index=name)
    except (elasticsearch.ApiError, elasticsearch.TransportError) as error:
        raise _refused(str(error)) from error
    return uuids


def _refused(why: str) -> SetupError:
    return SetupError(
        f'one node cannot have the dataset\'s indices for each arm: {why}; set design.nodes = "per-arm"'
    )


def _link_segments(source: str, target: str) -> str:
    """Lucene never changes a segment's file; all else, the node that is started on it may."""
    if Path(source).name.startswith("_"):
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def _create(client: "Elasticsearch", originals: Mapping[str, Any], arm: str) -> Iterator[tuple[str, str]]:
    """An empty index like each of the originals; gives both uuids."""
    only = "metadata.indices.*.routing_num_shards"
    state = client.cluster.state(metric="metadata", filter_path=only, expand_wildcards="all")
    for name, facts in originals.items():
        settings = facts["settings"]["index"]
        # which shard a routing leads to; none of the settings once an index is made
        routing = {"number_of_routing_shards": state["metadata"]["indices"][name]["routing_num_shards"]}
        copy = name + suffix_of(arm)
        answer = client.indices.create(
            index=copy,
            settings={**{key: value for key, value in settings.items() if key not in _ITS_OWN}, **routing},
            mappings=facts["mappings"],
            aliases={alias + suffix_of(arm): how for alias, how in facts["aliases"].items()},
            wait_for_active_shards=1,
        )
        if not answer["shards_acknowledged"]:
            raise _refused(f"the shards of {copy} got no place within half a minute")
        made = client.indices.get_settings(index=copy)[copy]["settings"]["index"]
        if made["version"]["created"] != settings["version"]["created"]:
            raise _refused(f"{name} was created by another version of Elasticsearch")
        yield settings["uuid"], made["uuid"]
