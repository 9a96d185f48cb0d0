"""Which setting is advised of those that are looked at, and what the command says of it."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path

import numpy as np
import pytest
from recorded_requests import GP3, folder_of, of_computing, recorded, recording
from small_plan import small_plan

from esrally_ebs.advice.advice import advise, priced_settings, settings
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Prediction, Predictor
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.catalog.cost import Usage, monthly, price_list
from esrally_ebs.catalog.volume_types import known_model, large_enough, model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import PlanError
from esrally_ebs.model import Bound, VolumeSpec
from esrally_ebs.plan import load_plan
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.virtual.replay import Load


def test_the_cheapest_setting_whose_upper_end_keeps_the_bound_is_advised(predictor: Predictor) -> None:
    today = predictor.check.percentile(90).value
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=today * 1.2), region="us-east-1")
    assert advice.best is not None
    assert advice.best.keeps
    assert not [option for option in advice.options if option.usd < advice.best.usd and option.keeps]
    costs = [option.usd for option in advice.front]
    assert costs == sorted(costs)
    times = [option.value_s for option in advice.front]
    assert times == list(accumulate(times, min))


def test_a_step_up_keeps_the_bound_that_is_kept_already(predictor: Predictor) -> None:
    """A dearer volume was offered as faster, whose interval reached beyond the bound."""
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3", "io2"])
    io2 = next(option for option in advice.options if option.spec.type == "io2")
    assert advice.best is not None
    assert advice.neighbours()[1] == io2
    wide = tuple(replace(one, high=2.0) for one in io2.prediction.whole)
    doubtful = replace(io2, prediction=replace(io2.prediction, whole=wide))
    changed = replace(advice, options=tuple(doubtful if one is io2 else one for one in advice.options))
    assert doubtful in changed.front
    assert changed.neighbours()[1] is None


def test_what_is_paid_by_use_today_is_part_of_todays_price(predictor: Predictor) -> None:
    """An EFS whose reads cost more than its storage was said to cost its storage, unlike in the report."""
    efs = VolumeSpec(name="a", type="efs", mode="elastic")
    bound, where = Bound(percentile=90, seconds=1.0), {"region": "us-east-1", "types": ["gp3"]}
    today = advise(predictor, efs, bound, **where, used=Usage(read_bytes=5000 * GIB)).today
    without = advise(predictor, efs, bound, **where).today
    assert today.usd > without.usd + 100


def test_no_setting_keeps_what_computing_alone_takes(predictor: Predictor) -> None:
    advice = advise(predictor, GP3, Bound(percentile=50, seconds=0.001), region="us-east-1", types=["gp3"])
    assert (advice.best, advice.doubtful) == (None, None)


def test_todays_volume_suffices_unless_it_lives_on_burst_credits(
    predictor: Predictor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code said that none keeps the bound, the first line that today's volume does."""
    high_s = predictor.check.percentile(90).high
    assert high_s is not None
    folder = folder_of(tmp_path, recorded())
    assert main(["advise", str(folder.path), "--keep", f"p90={high_s * 1.01:.6f}s", "--types=st1"]) == 0
    assert "No setting that was looked at keeps" in (said := capsys.readouterr().out)
    assert "Today's volume keeps it as it was recorded" in said
    bound = Bound(percentile=90, seconds=10.0)
    alone = replace(advise(predictor, GP3, bound, region="us-east-1", types=["gp3"]), best=None)
    gp2 = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None)
    for volume, suffices in ((GP3, True), (gp2, False), (replace(gp2, credits=0.0), True)):
        assert replace(alone, recorded=volume).suffices is suffices


def test_a_setting_in_doubt_is_to_be_measured_only_where_it_is_cheaper_than_todays_that_keeps_the_bound(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code asked for a race of a dearer volume, where today's was said to keep the bound."""
    predict = predictor.predict

    def in_doubt(spec: VolumeSpec) -> Prediction:
        made = predict(spec)
        return replace(made, whole=tuple(replace(one, low=0.0, high=99.0) for one in made.whole))

    monkeypatch.setattr(predictor, "predict", in_doubt)
    bound = Bound(percentile=90, seconds=10.0)
    dearer = advise(predictor, GP3, bound, region="us-east-1", types=["io2"])
    assert (dearer.best, dearer.doubtful, dearer.suffices) == (None, None, True)
    cheaper = advise(predictor, GP3, bound, region="us-east-1", types=["st1"])
    assert cheaper.doubtful is not None
    assert cheaper.doubtful.usd < cheaper.today.usd


def test_what_is_bought_today_is_looked_at_too() -> None:
    """The cheapest that keeps a bound may be today's: only round figures were looked at."""
    looked_at = {(one.iops, one.throughput_bytes_per_s) for one in settings(replace(GP3, iops=3500), ["gp3"])}
    assert {(3500, 125 * MIB), (3500, 750 * MIB), (4000, 1000 * MIB), (3000, 125 * MIB)} <= looked_at
    assert 7000 in [one.iops for one in settings(replace(GP3, type="io2", iops=7000), ["io2"])]


def test_settings_of_another_type_are_whole_as_aws_sells_them() -> None:
    """A gp3 of 1769.51 GiB and 953.674 MiB/s was advised in place of a disk of 1.9 TB that reads 1 GB/s."""
    disk = VolumeSpec(
        name="a", type="instance-store", size_bytes=1_900 * 10**9, iops=1000, throughput_bytes_per_s=10**9
    )
    looked_at = list(settings(disk, ["gp2", "gp3", "io2", "st1"]))
    assert {1770, 2000} <= {one.size_bytes / GIB for one in looked_at}
    assert 954 * MIB in [one.throughput_bytes_per_s for one in looked_at]
    assert not [one for one in looked_at if one.size_bytes % GIB or (one.throughput_bytes_per_s or 0) % MIB]
    own = settings(replace(GP3, size_bytes=500 * 10**9), ["gp3"])
    assert 500 * 10**9 in [one.size_bytes for one in own]


def test_settings_are_as_large_as_their_iops_need() -> None:
    """Of 5 GiB no gp3 of 4,000 IOPS was looked at, which costs 5.64 USD with 8 GiB, but an io2 of 260 USD."""
    small = replace(GP3, size_bytes=5 * GIB)
    gib = {one.iops: one.size_bytes // GIB for one in settings(small, ["gp3"])}
    assert (gib[3000], gib[4000], gib[16_000], gib[80_000]) == (5, 8, 32, 160)
    assert {one.size_bytes // GIB for one in settings(replace(GP3, size_bytes=GIB), ["io2"])} >= {4, 5, 80}
    priced, _ = priced_settings(small, ["gp3", "io2"], "us-east-1", price_list())
    cheapest = min((price.usd, one.type) for one, price in priced if (one.iops or 0) >= 4000)
    assert cheapest == (pytest.approx(5.64), "gp3")


def test_the_least_iops_that_are_sold_are_looked_at(predictor: Predictor) -> None:
    """Requests of 30 reads, each on full buckets, wait for no limit of 100 IOPS: 500 were advised."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["io2"])
    assert advice.best is not None
    assert (advice.best.spec.iops, advice.best.usd) == (100, pytest.approx(19.0))
    assert advice.best.prediction.binds == "latency"


def test_the_most_that_is_sold_is_looked_at() -> None:
    """No io2 of more than 80,000 IOPS was, and no st1 of more throughput than that of 5,334 GiB."""
    sold = [one for one in settings(GP3, ["gp3", "io2", "gp2", "st1"]) if known_model(one)]
    most = {
        type_: max(limit.rate for one in sold if one.type == type_ for limit in model_for(one).limits[:1])
        for type_ in ("gp3", "io2", "gp2")
    }
    assert most == {"gp3": 80_000, "io2": 256_000, "gp2": 16_000}
    rates = [model_for(one).limits[1].rate for one in sold if one.type == "st1"]
    assert max(rates) == 500 * MIB


def cheapest_usd(
    type_: str, fine: dict[str, range], bound: Bound, predict: Callable[[VolumeSpec], Prediction]
) -> float:
    """Of all these settings that keep the bound; infinite where none does."""
    usd = math.inf
    bare = replace(GP3, type=type_, credits=0.0, iops=None, throughput_bytes_per_s=None)
    for point in product(*fine.values()):
        spec = large_enough(replace(bare, **dict(zip(fine, point, strict=True))))
        price = monthly(spec, "us-east-1").usd
        if price < usd and known_model(spec):
            predicted = predict(spec)
            high_s = predicted.percentile(bound.percentile).high
            assert high_s is not None
            usd = price if high_s <= bound.seconds and not predicted.falls_behind else usd
    return usd


@pytest.mark.parametrize("latency_s", [0.018, 0.0195, 0.022, 0.024, 0.033, 0.05])
@pytest.mark.parametrize(
    ("type_", "fine"),
    [
        (
            "gp3",
            {"iops": range(3000, 32_000, 250), "throughput_bytes_per_s": range(125 * MIB, GIB, 25 * MIB)},
        ),
        ("io2", {"iops": range(100, 32_000, 50)}),
        ("gp2", {"size_bytes": range(100 * GIB, 5400 * GIB, 10 * GIB)}),
        ("st1", {"size_bytes": range(125 * GIB, 5400 * GIB, 10 * GIB)}),
    ],
)
def test_settings_between_round_figures_are_hardly_cheaper_than_what_is_advised(
    predictor: Predictor,
    type_: str,
    fine: dict[str, range],
    latency_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Round figures are far apart. Latencies are made up: IOPS and throughput both count."""
    usual = predictor.check
    bound = Bound(percentile=90, seconds=latency_s)

    def predict(spec: VolumeSpec) -> Prediction:
        rates = {limit.counts: limit.rate for limit in model_for(spec).limits}
        took_s = 0.015 + 20 / rates.get("operations", math.inf) + 0.6 * MIB / rates["bytes"]
        return replace(usual, spec=spec, whole=(Estimate(took_s, took_s / 1.02, took_s * 1.02),) * 3)

    monkeypatch.setattr(Predictor, "predict", lambda _, spec: predict(spec))
    best = advise(predictor, GP3, bound, region="us-east-1", types=[type_]).best
    assert (best.usd if best else math.inf) <= 1.02 * cheapest_usd(type_, fine, bound, predict)


def test_under_a_load_the_iops_that_it_takes_are_advised_rather_than_the_next_round_figure() -> None:
    """Of 110 requests a second with 30 reads each, which 3,000 IOPS do not serve."""
    of = recording(recorded())
    predictor = Predictor(of, thread_of(of)).under(Load(110.0, 8))
    bound = Bound(percentile=90, seconds=0.03)
    today = replace(GP3, type="io2", iops=3000, throughput_bytes_per_s=None)
    advice = advise(predictor, today, bound, region="us-east-1", types=["io2"])
    usd = cheapest_usd("io2", {"iops": range(2000, 6000, 50)}, bound, predictor.predict)
    assert advice.best is not None
    assert advice.best.usd <= 1.02 * usd
    assert advice.best in advice.options


def test_a_percentile_that_is_not_predicted_is_refused(predictor: Predictor) -> None:
    with pytest.raises(PlanError, match=r"^--keep p99\.9: volumes' models do not know rare slow I/Os; name"):
        advise(predictor, GP3, Bound(percentile=99.9, seconds=1.0), region="us-east-1")


def test_a_bound_may_be_on_any_percentile_up_to_p99() -> None:
    """Only p50, p90 and p99 were taken; many services promise their p95."""
    of = recording(recorded())
    predictor = Predictor(of, thread_of(of), 95.0)
    _, p90, p95, p99 = predictor.check.whole
    assert p90.value < p95.value < p99.value
    bound = Bound(percentile=95.0, seconds=predictor.check.percentile(95).value * 1.5)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    assert advice.best is not None
    assert advice.best.value_s == pytest.approx(p95.value)
    (front, *_) = build_advice(recorded(), advice, predictor).tables
    assert [column.title for column in front.columns][1:6] == ["p50", "p90", "p95", "p99", "p95 up to"]


def test_settings_hold_the_data_of_today_and_have_no_credits() -> None:
    made = list(settings(GP3, ["gp2", "gp3", "io2", "st1", "sc1", "io1"]))
    assert min(spec.size_bytes for spec in made) >= GP3.size_bytes
    assert {spec.credits for spec in made} == {0.0}
    with pytest.raises(PlanError, match=r"^--types efs: nothing of it is chosen but its mode; race it"):
        list(settings(GP3, ["efs"]))


def test_of_settings_as_dear_and_as_fast_the_newer_type_and_the_wider_limits_come_first() -> None:
    """Where computing is all that counts, and prices are those of 500 GiB: gp2 and gp3 cost the same."""
    computing = of_computing(np.full(64, 0.01))
    today = replace(GP3, size_bytes=500 * GIB)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(
        Predictor(computing, thread_of(computing)), today, bound, region="us-east-1", types=["gp2", "gp3"]
    )
    same = [one.spec for one in advice.options if one.usd == pytest.approx(50.0)]
    assert [(one.type, one.iops) for one in same] == [("gp3", 5000), ("gp3", 4000), ("gp2", None)]


def test_prices_are_those_of_the_plan_unless_another_region_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the report of the same session; and the plan of the race has them, too."""
    listed = tmp_path / "prices.json"
    rates = {what: [[1.0, "2026-11-21", "a contract"]] for what in ("gb", "iops", "mib_per_s")}
    listed.write_text(json.dumps({"regions": {"mars-north-1": {"gp3": rates}}}))
    cost = {"region": "us-east-2", "prices": str(listed), "read": 7}
    made = replace(recorded(), plan=small_plan(race={}, cost=cost))
    folder, plan = folder_of(tmp_path, made), tmp_path / "prove.toml"
    advise_ = ["advise", str(folder.path), "--keep", "p90=10s", "--plan", str(plan), "--types", "gp3"]
    assert main(advise_) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "prices of us-east-2" in out
    assert "Prices of prices.json go before ours." in out
    assert load_plan(plan).cost == made.plan.cost.model_copy(update={"prices": folder.path / "prices.json"})
    listed.unlink()  # the session has a copy
    assert main([*advise_, "--region", "mars-north-1"]) == 0
    assert "100.00 USD a month" in capsys.readouterr().out
    assert main([*advise_, "--region="]) == 2  # as of a variable that is not set: the plan's was taken
    assert "--region '': an empty value; is a variable" in capsys.readouterr().err


def test_the_command_reads_a_session_folder_and_its_exit_code_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path, recorded())
    plan = tmp_path / "prove.toml"
    advise_ = ["advise", str(folder.path), "--plan", str(plan)]
    assert main([*advise_, "--keep", "p90=10s"]) == 0
    assert "is the cheapest that keeps" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=1ms"]) == 1
    assert load_plan(plan).arm[0].name == "today"
    assert main([*advise_, "--keep", "p90=1ms", "--race"]) == 1
    assert "no race" in capsys.readouterr().err
    refused: list[str] = []
    monkeypatch.setattr(
        "esrally_ebs.cli.advice.run_sessions", lambda *a, **_: refused.append(a[0]) or ([], 4)
    )
    assert main([*advise_, "--keep", "p90=10s", "--race"]) == 4
    assert refused
    assert "is the cheapest" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=10s", "--types=gp3, gp3"]) == 0
    assert "160 settings are compared" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p90=10s", "--credits", "0.5"]) == 2
    assert "--credits: what session s1 raced had those of its plan" in capsys.readouterr().err
    assert main([*advise_, "--keep", "p50=1ms", "--keep", "p90=10s"]) == 2  # the first one was dropped
    assert "--keep: p50=1ms and p90=10s are 2 bounds; ask for each by itself" in capsys.readouterr().err
    for option in ("--arm=b", "--types="):
        assert main([*advise_, "--keep", "p90=10s", option]) == 2
        assert option.strip("=b") in capsys.readouterr().err
    (trace,) = (folder.path / "trace").glob("*.parquet")
    trace.unlink()
    assert main([*advise_, "--keep", "p90=1s"]) == 4
    assert "1,440 were written; copy the session again" in capsys.readouterr().err
    assert main(["usage", str(folder.path), "--size", "1GiB"]) == 2
    assert "s1: a session without a trace; name a log" in capsys.readouterr().err
