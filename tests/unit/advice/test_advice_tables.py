"""What advice says: its sentences, its tables for people and programs, its plot."""

import json
from dataclasses import replace

import pytest
from recorded_requests import GP3, recorded, recording

from esrally_ebs.advice.advice import advise
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.tables import build_advice
from esrally_ebs.model import Bound
from esrally_ebs.report import render_json

LOOSE = Bound(percentile=90, seconds=1.0)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    made = recording(recorded())
    return Predictor(made, thread_of(made))


def test_programs_get_seconds_and_shares(predictor: Predictor) -> None:
    """Of all tables but the front they had texts: "25.3 ms", "+1.2%"."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    tables = json.loads(render_json(build_advice(recorded(), advice, predictor, region="us-east-1")))["tables"]
    p50_s, p90_s, _ = predictor.check.tasks["t0"]
    assert tables["tasks"]["t0"]["today p50"] == {"s": pytest.approx(p50_s)}
    assert tables["tasks"]["t0"]["today p90"] == {"s": pytest.approx(p90_s)}
    assert tables["self-check"]["p50"]["off by"] == {"share": pytest.approx(predictor.errors[50])}
    (used,) = tables["used"].values()
    assert used["iops"] == {"share": pytest.approx(predictor.check.used["iops"])}
    assert tables["access"]["t0"]["MiB"] == {"bytes": pytest.approx(predictor.patterns[0].bytes)}


def test_todays_volume_and_its_setting_without_credits_are_two_rows(predictor: Predictor) -> None:
    """Of what I/Os wait for both had one name; in JSON one of them was lost where both began with 0%."""
    advice = advise(predictor, GP3, LOOSE, region="us-east-1", types=["gp3"])
    assert advice.best is not None
    slower = replace(advice.best.prediction, whole=advice.best.prediction.whole[2:] * 3)
    advice = replace(advice, options=(replace(advice.best, prediction=slower),))
    advice = replace(advice, best=advice.options[0])
    tables = json.loads(render_json(build_advice(recorded(), advice, predictor, region="us-east-1")))["tables"]
    name = "gp3 100 GiB, 3,000 IOPS, 125 MiB/s"
    assert {*tables["front"]} == {*tables["limits"]} == {*tables["used"]} == {name, f"{name} (today)"}
