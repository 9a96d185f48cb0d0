"""Steps for an arm on EFS: a file system, its mount target, the mount; down in reverse."""

from esrally_ebs.aws.provision.goal import TAG_RUN, Goal, tag_list
from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.state import (
    APPEAR_S,
    ArmState,
    Call,
    EfsState,
    HostWork,
    Note,
    Step,
    Wait,
    delete,
    in_order,
    refuse,
    settle,
)

# Amazon's recommended options for mounting without efs-utils
_NFS_OPTIONS = (
    "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,nosuid,nodev,noexec"
)
_CREATE_S = 600.0


def _create(history: History, state: ArmState) -> Step | None:
    system = _ours(history, state)
    if system is None:
        if history.done("create/0") is not None:
            return Wait(text="the EFS file system to be listed", limit_s=APPEAR_S)
        return Call(
            "create/0",
            "efs",
            "CreateFileSystem",
            create_parameters(history.goal),
            keeps=("FileSystemId",),
            go_on_after={"FileSystemAlreadyExists"},
        )
    if history.done("create/0") is None:
        return Note(key="create/0", fields={"FileSystemId": system.id})
    if system.state in ("creating", "updating"):
        return Wait(text=f"EFS file system {system.id} to be created", limit_s=_CREATE_S)
    return None


def create_parameters(goal: Goal) -> dict[str, object]:
    """Parameters of ``CreateFileSystem``: elastic throughput unless the plan has or buys another."""
    mode = goal.mode or ("elastic" if goal.throughput_mib is None else "provisioned")
    bought = (
        {} if goal.throughput_mib is None else {"ProvisionedThroughputInMibps": float(goal.throughput_mib)}
    )
    return {
        "CreationToken": goal.token(0),
        "PerformanceMode": "generalPurpose",
        "Encrypted": goal.encrypted,
        "Backup": False,  # One Zone's default backups cost, and outlive the file system
        "ThroughputMode": mode,
        **bought,
        **({"AvailabilityZoneName": goal.place.zone} if goal.one_zone else {}),
        "Tags": tag_list(goal.tags(0)),
    }


def _target(history: History, state: ArmState) -> Step | None:
    system = _ours(history, state)
    assert system is not None
    if not system.targets:
        if history.done("target/0") is not None:
            return Wait(text=f"the mount target of {system.id} to be listed", limit_s=APPEAR_S)
        place = history.goal.place
        within = {"SubnetId": place.subnet, "SecurityGroups": list(place.security_groups)}
        return Call(
            "target/0",
            "efs",
            "CreateMountTarget",
            {"FileSystemId": system.id, **within},
            keeps=("MountTargetId",),
            # created without an answer; or not yet available everywhere
            go_on_after={"MountTargetConflict", "IncorrectFileSystemLifeCycleState"},
        )
    if system.targets[0].state != "available":
        return Wait(text=f"the mount target of {system.id}", limit_s=_CREATE_S)
    return None


def _mount(history: History, state: ArmState) -> Step | None:
    system, point = _ours(history, state), history.goal.point
    assert system is not None
    source = f"{system.targets[0].address}:/"
    if state.host.mounted == source:
        return None
    if state.host.mounted:
        refuse(history, f"{point}: {state.host.mounted} is mounted there already; unmount it")
    how = {"filesystem": "nfs4", "options": _NFS_OPTIONS, "readahead": None}
    return HostWork("mount", "mount", {"source": source, "point": str(point), **how})


def unmount(history: History, state: ArmState) -> Step | None:
    """Unmount what we mounted, by the journal or by the addresses that AWS has now."""
    system = _ours(history, state)
    sources = {f"{target.address}:/" for target in system.targets} if system else set()
    sources |= {fields.get("arguments", {}).get("source") for fields in history.intents("mount")}
    if state.host.mounted not in sources:
        return None  # nothing, or not ours
    return HostWork("unmount", "unmount", {"point": str(history.goal.point)})


def _delete(history: History, state: ArmState) -> Step | None:
    system = _ours(history, state)
    if system is None:
        return None
    if system.targets:
        gone = {"MountTargetNotFound", "DependencyTimeout"}
        return delete("mount target", system.targets[0], "efs", "DeleteMountTarget", gone)
    gone = {"FileSystemNotFound", "FileSystemInUse"}
    return delete("EFS file system", system, "efs", "DeleteFileSystem", gone)


def _settle(history: History, state: ArmState) -> Step | None:
    return settle(history, state, "create/0", "FileSystemId", "an EFS file system")


def _ours(history: History, state: ArmState) -> EfsState | None:
    system = state.file_system
    if system is None or system.state == "deleted":
        return None
    # Our token proves that this arm requested it, recorded or not.
    if system.tags.get(TAG_RUN) != history.goal.run:
        refuse(history, f"EFS file system {system.id} has lost its tag {TAG_RUN}; remove it by hand")
    return system


# Next step towards a mounted EFS file system.
efs_up = in_order(_create, _target, _mount)
# Next step towards nothing; never for a file system that was not created for exactly this arm.
efs_down = in_order(unmount, _delete, _settle)
