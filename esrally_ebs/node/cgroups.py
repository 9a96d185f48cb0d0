"""Finds where the kernel counts a container's memory and processor time, and which process is Elasticsearch.

For control groups of version 1 and 2.
"""

from contextlib import suppress
from pathlib import Path, PurePosixPath

import psutil

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.procfs import parse_mountinfo


def directory_of(cgroup: str, mountinfo: str, controller: str) -> Path | None:
    """A controller's directory for a process; None if it is not mounted here.

    ``cgroup`` is the text of /proc/<pid>/cgroup, ``mountinfo`` that of /proc/self/mountinfo.
    """
    paths: dict[str, PurePosixPath] = {}  # by controller ("" = version 2)
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), PurePosixPath(path))
    mounts: dict[str, tuple[PurePosixPath, Path]] = {}  # likewise: the mounted group and the mount point
    for mount in parse_mountinfo(mountinfo, "/proc/self/mountinfo"):
        place = (PurePosixPath(mount.root), mount.mount_point)
        if mount.filesystem == "cgroup2":
            mounts[""] = place
        elif mount.filesystem == "cgroup" and controller in mount.super_options.split(","):
            mounts[controller] = place
    for name in (controller, ""):  # version 1 first: version 2 lacks the controllers that it owns
        if name in paths and name in mounts:
            group, (root, point) = paths[name], mounts[name]
            return point / group.relative_to(root if group.is_relative_to(root) else "/")
    return None


def memory_cgroup_of(pid: int) -> Path | None:
    """The memory controller's directory of a live process; None if it cannot be seen."""
    group = _group_of(pid, "memory")
    return group if group is not None and group.is_dir() else None


def processor_time_of(pid: int) -> Path | None:
    """File with the processor time of a live process's control group; None if there is none."""
    group = _group_of(pid, "cpuacct")
    files = () if group is None else (group / "cpuacct.usage", group / "cpu.stat")
    return next((file for file in files if file.is_file()), None)


def _group_of(pid: int, controller: str) -> Path | None:
    text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return directory_of(Path(f"/proc/{pid}/cgroup").read_text(), text, controller)


def largest_process(first_pid: int) -> int:
    """Pid of the largest process in the memory cgroup of ``first_pid``.

    The container's first process may be an init or a launcher JVM; Elasticsearch is the one with the heap.
    """
    try:
        group = memory_cgroup_of(first_pid)
    except FileNotFoundError as error:
        raise SetupError(
            f"process {first_pid} of the node's container is not on this machine; use a local engine"
        ) from error
    if group is None:
        return first_pid
    sizes = {}
    for word in (group / "cgroup.procs").read_text().split():
        with suppress(psutil.NoSuchProcess):  # a health check that has just ended
            sizes[int(word)] = psutil.Process(int(word)).memory_info().rss
    return max(sizes, key=lambda pid: sizes[pid], default=first_pid)
