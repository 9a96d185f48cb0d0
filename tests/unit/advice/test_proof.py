"""The race of an advice: its plan, and what it measured beside what was predicted."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded_requests import GP3, folder_of, recorded
from sample_rows import row, table
from small_plan import small_plan

from esrally_ebs.advice.advice import Advice, advise
from esrally_ebs.advice.cells import setting_text
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.proof import kept_in_race, plan_text, raced_settings
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.cli import main
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Bound, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.report import RENDERERS
from esrally_ebs.units import GIB, KIB, MIB


def test_a_gp3_of_which_nothing_was_bought_is_the_setting_that_it_is(predictor: Predictor) -> None:
    """Its plan says neither IOPS nor throughput: it was raced against what comes with it."""
    plain = replace(GP3, iops=None, throughput_bytes_per_s=None)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, plain, bound, region="us-east-1", types=["gp3"])
    assert advice.best is not None
    assert len(raced_settings(advice)) == 1
    assert advice.today.interval_s == advice.best.interval_s


@pytest.mark.parametrize(("date", "settings"), [(None, 1), ("2022", 2)])  # of 2022 an io2 has 500 MiB/s
def test_an_io2_is_not_raced_against_itself_under_its_other_name(
    predictor: Predictor, date: str | None, settings: int
) -> None:
    today = VolumeSpec(name="a", type="io2-block-express", size_bytes=4 * GIB, iops=100, date=date)
    advice = advise(predictor, today, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["io2"])
    assert advice.best is not None
    assert len(raced_settings(advice)) == settings


def test_every_format_says_that_it_is_of_models_and_the_plan_is_one(predictor: Predictor) -> None:
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    report = build_advice(made, advice, predictor)
    assert all("statement of volume models" in render(report) for render in RENDERERS.values())
    assert all("What requests wait for is inferred" in render(report) for render in RENDERERS.values())
    logged = build_advice(replace(made, kind="trace"), advice, predictor)
    assert "workload import" in logged.next_step  # 'advise --race' refuses it
    plan = parse_plan(plan_text(advice, made), "prove")
    assert plan.arm[0].type == "gp3"
    assert len(plan.arm) > 1


def test_the_plan_races_the_same_nodes_and_indices(predictor: Predictor) -> None:
    """A residency that was allowed was dropped, so the race was refused where its recording was not."""
    made = recorded()
    keys: dict[str, object] = {"dataset.data": "/data", "dataset.indices": "i,j", "cache.max_resident": 0.2}
    keys |= {"accept": ["lateness"]}
    keys |= {"node.car": ["4gheap"], "node.params.x": 'a"b'}
    keys |= {"design.margin": 0.02, "design.confidence": 0.99, "design.seed": 7, "design.order": "fixed"}
    made = replace(made, plan=parse_plan(plan_text(advised := advise_first(predictor), made), "p", keys))
    plan = parse_plan(plan_text(advised, made), "prove")
    assert (plan.node, plan.dataset) == (made.plan.node, made.plan.dataset)
    assert (plan.cache, plan.accept) == (made.plan.cache, ("lateness",))
    assert (plan.design.margin, plan.design.confidence) == (0.02, 0.99)  # verdicts were of 5 % and 95 %
    assert (plan.design.seed, plan.design.order) == (7, "fixed")
    made = replace(made, plan=parse_plan(plan_text(advised, made), "p", {"design.starts": 3}))
    assert parse_plan(plan_text(advised, made), "prove").design.starts == 3  # it was one start of the nodes


@pytest.mark.parametrize("keys", [{"design.rounds": "auto"}, {"design.rounds": 30}])
def test_the_plan_has_as_many_rounds_as_were_recorded_where_their_number_was_open(
    predictor: Predictor, keys: dict[str, object]
) -> None:
    """Of a recording that was decided after six rounds the race had 48."""
    made = recorded()
    made = replace(made, plan=parse_plan(plan_text(advised := advise_first(predictor), made), "p", keys))
    rounds = 6 if keys["design.rounds"] == "auto" else 30
    assert parse_plan(plan_text(advised, made), "prove").design.rounds == rounds


def test_the_race_is_priced_in_the_region_of_the_advice(predictor: Predictor) -> None:
    """With --region its report had the prices of us-east-1, by which another setting may be the cheaper."""
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, GP3, bound, region="ap-northeast-1", types=["gp3"])
    assert parse_plan(plan_text(advice, recorded()), "prove").cost.region == "ap-northeast-1"
    unknown = replace(advice, region="us-west-2-lax-1")  # of a price list of one's own
    assert parse_plan(plan_text(unknown, recorded()), "prove").cost.region is None


def test_the_recorded_volume_is_raced_also_where_it_has_no_price(predictor: Predictor) -> None:
    """Of `--arm b` the session's first arm was raced as today's volume, and what it takes was not said."""
    io2 = replace(GP3, name="b", type="io2", iops=8000, throughput_bytes_per_s=None)
    bound = Bound(percentile=90, seconds=1.0)
    advice = advise(predictor, io2, bound, region="us-east-2", types=["gp3"])
    assert advice.unpriced == ("io2",)  # that it is missing was not said
    report = build_advice(recorded(), advice, predictor)
    assert re.match(r"Today: p90 .* ms at a price that is not known, held back by", report.details[0])
    (front,) = (table for table in report.tables if table.key == "front")
    assert [row.cells[0].text for row in front.rows if "(today)" in row.item] == ["-"]
    assert "today p90" in [column.title for table in report.tables for column in table.columns]
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [(arm.name, arm.type) for arm in arms] == [("today", "io2"), ("advised-1", "gp3")]


def test_the_plan_races_volumes_as_they_are_today(predictor: Predictor) -> None:
    """Of four striped volumes of another year one of today was raced."""
    spec = replace(GP3, stripes=4, chunk_bytes=64 * KIB, date="2021", encrypted=False)
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    advice = advise(predictor, spec, bound, region="us-east-1", types=["gp3"])
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [replace(arm, name="a", iops=3000, throughput_bytes_per_s=125 * MIB) for arm in arms[:1]] == [spec]
    assert {(arm.stripes, arm.chunk_bytes, arm.date, arm.encrypted) for arm in arms} == {
        (4, 64 * KIB, "2021", False)
    }
    assert setting_text(spec) == "4 x gp3 100 GiB, 3,000 IOPS, 125 MiB/s"


def advise_first(predictor: Predictor) -> Advice:
    """Advice of a bound that today's volume does not keep."""
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    return advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])


def test_a_race_of_the_advice_stands_beside_what_was_predicted(predictor: Predictor) -> None:
    """Raced on a machine on which everything takes twice as long: the change is right, the times are not."""
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.9)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    rows = []
    raced = raced_settings(advice)
    for spec in raced:
        made_on = predictor.predict(spec, beside=[one for one in raced if one is not spec])
        times_s = np.interp(
            np.linspace(0, 1, 201),
            [0, 0.5, 0.9, 0.99, 1],
            [0, *[2 * e.value for e in made_on.whole], 9],
        )
        rows += [row(arm=spec.name, service_time_s=float(seconds), task="t0") for seconds in times_s]
    report = build_advice(made, advice, predictor, proof=replace(made, samples=table(*rows)))
    assert report.next_step.endswith(f"that race: 'esrally-ebs report {made.id}'")
    assert report.verdict == f"In the race no setting kept {bound}."
    assert report.details[0].startswith("Predicted: ")
    today = report.tables[0].rows[0]
    assert today.item == "today: gp3 100 GiB, 3,000 IOPS, 125 MiB/s"
    for one in report.tables[0].rows:
        texts = [cell.text for cell in one.cells]
        assert texts[3] == "-50.0%"
        assert float(texts[4].rstrip("%")) == 0.0
        assert texts[-1] == ("no" if texts[0] == "p90" else "-")


@pytest.mark.parametrize(
    ("times_s", "code", "verdict"),
    [
        ({"today": 9.0, "advised-1": 0.1}, 0, "125 GiB kept p90 of 10000 ms: p90 was 100.0 ms."),
        ({"today": 0.1, "advised-1": 11.0}, 0, "In the race gp3 100 GiB, 3,000 IOPS, 125 MiB/s kept"),
        ({"today": 11.0, "advised-1": 11.0}, 1, "In the race no setting kept p90 of 10000 ms."),
    ],
)
def test_what_a_race_measured_is_the_answer(
    times_s: dict[str, float],
    code: int,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer was the prediction's, also where the race had it wrong: "is the cheapest that keeps".

    And bulks counted as requests where the challenge indexes first, and so did tasks of the challenge that
    were not recorded, as ``--include-tasks`` had left them out.
    """
    folder, made = folder_of(tmp_path, recorded()), recorded()
    rows = [row(arm=arm, service_time_s=seconds, task="t0") for arm, seconds in times_s.items()]
    rows += [row(arm=arm, service_time_s=99.0, round=0, task="index") for arm in times_s]
    rows += [row(arm=arm, service_time_s=99.0, task="left-out") for arm in times_s]
    monkeypatch.setattr("esrally_ebs.cli.advice._race", lambda *_: (replace(made, samples=table(*rows)), 0))
    assert main(["advise", str(folder.path), "--keep", "p90=10s", "--race"]) == code
    assert verdict in capsys.readouterr().out


def test_of_settings_that_kept_the_bound_in_the_race_the_cheapest_is_the_answer(predictor: Predictor) -> None:
    """Today's volume was in doubt, and raced beside a dearer one: that was named, also where both kept it."""
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1", types=["gp3"])
    advice = replace(advice, doubtful=advice.options[0], best=advice.options[-1])
    rows = [row(arm=arm, service_time_s=0.5, task="t0") for arm in ("today", "advised-1")]
    kept = kept_in_race(advice, replace(recorded(), samples=table(*rows)))
    assert kept is not None
    assert setting_text(kept) == setting_text(GP3)


def test_a_race_without_requests_of_an_arm_is_no_proof(predictor: Predictor) -> None:
    made = recorded()
    advice = advise(predictor, GP3, Bound(percentile=90, seconds=1.0), region="us-east-1")
    with pytest.raises(MeasurementError, match="race again"):
        build_advice(made, advice, predictor, proof=made)


def test_a_race_of_another_track_is_refused_with_the_way_to_do_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error named a file that was there no longer, and told to name a track of ours."""
    made = replace(recorded(), plan=small_plan(race={"track": "geonames"}))
    folder = folder_of(tmp_path, made)
    assert main(["advise", str(folder.path), "--keep", "p90=1s", "--race"]) == 2
    said = "--race: session s1 raced track 'geonames', which is none of ours; give --plan FILE instead"
    assert said in capsys.readouterr().err


def test_a_race_with_parameters_that_a_plan_cannot_have_is_refused_with_the_way_to_do_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice was proven on another index: three parts where seven were recorded."""
    folder = folder_of(tmp_path, replace(recorded(), plan=small_plan(race={"track": "logs-ebs"})))
    params = {"plan": "logs", "documents": 3000, "number_of_indices": 7}
    folder.write_file("race.json", json.dumps({"track-params": params}))
    assert main(["advise", str(folder.path), "--keep", "p90=1s", "--race"]) == 2
    said = "--race: session s1 raced logs-ebs with track parameters of its own (number_of_indices), which"
    assert said in capsys.readouterr().err
    del params["number_of_indices"]
    folder.write_file("race.json", json.dumps({"track-params": params}))
    assert main(["advise", str(folder.path), "--keep", "p90=1s", "--plan", str(tmp_path / "p.toml")]) == 0


def test_settings_are_raced_on_instances_of_their_own(predictor: Predictor) -> None:
    """Of a volume whose time runs faster the plan was refused: two arms shared an instance."""
    today = replace(GP3, instance="m5.large", time_scale=60.0)
    bound = Bound(percentile=90, seconds=predictor.check.percentile(90).value * 0.8)
    advice = advise(predictor, today, bound, region="us-east-1", types=["io2"])
    arms = parse_plan(plan_text(advice, recorded()), "prove").arm
    assert [arm.instance for arm in arms[:2]] == ["m5.large", "m5.large#1"]
