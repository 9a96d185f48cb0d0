"""From a VolumeSpec to a mounted Volume, by the backend for its type.

A backend is a module with two functions. ``attach(spec, directory, *, backing)`` returns a Volume;
``directory`` is the volume's own (in the run directory), and ``backing`` is where its data lie, if the
backend has a choice. ``detach(directory)`` releases all of it from that path alone, after any crash. An
entry point of the group ``esrally_ebs.volumes`` adds such a module for the type of its name.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import Backend, Kind, Volume, VolumeSpec
from esrally_ebs.plan.plan import PLUG_INS, Plan
from esrally_ebs.store.context import FILES
from esrally_ebs.store.running import OWNER
from esrally_ebs.volumes import aws as _aws
from esrally_ebs.volumes import directory as _directory
from esrally_ebs.volumes import lent as _lent
from esrally_ebs.volumes import mounted as _mounted
from esrally_ebs.volumes.aws import dry_run, grow, this_owner
from esrally_ebs.volumes.aws import sweep as sweep_aws
from esrally_ebs.volumes.emulated import backend as _emulated
from esrally_ebs.volumes.emulated.calibration import ReadErrors
from esrally_ebs.volumes.emulated.calibration import calibrate_on_data as _calibrate_on_data
from esrally_ebs.volumes.emulated.control import change, read_state
from esrally_ebs.volumes.emulated.release import mounted_disks, session_of, sweep_images
from esrally_ebs.volumes.lent import lend, let_in
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record

__all__ = [
    "attach",
    "calibrate_on_data",
    "caveats",
    "check_mounts",
    "detach",
    "dry_run",
    "grow",
    "lend",
    "let_in",
    "mounted_disks",
    "session_of",
    "sweep_aws",
    "sweep_images",
    "take_credits",
    "this_owner",
    "wait_refilled",
]

_BUILT_IN: Mapping[str, ModuleType] = {
    Backend.AWS: _aws,
    Backend.DIRECTORY: _directory,
    Backend.EMULATED: _emulated,
    Backend.MOUNTED: _mounted,
    "lent": _lent,
}
_ASSUMED_REFILL_S = 1.0  # EBS buckets hold one second of their rate, so an idle second fills them


def check_mounts(plan: Plan, host: str | None = None) -> None:
    """Check a plan's mounts and directories on this host, and its requests to AWS, before attaching anything.

    Raises PlanError, with file and key, for a mount that is missing, of the wrong kind, or on another's
    device, for a volume that AWS does not have, and for one named like a file of the session; SetupError for
    a mount that is read-only or full.
    """
    specs = [
        (number, spec)
        for number, arm in enumerate(plan.arm)
        for spec in plan.volumes_of(arm)
        if spec.host == host
    ]
    for place, (number, arm) in enumerate(specs):
        with plan.naming(f"arm.{number}"):
            if arm.name in (*FILES, OWNER):  # its folder would take that file's place
                raise PlanError(f"{arm.name!r} is a name that the pack needs itself; use another", key="name")
            if arm.mount is not None and arm.backend is Backend.DIRECTORY and not arm.mount.is_dir():
                what = "is a file, not a directory" if arm.mount.exists() else "does not exist"
                raise PlanError(f"{arm.mount} {what}; make the directory, or name another", key="mount")
            if arm.mount is not None and arm.backend is Backend.MOUNTED:
                _mounted.check_mount(arm.mount, name=arm.name)
            if arm.backend is Backend.AWS:
                _aws.check_spec(arm)
            _mounted.check_distinct([spec for _, spec in specs[: place + 1]])


def caveats(spec: VolumeSpec) -> tuple[str, ...]:
    """Caveats of an arm's figures, one line each."""
    return _emulated.caveats(spec) if spec.backend is Backend.EMULATED else _aws.caveats(spec)


def attach(
    spec: VolumeSpec,
    directory: Path,
    *,
    backing: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Volume:
    """Attach a volume until ``detach(directory)``, even beyond this process (``esrally-ebs volumes up``).

    ``say`` gets progress lines of slow volumes, those on AWS. Raises PlanError if the spec is wrong,
    SetupError if the machine or a plug-in cannot attach it.
    """
    plug_in = _plug_in(spec.type)
    if plug_in is not None:
        write_record(directory, Record(backend=spec.type, name=spec.name, type=spec.type))
    more = {"say": say} if spec.backend is Backend.AWS else {}
    try:
        volume: Volume = (plug_in or _BUILT_IN[spec.backend]).attach(spec, directory, backing=backing, **more)
    except OSError as error:  # the run directory is full; or a killed process's volume answers with errors
        raise SetupError(
            f"volume '{spec.name}': {error.filename or directory}: {error.strerror or error}; see that there"
            " is room and that nothing ends its process, and attach it again"
        ) from error
    return volume


def detach(directory: Path) -> None:
    """Release the volume of ``directory``; does nothing if there is none. Safe at any time, and again.

    Raises SetupError if something is still in use.
    """
    record = read_record(directory)
    plug_in = None if record is None else _plug_in(record.backend)
    if plug_in is not None:
        plug_in.detach(directory)
        drop_record(directory)
    elif record is not None and record.backend not in _BUILT_IN:
        raise SetupError(
            f"{directory}: its volume is of the backend {record.backend!r}, which is not here; install the"
            " package or release that has it, and run 'esrally-ebs clean'"
        )
    else:
        (_BUILT_IN[record.backend] if record else _emulated).detach(directory)


def wait_refilled(volume: Volume, *, clock: Clock = SYSTEM_CLOCK) -> float:
    """Wait until the volume's IOPS and throughput buckets are full; returns the seconds that took.

    For real volumes one idle second is assumed to fill them. Directories have none: 0.0. Does not wait for
    burst credits, which take hours; an emulated volume that began without any has none again.
    """
    start = clock.monotonic()
    if volume.control is None:
        if volume.kind in (Kind.EBS, Kind.EFS):
            clock.sleep(_ASSUMED_REFILL_S)
        return clock.monotonic() - start
    while (left_s := read_state(volume.control).seconds_until_full) > 0:
        clock.sleep(left_s)
    take_credits(volume)
    return clock.monotonic() - start


def take_credits(volume: Volume) -> None:
    """Empty the credits of an emulated volume that began without any: they come back while it rests."""
    if volume.control and not volume.spec.credits:
        change(volume.control, credits=0.0)


def calibrate_on_data(attached: Iterable[Volume]) -> dict[str, ReadErrors]:
    """Recalibrate single-device emulated volumes where their data now are.

    Returns the remaining error of reads by volume name. Raises SetupError if a volume does no I/O.
    """
    emulated = {volume.control: volume for volume in attached if volume.control is not None}
    mounts = {control: volume.mount for control, volume in emulated.items() if control.is_socket()}
    try:
        errors = _calibrate_on_data(mounts)
        return {emulated[control].spec.name: of_reads for control, of_reads in errors.items()}
    except OSError as error:
        folders = ", ".join(str(control.parent) for control in emulated)
        raise SetupError(
            f"emulated volumes: {error.strerror} while they were calibrated; see daemon.log in {folders}"
        ) from error


def _plug_in(name: str) -> ModuleType | None:
    """The backend that another package adds for a type. Raises SetupError, naming it, if it is not one."""
    points = () if name in _BUILT_IN else entry_points(group=PLUG_INS, name=name)
    for point in points:
        package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
        who = f"volume backend {name!r} (package {package})"
        try:
            module: ModuleType = point.load()
        except (ImportError, AttributeError) as error:
            raise SetupError(
                f"{who}: {point.value} cannot be loaded ({error}); reinstall or remove it"
            ) from error
        if not (callable(getattr(module, "attach", None)) and callable(getattr(module, "detach", None))):
            raise SetupError(f"{who}: {point.value} lacks attach or detach; update or remove it")
        return module
    return None
