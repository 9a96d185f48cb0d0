"""Several volumes of each type: each is one observation, so what a volume draws is in every interval."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats
from session_in_memory import session
from small_plan import small_plan

from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.analysis.findings import find
from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.analysis.volumes import by_type, marked_by_type
from esrally_ebs.model import Event
from esrally_ebs.report.build import build
from esrally_ebs.report.documents import documents
from esrally_ebs.report.gate import judge_session, render_gate
from esrally_ebs.report.sessions import compare_sessions
from esrally_ebs.store.session import Session

ALIKE = (1.0, 1.0, 1.0)


def volumes(of_b: Sequence[float], of_a: Sequence[float] = ALIKE, **design: object) -> Session:
    """Six rounds on three volumes of ``a`` and of ``b``, each of which takes so many times 0.1 s."""
    factors = {
        f"{of}-{number}": factor
        for of, factors in (("a", of_a), ("b", of_b))
        for number, factor in enumerate(factors, start=1)
    }
    arms = [
        {"name": name, "type": "gp3", "spread": 0.05, "read_latency": factor}
        for name, factor in factors.items()
    ]
    plan = small_plan(arm=arms, race={}, design={"volumes": len(of_a), **design})
    made = session(arms=tuple(factors), plan=plan)
    draw = np.random.default_rng(1)
    rows = made.samples.to_pylist()
    for row in rows:
        row["service_time_s"] = 0.1 * factors[row["arm"]] * math.exp(draw.normal(0, 0.003))
    return replace(made, samples=pa.Table.from_pylist(rows, schema=made.samples.schema))


def test_the_ratio_of_two_types_is_the_mean_over_pairs_of_volumes_with_students_interval() -> None:
    factors = (1.1, 1.2, 1.35)
    found = find(by_type(volumes(factors)))
    (only,) = found.comparisons
    logs = np.log(factors)
    low, high = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (only.a, only.b, only.starts, only.rounds, found.volumes) == ("a", "b", 3, 18, 3)
    assert only.ratio.value == pytest.approx(math.exp(logs.mean()), rel=0.002)
    assert (only.ratio.low, only.ratio.high) == pytest.approx((math.exp(low), math.exp(high)), rel=0.01)
    # volumes share their rounds, so their spread is no interval of a type by itself
    assert all(summary.percentiles[0].low is None for summary in found.summaries)


def test_what_volumes_draw_is_no_difference_of_types() -> None:
    drawn = volumes((1.08, 0.98, 1.01), (1.0, 1.05, 0.97))
    (of_types,) = find(by_type(drawn)).comparisons
    of_volumes = find(drawn).comparisons
    assert of_types.verdict is Verdict.INCONCLUSIVE
    assert {c.b: c.verdict for c in of_volumes}["b-1"] is Verdict.SLOWER
    assert find(by_type(volumes((1.2, 1.21, 1.22)))).comparisons[0].verdict is Verdict.SLOWER
    assert find(by_type(volumes(ALIKE))).comparisons[0].verdict is Verdict.EQUIVALENT


def test_a_session_with_one_volume_of_each_is_its_own() -> None:
    single = session()
    assert by_type(single) is single
    several = volumes(ALIKE)
    assert by_type(several, None, "b-2") is several


def test_what_is_recorded_of_a_block_goes_with_it() -> None:
    events = (
        Event(at_s=1.0, kind="io", arm="b-2", fields={"round": 4}),
        Event(at_s=2.0, kind="io", arm="b-2", fields={"round": 0}),
        Event(at_s=3.0, kind="gc", arm="b-2"),
        Event(at_s=4.0, kind="baseline", arm="b-2", fields={"round": 0}),
    )
    made = by_type(replace(volumes(ALIKE), events=events)).events
    assert [(event.arm, event.fields.get("round")) for event in made] == [
        ("b", 10),
        ("b", 0),
        ("b-2", None),
        ("b", 1),  # the first volume has pass 0
    ]


def test_a_pause_or_a_fault_of_a_volume_marks_the_round_of_its_type() -> None:
    """Not that of the volume whose requests ran meanwhile: each has a node of its own."""
    made = volumes(ALIKE)
    rows = made.samples.to_pylist()
    places = {volume.spec.name: place for place, volume in enumerate(made.arms)}
    for row in rows:  # each volume in turn, 100 s a round, 10 s a volume
        row["started_s"] = 100.0 * row["round"] + 10 * places[row["arm"]]
    b2 = 400.0 + 10 * places["b-2"]
    paused = Event(at_s=b2 + 0.05, kind="gc", arm="b-2", fields={"seconds": 0.05})
    fault = Event(at_s=b2 + 100, kind="fault", arm="b-2", fields={"text": "its node has died"})
    idle = Event(at_s=b2 + 100.05, kind="gc", arm="b-1", fields={"seconds": 0.05})
    recorded = replace(
        made,
        samples=pa.Table.from_pylist(rows, schema=made.samples.schema),
        events=(paused, fault, idle),
    )
    marked = marked_by_type(recorded)
    assert {block: [cause.kind for cause in own] for block, own in marked.items()} == {
        ("b", "t", 10): ["gc"],
        ("b", "t", 11): ["fault"],
    }
    assert list(marked_by_type(recorded, "b-2")) == [("b-2", "t", 4), ("b-2", "t", 5)]
    (table,) = [table for table in build(recorded).tables if table.key == "marks"]
    texts = [cell.text for cell in table.rows[0].cells]
    assert texts[1].startswith("garbage collection in round 4 of b-2")
    assert texts[1].endswith("fault in round 5 of b-2")
    assert table.rows[0].cells[1].facts["marked_rounds"] == "4-5 of b-2"
    assert texts[-1].endswith("(16 rounds)")
    alike = replace(paused, at_s=paused.at_s - 30, arm="a-2")  # of the same pair of volumes
    both = marked_by_type(replace(recorded, events=(paused, alike)))
    assert both == {}


@pytest.mark.parametrize(
    ("nodes", "scope", "short"),
    [
        ("per-arm", "any JVM: 3 of each, a node each, were measured", "any volumes, any JVM"),
        ("one", "this JVM: 3 of each were measured", "any volumes"),
    ],
)
def test_a_report_says_that_it_holds_for_any_volumes(nodes: str, scope: str, short: str) -> None:
    several = volumes((1.2, 1.21, 1.22), nodes=nodes)
    built = build(several)
    assert f"scope: any volumes of these types under {scope}" in built.labels
    assert built.verdict.startswith("b (emulated) is slower than a (emulated): +21.")
    assert built.verdict.endswith(f"cold caches, {short}).")
    tables = {table.key: table for table in built.tables}
    assert "means over 3 volumes of each type, Student's t" in tables["service_time"].notes[0]
    assert [column.subject for column in tables["volumes"].columns] == [v.spec.name for v in several.arms]
    assert [row.item for row in tables["arms"].rows] == [v.spec.name for v in several.arms]
    single = build(several, against="a-2")
    assert single.labels[-1].startswith("scope: these volumes under ")
    assert "volumes" not in {table.key for table in single.tables}
    assert build(several, against="b").verdict.startswith("a (emulated) is faster than b (emulated): -17.")


def test_caches_of_a_type_are_steady_when_those_of_each_volume_are() -> None:
    made = volumes(ALIKE)
    cache = made.plan.cache.model_copy(update={"mode": "steady"})
    made = replace(made, plan=made.plan.model_copy(update={"cache": cache}))
    requests = {"a-1": 60, "a-2": 1200, "a-3": 80, "b-1": 60, "b-3": 60}
    events = tuple(
        Event(at_s=1.0, kind="steady", arm=arm, fields={"task": "t", "requests": count})
        for arm, count in requests.items()
    )
    (label,) = [text for text in build(replace(made, events=events)).labels if text.startswith("cache: ")]
    assert label.endswith("(a each after at most 1,200 requests, b never was)")


def test_too_few_volumes_to_tell_ask_for_more_volumes() -> None:
    assert "more volumes of each type (design.volumes)" in build(volumes((1.04, 0.9, 1.1))).next_step


def test_too_few_rounds_are_counted_as_the_plan_counts_them() -> None:
    made = volumes(ALIKE, rounds=1)
    first = replace(made, samples=made.samples.filter(pc.equal(made.samples["round"], 1)))
    built = build(first)
    assert built.next_step == "measure 1 more round (design.rounds = 2)."
    assert "3 rounds measured over all volumes of a type; at least 6 are needed" in built.verdict
    assert any("3 rounds over all starts (or volumes): at least 6" in text for text in built.warnings)


def test_a_gate_is_of_types_unless_a_volume_is_named() -> None:
    several, limits = volumes((1.04, 0.98, 1.01)), [parse_limit("p50=2%")]
    gate = judge_session(several, limits)
    assert (gate.a, gate.b, gate.outcome) == ("a", "b", "inconclusive")
    assert (
        render_gate(several, gate)
        .splitlines()[0]
        .endswith("more volumes of each type, or more rounds of each, may decide")
    )
    single = judge_session(several, limits, base="a-1", other="b-1")
    assert (single.a, single.b, single.outcome) == ("a-1", "b-1", "fail")
    assert "b-1 (emulated) against a-1 (emulated)" in render_gate(several, single)


def test_documents_of_types_say_of_how_many_volumes() -> None:
    made = [document.fields for document in documents(volumes((1.2, 1.21, 1.22)), "here")]
    verdicts = [fields for fields in made if fields["record"] == "verdict"]
    assert [(v["arm"], v["against"], v["volumes"], v["starts"]) for v in verdicts] == [("b", "a", 3, 1)]
    times = [fields for fields in made if fields["record"] == "service-time"]
    assert [(fields["arm"], fields["volume-type"]) for fields in times] == [("a", "gp3"), ("b", "gp3")]


def test_sessions_that_drew_their_volumes_anew_are_compared_as_types() -> None:
    draws = [(1.2, 1.21, 1.22), (1.19, 1.22, 1.21), (1.23, 1.2, 1.2)]
    sessions = [
        replace(volumes(draw), id=f"{number}000", started_at=float(number))
        for number, draw in enumerate(draws)
    ]
    built = compare_sessions(sessions)
    assert "Over all sessions b (emulated) is slower than a (emulated) on t, +20." in built.verdict
    assert any(label.startswith("scope of one session: any volumes of") for label in built.labels)
