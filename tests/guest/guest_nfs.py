"""An EFS arm in the guest: AWS in memory, and its mount target is the guest's own NFS server."""

import time
from pathlib import Path

from guest import PLACE
from memory_aws import MemoryAws

from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import new_goal
from esrally_ebs.aws.provision.host import LinuxHost
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.machine.mounts import mount_at
from esrally_ebs.machine.processes import Clock, run
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.units import GIB

TARGET = "10.0.0.9"  # of MemoryAws


def test_an_efs_arm_is_mounted_written_to_and_unmounted(tmp_path: Path) -> None:
    Path("/srv/efs").mkdir()
    Path("/etc/exports").write_text("/srv/efs *(rw,fsid=0,no_root_squash,insecure)\n")
    run(["ip", "address", "add", f"{TARGET}/32", "dev", "lo"], timeout_s=10)
    run(["systemctl", "start", "nfs-server"], timeout_s=120)
    clock, journal, point = Clock(), Journal(tmp_path), tmp_path / "mnt"
    spec = VolumeSpec(name="a", type="efs", size_bytes=GIB, aws=AwsSpec())
    journal.begin(new_goal(spec, PLACE, session="s", owner="o", point=point), time.time())
    executor = Executor(api=MemoryAws(clock), host=LinuxHost(), journal=journal, clock=clock)
    executor.up()
    mount = mount_at(point)
    assert mount is not None
    assert (mount.filesystem, mount.source) == ("nfs4", f"{TARGET}:/")
    (point / "file").write_text("over NFS")
    assert Path("/srv/efs/file").read_text() == "over NFS"
    executor.down()
    assert mount_at(point) is None
