"""An EBS volume that grows under its file system: the kernel's own NVMe target, as QEMU's disks cannot grow.

A subsystem of the target has the model and the serial of an EBS volume, and tells the driver of its new size.
AWS is moto's server on the host.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guest import device

from esrally_ebs.aws.clients import Aws
from esrally_ebs.aws.provision.host import EBS_MODEL
from esrally_ebs.machine.processes import run
from esrally_ebs.session import manual
from esrally_ebs.units import GIB

_TARGET = Path("/sys/kernel/config/nvmet")
_NQN = "nqn.2026-01.test:ebs"
_GROWS_S = 60.0


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The id of a volume of 1 GiB, and the file that stands behind its device."""
    zone = os.environ["AWS_REGION"] + "a"
    id_ = Aws().call("ec2", "CreateVolume", AvailabilityZone=zone, Size=1, VolumeType="gp3")["VolumeId"]
    backing = tmp_path / "backing"
    with backing.open("wb") as file:
        file.truncate(GIB)
    run(["modprobe", "--all", "nvmet-tcp", "nvme-tcp"], timeout_s=60)
    subsystem, port = _TARGET / "subsystems" / _NQN, _TARGET / "ports" / "1"
    namespace = subsystem / "namespaces" / "1"
    namespace.mkdir(parents=True)
    for path, text in (
        (subsystem / "attr_allow_any_host", "1"),
        (subsystem / "attr_model", EBS_MODEL),
        (subsystem / "attr_serial", id_.replace("-", "")),
        (namespace / "device_path", str(backing)),
        (namespace / "enable", "1"),
    ):
        path.write_text(text)
    port.mkdir()
    for name, text in (("trtype", "tcp"), ("adrfam", "ipv4"), ("traddr", "127.0.0.1"), ("trsvcid", "4420")):
        (port / f"addr_{name}").write_text(text)
    (port / "subsystems" / _NQN).symlink_to(subsystem)
    with Path("/dev/nvme-fabrics").open("r+b", buffering=0) as fabrics:
        fabrics.write(f"transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn={_NQN}".encode())
    yield id_, backing
    for controller in Path("/sys/class/nvme").glob("nvme*"):
        if (controller / "transport").read_text() == "tcp\n":
            (controller / "delete_controller").write_text("1")
    (port / "subsystems" / _NQN).unlink()
    port.rmdir()
    namespace.rmdir()
    subsystem.rmdir()


def test_the_file_system_grows_with_its_volume(volume: tuple[str, Path], tmp_path: Path) -> None:
    id_, backing = volume
    disk, point = device(id_), tmp_path / "mnt"
    run(["mkfs.xfs", "-q", disk], timeout_s=60)
    point.mkdir()
    run(["mount", disk, point], timeout_s=60)
    (point / "file").write_text("kept")

    def completed(line: str) -> None:
        """moto completes a change at once; a volume of AWS's has its size by then."""
        if line.startswith(f"{id_}: completed"):
            os.truncate(backing, 2 * GIB)
            (_TARGET / "subsystems" / _NQN / "namespaces" / "1" / "revalidate_size").write_text("1")
            until = time.monotonic() + _GROWS_S
            while int(Path(f"/sys/block/{disk.name}/size").read_text()) * 512 != 2 * GIB:
                assert time.monotonic() < until, f"{disk} does not grow"
                time.sleep(0.1)

    wanted = manual.change(type_=None, size="2GiB", iops=None, throughput=None)
    manual.modify(id_, wanted, not_ours=True, say=completed)
    usage = os.statvfs(point)
    assert usage.f_blocks * usage.f_frsize > 1.9 * GIB
    assert (point / "file").read_text() == "kept"
    run(["umount", point], timeout_s=60)
