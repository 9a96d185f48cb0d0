"""The HTML report: well formed, complete, readable without seeing it, and asking nothing of a network."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esrally_ebs.model import Check
from esrally_ebs.report import Report, render_html
from esrally_ebs.report.html.plots import Scale, forest, number, plot, scale, timeline
from esrally_ebs.report.model import (
    Cell,
    Column,
    Curve,
    Figures,
    Forest,
    Plot,
    RelativeChange,
    Row,
    Span,
    Table,
    Timeline,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "report.html"
VOID = {"meta", "link", "br", "img", "input", "wbr"}


class Outline(HTMLParser):
    """Collects elements and checks that each is closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def page() -> str:
    """The report of the session that the golden tests make."""
    return GOLDEN.read_text()


def test_every_element_is_closed(page: str) -> None:
    assert len(Outline(page).elements) > 200


def test_nothing_is_asked_of_a_network(page: str) -> None:
    assert not re.search(r"https?://|//[a-z]|url\(|@import|<script|javascript:", page, re.IGNORECASE)
    links = [element.get("href") for element in Outline(page).all("a", "link")]
    assert all(link and re.fullmatch(r"#[\w-]+|data:,|[\w.]+/?", link) for link in links)
    policy = next(e for e in Outline(page).all("meta") if e.get("http-equiv"))
    assert str(policy["content"]).startswith("default-src 'none'")


def test_the_verdict_comes_first_and_says_emulated(page: str) -> None:
    body = re.sub(r"<[^>]+>", " ", page.split("</header>")[0].split("<header>")[1])
    assert "gp3 (emulated) is slower than gp2 (emulated)" in body
    assert "emulated volumes: gp2, gp3" in body


def test_every_plot_is_drawn_named_and_described(page: str) -> None:
    drawings = Outline(page).all("svg")
    names = [str(drawing["aria-label"]) for drawing in drawings]
    # Search and fio; three tasks; five metrics: of the six, throughput was not recorded, nor the page cache.
    assert sum(name.startswith(("Search: ", "fio: ")) for name in names) == 2
    assert sum(name.startswith("Distribution of service times: ") for name in names) == 3
    assert sum(" over the session. " in name for name in names) == 4
    assert all(drawing["role"] == "img" and " " in str(drawing["aria-label"]) for drawing in drawings)
    assert len(re.findall(r"<svg[^>]*><title>", page)) == len(drawings)


def test_headings_go_down_one_level_at_a_time(page: str) -> None:
    levels = [int(tag[1]) for tag, _ in Outline(page).elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_what_scrolls_can_be_reached_by_keyboard_and_has_a_name(page: str) -> None:
    outline = Outline(page)
    ids = [e["id"] for _, e in outline.elements if "id" in e]
    assert len(ids) == len(set(ids))
    scrolling = [e for e in outline.all("div") if e.get("class") == "scroll"]
    assert len(scrolling) == page.count("<table>")
    names = [e.get("aria-labelledby") or e.get("aria-label") for e in scrolling]
    assert all(names)
    assert len(names) == len(set(names))
    assert all(e.get("tabindex") == "0" for e in scrolling)
    assert {str(e["href"])[1:] for e in outline.all("a") if str(e["href"]).startswith("#")} <= set(ids)


def test_every_column_and_row_has_a_heading(page: str) -> None:
    headings = Outline(page).all("th")
    assert {heading.get("scope") for heading in headings} == {"col", "row", "rowgroup"}


def test_light_dark_narrow_and_paper_have_a_style(page: str) -> None:
    for query in ("prefers-color-scheme: dark", "max-width", "@media print"):
        assert query in page
    assert 'name="viewport"' in page


def report(**changes: object) -> Report:
    whole = {
        "kind": "race",
        "title": "p",
        "about": (),
        "facts": {},
        "verdict": "v",
        "labels": (),
        "tables": (),
    }
    return Report(**{**whole, **changes})  # type: ignore[arg-type]


def test_text_of_a_session_never_becomes_markup() -> None:
    evil = "<script>alert('1')</script>&\"'"
    table = Table(
        key="x",
        title=evil,
        item_title=evil,
        columns=(Column(title=evil, subject=evil),),
        rows=(Row(item=evil, cells=(Cell(text=evil, facts={}),)),),
        notes=(evil,),
    )
    figures = Figures(
        searches=(Forest(title=evil, less=evil, more=evil, changes=(change(item=evil, verdict=evil),)),),
        distributions=(Plot(title=evil, across=evil, up=evil, heading=evil, curves=(curve(evil),)),),
        timelines=(Timeline(title=evil, unit=evil, step_s=1.0, curves=(curve(evil),)),),
        spans=(Span(name=evil, start_s=0, end_s=1),),
    )
    text = render_html(
        report(
            verdict=evil,
            title=evil,
            about=(evil,),
            labels=(evil,),
            warnings=(evil,),
            tables=(table,),
            figures=figures,
            checks=(Check(name=evil, ok=False, value=evil, text=evil),),
        )
    )
    assert "script" not in [tag for tag, _ in Outline(text).elements]


def test_a_failed_check_is_said_in_words_and_counted_at_the_top() -> None:
    text = render_html(report(checks=(Check(name="hits", ok=False, value="", text="they differ"),)))
    assert "0 of 1 checks ok" in text.split("</header>")[0]
    assert "\u2717 FAILED" in text


@pytest.mark.parametrize(
    ("keys", "section"),
    [
        ("all_sessions_p50 latency volumes apart writes indexing", "times"),
        ("processors", "causes"),
        ("load_hosts", "conditions"),
        ("environment", "session"),
    ],
)
def test_a_table_stands_in_the_section_that_it_belongs_to(keys: str, section: str) -> None:
    row = Row(item="t", cells=())
    tables = tuple(Table(key=key, title=key, item_title="x", columns=(), rows=(row,)) for key in keys.split())
    outline = Outline(render_html(report(tables=tables)))
    assert [e.get("aria-labelledby") for e in outline.all("section")] == [section]


def test_an_empty_report_has_no_empty_section() -> None:
    outline = Outline(render_html(report()))
    assert [e.get("aria-labelledby") for e in outline.all("section")] == []


def change(**changes: object) -> RelativeChange:
    return RelativeChange(**{"item": "t", "value": 0.1, **changes})  # type: ignore[arg-type]


def changed(**changes: object) -> Forest:
    return Forest(title="f", less="less", more="more", changes=(change(**changes),))


def curve(name: str = "a", x: tuple[float, ...] = (0.1, 0.2), y: tuple[float, ...] = (0.5, 1.0)) -> Curve:
    return Curve(name=name, x=x, y=y)


@pytest.mark.parametrize(
    ("verdict", "shape"),
    [("faster", "polygon"), ("slower", "polygon"), ("equivalent", "rect"), ("inconclusive", "circle")],
)
def test_a_verdict_is_a_word_and_a_shape_not_only_a_colour(verdict: str, shape: str) -> None:
    drawn = ElementTree.fromstring(forest(changed(low=0.05, high=0.15, verdict=verdict)))
    assert [e.tag for e in drawn.iter() if "mark" in e.get("class", "").split()] == [shape]
    assert any((e.text or "").endswith(verdict) for e in drawn.iter("text"))


def test_an_interval_is_drawn_from_end_to_end_around_its_value() -> None:
    drawn = ElementTree.fromstring(forest(changed(low=-0.1, high=0.3, margin=0.05)))
    bar = next(e for e in drawn.iter("line") if "interval" in e.get("class", ""))
    mark = next(e for e in drawn.iter("circle"))
    left, middle, right = float(bar.get("x1", "")), float(mark.get("cx", "")), float(bar.get("x2", ""))
    assert middle == pytest.approx((left + right) / 2, abs=0.2)  # 10 % is midway from -10 % to 30 %


def test_a_distribution_ends_at_its_slowest_request_and_full_share() -> None:
    steps = Curve(name="a", x=(100, 200, 300), y=(100 / 3, 200 / 3, 100.0), style="steps")
    data = Plot(title="t", across="ms", up="%", curves=(steps,), grid=(0, 50, 100))
    drawn = ElementTree.fromstring(plot(data, ["a"]))
    line = next(e.get("d", "") for e in drawn.iter("path") if "H" in e.get("d", ""))
    assert line.count("V") == 3
    assert line.endswith("V44.0")  # the place of 100 %


def test_arms_differ_in_dashes_as_well_as_in_colour() -> None:
    drawn = plot(Plot(title="t", across="ms", up="%", curves=(curve("a"), curve("b"))), ["a", "b"])
    assert 'class="curve arm0 dash0"' in drawn
    assert 'class="curve arm1 dash1"' in drawn
    assert re.search(r"\.curve\.dash1 \{ stroke-dasharray", render_html(report()))


@pytest.mark.parametrize("style", ["line", "marks"])
def test_ten_arms_look_different_and_all_stand_in_the_legend(style: Literal["line", "marks"]) -> None:
    arms = [f"gp3-{number}" for number in range(10)]
    data = Plot(
        title="t", across="ms", up="%", curves=tuple(replace(curve(arm), style=style) for arm in arms)
    )
    drawn = list(ElementTree.fromstring(plot(data, arms)))
    names = [e for e in drawn if e.get("class") == "name"]
    assert [e.text for e in names] == arms
    assert all(float(e.get("x", "")) + 7 * 5 <= 480 for e in names)  # the width of the drawing
    curves = [e for e in drawn if "arm" in e.get("class", "")]
    tips = [e.get("points", "").split()[1:] for e in curves]  # a triangle points up or down
    up = [len(tip) == 2 and float(tip[1].split(",")[1]) < float(tip[0].split(",")[1]) for tip in tips]
    assert len({(e.tag, e.get("class"), up) for e, up in zip(curves, up, strict=True)}) == len(arms)
    lowest = max(float(e.get("y", "")) for e in names)
    assert all(float(e.get("y1", "")) > lowest for e in drawn if e.get("class") == "grid")


def test_the_band_of_what_counts_as_none_is_as_wide_as_a_ratio_and_its_inverse() -> None:
    drawn = ElementTree.fromstring(forest(changed(low=-0.5, high=0.5, margin=0.25)))
    band = next(e for e in drawn.iter("rect") if e.get("class") == "margin")
    bar = next(e for e in drawn.iter("line") if "interval" in e.get("class", ""))
    left, width = float(band.get("x", "")), float(band.get("width", ""))
    per_change = float(bar.get("x2", "")) - float(bar.get("x1", ""))  # from -50 % to +50 %
    assert width / per_change == pytest.approx(0.45, abs=0.005)  # from 1 / 1.25 to 1.25
    assert (left - float(bar.get("x1", ""))) / per_change == pytest.approx(0.3, abs=0.005)


def test_changes_of_a_thousand_per_cent_are_written_out_at_the_axis() -> None:
    drawn = ElementTree.fromstring(forest(changed(value=17.0, low=15.0, high=20.0)))
    texts = [e.text for e in drawn.iter("text")]
    assert [text for text in ("0", "+500 %", "+1,000 %", "+2,000 %") if text not in texts] == []


def test_a_timeline_has_a_panel_per_arm_and_shades_the_rounds() -> None:
    data = Timeline(title="Reads", unit="per second", step_s=1.0, curves=(curve("a"), curve("b")))
    spans = [Span(name=f"round {n}", start_s=60.0 * n, end_s=60.0 * n + 50) for n in range(3)]
    drawn = ElementTree.fromstring(timeline(data, Figures(spans=tuple(spans)), ["a", "b"]))
    texts = [e.text for e in drawn.iter("text")]
    assert [text for text in ("a", "b", "0", "1", "2") if text in texts] == ["a", "b", "0", "1", "2"]
    assert sum("span" in e.get("class", "") for e in drawn.iter("rect")) == 3


def test_where_room_is_short_rounds_keep_their_numbers() -> None:
    data = Timeline(title="Reads", unit="per second", step_s=1.0, curves=(curve("a"),))
    spans = [Span(name="warm", start_s=0, end_s=60)]
    spans += [Span(name=f"round {n}", start_s=60.0 * n, end_s=60.0 * n + 50) for n in range(1, 40)]
    texts = [
        e.text
        for e in ElementTree.fromstring(timeline(data, Figures(spans=tuple(spans)), ["a"])).iter("text")
    ]
    assert "1" in texts
    assert "warm" not in texts


def test_a_line_is_parted_where_nothing_was_recorded() -> None:
    gap = curve(x=(0.0, 1.0, 30.0, 31.0), y=(1.0, 1.0, 1.0, 1.0))
    drawn = timeline(Timeline(title="t", unit="u", step_s=1.0, curves=(gap,)), Figures(), ["a"])
    assert drawn.count("<path") == 2


finite = st.floats(-1e9, 1e9)


@example([-1e9, math.nextafter(-1e9, 0)])
@given(st.lists(finite, max_size=6))
def test_a_scale_holds_all_its_values_and_has_round_ticks(values: list[float]) -> None:
    made = scale(values, 10, 470)
    assert all(10 <= made.at(value) <= 470 for value in values)
    ticks = made.ticks(6)
    assert 1 <= len(ticks) <= 8
    assert all(made.low - 1e-6 <= tick <= made.high + 1e-6 * abs(made.high) + 1e-6 for tick in ticks)


@given(finite, finite)
def test_a_larger_value_never_lies_before_a_smaller_one(one: float, two: float) -> None:
    made = Scale(-1e6, 1e6, 0, 100)
    assert made.at(min(one, two)) <= made.at(max(one, two))


@given(st.floats(-1e6, 1e6))
def test_a_label_says_its_value_to_three_digits(value: float) -> None:
    assert math.isclose(float(number(value).replace(",", "")), value, rel_tol=5e-3, abs_tol=1e-9)


def test_a_large_report_stays_small() -> None:
    """32 tasks on four arms, each curve at its most points, and six metrics: the most that a page holds."""
    points = tuple(n / 300 for n in range(300))
    curves = tuple(curve(name, points, points) for name in "abcd")
    figures = Figures(
        distributions=tuple(Plot(title=f"t{n}", across="", up="", curves=curves) for n in range(32)),
        timelines=tuple(Timeline(title=f"m{n}", unit="", step_s=1.0, curves=curves) for n in range(6)),
    )
    assert len(render_html(report(figures=figures))) < 5_000_000
