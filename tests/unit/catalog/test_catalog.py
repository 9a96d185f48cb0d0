"""The volume types: what they allow, and the limits that follow."""

import json

import pytest

from esrally_ebs.catalog.generations import generation_of
from esrally_ebs.catalog.limits import Model
from esrally_ebs.catalog.volume_types import model_for, volume_types
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec

MIB, GIB = 1024**2, 1024**3


def _spec(type_: str, gib: float, **more: object) -> VolumeSpec:
    return VolumeSpec(name="a", type=type_, size_bytes=int(gib * GIB), **more)


def _rates(spec: VolumeSpec) -> dict[str, float]:
    return {limit.name: limit.rate for limit in model_for(spec).limits}


@pytest.mark.parametrize(
    ("gib", "iops", "mib", "base"),
    [
        (1, 3000, 128, 100),  # never below 100
        (100, 3000, 128, 300),  # 3 per GiB
        (170, 3000, 128, 510),
        (171, 3000, 250, 513),
        (999, 3000, 250, 2997),
        (1000, 3000, 250, None),  # the baseline is the burst
        (5334, 16000, 250, None),
    ],
)
def test_gp2_follows_from_its_size(gib: float, iops: int, mib: int, base: int | None) -> None:
    expected = {"iops": iops, "throughput": mib * MIB} | ({} if base is None else {"credits": base})
    assert _rates(_spec("gp2", gib)) == expected


@pytest.mark.parametrize("type_", ["gp2", "gp3"])
def test_a_bucket_holds_one_second_of_its_rate(type_: str) -> None:
    limits = [limit for limit in model_for(_spec(type_, 100)).limits if limit.name != "credits"]
    assert all(limit.capacity == limit.rate for limit in limits)


def test_gp3_includes_3000_iops_and_125_mib_per_second_at_any_size() -> None:
    assert _rates(_spec("gp3", 1)) == {"iops": 3000, "throughput": 125 * MIB}


def test_gp3_takes_what_is_provisioned() -> None:
    spec = _spec("gp3", 160, iops=80_000, throughput_bytes_per_s=2000 * MIB)
    assert _rates(spec) == {"iops": 80_000, "throughput": 2000 * MIB}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            _spec("efs", 100, mode="elastic", date="2021"),
            "efs volume 'a': no mode 'elastic' at its date; use bursting or provisioned, or change date",
        ),
        (
            _spec("efs", 100, mode="provisioned"),
            "efs volume 'a': throughput is missing; give what is provisioned, metered",
        ),
        (
            _spec("efs", 100, mode="elastic", throughput_bytes_per_s=MIB),
            "efs volume 'a': throughput follows from mode 'elastic'; remove it or use provisioned",
        ),
        (
            _spec("efs", 100, one_zone=True, date="2020"),
            "efs volume 'a': there was no One Zone at its date; remove one_zone or change date",
        ),
    ],
)
def test_what_a_type_does_not_allow_is_refused_with_what_to_change(spec: VolumeSpec, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        model_for(spec)
    assert str(caught.value) == message


@pytest.mark.parametrize("type_", ["gp2", "gp3", "io1", "io2", "st1", "sc1", "instance-store"])
def test_every_type_says_where_its_limits_come_from_and_survives_json(type_: str) -> None:
    iops = 3000 if type_ in ("io1", "io2", "instance-store") else None
    spec = _spec(type_, 500, iops=iops)
    model = model_for(spec)
    assert type_ in volume_types()
    assert generation_of(spec).sources
    assert generation_of(spec).since
    assert Model.from_json(json.loads(json.dumps(model.to_json()))) == model


def test_only_gp2_and_gp3_claim_measured_latencies() -> None:
    def assumed(spec: VolumeSpec) -> bool:
        return any(source.startswith("assumed") for source in generation_of(spec).sources)

    assert not assumed(_spec("gp2", 100))
    assert not assumed(_spec("gp3", 100))
    assert assumed(_spec("io2", 100, iops=3000))


def test_io2_stays_below_the_500_us_average_that_aws_publishes_for_16_kib() -> None:
    model = model_for(_spec("io2", 100, iops=3000))
    assert max(model.read.median_s(16 * 1024), model.write.median_s(16 * 1024)) < 500e-6


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            VolumeSpec(
                name="a",
                type="gp3",
                size_bytes=100 * GIB,
                iops=4000,
                throughput_bytes_per_s=round(1000.1 * MIB),
            ),
            r"1000\.1 MiB/s needs at least 4,001 IOPS",
        ),
        (_spec("gp3", 65536.01), r"65536\.01 GiB is outside 1 to 65,536 GiB"),
    ],
)
def test_a_refusal_does_not_contradict_itself(spec: VolumeSpec, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        model_for(spec)


@pytest.mark.parametrize("mode", ["bursting", "elastic"])
def test_a_client_of_one_zone_reaches_500_mib_per_second_in_any_mode(mode: str) -> None:
    spec = VolumeSpec(name="a", type="efs", size_bytes=GIB, mode=mode, one_zone=True)
    assert _rates(spec)["client-throughput"] == 500 * MIB
    assert _rates(VolumeSpec(name="a", type="efs", size_bytes=GIB))["client-throughput"] == 1500 * MIB


@pytest.mark.parametrize("type_", ["io1", "io2"])
def test_instances_that_are_not_of_nitro_reach_32000_iops(type_: str) -> None:
    def volume(iops: int, instance: str) -> VolumeSpec:
        return VolumeSpec(name="a", type=type_, size_bytes=2000 * GIB, iops=iops, instance=instance)

    assert _rates(volume(32_000, "i3.16xlarge"))["iops"] == 32_000
    assert _rates(volume(40_000, "m5.4xlarge"))["iops"] == 40_000
    with pytest.raises(PlanError, match=r"40,000 IOPS is more than 32,000, .* i3.16xlarge"):
        model_for(volume(40_000, "i3.16xlarge"))
