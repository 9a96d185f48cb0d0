"""Quantities as text, for people."""

import pytest

from esrally_ebs.errors import PlanError
from esrally_ebs.units import MOST_BYTES, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (418e-6, "418 us"),
        (999.6e-6, "1 ms"),
        (0.0283, "28.3 ms"),
        (0.9996, "1 s"),
        (75.25, "75.2 s"),
    ],
)
def test_a_time_has_three_digits_in_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_quantity_that_no_number_holds_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=f"bs: more than {MOST_BYTES:,} bytes"):
        parse_bytes("9" * 400, what="bs")
    with pytest.raises(PlanError, match="rest: more seconds"):
        parse_seconds("9" * 400 + "h", what="rest")
