"""An index per arm on one node: same bytes, each on the arm's volume, mounted into one data directory.

A node that is started once creates empty indices for the arms, like the dataset's own; Elasticsearch's state
of them is cached. A session copies this state to a neutral disk, and adds each index's part of it to the
dataset's bytes on its arm.
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

ALL_ARMS = "all_arms"  # in place of an arm's name; those have no underscore
_FORMAT = 2
_RECORD = "copies.json"
_TIMEOUT_S = 60.0
# Settings that Elasticsearch gives to indices, including shrunk or downsampled ones, and nobody may set; and
# "routing", the nodes allowed to have shards: after shrink-index, the node that made the dataset.
_ITS_OWN = ("uuid", "version", "creation_date", "provided_name", "resize", "downsample", "routing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """State of a node with indices for every arm, without their bytes."""

    data: Path  # the node's data directory
    uuids: Mapping[str, Mapping[str, str]]  # by arm: uuid of the dataset's index -> uuid of its copy

    def place_on(self, volume: Volume) -> None:
        """Turn the dataset's files on a volume into those of its arm's indices."""
        own = volume.mount / "elasticsearch" / "indices"
        for original, copy in self.uuids[volume.spec.name].items():
            there = self.data / "indices" / copy
            for state in there.rglob("_state"):
                target = own / original / state.relative_to(there)
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(state, target)


def suffix_of(arm: str) -> str:
    """Suffix of the names of an arm's indices; unique, as arms' names have no underscore."""
    return f"_{arm}"


def prepare(dataset: Dataset, arms: Sequence[str], *, server: NodeServer, session: str) -> Copies:
    """The copies for these arms: cached, or made now on a node of ``server``."""
    shape = json.dumps([_FORMAT, dataset.key, *arms]).encode()
    path = dataset.path.with_name(f"{dataset.key}-{hashlib.sha256(shape).hexdigest()[:8]}")
    if path.exists():
        private_directory(path)
    record = path / _RECORD
    if not record.is_file():
        shutil.rmtree(path, ignore_errors=True)  # lost its record
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
    # imported here: it takes half a second, and the keeper, hosts and most commands make no copies
    import elasticsearch

    try:
        client = elasticsearch.Elasticsearch(f"http://{node.host}:{node.port}", request_timeout=_TIMEOUT_S)
        originals = dict(client.indices.get(index="*", expand_wildcards="all"))
        for name, facts in originals.items():
            if facts.get("data_stream"):
                raise _refused(f"{name} is of the data stream {facts['data_stream']}")
        # their effects are in the dataset's indices already: an alias to write to would exist twice
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
    """Hard-link segment files, which Lucene never changes; copy others, which a node may change."""
    if Path(source).name.startswith("_"):
        os.link(source, target)
        return target
    return str(shutil.copy2(source, target))


def _create(client: "Elasticsearch", originals: Mapping[str, Any], arm: str) -> Iterator[tuple[str, str]]:
    """Create an empty index like each of the originals; yields both uuids."""
    only = "metadata.indices.*.routing_num_shards"
    state = client.cluster.state(metric="metadata", filter_path=only, expand_wildcards="all")
    for name, facts in originals.items():
        settings = facts["settings"]["index"]
        # maps a routing value to a shard; no setting shows it once an index exists
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
