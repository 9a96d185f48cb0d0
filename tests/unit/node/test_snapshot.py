"""Snapshots in a repository of files: what is refused before a node starts, what makes another dataset."""

import json
import os
import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from esrally_ebs.aws import s3
from esrally_ebs.aws.clients import AwsError
from esrally_ebs.aws.s3 import Objects
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.node import life
from esrally_ebs.node.dataset import key_of
from esrally_ebs.node.snapshot import Snapshot

IMAGE = "elasticsearch:8.8.2"


def facts(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"name": name, "uuid": f"uuid-{name}", "state": 1, "version": "8.8.2", **changes}


def repository(folder: Path, *snapshots: dict[str, Any]) -> Path:
    """What Elasticsearch writes, as far as we look at it, readable for everyone."""
    (folder / "indices" / "i1").mkdir(parents=True)
    (folder / "indices" / "i1" / "__blob").write_bytes(b"x" * 1000)
    (folder / "indices" / "i2").mkdir()
    (folder / "indices" / "i2" / "__blob").write_bytes(b"x" * 500)
    indices = {
        "one": {"id": "i1", "snapshots": [each["uuid"] for each in snapshots]},
        "two": {"id": "i2", "snapshots": ["uuid-other"]},
    }
    (folder / "index-258").write_text(json.dumps({"snapshots": list(snapshots), "indices": indices}))
    (folder / "index.latest").write_bytes((258).to_bytes(8, "big"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return repository(
        tmp_path / "backup",
        facts("whole"),
        facts("old", version="7.17.9"),
        facts("opensearch", version="2.11.0"),
        facts("ancient", version="6.8.23"),
        facts("begun", state=0),
        facts("failed", state=2),
        facts("partial", state=3),
        facts("strange", state=None),
        facts("newer", version="8.11.0", index_version=8500010),  # as any from 8.11 on
        facts("first-number", version=8100099),
        facts("after-numbers", version="8.11.0", index_version=8100099),
        facts("ninth", version="8.11.0", index_version=9009000),
        {"name": "bare", "uuid": "u", "state": 1},
    )


@pytest.mark.parametrize("name", ["whole", "old", "bare"])
def test_a_snapshot_that_succeeded_is_taken(there: Path, name: str) -> None:
    Snapshot(path=there / name).require(IMAGE)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        (
            "nothing",
            PlanError,
            "no snapshot is named 'nothing' in .*; there are after-numbers, ancient, bare, begun, ",
        ),
        (
            "opensearch",
            PlanError,
            r"was taken by OpenSearch 2\.11\.0, whose files no Elasticsearch reads; reindex it",
        ),
        (
            "ancient",
            PlanError,
            r"was taken by Elasticsearch 6\.8\.23, older than elasticsearch:8\.8\.2 restores \(7\.0\); rest",
        ),
        ("begun", PlanError, "begun was never finished; take one that succeeded"),
        ("failed", PlanError, "failed failed; take one"),
        ("partial", PlanError, "is partial: shards are missing in it; take one"),
        ("strange", PlanError, "is not whole; take one"),
        (
            "newer",
            SetupError,
            r"was taken by Elasticsearch 8\.11 or later, newer than elasticsearch:8\.8\.2; set ES_",
        ),
    ],
)
def test_what_cannot_be_restored_is_refused_before_a_node_starts(
    there: Path, name: str, kind: type[EbsError], says: str
) -> None:
    with pytest.raises(kind, match=rf"^dataset\.snapshot: .*{says}"):
        Snapshot(path=there / name).require(IMAGE)


@pytest.mark.parametrize(
    ("name", "image", "refused"),
    [
        *(("newer", "es:8.10.4", "8.11 or later"), ("newer", "es:8.11.0", ""), ("newer", "es:9.1.2", "")),
        *((name, "es:8.9.2", "8.10.0") for name in ("first-number", "after-numbers")),
        *((name, "es:8.10.0", "") for name in ("first-number", "after-numbers")),
        *(("ninth", "es:8.19.1", "9 or later"), ("ninth", "es:9.0.0", "")),
    ],
)
def test_a_snapshot_whose_version_is_a_number_is_no_newer_than_the_node_that_took_it(
    there: Path, name: str, image: str, refused: str
) -> None:
    snapshot = Snapshot(path=there / name)
    if refused:
        with pytest.raises(SetupError, match=f"taken by Elasticsearch {refused}, newer than {image}; set"):
            snapshot.require(image)
    else:
        snapshot.require(image)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[]", "\x00", '{"snapshots": 3, "indices": {}}', '{"snapshots": [], "indices": 3}'),
        "[" * 100_000,
        '{"snapshots": [{"name": "whole"}], "indices": {}}',
        '{"snapshots": [7], "indices": {}}',
        '{"snapshots": [], "indices": {"one": {"id": "i1", "snapshots": null}}}',
        '{"snapshots": [{"name": null, "uuid": "u"}], "indices": {}}',
        '{"snapshots": [{"name": [], "uuid": "u"}], "indices": {}}',
        '{"snapshots": [], "indices": {"one": {"id": null, "snapshots": []}}}',
        '{"snapshots": [], "indices": {"one": {"id": "../../..", "snapshots": []}}}',
    ],
)
def test_a_list_that_is_broken_is_one_line(there: Path, content: str) -> None:
    (there / "index-258").write_text(content)
    with pytest.raises(PlanError, match="is no repository of snapshots") as error:
        Snapshot(path=there / "whole").require(IMAGE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "path", ["whole", "backup", "backup/indices/whole", "none/whole", f"{'n' * 256}/whole"]
)
def test_a_directory_that_is_no_repository_is_refused(tmp_path: Path, there: Path, path: str) -> None:
    with pytest.raises(PlanError, match=r"is no repository of snapshots .*give the 'location'"):
        Snapshot(path=tmp_path / path).require(IMAGE)


def test_a_repository_that_is_a_link_is_refused_and_so_is_one_with_links(tmp_path: Path, there: Path) -> None:
    (tmp_path / "link").symlink_to(there)
    with pytest.raises(PlanError, match="link is a link; give the directory that it leads to"):
        Snapshot(path=tmp_path / "link" / "whole").require(IMAGE)
    (there / "indices" / "i1" / "0").symlink_to(tmp_path)
    with pytest.raises(SetupError, match=r"i1/0 is a link, which leads nowhere .* \(cp -rL\)"):
        Snapshot(path=there / "whole").require(IMAGE)


@pytest.mark.parametrize("name", ["index.latest", "index-258", "indices/i1/__more"])
def test_a_pipe_in_a_repository_is_refused_for_its_end_never_comes(there: Path, name: str) -> None:
    (there / name).unlink(missing_ok=True)
    os.mkfifo(there / name)
    with pytest.raises(EbsError, match=f"{there / name}(: not a file; remove it| is a pipe or device; give)"):
        Snapshot(path=there / "whole").require(IMAGE)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users")
@pytest.mark.parametrize(
    ("owner", "mode", "is_readable"),
    [
        ((1000, 1000), 0o400, True),
        ((1000, 0), 0o044, False),
        ((7, 0), 0o040, True),
        ((7, 7), 0o040, False),
        ((7, 7), 0o004, True),
    ],
)
def test_what_the_nodes_user_cannot_read_is_refused(
    there: Path, owner: tuple[int, int], mode: int, is_readable: bool
) -> None:
    blob = there / "indices" / "i1" / "__blob"
    blob.chmod(mode)
    os.chown(blob, *owner)
    if is_readable:
        Snapshot(path=there / "whole").require(IMAGE)
    else:
        with pytest.raises(
            SetupError, match=r"__blob cannot be read by the node's user \(1000\); give a copy"
        ):
            Snapshot(path=there / "whole").require(IMAGE)


def test_a_folder_needs_to_be_entered_too(there: Path) -> None:
    (there / "indices").chmod(0o644)
    with pytest.raises(SetupError, match=re.escape(f"{there / 'indices'} cannot be read by the node's user")):
        Snapshot(path=there / "whole").require(IMAGE)


def test_what_no_restore_of_it_reads_may_be_anyones(there: Path, tmp_path: Path) -> None:
    (there / "lost+found").mkdir(mode=0o700)  # of a repository that is a mount's root
    (there / "notes").symlink_to(tmp_path)
    (there / "indices" / "i2" / "__blob").chmod(0)  # of another snapshot
    Snapshot(path=there / "whole").require(IMAGE)


@pytest.mark.parametrize("latest", [None, 257])
def test_the_newest_list_counts_whatever_index_latest_says(there: Path, latest: int | None) -> None:
    (there / "index-257").write_text('{"snapshots": [], "indices": {}}')
    (there / "index.latest").unlink()  # never written where support_url_repo is false
    if latest:
        (there / "index.latest").write_bytes(latest.to_bytes(8, "big"))
    Snapshot(path=there / "whole").require(IMAGE)
    in_s3(there).require(IMAGE)


def test_room_is_that_of_its_own_indices(there: Path) -> None:
    assert Snapshot(path=there / "whole").room_bytes() == 1000
    _add_index(there, "large")
    assert Snapshot(path=there / "whole").room_bytes() == 1500
    assert Snapshot(path=there / "whole", indices=("one",)).room_bytes() == 1000


def _add_index(there: Path, name: str) -> None:
    """One more in the snapshot ``whole``, of 500 bytes in the folder ``i2``."""
    contents = json.loads((there / "index-258").read_text())
    contents["indices"][name] = {"id": "i2", "snapshots": ["uuid-whole"]}
    (there / "index-258").write_text(json.dumps(contents))


@pytest.mark.parametrize("index", [".ds-logs-2026.01.02-000001", "shrink-a1b2-.ds-logs-2026.01.02-000001"])
def test_a_data_stream_is_fetched_with_its_indices_also_those_that_were_shrunk(
    there: Path, index: str
) -> None:
    _add_index(there, index)
    wanted = in_s3(there, indices=["logs"])._wanted
    assert "indices/i2/__blob" in wanted
    assert "indices/i1/__blob" not in wanted


def test_another_snapshot_or_other_indices_are_another_dataset(tmp_path: Path, there: Path) -> None:
    sources = [
        Snapshot(path=there / "whole"),
        Snapshot(path=there / "old"),
        Snapshot(path=there / "whole", indices=("one",)),
        Snapshot(path=there / "whole", searched=("one",)),
    ]
    assert len({key_of(source, IMAGE) for source in sources}) == len(sources)
    there.rename(tmp_path / "elsewhere")
    assert key_of(Snapshot(path=tmp_path / "elsewhere" / "whole"), IMAGE) == key_of(sources[0], IMAGE)


def test_the_node_sees_the_repository_and_may_only_read_it() -> None:
    part = life._seeing(Path("/mnt/a$b"), {"environment": {"http.port": "9201"}}, read_only=True)
    assert part["environment"] == {"http.port": "9201", "path.repo": life.REPOSITORY}
    (mount,) = part["volumes"]
    assert mount == {"type": "bind", "source": "/mnt/a$$b", "target": life.REPOSITORY, "read_only": True}
    assert life._seeing(None, {"ports": []}, read_only=True) == {"ports": []}


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        (["logs-1", "logs-2"], "no index is named 'none' in .*; there are logs-1, logs-2"),
        ([], "there is no index in .*; there are none"),
    ],
)
def test_a_name_that_is_not_in_it_is_refused(there: Path, indices: list[str], says: str) -> None:
    wanted = ("logs-1", "none") if indices else ()
    with pytest.raises(PlanError, match=says):
        Snapshot(path=there / "whole", indices=wanted)._names({"indices": indices})


def test_a_restore_that_takes_too_long_is_one_line_with_the_way_out(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        node = SimpleNamespace(host="127.0.0.1", port=silent.getsockname()[1])
        monkeypatch.setattr("esrally_ebs.node.snapshot._TIMEOUT_S", 0.1)
        with pytest.raises(SetupError, match=r"whole was not restored within .* fewer indices .* faster"):
            Snapshot(path=there / "whole").build(node)  # type: ignore[arg-type]


class Bucket:
    """The files of a folder as the objects below ``backup/`` of one bucket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.got: list[str] = []

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        assert service == "s3"
        if params["Bucket"] != "bucket":
            raise AwsError(f"s3:{operation}", "NoSuchBucket", "NoSuchBucket: there is none of that name")
        if operation == "ListObjectsV2":
            keys = {f"backup/{path.relative_to(self.folder)}": path for path in self.folder.rglob("*")}
            keys = {key: path for key, path in keys.items() if key.startswith(params["Prefix"])}
            found = [
                {"Key": key + "/" * path.is_dir(), "Size": 0 if path.is_dir() else path.stat().st_size}
                for key, path in keys.items()
            ]
            return {"Contents": found} if found else {}
        name = params["Key"].removeprefix("backup/")
        self.got.append(name)
        first, last = map(int, params["Range"].removeprefix("bytes=").split("-"))
        return {"Body": (self.folder / name).read_bytes()[first : last + 1]}


def in_s3(there: Path, name: str = "whole", bucket: str = "bucket", **more: Any) -> Snapshot:  # noqa: ANN401
    objects = Objects(bucket=bucket, prefix="backup/", api=Bucket(there))
    return Snapshot(path=Path(f"s3:/{bucket}/backup/{name}"), objects=objects, **more)


def test_a_snapshot_in_s3_is_fetched_with_its_indices_and_no_others(
    there: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_PIECE_BYTES", 300)
    (there / "indices" / "i1" / "0").mkdir()
    (there / "indices" / "i1" / "0" / "empty").write_bytes(b"")
    (there / "snap-uuid-whole.dat").write_bytes(b"facts")
    (there / "snap-uuid-old.dat").write_bytes(b"of another")
    snapshot = in_s3(there)
    snapshot.require(IMAGE)
    (tmp_path / "built").mkdir()
    snapshot.lay_out(tmp_path / "built" / "elasticsearch")
    fetched = tmp_path / "built" / "repository"
    assert snapshot.repository == fetched
    wanted = ["index-258", "index.latest", "indices/i1/0/empty", "indices/i1/__blob", "snap-uuid-whole.dat"]
    files = sorted(path for path in fetched.rglob("*") if path.is_file())
    assert [str(path.relative_to(fetched)) for path in files] == wanted
    assert all(path.read_bytes() == (there / path.relative_to(fetched)).read_bytes() for path in files)
    assert snapshot.room_bytes() == 2 * sum(path.stat().st_size for path in files)
    for path in (fetched, *fetched.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


def test_of_named_indices_no_others_are_fetched(there: Path) -> None:
    assert "indices/i1/__blob" in in_s3(there, indices=["one"])._wanted
    assert "indices/i1/__blob" not in in_s3(there, indices=["on"])._wanted


@pytest.mark.parametrize(
    ("name", "bucket", "says"),
    [
        ("nothing", "bucket", "no snapshot is named 'nothing' in s3://bucket/backup \\(one being taken"),
        ("partial", "bucket", "s3://bucket/backup/partial is partial: shards are missing in it; take one"),
        ("newer", "bucket", "s3://bucket/backup/newer was taken by Elasticsearch 8.11 or later, newer than"),
        ("whole", "other", "AWS s3:ListObjectsV2: NoSuchBucket: there is none"),
    ],
)
def test_what_is_wrong_in_s3_is_one_line(there: Path, name: str, bucket: str, says: str) -> None:
    with pytest.raises(EbsError, match=says):
        in_s3(there, name, bucket).require(IMAGE)


def test_a_prefix_without_a_repository_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"s3://bucket/backup is no repository .*s3://BUCKET/BASE_PATH in S3"):
        in_s3(tmp_path).require(IMAGE)


def test_a_name_that_leads_elsewhere_is_not_written(tmp_path: Path, there: Path) -> None:
    objects = Objects(bucket="bucket", prefix="backup/", api=Bucket(there))
    for name in ("../up", "indices/../../up", "/etc/up", "a//b", ".", "indices/"):
        with pytest.raises(SetupError, match="is no name of Elasticsearch's"):
            objects.fetch(name, 1, tmp_path / "to")
