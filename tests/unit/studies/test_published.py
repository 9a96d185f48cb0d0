"""Published figures beside ours: corrections, ranges, what is no test, and every format of a result."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError
from esrally_ebs.report.html.plots import plot
from esrally_ebs.report.model import Plot, curve_through, plain_table
from esrally_ebs.studies import names, read_study
from esrally_ebs.studies.published import RENDERERS, Parts, Result, Status, compare, parse_study, summary

DATA = {
    "title": "A study",
    "source": "an article",
    "kinds": {
        "rate": {"title": "throughput", "unit": "MB/s", "meant": "MiB/s", "tolerance": 0.05},
        "wait": {"title": "await", "unit": "ms", "tolerance": 0.1},
    },
    "figures": [
        {"arm": "a", "job": "j", "values": {"rate": 100, "wait": [50, 80]}},
        {"arm": "b", "job": "j", "values": {"rate": {"value": 90, "outside": "a network"}}},
        {"arm": "c", "job": "j", "values": {"wait": {"value": 300, "corrected": 3, "correction": "not so"}}},
        {"arm": "d", "job": "j", "values": {"wait": {"value": 7, "given": True}, "rate": 1}},
    ],
    "corrections": ["MB/s are MiB/s"],
    "notes": ["a note"],
    "not_covered": ["a graph"],
    "knife_edges": {"a j": "close"},
}
STUDY = parse_study(json.dumps(DATA), "a.json")
MIB = 1024**2


def result(observed: dict[tuple[str, str, str], float]) -> Result:
    return Result(
        study=STUDY,
        how="made up",
        figures=compare(STUDY, observed),
        parts=Parts(
            observed=observed,
            tables=[plain_table("t", "T", ("x", "y"), [["a|b", 1.25], ["<c>", None]])],
            plots=[Plot(title="P", across="s", up="n", curves=(curve_through("one", [(0, 1.0), (1, 3.0)]),))],
            remarks=("found",),
        ),
    )


OBSERVED = {
    ("a", "j", "rate"): 110.0 * MIB,
    ("a", "j", "wait"): 0.045,
    ("b", "j", "rate"): 100.0 * MIB,
    ("c", "j", "wait"): 0.003,
    ("d", "j", "wait"): 0.008,
}


def test_a_wrong_unit_is_shown_as_printed_and_compared_as_meant() -> None:
    figure = compare(STUDY, {("a", "j", "rate"): 104.0 * MIB})[0]
    assert figure.published.low == 100
    assert figure.low == pytest.approx(104.8576)  # 100 MiB/s in MB/s
    assert figure.is_corrected
    assert figure.error == pytest.approx(0.04)
    assert figure.status is Status.OK


@given(st.floats(0.001, 1.0))
def test_a_range_has_no_error_within_it_and_one_to_its_nearer_end_outside(seconds: float) -> None:
    figure = compare(STUDY, {("a", "j", "wait"): seconds})[1]
    assert figure.error is not None
    nearest = min(max(seconds, 0.05), 0.08)
    assert figure.error == pytest.approx(seconds / nearest - 1, abs=1e-9)


def test_what_is_given_not_covered_or_not_measured_is_no_test() -> None:
    by_place = {(f.published.arm, f.published.kind.key): f.status for f in compare(STUDY, OBSERVED)}
    assert by_place == {
        ("a", "rate"): Status.MISS,  # +10 %, 5 % allowed
        ("a", "wait"): Status.OK,  # 45 ms against 50 to 80: -10 %
        ("b", "rate"): Status.OUTSIDE,
        ("c", "wait"): Status.OK,  # against the corrected 3 ms
        ("d", "wait"): Status.GIVEN,
        ("d", "rate"): Status.MISSING,
    }
    lines = summary(STUDY, compare(STUDY, OBSERVED))
    assert lines[0] == "2 of 3 published figures are within tolerance."
    assert lines[1] == "Outside: a j throughput +10.0 %: close"
    assert lines[2].startswith("Not covered: b j throughput ")
    assert lines[2].endswith(": a network")


def test_every_format_says_the_figures_and_what_the_article_got_wrong() -> None:
    shown = {form: render(result(OBSERVED)) for form, render in RENDERERS.items()}
    for form in ("text", "markdown", "json"):
        for text in ("MB/s are MiB/s", "not so", "a note", "a graph", "found", "made up"):
            assert text in shown[form], (form, text)
    assert "104.9" in shown["text"]
    assert "a\\|b" in shown["markdown"]  # a cell cannot end its column
    document = json.loads(shown["json"])
    assert document["figures"][0]["status"] == "MISS"
    assert document["tables"][0]["rows"][0] == ["a|b", 1.25]
    rows = list(csv.DictReader(io.StringIO(shown["csv"])))
    assert [row["status"] for row in rows] == [f["status"] for f in document["figures"]]
    assert float(rows[0]["corrected_low"]) == pytest.approx(104.8576)


@pytest.mark.parametrize(
    ("name", "words", "begins"),
    [("a.json", (), "{"), ("a.md", (), "# "), ("a.html", ("--format", "csv"), "study,")],
)
def test_the_file_names_the_format_unless_one_is_given(
    name: str, words: tuple[str, ...], begins: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esrally_ebs.studies.run_study", lambda *_, **__: result(OBSERVED))
    assert main(["study", "burst-2014", "--simulate", "--output", str(tmp_path / name), *words]) == 0
    assert (tmp_path / name).read_text().startswith(begins)


def test_page_and_drawing_are_whole_and_need_nothing_from_elsewhere() -> None:
    html, svg = (RENDERERS[form](result(OBSERVED)) for form in ("html", "svg"))
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    for text in (html, svg):
        assert "<script" not in text
        assert "src=" not in text
        assert "url(" not in text
    assert "&lt;c&gt;" in html
    assert html.count("<svg ") == 2  # the plot, and the errors


def test_a_plot_over_powers_of_ten_has_them_below_it_and_each_mark_in_its_place() -> None:
    points = [(20.0, -5.0), (2000.0, 5.0)]
    data = Plot(title="P", across="IOPS", up="%", log_x=True, curves=(curve_through("one", points, "marks"),))
    drawn = ElementTree.fromstring(plot(data))
    texts = [element.text for element in drawn.iter("text")]
    assert [text for text in texts if text in ("10", "100", "1k", "10k")] == ["10", "100", "1k", "10k"]
    *marks, in_legend = drawn.iter("circle")
    assert in_legend.get("cy") == "28"
    # from 44 to 468 wide for three powers of ten: log10(20) = 1.301 and log10(2000) = 3.301
    expected = [44 + 424 * 0.301 / 3, 44 + 424 * 2.301 / 3]
    assert [float(mark.get("cx", 0)) for mark in marks] == pytest.approx(expected, abs=0.1)


def test_labels_of_a_high_axis_are_short_enough_for_its_margin() -> None:
    data = Plot(title="P", across="min", up="I/Os", curves=(curve_through("one", [(0, 0), (1, 900_000)]),))
    drawn = ElementTree.fromstring(plot(data))
    labels = [e.text for e in drawn.iter("text") if e.get("text-anchor") == "end"]
    assert labels[:5] == ["0", "200k", "400k", "600k", "800k"]


def test_numbers_of_a_table_stand_on_the_right_and_words_with_their_titles_on_the_left() -> None:
    rows = [["3x1tib", "yes", "2,000", "about 70 to 80", 3.5], ["1x1tib", "no", "5 %", "+12.9 %", None]]
    table = plain_table("t", "T", ["arm", "is", "ours", "published", "x"], rows)
    whole = result(OBSERVED)
    html = RENDERERS["html"](
        dataclasses.replace(whole, parts=dataclasses.replace(whole.parts, tables=[table]))
    )
    for text in ("yes", "no"):
        assert f'<td class="left">{text}</td>' in html
    for text in ("2,000", "about 70 to 80", "3.5", "5 %", "+12.9 %"):
        assert f"<td>{text}</td>" in html
    assert '<th scope="col" class="left">is</th><th scope="col">ours</th>' in html


def test_a_study_without_anything_measured_can_be_shown() -> None:
    nothing = result({})
    for render in RENDERERS.values():
        assert render(nothing)
    assert "0 of 0 published figures" in RENDERERS["text"](nothing)


@pytest.mark.parametrize(
    "broken",
    ["", "[]", "{}", '{"title": 1}', json.dumps({**DATA, "figures": [{"values": {"no": 1}}]}),
     json.dumps({**DATA, "kinds": {"rate": {"title": "t", "unit": "furlongs", "tolerance": 1}}})],
)  # fmt: skip
def test_data_that_are_not_whole_are_refused(broken: str) -> None:
    with pytest.raises(FormatError, match=r"a\.json: not the data of a study: .*; install esrally_ebs again"):
        parse_study(broken, "a.json")


FACTS = Path(__file__).parents[4] / "shared" / "facts" / "published_measurements.json"


@pytest.mark.skipif(not FACTS.exists(), reason="the collected measurements are not part of the pack")
def test_every_figure_of_the_five_articles_is_in_a_study() -> None:
    printed = {
        value
        for name in names()
        for figure in read_study(name).figures
        for value in (figure.low, figure.high)
    }
    printed |= {value for row in read_study("nikkei-2021").settings["rally"] for value in row[1:]}
    for row in json.loads(FACTS.read_text())["seeds"]:
        values = row["value"] if isinstance(row["value"], list) else [row["value"]]
        for value in values:
            assert value in printed or row["metric"] in LEFT_OUT or not isinstance(value, int | float), row


LEFT_OUT = {
    "single_run_throughput",  # of the ten whose mean is compared
    "network_iperf3",  # what the network lets through: goes into the load
}
