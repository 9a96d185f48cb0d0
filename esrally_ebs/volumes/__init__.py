"""Volumes: a VolumeSpec in, a mounted Volume out, by the backend that its type asks for.

Backends are the entry points of the group ``esrally_ebs.volumes``: one function ``open_volume(spec,
directory, *, backing)`` that returns a context manager. ``directory`` is the volume's own (in the run
directory); whatever a backend acquires can be released by ``detach`` from that path alone, after any crash.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from esrally_ebs.emulator.catalog import volume_types
from esrally_ebs.emulator.control import read_state
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.system import SYSTEM_CLOCK, Clock
from esrally_ebs.volumes import aws as _aws
from esrally_ebs.volumes import directory as _directory
from esrally_ebs.volumes import emulated as _emulated
from esrally_ebs.volumes import mounted as _mounted
from esrally_ebs.volumes.aws import caveats, dry_run
from esrally_ebs.volumes.aws import sweep as sweep_aws
from esrally_ebs.volumes.calibration import calibrate_on_data as _calibrate_on_data
from esrally_ebs.volumes.mounted import check_distinct
from esrally_ebs.volumes.record import read_record
from esrally_ebs.volumes.release import Leftover, leftovers

__all__ = [
    "Leftover",
    "attach",
    "backend_name",
    "calibrate_on_data",
    "caveats",
    "check_distinct",
    "detach",
    "dry_run",
    "leftovers",
    "load_backend",
    "open_volume",
    "sweep_aws",
    "wait_refilled",
]

GROUP = "esrally_ebs.volumes"
Backend = Callable[..., AbstractContextManager[Volume]]
_AWS = "aws"
_BUILT_IN: Mapping[str, ModuleType] = {
    _AWS: _aws,
    "directory": _directory,
    "emulated": _emulated,
    "mounted": _mounted,
}
_ASSUMED_REFILL_S = 1.0  # EBS buckets hold one second of their rate, so one idle second fills them


def open_volume(
    spec: VolumeSpec, directory: Path, *, backing: Path | None = None
) -> AbstractContextManager[Volume]:
    """Attach a volume for the time of the ``with`` and release all of it in reverse order.

    ``directory`` keeps the volume's state; ``backing`` is where its data lie, if the backend has a choice.
    Raises PlanError when the spec is wrong, SetupError when the machine or a plugin cannot.
    """
    return load_backend(backend_name(spec))(spec, directory, backing=backing)


def attach(
    spec: VolumeSpec,
    directory: Path,
    *,
    backing: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Volume:
    """Attach a volume until ``detach(directory)``, also beyond this process (``esrally-ebs volumes up``).

    ``say`` hears how far a volume is that takes long: one on AWS.
    """
    name = backend_name(spec)
    if name not in _BUILT_IN:
        raise SetupError(f"volume '{spec.name}': backend {name!r} works only within a session; use 'run'")
    more = {"say": say} if name == _AWS else {}
    volume: Volume = _BUILT_IN[name].attach(spec, directory, backing=backing, **more)
    return volume


def detach(directory: Path) -> None:
    """Release whatever volume ``directory`` has; nothing when it has none. Safe to call at any time, and
    again.

    Raises SetupError when something is still in use.
    """
    record = read_record(directory)
    backend = _BUILT_IN.get("emulated" if record is None else record.backend, _emulated)
    backend.detach(directory)


def wait_refilled(volume: Volume, *, clock: Clock = SYSTEM_CLOCK) -> float:
    """Wait until the volume's IOPS and throughput buckets are full; the seconds that took.

    Real volumes do not tell: one idle second is assumed to fill them. Directories have none: 0.0. Burst
    credits, which take hours, are not waited for.
    """
    start = clock.monotonic()
    if volume.control is None:
        if volume.kind in (Kind.EBS, Kind.EFS):
            clock.sleep(_ASSUMED_REFILL_S)
        return clock.monotonic() - start
    while (left_s := read_state(volume.control).seconds_until_full) > 0:
        clock.sleep(left_s)
    return clock.monotonic() - start


def calibrate_on_data(attached: Iterable[Volume]) -> None:
    """Make what an I/O takes right where the data now are, on volumes that we emulate by one device each.

    Raises SetupError when one of them does no I/O.
    """
    mounts = {volume.control: volume.mount for volume in attached if volume.control is not None}
    try:
        _calibrate_on_data({control: mount for control, mount in mounts.items() if control.is_socket()})
    except OSError as error:
        folders = ", ".join(str(control.parent) for control in mounts)
        raise SetupError(
            f"emulated volumes: {error.strerror} while they were calibrated; see daemon.log in {folders}"
        ) from error


def backend_name(spec: VolumeSpec) -> str:
    """A backend's own name, ``mounted`` for any type with a mount, ``emulated`` for a type of the catalog;
    ``aws`` when the plan says so."""
    if spec.aws is not None:
        return _AWS
    names = {point.name for point in entry_points(group=GROUP)} | _BUILT_IN.keys()
    if spec.type in names:
        return spec.type
    if spec.mount is not None:
        return "mounted"
    if spec.type in volume_types():
        return "emulated"
    allowed = ", ".join(sorted({*volume_types(), *names} - {"emulated", _AWS}))
    raise PlanError(f"volume '{spec.name}': no type {spec.type!r}; use one of {allowed}")


def load_backend(name: str) -> Backend:
    """The ``open_volume`` of a backend; SetupError, naming the plugin, when it is not one."""
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        built_in: Backend = _BUILT_IN[name].open_volume
        return built_in
    return _checked(points[0])


def _checked(point: EntryPoint) -> Backend:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    who = f"volume backend {point.name!r} (package {package})"
    try:
        backend: Backend = point.load()
        parameters = inspect.signature(backend).parameters
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise SetupError(
            f"{who}: {point.value} cannot be loaded ({error}); reinstall or remove it"
        ) from error
    if list(parameters)[:2] != ["spec", "directory"] or "backing" not in parameters:
        raise SetupError(
            f"{who}: {point.value} must accept (spec, directory, *, backing); update or remove it"
        )
    return backend
