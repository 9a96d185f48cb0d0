"""The steps of the arms that are no EBS volumes: an EFS file system, and disks of the instance."""

from esrally_ebs.aws.provision.devices import devices_down, devices_up
from esrally_ebs.aws.provision.goal import TAG_RUN, Goal
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.seen import Seen, SeenFileSystem
from esrally_ebs.aws.provision.steps import (
    APPEAR_S,
    SETTLE_S,
    Call,
    Note,
    Step,
    Wait,
    Work,
    delete,
    first_step,
    may_settle,
    refuse,
)

# Amazon's recommendation for mounting without its own helper
_NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
_CREATE_S = 600.0


def efs_up(history: History, seen: Seen) -> Step | None:
    """The next step towards a mounted EFS file system."""
    return first_step((_create, _target, _mount), history, seen)


def efs_down(history: History, seen: Seen) -> Step | None:
    """The next step towards nothing; never one on a file system that was not created for this very arm."""
    return first_step((_unmount, _delete_targets, _delete, _settle), history, seen)


def local_up(history: History, seen: Seen) -> Step | None:
    """The next step towards mounted disks of the instance."""
    return first_step((_claim, devices_up), history, seen)


def local_down(history: History, seen: Seen) -> Step | None:
    """The next step towards disks that are as blank as they were."""
    return devices_down(history, seen)


def _create(history: History, seen: Seen) -> Step | None:
    found = _ours(history, seen)
    if found is None:
        if history.done("create/0") is not None:
            return Wait(text="the EFS file system to be listed", limit_s=APPEAR_S)
        return Call(
            key="create/0",
            service="efs",
            operation="CreateFileSystem",
            parameters=create_parameters(history.goal),
            keeps=("FileSystemId",),
            go_on_after=frozenset({"FileSystemAlreadyExists"}),
        )
    if history.done("create/0") is None:
        return Note(key="create/0", fields={"FileSystemId": found.id})
    if found.state in ("creating", "updating"):
        return Wait(text=f"EFS file system {found.id} to be created", limit_s=_CREATE_S)
    return None


def create_parameters(goal: Goal) -> dict[str, object]:
    """The parameters of ``CreateFileSystem``: elastic throughput unless the plan says or buys another."""
    mode = goal.mode or ("elastic" if goal.throughput_mib is None else "provisioned")
    bought = (
        {} if goal.throughput_mib is None else {"ProvisionedThroughputInMibps": float(goal.throughput_mib)}
    )
    return {
        "CreationToken": goal.token(0),
        "PerformanceMode": "generalPurpose",
        "Encrypted": goal.encrypted,
        "ThroughputMode": mode,
        **bought,
        **({"AvailabilityZoneName": goal.place.zone} if goal.one_zone else {}),
        "Tags": [{"Key": key, "Value": value} for key, value in goal.tags(0).items()],
    }


def _target(history: History, seen: Seen) -> Step | None:
    found = _ours(history, seen)
    assert found is not None
    if not found.targets:
        if history.done("target/0") is not None:
            return Wait(text=f"the mount target of {found.id} to be listed", limit_s=APPEAR_S)
        place = history.goal.place
        return Call(
            key="target/0",
            service="efs",
            operation="CreateMountTarget",
            parameters={
                "FileSystemId": found.id,
                "SubnetId": place.subnet,
                "SecurityGroups": list(place.security_groups),
            },
            keeps=("MountTargetId",),
            # one that we never heard of; a file system that is not yet available wherever it is asked for
            go_on_after=frozenset({"MountTargetConflict", "IncorrectFileSystemLifeCycleState"}),
        )
    if found.targets[0].state != "available":
        return Wait(text=f"the mount target of {found.id}", limit_s=_CREATE_S)
    return None


def _mount(history: History, seen: Seen) -> Step | None:
    found, point = _ours(history, seen), history.goal.point
    assert found is not None
    source = f"{found.targets[0].address}:/"
    if seen.machine.mounted == source:
        return None
    if seen.machine.mounted:
        refuse(history, f"{point}: {seen.machine.mounted} is mounted there already; unmount it")
    return Work(
        key="mount",
        operation="mount",
        arguments={
            "source": source,
            "point": str(point),
            "filesystem": "nfs4",
            "options": _NFS_OPTIONS,
            "readahead": None,
        },
    )


def _unmount(history: History, seen: Seen) -> Step | None:
    found = _ours(history, seen)
    sources = {f"{target.address}:/" for target in found.targets} if found else set()
    if seen.machine.mounted not in sources:
        return None  # not ours, or nothing
    return Work(key="unmount", operation="unmount", arguments={"point": str(history.goal.point)})


def _delete_targets(history: History, seen: Seen) -> Step | None:
    found = _ours(history, seen)
    if found is None or not found.targets:
        return None
    return delete(
        "mount target",
        found.targets[0].id,
        found.targets[0].state,
        service="efs",
        operation="DeleteMountTarget",
        go_on_after={"MountTargetNotFound", "DependencyTimeout"},
    )


def _delete(history: History, seen: Seen) -> Step | None:
    found = _ours(history, seen)
    if found is None:
        return None
    return delete(
        "EFS file system",
        found.id,
        found.state,
        service="efs",
        operation="DeleteFileSystem",
        go_on_after={"FileSystemNotFound", "FileSystemInUse"},
    )


def _settle(history: History, seen: Seen) -> Step | None:
    asked = history.intent("create/0")
    if asked is not None and not _was_deleted(history) and may_settle(asked.at_s, seen):
        return Wait(text="an EFS file system that may have been created", limit_s=2 * SETTLE_S)
    return None


def _was_deleted(history: History) -> bool:
    created = history.done("create/0")
    return created is not None and history.done(f"delete/{created['FileSystemId']}") is not None


def _ours(history: History, seen: Seen) -> SeenFileSystem | None:
    found = seen.file_system
    if found is None or found.state == "deleted":
        return None
    # Found by our token: whoever asked for it, in a line of the journal or in one that is lost, was this arm.
    if found.tags.get(TAG_RUN) != history.goal.run:
        refuse(history, f"EFS file system {found.id} has lost its tag {TAG_RUN}; remove it by hand")
    return found


def _claim(history: History, seen: Seen) -> Step | None:
    if history.done("claim") is not None:
        return None
    count = history.goal.count
    free = [disk for disk in seen.machine.disks if disk.blank and not disk.mounts and not disk.holders]
    if len(free) < count:
        refuse(
            history,
            f"{len(free)} blank instance store disks are free here, {count} needed; use an instance type with"
            " disks, or empty one (wipefs -a, then blkdiscard -z) that may be used",
        )
    return Note(key="claim", fields={"serials": [disk.serial for disk in free[:count]]})
