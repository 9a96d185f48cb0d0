"""What advice says: its sentences, its tables for people and programs, its plot."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from recorded_requests import BLOCK, COMPUTE_S, GP3, IOS, REQUESTS, ST1, folder_of, recorded, recording
from small_plan import small_plan

from esrally_ebs.advice.advice import Advice, advise, usage_options
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.tables import build_advice, plan_text
from esrally_ebs.advice.usage import Interval
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.model import Bound, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.report import Report, render_html, render_json
from esrally_ebs.units import GIB, KIB

LOOSE = Bound(percentile=90, seconds=1.0)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    made = recording(recorded())
    return Predictor(made, thread_of(made))


def report_of(advice: Advice, predictor: Predictor) -> Report:
    return build_advice(recorded(), advice, predictor, region="us-east-1")


def test_programs_get_seconds_and_shares(predictor: Predictor) -> None:
    """Of all tables but the front they had texts: "25.3 ms", "+1.2%"."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    tables = json.loads(render_json(report_of(advice, predictor)))["tables"]
    p50_s, p90_s, _ = predictor.check.tasks["t0"]
    assert tables["tasks"]["t0"]["today p50"] == {"s": pytest.approx(p50_s)}
    assert tables["tasks"]["t0"]["today p90"] == {"s": pytest.approx(p90_s)}
    assert tables["self-check"]["p50"]["off by"] == {"share": pytest.approx(predictor.errors[50])}
    (used,) = tables["used"].values()
    assert used["iops"] == {"share": pytest.approx(predictor.check.used["iops"])}
    assert tables["access"]["t0"]["MiB"] == {"bytes": pytest.approx(predictor.patterns[0].bytes)}


def test_programs_get_seconds_and_shares_of_a_log() -> None:
    log = [Interval(seconds=60, reads=60 * 5000, read_bytes=60 * 5000 * KIB, writes=0, written_bytes=0)]
    today = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None)
    options, _ = usage_options(log, today, region="us-east-1", types=["gp3"])
    usage = json.loads(render_json(build_usage("log", log, options, region="us-east-1")))["tables"]["usage"]
    of_today = usage["gp2 100 GiB (today)"]
    assert of_today["a month"] == {"usd_month": 10.0}
    assert of_today["at its limit for"] == {"s": 60.0}
    assert of_today["lowest credits"] == {"share": pytest.approx(1 - 60 * (5000 - 300) / 5_400_000)}
    assert usage["gp3 100 GiB, 6,000 IOPS, 125 MiB/s"]["at its limit for"] == {"s": 0.0}


def test_todays_volume_and_its_setting_without_credits_are_two_rows(predictor: Predictor) -> None:
    """Of what I/Os wait for both had one name; in JSON one of them was lost where both began with 0%."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    assert advice.best is not None
    slower = replace(advice.best.prediction, whole=advice.best.prediction.whole[2:] * 3)
    advice = replace(advice, options=(replace(advice.best, prediction=slower),))
    advice = replace(advice, best=advice.options[0])
    tables = json.loads(render_json(report_of(advice, predictor)))["tables"]
    name = "gp3 100 GiB, 3,000 IOPS, 125 MiB/s"
    assert {*tables["front"]} == {*tables["limits"]} == {*tables["used"]} == {name, f"{name} (today)"}


@pytest.mark.parametrize(
    ("today", "types", "verdict"),
    [
        (GP3, ["gp3"], "keeps p90 of 1000 ms: that of today, 8.00 USD a month."),
        (
            VolumeSpec(name="a", type="sc1", size_bytes=1024 * GIB, credits=0.0),
            ["gp3", "st1"],
            "st1 1024 GiB is the cheapest that keeps p90 of 1000 ms: 46.08 USD a month. Today's volume keeps"
            " it as it was recorded, for 15.36 USD a month.",
        ),
        (
            VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB),
            ["gp3"],
            "gp3 100 GiB, 3,000 IOPS, 125 MiB/s is the cheapest that keeps p90 of 1000 ms: 8.00 USD a month.",
        ),
    ],
)
def test_a_volume_of_today_that_is_as_good_is_named(
    predictor: Predictor, today: VolumeSpec, types: list[str], verdict: str
) -> None:
    """Types to choose from leave out what sc1, or a disk of the instance, costs and does: a dearer volume was
    called the cheapest.
    """
    advice = advise(predictor, today, LOOSE, region="us-east-1", types=types)
    assert report_of(advice, predictor).verdict.endswith(verdict)


def test_where_none_keeps_the_bound_the_fastest_is_named(predictor: Predictor) -> None:
    """The answer was that none does, and how near the best comes stood in a table's last row."""
    bound = Bound(percentile=90, seconds=0.001)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3", "io2"])
    report = report_of(advice, predictor)
    assert report.verdict == "No setting that was looked at keeps p90 of 1 ms."
    assert report.details[1].startswith("The fastest is io2 100 GiB, 100 IOPS: p90 ")
    advice = replace(advice, today=replace(advice.today, bound=LOOSE))
    verdict = report_of(advice, predictor).verdict
    assert verdict.endswith(" Today's volume keeps it as it was recorded, for 8.00 USD a month.")


def test_the_page_says_how_many_warnings_there_are_and_no_more(predictor: Predictor) -> None:
    """A full stop stood alone before that."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    assert '<p class="about"><a href="#warnings">' in render_html(report_of(advice, predictor))


def test_the_plot_shows_what_is_named_and_todays_volume(predictor: Predictor) -> None:
    """Settings of up to 10,000 USD left those of 8 to 19 a hundredth of its width."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3", "io2", "st1"])
    (plot,) = report_of(advice, predictor).figures.tradeoffs
    named = [option.usd for option in (*advice.front, advice.today, advice.best) if option]
    assert max(chain(*(curve.x for curve in plot.curves))) <= 2 * max(named)
    assert (plot.curves[-1].name, plot.curves[-1].x) == ("today", (8.0,))
    times_ms = [*chain(*(curve.y for curve in plot.curves))]
    assert plot.log_y is (max(times_ms) > 10 * min(times_ms))


def st1_credits_last_s(gib: int) -> float:
    """One is a MiB for each GiB; each read takes one, and 40 MiB/s of a TiB come back.

    Requests come a second after one another.
    """
    read = model_for(ST1).read
    request_s = (IOS + 1) * COMPUTE_S + IOS * read.median_s(BLOCK) * np.exp(read.sigma**2 / 2)
    mib_per_s = REQUESTS * IOS / (REQUESTS * request_s + REQUESTS - 1)
    return float(gib * 1024 / (mib_per_s - 40 * gib / 1024))


def test_full_credits_last_as_long_as_more_is_taken_than_comes_back(predictor: Predictor) -> None:
    made = predictor.predict(ST1)
    assert made.credits_last_s == {"credits": pytest.approx(st1_credits_last_s(500), rel=0.05)}
    assert replace(made, spec=replace(ST1, time_scale=60.0)).credits_last_s == made.credits_last_s
    assert predictor.predict(replace(ST1, type="gp2")).credits_last_s == {"credits": math.inf}
    assert predictor.check.credits_last_s == {}
    instance = predictor.predict(replace(GP3, instance="t3.nano")).credits_last_s  # 250 of 11,800 IOPS
    assert instance == {"instance-throughput-credits": math.inf, "instance-iops-credits": math.inf}


def test_how_long_credits_last_and_what_requests_take_meanwhile_is_a_table(predictor: Predictor) -> None:
    """Settings that burst were predicted without credits alone."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp2", "gp3", "st1"])
    (bursting,) = (one for one in report_of(advice, predictor).tables if one.key == "bursting")
    rows = {row.item: row.cells for row in bursting.rows}
    assert rows["gp2 100 GiB"][-1].text == "for good"
    assert rows["gp2 100 GiB"][3].text == "yes"
    last_s = rows["st1 125 GiB"][-1].facts["last_s"]
    assert last_s == pytest.approx(st1_credits_last_s(125), rel=0.05)
    assert rows["st1 125 GiB"][-1].text == f"{last_s / 3600:,.2f} h"  # type: ignore[operator]
    full = predictor.predict(replace(ST1, size_bytes=125 * GIB))
    assert rows["st1 125 GiB"][0].facts == {"s": full.percentile(50).value}
    gp3_alone = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    assert "bursting" not in [one.key for one in report_of(gp3_alone, predictor).tables]


def test_how_long_the_burst_of_an_instance_lasts_is_said(predictor: Predictor) -> None:
    advice = advise(predictor, replace(GP3, instance="t3.nano"), LOOSE, region="us-east-1", types=["gp3"])
    used = {**predictor.check.used, "instance-iops-credits": 3.0, "instance-throughput-credits": 0.1}
    today = replace(advice.today, prediction=replace(advice.today.prediction, used=used))
    (line,) = (one for one in report_of(replace(advice, today=today), predictor).warnings if "t3.nano" in one)
    hours = (11_800 - 250) * 1800 / (2 * 250) / 3600  # 500 more a second are taken than come back
    assert f"with requests as on today's volume that lasts {hours:,.2f} h. Under a load" in line


def test_a_race_of_another_track_is_refused_with_the_way_to_do_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error named a file that was there no longer, and told to name a track of ours."""
    made = replace(recorded(), plan=small_plan(race={"track": "geonames"}))
    folder = folder_of(tmp_path, made)
    assert main(["advise", str(folder.path), "--keep", "p90=1s", "--race"]) == 2
    said = "--race: session s1 raced track 'geonames', which is none of ours; give --plan FILE instead"
    assert said in capsys.readouterr().err


def test_settings_are_raced_on_instances_of_their_own(predictor: Predictor) -> None:
    """Of a volume whose time runs faster the plan was refused: two arms shared an instance."""
    today = replace(GP3, instance="m5.large", time_scale=60.0)
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    advice = advise(predictor, today, bound, region="us-east-1", types=["io2"])
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [arm.instance for arm in arms[:2]] == ["m5.large", "m5.large#1"]
