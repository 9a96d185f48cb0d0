"""Where the files of an arm's index go, and how it is called, when one node serves all arms."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import elasticsearch
import pytest
from es_gp3 import node_of

from esrally_ebs import node
from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.node import copies, life
from esrally_ebs.node.copies import Copies, suffix_of
from esrally_ebs.node.settings import NodeSettings, page_cache_bytes
from esrally_ebs.store.context import Arm, Member
from esrally_ebs.units import MIB


def files(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_an_arms_files_keep_their_bytes_and_get_the_state_of_its_own_index(tmp_path: Path) -> None:
    volume = Volume(spec=VolumeSpec(name="a", type="gp3"), kind=Kind.DIRECTORY, mount=tmp_path / "mount")
    shard = "indices/original/0"
    files(
        volume.mount / "elasticsearch",
        {
            f"{shard}/index/_0.cfs": "bytes",
            f"{shard}/_state/state-7.st": "old",
            "indices/original/_state/s": "old",
        },
    )
    files(
        tmp_path / "copies",
        {
            "indices/copy/_state/s": "new",
            "indices/copy/0/_state/state-0.st": "new",
            "indices/other/_state/s": "no",
        },
    )
    made = Copies(data=tmp_path / "copies", uuids={"a": {"original": "copy"}, "b": {"original": "other"}})
    own = volume.mount / "elasticsearch" / "indices" / "original"
    made.place_on(volume)
    assert {str(path.relative_to(own)): path.read_text() for path in own.rglob("*") if path.is_file()} == {
        "_state/s": "new",
        "0/_state/state-0.st": "new",
        "0/index/_0.cfs": "bytes",
    }


def test_a_folder_is_mounted_into_the_container_whatever_its_name() -> None:
    assert life._bind(Path("/mnt/a$b"), "/data") == {"type": "bind", "source": "/mnt/a$$b", "target": "/data"}


def test_a_node_of_all_arms_has_one_heap_and_page_cache_for_each() -> None:
    one = NodeSettings(heap_bytes=512 * MIB, memory_bytes=972 * MIB, cpus=2)
    three = node.of_all_arms(one, 3)
    assert (three.heap_bytes, page_cache_bytes(three)) == (one.heap_bytes, 3 * page_cache_bytes(one))


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("logs", "logs_a"),
        ("logs,more", "logs_a,more_a"),
        ("logs-*", "logs-*_a"),
        ("_all", "*_a"),
        ("", "*_a"),
    ],
)
def test_an_expression_names_the_indices_of_the_arm_alone(expression: str, named: str) -> None:
    volume = Volume(spec=VolumeSpec(name="a", type="gp3"), kind=Kind.EMULATED, mount=Path("/a"))
    arm = Arm(name="a", cluster="a", members=(Member(volume=volume),), suffix=suffix_of("a"))
    assert arm.named(expression) == named
    assert Arm(name="a", cluster="a", members=(Member(volume=volume),)).named(expression) == expression


def test_segments_are_linked_and_all_else_is_copied(tmp_path: Path) -> None:
    files(tmp_path, {"_0.cfs": "segment", "segments_5": "commit"})
    for name in ("_0.cfs", "segments_5"):
        copies._link_segments(str(tmp_path / name), str(tmp_path / f"{name}.new"))
    links = {name: (tmp_path / name).stat().st_nlink for name in ("_0.cfs", "segments_5")}
    assert links == {"_0.cfs": 2, "segments_5": 1}
    assert (tmp_path / "segments_5.new").read_text() == "commit"


class Indices:
    """Elasticsearch's, of one index that templates gave aliases to write to."""

    def __init__(self) -> None:
        only = {"allocation": {"require": {"_name": "dataset"}}}  # as shrink-index of Rally leaves it
        own = {"uuid": "logs", "version": {"created": "8"}, "routing": only}
        # as downsample leaves it
        own["downsample"] = {"status": "success", "source": {"name": "logs-by-second"}}
        self.settings: dict[str, Any] = {"logs": {"number_of_shards": "3", **own}}
        self.made: dict[str, dict[str, Any]] = {}
        self.templates = {"legacy", "composable"}
        self.stream: dict[str, str] = {}

    def delete_template(self, *, name: str) -> None:
        assert name == "*"
        self.templates.remove("legacy")

    def delete_index_template(self, *, name: str) -> None:
        assert name == "*"
        assert not self.stream, "which Elasticsearch refuses of a template that a data stream uses"
        self.templates.remove("composable")

    def get(self, **_: object) -> dict[str, Any]:
        made = {"settings": {"index": self.settings["logs"]}, "mappings": {}, "aliases": {"l": {}}}
        return {"logs": {**made, **self.stream}}

    def create(self, *, index: str, **asked: Any) -> dict[str, bool]:  # noqa: ANN401 - JSON
        assert not self.templates, "alias has more than one write index"
        assert "downsample" not in asked["settings"], "private index setting can not be set explicitly"
        self.made[index] = asked
        self.settings[index] = {"uuid": index, "version": {"created": "8"}}
        return {"shards_acknowledged": "routing" not in asked["settings"]}

    def get_settings(self, *, index: str) -> dict[str, Any]:
        return {index: {"settings": {"index": self.settings[index]}}}

    def delete(self, *, index: str) -> None:
        del self.settings[index]

    def state(self, **_: object) -> dict[str, Any]:
        return {"metadata": {"indices": {"logs": {"routing_num_shards": 30}}}}


def test_a_routing_leads_to_the_same_shard_of_a_copy_and_templates_make_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    indices = Indices()
    client = SimpleNamespace(indices=indices, cluster=indices)
    monkeypatch.setattr(elasticsearch, "Elasticsearch", lambda *_, **__: client)
    assert copies._empty_copies(node_of(1), ["a", "b"]) == {"a": {"logs": "logs_a"}, "b": {"logs": "logs_b"}}
    assert set(indices.settings) == {"logs_a", "logs_b"}
    for arm in "ab":
        made = indices.made[f"logs_{arm}"]
        assert made["settings"] == {"number_of_shards": "3", "number_of_routing_shards": 30}
        assert made["aliases"] == {f"l_{arm}": {}}


def test_a_data_stream_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    indices = Indices()
    indices.stream = {"data_stream": "metrics"}
    client = SimpleNamespace(indices=indices, cluster=indices)
    monkeypatch.setattr(elasticsearch, "Elasticsearch", lambda *_, **__: client)
    with pytest.raises(SetupError, match="logs is of the data stream metrics; set design"):
        copies._empty_copies(node_of(1), ["a", "b"])
