"""The volume types: what they allow, and the limits that follow, also of a date, EFS and instances."""

import json
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.catalog import generations
from esrally_ebs.catalog.generations import generation_of, last_day, volume_types
from esrally_ebs.catalog.limits import Model
from esrally_ebs.catalog.volume_types import instance_limits, model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec

MIB, GIB = 1024**2, 1024**3


def _spec(type_: str, gib: float = 100, **more: Any) -> VolumeSpec:  # noqa: ANN401
    return VolumeSpec(name="a", type=type_, size_bytes=int(gib * GIB), **more)


def _rates(spec: VolumeSpec) -> dict[str, float]:
    return {limit.name: limit.rate for limit in model_for(spec).limits}


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
        (
            _spec("gp3", date="2015"),
            "gp3 volume 'a': there was none on 2015-12-31, the type is of 2020-12-01; change date or type",
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
            _spec("gp3", 100, iops=4000, throughput_bytes_per_s=round(1000.1 * MIB)),
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
    assert _rates(_spec("efs", mode=mode, one_zone=True))["client-throughput"] == 500 * MIB
    assert _rates(_spec("efs"))["client-throughput"] == 1500 * MIB


@pytest.mark.parametrize("type_", ["io1", "io2"])
def test_instances_that_are_not_of_nitro_reach_32000_iops(type_: str) -> None:
    assert _rates(_spec(type_, 2000, iops=32_000, instance="i3.16xlarge"))["iops"] == 32_000
    assert _rates(_spec(type_, 2000, iops=40_000, instance="m5.4xlarge"))["iops"] == 40_000
    with pytest.raises(PlanError, match=r"40,000 IOPS is more than 32,000, .* i3.16xlarge"):
        model_for(_spec(type_, 2000, iops=40_000, instance="i3.16xlarge"))


@pytest.mark.parametrize(
    ("date", "gib", "iops", "mib"),
    [
        ("2014", 1000, 3000, 128),  # a TiB at most, 3 IOPS per GiB
        ("2015", 3072, 9216, 160),  # since 2015: 16 TiB and 160 MiB/s
        ("2015", 16_384, 10_000, 160),
        ("2018-12-02", 16_384, 10_000, 160),  # the day before
        ("2018-12-03", 16_384, 16_000, 250),
        ("2021", 16_384, 16_000, 250),
        (None, 16_384, 16_000, 250),
        (None, 5334, 16_000, 250),
        (None, 999, 3000, 250),
    ],
)
def test_gp2_has_the_limits_of_its_date(date: str | None, gib: int, iops: int, mib: int) -> None:
    rates = _rates(_spec("gp2", gib, date=date))
    assert (rates["iops"], rates["throughput"]) == (iops, mib * MIB)
    assert ("credits" in rates) == (gib < 1000)  # else the baseline is the burst


def test_gp3_of_2021_ends_where_that_of_now_goes_on() -> None:
    large = {"iops": 16_000, "throughput_bytes_per_s": 1000 * MIB}
    assert _rates(_spec("gp3", 32, date="2021", **large)) == {"iops": 16_000, "throughput": 1000 * MIB}
    with pytest.raises(PlanError, match="20,000 IOPS is outside 3,000 to 16,000; change iops"):
        model_for(_spec("gp3", 100, date="2021", iops=20_000))
    assert _rates(_spec("gp3", 100, iops=20_000))["iops"] == 20_000


@pytest.mark.parametrize(
    ("text", "day"), [("2015", "2015-12-31"), ("2015-07", "2015-07-31"), ("2016-02", "2016-02-29")]
)
def test_a_year_or_month_stands_for_its_last_day(text: str, day: str) -> None:
    assert last_day(text) == day


def test_volumes_of_2015_save_up_next_to_nothing() -> None:
    # published: 3,090 IOPS on 3,072 in runs of five seconds; a whole second saved up would have made 3,686
    iops = model_for(_spec("gp2", 1024, date="2015")).limits[0]
    assert iops.capacity < 0.05 * iops.rate


def test_unencrypted_reads_are_faster_as_published() -> None:
    # 278 against 418 us at 16 KiB on gp2; next to no difference on gp3
    for type_, least, most in (("gp2", 120e-6, 160e-6), ("gp3", 0, 20e-6)):
        with_, without = (
            model_for(_spec(type_, encrypted=on)).read.median_s(16 * 1024) for on in (True, False)
        )
        assert least <= with_ - without <= most


@pytest.mark.parametrize(
    ("date", "more", "mode"),
    [
        (None, {}, "elastic"),
        (None, {"throughput_bytes_per_s": 100 * MIB}, "provisioned"),
        ("2020", {}, "bursting"),  # one can be had without more being bought
    ],
)
def test_efs_without_a_mode_has_the_one_that_its_throughput_asks_for(
    date: str | None, more: dict[str, int], mode: str
) -> None:
    said, unsaid = (_spec("efs", date=date, mode=of, **more) for of in (mode, None))
    assert model_for(unsaid) == model_for(said)


def test_efs_clients_of_2022_are_held_at_500_mib_per_second_and_elastic_ones_of_now_at_1500() -> None:
    assert _rates(_spec("efs", mode="elastic", date="2022"))["client-throughput"] == 500 * MIB
    assert _rates(_spec("efs", mode="elastic"))["client-throughput"] == 1500 * MIB


def test_efs_one_zone_writes_sooner_than_regional() -> None:
    regional, one_zone = (model_for(_spec("efs", mode="elastic", one_zone=on)) for on in (False, True))
    assert one_zone.write.base_us < regional.write.base_us


def test_two_instances_of_a_type_have_the_same_limits_and_an_unknown_one_is_refused() -> None:
    one, other = (instance_limits(_spec("gp3", instance=name)) for name in ("m5.large", "m5.large#2"))
    assert one == other
    with pytest.raises(
        PlanError, match=r"gp3 volume 'a': no instance type 'm9.larg'; .*did you mean m\d\w*.large, "
    ):
        model_for(_spec("gp3", instance="m9.larg"))


def test_magnetic_is_another_name_of_standard() -> None:
    assert model_for(_spec("magnetic")).limits == model_for(_spec("standard")).limits


def test_every_constant_has_a_source_with_a_date() -> None:
    catalog = json.loads(Path(generations.__file__).with_name("catalog.json").read_text())
    assert set(catalog["types"]) == set(volume_types())
    named = [
        source
        for entry in catalog["types"].values()
        for generation in entry["generations"]
        for name, constant in generation.items()
        if name not in ("since", "note")
        for source in constant[1:]
    ]
    named += [entry["source"] for entry in catalog["instances"].values()]
    assert set(named) <= catalog["sources"].keys()
    assert all(source["date"][4] == "-" for source in catalog["sources"].values())
