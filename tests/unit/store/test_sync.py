"""What a power cut must not take: which files are forced to the disk, and when."""

import os
from pathlib import Path

import pytest

from esrally_ebs.model import TelemetryPoint
from esrally_ebs.store.encoding import TELEMETRY
from esrally_ebs.store.files import sync_folder
from esrally_ebs.store.parts import PartWriter, compact


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of what was forced to the disk, by this test: another's thread may not have ended yet."""
    names: list[str] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_relative_to(tmp_path):
            names.append(path.name)

    monkeypatch.setattr(os, "fsync", note)
    return names


def test_what_has_changed_since_the_last_time_is_forced(tmp_path: Path, forced: list[str]) -> None:
    folder, synced = tmp_path / "s", dict[str, int]()
    (folder / "samples").mkdir(parents=True)
    for name in ("events.jsonl", "samples/part"):
        (folder / name).write_text("1")
    (tmp_path / "elsewhere").write_text("1")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe")

    sync_folder(folder, synced)
    assert {"events.jsonl", "part", "samples", "s"} <= set(forced)
    assert "elsewhere" not in forced
    forced.clear()
    sync_folder(folder, synced)
    assert forced == []
    os.utime(folder / "events.jsonl")
    (folder / "samples" / "part").unlink()
    sync_folder(folder, synced)
    assert forced == ["events.jsonl", "samples"]


def test_no_device_and_nothing_of_others_is_opened(tmp_path: Path, forced: list[str]) -> None:
    """By sudo root forces what the caller names; to open a watchdog would have the machine start anew."""
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    sync_folder(tmp_path, {}, of=os.geteuid())
    assert sorted(forced) == sorted(["file", tmp_path.name])
    forced.clear()
    sync_folder(tmp_path, {}, of=os.geteuid() + 1)
    assert forced == []


def test_no_folder_is_nothing_to_force(tmp_path: Path, forced: list[str]) -> None:
    sync_folder(tmp_path / "none", {})
    assert forced == []


def test_a_table_is_on_disk_before_it_has_its_name(tmp_path: Path, forced: list[str]) -> None:
    for number in range(3):
        with PartWriter(tmp_path, TELEMETRY) as writer:
            writer.add([TelemetryPoint(arm="a", device="d", at_s=1.0, metric="m", value=number, unit="s")])
    names = [path.name for path in sorted(tmp_path.glob("part-*"))]
    compact(tmp_path, TELEMETRY)
    (merged,) = tmp_path.glob("*.parquet")  # the parts are gone, so what stands for them must be on disk
    assert [name.removeprefix(".").split(".")[0] for name in forced] == [
        name.split(".")[0] for name in (*names, merged.name)
    ]
