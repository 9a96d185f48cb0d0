"""The AWS backend: an EBS volume (or a stripe of them), an EFS file system, or the instance's own disks.

Made for the arm and removed with it; ``aws.provision`` does the work. The journal in the arm's directory has
all that is known of it: from there ``attach`` continues and ``detach`` undoes, whatever happened before.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from esrally_ebs.aws.clients import Api, Aws, configured_region, credentials_end
from esrally_ebs.aws.identity import identify
from esrally_ebs.aws.instance import Place, instance_here, on_aws, place_of, region_here, rehearsed_instance
from esrally_ebs.aws.provision.dryrun import dry_run as dry_runs
from esrally_ebs.aws.provision.execute import Executor
from esrally_ebs.aws.provision.goal import TAG_ARM, TAG_SESSION, Goal, RunOwner, new_goal, sort_of
from esrally_ebs.aws.provision.host import ArmHost, LinuxHost, LoopHost
from esrally_ebs.aws.provision.journal import Journal
from esrally_ebs.aws.provision.sweep import MOUNT_NAME, Orphan, Orphans, adopt, on_disks, orphans
from esrally_ebs.catalog.cost import PriceList, Usage
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.machine.disks import Sort
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.mounts import describe, mount_at, remove_mount_point
from esrally_ebs.machine.private import private_directory
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock, is_root, run, which
from esrally_ebs.machine.resources import home, run_dir
from esrally_ebs.model import AwsSpec, Backend, Kind, Volume, VolumeSpec, session_name
from esrally_ebs.store import running
from esrally_ebs.store.files import locked
from esrally_ebs.units import GIB
from esrally_ebs.volumes.mounted import OWN_PREFIX
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record

_BACKEND = "aws"
_ASKED_AGAIN_S = 3.0
_GROW_S = 600.0
_QUICK_S = 15.0
_SOME_REGION = "us-east-1"  # of a dry run that nothing tells its region
_KINDS = {"ebs": Kind.EBS, "efs": Kind.EFS, "instance-store": Kind.INSTANCE_STORE}
# Options by type; the types listed here cannot be made from a snapshot.
_CAVEATS = {
    "efs": (
        "an NFS file system: Elasticsearch is not supported on it, and a request pays the network even when"
        " warm",
        "read ahead is 15,360 KiB by Amazon's own rule for NFS, of a block device 128 KiB: cold reads are"
        " larger",
        "what is not elastic lives on burst credits or a bought rate; elastic is billed by what is moved",
    ),
    "instance-store": (
        "disks of the instance: all data are lost when it stops, hibernates, ends or changes its type",
        "writes get slower as a disk fills; what is measured on an empty one does not last",
    ),
}
_STRIPE_CAVEATS = (
    "a stripe loses everything with any one of its volumes",
    "limits add up only to the instance's own; a small sequential read is on one volume alone",
)
_SNAPSHOT_CAVEAT = "made from a snapshot: blocks that were not read yet come slowly; leave aws.initialise on"
Say = Callable[[str], None]


def attach(
    spec: VolumeSpec, directory: Path, *, backing: Path | None = None, say: Say = lambda text: None
) -> Volume:
    """Make the volume, attach, format and mount it; continue what an interrupted call began.

    Raises PlanError if AWS has no such volume, SetupError if AWS or the machine cannot; what was made until
    then is left for ``detach`` or another ``attach``.
    """
    del backing
    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    api = Aws(_region(spec))
    with locked(directory.parent, patience_s=inf):  # a reaper may start while the owner is still taking down
        goal = _begin(spec, directory, api)
        target = _executor(api, goal, directory, say).up().target
    history = Journal(directory).read()
    size = spec.size_bytes if target is None or goal.sort == "ebs" else target.size_bytes // goal.count
    return describe(
        replace(spec, size_bytes=size),
        _own_place(goal),
        _KINDS[goal.sort],
        identity=" ".join(history.resources if history else ()),
    )


def detach(directory: Path, *, say: Say = lambda text: None) -> None:
    """Unmount, detach and delete what was made for the arm; does nothing if there is nothing.

    Raises SetupError, and keeps the journal, if something has to stay.
    """
    directory = directory.resolve()
    if not directory.parent.is_dir():
        return
    with locked(directory.parent, patience_s=inf):
        journal = Journal(directory)
        history = journal.read()
        if history is None:
            journal.path.unlink(missing_ok=True)  # cut in its first line, so nothing was made
        else:
            _executor(Aws(history.goal.place.region), history.goal, directory, say).down()
        if mount_at(directory / MOUNT_NAME) is not None:
            raise SetupError(f"{directory / MOUNT_NAME}: its device is gone, but not the mount; umount it")
        if (directory / MOUNT_NAME).is_dir():
            remove_mount_point(directory / MOUNT_NAME)
        drop_record(directory)


def caveats(spec: VolumeSpec) -> tuple[str, ...]:
    """Caveats of an arm on AWS, one line each; empty for other arms.

    The user's mounts of EFS or of the instance's own disks have the same caveats as arms made on them.
    """
    if spec.backend is Backend.MOUNTED and spec.mount is not None:
        identity = identify(spec.mount.resolve(), Roots())
        is_local = any(disk.sort is Sort.INSTANCE_STORE for disk in identity.stack.disks)
        type_ = "efs" if identity.file_system_id else "instance-store" if is_local else ""
        if not type_:
            return ()
        spec = replace(spec, type=type_, stripes=1, aws=AwsSpec())  # whatever the plan calls its type
    if spec.aws is None:
        return ()
    lines = [*_CAVEATS.get(spec.type, ()), *(_STRIPE_CAVEATS if spec.stripes > 1 else ())]
    end_s = credentials_end(Roots()) if spec.mount is None and spec.type != "instance-store" else None
    if end_s is not None:
        lines.append(
            f"the AWS credentials end in {max(0.0, end_s - SYSTEM_CLOCK.epoch()) / 60:.0f} minutes: unless"
            " they renew themselves (an SSO login's do while it lasts), what is not deleted by then stays and"
            " costs; renew them, or give the instance a role"
        )
    if spec.aws.snapshot is not None and not spec.aws.initialise and spec.type not in _CAVEATS:
        lines.append(_SNAPSHOT_CAVEAT)
    return tuple(f"arm {spec.name}: {line}" for line in lines)


def sweep(
    say: Say,
    *,
    dead_instances: bool = False,
    roots: Roots | None = None,
    make_api: Callable[[str | None], Api] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[str]:
    """Take down what AWS still has of this run directory but nothing here knows of.

    ``dead_instances`` includes what terminated instances left. Asks AWS twice, some seconds apart, since its
    listings may be stale; asks nothing outside EC2. ``say`` gets what is removed, and what is left alone or
    not checked for a good reason, such as when AWS could not be asked at all. Returns a line per thing that
    could not be removed or asked for.
    """
    roots = roots or Roots()
    if not on_aws(roots):
        return []
    problems, first = list[str](), Orphans(arms=[])
    try:
        instance = instance_here(roots)
        problems += _sweep_disks(instance, say, roots)
        # an instance's volumes are in its region, whatever the environment names
        api = (make_api or Aws)(region_here(roots) or configured_region())
        ask = partial(orphans, api, _owner(instance, roots), dead_instances=dead_instances)
        left = first = ask(now_s=clock.epoch())
        if first.arms:
            clock.sleep(_ASKED_AGAIN_S)
            left = ask(now_s=clock.epoch())
            left = replace(left, arms=[arm for arm in left.arms if arm in first.arms])
    except SetupError as error:
        if not first.arms:
            say(f"AWS was not asked for what killed sessions left there: {error}")
        seen = [f"AWS listed {one.text}, and could not be asked again: {error}" for one in first.arms]
        return [*problems, *first.problems, *seen]
    problems += left.problems
    for note in left.notes:
        say(note)
    for orphan in left.arms:
        say(f"AWS still has {orphan.text}")
        problems += _remove(orphan, partial(place_of, api, instance), say)
    return problems


def _sweep_disks(instance: str, say: Say, roots: Roots) -> list[str]:
    """Likewise for the instance's own disks, which AWS does not list; only root can look at them."""
    if not is_root() or rehearsed_instance() is not None:
        return []
    try:
        devices = LinuxHost(roots=roots).on_disks()
    except SetupError as error:
        return [f"the instance's own disks were not looked at: {error}"]
    problems = []
    # Placeholder that nothing is asked of; without a region the SDK would want one.
    place = Place(instance=instance, zone="", region=_SOME_REGION)
    for orphan in on_disks(devices, run_dir()):
        say(f"the instance's own disks still have {orphan.text}")
        problems += _remove(orphan, lambda: place, say)
    return problems


def _remove(orphan: Orphan, find_place: Callable[[], Place], say: Say) -> list[str]:
    try:
        place = find_place()
        session, arm = orphan.tags[TAG_SESSION], session_name(orphan.tags[TAG_ARM])  # folder names
        if not running.is_ours(session):
            running.begin(session)
        directory = running.folder_of(session) / arm
        write_record(directory, Record(backend=_BACKEND, name=arm, type=orphan.sort))
        adopt(orphan, place, run_dir(), at_s=SYSTEM_CLOCK.epoch())
        detach(directory, say=say)
    except (EbsError, OSError) as error:
        return [str(error)]
    running.remove(session, ())  # no removal if another arm of that session could not be removed
    return []


def _owner(instance: str, roots: Roots | None = None) -> RunOwner:
    return RunOwner(instance=instance, boot=(roots or Roots()).boot_id(), run_dir=run_dir())


def this_owner() -> RunOwner | None:
    """Owner of volumes made here; None where none can be made."""
    return _owner(instance_here()) if on_aws() else None


def grow(point: Path) -> str:
    """Make the file system of a path as large as its volume is now; a line that says so, or how to."""
    stack = identify(point, Roots()).stack
    point = stack.mount.mount_point  # an arm may be a directory there, of which xfs_growfs knows nothing
    commands: dict[str, list[str | Path]] = {
        "xfs": ["xfs_growfs", point],
        "btrfs": ["btrfs", "filesystem", "resize", "max", point],
        **{name: ["resize2fs", stack.mount.source] for name in ("ext2", "ext3", "ext4")},
    }
    command = commands.get(stack.mount.filesystem)
    layers = [layer for layer in stack.layers if not layer.startswith("loop ")]  # those of a rehearsal
    if command is None or layers or len(stack.disks) > 1:  # btrfs would grow on only one disk
        under = ", ".join(layers) or stack.mount.filesystem
        return f"{point}: the file system ({under}) has its old size; see docs/aws-arms.md for how it grows"
    run(command, timeout_s=_GROW_S)
    return f"{point}: the file system is as large as its volume now"


def _own_place(goal: Goal) -> Path:
    """Directory for the session to write to, as a snapshot has files of its own. SetupError if it exists."""
    if goal.snapshot is None:
        return goal.point
    own = private_directory(goal.point / f"{OWN_PREFIX}{goal.session}")
    own.chmod(0o755)  # callers by sudo pass through it
    if any(own.iterdir()):
        raise SetupError(f"{own}: the snapshot has files there; take another name for the session")
    return own


def _region(spec: VolumeSpec) -> str | None:
    planned = spec.aws.region if spec.aws else None
    return planned or configured_region() or region_here()


def _begin(spec: VolumeSpec, directory: Path, api: Api) -> Goal:
    """The goal that was begun here, if the plan still says the same, or a new one."""
    journal = Journal(directory)
    history = journal.read()
    if history is not None:
        goal = history.goal
        again = new_goal(spec, goal.place, session=goal.session, owner=goal.owner, point=goal.point)
        if replace(again, run=goal.run) != goal:
            raise SetupError(
                f"{directory}: another volume was begun there; run 'esrally-ebs volumes down' first"
            )
        return goal
    if not is_root():
        raise SetupError(f"volume '{spec.name}': only root can format and mount; run with sudo")
    check_machine(spec, Roots())  # before anything is made that costs money
    check_tools(spec)
    place = place_of(api, instance_here())
    owner, point = _owner(place.instance).tag, directory / MOUNT_NAME
    goal = new_goal(spec, place, session=directory.parent.name, owner=owner, point=point)
    if read_record(directory) is None:
        write_record(directory, Record(backend=_BACKEND, name=spec.name, type=spec.type))
    journal.begin(goal, SYSTEM_CLOCK.epoch())
    return goal


def check_spec(spec: VolumeSpec) -> None:
    """Raise PlanError for a volume that AWS does not have, for any instance."""
    nowhere = Place(instance="", zone="", region="")
    new_goal(spec, nowhere, session="", owner="", point=Path())


def check_machine(spec: VolumeSpec, roots: Roots) -> None:
    """Raise SetupError if devices do not identify their volumes: then none could be formatted safely."""
    if sort_of(spec) == "ebs" and roots.on_xen() and rehearsed_instance() is None:
        raise SetupError(
            f"volume '{spec.name}': this instance is on Xen, where a device does not say which EBS volume it"
            " is, so none is formatted; use an instance type on Nitro, or make the volume yourself and give"
            " its mount"
        )


def check_tools(
    spec: VolumeSpec, find: Callable[[str], str | None] = which, ask: Callable[..., str] = run
) -> None:
    """SetupError for a tool that the arm will need and that is missing, or too old to take it down."""
    needed = {"mount.nfs4": "nfs-common"} if spec.type == "efs" and rehearsed_instance() is None else {}
    if spec.type != "efs":
        needed = {"wipefs": "util-linux", "mkfs.xfs": "xfsprogs"}
    if spec.type == "instance-store":
        needed |= {"blkdiscard": "util-linux"}
    if spec.stripes > 1:
        stripe_with = spec.aws.stripe_with if spec.aws else "mdadm"
        needed |= {"mdadm": "mdadm"} if stripe_with == "mdadm" else {"lvcreate": "lvm2"}
    for tool, package in needed.items():
        if find(tool) is None:
            raise SetupError(
                f"volume '{spec.name}': {tool} is missing; install it (apt-get install {package}), then try"
                " again"
            )
    if "blkdiscard" in needed and "--force" not in ask(["blkdiscard", "--help"], timeout_s=_QUICK_S):
        raise SetupError(
            f"volume '{spec.name}': blkdiscard has no --force, so the disk could not be wiped afterwards;"
            " install util-linux 2.36 or newer"
        )


def _executor(api: Api, goal: Goal, directory: Path, say: Say) -> Executor:
    return Executor(
        api=api,
        host=_host(goal, say),
        journal=Journal(directory),
        say=lambda text: say(f"{goal.arm}: {text}"),
    )


def _host(goal: Goal, say: Say) -> ArmHost:
    def progress(done: int, total: int) -> None:
        say(f"{goal.arm}: initialised {done // GIB} of {total // GIB} GiB")

    linux = LinuxHost(progress=progress)
    if rehearsed_instance() is None:
        return linux
    return LoopHost(home() / "rehearsal" / goal.run, linux)


def dry_run(specs: Sequence[VolumeSpec], session: str, prices: PriceList, used: Usage) -> list[str]:
    """Every call and step of ``up`` and ``down`` for arms on AWS, and the price.

    Uses this instance's place if it is one, and placeholders for what is unknown elsewhere. Changes nothing.
    """
    on_aws_specs = [spec for spec in specs if spec.backend is Backend.AWS]
    if not on_aws_specs:
        raise PlanError("dry run: no arm of this plan is made on AWS; add --set 'aws={}' or a table [aws]")
    run = run_dir() / session
    if on_aws():
        place = place_of(Aws(_region(on_aws_specs[0])), instance_here())
    else:
        planned = on_aws_specs[0].aws
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        region = (planned and planned.region) or named or _SOME_REGION
        place = Place(instance="i-of-this-machine", zone=f"{region}a", region=region, subnet="subnet-of-it")
    return dry_runs(on_aws_specs, place, session=session, run=run, listed=prices, used=used)
