"""From a mount to the EBS volumes, file system or disks below it, on machines that are directories."""

import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import LOCAL_MODEL, FakeMachine

from esrally_ebs.aws.identity import Identity, candidates, identify, with_mapping
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.disks import Sort, volume_id
from esrally_ebs.model import Kind

A, B = "vol0123456789abcdef0", "vol0123456789abcdef1"
ID_A, ID_B = "vol-0123456789abcdef0", "vol-0123456789abcdef1"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    """An instance whose root is a partition of nvme0n1."""
    made = FakeMachine(tmp_path)
    root = made.nvme("nvme0n1", "259:0", serial="vol00000000000000000", gib=8)
    made.partition(root, "nvme0n1p1", "259:1")
    made.mount("/", "/dev/nvme0n1p1", "259:1", "ext4")
    return made


def at(machine: FakeMachine, path: str = "/mnt/a") -> Identity:
    return identify(Path(path), machine.roots)


def test_a_whole_disk_is_known_by_its_serial(machine: FakeMachine) -> None:
    machine.nvme("nvme1n1", "259:2", serial=A)
    machine.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    mount = at(machine, "/mnt/a/elasticsearch")
    (disk,) = mount.stack.disks
    assert (mount.kind, mount.volume_ids, mount.name, mount.root) == (Kind.EBS, (ID_A,), ID_A, False)
    assert (disk.name, disk.known_by, disk.size_bytes) == ("nvme1n1", "NVMe serial", 100 * 1024**3)
    assert (mount.stack.device, mount.stack.readahead_bytes, mount.stack.scheduler) == (
        "nvme1n1",
        128 * 1024,
        "none",
    )


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_partition_is_of_its_disk(machine: FakeMachine, filesystem: str) -> None:
    machine.partition(machine.nvme("nvme1n1", "259:2", serial=A), "nvme1n1p1", "259:3")
    machine.mount("/mnt/a", "/dev/nvme1n1p1", "259:3", filesystem)
    mount = at(machine)
    assert (mount.volume_ids, mount.stack.device) == ((ID_A,), "nvme1n1p1")
    assert mount.stack.layers == ("partition nvme1n1p1",)
    assert mount.stack.readahead_bytes == 128 * 1024  # a partition's queue is its disk's


def test_the_members_of_a_stripe_are_its_volumes(machine: FakeMachine) -> None:
    members = [machine.nvme("nvme1n1", "259:2", serial=A), machine.nvme("nvme2n1", "259:3", serial=B)]
    machine.array("md0", "9:0", members, level="raid0")
    machine.mount("/mnt/a", "/dev/md0", "9:0")
    assert at(machine).volume_ids == (ID_A, ID_B)
    assert at(machine).stack.layers == ("raid0 md0",)


def test_a_loop_device_is_of_the_disk_that_its_file_lies_on_and_may_cache(machine: FakeMachine) -> None:
    machine.loop("loop1", "7:1", "/var/a.img", direct=False)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    identity = at(machine)
    assert identity.root  # the file is on the system's own disk
    assert identity.stack.layers == ("loop loop1 on /var/a.img", "partition nvme0n1p1")
    (cache,) = identity.stack.caches
    assert cache == "loop1 reads /var/a.img through the page cache (direct I/O is off)"


def test_a_loop_device_with_direct_io_on_another_disk_hides_nothing(machine: FakeMachine) -> None:
    machine.nvme("nvme1n1", "259:2", serial=A)
    machine.mount("/data", "/dev/nvme1n1", "259:2")
    machine.loop("loop1", "7:1", "/data/a.img", direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    identity = at(machine)
    assert (identity.root, identity.stack.beneath, identity.stack.caches) == (False, {"nvme1n1"}, ())
    assert identity.stack.lowest == ("nvme1n1",)


@pytest.mark.parametrize(
    ("filesystem", "caches"),
    [
        ("tmpfs", "a tmpfs is memory"),
        ("zfs", "(ARC)"),
        ("overlay", "of an overlay"),
        ("fuse.s3", "FUSE"),
        ("ecryptfs", "what lies below ecryptfs"),
    ],
)
def test_a_loop_device_over_what_has_no_device_is_a_disk_of_its_own_and_caches(
    machine: FakeMachine, filesystem: str, caches: str
) -> None:
    machine.mount("/files", "none", "0:40", filesystem)
    machine.loop("loop1", "7:1", "/files/a.img", direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    stack = at(machine).stack
    assert (stack.names, stack.lowest) == ({"loop1"}, ("loop1",))
    (cache,) = stack.caches
    assert cache.startswith("/files: ")
    assert caches in cache


def test_loop_devices_on_one_another_end_at_the_disks_of_an_array(machine: FakeMachine) -> None:
    members = [machine.nvme("nvme1n1", "259:2", serial=A), machine.nvme("nvme2n1", "259:3", serial=B)]
    machine.array("md0", "9:0", members, level="raid1")
    machine.mount("/data", "/dev/md0", "9:0")
    machine.loop("loop1", "7:1", "/data/a.img", direct=True)
    machine.mount("/between", "/dev/loop1", "7:1")
    machine.loop("loop2", "7:2", "/between/b.img", direct=True)
    machine.mount("/mnt/a", "/dev/loop2", "7:2")
    assert at(machine).stack.lowest == ("nvme1n1", "nvme2n1")


@pytest.mark.parametrize(
    ("name", "filesystem", "cache"),
    [
        ("zram1", "xfs", "zram1 is memory"),
        ("ram0", "ext4", "ram0 is memory"),
        ("nbd0", "xfs", "what the process that serves nbd0 keeps cannot be seen"),
        ("ublkb12", "xfs", "what the process that serves ublkb12 keeps cannot be seen"),
        ("zd0", "ext4", "ZFS keeps blocks of zd0 in its own cache (ARC)"),
        ("sdb", "fuseblk", "/data: what a FUSE file system keeps in its process cannot be seen"),
    ],
)
def test_a_device_that_is_memory_or_a_process_is_named_at_any_depth(
    machine: FakeMachine, name: str, filesystem: str, cache: str
) -> None:
    machine.device(name, "250:1")
    machine.mount("/data", f"/dev/{name}", "250:1", filesystem)
    machine.loop("loop1", "7:1", "/data/a.img", direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    assert at(machine, "/data").stack.caches == (cache,)
    assert at(machine).stack.caches == (cache,)


@pytest.mark.parametrize(
    ("source", "link"),
    [
        ("/dev/mapper/vg-data", "dev/mapper/vg-data"),
        ("/dev/vg/data", "dev/vg/data"),
        ("/dev/mapper/vg-data", ""),  # where nobody makes links
    ],
)
def test_btrfs_on_lvm_is_looked_through(machine: FakeMachine, source: str, link: str) -> None:
    machine.loop("loop1", "7:1", "/var/a.img", direct=False)
    machine.array("dm-0", "253:0", ["sys/devices/virtual/loop1"], uuid="LVM-x")
    machine.write("sys/devices/virtual/dm-0/dm/name", "vg-data")
    machine.btrfs("0b0b", ["sys/devices/virtual/dm-0"])
    if link:
        machine.link(link, "dev/dm-0")
    machine.mount("/mnt/a", source, "0:45", "btrfs")
    identity = at(machine)
    assert identity.stack.device == "dm-0"
    assert identity.root  # the file is on the system's own disk
    assert identity.stack.caches == ("loop1 reads /var/a.img through the page cache (direct I/O is off)",)


def test_a_device_that_sysfs_does_not_have_is_not_said_to_be_without_caches(machine: FakeMachine) -> None:
    machine.mount("/mnt/a", "/dev/gone", "0:45", "btrfs")
    assert at(machine).stack.caches == ("/mnt/a: what lies below btrfs cannot be seen",)


@pytest.mark.parametrize("backing", ["/dev/nvme0n1p2", "/dev/mapper/vg-data"])
def test_a_loop_device_may_be_over_a_device(machine: FakeMachine, backing: str) -> None:
    machine.mount("/dev", "udev", "0:6", "devtmpfs")
    machine.partition("sys/devices/pci0/nvme/nvme0n1", "nvme0n1p2", "259:9")
    machine.array("dm-0", "253:0", ["sys/devices/pci0/nvme/nvme0n1/nvme0n1p2"], uuid="LVM-x")
    machine.write("sys/devices/virtual/dm-0/dm/name", "vg-data")
    machine.loop("loop1", "7:1", backing, direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    identity = at(machine)
    assert (identity.root, identity.stack.lowest, identity.stack.caches) == (True, ("nvme0n1",), ())


def test_a_file_of_memory_with_the_name_of_a_device_is_none(machine: FakeMachine) -> None:
    machine.mount("/dev/shm", "tmpfs", "0:7", "tmpfs")
    machine.loop("loop1", "7:1", "/dev/shm/nvme0n1", direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    assert at(machine).stack.caches == ("/dev/shm: a tmpfs is memory",)


def test_direct_io_on_what_btrfs_compressed_goes_through_the_page_cache(machine: FakeMachine) -> None:
    machine.btrfs("0b0b", [machine.nvme("nvme1n1", "259:2", serial=A)])
    machine.mount("/data", "/dev/nvme1n1", "0:45", "btrfs", of_super="rw,compress-force=zstd:3,subvol=/")
    machine.loop("loop1", "7:1", "/data/a.img", direct=True)
    machine.mount("/mnt/a", "/dev/loop1", "7:1")
    (cache,) = at(machine).stack.caches
    assert cache == "loop1 reads /data/a.img through the page cache (btrfs compresses it)"


def test_a_client_of_nfs_caches_only_with_a_local_disk(machine: FakeMachine) -> None:
    machine.mount("/mnt/n", "server:/", "0:41", "nfs4")
    machine.mount("/mnt/c", "server:/", "0:42", "nfs4", of_super="rw,vers=4.2,fsc")
    assert at(machine, "/mnt/n").stack.caches == ()
    assert at(machine, "/mnt/c").stack.caches == ("/mnt/c: nfs4 keeps files on a local disk (fsc)",)


def test_caches_of_bcache_lvm_and_zfs_are_named(machine: FakeMachine) -> None:
    disk = machine.nvme("nvme1n1", "259:2", serial=A)
    machine.array("bcache0", "252:0", [disk])
    machine.write(
        "sys/devices/virtual/bcache0/bcache/cache_mode", "[writethrough] writeback writearound none"
    )
    machine.mount("/mnt/a", "/dev/bcache0", "252:0")
    assert "loop" not in at(machine).stack.caches[0]
    assert at(machine).stack.caches[0].startswith("bcache0 is a bcache device")
    machine.array("dm-1", "253:1", [disk], uuid="LVM-x")
    machine.write("sys/devices/virtual/dm-1/dm/name", "vg-fast_cpool_cdata")
    machine.array("dm-0", "253:0", ["sys/devices/virtual/dm-1"], uuid="LVM-y")
    machine.mount("/mnt/b", "/dev/mapper/vg-data", "253:0")
    assert at(machine, "/mnt/b").stack.caches == ("dm-0 is a cached LVM volume (over vg-fast_cpool_cdata)",)
    machine.mount("/mnt/z", "tank/data", "0:50", "zfs")
    assert "ARC" in at(machine, "/mnt/z").stack.caches[0]


def test_what_dmsetup_made_of_several_devices_may_be_a_cache(machine: FakeMachine) -> None:
    disks = [machine.nvme(name, number) for name, number in (("nvme1n1", "259:2"), ("nvme2n1", "259:3"))]
    machine.array("dm-0", "253:0", disks)
    machine.write("sys/devices/virtual/dm-0/dm/uuid", "")
    machine.array("dm-1", "253:1", disks, uuid="LVM-x")
    machine.mount("/mnt/a", "/dev/mapper/cached", "253:0")
    machine.mount("/mnt/b", "/dev/mapper/vg-data", "253:1")
    (cache,) = at(machine).stack.caches
    assert cache == "dm-0 may be a dm-cache (over nvme1n1, nvme2n1), as no uuid says what made it"
    assert at(machine, "/mnt/b").stack.caches == ()


def test_a_mount_point_that_is_no_utf8_hides_no_other(machine: FakeMachine) -> None:
    machine.nvme("nvme1n1", "259:2", serial=A)
    machine.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    file = machine.roots.proc / "self" / "mountinfo"
    file.write_bytes(file.read_bytes() + b"99 1 0:77 / /home/\xff\xfe rw - fuse f rw\n")
    assert at(machine).volume_ids == (ID_A,)


def test_requests_wait_in_the_schedulers_of_a_stripes_disks(machine: FakeMachine) -> None:
    members = [machine.nvme("nvme1n1", "259:2", serial=A), machine.nvme("nvme2n1", "259:3", serial=B)]
    machine.array("md0", "9:0", members, level="raid0")
    machine.write("sys/devices/virtual/md0/queue/scheduler", "none")
    machine.write(f"{members[0]}/queue/scheduler", "none [mq-deadline]")
    machine.write(f"{members[1]}/queue/scheduler", "none")
    machine.mount("/mnt/a", "/dev/md0", "9:0")
    assert at(machine).stack.scheduler == "mq-deadline, none"


def test_lvm_over_encryption_over_partitions_leads_down_to_the_volumes(machine: FakeMachine) -> None:
    first, second = machine.nvme("nvme1n1", "259:2", serial=A), machine.nvme("nvme2n1", "259:3", serial=B)
    machine.partition(first, "nvme1n1p1", "259:4")
    machine.array("dm-1", "253:1", [f"{first}/nvme1n1p1"], uuid="CRYPT-LUKS2-0123-data")
    machine.array("dm-0", "253:0", ["sys/devices/virtual/dm-1", second], uuid="LVM-abcdef")
    machine.mount("/mnt/a", "/dev/mapper/vg-data", "253:0")
    assert at(machine).volume_ids == (ID_A, ID_B)
    assert at(machine).stack.layers == ("lvm dm-0", "crypt dm-1", "partition nvme1n1p1")


def test_btrfs_names_one_device_and_has_all_of_its_members(machine: FakeMachine) -> None:
    members = [machine.nvme("nvme1n1", "259:2", serial=A), machine.nvme("nvme2n1", "259:3", serial=B)]
    machine.btrfs("0b0b", members)
    machine.mount("/mnt/a", "/dev/nvme1n1", "0:45", "btrfs")
    assert at(machine).volume_ids == (ID_A, ID_B)
    assert at(machine).kind is Kind.EBS


def test_where_sysfs_has_no_serial_udevs_link_tells(machine: FakeMachine) -> None:
    node = machine.nvme("nvme1n1", "259:2")
    link = f"dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_{A}"
    machine.link(link, node)
    machine.link(f"{link}-ns-1-part1", node)  # of a partition: says nothing
    machine.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    assert at(machine).volume_ids == (ID_A,)
    assert at(machine).stack.disks[0].known_by.endswith(Path(link).name)


@pytest.mark.parametrize(
    ("disk", "partition", "mapped"),
    [
        ("xvdf", "", "/dev/sdf"),
        ("xvda", "xvda1", "/dev/xvda"),
        ("xvda1", "", "/dev/sda1"),
        ("sdg", "", "sdg"),
    ],
)
def test_a_xen_disk_is_known_by_the_instances_mapping(
    machine: FakeMachine, disk: str, partition: str, mapped: str
) -> None:
    node = machine.device(disk, "202:80")
    if partition:
        machine.partition(node, partition, "202:81")
    machine.mount("/mnt/a", f"/dev/{partition or disk}", "202:81" if partition else "202:80")
    mount = at(machine)
    assert (mount.kind, mount.volume_ids, mount.stack.disks[0].sort) == (Kind.DIRECTORY, (), Sort.XEN)
    assert with_mapping(mount, {"/dev/sdz": ID_B}).volume_ids == ()
    known = with_mapping(mount, {"/dev/sdz": ID_B, mapped: ID_A})
    assert (known.kind, known.volume_ids) == (Kind.EBS, (ID_A,))
    assert known.stack.disks[0].known_by == f"block-device mapping of {mapped}"


@pytest.mark.parametrize(
    "source",
    ["fs-0a1b2c3d.efs.us-east-1.amazonaws.com:/", "us-east-1a.fs-0a1b2c3d.efs.us-east-1.amazonaws.com:/x"],
)
def test_efs_is_known_by_its_name_and_reads_ahead_by_its_own_rule(machine: FakeMachine, source: str) -> None:
    machine.write("sys/class/bdi/0:45/read_ahead_kb", 15360)
    machine.mount("/mnt/a", source, "0:45", "nfs4", of_super="rw,vers=4.1,rsize=1048576")
    mount = at(machine)
    assert (mount.kind, mount.file_system_id, mount.name) == (Kind.EFS, "fs-0a1b2c3d", "fs-0a1b2c3d")
    assert mount.stack.readahead_bytes == 15360 * 1024
    assert mount.stack.disks == ()


def test_efs_through_the_tunnel_of_efs_utils_is_known_by_its_port(machine: FakeMachine) -> None:
    machine.write("run/efs/fs-0a1b2c3d.mnt.a.20049", "{}")
    machine.write("run/efs/fs-ffffffff.mnt.b.20050", "{}")
    machine.mount("/mnt/a", "127.0.0.1:/", "0:45", "nfs4", of_super="rw,vers=4.1,port=20049,addr=127.0.0.1")
    assert at(machine).file_system_id == "fs-0a1b2c3d"


def test_another_nfs_server_is_no_file_system_of_ours(machine: FakeMachine) -> None:
    machine.mount("/mnt/a", "nas.example.org:/export", "0:45", "nfs4", of_super="rw,port=2049")
    assert (at(machine).kind, at(machine).file_system_id) == (Kind.DIRECTORY, "")
    assert at(machine).name == "nas.example.org:/export"


@pytest.mark.parametrize(
    ("source", "vendor", "kind"),
    [
        ("10.0.3.17:/", "Amazon EC2", Kind.EFS),  # a mount target, most likely; which one is not known
        ("10.0.3.17:/", "QEMU", Kind.DIRECTORY),
        ("fs-0a1b2c3d.fsx.us-east-1.amazonaws.com:/vol", "Amazon EC2", Kind.DIRECTORY),  # FSx is no EFS
    ],
)
def test_an_nfs_server_without_the_name_of_efs_is_efs_by_its_address_on_ec2_alone(
    machine: FakeMachine, source: str, vendor: str, kind: Kind
) -> None:
    machine.write("sys/class/dmi/id/sys_vendor", vendor)
    machine.mount("/mnt/a", source, "0:45", "nfs4", of_super="rw,port=2049")
    assert (at(machine).kind, at(machine).file_system_id) == (kind, "")


def test_an_instance_store_is_no_volume(machine: FakeMachine) -> None:
    machine.nvme("nvme1n1", "259:2", serial="AWS1234567890ABCDEF", model=LOCAL_MODEL)
    machine.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    assert at(machine).stack.disks[0].sort is Sort.INSTANCE_STORE
    assert (at(machine).kind, at(machine).volume_ids) == (Kind.INSTANCE_STORE, ())


def test_a_stripe_over_a_volume_and_an_instance_store_is_neither(machine: FakeMachine) -> None:
    volume = machine.nvme("nvme1n1", "259:2", serial=A)
    local = machine.nvme("nvme2n1", "259:3", serial="AWS1234567890ABCDEF", model=LOCAL_MODEL)
    machine.array("md0", "9:0", [volume, local], level="raid0")
    machine.mount("/mnt/a", "/dev/md0", "9:0")
    assert at(machine).kind is Kind.DIRECTORY


def test_a_directory_of_the_systems_own_file_system_is_on_the_root_device(machine: FakeMachine) -> None:
    assert at(machine, "/var/data").root
    assert at(machine, "/var/data").volume_ids == ("vol-00000000000000000",)


def test_another_partition_of_the_systems_disk_is_on_the_root_device(machine: FakeMachine) -> None:
    machine.partition("sys/devices/pci0/nvme/nvme0n1", "nvme0n1p2", "259:9")
    machine.mount("/mnt/a", "/dev/nvme0n1p2", "259:9")
    assert at(machine).root


def test_in_a_container_nobody_knows_what_the_systems_disk_is(tmp_path: Path) -> None:
    inside = FakeMachine(tmp_path)
    inside.nvme("nvme1n1", "259:2", serial=A)
    inside.mount("/", "overlay", "0:30", "overlay")
    inside.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    assert at(inside).root is None


def test_a_path_on_no_mount_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="/mnt/a: on no mount"):
        at(FakeMachine(tmp_path))


def test_the_mounts_that_could_be_arms_are_listed_once_each(machine: FakeMachine) -> None:
    machine.nvme("nvme1n1", "259:2", serial=A)
    machine.mount("/mnt/a", "/dev/nvme1n1", "259:2")
    machine.mount("/bind", "/dev/nvme1n1", "259:2", root="/elasticsearch")
    machine.nvme("nvme2n1", "259:3", serial=B)
    machine.mount("/mnt/b", "/dev/nvme2n1", "259:3", options="ro,noatime")  # cannot be an arm
    machine.mount("/run", "tmpfs", "0:22", "tmpfs")
    machine.mount("/mnt/efs", "fs-0a1b2c3d.efs.eu-west-1.amazonaws.com:/", "0:45", "nfs4")
    points = {str(one.mount_point): one.root for one in candidates(machine.roots)}
    assert points == {"/": True, "/mnt/a": False, "/mnt/efs": False}


@pytest.mark.parametrize(
    ("serial", "volume"),
    [(A, ID_A), ("vol1a2b3c4d", "vol-1a2b3c4d"), (ID_A, ID_A), ("AWS12345", ""), ("", ""), ("vol12345", "")],
)
def test_a_serial_is_a_volume_id_without_its_dash(serial: str, volume: str) -> None:
    assert volume_id(serial) == volume


def test_the_firmware_says_whether_this_is_ec2(machine: FakeMachine) -> None:
    assert machine.roots.on_ec2()
    machine.write("sys/class/dmi/id/sys_vendor", "QEMU")
    assert not machine.roots.on_ec2()
    machine.write("sys/hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef")
    assert machine.roots.on_ec2()


def test_nothing_of_identity_needs_boto3() -> None:
    code = "import sys, esrally_ebs.aws.identity, esrally_ebs.aws.clients; sys.exit('boto3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
