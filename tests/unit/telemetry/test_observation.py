"""A request under observation: one event with the counters before and after it, or none when it fails."""

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from small_plan import small_plan

from esrally_ebs.analysis.profile import read_windows
from esrally_ebs.model import Block, Kind, Volume, VolumeSpec, Work
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Member
from esrally_ebs.telemetry import observation
from esrally_ebs.telemetry.observation import ObservationInterval, observe

# A directory has no device and no limiters: what is seen here is the event itself.
NOWHERE = Volume(
    spec=VolumeSpec(name="gp2", type="directory", size_bytes=0), kind=Kind.DIRECTORY, mount=Path("/mnt")
)
BLOCK = Block(arm="gp2", cluster="default", work=Work.SEARCH, task="big_range", round=3)


async def request(folder: SessionFolder, *, fails: bool = False) -> None:
    async with observe([Member(volume=NOWHERE)], folder, BLOCK):
        await asyncio.sleep(0.01)
        if fails:
            raise ConnectionError("the node has died")


def test_a_request_is_one_window_of_its_block_as_long_as_it_took(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())

    asyncio.run(request(folder))

    (window,), broken = read_windows(folder.events())
    assert (window.arm, window.task, window.round, window.requests) == ("gp2", "big_range", 3, 1)
    assert window.seconds >= 0.01
    assert broken == 0


def test_a_request_that_fails_leaves_no_window_and_its_error_as_it_is(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())

    with pytest.raises(ConnectionError, match="the node has died"):
        asyncio.run(request(folder, fails=True))

    assert folder.events() == ()


class Disk:
    """A device in a file like /proc/diskstats."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = file
        monkeypatch.setattr(observation, "DISKSTATS", file)

    def has_done(self, reads: int, *, in_flight: int) -> None:
        self._file.write_text(f"7 3 loop3 {reads} 0 {8 * reads} 0 0 0 0 0 {in_flight} 0 0\n")

    async def goes_on(self, reads: int, *, in_flight: int) -> None:
        """As ``has_done``, as soon as somebody else waits."""
        self.has_done(reads, in_flight=in_flight)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A device that has read ten times."""
    made = Disk(tmp_path / "diskstats", monkeypatch)
    made.has_done(10, in_flight=0)
    return made


def observed(
    folder: SessionFolder, disk: Disk, *, at_its_end: int, later: tuple[int, int]
) -> Mapping[str, float]:
    """The counters after a request that leaves so many reads in flight; ``later``: reads, and in flight."""

    async def run() -> None:
        async with observe([Member(volume=replace(NOWHERE, device="loop3"))], folder, BLOCK):
            disk.has_done(13, in_flight=at_its_end)
            rest = asyncio.create_task(disk.goes_on(later[0], in_flight=later[1]))
        await rest

    asyncio.run(run())
    (event,) = folder.events()
    assert event.fields["begin"]["device.reads"] == 10
    end: Mapping[str, float] = event.fields["end"]
    return end


@pytest.mark.parametrize(
    ("at_its_end", "later", "counted"),
    [
        pytest.param(2, (15, 0), (15, 0), id="waited for and counted"),
        pytest.param(0, (99, 0), (13, 0), id="at rest: what comes later is of the request after it"),
        pytest.param(2, (14, 1), (14, 1), id="given up after some milliseconds"),
    ],
)
def test_what_is_in_flight_at_a_requests_end_is_waited_for_a_while(
    at_its_end: int, later: tuple[int, int], counted: tuple[int, int], tmp_path: Path, disk: Disk
) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    end = observed(folder, disk, at_its_end=at_its_end, later=later)
    assert (end["device.reads"], end["device.in_flight"]) == counted


def test_processors_that_work_on_while_reads_end_do_not_count_for_the_request(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    looks = [
        {"device.in_flight": in_flight, "device.reads": reads, "node.processor_s": processor_s}
        for in_flight, reads, processor_s in ((0.0, 10.0, 5.0), (2.0, 12.0, 5.1), (0.0, 14.0, 5.9))
    ]

    async def observed() -> None:
        async with observe([Member(volume=NOWHERE)], folder, BLOCK, counters=lambda: [looks.pop(0)]):
            await asyncio.sleep(0.01)

    asyncio.run(observed())
    (window,), _ = read_windows(folder.events())
    assert window.grown == {"device.reads": 4.0, "node.processor_s": pytest.approx(0.1)}


def test_other_clients_go_on_while_counters_are_on_their_way(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    goes_on = threading.Event()

    def counters() -> list[dict[str, float]]:
        assert goes_on.wait(10)  # for ever, where the loop waits for this
        goes_on.clear()
        return [{"device.reads": 1.0}]

    async def observed() -> None:
        async with observe([Member(volume=NOWHERE)], folder, BLOCK, counters=counters):
            pass

    async def both() -> None:
        mine = asyncio.create_task(observed())
        while not mine.done():
            goes_on.set()
            await asyncio.sleep(0.001)
        await mine

    asyncio.run(both())
    assert len(folder.events()) == 1


def test_every_cold_request_is_due_and_of_warm_ones_only_some() -> None:
    interval = ObservationInterval()

    assert [interval.is_over(every=True) for _ in range(3)] == [True] * 3
    assert [ObservationInterval().is_over(every=False), interval.is_over(every=False)] == [True, False]


def test_counters_of_several_nodes_are_added_up_and_each_ones_own_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan=small_plan())
    values = {"gp2-1": {"device.reads": 2.0, "processor.busy_s": 7.0}, "gp2-2": {"device.reads": 3.0}}
    values["gp2-2"] |= {"processor.busy_s": 7.0, "ebs.exceeded_s.iops": 1.0}
    monkeypatch.setattr(observation, "snapshot", lambda volume, **_: values[volume.spec.name])
    members = [Member(volume=replace(NOWHERE, spec=replace(NOWHERE.spec, name=name))) for name in values]

    async def run() -> None:
        async with observe(members, folder, BLOCK):
            pass

    asyncio.run(run())
    (event,) = folder.events()
    assert event.fields["begin"] == {"device.reads": 5.0, "processor.busy_s": 7.0}
    assert event.fields["nodes"]["gp2-2"]["end"] == values["gp2-2"]
