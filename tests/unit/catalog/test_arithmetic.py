"""What AWS documents of each type, as a saturated volume must show it: the tables of the user guides, not the
code's own formulas. Every expected figure is derived in view; MiB/s and IOPS are what passes the limiters.
"""

from dataclasses import replace
from typing import Any

import pytest

from esrally_ebs.catalog.volume_types import instance_limits, model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.volumes.emulated.law.buckets import Limiter

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4


def spec(type_: str, gib: float, **more: Any) -> VolumeSpec:  # noqa: ANN401
    return VolumeSpec(name="a", type=type_, size_bytes=int(gib * GIB), **more)


def sustained(
    of: VolumeSpec, block: int, *, write: bool = False, credits: float = 1.0, sequential: bool = False
) -> float:
    """I/Os a second of a volume that always has one waiting, once what was saved up is spent."""
    model = model_for(of)
    limiter = Limiter(model.limits, model.accounting, 0.0)
    limiter.set_credits(credits, 0.0)
    limiter.drain(0.0)
    now, count = 0.0, 4000
    for number in range(2 * count):
        if number == count:
            begun = now
        offset = number * block if sequential else number % 2 * TIB
        now += limiter.charge(offset, block, now, write=write)
    return count / (now - begun)


def mib_per_s(of: VolumeSpec, block: int = 256 * KIB, **how: Any) -> float:  # noqa: ANN401
    return sustained(of, block, **how) * block / MIB


@pytest.mark.parametrize(
    ("gib", "base", "burst_s", "refill_s"),
    [  # User Guide, "burst duration": 5,400,000 / (3000 - base) and / base
        (1, 100, 1862, 54_000),
        (100, 300, 2000, 18_000),
        (250, 750, 2400, 7200),
        (334, 1002, 2703, 5389),
        (500, 1500, 3600, 3600),
        (750, 2250, 7200, 2400),
    ],
)
def test_gp2_bursts_and_recovers_as_the_table_says(gib: int, base: int, burst_s: int, refill_s: int) -> None:
    volume = spec("gp2", gib)
    assert sustained(volume, 16 * KIB) == pytest.approx(3000)
    assert sustained(volume, 16 * KIB, credits=0.0) == pytest.approx(base)
    credit = next(limit for limit in model_for(volume).limits if limit.of_credits)
    assert round(credit.capacity / (3000 - base)) == burst_s
    assert round(credit.capacity / credit.rate) == refill_s


@pytest.mark.parametrize(
    ("gib", "date", "full", "spent"),
    [  # 256 KiB per operation: 0.25 MiB/s for each IOPS of the baseline
        (100, None, 128, 75),
        (170, None, 128, 127.5),
        (171, None, 250, 128.25),
        (333, None, 250, 249.75),
        (334, None, 250, 250),
        (16_384, None, 250, 250),
        (200, "2015", 160, 150),  # "170 to 214 GiB only with credits"
        (214, "2015", 160, 160),
        (100, "2014", 128, 75),
    ],
)
def test_gp2_has_the_throughput_of_its_size_and_credits(
    gib: int, date: str | None, full: float, spent: float
) -> None:
    assert mib_per_s(spec("gp2", gib, date=date)) == pytest.approx(full, rel=1e-3)
    assert mib_per_s(spec("gp2", gib, date=date), credits=0.0) == pytest.approx(spent, rel=1e-3)


@pytest.mark.parametrize(
    ("type_", "date", "iops", "mib"),
    [
        ("io1", None, 2000, 500),  # "peak throughput is reached at 2,000 IOPS"
        ("io1", None, 1000, 250),
        ("io1", None, 32_000, 500),
        ("io1", None, 48_000, 750),  # 16 KiB per IOPS above 32,000
        ("io1", None, 64_000, 1000),
        ("io1", "2015", 4000, 320),
        ("io1", "2018-02", 4000, 500),
        ("io2", "2021", 48_000, 750),  # not on Block Express yet
        ("io2", None, 1000, 250),  # an operation is 256 KiB, less than the 256 MiB/s of 0.256 MiB/s each
        ("io2", None, 10_000, 2500),
        ("io2", None, 16_000, 4000),
        ("io2", None, 64_000, 4000),
    ],
)
def test_io1_and_io2_have_the_throughput_of_their_iops(
    type_: str, date: str | None, iops: int, mib: float
) -> None:
    volume = spec(type_, 2000, iops=iops, date=date)
    assert sustained(volume, 4 * KIB) == pytest.approx(iops)
    assert mib_per_s(volume) == pytest.approx(mib)


@pytest.mark.parametrize(
    ("type_", "tib", "base", "burst"),
    [
        ("st1", 0.125, 5, 31.25),
        ("st1", 0.5, 20, 125),
        ("st1", 1, 40, 250),
        ("st1", 2, 80, 500),
        ("st1", 12.5, 500, 500),
        ("st1", 16, 500, 500),
        ("sc1", 0.125, 1.5, 10),
        ("sc1", 0.5, 6, 40),
        ("sc1", 1, 12, 80),
        ("sc1", 2, 24, 160),
        ("sc1", 3.125, 37.5, 250),
        ("sc1", 16, 192, 250),
    ],
)
def test_hard_disks_have_the_throughput_of_their_size(
    type_: str, tib: float, base: float, burst: float
) -> None:
    volume = spec(type_, 1024 * tib)
    assert mib_per_s(volume, MIB, sequential=True) == pytest.approx(burst)
    assert mib_per_s(volume, MIB, sequential=True, credits=0.0) == pytest.approx(base)
    # a scattered I/O of any size costs a MiB
    assert sustained(volume, 16 * KIB) == pytest.approx(burst)
    # a full bucket is a scan of the whole volume
    credit = next(limit for limit in model_for(volume).limits if limit.of_credits)
    assert credit.capacity == tib * TIB


@pytest.mark.parametrize("size_gib", [125, 499])
def test_hard_disks_below_500_gib_are_of_2020(size_gib: int) -> None:
    assert model_for(spec("st1", size_gib, date="2020")).limits
    with pytest.raises(PlanError, match="outside 500 to 16,384 GiB"):
        model_for(spec("st1", size_gib, date="2019"))


@pytest.mark.parametrize(
    ("gib", "base", "burst", "minutes_a_day"),
    [
        (10, 1, 100, 14.4),
        (256, 12.5, 100, 180),
        (512, 25, 100, 360),
        (1024, 50, 100, 720),
        (2048, 100, 200, 720),
        (4096, 200, 400, 720),
    ],
)
def test_efs_bursting_is_metered_as_the_table_says(
    gib: int, base: float, burst: float, minutes_a_day: float
) -> None:
    volume = spec("efs", gib, mode="bursting")
    for credits, rate in ((1.0, burst), (0.0, base)):
        assert mib_per_s(volume, MIB, write=True, credits=credits) == pytest.approx(rate)
        # a third of what is read is metered; one client has 500
        assert mib_per_s(volume, MIB, credits=credits) == pytest.approx(min(500, 3 * rate))
    assert base * 1440 / burst == pytest.approx(minutes_a_day)


def test_efs_meters_4_kib_for_less() -> None:
    # 50 KiB/s for each of 100 GiB are 1,250 I/Os of 4 KiB, and as many of 1 KiB
    volume = spec("efs", 100, mode="bursting")
    for block in (KIB, 4 * KIB):
        assert sustained(volume, block, write=True, credits=0.0) == pytest.approx(1250)


def test_efs_provisioned_is_what_was_bought_up_to_what_is_sold() -> None:
    def bought(mib: float, **more: Any) -> VolumeSpec:  # noqa: ANN401
        return spec("efs", 100, mode="provisioned", throughput_bytes_per_s=int(mib * MIB), **more)

    assert mib_per_s(bought(100), MIB, write=True) == pytest.approx(100)
    assert mib_per_s(bought(100), MIB) == pytest.approx(300)
    for mib, rate, emptied in ((100, 400, 200), (199, 400, 200), (200, 200, 200)):
        stored = replace(bought(mib), size_bytes=4 * 1024 * GIB)  # its data give 200, and bursts of 400
        assert mib_per_s(stored, MIB, write=True) == pytest.approx(rate)
        assert mib_per_s(stored, MIB, write=True, credits=0.0) == pytest.approx(emptied)
    assert mib_per_s(bought(3414), MIB, write=True) == pytest.approx(500)  # the client's
    for refused, most in ((bought(3415), "3,414"), (bought(1025, date="2021-06"), "1,024")):
        with pytest.raises(PlanError, match=f"MiB/s is outside 1 to {most} MiB/s; change throughput"):
            model_for(refused)
    with pytest.raises(PlanError, match="1025 MiB/s is outside 1 to 1,024 MiB/s"):
        model_for(bought(1025, one_zone=True))


@pytest.mark.parametrize(
    ("type_", "baseline", "maximum"),
    [  # MB/s and IOPS at 16 KiB; DescribeInstanceTypes
        ("t3.small", (21.75, 1000), (260.625, 11_800)),
        ("t3.medium", (43.375, 2000), (260.625, 11_800)),
        ("m5.large", (81.25, 3600), (593.75, 18_750)),
        ("r5.large", (81.25, 3600), (593.75, 18_750)),
        ("r5b.large", (156.25, 5417), (1250, 43_333)),
        ("m6i.large", (81.25, 3600), (1250, 40_000)),
        ("r7g.large", (78.75, 3600), (1250, 40_000)),
        ("c7g.4xlarge", (625, 20_000), (1250, 40_000)),
        ("c5.4xlarge", (593.75, 20_000), (593.75, 20_000)),
        ("i4i.32xlarge", (5000, 160_000), (5000, 160_000)),
        ("c6id.4xlarge", (625, 20_000), (1250, 40_000)),  # of the longer list
    ],
)
def test_instances_let_through_what_is_documented(
    type_: str, baseline: tuple[float, int], maximum: tuple[float, int]
) -> None:
    limits = {limit.name: limit for limit in instance_limits(spec("gp3", 100, instance=type_))}
    for name, base, most in zip(("throughput", "iops"), baseline, maximum, strict=True):
        unit = 1e6 if name == "throughput" else 1
        assert limits[f"instance-{name}"].rate == most * unit
        credit = limits.get(f"instance-{name}-credits")
        if base == most:
            assert credit is None
        else:
            assert credit is not None
            assert credit.rate == base * unit
            assert credit.capacity == pytest.approx(1800 * (most - base) * unit)  # thirty minutes


@pytest.mark.parametrize(
    ("type_", "reads", "writes"),
    [
        ("i3.large", 100_125, 35_000),
        ("i3.2xlarge", 412_500, 180_000),
        ("i3.16xlarge", 3_300_000, 1_400_000),
        ("i4i.large", 50_000, 27_500),
        ("i4i.2xlarge", 200_000, 110_000),
        ("i4i.32xlarge", 3_200_000, 1_760_000),
    ],
)
def test_disks_of_an_instance_do_what_is_documented_and_move_no_end_of_bytes(
    type_: str, reads: int, writes: int
) -> None:
    volume = spec("instance-store", 100, instance=type_)
    assert sustained(volume, 4 * KIB) == pytest.approx(reads)
    assert sustained(volume, 4 * KIB, write=True) == pytest.approx(writes)
    # 15 GiB/s of i3.16xlarge by its 3.3 million IOPS: 4,881 bytes for each
    assert mib_per_s(volume) * MIB == pytest.approx(reads * 4881)


def test_the_disks_of_an_instance_together_do_what_is_known_of_it() -> None:
    """Eight of i3.16xlarge had eight times 3.3 million IOPS, which are those of all its eight disks."""
    for type_, iops in (("i3.16xlarge", 3_300_000), ("r3.2xlarge", 33_900)):
        model = model_for(spec("instance-store", 100, instance=type_, stripes=8))
        assert model.limits[0].rate * model.stripes == pytest.approx(iops)
    given = model_for(spec("instance-store", 100, instance="i3.16xlarge", stripes=8, iops=10_000))
    assert given.limits[0].rate == 10_000  # of each, as it is said


def test_a_disk_that_the_plan_describes_has_a_limit_of_bytes_too() -> None:
    assert mib_per_s(spec("instance-store", 100, iops=10_000)) == pytest.approx(10_000 * 4881 / MIB)
    given = spec("instance-store", 100, iops=10_000, throughput_bytes_per_s=200 * MIB)
    assert mib_per_s(given) == pytest.approx(200)


@pytest.mark.parametrize(
    ("date", "instance", "most"),
    [
        ("2020-10", "r5b.large", 64_000),  # before Block Express
        ("2021", "r5b.large", 256_000),
        ("2021", "m5.large", 64_000),
        ("2021", None, 64_000),
        ("2024", None, 256_000),
        (None, "m5.large", 256_000),
    ],
)
def test_block_express_came_to_few_instances_first(date: str | None, instance: str | None, most: int) -> None:
    def with_iops(iops: int) -> VolumeSpec:
        return spec("io2", 4096, iops=iops, date=date, instance=instance)

    assert model_for(with_iops(most)).limits[0].rate == most
    if date == "2021" and instance is None:  # unless it is asked for by name
        assert model_for(replace(with_iops(256_000), type="io2-block-express")).limits[0].rate == 256_000
    with pytest.raises(PlanError, match=f"outside 100 to {most:,}"):
        model_for(with_iops(most + 1))


@pytest.mark.parametrize("date", ["2015-02-31", "2015-13", "2015-00", "0000"])
def test_a_day_that_there_is_not_is_refused(date: str) -> None:
    with pytest.raises(PlanError, match=f"gp2 volume 'a': there is no day '{date}'; give date as"):
        model_for(spec("gp2", 100, date=date))
