"""The kernel of virtual time as machine code; needs no root, but seconds of compiling."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.virtual import SimulatedVolume

pytestmark = [pytest.mark.system, pytest.mark.beside]

KIB, MIB, GIB = 1024, 1024**2, 1024**3

timed = st.builds(
    dict, runtime=st.floats(0.001, 0.05), ramp_time=st.one_of(st.just(0.0), st.floats(0.001, 0.05))
)
alone = st.sampled_from(["read", "write", "randread", "randwrite"])  # a mix has no rate
jobs = st.builds(
    lambda time, moves, **options: BaselineJob(name="job", **time, **moves, **options),
    time=st.one_of(st.just({}), timed),
    moves=st.one_of(
        st.builds(dict, rw=st.sampled_from(["readwrite", "randrw"])),
        st.builds(dict, rw=alone, rate_iops=st.one_of(st.none(), st.integers(100, 10_000))),
    ),
    bs=st.sampled_from([4 * KIB, 16 * KIB, 256 * KIB, 1 * MIB, 300 * KIB]),
    numjobs=st.integers(1, 8),
    iodepth=st.integers(1, 64),
    engine=st.sampled_from(["psync", "libaio"]),
    size=st.integers(1 * MIB, 4 * MIB),
)
specs = st.builds(
    VolumeSpec,
    name=st.just("a"),
    type=st.sampled_from(["gp2", "gp3", "st1"]),
    size_bytes=st.just(500 * GIB),
    instance=st.sampled_from([None, "t3.small"]),
    stripes=st.integers(1, 3),
    chunk_bytes=st.sampled_from([64 * KIB, 512 * KIB]),
)


@settings(max_examples=50, deadline=None)
@given(spec=specs, of=jobs)
def test_the_compiled_kernel_gives_the_same_bytes(spec: VolumeSpec, of: BaselineJob) -> None:
    plain, compiled = (SimulatedVolume(spec).run(of, compiled=which) for which in (False, True))
    assert compiled == plain
