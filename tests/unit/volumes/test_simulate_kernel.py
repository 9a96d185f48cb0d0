"""The event loop by itself, with a volume of numbers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.catalog.limits import Limit
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.model import VolumeSpec
from esrally_ebs.volumes.emulated.law.buckets import buckets_of
from esrally_ebs.volumes.virtual.arrays import beginning, devices_of, empty_tally
from esrally_ebs.volumes.virtual.kernel import serve
from esrally_ebs.volumes.virtual.state import Devices, FioJobs, Host, RandomDraws, Simulation, Volumes
from esrally_ebs.volumes.virtual.transfer import request

KIB, MIB = 1024, 1024**2


@settings(max_examples=25, deadline=None)
@given(
    clones=st.integers(1, 8), block=st.sampled_from([16 * KIB, 256 * KIB]), factor=st.sampled_from([2, 4, 8])
)
def test_a_volume_that_is_so_many_times_faster_takes_that_part_of_the_time(
    clones: int, block: int, factor: int
) -> None:
    def ended_s(times: int) -> float:
        buckets = buckets_of(
            [
                Limit(name="iops", counts="operations", rate=3000 * times, capacity=100),
                Limit(name="throughput", counts="bytes", rate=128 * MIB * times, capacity=4 * MIB),
            ],
            0.0,
        )
        devices = Devices(
            first=[0],
            own=[2],
            stripes=[1],
            chunk_bytes=[0],
            max_io_bytes=[256 * KIB],
            merge_over_bytes=[-1],
            least_bytes=[0],
            base_s=[400e-6 / times, 900e-6 / times],
            per_byte_s=[2e-9 / times, 5e-9 / times],
            sigma=[0.2, 0.1],
            queue=[32],
            next_offset=[-1, -1],
            paid_to=[-1, -1],
        )
        load = FioJobs(
            device=[0],
            clones=[clones],
            depth=[1],
            sync=[True],
            block_bytes=[block],
            ios_per_clone=[50],
            from_s=[0.0],
            until_s=[float("inf")],
            gap_s=[0.0],
            sequential=[False],
            file_bytes=[50 * block],
        )
        draws = RandomDraws(
            normals=[0.5, -1.0, 1.5, 0.1, -0.3],
            uniforms=[0.3, 0.7, 0.1],
            writes=[False, True, True],
            first_write=[0],
            write_count=[3],
        )
        host = Host(shared=0, between_s=6e-6 / times, again=0.5)
        volumes = Volumes(buckets, devices, host)
        return serve(Simulation(volumes, load, draws, empty_tally(1, 0), beginning(devices, load)))

    assert ended_s(factor) == pytest.approx(ended_s(1) / factor)


def test_a_volume_without_limits_has_a_place_for_where_its_last_request_ended() -> None:
    """Machine code checks no index: without a place it would write behind an array of nothing."""
    model = replace(model_for(VolumeSpec(name="a", type="gp3", size_bytes=MIB * 1024)), limits=())
    volumes = Volumes(buckets_of((), 0.0), devices_of([model]), Host(0, 0.0, 0.0))
    waited_s, took_s = request(volumes, 0, 0, 0, 4 * KIB, 0.0, 0.0, 0.0, 0.0)
    assert waited_s == 0.0
    assert took_s == pytest.approx(model.read.median_s(4 * KIB))
    assert volumes.devices.next_offset == [4 * KIB]
