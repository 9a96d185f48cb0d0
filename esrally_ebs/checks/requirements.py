"""Judges a machine: a Machine of facts in, one Check per requirement out; no I/O, so it is easy to test.

The text of a check that failed is the next step; that of a good one says what it is good for.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esrally_ebs.model import Check, Severity
from esrally_ebs.units import GIB, format_bytes

OFFICIAL_IMAGE = "docker.elastic.co/elasticsearch/elasticsearch"
_COMPOSE_MINIMUM = (2, 0)
_FIO_MINIMUM = (3, 0)  # completion latency in nanoseconds, which the parser expects
_MAPS_MINIMUM = 262_144  # Elasticsearch's own bootstrap check
_FILES_MINIMUM = 4_096  # Rally's actors, its clients and the telemetry hold a few hundred


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was seen; None means that it is not there or did not answer."""

    root: bool
    engine: str | None  # server version
    engine_problem: str = ""  # last lines of the client when the engine did not answer
    compose: str | None
    image: str | None  # the first of the known images that the engine has
    images: Sequence[str] = ()  # the images that were looked for, best first
    fio: str | None
    mkfs_xfs: str | None
    losetup: str | None
    fuse: bool
    loop_control: bool
    filesystems: Sequence[str] = field(default=())  # that the kernel can mount, loadable modules included
    store: Path = Path("/dev/shm")  # where emulated volumes keep their blocks
    store_free_bytes: int  # and in memory at all
    home: Path
    home_free_bytes: int
    open_files: int  # hard limit
    memory_maps: int  # vm.max_map_count
    races: Sequence[int] = ()  # pids of other Rally processes
    hook: bool = True  # whether esrally_ebs.pth is where Python reads it
    tracing_problem: str = ""  # why requests of disks cannot be traced, and what to do
    listening: Sequence[str] = ()  # addresses beyond this machine at which Rally's actors do
    sockets_wanted: bool = False


def checks_of(machine: Machine) -> list[Check]:
    """One check per requirement, in the order in which they should be mended."""
    return [
        _root(machine),
        _engine(machine),
        _compose(machine),
        _image(machine),
        _tool("fio", machine.fio, package="fio", use="baselines", minimum=_FIO_MINIMUM),
        _tool("mkfs.xfs", machine.mkfs_xfs, package="xfsprogs", use="file systems of emulated volumes"),
        _tool("losetup", machine.losetup, package="mount", use="block devices of emulated volumes"),
        _present("xfs", "xfs" in machine.filesystems, "modprobe xfs, or a kernel with XFS"),
        _present("fuse", machine.fuse, "modprobe fuse; in a container pass --device /dev/fuse"),
        _present("loop devices", machine.loop_control, "modprobe loop; in a container run it privileged"),
        _room("memory for volumes", machine.store, machine.store_free_bytes, _STORE_ROOM),
        _room("disk for sessions", machine.home, machine.home_free_bytes, _HOME_ROOM),
        _open_files(machine),
        _memory_maps(machine),
        _races(machine),
        _actors(machine),
        _tracing(machine),
    ]


# Two arms, each with the index and fio's files: 16 jobs of 128 MiB are 2 GiB.
_STORE_ROOM = (
    6 * GIB,
    "else emulated volumes wait for the disk; mount -o remount,size=8G /dev/shm, or end what takes memory",
)
# The corpus, one built index and the sessions.
_HOME_ROOM = (5 * GIB, "make room, or set ESRALLY_EBS_HOME to a larger disk")


def version_of(text: str | None) -> tuple[int, ...]:
    """The first dotted number in a version text, ``"fio-3.33"`` to (3, 33); empty when there is none."""
    match = re.search(r"\d+(?:\.\d+)+", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _root(machine: Machine) -> Check:
    return Check(
        name="root",
        ok=machine.root,
        value="yes" if machine.root else "no",
        text="attaches volumes and evicts pages"
        if machine.root
        else "run it as root (sudo), for mounts and eviction",
    )


def _engine(machine: Machine) -> Check:
    if machine.engine is not None:
        return Check(name="docker engine", ok=True, value=machine.engine, text="runs the nodes")
    return Check(
        name="docker engine",
        ok=False,
        value=machine.engine_problem or "no answer",
        text="start it (make setup, systemctl start docker, or dockerd) or install docker.io",
    )


def _compose(machine: Machine) -> Check:
    # A build of one's own calls itself "dev"; version 1 is another program and never answers here.
    ok = machine.compose is not None and (version_of(machine.compose) or _COMPOSE_MINIMUM) >= _COMPOSE_MINIMUM
    return Check(
        name="docker compose",
        ok=ok,
        value=machine.compose or "not found",
        text="starts the nodes" if ok else "make setup, or install docker-compose-plugin (version 2)",
    )


def _image(machine: Machine) -> Check:
    if machine.image is not None:
        return Check(name="elasticsearch image", ok=True, value=machine.image, text="what the nodes run")
    return Check(
        name="elasticsearch image",
        ok=False,
        value=f"none of {', '.join(machine.images)}",
        text="make setup: it pulls the official image or builds one (make image); ES_IMAGE names another",
    )


def _tool(name: str, version: str | None, *, package: str, use: str, minimum: tuple[int, ...] = ()) -> Check:
    ok = version is not None and version_of(version) >= minimum
    if ok:
        return Check(name=name, ok=True, value=version or "", text=f"for {use}")
    wanted = f" {'.'.join(map(str, minimum))} or newer" if minimum else ""
    return Check(
        name=name,
        ok=False,
        value=version or "not found",
        text=f"apt-get install {package}{wanted} (for {use})",
    )


def _present(name: str, there: bool, mend: str) -> Check:
    return Check(
        name=name,
        ok=there,
        value="there" if there else "missing",
        text="for emulated volumes" if there else f"{mend} (for emulated volumes)",
    )


def _room(name: str, path: Path, free: int, room: tuple[int, str]) -> Check:
    needed, mend = room
    text = f"needs {format_bytes(needed)}"
    value = f"{format_bytes(free)} free in {path}"
    return Check(
        name=name, ok=free >= needed, value=value, text=text if free >= needed else f"{text}: {mend}"
    )


def _open_files(machine: Machine) -> Check:
    ok = machine.open_files >= _FILES_MINIMUM
    text = f"needs {_FILES_MINIMUM}" if ok else f"needs {_FILES_MINIMUM}: ulimit -n {_FILES_MINIMUM} as root"
    return Check(name="open files", ok=ok, value=str(machine.open_files), text=text)


def _memory_maps(machine: Machine) -> Check:
    value = str(machine.memory_maps)
    if machine.memory_maps >= _MAPS_MINIMUM:
        return Check(name="vm.max_map_count", ok=True, value=value, text=f"needs {_MAPS_MINIMUM}")
    # Started as a single node on one machine, the local image does not insist.
    insists = machine.image is None or machine.image.startswith(OFFICIAL_IMAGE)
    text = f"sysctl -w vm.max_map_count={_MAPS_MINIMUM}"
    if not insists:
        text = f"enough for the local image; the official one wants {text}"
    return Check(name="vm.max_map_count", ok=not insists, value=value, text=text)


def _races(machine: Machine) -> Check:
    pids = ", ".join(map(str, machine.races))
    return Check(
        name="no other race",
        ok=not machine.races,
        value=f"pid {pids}" if pids else "none",
        text="Rally refuses to start beside another: wait for it, or end it" if pids else "Rally may start",
    )


def _actors(machine: Machine) -> Check:
    """Rally's actors run whatever is sent to them, and a race of ours is root's."""
    name = "rally's actors"
    if machine.sockets_wanted:
        text = "whoever reaches port 1900 runs code as Rally's user: keep it within a network of its own"
        return Check(name=name, ok=True, value="sockets, as ESRALLY_EBS_ACTORS asks", text=text)
    if machine.listening:
        text = "end that Rally or esrallyd, or see ESRALLY_EBS_ACTORS in the README"
        return Check(name=name, ok=False, value=f"listening on {', '.join(machine.listening)}", text=text)
    text = "listen nowhere" if machine.hook else "install esrally_ebs again (make setup), for esrally_ebs.pth"
    return Check(name=name, ok=machine.hook, value="queues" if machine.hook else "would listen", text=text)


def _tracing(machine: Machine) -> Check:
    """Needed by ``esrally-ebs trace`` alone."""
    problem = machine.tracing_problem
    return Check(
        name="tracepoints",
        ok=not problem,
        value="missing" if problem else "there",
        text=f"{problem} (for esrally-ebs trace)" if problem else "for esrally-ebs trace",
        severity=Severity.WARN,
    )


def is_race(command: str, argv: Sequence[str]) -> bool:
    """Whether Rally would take this process for another race: its own rule (``esrally.utils.process``)."""
    if command in {"esrally", "rally"}:
        return True
    words = any("esrally" in word for word in argv) and not any("esrallyd" in word for word in argv)
    return command.lower().startswith("python") and words
