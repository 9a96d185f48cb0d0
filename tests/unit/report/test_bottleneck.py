"""What held an arm back, what it should be raised to, and what that costs."""

from dataclasses import replace
from pathlib import Path

import pytest
from session_in_memory import session
from small_plan import small_plan

from esrally_ebs.analysis.profile import Profile, Profiles
from esrally_ebs.model import Event, Kind, Volume, VolumeSpec
from esrally_ebs.plan import BaselineJob
from esrally_ebs.report.bottleneck import bottleneck_lines, held_back, limit_name, step_of, wanted_setting
from esrally_ebs.store.encoding import BASELINE
from esrally_ebs.store.session import Session
from esrally_ebs.studies.runs import simulated
from esrally_ebs.units import GIB, KIB, MIB

GP3 = VolumeSpec(name="a", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=125 * MIB)
IO2 = replace(GP3, type="io2", iops=1000, throughput_bytes_per_s=None)
IO1 = replace(IO2, type="io1", size_bytes=1280 * GIB)  # as 64,000 IOPS need
GP2 = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, credits=0.0)


def of(spec: VolumeSpec, **changes: object) -> Session:
    made = session(arms=("a",), **changes)
    return replace(made, arms=(Volume(spec=spec, kind=Kind.EMULATED, mount=Path("/mnt")),))


def profiles(**grown: float) -> Profiles:
    """Ten reads of 64 KiB that took 10 ms together, by counter what else grew."""
    plain = {"device.reads": 10.0, "device.read_bytes": 640.0 * KIB, "device.read_s": 0.01}
    every = {**plain, "device.write_s": 0.0, **{name.replace("__", "."): s for name, s in grown.items()}}
    return {("t", "a"): {1: Profile(requests=1, seconds=0.02, grown=every)}}


def bottlenecks(made: Session, observed: Profiles) -> tuple[str, ...]:
    return bottleneck_lines(made, held_back(made, observed))


def waits(spec: VolumeSpec, job: BaselineJob) -> dict[str, float]:
    """By limit the share of all latency, in virtual time."""
    run = simulated(spec, job)
    return {limit: seconds / run.latency_s for limit, seconds in run.waited_s.items()}


@pytest.mark.parametrize(
    ("rw", "block", "depth"),
    [("randread", 4 * KIB, 8), ("randread", 64 * KIB, 6), ("read", 128 * KIB, 2), ("randwrite", 64 * KIB, 8)],
)
@pytest.mark.parametrize(("spec", "left"), [(GP3, 0.01), (IO2, 0.01), (GP2, 0.25)])
def test_on_the_setting_that_is_named_the_load_no_longer_waits(
    spec: VolumeSpec, left: float, rw: str, block: int, depth: int
) -> None:
    job = BaselineJob(name="j", rw=rw, bs=block, engine="libaio", iodepth=depth, size=GIB, runtime=5)
    before = waits(spec, job)
    limit = max(before, key=lambda name: before[name])
    assert before[limit] > 0.5
    wanted = wanted_setting(spec, limit, before[limit], block)
    assert wanted is not None
    assert max(waits(wanted, job).values()) < left


def test_the_sentence_names_limit_share_step_and_price() -> None:
    assert bottlenecks(of(GP3), profiles(emulator__waited_s__throughput=0.005)) == (
        "a (emulated) is held back by volume throughput (50% of its I/O time); raise it to 250 MiB/s and"
        " 4,000 IOPS for 10.00 USD a month more.",
    )


def test_what_is_written_beside_small_reads_needs_no_iops_of_such_a_size() -> None:
    """250 MiB/s in reads of 4 KiB are 64,000 IOPS; flushes are writes to the kernel alone."""
    reads = {"device__read_bytes": 40.0 * KIB, "emulator__waited_s__throughput": 0.005}
    writes = {"device__writes": 500.0, "emulator__writes": 90.0, "device__written_bytes": 90.0 * 256 * KIB}
    (line,) = bottlenecks(of(GP3), profiles(**reads, **writes))
    assert line.endswith("; raise it to 250 MiB/s for 5.00 USD a month more.")


def test_a_gp3_in_the_place_of_a_gp2_takes_in_what_is_written_too() -> None:
    waiting = profiles(emulator__waited_s__credits=0.005)
    written = profiles(device__writes=20.0, device__written_bytes=240.0 * MIB * 0.02)
    both = {("t", "a"): waiting["t", "a"], ("w", "a"): written["t", "a"]}
    assert "; take gp3 with 272 MiB/s" in bottlenecks(of(replace(GP2, size_bytes=500 * GIB)), both)[0]


@pytest.mark.parametrize(("stripes", "nodes"), [(2, 1), (1, 2)])
def test_of_several_volumes_the_setting_is_each_one_s_and_the_price_that_of_all(
    stripes: int, nodes: int
) -> None:
    made = of(replace(GP3, stripes=stripes), plan=small_plan(race={}, node={"count": nodes}))
    (line,) = bottlenecks(made, profiles(emulator__waited_s__throughput=0.005))
    assert line.endswith(
        "; raise it to 250 MiB/s and 4,000 IOPS on each of 2 volumes for 20.00 USD a month more."
    )


def test_of_several_nodes_each_serves_its_share_of_the_busiest_task() -> None:
    made = of(replace(GP2, size_bytes=500 * GIB), plan=small_plan(race={}, node={"count": 2}))
    grown = {"device.reads": 120.0, "device.read_bytes": 120.0 * 16 * KIB, "device.read_s": 0.01}
    grown |= {"device.write_s": 0.0, "emulator.waited_s.credits": 0.005}
    observed = {("t", "a"): {1: Profile(requests=1, seconds=0.02, grown=grown)}}
    (line,) = bottlenecks(made, observed)  # 3,000 IOPS on each, which come with gp3: 0.08 USD for 0.10
    assert line.endswith("; take gp3 with what its price includes and save 20.00 USD a month.")


def test_what_comes_with_a_gp3_has_no_setting_to_name() -> None:
    (line,) = bottlenecks(
        of(replace(GP2, type="sc1", size_bytes=500 * GIB)), profiles(emulator__waited_s__throughput=0.001)
    )
    assert "; take gp3 with what its price includes for 27.50 USD a month more." in line


@pytest.mark.parametrize(
    ("type_", "limit", "step"),
    [
        ("gp3", "throughput", "raise throughput"),
        ("gp2", "throughput", "take gp3"),
        ("st1", "iops", "take gp3"),
        ("io2", "iops", "raise iops"),
        ("io2", "throughput", "raise iops, which throughput follows"),
        ("gp2", "credits", "raise size, or take gp3"),
        ("gp2", "queue", ""),
        ("io2-block-express", "throughput", "raise iops, which throughput follows"),
        ("instance-store", "iops", "take an instance with faster disks"),
        ("magnetic", "credits", "take gp3"),
    ],
)
def test_no_step_sets_what_a_type_has_not(type_: str, limit: str, step: str) -> None:
    assert step_of(replace(GP3, type=type_), limit) == step


@pytest.mark.parametrize(
    ("mode", "limit", "step"),
    [
        ("bursting", "credits", "take gp3, or another mode of EFS"),
        ("bursting", "throughput", "take gp3, or another mode of EFS"),
        ("elastic", "throughput", ""),
        ("provisioned", "throughput", "raise throughput"),
    ],
)
def test_throughput_of_efs_is_bought_in_one_of_its_modes_alone(mode: str, limit: str, step: str) -> None:
    """EFS that had used up its credits was to be made larger, and Elastic to have its throughput raised."""
    bought = 125 * MIB if mode == "provisioned" else None
    efs = replace(GP3, type="efs", mode=mode, iops=None, throughput_bytes_per_s=bought)
    assert step_of(efs, limit) == step


def test_an_arm_that_hardly_waited_is_not_held_back_and_one_without_counters_is_left_out() -> None:
    assert bottlenecks(of(GP3), profiles(emulator__waited_s__iops=0.0005)) == (
        "No limit held back a (emulated).",
    )
    assert bottlenecks(of(GP3), profiles()) == ()
    assert bottlenecks(of(GP3), {}) == ()


def test_seconds_that_ebs_counted_do_not_say_how_much_is_enough() -> None:
    (line,) = bottlenecks(of(GP3), profiles(ebs__exceeded_s__volume_iops=0.01))
    assert line == "a (emulated) is held back by volume IOPS (50% of its time); raise iops."


def test_of_striped_volumes_and_of_ebs_a_limit_has_one_name() -> None:
    assert [limit_name(name) for name in ("2-iops", "volume_iops", "instance_throughput")] == [
        "iops",
        "iops",
        "instance-throughput",
    ]


@pytest.mark.parametrize(
    ("limit", "share", "spec"),
    [
        ("instance-iops", 0.5, GP3),  # no setting of the volume
        ("throughput", 0.5, replace(GP3, iops=8000, throughput_bytes_per_s=2000 * MIB)),  # the most of a gp3
        ("iops", 0.5, replace(IO2, size_bytes=4 * GIB, iops=4000)),  # the most of its size
        ("throughput", 0.5, IO2),  # follows from iops
        ("throughput", 0.5, replace(GP3, type="directory")),
        ("throughput", 0.5, replace(GP3, instance="x99.large")),  # of a later catalog
        ("network", 0.5, GP3),
    ],
)
def test_what_is_not_for_sale_on_the_volume_has_no_setting(
    limit: str, share: float, spec: VolumeSpec
) -> None:
    assert wanted_setting(spec, limit, share, 64 * KIB) is None


@pytest.mark.parametrize(
    ("spec", "limit", "step"),
    [
        (replace(GP3, iops=8000, throughput_bytes_per_s=2000 * MIB), "throughput", "take io2"),
        (replace(GP3, size_bytes=200 * GIB, iops=80_000), "iops", "take io2"),
        (replace(GP3, iops=8000, throughput_bytes_per_s=1000 * MIB, date="2024"), "throughput", "take io2"),
        (replace(IO2, size_bytes=500 * GIB, iops=256_000), "iops", "stripe more volumes"),
        (replace(IO2, iops=16_000), "throughput", "stripe more volumes"),
        (replace(IO2, type="io1", iops=5000), "iops", "take io2"),
        (replace(IO1, iops=1000), "throughput", "raise iops, which throughput follows"),
        (replace(IO1, iops=32_000), "throughput", "raise iops, which throughput follows"),
        (replace(IO1, iops=5000), "throughput", "take io2"),  # 1,280 MiB/s, at that price
        (
            replace(IO1, iops=5000, date="2019"),
            "throughput",
            "raise iops above 32,000, from where throughput follows",
        ),
        (replace(IO1, iops=5000, date="2018-02"), "throughput", "stripe more volumes"),
    ],
)
def test_who_has_the_most_of_a_type_is_not_asked_to_raise_it(spec: VolumeSpec, limit: str, step: str) -> None:
    """Nor is an io1 that has 500 MiB/s asked for a few more IOPS, of which nothing comes below 32,000."""
    assert step_of(spec, limit) == step
    line = bottlenecks(of(spec), profiles(**{f"emulator__waited_s__{limit}": 0.005}))[0]
    assert line.endswith(f"; {step}.")


@pytest.mark.parametrize(
    ("instance", "limit", "step"),
    [
        ("m5.large", "throughput", "take an instance with a higher baseline"),  # 78 MiB/s, of 125
        ("r3.2xlarge", "throughput", "take a larger instance"),  # 119, and no burst
        ("m5.large", "iops", "raise iops"),  # 3,600, of 3,000
        ("m5.8xlarge", "throughput", "raise throughput"),
        ("x99.large", "throughput", "raise throughput"),  # of a later catalog
    ],
)
def test_no_volume_is_raised_beyond_what_its_instance_has_for_good(
    instance: str, limit: str, step: str
) -> None:
    """Of 125 MiB/s on an m5.large, which has 78 after half an hour, it was said to raise throughput."""
    assert step_of(replace(GP3, instance=instance), limit) == step


def test_a_gp3_in_the_place_of_a_gp2_slows_no_other_task() -> None:
    """One task waits for credits and wants 188 MiB/s, another reads 240: it would have 188 of them left."""
    waiting = profiles(emulator__waited_s__credits=0.005)
    streaming = profiles(device__read_bytes=240.0 * MIB * 0.02, emulator__waited_s__credits=0.0)
    both = {("t", "a"): waiting["t", "a"], ("s", "a"): streaming["t", "a"]}
    spec = replace(GP2, size_bytes=500 * GIB)
    assert "; take gp3 with 240 MiB/s and save 5.40 USD a month." in bottlenecks(of(spec), both)[0]
    assert "; take gp3 with 188 MiB/s and save 7.48 USD a month." in bottlenecks(of(spec), waiting)[0]


@pytest.mark.parametrize(
    ("rw", "block", "included"), [("randread", 16 * KIB, True), ("read", 128 * KIB, False)]
)
@pytest.mark.parametrize("gib", [500, 4000])
def test_a_gp3_in_the_place_of_a_disk_serves_what_came_and_not_what_it_was_charged(
    gib: int, rw: str, block: int, included: bool
) -> None:
    """A mebibyte is charged for each random I/O: for 122 of 16 KiB a second 78,200 IOPS were to be bought."""
    spec = replace(GP2, type="st1", size_bytes=gib * GIB)
    job = BaselineJob(name="j", rw=rw, bs=block, engine="libaio", iodepth=8, size=GIB, runtime=20)
    before, iops = waits(spec, job), simulated(spec, job).directions[0].iops
    limit = max(before, key=lambda name: before[name])
    wanted = wanted_setting(spec, limit, before[limit], block, (iops, iops * block))
    assert wanted is not None
    assert (wanted == replace(spec, type="gp3")) is included
    assert simulated(wanted, job).directions[0].iops > 0.9 * iops / (1 - before[limit])


def test_of_striped_volumes_each_serves_its_share_of_the_busiest_task() -> None:
    """Each of two was to have the 240 MiB/s that both served together."""
    spec = replace(GP2, size_bytes=500 * GIB, stripes=2)
    wanted = wanted_setting(spec, "credits", 0.5, 64 * KIB, (3840, 240 * MIB))
    assert wanted == replace(spec, type="gp3", throughput_bytes_per_s=188 * MIB)


def test_a_large_io_of_a_disk_is_several_operations_of_a_gp3() -> None:
    """1,221 MiB/s were to be had with the IOPS that are included, which is not sold: nothing was named."""
    wanted = wanted_setting(
        replace(GP2, type="st1", size_bytes=500 * GIB), "throughput", 0.9, MIB, (122, 122 * MIB)
    )
    assert wanted is not None
    assert (wanted.iops, wanted.throughput_bytes_per_s) == (4900, 1221 * MIB)


def test_what_is_wanted_is_no_more_than_is_sold() -> None:
    """Of 12.5 GB/s nothing was said but to raise throughput."""
    of_type = wanted_setting(GP3, "throughput", 0.99, 64 * KIB)
    assert of_type == replace(GP3, iops=32_000, throughput_bytes_per_s=2000 * MIB)
    of_size = wanted_setting(replace(GP3, size_bytes=10 * GIB), "iops", 0.5, 4 * KIB)
    assert of_size == replace(GP3, size_bytes=10 * GIB, iops=5000)


def test_a_session_without_searches_is_held_back_in_its_fio_jobs() -> None:
    job = {"name": "j", "rw": "randread", "bs": "64k", "numjobs": 8, "size": "1g", "runtime": 10}
    plan = small_plan(baseline=[job])
    fio = {"arm": "a", "round": 0, "job": "j", "op": "read", "iops": 2000.0, "mean_s": 0.004}
    rows = BASELINE.empty_table().from_pylist([dict.fromkeys(BASELINE.names) | fio], schema=BASELINE)
    note = {"job": "j", "round": 0, "waited_s": {"throughput": 40.0, "iops": 0.0}}
    made = of(GP3, plan=plan, baseline=rows, events=(Event(at_s=0.0, kind="baseline", arm="a", fields=note),))
    (line,) = bottlenecks(made, {})
    assert line.startswith(
        "a (emulated) is held back by volume throughput (50% of its I/O time); raise it to 250"
    )
