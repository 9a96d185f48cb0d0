"""A request under observation: one event with the counters before and after it, or none when it fails."""

import asyncio
from pathlib import Path

import pytest

from esrally_ebs.causes import windows
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.rally.observation import Pace, observe
from esrally_ebs.store import SessionFolder

# A directory has no device and no limiters: what is seen here is the event itself.
NOWHERE = Volume(
    spec=VolumeSpec(name="gp2", type="directory", size_bytes=0), kind=Kind.DIRECTORY, mount=Path("/mnt")
)
OURS = {"arm": "gp2", "task": "big_range", "round": 3, "phase": "measure"}


async def request(folder: SessionFolder, *, fails: bool = False) -> None:
    async with observe(NOWHERE, folder, OURS):
        await asyncio.sleep(0.01)
        if fails:
            raise ConnectionError("the node has died")


def test_a_request_is_one_window_of_its_block_as_long_as_it_took(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan={})

    asyncio.run(request(folder))

    (window,), broken = windows(folder.events())
    assert (window.arm, window.task, window.round, window.requests) == ("gp2", "big_range", 3, 1)
    assert window.seconds >= 0.01
    assert broken == 0


def test_a_request_that_fails_leaves_no_window_and_its_error_as_it_is(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="race", plan={})

    with pytest.raises(ConnectionError, match="the node has died"):
        asyncio.run(request(folder, fails=True))

    assert folder.events() == ()


def test_every_cold_request_is_due_and_of_warm_ones_only_some() -> None:
    pace = Pace()

    assert [pace.is_due(every=True) for _ in range(3)] == [True] * 3
    assert [Pace().is_due(every=False), pace.is_due(every=False)] == [True, False]
