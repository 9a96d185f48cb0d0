"""What ``volumes up`` and ``down`` would do on AWS: every call with its parameters, and the cost of an hour.

Asks the real executor's planners step by step, and predicts each step's outcome; calls nobody. Predictions
assume no delays, refusals or other people's resources.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from esrally_ebs.aws.instance import Place
from esrally_ebs.aws.provision.execute import DOWN, UP
from esrally_ebs.aws.provision.goal import Goal, RunOwner, new_goal, tags_of
from esrally_ebs.aws.provision.host import ArmDevice, HostState
from esrally_ebs.aws.provision.journal import History, JournalEntry
from esrally_ebs.aws.provision.state import (
    ArmState,
    Call,
    EfsState,
    HostWork,
    MountTarget,
    Note,
    Stage,
    Step,
    VolumeState,
    Wait,
)
from esrally_ebs.catalog import cost
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB


def dry_run(
    specs: Sequence[VolumeSpec],
    place: Place,
    *,
    session: str,
    run: Path,
    listed: cost.PriceList | None = None,
    used: cost.Usage = cost.NO_USAGE,
) -> list[str]:
    """One line per call and step, up and down, then the price of each arm.

    Leaves out reading calls (Describe...). Raises PlanError for what AWS does not have.
    """
    instance = _PredictedInstance()
    owner = RunOwner(instance=place.instance, boot="dry-run", run_dir=run.parent).tag
    arms = []
    for spec in specs:
        goal = new_goal(spec, place, session=session, owner=owner, point=run / spec.name / "mnt")
        arms.append(_PredictedArm(replace(goal, run=f"dry-run-{goal.arm}"), instance))
    up = [line for arm in arms for line in arm.lines(UP[arm.history.goal.sort])]
    down = [line for arm in reversed(arms) for line in arm.lines(DOWN[arm.history.goal.sort])]
    return ["up:", *up, "down:", *down, "price:", *prices(specs, place.region, listed, used)]


def prices(
    specs: Sequence[VolumeSpec],
    region: str,
    listed: cost.PriceList | None = None,
    used: cost.Usage = cost.NO_USAGE,
) -> list[str]:
    """Price per hour of each arm and of all; or why there is none in the price list.

    ``used``: billed usage of each.
    """
    lines, total = [], 0.0
    for spec in specs:
        try:
            price = cost.monthly(replace(spec, date=None), region, usage=used, prices=listed)
        except PlanError as error:
            lines.append(f"  {spec.name}: not known: {error}")
            continue
        an_hour = price.usd / cost.HOURS_A_MONTH
        total += an_hour
        doubt = f"; not verified: {', '.join(price.unverified)}" if price.unverified else ""
        lists = f", prices of {price.dated}{doubt}" if price.parts else "; it comes with its instance"
        lines.append(f"  {spec.name}: {an_hour:.4f} USD an hour ({price.usd:.2f} a month, {region}{lists})")
    if total:
        lines.append(
            f"  all with a price: {total:.4f} USD an hour; EBS bills at least a minute, by the second"
        )
    return lines


@dataclass(kw_only=True)
class _PredictedInstance:
    """Shared by arms of one instance: ids that AWS would give, device names, instance disks."""

    volumes: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    file_systems: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    names: set[str] = field(default_factory=set)
    disks: list[ArmDevice] = field(
        default_factory=lambda: [
            ArmDevice(serial=f"AWS{n}", path=Path(f"/dev/nvme{900 + n}n1"), size_bytes=GIB, blank=True)
            for n in range(32)
        ]
    )


class _PredictedArm:
    """One arm's predicted history and state."""

    def __init__(self, goal: Goal, instance: _PredictedInstance) -> None:
        self.history = History(goal=goal)
        self._instance = instance
        self._volumes: dict[str, VolumeState] = {}
        self._file_system: EfsState | None = None
        self._devices: dict[str, ArmDevice] = {}
        self._array: ArmDevice | None = None
        self._mounted = ""

    def lines(self, plan: Stage) -> Iterator[str]:
        """One line per step that changes something, until the planner has no more."""
        while (step := plan(self.history, self._state())) is not None:
            if isinstance(step, Call) and not step.asks_for_rights:
                yield f"  {step.service} {step.operation} {json.dumps(step.parameters)}"
            elif isinstance(step, HostWork):
                yield f"  machine {step.operation} {json.dumps(dict(step.arguments))}"
            self._take(step)

    def _state(self) -> ArmState:
        return ArmState(
            watched_s=float("inf"),
            volumes=tuple(self._volumes.values()),
            names_in_use=frozenset(self._instance.names),
            file_system=self._file_system,
            host=HostState(
                devices=self._devices,
                disks=tuple(self._instance.disks),
                array=self._array,
                mounted=self._mounted,
            ),
        )

    def _take(self, step: Step) -> None:
        assert not isinstance(step, Wait), step.text
        intent: Mapping[str, Any] = {}
        if isinstance(step, Note):
            outcome = step.fields
            for serial in step.fields.get("serials", ()):
                disk = next(disk for disk in self._instance.disks if disk.serial == serial)
                self._instance.disks.remove(disk)
                self._devices[serial] = disk
        elif isinstance(step, Call) and step.asks_for_rights:
            outcome = {}
        else:
            given = step.parameters if isinstance(step, Call) else step.arguments
            intent = {"arguments": given}
            outcome = getattr(self, f"_{step.operation}")(given) or {}
        entries = (
            JournalEntry(key=step.key, state="intent", at_s=0.0, fields=intent),
            JournalEntry(key=step.key, state="done", at_s=0.0, fields=outcome),
        )
        self.history = replace(self.history, entries=(*self.history.entries, *entries))

    def _CreateVolume(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        id_ = f"vol-{next(self._instance.volumes):017x}"
        tags = tags_of(given["TagSpecifications"][0]["Tags"])
        self._volumes[id_] = VolumeState(
            id=id_, state="available", size_gib=given["Size"], tags=tags, snapshot=given.get("SnapshotId", "")
        )
        return {"VolumeId": id_}

    def _AttachVolume(self, given: Mapping[str, Any]) -> None:
        id_, goal = given["VolumeId"], self.history.goal
        attachment = {"instance": given["InstanceId"], "attachment": "attached", "device": given["Device"]}
        volume = self._volumes[id_] = replace(self._volumes[id_], state="in-use", **attachment)
        self._instance.names.add(given["Device"])
        self._devices[id_] = ArmDevice(
            serial=id_,
            path=Path(f"/dev/nvme{int(id_.removeprefix('vol-'), 16)}n1"),
            size_bytes=volume.size_gib * GIB,
            signature="xfs" if goal.snapshot else "",
            blank=not goal.snapshot,
        )

    def _ModifyInstanceAttribute(self, given: Mapping[str, Any]) -> None:
        """AWS deletes the volume with the instance; no later step depends on this."""

    def _DetachVolume(self, given: Mapping[str, Any]) -> None:
        id_ = given["VolumeId"]
        self._volumes[id_] = replace(self._volumes[id_], state="available", instance="", attachment="")
        del self._devices[id_]

    def _DeleteVolume(self, given: Mapping[str, Any]) -> None:
        del self._volumes[given["VolumeId"]]

    def _CreateFileSystem(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        id_ = f"fs-{next(self._instance.file_systems):017x}"
        self._file_system = EfsState(id=id_, state="available", tags=tags_of(given["Tags"]))
        return {"FileSystemId": id_}

    def _CreateMountTarget(self, given: Mapping[str, Any]) -> Mapping[str, str]:
        assert self._file_system is not None
        target = MountTarget(id=f"fsmt-{given['FileSystemId']}", state="available", address="10.0.0.9")
        self._file_system = replace(self._file_system, targets=(target,))
        return {"MountTargetId": target.id}

    def _DeleteMountTarget(self, given: Mapping[str, Any]) -> None:
        assert self._file_system is not None
        self._file_system = replace(self._file_system, targets=())

    def _DeleteFileSystem(self, given: Mapping[str, Any]) -> None:
        self._file_system = None

    def _initialise(self, given: Mapping[str, Any]) -> None:
        """All blocks are read; no later step depends on this."""

    def _stripe(self, given: Mapping[str, Any]) -> None:
        path = Path("/dev/dm-0" if given["kind"] == "lvm" else "/dev/md0")
        self._array = ArmDevice(serial=given["name"], path=path, size_bytes=0, blank=True)
        member = {"signature": "linux_raid_member", "uuid": self.history.goal.filesystem_uuid}
        for serial in given["devices"]:
            self._change(serial, **member, blank=False, holders=(path.name,))

    def _unstripe(self, given: Mapping[str, Any]) -> None:
        self._array = None
        for serial in given["devices"]:
            self._change(serial, signature="", uuid="", blank=False, holders=())

    def _mkfs(self, given: Mapping[str, Any]) -> None:
        self._change(given["serial"], signature=given["filesystem"], uuid=given["uuid"], blank=False)

    def _mount(self, given: Mapping[str, Any]) -> None:
        self._mounted = given["source"]
        for device in filter(None, (self._array, *self._devices.values())):
            if str(device.path) == given["source"]:
                self._change(device.serial, mounts=(Path(given["point"]),))

    def _unmount(self, given: Mapping[str, Any]) -> None:
        self._mounted = ""
        for device in filter(None, (self._array, *self._devices.values())):
            self._change(device.serial, mounts=())

    def _wipe(self, given: Mapping[str, Any]) -> None:
        self._change(given["serial"], signature="", uuid="", blank=True)

    def _change(self, serial: str, **facts: Any) -> None:  # noqa: ANN401 - of ArmDevice
        if self._array is not None and self._array.serial == serial:
            self._array = replace(self._array, **facts)
        else:
            self._devices[serial] = replace(self._devices[serial], **facts)
