"""A machine that is a directory: the /sys, /proc, /dev and /run of an EC2 instance, also for unit tests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esrally_ebs.machine.kernel_trees import Roots

EBS_MODEL = "Amazon Elastic Block Store"
LOCAL_MODEL = "Amazon EC2 NVMe Instance Storage"
GIB = 1024**3


@dataclass
class FakeMachine:
    """Devices and mounts are added one by one; ``roots`` is what the code under test reads."""

    root: Path
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("sys", "proc", "dev", "run"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self.mount("/proc", "proc", "0:5", "proc")
        self.write("sys/class/dmi/id/sys_vendor", "Amazon EC2")

    @property
    def roots(self) -> Roots:
        return Roots(
            sys=self.root / "sys", proc=self.root / "proc", dev=self.root / "dev", run=self.root / "run"
        )

    def write(self, path: str, text: object) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{text}\n")

    def link(self, path: str, to: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(self.root / to)

    def device(self, name: str, number: str, folder: str = "", *, gib: float = 100) -> str:
        """A block device in sysfs; its folder, relative to the root."""
        node = f"sys/devices/{folder or name}"
        self.write(f"{node}/dev", number)
        self.write(f"{node}/size", int(gib * GIB) // 512)
        self.write(f"{node}/queue/read_ahead_kb", 128)
        self.write(f"{node}/queue/scheduler", "[none] mq-deadline")
        self.link(f"sys/dev/block/{number}", node)
        self.link(f"sys/class/block/{name}", node)
        self.link(f"sys/block/{name}", node)
        return node

    def nvme(
        self, name: str, number: str, *, serial: str = "", model: str = EBS_MODEL, gib: float = 100
    ) -> str:
        """A whole NVMe disk, as EBS and instance stores are on Nitro."""
        node = self.device(name, number, f"pci0/nvme/{name}", gib=gib)
        self.write(f"{node}/device/model", f"{model:<40}")
        self.write(f"{node}/device/serial", f"{serial:<20}")
        return node

    def partition(self, disk: str, name: str, number: str) -> None:
        """A partition below a disk's folder."""
        node = f"{disk}/{name}"
        self.write(f"{node}/partition", name[-1])
        self.write(f"{node}/dev", number)
        self.link(f"sys/dev/block/{number}", node)
        self.link(f"sys/class/block/{name}", node)

    def array(
        self, name: str, number: str, members: Sequence[str], *, level: str = "", uuid: str = ""
    ) -> None:
        """An md array (``level``) or a device-mapper device (``uuid``) over members' folders."""
        node = self.device(name, number, f"virtual/{name}")
        for member in members:
            self.link(f"{node}/slaves/{Path(member).name}", member)
        if level:
            self.write(f"{node}/md/level", level)
        if uuid:
            self.write(f"{node}/dm/uuid", uuid)

    def loop(self, name: str, number: str, backing: str, *, direct: bool) -> str:
        """A loop device over a file."""
        node = self.device(name, number, f"virtual/{name}")
        self.write(f"{node}/loop/backing_file", backing)
        self.write(f"{node}/loop/dio", int(direct))
        return node

    def btrfs(self, uuid: str, members: Sequence[str]) -> None:
        """A btrfs over members' folders."""
        for member in members:
            self.link(f"sys/fs/btrfs/{uuid}/devices/{Path(member).name}", member)

    def mount(
        self, point: str, source: str, number: str, filesystem: str = "xfs", *, options: str = "rw,noatime",
        of_super: str = "rw", root: str = "/",
    ) -> None:  # fmt: skip
        """One more line of mountinfo."""
        line = (
            f"{len(self.lines) + 20} 1 {number} {root} {point} {options} - {filesystem} {source} {of_super}"
        )
        self.lines.append(line)
        self.write("proc/self/mountinfo", "\n".join(self.lines))
