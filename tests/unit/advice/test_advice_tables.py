"""What advice says: its sentences, its tables for people and programs, its plot."""

import json
import math
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from recorded_requests import (
    BLOCK,
    COMPUTE_S,
    GP3,
    IOS,
    REQUESTS,
    ST1,
    folder_of,
    of_computing,
    recorded,
)

from esrally_ebs.advice.advice import Advice, advise, usage_options
from esrally_ebs.advice.cells import usd_text
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.advice.usage import Interval
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.cost import CostPart, Price, Rate
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.model import Bound, VolumeSpec
from esrally_ebs.report import RENDERERS, Report, render_html, render_json
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.units import GIB, KIB, MIB
from esrally_ebs.volumes.virtual.replay import Load

LOOSE = Bound(percentile=90, seconds=1.0)


def report_of(advice: Advice, predictor: Predictor) -> Report:
    return build_advice(recorded(), advice, predictor)


@pytest.mark.parametrize("broken", ["", "clock", "file"])
def test_a_report_has_what_requests_do_to_the_recorded_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    """`advise` alone had it."""
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    made = recorded()
    if broken == "clock":
        rows = made.telemetry.to_pylist()
        later = [{**row, "at_s": row["at_s"] + 0.5, "done_s": row["done_s"] + 0.5} for row in rows]
        made = replace(made, telemetry=pa.Table.from_pylist(later, TRACE))
    folder = folder_of(tmp_path, made)
    if broken == "file":
        (part,) = (folder.path / "trace").glob("*.parquet")
        part.write_bytes(part.read_bytes()[:-100])
    assert main(["report", "s1", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    says = {"clock": "do not fit its requests in time", "file": "not readable as Parquet"}.get(broken)
    refused = [one for one in report["warnings"] if one.startswith("What requests do to the recorded volume")]
    assert ("access" in report["tables"], len(refused)) == (not broken, bool(broken))
    if says is not None:
        assert says in refused[0]


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
    assert usage["gp3 100 GiB, 5,264 IOPS, 125 MiB/s"]["at its limit for"] == {"s": 0.0}


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


def test_a_volume_of_today_that_is_cheaper_than_one_in_doubt_is_named(predictor: Predictor) -> None:
    """To race a dearer one was all that was said."""
    today = VolumeSpec(name="a", type="sc1", size_bytes=1024 * GIB, credits=0.0)
    advice = advise(predictor, today, LOOSE, region="us-east-1", types=["st1"])
    advice = replace(advice, doubtful=advice.best, best=None)
    stays = " Today's volume keeps it as it was recorded, for 15.36 USD a month."
    assert report_of(advice, predictor).verdict.endswith(f"its interval straddles it.{stays}")
    advice = replace(advice, today=replace(advice.today, price=price_of(50.0)))
    assert report_of(advice, predictor).verdict.endswith("its interval straddles it.")


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


def test_a_limit_of_the_instance_is_none_of_the_volume(predictor: Predictor) -> None:
    """It was "held back by the volume's instance-iops", which no volume has more of."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    limited = replace(advice.today.prediction, waits={"iops": 0.1, "instance-iops": 0.5})
    advice = replace(advice, today=replace(advice.today, prediction=limited))
    report = build_advice(recorded(), advice, predictor)
    assert report.details[0].endswith("a month, held back by instance IOPS.")


def test_what_ios_wait_for_each_limit_is_shown_of_each_setting(predictor: Predictor) -> None:
    """Of a setting the limit that binds was named, not how much, nor what others add."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    assert advice.best is not None
    waits = {"iops": 0.25, "throughput": 0.0}
    today = replace(advice.today.prediction, waits=waits | {"instance-iops": 0.5})
    best = replace(advice.best, prediction=replace(advice.best.prediction, waits=waits))
    advice = replace(
        advice, today=replace(advice.today, prediction=today, price=price_of(9.0)), options=(best,)
    )
    report = build_advice(recorded(), replace(advice, best=best), predictor)
    (limits,) = (table for table in report.tables if table.key == "limits")
    assert [column.title for column in limits.columns] == ["iops", "throughput", "instance-iops"]
    texts = [[cell.text for cell in row.cells] for row in limits.rows]
    assert texts == [["25%", "0%", "-"], ["25%", "0%", "50%"]]


def test_each_task_has_the_percentile_that_is_bounded(predictor: Predictor) -> None:
    """Of --keep p90 the table of tasks had p50 and p99."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor)
    (tasks,) = (table for table in report.tables if table.key == "tasks")
    titles = [column.title for column in tasks.columns]
    assert titles == [f"{when} p{percentile}" for when in ("today", "then") for percentile in (50, 90, 99)]
    p90_s = predictor.check.tasks["t1"][1]
    assert tasks.rows[1].cells[1].text == f"{p90_s * 1e3:.1f} ms"


def price_of(usd: float) -> Price:
    """One of a single part."""
    rate = Rate(usd=usd, dated="2026-01-01", source="made up", verified=True)
    return Price(region="us-east-1", parts=(CostPart(what="storage", amount=1.0, rate=rate),))


def test_todays_volume_is_not_raced_against_itself(predictor: Predictor) -> None:
    today = predictor.check.percentile(90)
    assert today.high is not None
    bound = Bound(percentile=90, seconds=(today.value + today.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    advice = replace(advice, doubtful=advice.options[0], best=None)
    report = build_advice(recorded(), advice, predictor)
    assert "race" not in f"{report.verdict} {report.next_step}"
    assert "more rounds" in report.next_step


def test_todays_setting_and_a_size_of_memory_stand_in_a_table_once(predictor: Predictor) -> None:
    """Today's was there as a setting, too; of little that is read all parts are a mebibyte."""
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor)
    tables = {table.key: [row.item for row in table.rows] for table in report.tables}
    assert tables["front"] == ["gp3 100 GiB, 3,000 IOPS, 125 MiB/s (today)"]
    assert tables["memory"] == ["1.0 MiB"]


def test_so_few_requests_bound_no_p99_and_their_advice_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A race of as many was slower than the upper end of one in seven; settings were recommended by it."""
    latency_s = np.exp(np.random.default_rng(3).normal(-3, 0.3, 100))
    of = of_computing(latency_s)
    assert Predictor(of, thread_of(of)).check.percentile(99).high is not None
    of = of_computing(latency_s[:99])
    made = Predictor(of, thread_of(of))
    assert [one.high is None for one in made.check.whole] == [False, False, True]
    advice = advise(made, GP3, Bound(percentile=99, seconds=10.0), region="us-east-1")
    assert (advice.best, advice.doubtful) == (None, advice.options[0])
    report = build_advice(recorded(), advice, made)
    assert "may keep p99 of 10000 ms; more is not known, as 99 requests bound no p99" in report.verdict
    assert report.next_step.startswith("record 100 requests or more")
    assert not [name for name, render in RENDERERS.items() if "inf ms" in render(report)]
    assert '"high_s"' not in RENDERERS["json"](report)
    folder = folder_of(tmp_path, recorded())
    assert main(["advise", str(folder.path), "--keep", "p99=10s"]) == 5
    assert "ms or more for" in capsys.readouterr().out


def test_memory_is_as_doubtful_as_a_setting(predictor: Predictor) -> None:
    cached = predictor.predict(predictor.check.spec, cache_bytes=MIB).percentile(90)
    assert cached.high is not None
    bound = Bound(percentile=90, seconds=(cached.value + cached.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor)
    (memory,) = (table for table in report.tables if table.key == "memory")
    assert memory.rows[0].cells[-1].text == "perhaps"


def test_settings_that_cost_the_same_but_for_rounding_differ_by_nothing() -> None:
    assert usd_text(10.0 - 10.000000000000002, sign=True) == "+0.00 USD"
    assert usd_text(1234.5, sign=True) == "+1,234.50 USD"


def test_a_setting_that_is_fast_only_on_full_buckets_is_not_advised_without_a_word(
    predictor: Predictor,
) -> None:
    """io2 of 100 IOPS was advised for queries that take twelve times as many, one after the other."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["io2"])
    best = advice.best
    assert best is not None

    def lines(used: dict[str, float], load: Load | None = None) -> list[str]:
        busy = replace(best, prediction=replace(best.prediction, used=used))
        report = report_of(replace(advice, best=busy, load=load), predictor)
        return [line for line in report.details if line.startswith("Do not buy it for that alone")]

    (line,) = lines({"iops": 12.32, "throughput": 0.5, "credits": 20.0})
    assert "one query after the other takes 1232% of its volume IOPS" in line
    assert not lines({"iops": 0.99, "credits": 20.0})
    assert not lines({"iops": 12.32}, Load(1.0, 1))  # which has its own words
    advice = replace(advice, recorded=replace(best.spec, name="today"))
    assert not lines({"iops": 12.32})  # it is today's, whatever its name


def test_steps_and_marks_of_a_plot_say_which_settings_are_fast_only_on_full_buckets(
    predictor: Predictor,
) -> None:
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3", "io2"])
    said = ", on buckets that fill while caches are dropped"

    def marked(used: float) -> tuple[bool, bool, bool]:
        """Whether steps say so, whether marks do, and whether the table does."""
        options = tuple(
            replace(option, prediction=replace(option.prediction, used={"iops": used}))
            for option in advice.options
        )
        changed = replace(advice, options=options)
        report = report_of(replace(changed, best=changed.front[0]), predictor)
        steps = [line for line in report.details if line.startswith("One step")]
        hover = [text for curve in report.figures.tradeoffs[0].curves for text in curve.hover]
        assert steps
        assert hover
        (front,) = (table for table in report.tables if table.key == "front")
        keeps = {row.item: row.cells[5] for row in front.rows}
        assert keeps.pop("gp3 100 GiB, 3,000 IOPS, 125 MiB/s (today)").facts == {"keeps": "yes"}
        in_table = {(cell.text, cell.facts.get("needs")) for cell in keeps.values()}
        assert in_table in ({("yes, on full buckets", "full buckets")}, {("yes", None)})
        is_in_table = in_table != {("yes", None)}
        assert any(note.startswith("On full buckets: one query") for note in front.notes) is is_in_table
        return all(said in line for line in steps), any(said in text for text in hover), is_in_table

    assert marked(12.0) == (True, True, True)
    assert marked(0.9) == (False, False, False)
