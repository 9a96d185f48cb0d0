"""What merging saves a sequential I/O that waits for a place in the queue: on a device, in virtual time."""

import heapq
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.emulated.daemon.admission import Admission
from esrally_ebs.volumes.emulated.law.queue import MERGED, QUEUE, Queue, places, saved_of
from esrally_ebs.volumes.fio import parse_fio
from esrally_ebs.volumes.virtual import SimulatedVolume

GIB, KIB, MIB = 1024**3, 1024, 1024**2
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB, throughput_bytes_per_s=500 * MIB)
BLOCK = 64 * KIB


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        ("gp3", {}, 32),
        ("gp3", {"iops": 16_000, "stripes": 3}, 96),
        ("io2", {"iops": 256_000}, 256),
        ("st1", {}, 32),
    ],
)
def test_a_volume_holds_32_requests_or_one_for_each_thousand_iops(
    type_: str, fields: dict[str, int], expected: int
) -> None:
    spec = VolumeSpec(**{"name": "v", "type": type_, "size_bytes": 1000 * GIB} | fields)
    assert places(model_for(spec)) == expected


@pytest.mark.parametrize(
    ("size", "merge_over", "expected"),
    [
        (16 * KIB, -1, MERGED),
        (BLOCK, -1, MERGED),
        (192 * KIB, -1, 0.25),  # two of them would be more than one I/O may be
        (256 * KIB, -1, 0.0),
        (1 * MIB, -1, 0.0),
        (BLOCK, 0, 0.0),  # HDD types count by bytes what is sequential
    ],
)
def test_as_much_is_saved_as_fits_into_one_io(size: int, merge_over: int, expected: float) -> None:
    assert saved_of(size, 256 * KIB, merge_over) == expected


@pytest.mark.parametrize(
    ("before", "in_flight", "write", "saves"),
    [
        ([0], QUEUE, True, True),
        ([0], QUEUE - 1, True, False),  # there is a place
        ([0], QUEUE, False, False),  # reads do not join writes
        ([2 * BLOCK], QUEUE, True, False),  # not the next one
        ([0, *range(10 * BLOCK, (10 + QUEUE - 1) * BLOCK, BLOCK)], QUEUE, True, True),
        ([0, *range(10 * BLOCK, (10 + QUEUE) * BLOCK, BLOCK)], QUEUE, True, False),  # long ago
    ],
)
def test_who_waits_beside_the_one_before_is_merged(
    before: list[int], in_flight: int, write: bool, saves: bool
) -> None:
    queue = Queue(model_for(GP3))
    for offset in before:
        queue.saved(offset, BLOCK, 0, write=True)
    assert queue.saved(BLOCK, BLOCK, in_flight, write=write) == (MERGED if saves else 0.0)


@given(st.lists(st.integers(0, 1000).map(lambda block: 2 * block * BLOCK), max_size=200))
def test_requests_with_a_gap_between_them_are_never_merged(offsets: list[int]) -> None:
    queue = Queue(model_for(GP3))
    assert not any(queue.saved(offset, BLOCK, 1000, write=True) for offset in offsets)


@pytest.mark.parametrize("depth", [8, 64])
@pytest.mark.parametrize("rw", ["write", "randwrite", "readwrite"])
def test_the_daemons_admission_lets_as_much_through_as_virtual_time(rw: str, depth: int) -> None:
    job = BaselineJob(
        name="log", rw=rw, bs=BLOCK, iodepth=depth, numjobs=1, engine="libaio", size=4 * GIB, runtime=20.0
    )
    virtual = parse_fio(SimulatedVolume(GP3).run(job, compiled=False), "simulated")
    admitted = _admitted(depth, 20.0, stride=3 if rw == "randwrite" else 1, reads=rw == "readwrite")
    assert admitted == pytest.approx(sum(one.bandwidth_bytes_per_s for one in virtual), rel=0.03)


def _admitted(depth: int, seconds: float, *, stride: int, reads: bool) -> float:
    """Bytes a second of a client that keeps ``depth`` I/Os in flight, half of them reads if asked for."""
    model = model_for(GP3)
    settings = {"model": model.to_json(), "seed": 1, "credits": 1.0, "time_scale": 1.0, "instance_page": None}
    admission = Admission(settings, 0.0)
    toss = random.Random(1)
    flying: list[float] = []
    blocks = [0, 0]  # of reads, of writes: fio goes through the file with each
    now = 0.0
    while now < seconds:
        if len(flying) == depth:
            now = heapq.heappop(flying)
        write = not reads or toss.random() < 0.5
        offset = blocks[write] * stride * BLOCK
        blocks[write] += 1
        _, due, _ = admission.schedule(offset, BLOCK, now, write=write, in_flight=len(flying))
        heapq.heappush(flying, due)
    return sum(blocks) * BLOCK / seconds
