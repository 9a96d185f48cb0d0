"""What a built dataset must hold, and a record of one that cannot be read."""

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from es_gp3 import node_of
from loopback_server import Answers, serving
from stored import GP2

from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.machine.processes import Clock
from esrally_ebs.node import api, dataset
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.node.dataset import Dataset, require_all


def test_an_index_that_lost_a_document_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        MeasurementError, match=r"the index has 19,999 documents, documents-20000.json has 20,000"
    ):
        require_all(19_999, 20_000, "documents-20000.json")


def test_an_index_with_all_documents_is_taken() -> None:
    require_all(20_000, 20_000, "documents-20000.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"segments": 3}', '{"segments": [], "colour": 1}'])
def test_a_record_that_was_damaged_says_what_to_remove(tmp_path: Path, text: str) -> None:
    (tmp_path / "data").mkdir()
    source = DataDirectory(path=tmp_path / "data")
    path = tmp_path / "datasets" / dataset.key_of(source, "image")
    path.mkdir(parents=True)
    (path / "dataset.json").write_text(text)
    with pytest.raises(SetupError, match=rf"dataset.json: not the record of a built index; remove {path}"):
        dataset.ensure(
            tmp_path,
            source,
            image="image",
            server=cast(dataset.NodeServer, None),  # nothing is built
            session="s",
            say=print,
        )


@pytest.mark.parametrize("status", [200, 400])
def test_clusters_can_be_changed_and_write_no_logs_into_indices_if_they_can(status: int) -> None:
    sent: list[dict[str, Any]] = []

    class Answering(Answers):
        def do_PUT(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(status=status)

    with serving(Answering) as port:
        dataset._set_cluster(replace(node_of(1), port=port))
    assert sent == [
        {"persistent": {"cluster.blocks.read_only": None}},
        {"persistent": {"cluster.blocks.read_only_allow_delete": None}},
        {"persistent": {"cluster.deprecation_indexing.enabled": False}},
        {"persistent": {"xpack.monitoring.collection.enabled": False}},
    ]


def test_merges_of_large_segments_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_s: list[float] = []
    clock = Clock(monotonic=lambda: 100 * len(slept_s), sleep=slept_s.append)

    def stats(*_: object, **__: object) -> dict[str, Any]:
        return {"_all": {"total": {"merges": {"current": int(len(slept_s) < 20)}}}}

    monkeypatch.setattr(dataset, "SYSTEM_CLOCK", clock)
    monkeypatch.setattr(api, "get", stats)
    monkeypatch.setattr(api, "post", lambda *_, **__: {})
    dataset._let_settle(node_of(1))
    assert len(slept_s) == 20


@pytest.mark.parametrize("is_kept_as_built", [True, False])
def test_of_a_copy_that_is_another_the_volume_is_blamed_only_where_the_dataset_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept_as_built: bool
) -> None:
    segment = "elasticsearch/indices/uuid/0/index/_0.cfs"
    for folder in ("kept", "arm"):
        (tmp_path / folder / segment).parent.mkdir(parents=True)
    (tmp_path / "kept" / segment).write_text("segment")
    kept = Dataset(
        key="k",
        path=tmp_path / "kept",
        documents=1,
        bytes=7,
        segments=(),
        hash=dataset.content_hash(tmp_path / "kept" / "elasticsearch"),
    )
    if is_kept_as_built:
        monkeypatch.setattr(dataset, "copy_tree", lambda *_, **__: None)
    else:
        (tmp_path / "kept" / segment).write_text("segmenT")
    arm = replace(GP2, mount=tmp_path / "arm", control=None)
    with pytest.raises(EbsError, match=r"does not keep data" if is_kept_as_built else "no longer what was"):
        dataset.copy_to(kept, arm)


def test_an_index_needs_twice_its_size_on_the_volume_of_an_arm(tmp_path: Path) -> None:
    for folder in ("kept/elasticsearch", "arm"):
        (tmp_path / folder).mkdir(parents=True)
    with (tmp_path / "kept" / "elasticsearch" / "_0.cfs").open("wb") as file:
        file.truncate(shutil.disk_usage(tmp_path).free * 3 // 4)  # takes no room itself
    kept = Dataset(key="k", path=tmp_path / "kept", documents=1, bytes=0, segments=(), hash="")
    arm = replace(GP2, mount=tmp_path / "arm", control=None)
    with pytest.raises(SetupError, match=r"^arm gp2: .*/arm has .* free, the index needs .*; use a larger"):
        dataset.copy_to(kept, arm, go_on=lambda: pytest.fail("it is copied"))
    assert not list(arm.mount.iterdir())


def test_of_two_sessions_at_once_what_the_quicker_one_has_made_stays(tmp_path: Path) -> None:
    path = tmp_path / "datasets" / "key"
    with dataset.made_whole(path, "slower") as slower:
        (slower / "by").write_text("slower")
        with dataset.made_whole(path, "quicker") as quicker:
            (quicker / "by").write_text("quicker")
    assert [str(each.relative_to(path.parent)) for each in path.parent.rglob("*")] == ["key", "key/by"]
    assert (path / "by").read_text() == "quicker"


def test_an_index_that_another_session_makes_while_documents_are_prepared_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = DataDirectory(path=tmp_path / "data")
    source.path.mkdir()
    path = tmp_path / "datasets" / dataset.key_of(source, "image")
    quicker = Dataset(key=path.name, path=path, documents=1, bytes=0, segments=(), hash="of another merge")

    def make(*_: object) -> None:
        assert not path.exists()  # what had lost its record
        path.mkdir()
        (path / dataset.RECORD).write_text(quicker.sealed())

    path.mkdir(parents=True)
    (path / "old").touch()
    monkeypatch.setattr(dataset, "_require_room", make)
    monkeypatch.setattr(dataset, "_build", lambda *_: ((), 1))
    server = cast(dataset.NodeServer, SimpleNamespace(serve=lambda *_: nullcontext(())))
    made = dataset.ensure(tmp_path, source, image="image", server=server, session="s", say=print)
    assert made == quicker
    assert [each.name for each in path.parent.iterdir()] == [path.name]
