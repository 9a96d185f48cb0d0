"""The mounted backend: uses a file system that the user mounted (EBS, EFS or any other) as it is.

A session writes only to one directory of its own there, which detaching removes; it reads, changes or removes
nothing else on the mount.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from esrally_ebs.aws.identity import identify
from esrally_ebs.errors import PlanError, SetupError, near
from esrally_ebs.machine.caller import KEEPER
from esrally_ebs.machine.disks import stack_of
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import describe, mount_at, mounts
from esrally_ebs.machine.private import require_unchangeable
from esrally_ebs.machine.processes import is_root
from esrally_ebs.machine.procfs import Mount
from esrally_ebs.model import Backend, Kind, Volume, VolumeSpec
from esrally_ebs.units import MIB, format_bytes
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record

MIN_FREE_BYTES = 256 * MIB
OWN_PREFIX = "esrally-ebs-"  # prefix of our directory on a mount; the session's name follows
_FULL = (errno.ENOSPC, errno.EDQUOT)  # the check for room reports these better


def attach(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Volume:
    """The mount ``spec.mount``, after ``check_mount``; ignores ``backing``."""
    del backing
    if spec.mount is None:
        raise PlanError(f"volume '{spec.name}': mount is missing; give the path of the mount point")
    mount = check_mount(spec.mount, name=spec.name)
    own = mount.mount_point / own_name(directory)
    if os.path.lexists(own):  # also true for a dangling link
        raise SetupError(f"volume '{spec.name}': {own} exists already; is it of another session? remove it")
    write_record(directory, Record(backend="mounted", name=spec.name, type=spec.type, created=(own,)))
    try:
        own.mkdir()
    except OSError as error:
        drop_record(directory)  # what is there now belongs to somebody else
        raise SetupError(f"volume '{spec.name}': {own}: {error.strerror}; see who writes there") from error
    identity = identify(own, Roots())
    if identity.kind is not Kind.EFS:  # EFS reports 8 EiB; the plan says how much is stored
        # as mounted, whatever the plan says; size per volume of a stripe
        spec = replace(spec, size_bytes=shutil.disk_usage(own).total // spec.stripes)
    return describe(spec, own, identity.kind, identity=identity.name)


def detach(directory: Path) -> None:
    """Remove our directory on the mount and forget it; the mount stays. Raises SetupError if it remains."""
    record = read_record(directory)
    for path in record.created if record is not None else ():
        if path.name == own_name(directory):
            _remove(path)
            if record and record.backend == Backend.MOUNTED and mount_at(path.parent) is None:
                raise SetupError(
                    f"{path.parent}: is not mounted any more, and {path.name} lies on its volume; mount it"
                    f" there and run 'esrally-ebs clean', or remove {directory} if the volume is gone"
                )
    drop_record(directory)


def _remove(path: Path) -> None:
    """Remove our directory. Raises SetupError if it remains."""
    points = [each.mount_point for each in mounts() if each.mount_point.is_relative_to(path)]
    if points:  # mounts inside it are not ours
        raise SetupError(
            f"{points[-1]}: is mounted in a directory of ours; run 'umount {points[-1]}' and"
            " 'esrally-ebs clean'"
        )
    shutil.rmtree(path, ignore_errors=True)
    try:
        path.lstat()
    except FileNotFoundError:
        return
    except OSError:  # of a broken file system, which does not say what is there
        pass
    # after errors, the kernel makes a file system read-only
    raise SetupError(
        f"{path}: cannot be removed; see that its mount can be written to, and run 'esrally-ebs clean'"
    )


def own_name(directory: Path) -> str:
    """Name of our directory on a mount, for the arm with this run directory."""
    return f"{OWN_PREFIX}{directory.parent.name}"


def check_mount(path: Path, *, name: str, min_free_bytes: int = MIN_FREE_BYTES) -> Mount:
    """The mount at ``path``, if usable.

    Raises PlanError if ``path`` is no mount point; SetupError if it is read-only, not writable for this user,
    has less than ``min_free_bytes`` free, or if users other than root could exchange our directory.
    """
    mount = mount_at(Path(os.path.realpath(path)))  # resolves links, even circular ones
    if mount is None:
        what = "is not a mount point" if path.is_dir() else "is a file, not a mount point"
        problem = f"{path} {what if path.exists() else 'does not exist'}; mount the volume there first"
        points = [str(mount.mount_point) for mount in mounts() if mount.mount_point != Path("/")]
        raise PlanError(f"volume '{name}': {problem}{near(str(path), points)}", key="mount")
    asks_root = KEEPER in os.environ  # the keeper checks again as root
    if mount.read_only or not (asks_root or _takes_files(path, name)):
        raise SetupError(f"volume '{name}': {path} is read-only; mount it for writing")
    require_unchangeable(mount.mount_point, name=f"volume '{name}': ")
    free = shutil.disk_usage(path).free
    if free < min_free_bytes:
        raise SetupError(
            f"volume '{name}': {path} is full: {format_bytes(free)} free,"
            f" {format_bytes(min_free_bytes)} needed; make room on it"
        )
    return mount


def check_distinct(specs: Sequence[VolumeSpec]) -> None:
    """Raise PlanError if two specs with a mount share a disk: a volume would be compared with itself."""
    owner: dict[str, VolumeSpec] = {}
    for spec in specs:
        mount = None if spec.mount is None else mount_at(Path(os.path.realpath(spec.mount)))
        if mount is None:
            continue
        disks = stack_of(mount, Roots()).names
        for one in disks or (mount.device_number,):
            other = owner.setdefault(one, spec)
            if other is not spec:
                raise PlanError(
                    f"volumes '{other.name}' and '{spec.name}': {other.mount} and {spec.mount} are on one"
                    f" device ({one if disks else mount.source}); give each arm a device of its own",
                    key="mount",
                )


def _takes_files(path: Path, name: str) -> bool:
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except PermissionError as error:
        who, mend = "this user", "run as root, or make it this user's (chown)"
        if is_root():
            who, mend = "root", "let root in (NFS: no_root_squash; EFS: ClientRootAccess), or see lsattr"
        raise SetupError(f"volume '{name}': {who} may not write to {path}; {mend}") from error
    except OSError as error:
        return error.errno in _FULL
