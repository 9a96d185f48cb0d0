"""What this machine lacks for a session: ``look`` gathers facts, ``checks_of`` judges them without I/O.

A failed check's text is the next step; a good one's says what the requirement is for. Java is not checked:
nodes bring theirs.
"""

import errno
import os
import re
import resource as limits
import shutil
import site
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import psutil

from esrally_ebs.checks.idle import check_processors
from esrally_ebs.errors import EbsError
from esrally_ebs.machine import processes as system
from esrally_ebs.machine import resources
from esrally_ebs.machine.caller import caller
from esrally_ebs.machine.tracefs import missing_for_tracing, tracefs
from esrally_ebs.model import LOCAL_IMAGE, MIN_MAPS, OFFICIAL_IMAGE, OFFICIAL_REPOSITORY, Check, Severity
from esrally_ebs.units import GIB, format_bytes

_COMPOSE_MINIMUM = (2, 0)
_FIO_MINIMUM = (3, 0)  # completion latency in nanoseconds, as the parser expects
_FILES_MINIMUM = 4_096  # Rally's actors and clients and the telemetry use some hundreds

_STORE = Path("/dev/shm")  # tmpfs: an emulated volume must not wait for this machine's disk
_ANSWER_S = 10.0
_ACTORS_PORT = 1900
_HOOK = "esrally_ebs.pth"  # restricts where Rally's actors listen: see rally.local_actors
_PLACES = (sysconfig.get_path("purelib"), site.getusersitepackages())


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine's facts; None for what is missing or did not answer."""

    root: bool
    engine: str | None  # server version
    engine_problem: str = ""  # the client's last lines if the engine did not answer
    compose: str | None
    image: str | None  # first of ``images`` that the engine has
    images: Sequence[str] = ()  # images to look for, best first
    fio: str | None
    mkfs_xfs: str | None
    losetup: str | None
    fuse: bool
    loop_control: bool
    filesystems: Sequence[str] = ()  # supported by the kernel, including loadable modules
    store_free_bytes: int  # for emulated volumes' data; and total memory
    home: Path
    home_free_bytes: int
    open_files: int  # hard limit
    memory_maps: int  # vm.max_map_count
    races: Sequence[int] = ()  # pids of other Rally processes
    hook: bool = True  # whether esrally_ebs.pth is where Python reads it
    tracing_problem: str = ""  # why disk requests cannot be traced, and what to do
    listening: Sequence[str] = ()  # addresses, visible to other machines, where Rally's actors listen
    sockets_wanted: bool = False


def checks_of(machine: Machine) -> list[Check]:
    """A check for each requirement, in the order to mend them."""
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
        _room("memory for volumes", _STORE, machine.store_free_bytes, _STORE_ROOM),
        _room("disk for sessions", machine.home, machine.home_free_bytes, _HOME_ROOM),
        _open_files(machine),
        _memory_maps(machine),
        _races(machine),
        _actors(machine),
        _tracing(machine),
    ]


# For two arms, each with the index and fio's files: 16 jobs of 128 MiB are 2 GiB.
_STORE_ROOM = (
    6 * GIB,
    "else emulated volumes wait for the disk; mount -o remount,size=8G /dev/shm, or end what takes memory",
)
# For the corpus, one built index and the sessions.
_HOME_ROOM = (5 * GIB, "make room, or set ESRALLY_EBS_HOME to a larger disk")


def version_of(text: str | None) -> tuple[int, ...]:
    """The first dotted number in a text, ``"fio-3.33"`` as (3, 33); empty without one."""
    match = re.search(r"\d+(?:\.\d+)+", text or "")
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _judged(name: str, ok: bool, value: str, use: str, mend: str) -> Check:
    return Check(name=name, ok=ok, value=value, text=use if ok else mend)


def _root(machine: Machine) -> Check:
    use, mend = "attaches volumes and evicts pages", "run it as root (sudo), for mounts and eviction"
    return _judged("root", machine.root, "yes" if machine.root else "no", use, mend)


def _engine(machine: Machine) -> Check:
    ok, value = machine.engine is not None, machine.engine or machine.engine_problem or "no answer"
    mend = "start it (make setup, systemctl start docker, or dockerd) or install docker.io"
    return _judged("docker engine", ok, value, "runs the nodes", mend)


def _compose(machine: Machine) -> Check:
    # Self-built ones report "dev"; version 1 is another program and never gets here.
    ok = machine.compose is not None and (version_of(machine.compose) or _COMPOSE_MINIMUM) >= _COMPOSE_MINIMUM
    mend = "make setup, or install docker-compose-plugin (version 2)"
    return _judged("docker compose", ok, machine.compose or "not found", "starts the nodes", mend)


def _image(machine: Machine) -> Check:
    ok, value = machine.image is not None, machine.image or f"none of {', '.join(machine.images)}"
    mend = "make setup: it pulls the official image or builds one (make image); ES_IMAGE names another"
    return _judged("elasticsearch image", ok, value, "what the nodes run", mend)


def _tool(name: str, version: str | None, *, package: str, use: str, minimum: tuple[int, ...] = ()) -> Check:
    ok = version is not None and version_of(version) >= minimum
    wanted = f" {'.'.join(map(str, minimum))} or newer" if minimum else ""
    mend = f"apt-get install {package}{wanted} (for {use})"
    return _judged(name, ok, version or "not found", f"for {use}", mend)


def _present(name: str, there: bool, mend: str) -> Check:
    use = "for emulated volumes"
    return _judged(name, there, "there" if there else "missing", use, f"{mend} ({use})")


def _room(name: str, path: Path, free: int, room: tuple[int, str]) -> Check:
    needed, mend = room
    text, value = f"needs {format_bytes(needed)}", f"{format_bytes(free)} free in {path}"
    return _judged(name, free >= needed, value, text, f"{text}: {mend}")


def _open_files(machine: Machine) -> Check:
    ok, text = machine.open_files >= _FILES_MINIMUM, f"needs {_FILES_MINIMUM}"
    mend = f"{text}: ulimit -n {_FILES_MINIMUM} as root"
    return _judged("open files", ok, str(machine.open_files), text, mend)


def _memory_maps(machine: Machine) -> Check:
    enough = machine.memory_maps >= MIN_MAPS
    # The local image runs as a single node, so it does not insist.
    insists = machine.image is None or machine.image.startswith(OFFICIAL_REPOSITORY)
    mend = f"sysctl -w vm.max_map_count={MIN_MAPS}"
    use = f"needs {MIN_MAPS}" if enough else f"enough for the local image; the official one wants {mend}"
    return _judged("vm.max_map_count", enough or not insists, str(machine.memory_maps), use, mend)


def _races(machine: Machine) -> Check:
    pids = ", ".join(map(str, machine.races))
    mend = "Rally refuses to start beside another: wait for it, or end it"
    return _judged("no other race", not pids, f"pid {pids}" if pids else "none", "Rally may start", mend)


def _actors(machine: Machine) -> Check:
    """Rally's actors run whatever they are sent, and in our races they are root."""
    name = "rally's actors"
    if machine.listening:
        mend = "end that Rally or esrallyd, or see ESRALLY_EBS_ACTORS in docs/reference.md"
        return _judged(name, False, f"listening on {', '.join(machine.listening)}", "", mend)
    if machine.sockets_wanted and machine.hook:
        use = "whoever reaches port 1900 runs code as Rally's user: keep it within a network of its own"
        return _judged(name, True, "sockets, as ESRALLY_EBS_ACTORS asks", use, "")
    mend = "install esrally_ebs again (make setup), for esrally_ebs.pth"
    return _judged(name, machine.hook, "queues" if machine.hook else "would listen", "listen nowhere", mend)


def _tracing(machine: Machine) -> Check:
    """Needed only by ``esrally-ebs trace``."""
    problem, use = machine.tracing_problem, "for esrally-ebs trace"
    value = "missing" if problem else "there"
    check = _judged("tracepoints", not problem, value, use, f"{problem} ({use})")
    return replace(check, severity=Severity.WARN)


def is_race(command: str, argv: Sequence[str]) -> bool:
    """Whether Rally would take this process for another race, by its own rule (``esrally.utils.process``)."""
    if command in {"esrally", "rally"}:
        return True
    words = any("esrally" in word for word in argv) and not any("esrallyd" in word for word in argv)
    return command.lower().startswith("python") and words


def look() -> Machine:
    """This machine's facts; takes a few seconds."""
    engine, problem = _ask("docker", "version", "--format", "{{.Server.Version}}")
    chosen = os.environ.get("ES_IMAGE")
    images = (chosen,) if chosen else (OFFICIAL_IMAGE, LOCAL_IMAGE)
    return Machine(
        root=system.is_root(),
        engine=engine,
        engine_problem=problem,
        compose=_ask("docker", "compose", "version", "--short")[0],
        image=next((image for image in images if engine and _has_image(image)), None),
        images=images,
        fio=_ask("fio", "--version")[0],
        mkfs_xfs=_ask("mkfs.xfs", "-V")[0],
        losetup=_ask("losetup", "--version")[0],
        fuse=_opens("/dev/fuse"),
        loop_control=_opens("/dev/loop-control"),
        filesystems=_filesystems(),
        store_free_bytes=min(_free(_STORE), psutil.virtual_memory().available),
        home=_home(),
        home_free_bytes=_free(_home()),
        open_files=_hard_limit(limits.RLIMIT_NOFILE),
        memory_maps=int(Path("/proc/sys/vm/max_map_count").read_text()),
        races=running_races(),
        hook=any(_is_of_this_version(Path(place) / _HOOK) for place in _PLACES),
        tracing_problem=missing_for_tracing(tracefs()),
        listening=_listening(),
        sockets_wanted=resources.sockets_wanted(),
    )


def _listening() -> tuple[str, ...]:
    """Addresses visible to others where Rally's actors listen on their port against the user's wish."""
    wanted = resources.actors_address()
    if resources.sockets_wanted() and wanted is None:
        return ()
    listeners = [each.laddr for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    theirs = {at.ip for at in listeners if at.port == _ACTORS_PORT and not ip_address(at.ip).is_loopback}
    return tuple(f"{ip}:{_ACTORS_PORT}" for ip in sorted(theirs - {wanted}))


def _is_of_this_version(hook: Path) -> bool:
    """Whether it covers Rally's daemon, too: updating the code does not renew an older file."""
    return hook.exists() and '"esrallyd"' in hook.read_text()


def _ask(*argv: str) -> tuple[str | None, str]:
    """A tool's output; else None and the reason in one line."""
    try:
        return system.run(argv, timeout_s=_ANSWER_S).strip() or None, ""
    except EbsError as error:
        return None, str(error)


def _opens(device: str) -> bool:
    """Whether root can open it: a container may forbid that although the file exists."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EACCES and not system.is_root()  # its mode excludes other users
    return True


def _has_image(image: str) -> bool:
    return _ask("docker", "image", "inspect", "--format", "{{.Id}}", image)[0] is not None


def _filesystems() -> tuple[str, ...]:
    known = [line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()]
    modules = Path("/lib/modules") / os.uname().release
    loadable = [path.name.split(".")[0] for path in modules.glob("kernel/fs/*/*.ko*")]
    return tuple(known + loadable)


def _home() -> Path:
    """Where sessions are stored: by sudo, in the calling user's home."""
    user = caller()
    return resources.home() if user is None else resources.home(user.home)


def _free(path: Path) -> int:
    """Bytes free for this user where ``path`` is or would be; 0 if there is no such place."""
    there = next((parent for parent in (path, *path.parents) if parent.is_dir()), None)
    return shutil.disk_usage(there).free if there else 0


def _hard_limit(which: int) -> int:
    hard = limits.getrlimit(which)[1]
    return 2**31 - 1 if hard == limits.RLIM_INFINITY else hard


def running_races() -> tuple[int, ...]:
    """Other races as Rally sees them, except processes that started this: ``make``, a shell, Rally itself."""
    this = psutil.Process()
    own = {this.pid, *(parent.pid for parent in this.parents())}
    return tuple(
        process.pid
        for process in psutil.process_iter(["name", "cmdline", "status"])
        if process.pid not in own
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and is_race(process.info["name"] or "", process.info["cmdline"] or ())
    )


def check_machine(signatures: Callable[[], list[Check]] | None = None) -> list[Check]:
    """All checks of this machine, in the order to mend them.

    ``signatures`` gives the checks of the installed Rally: a parameter, since only ``rally`` may import
    Rally.
    """
    return [*checks_of(look()), check_processors(), *(signatures() if signatures else [])]
