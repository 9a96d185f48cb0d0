"""Where the kernel keeps a container's memory accounting, and which of its processes is Elasticsearch.

Pure parsers of /proc text, and one thin reader. Control groups of version 1 and 2.
"""

from pathlib import Path, PurePosixPath

from esrally_ebs.errors import SetupError
from esrally_ebs.formats.mountinfo import parse_mountinfo


def memory_cgroup(cgroup: str, mountinfo: str) -> Path | None:
    """The directory of the memory controller of a process, or None when it is not mounted here.

    ``cgroup`` is the text of /proc/<pid>/cgroup, ``mountinfo`` of /proc/self/mountinfo.
    """
    paths = _controller_paths(cgroup)
    mounts = _cgroup_mounts(mountinfo)
    for controller in (
        "memory",
        "",
    ):  # version 1 first: where it owns memory, version 2 has no memory controller
        if controller in paths and controller in mounts:
            root, mount = mounts[controller]
            return mount / _below(paths[controller], root)
    return None


def _controller_paths(cgroup: str) -> dict[str, PurePosixPath]:
    """Controller ("" = version 2) -> path of the group."""
    paths = {}
    for line in cgroup.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = PurePosixPath(path)
    return paths


def _cgroup_mounts(mountinfo: str) -> dict[str, tuple[PurePosixPath, Path]]:
    """Controller -> (group that is mounted, mount point)."""
    mounts = {}
    for mount in parse_mountinfo(mountinfo, "/proc/self/mountinfo"):
        place = (PurePosixPath(mount.root), mount.mount_point)
        if mount.filesystem == "cgroup2":
            mounts[""] = place
        elif mount.filesystem == "cgroup" and "memory" in mount.super_options.split(","):
            mounts["memory"] = place
    return mounts


def _below(path: PurePosixPath, root: PurePosixPath) -> PurePosixPath:
    return path.relative_to(root) if path.is_relative_to(root) else path.relative_to("/")


def resident_kib(status: str) -> int:
    """VmRSS of the text of /proc/<pid>/status; 0 for a process without memory of its own."""
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def memory_cgroup_of(pid: int) -> Path | None:
    """The memory controller's directory of a live process; None when it cannot be seen."""
    found = memory_cgroup(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    return found if found is not None and found.is_dir() else None


def largest_process(first_pid: int) -> int:
    """The pid of the largest process in the memory cgroup of ``first_pid``.

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
        try:
            sizes[int(word)] = resident_kib(Path(f"/proc/{word}/status").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue  # a health check that has just ended
    return max(sizes, key=lambda pid: sizes[pid], default=first_pid)
