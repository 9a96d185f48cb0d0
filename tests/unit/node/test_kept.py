"""The files of a dataset, kept and put back; no node runs, so what it would be asked is written down."""

import os
from pathlib import Path
from typing import Any

import pytest
from es_gp3 import node_of

from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.node import api, kept
from esrally_ebs.node.dataset import content_hash
from esrally_ebs.node.eviction import Eviction

SHARD = Path("indices/u1/0")


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    """A volume with an index of one segment, as a dataset is copied to it, and kept."""
    data = tmp_path / "elasticsearch"
    for name, text in {
        "index/_0.cfs": "segment",
        "index/segments_3": "commit",
        "index/write.lock": "",
        "translog/translog.ckp": "checkpoint",
        "_state/state-1.st": "whose copy",
    }.items():
        path = data / SHARD / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    made = Volume(spec=VolumeSpec(name="gp3", type="gp3"), kind=Kind.DIRECTORY, mount=tmp_path)
    kept.keep(made)
    return made


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the node is asked; it has the dataset's index and one that a template has made since."""
    log: list[str] = []
    there = {name: {"settings": {"index": {"uuid": uuid}}} for name, uuid in (("one", "u1"), ("new", "u2"))}

    def get(port: int, path: str, **_: object) -> Any:  # noqa: ANN401 - JSON
        return {"count": 12} if path.startswith("/_count") else there

    monkeypatch.setattr(api, "get", get)
    monkeypatch.setattr(api, "post", lambda port, path, **_: log.append(path))
    monkeypatch.setattr(api, "delete", lambda port, path, **_: log.append(f"delete {path}"))
    monkeypatch.setattr(api, "is_ready", lambda port, **_: True)
    cold = Eviction(bytes=7, resident_before=0.0, resident_after=0.0, seconds=0.0, refill_s=0.0)
    monkeypatch.setattr(kept, "evict", lambda pids, directory: cold)
    monkeypatch.setattr(os, "fchown", lambda *_: None)
    return log


def node(volume: Volume) -> Node:
    return node_of(1, volume.mount / "elasticsearch")


def texts(volume: Volume) -> dict[str, str]:
    shard = volume.mount / "elasticsearch" / SHARD
    return {str(path.relative_to(shard)): path.read_text() for path in shard.rglob("*") if path.is_file()}


def test_whatever_was_added_and_merged_away_the_same_bytes_are_there_again(
    volume: Volume, requests: list[str]
) -> None:
    before, hash_ = texts(volume), content_hash(volume.mount / "elasticsearch")
    index = volume.mount / "elasticsearch" / SHARD / "index"
    (index / "_0.cfs").unlink()
    (index / "_1.cfs").write_text("merged")
    (index / "segments_3").rename(index / "segments_4")
    (index.parent / "translog" / "translog.ckp").write_text("another")
    (index.parent / "translog" / "translog-9.tlog").write_text("operations")
    brought = kept.bring_back(node(volume), volume)
    assert texts(volume) == before
    assert content_hash(volume.mount / "elasticsearch") == hash_ == kept.require_kept(volume, hash_)
    assert (brought.files, brought.documents, brought.resident) == (3, 12, 0.0)
    assert requests == ["delete /new", "/one/_close", "/one/_open"]


def test_a_data_stream_that_writes_made_goes_as_a_whole(
    volume: Volume, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elasticsearch deletes no index that a data stream writes to."""
    made = {"settings": {"index": {"uuid": "u2"}}, "data_stream": "logs"}
    there = {".ds-logs-000001": made, ".ds-logs-000002": made}
    monkeypatch.setattr(api, "get", lambda port, path, **_: there)
    assert kept._dataset_indices(node(volume), volume.mount / "nothing-was-kept") == []
    assert requests == ["delete /_data_stream/logs"]


def test_segments_cost_no_room_a_second_time(volume: Volume, requests: list[str]) -> None:
    kept.bring_back(node(volume), volume)
    second = volume.mount / kept.KEPT / SHARD / "index" / "_0.cfs"
    assert second.samefile(volume.mount / "elasticsearch" / SHARD / "index" / "_0.cfs")


def test_a_node_that_changes_segments_when_it_opens_them_is_an_error(
    volume: Volume, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_and_merge(port: int, path: str, **_: object) -> None:
        if path.endswith("_open"):
            (volume.mount / "elasticsearch" / SHARD / "index" / "_7.cfs").write_text("merged")

    monkeypatch.setattr(api, "post", open_and_merge)
    with pytest.raises(
        MeasurementError, match=r"arm gp3: was brought back, and then its node changed .*_7\.cfs"
    ):
        kept.bring_back(node(volume), volume)


def test_a_node_that_does_not_open_its_index_again_is_an_error(
    volume: Volume, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "is_ready", lambda port, **_: False)
    with pytest.raises(
        SetupError, match=r"arm gp3: its node does not open the index .* within 60 s; see its log"
    ):
        kept.bring_back(node(volume), volume)


def test_bytes_that_changed_in_place_are_found_at_the_end(volume: Volume) -> None:
    hash_ = content_hash(volume.mount / "elasticsearch")
    (volume.mount / "elasticsearch" / SHARD / "index" / "_0.cfs").write_text("SEGMENT")
    with pytest.raises(
        MeasurementError, match="arm gp3: the files that it was brought back to changed meanwhile"
    ):
        kept.require_kept(volume, hash_)


def test_no_link_of_the_nodes_user_is_followed(volume: Volume, requests: list[str], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("text")
    index = volume.mount / "elasticsearch" / SHARD / "index"
    for path in index.iterdir():
        path.unlink()
    index.rmdir()
    index.symlink_to(outside)
    with pytest.raises(SetupError, match="arm gp3: bringing its index back"):
        kept.bring_back(node(volume), volume)
    assert [path.name for path in outside.iterdir()] == ["precious"]


def test_a_file_system_without_hard_links_is_one_line(
    volume: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path, **_: object) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / kept.KEPT).rename(tmp_path / "away")
    with pytest.raises(
        SetupError, match=r"_0\.cfs: Operation not permitted; .* take a file system with hard"
    ):
        kept.keep(volume)


def test_of_many_indices_some_are_named_at_once(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, requests: list[str]
) -> None:
    names = [f"index-{number}" for number in range(40)]
    kept._each(node(volume), names, "_close")
    assert ",".join(path.removesuffix("/_close").removeprefix("/") for path in requests).split(",") == names
    assert max(path.count(",") for path in requests) == 14
