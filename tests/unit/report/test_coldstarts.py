"""Cold starts: the curve of the first requests after a drop, its warm level, and where the two meet."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_rows import row, table

from esrally_ebs.analysis.summary import ColdStartCurve, cold_starts
from esrally_ebs.report.html.plots import plot
from esrally_ebs.report.search import cold_start_plots, cold_start_table


def samples(times: dict[str, list[float]], *, rounds: int = 3, **changes: object) -> pa.Table:
    """Requests of one task: per arm, the times (s) of the requests since the drop, the same in all rounds."""
    return table(
        *(
            row(arm=arm, task="q", round=round_, iteration=number, service_time_s=seconds) | changes
            for arm, own in times.items()
            for round_ in range(1, rounds + 1)
            for number, seconds in enumerate(own, start=1)
        )
    )


COOLING = [0.9, 0.5, 0.2, 0.105, 0.1, 0.1, 0.1, 0.1]


def test_a_curve_meets_its_warm_level_where_it_stays_within_a_tenth_of_it() -> None:
    (curve,) = cold_starts(samples({"a": COOLING}))
    assert list(curve.requests) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert list(curve.median_s) == pytest.approx(COOLING)
    assert curve.warm_s == pytest.approx(0.1)  # of the last two of eight
    assert curve.meets == 4  # 105 ms is within a tenth of 100 ms, 200 ms is not


def test_a_slow_request_late_on_puts_the_meeting_off() -> None:
    (curve,) = cold_starts(samples({"a": [0.9, 0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.1]}))
    assert curve.meets == 5


def test_a_curve_that_still_falls_at_its_end_has_not_met_it() -> None:
    times = [0.8 * math.exp(-n / 8) for n in range(6)] + [0.3, 0.5]
    (curve,) = cold_starts(samples({"a": times}))
    assert curve.meets is None
    assert cold_start_table((curve,), ["a"]).rows[0].cells[2].text == "not yet"


def test_the_middle_of_the_rounds_is_taken_so_that_one_bad_round_does_not_count() -> None:
    made = [samples({"a": COOLING}, rounds=2), samples({"a": [9.0] * 8}, rounds=1)]
    (curve,) = cold_starts(pa.concat_tables(made))
    assert list(curve.median_s) == pytest.approx(COOLING)


@pytest.mark.parametrize("changes", [{"success": False}, {"phase": "warmup"}, {"round": 0}, {"iteration": 1}])
def test_what_failed_warms_up_or_follows_a_drop_of_its_own_has_no_curve(changes: dict[str, object]) -> None:
    assert cold_starts(samples({"a": COOLING}, **changes)) == ()


def test_the_table_has_first_warm_and_from_where_for_every_arm() -> None:
    curves = cold_starts(samples({"a": COOLING, "b": [t / 2 for t in COOLING]}))
    table = cold_start_table(curves, ["a", "b"])
    assert [cell.text for cell in table.rows[0].cells] == [
        "900.00 ms",
        "100.00 ms",
        "request 4",
        "450.00 ms",
        "50.00 ms",
        "request 4",
    ]
    assert cold_start_table((), ["a", "b"]).rows == ()


@given(st.integers(4, 3000))
def test_a_drawn_curve_is_short_and_keeps_its_ends(count: int) -> None:
    requests = np.arange(1, count + 1)
    whole = ColdStartCurve(
        task="q", arm="a", requests=requests, median_s=1.0 / requests, warm_s=1.0, meets=None
    )
    (figure,) = cold_start_plots([whole])
    (curve,) = figure.curves
    assert len(curve.x) <= 302
    assert (curve.x[0], curve.x[-1]) == (1, count)
    assert plot(figure, ["a"]).count("<path") == 2  # the curve, and its line in the legend
