"""Where this machine describes itself: the kernel's trees, or copies of them elsewhere."""

from dataclasses import dataclass
from pathlib import Path

_EC2 = "Amazon EC2"
_DMI = ("sys_vendor", "board_vendor", "bios_vendor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Paths of the trees; the rest of this package names no others."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    run: Path = Path("/run")  # efs-utils: which file system a mount through its tunnel is

    def on_ec2(self) -> bool:
        """Whether the firmware says EC2 (Nitro by DMI, Xen also by its UUID)."""
        if any(text(self.sys / "class" / "dmi" / "id" / name) == _EC2 for name in _DMI):
            return True
        return self.on_xen()

    def boot_id(self) -> str:
        """The kernel's id of this boot, without dashes; the same in all containers."""
        return text(self.proc / "sys" / "kernel" / "random" / "boot_id").replace("-", "")

    def on_xen(self) -> bool:
        """Whether this is an EC2 instance on Xen, whose EBS disks do not identify their volumes."""
        return text(self.sys / "hypervisor" / "uuid").startswith("ec2")


def text(path: Path) -> str:
    """Contents of a one-line file; "" if missing or unreadable."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
