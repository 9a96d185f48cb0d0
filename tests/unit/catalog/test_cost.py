"""Monthly prices of volumes, and what they buy."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.catalog import cost
from esrally_ebs.catalog.cost import Rate, Usage, monthly, of_arms, price_list
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.report import build
from esrally_ebs.report.costs import costs
from esrally_ebs.store import Session, SessionFolder, load_session

MIB, GIB = 1024**2, 1024**3
GP2 = VolumeSpec(name="gp2", type="gp2", size_bytes=100 * GIB)
GP3 = VolumeSpec(name="gp3", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=128 * MIB)
TOKYO, VIRGINIA = "ap-northeast-1", "us-east-1"


def volume(type_: str, gib: int, **more: Any) -> VolumeSpec:  # noqa: ANN401 - fields of a VolumeSpec
    return VolumeSpec(name="a", type=type_, size_bytes=gib * GIB, **more)


def test_every_price_that_is_listed_is_charged_for_some_volume_of_its_type() -> None:
    listed = price_list()
    used = Usage(read_bytes=GIB, written_bytes=GIB, ios=1_000_000)
    marked = Rate(usd=7.0, dated="2026-11-21", source="told apart from all others", verified=False)
    for type_, what in {key[1:] for key in listed.rates}:
        prices = replace(listed, rates={**listed.rates, (VIRGINIA, type_, what): (marked,)})
        bought = volume(type_, 100, iops=100_000, throughput_bytes_per_s=GIB)
        specs = [bought]
        if type_ == "efs":
            specs += [replace(bought, mode="elastic"), replace(bought, one_zone=True)]
        parts = [part for one in specs for part in monthly(one, VIRGINIA, usage=used, prices=prices).parts]
        assert marked in [part.rate for part in parts], f"{type_}: {what}"


def test_the_two_tokyo_prices_of_the_2021_article_come_out_to_the_cent() -> None:
    for spec, usd in ((GP2, 12.00), (GP3, 9.744)):  # 100 * 0.12; 100 * 0.096 + 3 * 0.048
        price = monthly(spec, TOKYO, on="2021-06-30")
        assert price.usd == pytest.approx(usd)
        assert price.dated == "2021-06-01"


@pytest.mark.parametrize(
    ("spec", "usd"),
    [
        (volume("gp3", 10, iops=4000), 0.8 + 5.0),  # 10 * 0.08; 1000 * 0.005
        (volume("gp3", 10), 0.8),
        (volume("io1", 100, iops=1000), 12.5 + 65.0),
        # 32,000 * 0.065 + 32,000 * 0.0455 + 36,000 * 0.03185
        (volume("io2", 100, iops=100_000), 12.5 + 2080.0 + 1456.0 + 1146.6),
        (volume("st1", 500), 22.5),
        (volume("gp2", 1024, stripes=3), 307.2),
        (volume("instance-store", 150, iops=30_000), 0.0),
        # 100 MiB/s less 230 GiB * 0.05: 88.5 * 6, as infracost bills it
        (volume("efs", 230, mode="provisioned", throughput_bytes_per_s=100 * MIB), 69.0 + 531.0),
        (volume("efs", 100, mode="bursting", one_zone=True), 16.0),
    ],
)
def test_what_is_provisioned_is_paid_for(spec: VolumeSpec, usd: float) -> None:
    assert monthly(spec, VIRGINIA).usd == pytest.approx(usd)


def test_what_is_moved_is_paid_for_where_it_is_billed() -> None:
    usage = {"a": Usage(read_bytes=100 * GIB, written_bytes=100 * GIB, ios=2_000_000)}
    for spec, usd in (
        (volume("efs", 100, mode="elastic"), 36.0 + 100 * (0.04 + 0.07)),
        (volume("gp2", 100), 12.0),
    ):
        (arm,) = of_arms([spec], TOKYO, usage=usage)
        assert arm.price is not None
        assert arm.price.usd == pytest.approx(usd)
    magnetic = monthly(volume("standard", 100), VIRGINIA, usage=usage["a"])
    assert magnetic.usd == pytest.approx(5.0 + 2 * 0.05)


def test_a_price_says_of_when_it_is_and_where_it_is_from() -> None:
    for region in price_list().regions("gp3"):
        price = monthly(GP3, region)
        assert price.dated.startswith("20")
        assert price.source
    assert monthly(GP2, TOKYO).unverified == ()
    assert monthly(GP2, "us-east-2").unverified == ("storage",)  # assumed to be us-east-1's


def test_the_list_of_a_day_is_the_newest_up_to_it() -> None:
    sc1 = volume("sc1", 1000)
    assert monthly(sc1, VIRGINIA, on="2020-01-01").usd == pytest.approx(25.0)  # the price of 2017
    assert monthly(sc1, VIRGINIA).usd == pytest.approx(15.0)
    assert monthly(sc1, VIRGINIA, on="2000-01-01").usd == pytest.approx(25.0)  # none so old: the oldest


def test_what_the_list_does_not_have_is_one_line_that_says_how_to_give_it() -> None:
    with pytest.raises(PlanError) as refused:
        monthly(GP2, "eu-north-1")
    text = str(refused.value)
    assert text.startswith(
        "price of gp2 gb in eu-north-1: not known (this type's prices are known in ap-northeast-1,"
    )
    assert "ESRALLY_EBS_PRICES" in text
    assert "\n" not in text
    (arm,) = of_arms([VolumeSpec(name="d", type="directory", size_bytes=GIB)], TOKYO)
    assert arm.price is None
    assert arm.problem == "arm d: a directory has no price; give its type, such as gp3"


def test_a_user_s_file_goes_before_our_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "prices.json"
    rates = {"gb": [[0.5, "2026-01-01", "invoice"], [0.1, "9999-01-01", "an offer that does not hold yet"]]}
    file.write_text(json.dumps({"regions": {"eu-north-1": {"gp2": rates}, TOKYO: {"gp2": rates}}}))
    for region in ("eu-north-1", TOKYO):
        price = monthly(GP2, region, prices=price_list(str(file)))
        assert (price.usd, price.dated, price.source) == (50.0, "2026-01-01", "invoice")
    monkeypatch.setenv("ESRALLY_EBS_PRICES", str(file))
    assert monthly(GP2, "eu-north-1").usd == 50.0
    assert monthly(GP3, TOKYO).usd == pytest.approx(9.744)  # ours still


def test_a_list_that_an_editor_on_windows_has_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text('{"regions": {}}', encoding="utf-8-sig")
    assert price_list(str(tmp_path / "prices.json")).rates == price_list().rates


def test_a_variable_that_names_no_file_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESRALLY_EBS_PRICES", "")
    assert monthly(GP2, TOKYO) == monthly(GP2, TOKYO, prices=price_list())


def test_efs_without_a_mode_is_billed_as_it_behaves() -> None:
    usage = Usage(read_bytes=100 * GIB, written_bytes=100 * GIB)
    for date, mode in ((None, "elastic"), ("2020", "bursting")):
        unsaid = monthly(volume("efs", 100, date=date), VIRGINIA, usage=usage)
        assert unsaid == monthly(volume("efs", 100, date=date, mode=mode), VIRGINIA, usage=usage)


def test_what_is_paid_by_use_is_paid_once_however_many_volumes_are_one() -> None:
    usage = Usage(ios=2_000_000)
    one, two = (monthly(volume("magnetic", 100, stripes=n), VIRGINIA, usage=usage) for n in (1, 2))
    assert [part.amount for part in one.parts] == [100, 2]
    assert [part.amount for part in two.parts] == [200, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not JSON"),
        ("[]", "must be a table"),
        ("[" * 100_000, "nested too deeply"),
        ('{"region": {}}', "no key 'region' in a price list; use units, included, "),
        ('{"regions": {"r": {"gp2": {"GB": [1, "2026-01-01", "x"]}}}}', "r.gp2: no key 'GB' in a price list"),
        ('{"sources": []}', "sources: must be a table"),
        ('{"unverified": [1]}', "unverified: must be a table"),
        ('{"regions": {"r": {"gp2": {"gb": [[1e999, "2026-01-01", "x"]]}}}}', "r.gp2.gb: "),
        ('{"regions": {"r": {"gp2": 1}}}', "r.gp2: must be a table"),
        ('{"regions": {"r": {"gp2": {"gb": [[-1, "2026-01-01", "x"]]}}}}', "r.gp2.gb: "),
        ('{"regions": {"r": {"gp2": {"gb": [[NaN, "2026-01-01", "x"]]}}}}', "r.gp2.gb: "),
        ('{"regions": {"r": {"gp2": {"gb": [[true, "2026-01-01", "x"]]}}}}', "r.gp2.gb: "),
        ('{"regions": {"r": {"gp2": {"gb": [[1, "yesterday", "x"]]}}}}', "r.gp2.gb: "),
        ('{"regions": {"r": {"gp2": {"gb": []}}}}', "r.gp2.gb: "),
    ],
)
def test_a_file_that_is_no_price_list_is_refused_in_one_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)
    with pytest.raises(PlanError) as refused:
        price_list(str(file))
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_a_volume_holds_for_good_is_what_its_price_is_set_against() -> None:
    # 12 USD for 300 IOPS (the burst ends) of 256 KiB at most; 9.744 USD for 3000 IOPS and 128 MiB/s
    gp2, gp3 = of_arms([GP2, GP3], TOKYO)
    assert (gp2.iops, gp3.iops) == (300, 3000)
    assert gp2.usd_per_1000_iops == pytest.approx(40.0)
    assert gp2.usd_per_mib_per_s == pytest.approx(12 / 75)
    assert gp3.usd_per_1000_iops == pytest.approx(3.248)
    assert gp3.usd_per_mib_per_s == pytest.approx(9.744 / 128)


@given(st.integers(1, 16_384), st.integers(3000, 16_000), st.integers(125, 1000))
def test_more_never_costs_less(gib: int, iops: int, mib: int) -> None:
    prices = cost.price_list()

    def usd(size: int, operations: int, throughput: int) -> float:
        spec = volume("gp3", size, iops=operations, throughput_bytes_per_s=throughput * MIB)
        return monthly(spec, TOKYO, prices=prices).usd

    here = usd(gib, iops, mib)
    assert here <= usd(gib + 1, iops, mib)
    assert here <= usd(gib, iops + 1, mib)
    assert here <= usd(gib, iops, mib + 1)


@pytest.mark.parametrize(("alias", "name"), [("magnetic", "standard"), ("io2-block-express", "io2")])
def test_a_user_s_file_may_call_a_type_as_a_plan_does(alias: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    gib, iops = [[0.5, "2026-01-01", "invoice"]], [[0.0, "2026-01-01", "invoice"]]
    file.write_text(json.dumps({"regions": {VIRGINIA: {alias: {"gb": gib, "iops": iops}}}}))
    for type_ in (alias, name):
        spec = VolumeSpec(name="a", type=type_, size_bytes=100 * GIB, iops=1000 if name == "io2" else None)
        assert monthly(spec, VIRGINIA, prices=price_list(str(file))).usd == 50.0


def test_a_plan_names_region_price_list_and_what_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prices.json"
    monkeypatch.chdir(tmp_path)
    file.write_text(json.dumps({"regions": {"eu-north-1": {"efs": EFS_RATES}}}))
    plan = parse_plan(
        f"""name = "p"
        [[arm]]
        name = "a"
        type = "efs"
        mode = "elastic"
        size = "100GiB"
        [cost]
        region = "eu-north-1"
        prices = "{file.name}"
        read = "10GiB"
        written = "20GiB"
        """,
        "p.toml",
    )
    monkeypatch.chdir("/")  # reported from elsewhere
    session = recorded(plan, tmp_path)
    (cost,) = costs(session)
    assert cost.price is not None
    assert cost.price.usd == pytest.approx(100 * 0.5 + 10 * 0.1 + 20 * 0.2)
    file.write_text("{}")  # the folder has a copy, and may be on another machine
    assert costs(session) == (cost,)
    monkeypatch.setenv("ESRALLY_EBS_PRICES", str(file))
    assert costs(session) == (cost,)
    file.unlink()
    (session.path / "prices.json").unlink()
    monkeypatch.delenv("ESRALLY_EBS_PRICES")
    (cost,) = costs(session)
    assert cost.price is None
    assert "prices cannot be read: No such file or directory; name" in cost.problem


def test_a_price_that_the_list_of_a_plan_lacks_may_be_in_that_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages ask for a file in the variable, which was not read beside another list."""
    own, other = tmp_path / "own.json", tmp_path / "other.json"
    for file, usd in ((own, 0.5), (other, 0.7)):
        rates = {"gb": [[usd, "2026-01-01", file.name]]}
        file.write_text(json.dumps({"regions": {"eu-north-1": {"gp2" if file == own else "st1": rates}}}))
    monkeypatch.setenv("ESRALLY_EBS_PRICES", str(other))
    prices = price_list(str(own))
    assert monthly(GP2, "eu-north-1", prices=prices).usd == 50.0
    assert monthly(volume("st1", 500), "eu-north-1", prices=prices).usd == 350.0


def test_a_list_that_cannot_be_read_keeps_no_session_from_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESRALLY_EBS_PRICES", "/nowhere/prices.json")
    plan = parse_plan('name = "p"\narm = [{name = "a", type = "gp3"}]', "p.toml")
    assert "/nowhere/prices.json: prices cannot be read" in costs(recorded(plan, tmp_path))[0].problem


def test_a_price_list_at_home_or_of_a_directory_that_is_gone_stays_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for name in ("~/prices.json", "prices.json"):
        text = f'name = "p"\narm = [{{name = "a", type = "gp3"}}]\ncost = {{prices = "{name}"}}'
        assert str(parse_plan(text, "/p.toml").cost.prices) == name


EFS_RATES = {
    "gb": [[0.5, "2026-01-01", "invoice"]],
    "read_gb": [[0.1, "2026-01-01", "invoice"]],
    "written_gb": [[0.2, "2026-01-01", "invoice"]],
}


def recorded(plan: Plan, home: Path) -> Session:
    folder = SessionFolder.create(home, "s", kind="fio", plan=plan)
    (spec,) = plan.arm
    folder.update(arms=[Volume(spec=spec, kind=Kind.EMULATED, mount=home)])
    return load_session(folder.path)


def test_what_is_on_an_instance_has_the_prices_of_its_region(tmp_path: Path) -> None:
    plan = parse_plan('name = "p"\narm = [{name = "a", type = "gp2", size = "100GiB"}]\n', "p.toml")
    session = recorded(plan, tmp_path)
    (here,) = costs(replace(session, environment={"aws": {"instance": {"region": TOKYO}}}))
    assert (here.price and here.price.region, here.price and here.price.usd) == (TOKYO, pytest.approx(12.0))
    for environment in ({}, {"aws": {"instance": None}}):
        (elsewhere,) = costs(replace(session, environment=environment))
        assert elsewhere.price is not None
        assert elsewhere.price.region == VIRGINIA


def test_an_arm_that_comes_with_its_instance_is_of_no_price_list(tmp_path: Path) -> None:
    plan = parse_plan('name = "p"\narm = [{name = "a", type = "gp3", size = "10GiB"}]\n', "p.toml")
    arms = [
        Volume(spec=VolumeSpec(name=type_, type=type_, iops=3000), kind=Kind.EMULATED, mount=tmp_path)
        for type_ in ("instance-store", "gp3")
    ]
    folder = SessionFolder.create(tmp_path, "s", kind="fio", plan=plan)
    folder.update(arms=arms)

    (table,) = [table for table in build(load_session(folder.path)).tables if table.key == "cost"]

    assert re.search(r"no region, by price lists of \d{4}-\d\d-\d\d\.$", table.notes[0])


def test_a_table_without_a_price_names_no_price_list(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    plan = parse_plan(
        f"""name = "p"
        arm = [{{name = "a", type = "gp3", size = "10GiB"}}]
        cost = {{prices = "{file}"}}
        """,
        "p.toml",
    )

    (table,) = [table for table in build(recorded(plan, tmp_path)).tables if table.key == "cost"]

    assert "Storage and what is provisioned with it, in us-east-1; the plan names no region." in table.notes


@pytest.mark.parametrize(("type_", "is_told"), [("gp3", True), ("directory", False)])
def test_a_region_that_was_named_and_has_no_price_is_told(tmp_path: Path, type_: str, is_told: bool) -> None:
    plan = parse_plan(
        f"""name = "p"
        arm = [{{name = "a", type = "{type_}", size = "10GiB"}}]
        cost = {{region = "eu-south-9"}}
        """,
        "p.toml",
    )
    tables = [table for table in build(recorded(plan, tmp_path)).tables if table.key == "cost"]
    notes = [note for table in tables for note in table.notes if note.startswith("No price: ")]
    assert [note.split(":")[1] for note in notes] == [" price of gp3 gb in eu-south-9"] * is_told
