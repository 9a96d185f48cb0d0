"""Quantities as text, for people."""

import pytest

from esrally_ebs.errors import PlanError
from esrally_ebs.units import (
    MAX_BYTES,
    format_beside,
    format_rate,
    format_seconds,
    parse_bytes,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 us"),
        (418e-6, "418 us"),
        (999.6e-6, "1 ms"),
        (0.0283, "28.3 ms"),
        (0.9996, "1 s"),
        (75.25, "75.2 s"),
        (999.5, "1000 s"),
    ],
)
def test_a_time_has_three_digits_in_the_unit_that_reads_best(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0342, "0.0342"), (28.34, "28.3"), (999.5, "1,000"), (2560.4, "2,560")]
)
def test_a_rate_has_three_digits_or_all_before_the_point(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("7b", 7),
        ("4k", 4096),
        ("4 KiB", 4096),
        ("1.5m", 1_572_864),
        ("256MiB", 268_435_456),
        ("2g", 2_147_483_648),
        ("1GiB", 1_073_741_824),
        ("16t", 17_592_186_044_416),
        ("1TiB", 1_099_511_627_776),
        ("1kb", 1000),
        ("3MB", 3_000_000),
        ("2GB", 2_000_000_000),
        ("1tb", 1_000_000_000_000),
        ("10_000", 10_000),
    ],
)
def test_a_size_is_bytes_by_its_unit(text: str, size: int) -> None:
    assert parse_bytes(text, what="size") == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3), ("250us", 250e-6), ("5ms", 5e-3), ("2s", 2), ("5m", 300), ("5min", 300), ("1.5h", 5400)],
)
def test_a_time_is_seconds_by_its_unit(text: str, seconds: float) -> None:
    assert parse_seconds(text, what="runtime") == pytest.approx(seconds)


def test_a_quantity_that_no_number_holds_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match=f"bs: more than {MAX_BYTES:,} bytes"):
        parse_bytes("9" * 400, what="bs")
    with pytest.raises(PlanError, match="rest: more seconds"):
        parse_seconds("9" * 400 + "h", what="rest")


@pytest.mark.parametrize(
    ("share", "bound", "least", "text"),
    [
        (0.5, 0.15, 0, "50%"),
        (0.151, 0.15, 0, "15.1%"),
        (0.15, 0.15, 0, "15%"),
        (0.01001, 0.01, 2, "1.001%"),
        (0.1 + 0.2, 0.3, 0, "30%"),
        (-0.0001, 0.0, 1, "-0.01%"),
    ],
)
def test_a_share_beyond_a_bound_reads_as_beyond_it(share: float, bound: float, least: int, text: str) -> None:
    assert format_beside(share, bound, least=least) == text
