"""fio jobs in virtual time: arithmetic of the buckets, chance, splitting, and both kernels alike."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes import virtual
from esrally_ebs.volumes.emulated.law.queue import MERGED
from esrally_ebs.volumes.fio import FioDirection, parse_fio
from esrally_ebs.volumes.virtual import (
    BETWEEN_S,
    SimulatedVolume,
    VolumeJob,
    check_room,
    groups,
    kernel,
    run_together,
    simulated_volumes,
)

KIB, MIB, GIB = 1024, 1024**2, 1024**3
GP2 = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB)
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB, throughput_bytes_per_s=128 * MIB)

jobs = st.builds(
    BaselineJob,
    name=st.just("job"),
    rw=st.sampled_from(["read", "write", "readwrite", "randread", "randwrite", "randrw"]),
    bs=st.sampled_from([4 * KIB, 16 * KIB, 256 * KIB, 1 * MIB, 300 * KIB]),
    numjobs=st.integers(1, 8),
    iodepth=st.integers(1, 16),
    engine=st.sampled_from(["psync", "libaio"]),
    size=st.integers(1 * MIB, 4 * MIB),
    runtime=st.one_of(st.none(), st.floats(0.001, 0.05)),
)


def job(**options: Any) -> BaselineJob:  # noqa: ANN401 - options of fio
    return BaselineJob(**{"name": "job", "rw": "randread", "bs": 4 * KIB, **options})


def run(spec: VolumeSpec, of: BaselineJob, **options: Any) -> list[FioDirection]:  # noqa: ANN401
    return parse_fio(SimulatedVolume(spec).run(of, compiled=False, **options), "simulated")


def seconds(text: str) -> float:
    (of,) = json.loads(text)["jobs"]
    return max(of["read"]["runtime"], of["write"]["runtime"]) / 1000


def test_a_saturated_volume_serves_its_rate_and_one_second_saved_up() -> None:
    # 10,000 reads at 3000 a second after a bucket of 3000: (10,000 - 3000) / 3000 = 2.333 s
    text = SimulatedVolume(GP3).run(job(engine="libaio", iodepth=64, size=10_000 * 4 * KIB), compiled=False)
    assert seconds(text) == pytest.approx(7 / 3, rel=0.002)


def test_throughput_holds_back_large_blocks() -> None:
    # the published row: 2048 MiB at 128 MiB/s after 128 MiB saved up take 15.0 s, 546 IOPS of 256 KiB
    (reads,) = run(GP3, job(rw="read", bs=256 * KIB, numjobs=16, size=128 * MIB))
    assert reads.iops == pytest.approx(8192 / 15.0, rel=0.002)


def test_an_unlimited_job_is_as_fast_as_its_latencies_let_it() -> None:
    (reads,) = run(GP3, job(size=4 * MIB))
    assert reads.iops == pytest.approx(1 / (reads.mean_s + BETWEEN_S), rel=0.02)


def test_credits_end_and_the_baseline_stays() -> None:
    # 16,200 of 5.4 million credits: 16,200 + 300 t = 3000 + 3000 t gives t = 4.89 s; at 10 s there were
    # 16,200 + 300 * 10 = 19,200 I/Os.
    spec = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB, credits=0.003)
    (reads,) = run(spec, job(engine="libaio", iodepth=32, runtime=10))
    assert reads.ios == pytest.approx(19_200, rel=0.003)


def test_credits_come_back_while_the_volume_rests() -> None:
    volume = SimulatedVolume(VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB, credits=0.0))
    volume.rest(7200)
    assert volume.levels()["credits"] == 7200 * 300  # two hours at the baseline of 300 a second
    assert volume.clock_s == 7200


def test_refilling_waits_for_the_fast_buckets_but_not_for_credits() -> None:
    volume = SimulatedVolume(GP2)
    volume.run(job(engine="libaio", iodepth=64, size=6000 * 4 * KIB), compiled=False)
    assert volume.levels()["iops"] < 100
    assert volume.refill() == pytest.approx(1.0, abs=0.05)
    assert volume.levels()["iops"] == 3000
    assert volume.levels()["credits"] < 5_400_000
    assert volume.refill() == 0


def test_a_volume_that_began_without_credits_has_none_after_refilling() -> None:
    volume = SimulatedVolume(replace(GP2, credits=0.0))
    volume.rest(60)
    assert volume.levels()["credits"] == pytest.approx(60 * 300)
    volume.refill()
    assert volume.levels()["credits"] == 0


def test_a_block_larger_than_a_request_is_split_and_counts_once_per_request() -> None:
    volume = SimulatedVolume(GP3)
    text = volume.run(job(bs=MIB, size=4 * MIB), compiled=False)
    (reads,) = parse_fio(text, "simulated")
    assert reads.ios == 4
    # 4 I/Os of four requests each leave at least 3000 - 16 tokens
    assert 3000 - 16 <= volume.levels()["iops"] <= 3000
    assert reads.p50_s > volume.model.read.median_s(256 * KIB)  # the slowest of four


def test_many_requests_are_compiled_however_few_ios_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def compiled() -> virtual.Kernel:
        asked.append("compiled")
        return kernel.serve

    monkeypatch.setattr(virtual, "_MANY_REQUESTS", 99)
    monkeypatch.setattr(virtual, "_compiled", compiled)
    SimulatedVolume(GP3).run(job(bs=MIB, size=24 * MIB))
    assert not asked
    SimulatedVolume(GP3).run(job(bs=MIB, size=25 * MIB))  # four requests each
    assert asked


def test_a_mebibyte_is_one_request_of_a_type_whose_ios_are_that_large() -> None:
    # 1 TiB of st1 bursts at 250 MiB/s and has one second saved up: 1024 MiB take (1024 - 250) / 250 = 3.1 s
    hdd = VolumeSpec(name="st1", type="st1", size_bytes=1024 * GIB)
    (reads,) = run(hdd, job(bs=MIB, engine="libaio", iodepth=8, size=GIB))
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
    of = job(bs=block, engine="libaio", iodepth=iodepth, numjobs=numjobs, size=4 * block)
    (reads,) = run(VolumeSpec(name="gp3", type="gp3", size_bytes=500 * GIB, stripes=2, chunk_bytes=chunk), of)
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
    of = job(bs=16 * KIB, engine="libaio", iodepth=64, numjobs=16, size=16 * 1000 * KIB)
    assert run(spec, of)[0].iops > iops


def test_chance_is_not_the_same_again_for_every_io_that_is_cut_into_many_requests() -> None:
    # each I/O lasts as long as the slowest of its 256 requests; with other draws for each that differs
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=500 * GIB, stripes=2, chunk_bytes=4 * KIB)
    (reads,) = run(spec, job(bs=MIB, engine="libaio", iodepth=1, size=16 * MIB))
    assert reads.p999_s > reads.p50_s


def test_the_clones_of_a_job_have_one_file_as_on_devices() -> None:
    spec = VolumeSpec(name="gp3", type="gp3", size_bytes=GIB)
    of = job(rw="read", bs=MIB, numjobs=3, size=512 * MIB)
    check_room(of, spec)
    assert run(spec, of)[0].ios == 3 * 512
    text = r"baseline job: 2\.0 GiB do not fit on arm gp3 of 1\.0 GiB; lower size"
    with pytest.raises(PlanError, match=text):
        check_room(of.model_copy(update={"size": 2 * GIB}), spec)


def test_sequential_reads_of_an_hdd_cost_what_they_are_and_scattered_ones_a_mebibyte() -> None:
    hdd = VolumeSpec(name="st1", type="st1", size_bytes=500 * GIB)
    spent = {}
    for rw in ("read", "randread"):
        volume = SimulatedVolume(hdd)
        volume.run(job(rw=rw, bs=64 * KIB, size=10 * 64 * KIB), compiled=False)
        came_back = volume.clock_s * 40 * 500 / 1024  # MiB; 40 MiB/s per TiB
        spent[rw] = 500 * 1024 - volume.levels()["credits"] / MIB + came_back
    assert spent["randread"] == pytest.approx(10, abs=0.2)
    assert spent["read"] == pytest.approx(1, abs=0.2)  # one I/O, as they go on


def test_time_says_which_limit_held_back() -> None:
    text = SimulatedVolume(GP3).run(job(rw="read", bs=256 * KIB, numjobs=16, size=64 * MIB), compiled=False)
    waited = json.loads(text)["limits"]["waited_s"]
    assert waited["throughput"] > 0
    assert waited["iops"] == 0


def test_a_mix_is_an_even_coin_or_exactly_what_was_asked_for() -> None:
    mix = job(rw="readwrite", size=16 * MIB)
    reads, writes = run(GP3, mix)
    assert reads.ios + writes.ios == 4096
    assert reads.ios == pytest.approx(2048, abs=5 * 32)  # five standard deviations of a fair coin
    dealt, _ = run(GP3, mix, reads=3000)
    assert dealt.ios == 3000


def test_arms_get_the_same_toss_of_the_coin_but_latencies_of_their_own() -> None:
    mix = job(rw="randrw", size=4 * MIB)
    here, there = run(GP3, mix), run(VolumeSpec(name="b", type="gp3", size_bytes=100 * GIB), mix)
    assert [d.ios for d in here] == [d.ios for d in there]
    assert [d.mean_s for d in here] != [d.mean_s for d in there]


def test_a_job_with_a_runtime_ends_after_it_with_what_was_in_flight() -> None:
    text = SimulatedVolume(GP3).run(job(runtime=0.5, size=MIB), compiled=False)
    assert 0.5 <= seconds(text) < 0.51


def test_a_deep_queue_shows_one_io_less_per_process_than_its_depth() -> None:
    # published: 63 of 1 x 64 in flight (499.8 ms at 126 a second), 1020 of 4 x 256 (339.7 ms at 3000)
    for clones, depth in ((1, 64), (4, 32)):
        volume = SimulatedVolume(GP3)
        volume.buckets.levels[0] = 0.0
        of = job(engine="libaio", numjobs=clones, iodepth=depth, runtime=2, size=GIB)
        (reads,) = parse_fio(volume.run(of, compiled=False), "simulated")
        assert reads.mean_s * reads.iops == pytest.approx(clones * (depth - 1), rel=0.03)


def test_striped_volumes_serve_as_much_as_all_of_them() -> None:
    one, three = (
        run(replace(GP3, stripes=stripes), job(engine="libaio", iodepth=96, runtime=1, size=GIB))
        for stripes in (1, 3)
    )
    assert three[0].ios == pytest.approx(3 * one[0].ios, rel=0.05)


@pytest.mark.parametrize(("stripes", "kib"), [(1, 1024), (2, 128)])
def test_parts_of_an_io_that_wait_at_once_are_counted_once(stripes: int, kib: int) -> None:
    volume = SimulatedVolume(replace(GP3, stripes=stripes, chunk_bytes=64 * KIB))
    volume.buckets.levels[:] = [0.0] * len(volume.buckets.levels)
    text = volume.run(job(rw="read", bs=kib * KIB, numjobs=4, size=64 * MIB), compiled=False)
    (reads,) = parse_fio(text, "simulated")
    waited_s = sum(json.loads(text)["limits"]["waited_s"].values())
    assert 0.5 < waited_s / (reads.ios * reads.mean_s) < 1


def test_an_instance_holds_back_its_volumes_together() -> None:
    # t3.small: 260.6 MB/s at most and one second saved up, for two volumes of 250 MiB/s each
    spec = replace(GP3, throughput_bytes_per_s=250 * MIB, instance="t3.small")
    volumes = simulated_volumes([spec, replace(spec, name="other")])
    of = job(rw="read", bs=256 * KIB, engine="libaio", iodepth=32, runtime=2, size=GIB)
    texts = run_together([VolumeJob(volume=volume, job=of) for volume in volumes], compiled=False)
    moved = sum(side.bandwidth_bytes_per_s for text in texts for side in parse_fio(text, "simulated"))
    assert moved == pytest.approx(260.625e6 * 3 / 2, rel=0.03)
    waited = json.loads(texts[0])["limits"]["waited_s"]
    assert waited["instance-throughput"] > 0


@pytest.mark.parametrize("beside", ["instance-store", "efs"])
@pytest.mark.parametrize("first", [True, False])
def test_an_instances_limits_are_those_of_its_ebs_volumes_whichever_arm_is_first(
    beside: str, first: bool
) -> None:
    # an i3.large moves 53.125 MB/s to and from EBS; its own disk and EFS are not reached that way
    specs = [replace(GP3, instance="i3.large"), replace(GP3, name="b", type=beside, instance="i3.large")]
    volumes = simulated_volumes(specs if first else specs[::-1])
    of = job(rw="randread", bs=256 * KIB, engine="libaio", iodepth=16, ramp_time=2, runtime=2, size=GIB)
    ebs, other = (
        parse_fio(volume.run(of), "simulated")[0].bandwidth_bytes_per_s
        for volume in sorted(volumes, key=lambda volume: specs.index(volume.spec))
    )
    assert ebs == pytest.approx(53.125e6, rel=0.03)
    assert other > 2 * ebs


def test_arms_of_one_instance_share_its_clock() -> None:
    spec = replace(GP3, instance="m5.large")
    one, other, apart = simulated_volumes(
        [spec, replace(spec, name="b"), replace(spec, instance="m5.large#2")]
    )
    one.rest(10)
    assert (one.clock_s, other.clock_s, apart.clock_s) == (10, 10, 0)


def test_jobs_without_stonewall_begin_together_and_share_the_volume() -> None:
    first = job(engine="libaio", iodepth=16, runtime=1, size=GIB)
    together = groups([first, first.model_copy(update={"name": "b", "stonewall": False}), first])
    assert [len(of) for of in together] == [2, 1]
    volume = SimulatedVolume(GP3)
    texts = run_together([VolumeJob(volume=volume, job=of) for of in together[0]], compiled=False)
    ios = [parse_fio(text, "simulated")[0].ios for text in texts]
    assert sum(ios) == pytest.approx(6000, rel=0.02)  # a full bucket and one second
    assert ios[0] == pytest.approx(ios[1], rel=0.1)


def test_a_mix_has_the_share_of_reads_that_was_asked_for() -> None:
    reads, writes = run(GP3, job(rw="randrw", rwmixread=75, size=16 * MIB))
    assert reads.ios / (reads.ios + writes.ios) == pytest.approx(0.75, abs=0.04)


def test_sequential_ios_that_wait_in_a_full_queue_are_merged_in_part() -> None:
    # published: 4,930 IOPS of 64 KiB on a volume of 3,000
    spec = replace(GP3, throughput_bytes_per_s=500 * MIB)
    volume = SimulatedVolume(spec)
    volume.buckets.levels[0] = 0.0
    of = job(rw="write", bs=64 * KIB, engine="libaio", iodepth=64, runtime=1, size=GIB)
    (writes,) = parse_fio(volume.run(of, compiled=False), "simulated")
    assert writes.iops == pytest.approx(4930, rel=0.05)


def test_blocks_that_were_never_written_cost_iops_in_2014_only() -> None:
    for date, iops in (("2014", 2000), ("2021", 3000)):
        volume = SimulatedVolume(replace(GP2, date=date))
        volume.buckets.levels[0] = 0.0
        of = job(rw="randwrite", engine="libaio", iodepth=32, runtime=1, size=GIB)
        (writes,) = parse_fio(volume.run(of, compiled=False, untouched=True), "simulated")
        assert writes.iops == pytest.approx(iops, rel=0.03)


def test_the_result_says_that_fio_did_not_run() -> None:
    text = SimulatedVolume(GP3).run(job(size=MIB))
    assert "simulated in virtual time" in json.loads(text)["fio version"]


def test_a_block_that_does_not_fit_into_the_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"do not fit into 1\.0 MiB; raise size or lower bs"):
        job(bs=2 * MIB, size=MIB)


@settings(max_examples=50, deadline=None)
@given(of=jobs)
def test_no_more_passes_than_rate_times_time_and_one_full_bucket(of: BaselineJob) -> None:
    text = SimulatedVolume(GP3).run(of, compiled=False)
    sides = parse_fio(text, "simulated")
    ios = sum(direction.ios for direction in sides)
    operations = ios * -(-of.bs // (256 * KIB))
    if of.engine == "libaio" and not of.rw.startswith("rand"):
        operations *= 1 - MERGED  # where they wait in a full queue
    assert operations <= 3000 * (1 + seconds(text)) + 1e-6
    assert ios * of.bs <= 128 * MIB * (1 + seconds(text)) + 1
    assert all(d.p50_s <= d.p90_s <= d.p99_s <= d.p999_s for d in sides)


@settings(max_examples=50, deadline=None)
@given(of=jobs)
def test_the_same_seed_gives_the_same_text_and_another_seed_another(of: BaselineJob) -> None:
    first, again, other = (SimulatedVolume(GP3, seed=seed).run(of, compiled=False) for seed in (7, 7, 8))
    assert first == again
    assert first != other
