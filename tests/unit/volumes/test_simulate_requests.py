"""Virtual time: how an I/O is split into requests, by its type's largest and by the chunks of a stripe."""

import pytest

from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.fio import FioDirection, parse_fio
from esrally_ebs.volumes.virtual import SimulatedVolume, check_room

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def run(spec: VolumeSpec, *, bs: int, iodepth: int, numjobs: int, size: int) -> FioDirection:
    job = BaselineJob(
        name="job", rw="randread", bs=bs, engine="libaio", iodepth=iodepth, numjobs=numjobs, size=size
    )
    (reads,) = parse_fio(SimulatedVolume(spec).run(job, compiled=False), "simulated")
    return reads


def test_a_mebibyte_is_one_request_of_a_type_whose_ios_are_that_large() -> None:
    # 1 TiB of st1 bursts at 250 MiB/s and has one second saved up: 1024 MiB take (1024 - 250) / 250 = 3.1 s
    reads = run(
        VolumeSpec(name="st1", type="st1", size_bytes=1024 * GIB), bs=MIB, iodepth=8, numjobs=1, size=GIB
    )
    assert reads.iops == pytest.approx(1024 / (774 / 250), rel=0.01)


@pytest.mark.parametrize(
    ("chunk", "block", "iodepth", "numjobs"),
    [
        (4 * KIB, MIB, 1, 1),
        (64 * KIB, MIB, 16, 1),
        (64 * KIB, MIB, 64, 8),
        (260 * KIB, 1300 * KIB, 64, 8),  # two requests of each chunk
        (4 * KIB, 301 * KIB, 64, 8),  # begins within a chunk
    ],
)
def test_an_io_may_cover_many_chunks(chunk: int, block: int, iodepth: int, numjobs: int) -> None:
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=500 * GIB, stripes=2, chunk_bytes=chunk)
    reads = run(spec, bs=block, iodepth=iodepth, numjobs=numjobs, size=4 * block)
    assert reads.ios == 4 * numjobs


@pytest.mark.parametrize(
    ("type_", "iops", "throughput"), [("io2", 256_000, None), ("gp3", 80_000, 2000 * MIB)]
)
def test_the_queue_of_a_fast_volume_holds_what_its_iops_need(
    type_: str, iops: int, throughput: int | None
) -> None:
    # 32 in flight at 0.28 ms (io2) and 0.5 ms (gp3) would be 114,000 and 64,000 a second
    spec = VolumeSpec(
        name="fast", type=type_, size_bytes=1024 * GIB, iops=iops, throughput_bytes_per_s=throughput
    )
    reads = run(spec, bs=16 * KIB, iodepth=64, numjobs=16, size=16 * 1000 * KIB)
    assert reads.iops > iops


def test_chance_is_not_the_same_again_for_every_io_that_is_cut_into_many_requests() -> None:
    # each I/O lasts as long as the slowest of its 256 requests; with other draws for each that differs
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=500 * GIB, stripes=2, chunk_bytes=4 * KIB)
    reads = run(spec, bs=MIB, iodepth=1, numjobs=1, size=16 * MIB)
    assert reads.p999_s > reads.p50_s


def test_the_clones_of_a_job_have_one_file_as_on_devices() -> None:
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=GIB)
    job = BaselineJob(name="job", rw="read", bs=MIB, numjobs=3, size=512 * MIB)
    check_room(job, spec)
    (reads,) = parse_fio(SimulatedVolume(spec).run(job, compiled=False), "simulated")
    assert reads.ios == 3 * 512
    text = r"baseline job: 2\.0 GiB do not fit on arm gp3 of 1\.0 GiB; lower size"
    with pytest.raises(PlanError, match=text):
        check_room(job.model_copy(update={"size": 2 * GIB}), spec)
