"""The machine side of arms on AWS, on a machine that is a directory: what is looked at, and what is run."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_machine import EBS_MODEL, LOCAL_MODEL, FakeMachine

from esrally_ebs.aws.provision.goal import filesystem_uuid, member_uuid
from esrally_ebs.aws.provision.host import (
    DeviceQuery,
    LinuxHost,
    is_blank,
    mark,
    read_through,
    stripe_commands,
    unstripe_commands,
)
from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.processes import run
from esrally_ebs.units import GIB, KIB, MIB

VOLUME = "vol-0123456789abcdef0"


class Tools:
    """wipefs that says what it is told, and every other command written down with what is open."""

    def __init__(self, signatures: list[Mapping[str, str]]) -> None:
        self.signatures = signatures
        self.commands: list[list[str]] = []
        self.held: list[bool] = []  # by command: whether its device was open in this process

    def __call__(self, argv: list[object], *, timeout_s: float) -> str:
        words = [str(word) for word in argv]
        if words[:2] == ["wipefs", "--no-act"]:
            return json.dumps({"signatures": self.signatures}) if self.signatures else ""
        self.commands.append(words)
        self.held.append(_is_held(Path(words[-1])))
        return ""


def _is_held(device: Path) -> bool:
    """Whether this process has it open: with O_EXCL nothing else may have a real device meanwhile."""
    for handle in Path("/proc/self/fd").iterdir():
        try:
            if handle.readlink() == device:
                return True
        except FileNotFoundError:  # the listing's own
            continue
    return False


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """Nitro with one EBS volume of 2 MiB, so that the file in /dev is small, and one disk of the instance."""
    fake = FakeMachine(tmp_path)
    small = 2 / 1024  # GiB
    fake.nvme("nvme1n1", "259:1", serial=VOLUME.replace("-", ""), model=EBS_MODEL, gib=small)
    fake.nvme("nvme2n1", "259:2", serial="AWS111", model=LOCAL_MODEL, gib=small)
    for name in ("nvme1n1", "nvme2n1"):
        (tmp_path / "dev" / name).write_bytes(bytes(2 * 1024**2))
    return fake


def linux(machine: FakeMachine, *signatures: Mapping[str, str]) -> tuple[LinuxHost, Tools]:
    tools = Tools(list(signatures))
    return LinuxHost(roots=machine.roots, run=tools), tools


WANTED = DeviceQuery(point=Path("/run/s/a/mnt"), sizes={VOLUME: 0})


def test_a_device_is_found_by_its_serial_with_all_that_it_holds(machine: FakeMachine) -> None:
    here, _ = linux(machine)
    state = here.look(replace(WANTED, disks=True))
    assert state.devices[VOLUME].path.name == "nvme1n1"
    assert state.devices[VOLUME].blank
    assert [disk.serial for disk in state.disks] == ["AWS111"]


def test_of_a_device_that_has_failed_all_but_its_contents_is_known(machine: FakeMachine) -> None:
    def failed(argv: list[object], *, timeout_s: float) -> str:
        raise CommandError("wipefs --no-act --json /dev/nvme1n1: exit code 1: Input/output error")

    machine.mount("/run/s/a/mnt", "/dev/nvme1n1", "259:1")
    here = LinuxHost(roots=machine.roots, run=failed)
    device = here.look(replace(WANTED, contents=False)).devices[VOLUME]
    assert (device.mounts, device.blank, device.signature) == ((WANTED.point,), False, "")


def test_a_path_to_a_disk_that_has_no_device_file_is_no_disk(machine: FakeMachine) -> None:
    machine.nvme("nvme7c7n1", "0:0", serial="AWS777", model=LOCAL_MODEL, gib=1)
    machine.write("sys/block/nvme7c7n1/hidden", 1)
    assert [disk.serial for disk, _ in linux(machine)[0].on_disks()] == ["AWS111"]


def test_what_disks_of_the_instance_hold_is_told_of_each_and_of_their_array(machine: FakeMachine) -> None:
    member = machine.nvme("nvme3n1", "259:5", serial="AWS333", model=LOCAL_MODEL, gib=2 / 1024)
    machine.array("md127", "9:127", ["sys/devices/pci0/nvme/nvme2n1", member], level="raid0")
    machine.array("md126", "9:126", ["sys/devices/pci0/nvme/nvme1n1"], level="raid0")  # of a volume
    for name in ("nvme3n1", "md127", "md126"):
        (machine.root / "dev" / name).write_bytes(bytes(2 * 1024**2))
    here, _ = linux(machine, {"type": "xfs", "uuid": "u", "label": "0123456789ab"})
    assert [(device.path.name, device.label, serials) for device, serials in here.on_disks()] == [
        ("nvme2n1", "0123456789ab", ["AWS111"]),
        ("nvme3n1", "0123456789ab", ["AWS333"]),
        ("md127", "0123456789ab", ["AWS111", "AWS333"]),
    ]


def test_a_stripe_proves_that_it_is_ours_before_it_has_a_file_system(machine: FakeMachine) -> None:
    member = machine.nvme("nvme3n1", "259:5", serial="AWS333", model=LOCAL_MODEL, gib=2 / 1024)
    (machine.root / "dev" / "nvme3n1").write_bytes(bytes(2 * MIB))
    paths = {"AWS111": "nvme2n1", "AWS333": "nvme3n1"}
    devices = {serial: str(machine.root / "dev" / name) for serial, name in paths.items()}
    label, id_ = "0123456789ab", filesystem_uuid("0123456789ab")
    stripe = {"kind": "mdadm", "name": "ebs-1", "label": label, "chunk": 512 * KIB, "devices": devices}
    linux(machine)[0].do("stripe", stripe)
    machine.array("md127", "9:127", ["sys/devices/pci0/nvme/nvme2n1", member], level="raid0")
    (machine.root / "dev" / "md127").write_bytes(bytes(MIB))
    here = LinuxHost(roots=machine.roots)
    assert [(device.signature, device.uuid, device.label) for device, _ in here.on_disks()] == [
        ("", id_, label),
        ("", id_, label),
        ("", id_, label),
    ]


@pytest.mark.parametrize("kind", ["mdadm", "lvm"])
def test_a_stripe_whose_making_is_cut_short_is_known_as_ours(kind: str, machine: FakeMachine) -> None:
    path, label = str(machine.root / "dev" / "nvme2n1"), "0123456789ab"
    stripe = {"kind": kind, "name": "ebs-1", "label": label, "chunk": 512 * KIB, "devices": {"AWS111": path}}

    def cut(argv: list[object], *, timeout_s: float) -> str:
        if argv[0] == "wipefs":
            return ""
        raise CommandError(f"{argv[0]}: cut after less than {timeout_s:.0f} s")

    with pytest.raises(CommandError):
        LinuxHost(roots=machine.roots, run=cut).do("stripe", stripe)
    ((device, _),) = LinuxHost(roots=machine.roots).on_disks()
    assert (device.blank, device.uuid, device.label) == (False, filesystem_uuid(label), label)


@pytest.mark.parametrize(
    ("uuid", "whose"),
    [
        (filesystem_uuid("0123456789ab"), "0123456789ab"),  # of our array
        (member_uuid("0123456789ab", "AWS111"), "0123456789ab"),
        (member_uuid("0123456789ab", "AWS333"), ""),
        ("0b1c2d3e-1111-4222-8333-123456789012", ""),
    ],
)
def test_what_somebody_made_of_a_disk_that_bears_our_mark_is_theirs(
    uuid: str, whose: str, machine: FakeMachine
) -> None:
    mark(machine.root / "dev" / "nvme2n1", "0123456789ab")
    ((device, _),) = linux(machine, {"type": "LVM2_member", "uuid": uuid})[0].on_disks()
    assert device.label == whose


def test_a_disk_whose_formatting_is_cut_short_is_known_as_ours(tmp_path: Path) -> None:
    machine, label = FakeMachine(tmp_path), "0123456789ab"
    machine.nvme("nvme2n1", "259:2", serial="AWS111", model=LOCAL_MODEL, gib=1)
    disk = tmp_path / "dev" / "nvme2n1"
    with disk.open("wb") as file:
        file.truncate(GIB)

    def cut(argv: list[object], *, timeout_s: float) -> str:
        output = run(argv, timeout_s=timeout_s)
        if argv[0] == "mkfs.xfs":
            with disk.open("r+b") as file:  # which it clears before anything else
                file.write(bytes(128 * KIB))
            raise CommandError("mkfs.xfs: cut")
        return output

    arguments = mkfs(serial="AWS111", device=str(disk), size=GIB, uuid=filesystem_uuid(label), label=label)
    with pytest.raises(CommandError):
        LinuxHost(roots=machine.roots, run=cut).do("mkfs", arguments)
    here = LinuxHost(roots=machine.roots)
    ((device, _),) = here.on_disks()
    assert (device.signature, device.uuid, device.label) == ("", filesystem_uuid(label), label)
    here.do("mkfs", arguments)
    ((device, _),) = here.on_disks()
    assert (device.signature, device.uuid, device.label) == ("xfs", filesystem_uuid(label), label)


def test_data_without_a_signature_are_seen(machine: FakeMachine) -> None:
    with (machine.root / "dev" / "nvme1n1").open("r+b") as file:
        file.seek(1024**2 + 5)
        file.write(b"x")
    here, _ = linux(machine)
    assert not here.look(WANTED).devices[VOLUME].blank


def test_a_disk_that_fails_is_not_called_a_matter_of_rights(machine: FakeMachine) -> None:
    (machine.root / "dev" / "nvme1n1").unlink()
    (machine.root / "dev" / "nvme1n1").mkdir()  # which gives an error where it is read
    here, _ = linux(machine)
    with pytest.raises(SetupError, match=r"nvme1n1: Is a directory; see the kernel log; has the disk fai"):
        here.look(WANTED)


def test_a_table_of_partitions_counts_as_content(machine: FakeMachine) -> None:
    machine.partition("sys/devices/pci0/nvme/nvme1n1", "nvme1n1p1", "259:3")
    here, _ = linux(machine)
    assert here.look(WANTED).devices[VOLUME].signature == "partitions"


def test_what_uses_a_partition_uses_the_device(machine: FakeMachine) -> None:
    disk = "sys/devices/pci0/nvme/nvme1n1"
    machine.partition(disk, "nvme1n1p1", "259:3")
    machine.partition(disk, "nvme1n1p2", "259:4")
    machine.mount("/data", "/dev/nvme1n1p1", "259:3")
    machine.write(f"{disk}/nvme1n1p2/holders/dm-0", "")
    device = linux(machine)[0].look(WANTED).devices[VOLUME]
    assert (device.mounts, device.holders) == ((Path("/data"),), ("dm-0",))


def test_what_the_kernel_lends_to_nobody_else_is_in_use_although_no_mount_is_seen(
    machine: FakeMachine,
) -> None:
    here = replace(linux(machine)[0], is_in_use=lambda path: path.name == "nvme1n1")
    state = here.look(replace(WANTED, disks=True))
    assert state.devices[VOLUME].holders == (
        "what this process does not see (a mount in another container, swap)",
    )
    assert state.disks[0].holders == ()
    machine.mount("/run/s/a/mnt", "/dev/nvme1n1", "259:1")
    assert here.look(WANTED).devices[VOLUME].holders == ()  # it is our own mount that holds it


def test_a_device_that_a_container_was_not_given_is_one_line(machine: FakeMachine) -> None:
    (machine.root / "dev" / "nvme1n1").unlink()
    with pytest.raises(SetupError, match="nvme1n1: is not there though the kernel has it; start a container"):
        linux(machine)[0].look(WANTED)


def mkfs(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    given = {"serial": VOLUME, "device": "/x/nvme1n1", "size": 2 * 1024**2, "filesystem": "xfs"}
    return given | {"uuid": "ours", "label": "0123456789ab", "begun": False} | more


def test_what_is_formatted_is_looked_at_once_more(machine: FakeMachine) -> None:
    here, tools = linux(machine)
    here.do("mkfs", mkfs())
    assert tools.commands == [
        [
            "mkfs.xfs",
            "-q",
            "-K",
            "-m",
            "uuid=ours",
            "-L",
            "0123456789ab",
            str(machine.root / "dev" / "nvme1n1"),
        ]
    ]


@pytest.mark.parametrize(
    ("signatures", "arguments", "text"),
    [
        ([{"type": "ext4", "uuid": "theirs"}], mkfs(), "is not empty any more"),
        ([], mkfs(serial="vol-0ther"), "is not vol-0ther any more"),
        ([], mkfs(size=1), "is not empty any more"),
    ],
)
def test_a_device_that_changed_in_between_is_not_formatted(
    machine: FakeMachine, signatures: list[Mapping[str, str]], arguments: dict[str, Any], text: str
) -> None:
    here, tools = linux(machine, *signatures)
    with pytest.raises(SetupError, match=text):
        here.do("mkfs", arguments)
    assert tools.commands == []


def test_a_device_that_changed_in_between_keeps_its_superblock(machine: FakeMachine) -> None:
    here, tools = linux(machine)
    stripe = {"kind": "mdadm", "name": "ebs-1", "array": "/dev/md0"}
    with pytest.raises(SetupError, match="nvme2n1: is not vol-0ther any more; it is not touched"):
        here.do("unstripe", stripe | {"devices": {VOLUME: "/x/nvme1n1", "vol-0ther": "/x/nvme2n1"}})
    assert tools.commands == []
    here.do("unstripe", stripe | {"devices": {VOLUME: "/x/nvme1n1"}})
    disk = str(machine.root / "dev" / "nvme1n1")
    assert tools.commands == [["mdadm", "--stop", "/dev/md0"], ["mdadm", "--zero-superblock", disk]]


def test_a_stripe_with_a_device_that_cannot_be_read_is_undone(machine: FakeMachine) -> None:
    """Its volumes cost money until it is."""
    commands: list[list[str]] = []

    def failing(argv: list[object], *, timeout_s: float) -> str:
        commands.append([str(word) for word in argv])
        if argv[0] == "wipefs":
            raise CommandError("wipefs --no-act --json /dev/nvme1n1: exit code 1: Input/output error")
        return ""

    stripe = {"kind": "mdadm", "name": "ebs-1", "array": "/dev/md0", "devices": {VOLUME: "/x/nvme1n1"}}
    LinuxHost(roots=machine.roots, run=failing).do("unstripe", stripe)
    assert commands[0] == ["mdadm", "--stop", "/dev/md0"]


def test_a_device_that_somebody_has_taken_in_between_is_not_formatted(machine: FakeMachine) -> None:
    here, tools = linux(machine)
    with pytest.raises(SetupError, match="it is not formatted"):
        replace(here, is_in_use=lambda path: True).do("mkfs", mkfs())
    assert tools.commands == []


def test_only_our_own_file_system_is_wiped_off_a_disk(machine: FakeMachine) -> None:
    here, tools = linux(machine, {"type": "xfs", "uuid": "ours"})
    wipe = {"serial": "AWS111", "device": "/x/nvme2n1", "uuid": "ours"}
    with pytest.raises(SetupError, match="it is not wiped"):
        here.do("wipe", wipe | {"uuid": "another"})
    disk = machine.root / "dev" / "nvme2n1"
    here.do("wipe", wipe)
    assert tools.commands == [
        ["blkdiscard", "--force", "--offset", "1048576", str(disk)],
        ["blkdiscard", "--force", "--zeroout", "--offset", "4096", "--length", "1044480", str(disk)],
        ["blkdiscard", "--force", "--zeroout", "--length", "4096", str(disk)],
    ]
    assert tools.held == [True] * 3  # else udev assembles a stripe's members again in between
    assert not _is_held(disk)


def test_a_disk_whose_discarded_blocks_are_no_zeros_is_written_with_zeros(machine: FakeMachine) -> None:
    here, tools = linux(machine, {"type": "xfs", "uuid": "ours"})
    disk = machine.root / "dev" / "nvme2n1"
    disk.write_bytes(b"x" * 2 * 1024**2)
    here.do("wipe", {"serial": "AWS111", "device": "/x/nvme2n1", "uuid": "ours"})
    assert [command[2:-1] for command in tools.commands] == [
        ["--offset", "1048576"],
        ["--zeroout", "--offset", "1048576"],
        ["--zeroout", "--offset", "4096", "--length", "1044480"],
        ["--zeroout", "--length", "4096"],  # last: until then the disk says that it is ours
    ]


def test_a_stripe_is_found_by_its_members_and_made_of_blank_devices_only(machine: FakeMachine) -> None:
    here, tools = linux(machine)
    assert here.look(replace(WANTED, stripe="ebs-1")).array is None
    machine.array("md127", "9:127", ["sys/devices/pci0/nvme/nvme1n1"], level="raid0")
    (machine.root / "dev" / "md127").write_bytes(bytes(1024**2))
    machine.write("sys/devices/virtual/md127/size", 2048)
    state = here.look(replace(WANTED, stripe="ebs-1"))
    assert state.array is not None
    assert state.array.path.name == "md127"
    assert tools.commands == []


@pytest.mark.parametrize(("filesystem", "hint"), [("nfs4", True), ("xfs", False)])
def test_an_nfs_mount_that_fails_names_the_port_that_a_security_group_must_open(
    filesystem: str, hint: bool, machine: FakeMachine, tmp_path: Path
) -> None:
    def fails(argv: list[object], *, timeout_s: float) -> str:
        raise CommandError(f"{argv[0]}: still running after {timeout_s:.0f} s and was ended")

    here = LinuxHost(roots=machine.roots, run=fails)
    mount = {"point": tmp_path / "mnt", "source": "10.0.0.9:/", "filesystem": filesystem, "options": ""}
    with pytest.raises(SetupError) as caught:
        here.do("mount", mount | {"readahead": None})
    assert ("let NFS (TCP 2049) in" in str(caught.value)) == hint


@pytest.mark.parametrize("kind", ["mdadm", "lvm"])
def test_the_commands_of_a_stripe_name_every_member_and_the_chunk(kind: str) -> None:
    members = ["/dev/nvme1n1", "/dev/nvme2n1"]
    devices = dict(zip(("vol-1", "vol-2"), members, strict=True))
    made = [word for argv in stripe_commands(kind, "0123456789ab", "ebs-1", devices, 512) for word in argv]
    undone = [word for argv in unstripe_commands(kind, "ebs-1", "/dev/md0", members) for word in argv]
    assert set(members) <= set(made) & set(undone)
    assert any("512" in word for word in made)


def test_reading_through_a_device_tells_how_far_it_is(tmp_path: Path) -> None:
    file = tmp_path / "device"
    file.write_bytes(bytes(3 * 1024**2))
    progress: list[tuple[int, int]] = []
    read_through(file, 3 * 1024**2, lambda done, total: progress.append((done, total)))
    assert progress == [(3 * 1024**2, 3 * 1024**2)]
    assert is_blank(file, 3 * 1024**2)
