"""The limits of a date, of EFS, of magnetic volumes, and of instances."""

import json
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.catalog import generations
from esrally_ebs.catalog.generations import last_day, volume_types
from esrally_ebs.catalog.volume_types import instance_limits, model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec

MIB, GIB, TIB = 1024**2, 1024**3, 1024**4


def _spec(type_: str, gib: float = 100, **more: Any) -> VolumeSpec:  # noqa: ANN401
    return VolumeSpec(name="a", type=type_, size_bytes=int(gib * GIB), **more)


def _rates(spec: VolumeSpec) -> dict[str, float]:
    return {limit.name: limit.rate for limit in model_for(spec).limits}


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
    ],
)
def test_gp2_has_the_limits_of_its_date(date: str | None, gib: int, iops: int, mib: int) -> None:
    rates = _rates(_spec("gp2", gib, date=date))
    assert (rates["iops"], rates["throughput"]) == (iops, mib * MIB)


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


def test_a_type_that_did_not_exist_is_refused_with_the_day_from_which_it_did() -> None:
    with pytest.raises(PlanError) as caught:
        model_for(_spec("gp3", date="2015"))
    assert str(caught.value) == (
        "gp3 volume 'a': there was none on 2015-12-31, the type is of 2020-12-01; change date or type"
    )


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
