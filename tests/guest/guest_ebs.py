"""EBS arms: moto's server on the host says what is attached, and QEMU's disks come and go with that."""

import json
import time
from pathlib import Path

from guest import foreign_disk_unchanged

from esrally_ebs.aws.identity import identify
from esrally_ebs.aws.provision.host import DeviceQuery, LinuxHost
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import run
from esrally_ebs.session import manual

PLAN = """name = "attached"
[[arm]]
name = "plain"
type = "gp3"
size = "1GiB"
[[arm]]
name = "striped"
type = "gp3"
size = "1GiB"
stripes = 2
[aws]
"""
FIO = ["fio", "--name=j", "--size=4M", "--rw=randread", "--bs=16k", "--direct=1", "--output-format=json"]
UNPLUGGED_S = 60.0


def test_arms_are_attached_used_and_detached(tmp_path: Path) -> None:
    plan = tmp_path / "attached.toml"
    plan.write_text(PLAN)
    with foreign_disk_unchanged():
        plain, striped = manual.up(str(plan))
        volumes = [plain.identity, *striped.identity.split()]
        for arm in (plain, striped):
            stack = identify(arm.mount, Roots())
            assert set(stack.volume_ids) == set(arm.identity.split())
            (job,) = json.loads(run([*FIO, f"--directory={arm.mount}"], timeout_s=120))["jobs"]
            assert job["read"]["total_ios"] == 256
        assert plain.device is not None
        assert plain.device.startswith("nvme")
        assert striped.device is not None
        assert striped.device.startswith("md")

        assert manual.down(str(plan)) == ["attached"]
    query = DeviceQuery(point=Path("/mnt"), sizes=dict.fromkeys(volumes))
    until = time.monotonic() + UNPLUGGED_S  # moto does not wait for QEMU
    while LinuxHost().look(query).devices:
        assert time.monotonic() < until, "the guest still has disks of what is detached"
        time.sleep(0.5)
