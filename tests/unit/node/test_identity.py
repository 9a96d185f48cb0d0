"""Which files are an index's identity, and which segments a node serves."""

from pathlib import Path
from typing import Any

import pytest
from es_gp3 import node_of

from esrally_ebs import node
from esrally_ebs.errors import MeasurementError, SetupError
from esrally_ebs.node import identity


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    directory = tmp_path / "indices" / "uuid" / "0" / "index"
    directory.mkdir(parents=True)
    for name in ("_c.cfs", "_c.si", "_c_1_Lucene90_0.dvd", "_c1.cfs", "segments_4", "write.lock"):
        (directory / name).write_text(name)
    return directory


def test_a_segments_hash_covers_its_own_files_and_no_others(shard: Path) -> None:
    before = identity.segment_hash(shard, "_c")
    for name in ("_c1.cfs", "segments_4", "write.lock"):
        (shard / name).write_text("changed")
    assert identity.segment_hash(shard, "_c") == before
    (shard / "_c_1_Lucene90_0.dvd").write_text("changed")
    assert identity.segment_hash(shard, "_c") != before


def test_a_segment_without_files_is_refused(shard: Path) -> None:
    with pytest.raises(MeasurementError, match="no file of segment _d"):
        identity.segment_hash(shard, "_d")


def test_a_closed_index_beside_those_that_are_searched_is_no_obstacle(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"generation": 12, "num_docs": 1, "size_in_bytes": 2}
    copy = {"routing": {"primary": True, "node": "n"}, "segments": {"_c": facts}}
    answers: dict[str, Any] = {
        "/_nodes/_all/none": {"nodes": {"n": {"name": "gp3"}}},
        "/_all/_settings": {
            name: {"settings": {"index": {"uuid": uuid}}} for name, uuid in (("open", "uuid"), ("shut", "x"))
        },
        "/_all/_segments": {"indices": {"open": {"shards": {"0": [copy]}}}},
    }

    def get(port: int, path: str, **_: float) -> Any:  # noqa: ANN401 - JSON
        asked, _mark, query = path.partition("?")
        if asked.endswith("_segments") and {"expand_wildcards=all", "closed"} & {*query.split(",")}:
            raise SetupError("HTTP Error 400: Bad Request: closed")
        return answers[asked]

    monkeypatch.setattr(identity.api, "get", get)
    (segment,) = node.segments(node_of(1, tmp_path))
    assert (segment["index"], segment["name"]) == ("open", "_c")


def test_nodes_that_are_started_anew_must_have_the_same_segment_files(shard: Path, tmp_path: Path) -> None:
    started = node_of(1, tmp_path)
    with node.same_segments([started]):
        (shard / "segments_4").rename(shard / "segments_5")
    changed = r"^arm gp3: its node was started anew and changed indices/.*/_d\.cfs;"
    with pytest.raises(MeasurementError, match=changed), node.same_segments([started]):
        (shard / "_d.cfs").write_text("merged")


def test_commit_points_and_locks_are_not_part_of_an_index_identity(shard: Path, tmp_path: Path) -> None:
    names = {Path(name).name for name in node.hashes(tmp_path)}
    assert names == {"_c.cfs", "_c.si", "_c_1_Lucene90_0.dvd", "_c1.cfs"}


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_of_an_index_no_link_is_followed_on_any_level(shard: Path, tmp_path: Path, level: int) -> None:
    """Root reads what the node's user, or by sudo the caller, may exchange."""
    folder = (shard, *shard.parents)[level]
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        node.hashes(tmp_path)
    with pytest.raises(OSError, match="Not a directory"):
        identity.segment_hash(shard, "_c")
