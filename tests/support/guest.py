"""What tests inside the guest (``make guest-test``) share: arms on its disks, a foreign disk."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esrally_ebs.aws.instance import Place
from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import new_goal
from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.machine.processes import run
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.units import GIB

_APPEARS_S = 30.0
FOREIGN = "vol-0fedcba9876543210"
PLACE = Place(instance="i-0123456789abcdef0", zone="us-east-1a", region="us-east-1")


class NoAws:
    """The API for arms that need none."""

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        raise AssertionError(f"{service} was asked for {operation}")


def local_arm(folder: Path, *, stripes: int = 1, stripe_with: str = "mdadm") -> Executor:
    """An arm on the guest's instance store, begun in a folder and not up yet."""
    aws = AwsSpec(stripe_with=stripe_with)
    spec = VolumeSpec(name="a", type="instance-store", size_bytes=GIB, stripes=stripes, aws=aws)
    journal = Journal(folder)
    journal.begin(new_goal(spec, PLACE, session="s", owner="o", point=folder / "mnt"), time.time())
    return Executor(api=NoAws(), host=LinuxHost(), journal=journal)


def device(serial: str) -> Path:
    """The block device of an EBS volume, which appears a moment after its controller."""
    until = time.monotonic() + _APPEARS_S
    while True:
        devices = LinuxHost().look(DeviceQuery(point=Path("/mnt"), sizes={serial: None})).devices
        if serial in devices:
            return devices[serial].path
        assert time.monotonic() < until, f"{serial}: no device appeared; there are {list(devices)}"
        time.sleep(0.2)


@contextmanager
def foreign_disk_unchanged() -> Iterator[None]:
    """A disk of somebody else's, partitioned and full of data, has the same bytes afterwards."""
    path = device(FOREIGN)
    if not Path(f"{path}p1").exists():
        with path.open("r+b") as file:
            file.write(os.urandom(8 * 1024**2))
        run(["sgdisk", "--clear", "--new=1:0:0", path], timeout_s=60)
    before = _digest(path)
    yield
    assert _digest(path) == before


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
