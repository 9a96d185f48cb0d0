"""The parts of making arms on AWS one by one: goals, the journal, whose a volume is, devices, a dry run."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_world import GOALS, HERE, THERE, ebs
from fake_machine import GIB, FakeMachine

from esrally_ebs.aws.instance import REHEARSAL_VARIABLE, Place, place_of
from esrally_ebs.aws.provision import ebs as volumes_of
from esrally_ebs.aws.provision.devices import devices_down, local_up
from esrally_ebs.aws.provision.efs import efs_down
from esrally_ebs.aws.provision.goal import TAG_RUN, Goal, new_goal
from esrally_ebs.aws.provision.host import HIDDEN_HOLDER, ArmDevice, HostState
from esrally_ebs.aws.provision.journal import History, JournalEntry
from esrally_ebs.aws.provision.state import ArmState, Call, EfsState, HostWork, Stage, VolumeState, Wait
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.model import AwsSpec, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.volumes.aws import caveats, check_machine

PLACE = Place(instance=HERE, zone="us-east-1a", region="us-east-1", subnet="subnet-1")
VOLUME = "vol-0123456789abcdef0"


def spec(type_: str = "gp3", **more: Any) -> VolumeSpec:  # noqa: ANN401 - of VolumeSpec
    return VolumeSpec(**{"name": "a", "type": type_, "size_bytes": 100 * GIB, "aws": AwsSpec()} | more)


def goal_of(wanted: VolumeSpec) -> Goal:
    return new_goal(wanted, PLACE, session="s", owner=f"{HERE}:/run", point=Path("/run/s/a/mnt"))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (spec("directory"), "AWS has no type 'directory'; use one of gp2, gp3"),
        (spec(size_bytes=GIB + 1), "size is no whole GiB, .* for example 1GiB$"),
        (
            spec(throughput_bytes_per_s=200 * 1024**2 + 1),
            "throughput is no whole MiB/s, .* for example 200MiB/s$",
        ),
        (spec("efs", stripes=2), "EFS is not striped; remove stripes"),
        (spec(stripes=2, aws=AwsSpec(snapshot="snap-1")), "a snapshot holds one volume; remove stripes"),
        (spec(read_latency=2.0), "read_latency: AWS does not slow a volume"),
        (spec("gp3", iops=10**6), "1,000,000 IOPS is outside"),
        (spec("magnetic", size_bytes=2048 * GIB), "2048 GiB is outside 1 to 1,024 GiB"),
        (spec("efs", iops=5), "operations follow from the mode; remove iops"),
    ],
)
def test_what_aws_cannot_make_is_refused_before_it_is_asked(wanted: VolumeSpec, text: str) -> None:
    with pytest.raises(PlanError, match=rf"^(\w+ )?volume 'a': {text}"):
        goal_of(wanted)


def test_a_plan_makes_on_aws_what_is_not_there_already() -> None:
    arms = '[[arm]]\nname = "a"\ntype = "gp3"\n[[arm]]\nname = "b"\ntype = "gp2"\nmount = "/mnt/b"\n'
    plan = parse_plan(f'name = "p"\n{arms}[aws]\nsnapshot = "snap-0123456789abcdef0"\n', "plan.toml")
    made, mounted = plan.arm
    assert made.aws == AwsSpec(snapshot="snap-0123456789abcdef0")
    assert mounted.aws is None


def test_two_runs_of_one_arm_share_no_token_tag_or_file_system_uuid() -> None:
    first, second = goal_of(spec()), goal_of(spec())
    assert first.token(0) != second.token(0)
    assert first.token(0) != first.token(1)
    assert first.filesystem_uuid != second.filesystem_uuid
    assert first.tags(0)[TAG_RUN] != second.tags(0)[TAG_RUN]


def test_a_repeated_request_is_the_same_to_the_byte() -> None:
    goal = goal_of(spec(iops=4000))
    assert volumes_of.create_parameters(goal, 0) == volumes_of.create_parameters(goal, 0)


def entry(key: str, state: Any, **fields: Any) -> JournalEntry:  # noqa: ANN401
    return JournalEntry(key=key, state=state, at_s=1.0, fields=fields)


def attached(**more: Any) -> VolumeState:  # noqa: ANN401 - of VolumeState
    fields = {
        "id": VOLUME,
        "state": "in-use",
        "size_gib": 10,
        "tags": ebs().tags(0),
        "instance": HERE,
        "attachment": "attached",
    }
    return VolumeState(**fields | more)


def device(**more: Any) -> ArmDevice:  # noqa: ANN401 - of ArmDevice
    fields = {"serial": VOLUME, "path": Path("/dev/nvme1n1"), "size_bytes": 10 * GIB, "blank": True}
    return ArmDevice(**fields | more)


def state(volume: VolumeState, *devices: ArmDevice) -> ArmState:
    host = HostState(devices={each.serial: each for each in devices})
    return ArmState(watched_s=1000.0, volumes=(volume,), host=host)


CREATED = History(
    goal=ebs(),
    entries=(
        entry("create/0", "intent"),
        entry("create/0", "done", VolumeId=VOLUME),
        *(entry(f"rights/{name}Volume", "done") for name in ("Attach", "Detach", "Delete")),
        entry("end-with-instance/0", "done"),
    ),
)


def test_a_blank_device_of_our_volume_is_formatted_with_our_uuid() -> None:
    step = volumes_of.up(CREATED, state(attached(), device()))
    assert isinstance(step, HostWork)
    assert (step.operation, step.arguments["uuid"]) == ("mkfs", ebs().filesystem_uuid)


@pytest.mark.parametrize(
    ("step", "disk", "text"),
    [
        (volumes_of.up, device(blank=False, signature="ext4"), "holds ext4 that we did not make"),
        (volumes_of.up, device(blank=False), "holds data that we did not make"),
        (volumes_of.up, device(blank=False, signature="partitions"), "holds partitions"),
        (
            volumes_of.up,
            device(size_bytes=11 * GIB),
            "has 11811160064 bytes, volume .* 10 GiB; it is not touched",
        ),
        (volumes_of.up, device(mounts=(Path("/data"),)), "is used by /data; it is not formatted"),
        (volumes_of.up, device(holders=("dm-0",)), "is used by dm-0; it is not formatted"),
        (volumes_of.down, device(mounts=(Path("/elsewhere"),)), "is also mounted at /elsewhere"),
        (volumes_of.down, device(holders=("md127",)), "is used by md127"),
    ],
)
def test_a_device_that_is_not_provably_ours_alone_is_neither_formatted_nor_detached(
    step: Stage, disk: ArmDevice, text: str
) -> None:
    with pytest.raises(SetupError, match=text):
        step(CREATED, state(attached(), disk))


def test_the_device_of_another_volume_is_waited_past() -> None:
    step = volumes_of.up(CREATED, state(attached(), device(serial="vol-0ther")))
    assert isinstance(step, Wait)


def test_what_we_began_to_format_is_formatted_again_but_nothing_else() -> None:
    begun = History(goal=ebs(), entries=(*CREATED.entries, entry("format", "intent")))
    ours = device(blank=False, signature="xfs", uuid=ebs().filesystem_uuid)
    step = volumes_of.up(begun, state(attached(), ours))
    assert isinstance(step, HostWork)
    assert step.arguments["begun"]
    with pytest.raises(SetupError, match="it is not formatted"):
        volumes_of.up(begun, state(attached(), replace(ours, uuid="another")))


def test_a_volume_that_lost_our_tag_is_neither_detached_nor_deleted() -> None:
    with pytest.raises(SetupError, match=f"volume {VOLUME} has lost its tag {TAG_RUN}"):
        volumes_of.down(CREATED, state(attached(tags={"Name": "mine now"})))


def test_a_volume_that_someone_attached_elsewhere_is_left_there() -> None:
    with pytest.raises(SetupError, match=f"was attached to instance {THERE} by someone else"):
        volumes_of.down(CREATED, state(attached(instance=THERE)))


def test_a_volume_with_our_tags_that_we_never_asked_for_is_not_ours() -> None:
    assert volumes_of.down(History(goal=ebs()), state(attached())) is None


def test_what_a_stripe_was_made_with_is_told_by_its_device() -> None:
    history = replace(CREATED, goal=replace(ebs(count=2), stripe="mdadm"))
    there = state(attached(), device())
    array = device(serial="ebs-1", path=Path("/dev/dm-0"))
    step = volumes_of.down(history, replace(there, host=replace(there.host, array=array)))
    assert isinstance(step, HostWork)
    assert (step.operation, step.arguments["kind"]) == ("unstripe", "lvm")


def test_a_disk_that_was_written_to_is_wiped_once_even_if_it_looks_blank() -> None:
    goal = goal_of(spec("instance-store", stripes=2))
    disk = device(serial="AWS1", blank=True)
    there = ArmState(host=HostState(devices={disk.serial: disk}))
    written = (entry("stripe", "intent"), entry("format", "intent"), entry("format", "done"))
    step = devices_down(History(goal=goal, entries=written), there)
    assert isinstance(step, HostWork)
    assert (step.operation, step.arguments["serial"]) == ("wipe", "AWS1")
    wiped = (entry(step.key, "intent"), entry(step.key, "done"))
    assert devices_down(History(goal=goal, entries=(*written, *wiped)), there) is None
    assert devices_down(History(goal=goal), there) is None  # never written to


def test_disks_that_were_only_claimed_are_left_to_who_has_taken_them_since() -> None:
    """Once 'mdadm --zero-superblock' was run on the disks of another's array that was not mounted."""
    goal = goal_of(spec("instance-store", stripes=2))
    disk = device(signature="linux_raid_member", uuid="theirs", blank=False, holders=("md127",))
    disks = {name: replace(disk, serial=name) for name in ("AWS1", "AWS2")}
    array = device(serial="ebs-1", path=Path("/dev/md127"), signature="ext4", uuid="theirs", blank=False)
    claim = entry("claim", "done", serials=list(disks))
    mounted = replace(array, mounts=(Path("/data"),))
    for one in (array, mounted):
        there = ArmState(host=HostState(devices=disks, array=one))
        assert devices_down(History(goal=goal, entries=(claim,)), there) is None
        begun = History(goal=goal, entries=(claim, entry("stripe", "intent")))
        assert devices_down(begun, there) is None
    ours = {name: replace(disk, uuid=goal.filesystem_uuid) for name, disk in disks.items()}
    step = devices_down(begun, ArmState(host=HostState(devices=ours, array=array)))
    assert isinstance(step, HostWork)
    assert step.operation == "unstripe"


def test_an_array_that_another_session_has_just_made_of_the_same_disks_is_not_formatted() -> None:
    """Both have claimed them while they were blank."""
    goal = goal_of(spec("instance-store", stripes=2))
    member = device(signature="linux_raid_member", blank=False, holders=("md127",))
    disks = {name: replace(member, serial=name) for name in ("AWS1", "AWS2")}
    array = device(serial="ebs-1", path=Path("/dev/md127"), blank=True)
    there = ArmState(host=HostState(devices=disks, array=array))
    claim = entry("claim", "done", serials=list(disks))
    begun = History(goal=goal, entries=(claim, entry("stripe", "intent")))
    for history in (History(goal=goal, entries=(claim,)), begun):
        with pytest.raises(SetupError, match=r"\(AWS1\) is not empty; take the arm down and try again"):
            local_up(history, there)
    ours = {name: replace(disk, uuid=goal.filesystem_uuid) for name, disk in disks.items()}
    step = local_up(begun, ArmState(host=HostState(devices=ours, array=array)))
    assert isinstance(step, HostWork)
    assert step.operation == "mkfs"


def test_a_volume_to_which_someone_copied_our_tags_is_neither_detached_nor_deleted() -> None:
    assert volumes_of.down(CREATED, state(attached(id="vol-0fsomeone"))) is None


@pytest.mark.parametrize("signature", ["", "partitions", "LVM2_member", "crypto_LUKS"])
def test_a_snapshot_without_a_file_system_of_its_own_is_refused_in_a_line(signature: str) -> None:
    history = replace(CREATED, goal=ebs(snapshot="snap-1", initialise=False))
    with pytest.raises(
        SetupError, match=f"holds {signature or 'no file system'}; use a snapshot of a volume"
    ):
        volumes_of.up(history, state(attached(snapshot="snap-1"), device(blank=False, signature=signature)))


def test_a_hidden_user_of_an_unmounted_volume_is_waited_for() -> None:
    step = volumes_of.down(CREATED, state(attached(), device(holders=(HIDDEN_HOLDER,))))
    assert step == Wait(text=f"what uses /dev/nvme1n1: {HIDDEN_HOLDER}", limit_s=30.0, advice="end that")


def test_a_device_name_that_was_refused_or_is_in_use_is_not_asked_for_again() -> None:
    refused = (
        entry("attach/0", "intent", parameters={"Device": "/dev/sdg"}),
        entry("attach/0", "refused", code="InvalidParameterValue"),
    )
    history = History(goal=ebs(), entries=(*CREATED.entries, *refused))
    free = replace(
        state(attached(state="available", instance="", attachment="")),
        names_in_use=frozenset({"/dev/sdf"}),
    )
    step = volumes_of.up(history, free)
    assert isinstance(step, Call)
    assert step.parameters["Device"] == "/dev/sdh"


@pytest.mark.parametrize(
    ("type_", "uuid", "refused"),
    [("gp3", "ec2e1916-9099-7caf-fd21-012345abcdef", True), ("efs", "ec2e1916", False), ("gp3", "", False)],
)
def test_on_xen_no_volume_is_made_as_no_device_says_which_it_is(
    type_: str, uuid: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(REHEARSAL_VARIABLE, raising=False)
    machine = FakeMachine(tmp_path)
    machine.write("sys/hypervisor/uuid", uuid)
    problem = ""
    try:
        check_machine(spec(type_), machine.roots)
    except SetupError as error:
        problem = str(error)
    assert ("this instance is on Xen" in problem) == refused


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (spec(), []),
        (spec("efs"), ["NFS", "15,360 KiB", "burst credits"]),
        (spec("instance-store"), ["lost when it stops", "fills"]),
        (spec(stripes=2), ["any one of its volumes", "add up"]),
        (spec(aws=AwsSpec(snapshot="snap-1", initialise=False)), ["come slowly"]),
        (spec(aws=None, stripes=2), []),
    ],
)
def test_what_must_be_known_of_an_arm_is_said(wanted: VolumeSpec, words: list[str]) -> None:
    lines = caveats(wanted)
    assert len(lines) >= len(words)
    assert not [word for word in words if not any(word in line for line in lines)]
    assert words or not lines


class OneInstance:
    """AWS that knows one instance, in a zone."""

    def __init__(self, zone: str) -> None:
        self._described = {"InstanceId": HERE, "Placement": {"AvailabilityZone": zone}}

    def call(self, service: str, operation: str, **params: Any) -> Mapping[str, Any]:  # noqa: ANN401
        assert (service, operation) == ("ec2", "DescribeInstances")
        return {"Reservations": [{"Instances": [self._described]}]}


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-east-1a", "us-east-1"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("eusc-de-east-1a", "eusc-de-east-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
    ],
)
def test_the_region_of_a_local_or_wavelength_zone_is_the_one_it_belongs_to(zone: str, region: str) -> None:
    assert place_of(OneInstance(zone), HERE).region == region


def test_a_file_system_that_lost_our_tag_is_left_alone() -> None:
    history = History(goal=GOALS["EFS"], entries=(entry("create/0", "intent"),))
    file_system = EfsState(id="fs-1", state="available", tags={})
    with pytest.raises(SetupError, match=f"fs-1 has lost its tag {TAG_RUN}; remove it by hand"):
        efs_down(history, ArmState(file_system=file_system))
