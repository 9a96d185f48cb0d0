"""A data directory of the user's: what is refused, what makes another dataset, and that it stays as it is."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from es_gp3 import node_of
from loopback_server import Answers, serving

from esrally_ebs.errors import EbsError, MeasurementError, PlanError, SetupError
from esrally_ebs.node import data_directory
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.node.dataset import key_of

IMAGE = "elasticsearch:8.8.2"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The files of a stopped node, as far as we look at them."""
    path = tmp_path / "data"
    shard = path / "indices" / "uuid" / "0" / "index"
    shard.mkdir(parents=True)
    (shard / "_0.cfs").write_bytes(b"segment")
    (path / "_state").mkdir()
    (path / "_state" / "segments_4").write_bytes(b"\x0cnode_version\x078080299\x07node_id\x16")
    (path / "node.lock").touch()
    return path


@pytest.fixture
def node(data: Path) -> Iterator[int]:
    """A process that holds the node's lock; its pid."""
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); "
        "fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(data / "node.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.communicate(b"\n")


def test_the_directory_of_a_stopped_node_is_taken(data: Path) -> None:
    DataDirectory(path=data).require(IMAGE)


def test_a_directory_in_use_is_refused_with_the_process(data: Path, node: int) -> None:
    gone = data / "indices" / "uuid" / "0" / "index" / "_1.cfs"
    gone.symlink_to("merged-away")  # as a file between its listing and its turn
    with pytest.raises(SetupError, match=rf"{data} is in use by a node \(process {node}\); stop it"):
        DataDirectory(path=data).require(IMAGE)


@pytest.mark.parametrize("name", ["", "nothing", "data/indices"])
def test_what_is_no_data_directory_is_refused(tmp_path: Path, data: Path, name: str) -> None:
    with pytest.raises(PlanError, match=re.escape(f"{tmp_path / name} is no data directory of Elastic")):
        DataDirectory(path=tmp_path / name).require(IMAGE)


@pytest.mark.parametrize("name", ["indices/other", "indices/uuid/0/index/_1.cfs"])
def test_a_link_is_refused_for_a_copy_of_it_leads_nowhere(tmp_path: Path, data: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (data / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError, match=f"{data / name} is a link, which leads nowhere"):
        DataDirectory(path=data).require(IMAGE)


@pytest.mark.parametrize(
    ("name", "says"),
    [("indices/uuid/0/index/_1.cfs", "is a pipe or device"), ("nodes/0/node.lock", "not a file")],
)
def test_a_pipe_is_refused_for_its_end_never_comes(data: Path, name: str, says: str) -> None:
    (data / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(data / name)
    with pytest.raises(EbsError, match=f"{data / name}:? {says}"):
        DataDirectory(path=data).require(IMAGE)


@pytest.mark.parametrize(
    ("image", "is_newer"),
    [("es:8.8.1", True), ("es:7.17.9", True), ("es:8.8.2", False), ("es:8.10.0", False), ("es:mine", False)],
)
def test_an_index_of_a_newer_node_is_refused(data: Path, image: str, is_newer: bool) -> None:
    assert data_directory.version_of(data) == (8, 8, 2)
    if is_newer:
        with pytest.raises(
            SetupError, match=rf"written by Elasticsearch 8\.8\.2, newer than {image}; set ES_I"
        ):
            DataDirectory(path=data).require(image)
    else:
        DataDirectory(path=data).require(image)


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (
            b"\x09136327827",
            "was written by OpenSearch, whose files no Elasticsearch reads; copy its documents",
        ),
        (
            b"\x077100299",
            r"by Elasticsearch 7\.10\.2, older than es:8\.8\.2 takes over \(7\.17\); start a copy",
        ),
    ],
)
def test_data_that_the_image_cannot_take_over_is_refused(data: Path, version: bytes, line: str) -> None:
    (data / "_state" / "segments_4").write_bytes(b"\x0cnode_version" + version + b"\x07node_id\x16")
    with pytest.raises(PlanError, match=line):
        DataDirectory(path=data).require("es:8.8.2")


@pytest.mark.parametrize("is_link", [True, False])
def test_what_takes_a_file_s_place_after_the_look_is_neither_followed_nor_waited_for(
    tmp_path: Path, data: Path, is_link: bool
) -> None:
    segment = data / "indices" / "uuid" / "0" / "index" / "_0.cfs"
    segment.rename(tmp_path / "secret")
    if is_link:
        segment.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(segment)
    with pytest.raises(EbsError, match=f"{segment}: {'a link' if is_link else 'not a file'}"):
        DataDirectory(path=data).lay_out(tmp_path / "copy")


def test_a_commit_that_no_node_has_written_is_not_read_into_memory(data: Path) -> None:
    os.truncate(data / "_state" / "segments_4", 1 << 40)
    with pytest.raises(EbsError, match="segments_4: 1,099,511,627,776 bytes; a"):
        DataDirectory(path=data).require(IMAGE)


def test_a_copy_has_all_but_the_lock_and_the_original_is_as_it_was(tmp_path: Path, data: Path) -> None:
    before = {path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in data.rglob("*")}
    DataDirectory(path=data).lay_out(tmp_path / "copy")
    names = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*.cfs"))
    assert names == ["indices/uuid/0/index/_0.cfs"]
    assert not (tmp_path / "copy" / "node.lock").exists()
    assert {path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in data.rglob("*")} == before


def test_a_copy_of_a_read_only_backup_can_be_written_to(tmp_path: Path, data: Path) -> None:
    modes = {path: 0o555 if path.is_dir() else 0o440 for path in (data, *data.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode)
    DataDirectory(path=data).lay_out(tmp_path / "copy")
    copied = {path.stat().st_mode & 0o777 for path in (tmp_path / "copy", *(tmp_path / "copy").rglob("*"))}
    assert copied == {0o755, 0o640}
    assert {path: path.stat().st_mode & 0o777 for path in modes} == modes
    for path in modes:
        path.chmod(0o755)  # for who removes it


def test_what_was_copied_of_a_read_only_backup_can_be_removed_when_the_rest_fails(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [path for path in (data, *data.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(0o555)
    copied: list[str] = []

    def first_alone(path: str, to: str, **_: object) -> str:
        if copied:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        copied.append(path)
        return shutil.copyfile(path, to)

    monkeypatch.setattr(shutil, "copy2", first_alone)
    with pytest.raises(SetupError, match=r"cannot be copied: .* Input/output error"):
        DataDirectory(path=data).lay_out(tmp_path / "copy")
    left = [path for path in (tmp_path / "copy", *(tmp_path / "copy").rglob("*")) if path.is_dir()]
    assert len(left) > 1
    assert all(path.stat().st_mode & 0o200 for path in left)
    for path in folders:
        path.chmod(0o755)  # for who removes it


def test_a_name_that_is_no_utf8_is_copied_like_any(tmp_path: Path, data: Path) -> None:
    (data / os.fsdecode(b"donn\xe9es")).touch()
    DataDirectory(path=data).lay_out(tmp_path / "copy")
    assert (tmp_path / "copy" / os.fsdecode(b"donn\xe9es")).exists()


def test_a_file_that_changes_while_it_is_copied_is_noticed(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = data_directory.copy_tree

    def copy_beside_a_writer(*words: object, **named: object) -> None:
        copy(*words, **named)
        (data / "indices" / "uuid" / "0" / "index" / "_1.cfs").write_bytes(b"another")

    monkeypatch.setattr(data_directory, "copy_tree", copy_beside_a_writer)
    with pytest.raises(MeasurementError, match="changed while it was copied; stop the node"):
        DataDirectory(path=data).lay_out(tmp_path / "copy")


def test_the_dataset_is_another_when_a_file_or_what_is_taken_is_another(data: Path) -> None:
    segment = data / "indices" / "uuid" / "0" / "index" / "_0.cfs"
    first = key_of(DataDirectory(path=data), IMAGE)
    assert key_of(DataDirectory(path=data), IMAGE) == first
    others = [
        key_of(DataDirectory(path=data, indices=["logs"]), IMAGE),
        key_of(DataDirectory(path=data), "x"),
    ]
    segment.write_bytes(b"segmenT")
    others.append(key_of(DataDirectory(path=data), IMAGE))
    assert len({first, *others}) == 4


def test_a_name_that_no_file_system_has_is_one_line() -> None:
    with pytest.raises(
        SetupError, match=r"nnn/indices: File name too long; give a directory that can be read"
    ):
        DataDirectory(path=Path("/", "n" * 256)).require(IMAGE)


def test_a_read_that_fails_names_the_directory(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(data_directory, "version_of", fail)
    with pytest.raises(SetupError, match=f"^dataset.data: {data}: Input/output error; give a directory"):
        DataDirectory(path=data).require(IMAGE)


def test_what_this_user_may_not_read_is_one_line(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path, most: int) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(data_directory, "open_file", denied)
    line = r"node\.lock: Permission denied; run as root alone \(SUDO_UID unset\) or as its owner"
    with pytest.raises(SetupError, match=line):
        DataDirectory(path=data).require(IMAGE)


def test_a_file_that_goes_once_it_was_looked_at_is_one_line(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = data / "indices" / "uuid" / "0" / "index" / "_1.cfs"
    listed = data_directory._files
    monkeypatch.setattr(data_directory, "_files", lambda path: [*listed(path), (gone.name, gone)])
    for ask in (DataDirectory.shape, DataDirectory.room_bytes):
        with pytest.raises(SetupError, match=rf"{gone}: No such file .*; keep its node stopped"):
            ask(DataDirectory(path=data))


def test_a_copy_ends_at_the_first_file_that_fails(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "indices" / "uuid" / "0" / "index" / "_1.cfs").touch()
    tried: list[str] = []

    def on_a_full_disk(path: str, to: str, **_: object) -> None:
        tried.append(path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path, None, to)

    monkeypatch.setattr(shutil, "copy2", on_a_full_disk)
    with pytest.raises(SetupError, match=r"data cannot be copied: \[Errno 28\] No space left on device: '"):
        DataDirectory(path=data).lay_out(tmp_path / "copy")
    assert len(tried) == 1


def test_a_directory_is_not_copied_into_itself(data: Path) -> None:
    with pytest.raises(PlanError, match=r"^dataset.data: .*/data holds .*/datasets/key, .*ESRALLY_EBS_HOME"):
        DataDirectory(path=data).lay_out(data / "home" / "datasets" / "key")
    assert not (data / "home").exists()


class Indices(Answers):
    """A node that serves three indices, one of which has an alias, and removes none."""

    def do_GET(self) -> None:
        indices = [{"name": name, "attributes": ["open"]} for name in ("logs-1", "logs-2", "other")]
        indices.append({"name": "shut", "attributes": ["closed"]})
        aliases = [{"name": "current", "indices": ["logs-2"]}]
        there = {"indices": indices, "aliases": aliases, "data_streams": []}
        self.answer(json.dumps(there) if self.path.startswith("/_resolve") else "{}")

    do_POST = do_GET


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        (
            ("logs-1", "nothing"),
            "no index is named 'nothing' in .*; there are current, logs-1, logs-2, other, shut",
        ),
        (("logs-1", "other"), "lacks logs-2, which the track searches; add it"),
        (("logs-1", "logs-2", "shut"), "shut is closed in .*; open it on its own node"),
    ],
)
def test_a_name_that_is_not_there_and_a_searched_index_that_is_missing_are_refused(
    data: Path, indices: Sequence[str], says: str
) -> None:
    source = DataDirectory(path=data, indices=indices, searched=("logs-1", "current"))
    with serving(Indices) as port, pytest.raises(PlanError, match=f"^dataset.indices: {says}"):
        source.build(replace(node_of(1, data), port=port))


def test_policies_schedules_and_transforms_of_its_cluster_end_in_a_copy(data: Path) -> None:
    asked: list[str] = []

    class Managed(Indices):
        def do_POST(self) -> None:
            asked.append(f"{self.command} {self.path.partition('?')[0]}")
            self.do_GET()

        do_DELETE = do_POST

    with serving(Managed) as port:
        DataDirectory(path=data).build(replace(node_of(1, data), port=port))
    assert asked == [
        "POST /_ilm/stop",
        "POST /_slm/stop",
        "POST /_transform/_all/_stop",
        "DELETE /_data_stream/*/_lifecycle",
        "DELETE /.tasks",
    ]


def test_indices_of_a_copy_that_are_blocked_can_be_changed_and_removed(data: Path) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    blocks = {number: {} for number in ("4", "5", "7", "8", "9", "12")}
    there = {"global": {number: {} for number in ("1", "6", "13")}, "indices": {"logs 1": blocks}}

    class Blocked(Indices):
        def do_GET(self) -> None:
            if not self.path.startswith("/_cluster/state/blocks"):
                super().do_GET()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"blocks": there}).encode())

        do_POST = do_GET

        def do_PUT(self) -> None:
            sent.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.do_GET()

    with serving(Blocked) as port:
        DataDirectory(path=data).build(replace(node_of(1, data), port=port))
    assert sent == [
        ("/_cluster/settings", {"persistent": {"cluster.blocks.read_only": None}}),
        ("/_cluster/settings", {"persistent": {"cluster.blocks.read_only_allow_delete": None}}),
        ("/logs%201/_settings", {"index.blocks.read_only": None}),
        ("/logs%201/_settings", {"index.blocks.metadata": None}),
        ("/logs%201/_settings", {"index.blocks.read_only_allow_delete": None}),
        ("/logs%201/_settings", {"index.blocks.read": None}),
    ]
