"""What the kernel writes under /proc and in a cgroup: recorded lines, this machine's own, and broken ones."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.errors import FormatError
from esrally_ebs.machine.procfs import (
    DiskCounters,
    Mapping,
    MemoryCounters,
    parse_diskstats,
    parse_maps,
    parse_memory_stat,
    parse_mountinfo,
    processor_counters,
)

MOUNTINFO = (
    "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n"
    "41 36 7:3 / /run/es\\040data\\134x rw - xfs /dev/loop3 ro,attr2,inode64\n"
    "42 36 0:44 / /run/bare rw,relatime - tmpfs tmpfs rw\n"
)
DISKSTATS = (
    "   7       3 loop3 120 5 4096 60 30 2 1024 45 4 90 105 1 0 8 2 6 1\n"
    " 254       0 vda 1 0 8 1 2 0 16 3 0 4 5\n"
)
MAPS = (
    "7f00a0000000-7f00b0000000 r--s 10000000 07:03 131 /usr/share/elasticsearch/data/_0 a.cfs\n"
    "7f00c0000000-7f00c0001000 rw-p 00000000 00:00 0 \n"
    "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
)
# cgroup v1 puts the group's own figures before those that include the groups below.
MEMORY_V1 = (
    "cache 10\nrss 20\nmapped_file 5\npgmajfault 2\nhierarchical_memory_limit 9223372036854771712\n"
    "total_cache 1000\ntotal_rss 2000\ntotal_mapped_file 500\ntotal_pgmajfault 7\n"
)
MEMORY_V2 = "anon 2000\nfile 1000\nkernel_stack 16\nfile_mapped 500\nfile_dirty 0\npgfault 99\npgmajfault 7\n"


def all_maps(text: str, source: str) -> list[Mapping]:
    return parse_maps(
        text, source, {int(words[4]) for line in text.split("\n") if len(words := line.split()) > 4}
    )


def test_a_mount_with_optional_fields_and_one_without() -> None:
    root, data, bare = parse_mountinfo(MOUNTINFO, "mountinfo")

    assert (root.device_number, root.root) == ("98:0", "/mnt1")
    assert (root.options, root.filesystem, root.source) == ("rw,noatime", "ext3", "/dev/root")
    assert (data.source, data.super_options) == ("/dev/loop3", "ro,attr2,inode64")
    assert bare.mount_point == Path("/run/bare")


def test_escapes_in_a_mount_point_are_decoded() -> None:
    # \040 is a space and \134 a backslash.
    assert parse_mountinfo(MOUNTINFO, "mountinfo")[1].mount_point == Path("/run/es data\\x")


def test_a_mount_is_read_only_when_it_or_its_file_system_is() -> None:
    assert [mount.read_only for mount in parse_mountinfo(MOUNTINFO, "mountinfo")] == [False, True, False]
    assert parse_mountinfo(MOUNTINFO.replace("rw,noatime", "ro"), "mountinfo")[0].read_only


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_mount_point_survives_the_kernels_escapes(name: str) -> None:
    mount_point = "/" + name
    escaped = "".join(f"\\{ord(c):03o}" if c in " \t\n\\#" else c for c in mount_point)

    (mount,) = parse_mountinfo(f"1 0 8:1 / {escaped} rw - ext4 /dev/sda1 rw", "mountinfo")

    assert mount.mount_point == Path(mount_point)


def test_counters_are_in_bytes_and_seconds() -> None:
    # Sectors are of 512 bytes and times in ms: 4096 sectors read in 60 ms, 1024 written in 45 ms.
    assert parse_diskstats(DISKSTATS, "diskstats")["loop3"] == DiskCounters(
        device="loop3",
        reads=120,
        read_bytes=4096 * 512,
        read_s=0.060,
        writes=30,
        written_bytes=1024 * 512,
        write_s=0.045,
        in_flight=4,
        weighted_s=0.105,
    )


def test_an_old_kernel_writes_fewer_fields() -> None:
    assert parse_diskstats(DISKSTATS, "diskstats")["vda"].written_bytes == 16 * 512


def test_of_many_mappings_those_of_some_files_are_had() -> None:
    (mapped,) = parse_maps(MAPS, "maps", {131, 7})

    assert (mapped.start, mapped.length) == (0x7F00A0000000, 0x10000000)
    with pytest.raises(FormatError, match=r"^maps:4: '7f00'"):
        parse_maps(f"{MAPS}7f00\n", "maps", {131})


@pytest.mark.parametrize("text", [MEMORY_V1, MEMORY_V2], ids=["v1", "v2"])
def test_both_versions_of_a_cgroup_give_the_same_figures(text: str) -> None:
    assert parse_memory_stat(text, "memory.stat") == MemoryCounters(
        cache_bytes=1000, rss_bytes=2000, mapped_file_bytes=500, major_faults=7
    )


@pytest.mark.parametrize(
    ("parse", "path"),
    [
        (parse_mountinfo, "/proc/self/mountinfo"),
        (parse_diskstats, "/proc/diskstats"),
        (all_maps, "/proc/self/maps"),
    ],
    ids=["mountinfo", "diskstats", "maps"],
)
def test_this_machines_own_text_is_understood(parse: Callable[[str, str], Any], path: str) -> None:
    text = Path(path).read_text()

    assert len(parse(text, path)) == len(text.splitlines())


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_mountinfo, "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 ext3 /dev/root rw"),
        (parse_mountinfo, "36 35 98:0 - ext3 /dev/root rw"),
        (parse_mountinfo, "a b 98:0 / / rw - ext3 /dev/root rw"),
        (parse_diskstats, "7 3 loop3 120 5 4096"),
        (parse_diskstats, "7 3 loop3 120 5 4096 60 30 2 -1 45 4 90 105"),
        (all_maps, "7f00a0000000 r--s 10000000 07:03 131 /data"),
        (parse_memory_stat, "cache"),
    ],
)
def test_a_broken_line_is_named_with_its_number(parse: Callable[[str, str], Any], text: str) -> None:
    with pytest.raises(FormatError, match=r"^proc:1: '.*' is not a line of .*; give "):
        parse(text, "proc")


def test_a_memory_stat_of_another_controller_is_refused() -> None:
    with pytest.raises(FormatError, match=r"cpu.stat: has neither total_cache.*is it memory.stat\?"):
        parse_memory_stat("usage_usec 5\n", "cpu.stat")


def test_busy_is_all_but_idle_waiting_and_stolen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    seconds = dict(zip(kinds, (100, 20, 30, 4000, 500, 6, 7, 80, 9, 10), strict=True))
    monkeypatch.setattr("psutil.cpu_times", lambda: SimpleNamespace(**seconds))

    times = processor_counters()

    assert times.busy_s == 100 + 20 + 30 + 6 + 7
    assert times.stolen_s == 80
    assert times.total_s == 143 + 20 + 4000 + 500 + 80  # guests are users' time


def test_this_machines_own_processor_time_is_understood() -> None:
    times = processor_counters()

    assert times.busy_s > 0
    assert times.stolen_s >= 0
