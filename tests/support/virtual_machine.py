"""A Debian guest under QEMU, seen from the host: booted with a command to run, given disks, cut off.

``scripts/guest/build.sh`` makes what it boots; ``scripts/guest/inside.sh`` is what runs in it first.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_BUILT = _ROOT / ".cache" / "guest"
_CHECKOUT = (
    *(
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        "requirements.txt",
        "esrally_ebs.pth",
        "Makefile",
        "README.md",
    ),
    *("esrally_ebs", "esrally_ebs.egg-info", "pipelines", "compose", "scripts", "tests", "tracks"),
)
HOST = "10.0.2.2"  # this machine's loopback, as the guest sees it
INSTANCE = "i-0123456789abcdef0"
_NICENESS = "10"
_BARE = (
    "modprobe 9pnet_virtio; mount -t 9p -o trans=virtio,version=9p2000.L share /mnt; exec bash /mnt/bare.sh"
)
_QMP_S = 60.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """An NVMe disk that is there from the start."""

    name: str
    serial: str
    mib: int = 1024


DISKS = (
    Disk(name="store0", serial="AWS00000000000000001"),
    Disk(name="store1", serial="AWS00000000000000002"),
)


@cache
def _accelerator() -> str:
    """KVM must not only open: on some hosts QEMU ends with an error before it is told to."""
    trial = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "max", "-m", "64", "-display", "none"]
    trial += ["-S", "-monitor", "stdio"]
    if not os.access("/dev/kvm", os.W_OK):
        return "tcg,thread=multi"
    try:
        subprocess.run(trial, input=b"quit\n", capture_output=True, check=True, timeout=60)
    except subprocess.SubprocessError:
        return "tcg,thread=multi"
    return "kvm"


class VirtualMachine:
    """A guest whose disks outlive it: what is booted again finds them as they were left.

    A write that the guest has not flushed may be lost with QEMU: its root is a QCOW2 image, whose table of
    blocks QEMU writes when the guest flushes. Its NVMe disks are raw: a completed write stays, as on EBS.
    """

    def __init__(self, folder: Path, disks: Sequence[Disk] = DISKS) -> None:
        """``folder`` gets the disks, and ``share``, which the guest sees as /mnt."""
        self.folder, self.share = folder, folder / "share"
        self.share.mkdir(parents=True)
        for script in ("bare.sh", "inside.sh"):
            shutil.copy(_ROOT / "scripts" / "guest" / script, self.share)
        with tarfile.open(self.share / "checkout.tar", "w") as tar:
            for name in _CHECKOUT:
                if (_ROOT / name).exists():
                    tar.add(_ROOT / name, name)
        root = ["-f", "qcow2", "-F", "raw", "-b", str(_BUILT / "disk.img"), str(self.folder / "root.qcow2")]
        subprocess.run(["qemu-img", "create", "-q", *root], check=True)
        self._disks = []
        self.blank(disks)
        for disk in disks:
            self._disks += ["-blockdev", json.dumps(self._node(disk.name))]
            self._disks += ["-device", f"nvme,drive={disk.name},id=d-{disk.name},serial={disk.serial}"]
        self._process: subprocess.Popen[bytes] | None = None

    def blank(self, disks: Sequence[Disk]) -> None:
        """Make these all zeros; not while the guest runs."""
        for disk in disks:
            with (self.folder / disk.name).open("wb") as file:
                file.truncate(disk.mib * 1024**2)

    def _node(self, name: str) -> dict[str, Any]:
        file = {"driver": "file", "filename": str(self.folder / name), "discard": "unmap"}
        return {"driver": "raw", "node-name": name, "discard": "unmap", "file": file}

    @contextmanager
    def booted(self, command: str, *, services: bool = True) -> Iterator[None]:
        """The guest runs a shell command as its user, and powers off; QEMU is killed when the block ends.

        Without ``services`` there is no systemd, which halves the time.
        """
        (self.share / "command").write_text(command)
        for name in ("output", "code"):
            (self.share / name).unlink(missing_ok=True)
        monitor = self.folder / "qmp"
        monitor.unlink(missing_ok=True)
        accelerator = _accelerator()
        # Without AVX, which is slow to emulate; pyarrow needs SSE 4.2
        words = ["-accel", accelerator, "-cpu", "max" if accelerator == "kvm" else "Nehalem"]
        # With room for one more: alone, a processor is emulated without barriers, and disks miss requests
        words += ["-smp", "1,maxcpus=2", "-m", "2048", "-display", "none", "-nodefaults", "-no-reboot"]
        words += ["-serial", f"file:{self.folder}/console"]
        words += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        words += ["-kernel", str(_BUILT / "vmlinuz"), "-initrd", str(_BUILT / "initrd")]
        options = "root=/dev/vda rw console=ttyS0 quiet mitigations=off no_timer_check net.ifnames=0"
        words += ["-append", options if services else f'{options} init=/bin/bash -- -c "{_BARE}"']
        words += ["-drive", f"file={self.folder}/root.qcow2,if=virtio,format=qcow2,cache=writeback"]
        words += ["-virtfs", f"local,path={self.share},mount_tag=share,security_model=none"]
        words += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]
        words += ["-smbios", "type=1,manufacturer=Amazon EC2", "-smbios", f"type=3,asset={INSTANCE}"]
        # with this process it goes, too, whatever ends it
        prefix = ["setpriv", "--pdeathsig", "KILL", "nice", "-n", _NICENESS]
        self._process = subprocess.Popen([*prefix, "qemu-system-x86_64", *words, *self._disks])
        try:
            while not monitor.exists():
                assert self.runs, "QEMU does not start"
                time.sleep(_POLL_S)
            yield
        finally:
            self.cut()

    @property
    def runs(self) -> bool:
        """Whether the guest has neither powered off nor been cut off."""
        return self._process is not None and self._process.poll() is None

    def cut(self) -> None:
        """Take its power away: SIGKILL for QEMU."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, timeout_s: float) -> str:
        """What the command printed, once the guest has powered off; AssertionError unless it ended well."""
        until = time.monotonic() + timeout_s
        while self.runs and time.monotonic() < until:
            time.sleep(_POLL_S)
        output = self.read("output") or f"nothing ran; its console:\n{self._console()}"
        assert not self.runs, f"not ended after {timeout_s:.0f} s:\n{output}"
        assert self.read("code").strip() == "0", f"{output}\n{self.read('kernel')[-3000:]}"
        return output

    def read(self, name: str) -> str:
        """A file that the guest has written to /mnt; empty when there is none."""
        try:
            return (self.share / name).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def _console(self) -> str:
        return (self.folder / "console").read_text(errors="replace")[-3000:]

    def attach(self, name: str, serial: str, size_bytes: int) -> None:
        """Plug in an NVMe disk while the guest runs: a new one of zeros, or the one of that name."""
        if not (self.folder / name).exists():
            with (self.folder / name).open("wb") as file:
                file.truncate(size_bytes)
        self.monitor("blockdev-add", **self._node(name))
        self.monitor("device_add", driver="nvme", id=f"d-{name}", drive=name, serial=serial)

    def detach(self, name: str) -> None:
        """Unplug a disk; it is out when the guest has let go of it."""
        device = f"d-{name}"
        self.monitor("device_del", id=device)
        until = time.monotonic() + _QMP_S
        while device in self.monitor("query-pci"):
            assert time.monotonic() < until, f"{name}: the guest does not let go of it"
            time.sleep(_POLL_S)
        while f'"{name}"' in self.monitor("query-named-block-nodes"):
            assert time.monotonic() < until, f"{name}: QEMU does not let go of it"
            with contextlib.suppress(AssertionError):  # the disk is in use for a moment after it has gone
                self.monitor("blockdev-del", **{"node-name": name})
            time.sleep(_POLL_S)

    def monitor(self, command: str, **arguments: Any) -> str:  # noqa: ANN401
        """The answer to a command of QEMU's monitor, as JSON; AssertionError for a refusal."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_QMP_S)
            connection.connect(str(self.folder / "qmp"))
            with connection.makefile("rw") as lines:
                lines.readline()  # its greeting
                answer = {}
                for words in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    lines.write(json.dumps(words) + "\n")
                    lines.flush()
                    answer = json.loads(lines.readline())
                    while "event" in answer:
                        answer = json.loads(lines.readline())
        assert "return" in answer, f"{command}: {answer}"
        return json.dumps(answer["return"])
