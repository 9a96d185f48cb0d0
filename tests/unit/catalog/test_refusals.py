"""Whatever volume is asked for, with whatever job: refused with a reason, or within its limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.catalog.generations import volume_types
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.fio import parse_fio
from esrally_ebs.volumes.virtual import SimulatedVolume

KIB, MIB, GIB = 1024, 1024**2, 1024**3

specs = st.builds(
    VolumeSpec,
    name=st.just("a"),
    type=st.sampled_from([*volume_types(), "magnetic", "io2-block-express"]),
    size_bytes=st.sampled_from([1, 33, 100, 170, 171, 333, 334, 500, 1000, 5334, 16_384, 65_536]).map(
        lambda gib: gib * GIB
    ),
    iops=st.sampled_from([None, 100, 3000, 16_000, 80_000, 256_000]),
    throughput_bytes_per_s=st.sampled_from([None, MIB, 125 * MIB, 1000 * MIB, 4000 * MIB]),
    encrypted=st.booleans(),
    credits=st.sampled_from([0.0, 0.001, 1.0]),
    date=st.sampled_from([None, "2014", "2015-07-15", "2018-12-03", "2021-05", "2022", "2025-09-26"]),
    instance=st.sampled_from(
        [None, "t3.small", "m5.large", "r3.2xlarge", "i3.large", "r5b.large", "m5.large#2"]
    ),
    stripes=st.sampled_from([1, 3]),
    mode=st.sampled_from([None, "bursting", "provisioned", "elastic"]),
    one_zone=st.booleans(),
)
jobs = st.builds(
    BaselineJob,
    name=st.just("job"),
    rw=st.sampled_from(["read", "write", "readwrite", "randread", "randwrite", "randrw"]),
    bs=st.sampled_from([512, 4 * KIB, 10 * KIB, 16 * KIB, 128 * KIB, 256 * KIB, MIB, 3 * MIB]),
    numjobs=st.sampled_from([1, 2, 5]),
    iodepth=st.sampled_from([1, 4, 32, 128]),
    engine=st.sampled_from(["psync", "libaio"]),
    size=st.just(6 * MIB),
    runtime=st.sampled_from([None, 0.02]),
)


@settings(max_examples=200, deadline=None)
@given(of=specs, job=jobs)
def test_whatever_is_asked_for_is_refused_with_a_reason_or_runs_within_its_limits(
    of: VolumeSpec, job: BaselineJob
) -> None:
    job = job.model_copy(update={"size": max(job.bs, 64 * job.bs if job.bs < 16 * KIB else 6 * MIB)})
    try:
        volume = SimulatedVolume(of)
    except PlanError:
        with pytest.raises(PlanError, match=r"volume 'a': .*; .*"):  # and what to change
            SimulatedVolume(of)
        return
    directions = parse_fio(volume.run(job, compiled=False), "simulated")
    ios = sum(direction.ios for direction in directions)
    if job.runtime is None:
        assert ios == job.numjobs * (job.size // job.bs)
    moved = {direction.op: direction.ios * job.bs for direction in directions}
    for limit in volume.limits:
        if limit.counts == "bytes":
            used = moved.get("read", 0) * limit.reads + moved.get("write", 0) * limit.writes
            allowed = limit.rate * volume.clock_s + limit.capacity
            assert used <= volume.model.stripes * allowed * 1.001
