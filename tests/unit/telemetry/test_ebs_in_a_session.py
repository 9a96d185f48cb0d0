"""EBS statistics where a session wants them: in the rows of each second, and around a request."""

import asyncio
import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_machine import LOCAL_MODEL, FakeMachine
from small_plan import small_plan

from esrally_ebs.analysis.profile import profiles_of, read_windows
from esrally_ebs.aws.ebs_statistics import COMMAND, StatisticsReader
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.caller import KEEPER, Caller
from esrally_ebs.model import Block, Event, Kind, Volume, VolumeSpec, Work
from esrally_ebs.session.keeper import KeeperService, bound, read_page
from esrally_ebs.session.root_steps import RootSteps
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Member
from esrally_ebs.telemetry import sources
from esrally_ebs.telemetry.observation import observe
from esrally_ebs.telemetry.sampler import CUT, Sampler, Watch

MAGIC = {4096: 0x3C23B510, 8192: 0xEC2C0D7E}  # of a page by its length: EBS, instance store
# the eleven counters of a page in their order, and the metric that tells of each
METRICS = (
    "ebs.reads",
    "ebs.writes",
    "ebs.read_bytes",
    "ebs.write_bytes",
    "ebs.read_time_s",
    "ebs.write_time_s",
    "ebs.exceeded_s.iops",
    "ebs.exceeded_s.throughput",
    "ebs.exceeded_s.instance-iops",
    "ebs.exceeded_s.instance-throughput",
    "ebs.queue_length",
)
STEP = 1_000_000  # what counter n has grown by, times n + 1, whenever the page is read
LIMITS = METRICS[6:10]


class Disk:
    """A kernel under a device whose counters grow with every page that is read."""

    def __init__(self) -> None:
        self.pages = 0

    def ioctl(self, descriptor: int, request: int, command: bytearray) -> int:
        address, length = (COMMAND.unpack(command)[at] for at in (7, 9))
        self.pages += 1
        counters = [self.pages * STEP * (at + 1) for at in range(len(METRICS))]
        page = struct.pack("<II11Q", MAGIC[length], 1, *counters).ljust(length, b"\0")
        ctypes.memmove(address, page, length)
        return 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(sources, "StatisticsReader", partial(StatisticsReader, ioctl=made.ioctl))
    return made


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    made = FakeMachine(tmp_path / "machine")
    made.nvme("nvme71n1", "259:2", serial="vol0123456789abcdef0")
    made.nvme("nvme72n1", "259:3", serial="AWS0123456789ABCDEF0", model=LOCAL_MODEL)
    made.device("loop3", "7:3")
    for name, number in (("nvme71n1", "259:2"), ("nvme72n1", "259:3"), ("loop3", "7:3")):
        made.mount(str(tmp_path / name), f"/dev/{name}", number)
        (made.roots.dev / name).touch()
    monkeypatch.setattr(sources, "Roots", lambda: made.roots)
    return made


def arm(tmp_path: Path, device: str) -> Volume:
    spec = VolumeSpec(name="gp3", type="mounted", size_bytes=1)
    return Volume(spec=spec, kind=Kind.EBS, mount=tmp_path / device, device=device)


def no_socket(path: Path) -> object:
    raise AssertionError(f"{path}: a real volume has no control socket")


def diskstats(path: Path) -> str:
    return "".join(f"259 0 {name}{' 0' * 17}\n" for name in ("nvme71n1", "nvme72n1", "loop3"))


def sampler(volume: Volume) -> Sampler:
    return Sampler([(volume, None)], read_state=no_socket, read_text=diskstats, read_page=read_page())


@pytest.mark.parametrize("device", ["nvme71n1", "nvme72n1"])
def test_the_rows_of_a_second_have_what_the_disk_tells_of_itself(
    machine: FakeMachine, disk: Disk, tmp_path: Path, device: str
) -> None:
    sampling = sampler(arm(tmp_path, device))
    first = {point.metric: point for point in sampling.sample()}
    assert {name for name in first if name.startswith("ebs.")} == {*LIMITS, "ebs.queue_length"}

    second = {point.metric: point for point in sampling.sample()}

    of_ebs = {name: point.value for name, point in second.items() if name.startswith("ebs.")}
    grown = {name: (at + 1) * STEP for at, name in enumerate(METRICS[:4])}
    took_s = {"ebs.read_time_s": 5.0, "ebs.write_time_s": 6.0}  # the page counts in us
    exceeded_s = {name: 2 * (7.0 + at) for at, name in enumerate(LIMITS)}  # this alone since it was attached
    queue = {"ebs.queue_length": 2 * STEP * 11}
    assert of_ebs == pytest.approx({**grown, **took_s, **exceeded_s, **queue})
    assert {(point.arm, point.device) for point in second.values()} == {("gp3", device)}
    assert second["ebs.exceeded_s.iops"].unit == "s"
    assert second[CUT].value == 0


def test_a_disk_that_has_no_statistics_has_no_such_rows(
    machine: FakeMachine, disk: Disk, tmp_path: Path
) -> None:
    rows = [point.metric for point in sampler(arm(tmp_path, "loop3")).sample()]
    assert CUT in rows
    assert not any(name.startswith("ebs.") for name in rows)
    assert disk.pages == 0


def test_a_disk_that_lost_its_device_is_one_missing_source(
    machine: FakeMachine, disk: Disk, tmp_path: Path
) -> None:
    (machine.roots.dev / "nvme71n1").unlink()
    (cut,) = [point.value for point in sampler(arm(tmp_path, "nvme71n1")).sample() if point.metric == CUT]
    assert cut == 1


def test_a_limit_that_holds_an_arm_back_is_an_event_by_its_name(
    machine: FakeMachine, disk: Disk, tmp_path: Path
) -> None:
    watch, sampling = Watch(), sampler(arm(tmp_path, "nvme71n1"))
    assert watch.look(sampling.sample()) == []
    events = watch.look(sampling.sample())
    assert {event.fields["limit"] for event in events} == {
        "iops",
        "throughput",
        "instance-iops",
        "instance-throughput",
    }


def observed(tmp_path: Path, device: str) -> tuple[Event, ...]:
    folder = SessionFolder.create(tmp_path / "home", "s", kind="race", plan=small_plan())
    block = Block(arm="gp3", cluster="gp3", work=Work.SEARCH, task="search", round=0)

    async def request() -> None:
        members = [Member(volume=arm(tmp_path, device))]
        async with observe(members, folder, block, read_page=read_page()):
            await asyncio.sleep(0)

    asyncio.run(request())
    return folder.events()


def test_a_request_is_told_how_long_each_limit_was_exceeded_during_it(
    machine: FakeMachine, disk: Disk, tmp_path: Path
) -> None:
    events = observed(tmp_path, "nvme71n1")
    (event,) = events
    for side in ("begin", "end"):  # growth is between two pages of the telemetry, and not of a request's
        assert {name for name in event.fields[side] if name.startswith("ebs.")} == set(LIMITS)
    windows, broken = read_windows(events)
    assert broken == 0
    exceeded_s = profiles_of(windows)["search", "gp3"][0].exceeded_s
    assert exceeded_s == pytest.approx(
        {"iops": 7.0, "throughput": 8.0, "instance-iops": 9.0, "instance-throughput": 10.0}
    )


def test_a_request_on_a_disk_without_statistics_has_none_and_is_still_told(
    machine: FakeMachine, disk: Disk, tmp_path: Path
) -> None:
    (event,) = observed(tmp_path, "loop3")
    assert disk.pages == 0
    assert not any(name.startswith("ebs.") for name in event.fields["end"])


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[RootSteps]:
    """Those of a keeper, whom this process asks as the processes of a user do who called by sudo."""
    made = RootSteps(Caller(os.geteuid(), os.getegid(), "user", "/nonexistent"))
    listener, address = bound()
    with listener:
        service = KeeperService(made, os.geteuid())
        threading.Thread(target=service.listen, args=(listener,), daemon=True).start()
        monkeypatch.setenv(KEEPER, address)
        yield made
        listener.shutdown(socket.SHUT_RDWR)


def test_by_sudo_the_keeper_reads_what_a_disk_tells_of_itself(
    machine: FakeMachine, disk: Disk, tmp_path: Path, steps: RootSteps
) -> None:
    steps._volumes["gp3"] = arm(tmp_path, "nvme71n1")
    (machine.roots.dev / "nvme71n1").rename(tmp_path / "roots")  # no others' than the keeper's
    steps._readers["gp3"] = [sources.StatisticsReader(tmp_path / "roots")]
    rows = {point.metric: point.value for point in sampler(arm(tmp_path, "nvme71n1")).sample()}
    assert (rows["ebs.exceeded_s.iops"], rows[CUT]) == (7.0, 0)
    (event,) = observed(tmp_path, "nvme71n1")
    assert [event.fields[end]["ebs.exceeded_s.iops"] for end in ("begin", "end")] == [14, 21]
    steps.take_down()
    assert disk.pages == 3


@pytest.mark.parametrize(
    ("name", "number", "why"),
    [
        ("gp3", 1, "arm gp3: has no disk 1 with EBS statistics"),
        ("gp3", -1, "arm gp3: has no disk -1 with EBS statistics"),
        ("loop", 0, "arm loop: has no disk 0 with EBS statistics"),
        ("nvme72n1", 0, "arm nvme72n1: is none of this session"),
        ("../../dev/nvme72n1", 0, "arm ../../dev/nvme72n1: is none of this session"),
    ],
)
def test_by_sudo_only_disks_of_the_session_s_arms_are_read(
    machine: FakeMachine, disk: Disk, tmp_path: Path, steps: RootSteps, name: str, number: int, why: str
) -> None:
    steps._volumes.update(gp3=arm(tmp_path, "nvme71n1"), loop=arm(tmp_path, "loop3"))
    ask = read_page()
    assert ask is not None
    with pytest.raises(SetupError, match=why):
        ask(name, number)
    assert ask("gp3", 0).counters["total_read_ops"] == STEP
