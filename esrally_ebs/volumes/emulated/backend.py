"""The emulated backend: daemon, loop device and file system for one VolumeSpec; gives a mounted Volume.

Everything it acquires is in the volume's directory, or found from there: ``disk`` (the daemon's file),
``mnt`` (the file system), ``control``, ``daemon.json``. Volumes that the kernel stripes have a directory each
below it. ``detach`` undoes all of it from that path alone.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import psutil

from esrally_ebs.catalog.limits import Model
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import describe, mount_at, mounts
from esrally_ebs.machine.private import private_directory, require_unchangeable
from esrally_ebs.machine.processes import is_root, run, which
from esrally_ebs.machine.resources import run_dir
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.store.files import locked
from esrally_ebs.units import GIB, MIB, format_bytes
from esrally_ebs.volumes.emulated import control
from esrally_ebs.volumes.emulated.calibration import calibrate, calibrate_in
from esrally_ebs.volumes.emulated.daemon import process as daemon
from esrally_ebs.volumes.emulated.release import (
    MOUNT_NAME,
    PAGE_SUFFIX,
    detach,
    image_of,
    image_roots,
    note_loops,
)
from esrally_ebs.volumes.record import Record, write_record

_FILE_SYSTEMS = Path("/proc/filesystems")  # file systems that the kernel supports
# Arguments: the number of mounts to remove, these mounts, then the command.
_WITHOUT_MOUNTS = 'n=$1; shift; while [ "$n" -gt 0 ]; do umount --lazy "$1"; shift; n=$((n - 1)); done; "$@"'

_ROOM_BYTES = 4 * GIB  # with this much free memory, images are in tmpfs
_LEAST_BYTES = 16 * MIB  # for an image without data: XFS of 64 TiB takes 8 MiB, the calibration's file 4
# Measured maximum of one daemon, for I/Os of 16 and of 256 KiB: see benchmarks/emulator.py.
_CARRIED = (("operations", 50_000.0, 1, "IOPS"), ("bytes", 2000.0 * MIB, MIB, "MiB/s"))
_QUICK_S = 30.0
_FORMAT_S = 120.0
_SEED = 20210501
# No "esrally" in a Python process's arguments: Rally would take it for a running race.
_LAUNCH = (
    "from os import environ as e; from importlib import import_module as m;"
    f" m(e['{daemon.START_VARIABLE}']).main()"
)


def _require_btrfs(spec: VolumeSpec) -> None:
    """Raise SetupError if btrfs's tool or kernel support is missing; plans allow no other way to stripe."""
    if "btrfs" not in _FILE_SYSTEMS.read_text():
        raise SetupError(
            f"volume '{spec.name}': this kernel has no btrfs ('btrfs' is not in {_FILE_SYSTEMS});"
            " use striped_by = 'device'"
        )
    if which("mkfs.btrfs") is None:
        raise SetupError(f"volume '{spec.name}': mkfs.btrfs is missing; run 'apt-get install btrfs-progs'")


def mkfs_btrfs(devices: Sequence[Path], *options: str) -> None:
    """Make a btrfs over ``devices``. Raises CommandError if that fails.

    mkfs.btrfs asks every mounted loop device for its file, and gives up if one cannot answer: a single volume
    with a killed daemon would block all others. It runs in a mount namespace without such mounts; their
    owners keep them.
    """
    dead = _mounts_that_lost_their_file()
    formatting: list[str | Path] = ["mkfs.btrfs", "-q", "-f", *options, *devices]
    if dead:
        private = ["unshare", "--mount", "--propagation=private", "sh", "-c", _WITHOUT_MOUNTS, "sh"]
        formatting = [*private, str(len(dead)), *dead, *formatting]
    run(formatting, timeout_s=_FORMAT_S)


def _mounts_that_lost_their_file() -> list[Path]:
    """Mounts of loop devices whose backing file cannot be read, such as behind a killed FUSE server."""
    lost = []
    for mount in mounts():
        loop = Path("/sys/dev/block") / mount.device_number / "loop" / "backing_file"
        try:
            Path(loop.read_text().strip()).stat()
        except FileNotFoundError:
            continue  # no loop device, or a deleted file: neither blocks mkfs.btrfs
        except OSError:
            lost.append(mount.mount_point)
    return lost


def caveats(spec: VolumeSpec) -> tuple[str, ...]:
    """A warning for each limit that the emulator may not reach on this machine."""
    model = model_for(spec)
    lines = []
    for counts, carried, unit, name in _CARRIED:
        own = (x.rate for x in model.limits if x.counts == counts and not x.of_credits)
        of_instance = (x.rate for x in model.instance_limits if x.counts == counts and not x.of_credits)
        rate = min(min(own, default=0.0) * model.stripes, *of_instance, inf)
        if rate > carried:
            lines.append(
                f"arm {spec.name}: allowed {rate / unit:,.0f} {name}, of which the emulator carried"
                f" {carried / unit:,.0f} on two processors; the fio baselines show what it reaches here"
            )
    return tuple(lines)


def attach(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Volume:
    """Attach an emulated volume with full buckets; it stays until ``detach(directory)``.

    ``backing`` is the image file: an existing one has a file system already, is used as it is, and is kept.
    By default a new sparse one is made in memory, or below the home if memory is short. Raises PlanError if
    the type does not allow the spec, SetupError if the machine cannot; then nothing is left behind.
    """
    model = model_for(spec)  # before anything is made: refuses what the type does not allow
    _check_machine()
    directory = directory.resolve()
    if spec.stripes > 1 and spec.striped_by != "device":
        return _attach_striped(spec, directory, backing)
    device, fresh = _attach_device(spec, model, directory, directory.parent, backing)
    try:
        return _mount(spec, directory, device, fresh=fresh)
    except BaseException:
        detach(directory)
        raise


def _attach_device(
    spec: VolumeSpec, model: Model, directory: Path, session: Path, backing: Path | None
) -> tuple[Path, bool]:
    """Start the daemon and its loop device; returns the device, and whether it is empty."""
    image = backing or _default_image(directory)
    fresh = backing is None or not image.exists()
    created = (image,) if fresh else ()
    write_record(directory, Record(backend="emulated", name=spec.name, type=spec.type, created=created))
    try:
        if fresh:
            _make_image(image, spec.size_bytes * spec.stripes)
        _start_daemon(spec, model, directory, session, image)
        return _attach_loop(directory / daemon.DISK_NAME, model, spec.readahead_bytes), fresh
    except BaseException:
        detach(directory)
        raise


def _attach_striped(spec: VolumeSpec, directory: Path, backing: Path | None) -> Volume:
    """As many devices as stripes, with a kernel file system over all of them."""
    _require_btrfs(spec)
    if backing is not None:
        raise SetupError(
            f"volume '{spec.name}': an image cannot be striped by {spec.striped_by};"
            " use striped_by = 'device'"
        )
    write_record(directory, Record(backend="emulated", name=spec.name, type=spec.type))
    try:
        devices = []
        for number, (one, model) in enumerate(members_of(spec), 1):
            device, _ = _attach_device(one, model, directory / str(number), directory.parent, None)
            calibrate(directory / str(number) / control.SOCKET_NAME, device)
            devices.append(device)
        return _mount_striped(spec, directory, devices)
    except BaseException:
        detach(directory)
        raise


def members_of(spec: VolumeSpec) -> Iterator[tuple[VolumeSpec, Model]]:
    """The volumes that the kernel stripes, each with its share of the whole."""
    model = replace(model_for(spec), stripes=1, chunk_bytes=0)
    for number in range(1, spec.stripes + 1):
        name = f"{spec.name}-{number}"
        yield replace(spec, name=name, stripes=1), replace(model, name=name)


def _describe(spec: VolumeSpec, point: Path, directory: Path, place: Path) -> Volume:
    volume = describe(spec, point, Kind.EMULATED, identity=f"emulated:{directory}", control=place)
    if mount_at(point) is None:  # the disk below would be described instead
        raise SetupError(f"arm {spec.name}: its volume was unmounted from {point} at once; start anew")
    return volume


def _mount_striped(spec: VolumeSpec, directory: Path, devices: Sequence[Path]) -> Volume:
    point = directory / MOUNT_NAME
    point.mkdir()
    control.change(directory, unlimited=True)
    mkfs_btrfs(devices, "-K", "-d", "raid0", "-m", "raid0")
    # No checksums and no copy-on-write: files stay where they were laid out, as on XFS.
    options = ",".join(
        ["noatime,nodatasum,nodatacow,nosuid,nodev,noexec", *(f"device={device}" for device in devices)]
    )
    run(["mount", "-t", "btrfs", "-o", options, devices[0], point], timeout_s=_QUICK_S)
    control.change(directory, unlimited=False, refill=True, credits=spec.credits)
    return _describe(spec, point, directory, directory)


def _check_machine() -> None:
    if not is_root():
        raise SetupError("emulated volumes: only root can mount and attach loop devices; run with sudo")
    if not Path("/dev/fuse").exists():
        raise SetupError("emulated volumes: /dev/fuse is missing; run 'modprobe fuse' as root")


def _default_image(directory: Path) -> Path:
    memory, disk = image_roots()
    free = min(shutil.disk_usage(memory.parent).free, psutil.virtual_memory().available)
    if free >= _ROOM_BYTES:
        return image_of(memory, directory)
    free = shutil.disk_usage(next(folder for folder in disk.parents if folder.exists())).free
    if free < _LEAST_BYTES:
        raise SetupError(
            f"{disk}: {format_bytes(free)} are free there, too little for a volume's image, and less than"
            f" {format_bytes(_ROOM_BYTES)} of memory; free either, or set ESRALLY_EBS_HOME to a larger disk"
        )
    return image_of(disk, directory)


def _make_image(image: Path, size_bytes: int) -> None:
    with locked(private_directory(run_dir())):  # the end of another session removes empty folders
        if image.parent.parent in image_roots():
            require_unchangeable(image.parent.parent.parent)
            private_directory(image.parent.parent)
            private_directory(image.parent)
            image.unlink(missing_ok=True)  # left by a session of this name that a reboot ended
        image.parent.mkdir(parents=True, exist_ok=True)  # wherever the caller wants it
        descriptor = os.open(image, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # it has the arm's data
    with os.fdopen(descriptor, "wb") as file:
        try:
            file.truncate(size_bytes - size_bytes % MIB)
        except OSError as error:
            raise SetupError(
                f"{image}: its file system takes no file of {format_bytes(size_bytes)} ({error.strerror});"
                " use a smaller volume"
            ) from error


def _start_daemon(spec: VolumeSpec, model: Model, directory: Path, session: Path, image: Path) -> None:
    settings = {
        "name": spec.name,
        "model": model.to_json(),
        "seed": _SEED,
        "backing": str(image),
        "credits": spec.credits,
        "time_scale": spec.time_scale,
        "instance_page": _instance_page(model, session),
    }
    (directory / daemon.SETTINGS_NAME).write_text(json.dumps(settings))
    (directory / control.SOCKET_NAME).unlink(missing_ok=True)
    run(
        [sys.executable, "-c", _LAUNCH],
        timeout_s=_QUICK_S,
        cwd=directory,
        env={daemon.START_VARIABLE: daemon.__name__},
    )


def _instance_page(model: Model, session: Path) -> str | None:
    """Page shared by the daemons of one instance's volumes; separate by date, as limits differ."""
    if not model.instance_limits:
        return None
    instance = model.instance.replace("/", "-")
    return str(session / f"{instance}-{len(model.instance_limits)}{PAGE_SUFFIX}")


def _attach_loop(disk: Path, model: Model, readahead_bytes: int) -> Path:
    disk.stat()  # on Linux 6.1 a FUSE file and its loop device have no size until somebody asks
    device = Path(run(["losetup", "--find", "--show", "--direct-io=on", disk], timeout_s=_QUICK_S).strip())
    note_loops(disk.parent, [device.name])
    queue = Path("/sys/block") / device.name / "queue"
    # Then one request is at most one I/O of the type, and the block layer merges as it does before EBS.
    (queue / "max_sectors_kb").write_text(str(model.accounting.max_io_bytes // 1024))
    (queue / "read_ahead_kb").write_text(str(readahead_bytes // 1024))
    return device


def _mount(spec: VolumeSpec, directory: Path, device: Path, *, fresh: bool) -> Volume:
    point = directory / MOUNT_NAME
    point.mkdir(exist_ok=True)
    if fresh:
        run(["mkfs.xfs", "-q", "-K", device], timeout_s=_FORMAT_S)
    # A copied image has its original's file system UUID, which may be mounted, too.
    run(["mount", "-t", "xfs", "-o", "noatime,nouuid,nosuid,nodev,noexec", device, point], timeout_s=_QUICK_S)
    socket = directory / control.SOCKET_NAME
    calibrate_in(socket, point)
    control.change(socket, unlimited=False, refill=True, credits=spec.credits)
    return _describe(spec, point, directory, socket)
