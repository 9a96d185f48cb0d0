"""NVMe log page 0xD0: every field and bin is read back, and damage is a value or one clear error."""

import json
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.aws.ebs_statistics import COUNTERS, Bin, LogPage, parse_log_page, parse_stats_json
from esrally_ebs.errors import FormatError

EBS, INSTANCE_STORE = 0x3C23B510, 0xEC2C0D7E
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def encoded(page: LogPage, magic: int = EBS) -> bytes:
    """The page as a device lays it out, byte by byte from Amazon's structures; reserved bytes are 0xAA."""
    out = bytearray(b"\xaa" * 4096)
    struct.pack_into("<II", out, 0, magic, 0)
    for at, name in enumerate(COUNTERS):
        struct.pack_into("<Q", out, 8 + 8 * at, page.counters[name])
    for offset, bins in ((512, page.reads), (2056, page.writes)):
        struct.pack_into("<Q", out, offset, len(bins))
        for at, bin_ in enumerate(bins):
            struct.pack_into("<QQI", out, offset + 8 + 24 * at, bin_.lower_us, bin_.upper_us, bin_.count)
    return bytes(out)


@st.composite
def histograms(draw: st.DrawFn, bins: st.SearchStrategy[int]) -> tuple[Bin, ...]:
    number = draw(bins)
    edges = sorted(draw(st.lists(U64, min_size=2 * number, max_size=2 * number)))
    return tuple(Bin(edges[2 * at], edges[2 * at + 1], draw(U32)) for at in range(number))


@st.composite
def pages(draw: st.DrawFn) -> LogPage:
    number = st.integers(0, 64)
    return LogPage(
        counters={name: draw(U64) for name in COUNTERS},
        reads=draw(histograms(number)),
        writes=draw(histograms(number)),
    )


@settings(max_examples=20)  # of up to 128 bins each
@given(pages(), st.sampled_from([EBS, INSTANCE_STORE]))
def test_every_field_and_every_bin_is_read_back(page: LogPage, magic: int) -> None:
    assert parse_log_page(encoded(page, magic), "nvme1") == page


def some_page() -> LogPage:
    """28 bins of powers of two, as Nitro has them, and different numbers everywhere."""
    bins = tuple(Bin(0 if at == 0 else 2 ** (at - 1), 2**at, 10 * at) for at in range(28))
    return LogPage(
        counters={name: 1000 + at for at, name in enumerate(COUNTERS)},
        reads=bins,
        writes=bins,
    )


def test_ten_thousand_mutated_pages_give_a_value_or_one_clear_error() -> None:
    chance = random.Random(5)
    whole = encoded(some_page())
    values, errors = 0, []
    for _ in range(10_000):
        page = bytearray(whole)
        for _ in range(chance.randint(1, 8)):
            page[chance.randrange(len(page))] = chance.randrange(256)
        if chance.random() < 0.1:
            page = page[: chance.randrange(len(page))]
        try:
            values += isinstance(parse_log_page(bytes(page), "nvme1"), LogPage)
        except FormatError as error:
            errors.append(str(error))
    assert min(values, len(errors)) > 1000
    assert values + len(errors) == 10_000
    assert all(text.startswith("nvme1: not a page of EBS performance statistics: ") for text in errors)
    assert not any("\n" in text for text in errors)


def tool_json(page: LogPage, **renamed: str) -> str:
    """What ``ebsnvme stats -j`` prints."""
    fields: dict[str, Any] = {renamed.get(name, name): value for name, value in page.counters.items()}
    for name, bins in (("read", page.reads), ("write", page.writes)):
        listed = [{"lower": b.lower_us, "upper": b.upper_us, "count": b.count} for b in bins]
        fields[f"{name}_io_latency_histogram"] = {"num_bins": len(bins), "bins": listed}
    return json.dumps(fields)


def test_the_json_of_both_tools_says_the_same_as_the_page() -> None:
    page = some_page()
    newer = {
        "ec2_instance_ebs_performance_exceeded_iops": "ec2_instance_performance_exceeded_iops",
        "ec2_instance_ebs_performance_exceeded_tp": "ec2_instance_performance_exceeded_tp",
    }
    assert parse_stats_json(tool_json(page), "ebsnvme") == page
    assert parse_stats_json(tool_json(page, **newer), "nvme") == page


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"total_read_ops": -1}', "not json"])
def test_other_output_of_a_tool_is_one_clear_error(text: str) -> None:
    with pytest.raises(FormatError, match=r"^ebsnvme: not a page of EBS performance statistics: "):
        parse_stats_json(text, "ebsnvme")


def test_a_count_that_is_no_number_is_one_clear_error() -> None:
    with pytest.raises(FormatError, match="'many' is not a count"):
        parse_stats_json(tool_json(some_page()).replace("1000", '"many"', 1), "ebsnvme")
