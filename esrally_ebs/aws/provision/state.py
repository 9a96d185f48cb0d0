"""An arm's current state and possible next steps, as values; nothing here changes anything.

Volumes and file systems are as listed by AWS, devices and mounts as by the kernel. A planner takes a History
and an ArmState, and gives one step; the executor performs it, records the outcome, looks again, and asks for
the next. None means that the arm is complete (or gone).
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, NoReturn

from esrally_ebs.aws.clients import Api, AwsError
from esrally_ebs.aws.describe import volumes_where
from esrally_ebs.aws.provision.goal import TAG_MEMBER, TAG_RUN, tags_of
from esrally_ebs.aws.provision.host import ArmDevice, ArmHost, DeviceQuery, HostState
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.errors import SetupError
from esrally_ebs.units import GIB

SETTLE_S = 20.0  # newly created resources may be missing from AWS's lists this long
APPEAR_S = 180.0
ATTACH_S = 300.0
GONE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeState:
    id: str
    state: str  # creating | available | in-use | deleting | deleted | error
    size_gib: int
    tags: Mapping[str, str]
    snapshot: str = ""  # it was made from this
    instance: str = ""  # it is attached to this
    attachment: str = ""  # attaching | attached | detaching | busy
    device: str = ""  # EC2's name of the attachment: /dev/sdf ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MountTarget:
    id: str
    state: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EfsState:
    id: str
    state: str  # creating | available | updating | deleting | deleted | error
    tags: Mapping[str, str]
    targets: tuple[MountTarget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmState:
    """Everything that determines an arm's next step."""

    watched_s: float = 0.0  # how long the caller has had the arm exclusively
    volumes: tuple[VolumeState, ...] = ()
    names_in_use: frozenset[str] = frozenset()  # device names in use on this instance: /dev/sdf ...
    file_system: EfsState | None = None
    host: HostState = field(default_factory=HostState)

    @property
    def devices(self) -> list[ArmDevice]:
        """The arm's devices, by serial."""
        return [self.host.devices[serial] for serial in sorted(self.host.devices)]

    @property
    def target(self) -> ArmDevice | None:
        """The device of the arm's file system: an array or the only device; None for EFS."""
        return self.host.array or next(iter(self.devices), None)


def state_of(
    api: Api, host: ArmHost, history: History, watched_s: float, *, contents: bool = True
) -> ArmState:
    """What AWS and this machine have of an arm; without its volumes' ``contents`` if it only goes."""
    goal = history.goal
    if goal.sort == "efs":
        return ArmState(
            watched_s=watched_s,
            file_system=_file_system(api, history),
            host=host.look(DeviceQuery(point=goal.point)),
        )
    if goal.sort == "instance-store":
        sizes = dict.fromkeys(history.resources)
        return ArmState(watched_s=watched_s, host=host.look(_query(history, sizes, disks=not sizes)))
    volumes = tuple(_volumes(api, history))
    unattached = any(not volume.instance for volume in volumes)
    return ArmState(
        watched_s=watched_s,
        volumes=volumes,
        names_in_use=_names_in_use(api, goal.place.instance) if unattached else frozenset(),
        host=host.look(_query(history, _sizes_here(history, volumes), contents=contents)),
    )


def state_here(host: ArmHost, history: History) -> ArmState:
    """What this machine has of an arm."""
    serials = [] if history.goal.sort == "efs" else history.resources
    contents = history.goal.sort == "instance-store"  # volumes go with all that is on them
    return ArmState(host=host.look(_query(history, dict.fromkeys(serials), contents=contents)))


def _query(
    history: History, sizes: Mapping[str, int | None], *, disks: bool = False, contents: bool = True
) -> DeviceQuery:
    goal = history.goal
    # a power cut may leave an array of one disk, before others joined
    stripe = goal.stripe_name if goal.count > 1 or history.begun("stripe") else ""
    return DeviceQuery(point=goal.point, sizes=sizes, disks=disks, stripe=stripe, contents=contents)


def _volumes(api: Api, history: History) -> list[VolumeState]:
    """Volumes with the arm's tag, and those with recorded ids, whatever their tags."""
    volumes = [_volume(raw) for raw in volumes_where(api, f"tag:{TAG_RUN}", history.goal.run)]
    missing = set(history.resources) - {volume.id for volume in volumes}
    if missing:  # by filter: a missing id would be an error otherwise
        volumes += [_volume(raw) for raw in volumes_where(api, "volume-id", *sorted(missing))]
    return volumes


def _volume(raw: Mapping[str, Any]) -> VolumeState:
    attachment: Mapping[str, str] = next(iter(raw.get("Attachments") or ()), {})
    return VolumeState(
        id=raw["VolumeId"],
        state=raw["State"],
        size_gib=raw["Size"],
        tags=tags_of(raw.get("Tags")),
        snapshot=raw.get("SnapshotId") or "",
        instance=attachment.get("InstanceId", ""),
        attachment=attachment.get("State", ""),
        device=attachment.get("Device", ""),
    )


def _names_in_use(api: Api, instance: str) -> frozenset[str]:
    return frozenset(
        attachment["Device"]
        for raw in volumes_where(api, "attachment.instance-id", instance)
        for attachment in raw.get("Attachments", ())
    )


def _sizes_here(history: History, volumes: tuple[VolumeState, ...]) -> dict[str, int]:
    """Bytes of the arm's volumes attached to its instance."""
    goal = history.goal
    return {
        volume.id: volume.size_gib * GIB
        for volume in volumes
        if volume.instance == goal.place.instance
        and volume.tags.get(TAG_RUN) == goal.run
        and not history.is_copy(volume.tags.get(TAG_MEMBER), volume.id)
    }


def _file_system(api: Api, history: History) -> EfsState | None:
    token = history.goal.token(0)
    try:
        systems = api.call("efs", "DescribeFileSystems", CreationToken=token)["FileSystems"]
    except AwsError as error:
        if error.code == "FileSystemNotFound":
            return None
        raise
    if not systems:
        return None
    raw = systems[0]
    id_, state = raw["FileSystemId"], raw["LifeCycleState"]
    targets = tuple(
        MountTarget(id=of["MountTargetId"], state=of["LifeCycleState"], address=of.get("IpAddress", ""))
        for of in api.call("efs", "DescribeMountTargets", FileSystemId=id_)["MountTargets"]
        if of["LifeCycleState"] != "deleted"
    )
    return EfsState(id=id_, state=state, tags=tags_of(raw.get("Tags")), targets=targets)


@dataclass(frozen=True, slots=True)
class Call:
    key: str
    service: str
    operation: str
    parameters: Mapping[str, Any]
    keeps: tuple[str, ...] = ()  # fields of the answer to record
    go_on_after: Set[str] = frozenset()  # refusals that the next look explains
    optional: str = ""  # message if AWS refuses, which then is no error

    @property
    def asks_for_rights(self) -> bool:
        """Whether it only checks a permission and changes nothing."""
        return bool(self.parameters.get("DryRun"))


@dataclass(frozen=True, slots=True)
class HostWork:
    key: str
    operation: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A fact to record."""

    key: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Look again later; an error after ``limit_s`` of waiting for the same thing."""

    text: str
    limit_s: float
    advice: str = "look at it in the AWS console"


Step = Call | HostWork | Note | Wait
Stage = Callable[[History, ArmState], Step | None]


def in_order(*stages: Stage) -> Stage:
    """A planner that gives the step of the first stage that has one."""

    def plan(history: History, state: ArmState) -> Step | None:
        return next((step for stage in stages if (step := stage(history, state)) is not None), None)

    return plan


def settle(history: History, state: ArmState, key: str, id_name: str, what: str) -> Step | None:
    """Wait if a requested resource may exist without being listed yet.

    A call may take minutes, with the effect at its end; a process killed meanwhile leaves no trace of it.
    """
    created = history.done(key)
    deleted = created is not None and history.done(f"delete/{created[id_name]}") is not None
    if history.pending(key) and not deleted and state.watched_s < SETTLE_S:
        return Wait(text=f"{what} that may have been created", limit_s=2 * SETTLE_S)
    return None


def delete(
    what: str, of: VolumeState | MountTarget | EfsState, service: str, operation: str, go_on_after: Set[str]
) -> Step:
    """The step that deletes a resource, or one that waits while the resource is changing state.

    The operation's only parameter is the id, named after the operation: ``VolumeId`` of ``DeleteVolume``.
    """
    if of.state in ("creating", "updating", "deleting"):
        return Wait(text=f"{what} {of.id}, which is {of.state}", limit_s=GONE_S)
    parameters = {f"{operation.removeprefix('Delete')}Id": of.id}
    return Call(f"delete/{of.id}", service, operation, parameters, go_on_after=go_on_after)


def refuse(history: History, text: str) -> NoReturn:
    """Raise SetupError: the pack does not handle this state."""
    raise SetupError(f"arm {history.goal.arm}: {text}")
