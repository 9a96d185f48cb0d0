"""The directory beneath a volume."""

from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.machine import mounts
from esrally_ebs.machine.mounts import mount_holding, remove_mount_point


def test_what_we_wrote_beneath_a_volume_that_others_unmounted_goes(tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    for name in ("elasticsearch/nodes", "fio"):
        (point / name).mkdir(parents=True)
        (point / name / "file").touch()
    remove_mount_point(point)
    assert not point.exists()


def test_somebody_elses_files_there_stay(tmp_path: Path) -> None:
    point = tmp_path / "mnt"
    (point / "elasticsearch").mkdir(parents=True)
    (point / "photos").mkdir()
    with pytest.raises(OSError, match="not empty"):
        remove_mount_point(point)
    assert (point / "photos").is_dir()


def test_a_path_on_no_mount_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "mounts", list)  # as where /proc is another's
    with pytest.raises(SetupError, match=r"^/x: on no mount of /proc/self/mountinfo; is /proc mounted\?$"):
        mount_holding(Path("/x"))
