"""Where this machine's own description of itself is read: the kernel's trees, or a copy of them elsewhere."""

from dataclasses import dataclass
from pathlib import Path

_EC2 = "Amazon EC2"
_DMI = ("sys_vendor", "board_vendor", "bios_vendor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """The trees that are read; nothing in this package names one of them otherwise."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    run: Path = Path("/run")  # of efs-utils: which file system a mount through its tunnel is

    def on_ec2(self) -> bool:
        """Whether the firmware says that this is an EC2 instance (Nitro by DMI, Xen also by its UUID)."""
        if any(text(self.sys / "class" / "dmi" / "id" / name) == _EC2 for name in _DMI):
            return True
        return self.on_xen()

    def boot_id(self) -> str:
        """The kernel's name for the time since it booted, one for all containers; without dashes."""
        return text(self.proc / "sys" / "kernel" / "random" / "boot_id").replace("-", "")

    def on_xen(self) -> bool:
        """Whether this is an EC2 instance on Xen, whose EBS disks do not tell which volume they are."""
        return text(self.sys / "hypervisor" / "uuid").startswith("ec2")


def text(path: Path) -> str:
    """What a file of one line says; empty when it is not there or may not be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
