"""What is lent to a node, or given away, and comes back: the user's own files, and no others."""

import os
import subprocess
from pathlib import Path

import pytest
from shared_python import NOBODY

from esrally_ebs.machine.mounts import mount_at
from esrally_ebs.machine.private import give_tree, opened_below
from esrally_ebs.model import NODE_USER
from esrally_ebs.node import life
from esrally_ebs.volumes import backends as volumes

OTHER = 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@needs_root
def test_what_was_lent_below_a_run_directory_that_a_link_leads_to_is_given_back(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to("run")  # as /var/run
    data = tmp_path / "data"
    data.mkdir()
    arm = tmp_path / "var" / "session" / "lent_1"
    with opened_below(data) as descriptor:
        lent = volumes.lend(descriptor, arm, name="lent_1", owner=os.geteuid())
    point = (lent.mount / "elasticsearch").resolve()
    os.chown(data, NODE_USER, 0)
    try:
        volumes.detach(arm)
        assert mount_at(point) is None
        assert data.stat().st_uid == os.geteuid()
    finally:
        subprocess.run(["umount", "--lazy", point], check=False)


@needs_root
def test_of_a_directory_only_the_user_s_own_files_are_given_away_and_back(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, uid in (("own", NOBODY), ("root's", 0), ("other's", OTHER)):
        (folder / name).touch()
        os.chown(folder / name, uid, uid)
    (folder / "link").symlink_to("/etc/passwd")
    os.chown(folder, NOBODY, NOBODY)
    give_tree(folder, NODE_USER, of=NOBODY)
    assert (folder / "own").stat().st_uid == folder.stat().st_uid == NODE_USER
    give_tree(folder, NOBODY, of=NODE_USER)
    owners = {path.name: path.lstat().st_uid for path in folder.iterdir()}
    assert owners == {"own": NOBODY, "root's": 0, "other's": OTHER, "link": 0}
    assert Path("/etc/passwd").stat().st_uid == 0


@needs_root
def test_no_file_with_a_second_name_elsewhere_is_given_back(tmp_path: Path) -> None:
    """The node's number is that of a user of this machine, too, whose files may be linked to."""
    folder, theirs = tmp_path / "data", tmp_path / "theirs"
    folder.mkdir()
    theirs.touch()
    (folder / "own").touch()
    os.link(theirs, folder / "link")
    for path in (folder / "own", theirs):
        os.chown(path, NODE_USER, 0)
    give_tree(folder, NOBODY, of=NODE_USER, back=True)
    assert ((folder / "own").stat().st_uid, theirs.stat().st_uid) == (NOBODY, NODE_USER)


@needs_root
def test_no_file_that_was_moved_there_is_given_back(tmp_path: Path) -> None:
    """Who may write to a folder that another user keeps private files in may move, but not read them."""
    data, arm = tmp_path / "data", tmp_path / "session" / "lent_1"
    (data / "index").mkdir(parents=True)
    (data / "index").chmod(0o777)  # which the user may still write to when it is the node's
    with opened_below(data) as descriptor:
        lent = volumes.lend(descriptor, arm, name="lent_1", owner=os.geteuid())
    life.prepare_data_dir(lent)
    private = tmp_path / "private"
    private.touch(mode=0o600)
    os.chown(private, NODE_USER, NODE_USER)
    private.rename(data / "index" / "moved")
    volumes.detach(arm)
    owners = {path.name: path.stat().st_uid for path in (data, *data.rglob("*"))}
    assert owners == {"data": os.geteuid(), "index": os.geteuid(), "moved": NODE_USER}
