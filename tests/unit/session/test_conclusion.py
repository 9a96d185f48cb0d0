"""How long stages of a race took, by its samples."""

import pyarrow as pa
import pytest

from esrally_ebs.session.steps import spans


def test_warm_up_and_rounds_last_as_long_as_each_did_at_every_start_of_the_nodes() -> None:
    #       warm-up           rounds            nodes anew, warm-up   rounds
    phases = ["warmup"] * 3 + ["measure"] * 3 + ["warmup"] * 2 + ["measure"] * 2
    rounds = [0, 0, 0, 1, 1, 2, 0, 0, 3, 4]
    started = [0.0, 1.0, 2.0, 10.0, 11.0, 15.0, 60.0, 63.0, 70.0, 77.0]
    samples = pa.table({"phase": phases, "round": rounds, "started_s": started})
    assert spans(samples) == [("warm-up", pytest.approx(2 + 3)), ("rounds", pytest.approx(5 + 7))]


def test_indexing_is_measured_before_any_round() -> None:
    samples = pa.table({"phase": ["measure"] * 2, "round": [0, 0], "started_s": [5.0, 9.0]})
    assert spans(samples) == [("indexing", 4.0)]
    assert spans(samples.slice(0, 0)) == []
