"""Looks at this machine: nothing in, a Machine of facts out. Judges nothing; what is missing is no error."""

import os
import resource as limits
import shutil
import site
import sysconfig
from ipaddress import ip_address
from pathlib import Path

import psutil

from esrally_ebs.checks.requirements import OFFICIAL_IMAGE, Machine, is_race
from esrally_ebs.errors import EbsError
from esrally_ebs.machine import processes as system
from esrally_ebs.machine import resources
from esrally_ebs.machine.tracefs import missing_for_tracing, tracefs

_VERSION = "8.8.2"
_STORE = Path("/dev/shm")  # tmpfs: an emulated volume must not wait for a disk of this machine
_ANSWER_S = 10.0
_ACTORS_PORT = 1900
_HOOK = "esrally_ebs.pth"  # keeps Rally's actors from listening: see rally.local_actors
_PLACES = (sysconfig.get_path("purelib"), site.getusersitepackages())


def look() -> Machine:
    """The facts of this machine, within a few seconds."""
    engine, problem = _ask("docker", "version", "--format", "{{.Server.Version}}")
    images = _images()
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
        store=_STORE,
        store_free_bytes=min(_free(_STORE), psutil.virtual_memory().available),
        home=resources.home(),
        home_free_bytes=_free(resources.home()),
        open_files=_hard_limit(limits.RLIMIT_NOFILE),
        memory_maps=int(Path("/proc/sys/vm/max_map_count").read_text()),
        races=_races(),
        hook=any(_is_of_this_version(Path(place) / _HOOK) for place in _PLACES),
        tracing_problem=missing_for_tracing(tracefs()),
        listening=_listening(),
        sockets_wanted=resources.sockets_wanted(),
    )


def _listening() -> tuple[str, ...]:
    """Addresses that others reach where Rally's actors listen on their port and were not asked to."""
    wanted = resources.actors_address()
    if resources.sockets_wanted() and wanted is None:
        return ()
    listeners = [each.laddr for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    theirs = {at.ip for at in listeners if at.port == _ACTORS_PORT and not ip_address(at.ip).is_loopback}
    return tuple(f"{ip}:{_ACTORS_PORT}" for ip in sorted(theirs - {wanted}))


def _is_of_this_version(hook: Path) -> bool:
    """Whether it minds Rally's daemon, too: an older one is not renewed with the code that it imports."""
    return hook.exists() and '"esrallyd"' in hook.read_text()


def _ask(*argv: str) -> tuple[str | None, str]:
    """What a tool says of itself, else None and why not in one line."""
    try:
        return system.run(argv, timeout_s=_ANSWER_S).strip() or None, ""
    except EbsError as error:
        return None, str(error)


def _opens(device: str) -> bool:
    """Whether it can be opened, which a container may forbid although the file is there."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _images() -> tuple[str, ...]:
    chosen = os.environ.get("ES_IMAGE")
    return (chosen,) if chosen else (f"{OFFICIAL_IMAGE}:{_VERSION}", f"esrally-ebs/elasticsearch:{_VERSION}")


def _has_image(image: str) -> bool:
    return _ask("docker", "image", "inspect", "--format", "{{.Id}}", image)[0] is not None


def _filesystems() -> tuple[str, ...]:
    known = [line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()]
    modules = Path("/lib/modules") / os.uname().release
    loadable = [path.name.split(".")[0] for path in modules.glob("kernel/fs/*/*.ko*")]
    return tuple(known + loadable)


def _free(path: Path) -> int:
    """Bytes free for this user where ``path`` is or would be; 0 when there is no such place."""
    there = next((parent for parent in (path, *path.parents) if parent.is_dir()), None)
    return shutil.disk_usage(there).free if there else 0


def _hard_limit(which: int) -> int:
    hard = limits.getrlimit(which)[1]
    return 2**31 - 1 if hard == limits.RLIM_INFINITY else hard


def _races() -> tuple[int, ...]:
    """Other races, as Rally sees them; ``make``, a shell or Rally itself that started this one is none."""
    this = psutil.Process()
    own = {this.pid, *(parent.pid for parent in this.parents())}
    return tuple(
        process.pid
        for process in psutil.process_iter(["name", "cmdline"])
        if process.pid not in own and is_race(process.info["name"] or "", process.info["cmdline"] or ())
    )
