"""What a session in search of the knee says, in every format."""

import csv
import io
import itertools
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import session_in_memory
import simulated_queue
from sample_rows import row, table
from small_plan import small_plan

from esrally_ebs import report
from esrally_ebs.analysis.comparable import check_comparable
from esrally_ebs.analysis.gate import parse_limit
from esrally_ebs.analysis.knee import (
    EVENT,
    Knee,
    KneeSearch,
    NextStep,
    Purpose,
    StepResult,
    observe,
    steps_of,
)
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Event, State, parse_bound
from esrally_ebs.report.gate import judge_session
from esrally_ebs.store.encoding import SAMPLES, TELEMETRY
from esrally_ebs.store.session import Session

BOUND = "p99=20ms"


def recorded(servers: dict[str, int], bound: str = BOUND, service_s: float = 0.005) -> Session:
    """A session whose arms are queues of so many servers."""
    plan = small_plan(
        race={},
        cache={"mode": "warm"},
        design={"knee": bound, "steps": 6},
        arm=[{"name": n, "type": "gp3"} for n in servers],
    )
    search, rows, events = KneeSearch.of(plan.design), [], []
    for arm, number in servers.items():
        draw, steps = np.random.default_rng(3), list[StepResult]()
        while (step := search.next(steps)) is not None:
            if step.due > 2000:
                step = replace(step, seconds=2000 / step.rate)
            due, latency, service = simulated_queue.make(step, np.full(1, service_s), number, draw)
            steps.append(observe(step, due, latency, service, search.bound))
            fields = {"purpose": step.purpose.value, "rate": step.rate, "seconds": step.seconds}
            events.append(Event(at_s=0.0, kind=EVENT, arm=arm, fields={**fields, "round": len(steps)}))
            own = {"arm": arm, "round": len(steps), "task": "queries"}
            rows += [
                row(**own, started_s=at + took - served, service_time_s=served, latency_s=took)
                for at, took, served in zip(due, latency, service, strict=True)
            ]
    samples = table(*rows)
    return session_in_memory.session(arms=tuple(servers), plan=plan, samples=samples, events=tuple(events))


@pytest.fixture(scope="module")
def session() -> Session:
    return recorded({"a": 1, "b": 2})


def test_the_report_begins_with_the_knee_of_each_arm_and_how_they_differ(session: Session) -> None:
    built = report.build(session)
    assert built.verdict.startswith("Highest rate with p99 of 20 ms: a (emulated) ")
    assert built.verdict.endswith("], a difference.")
    table = next(table for table in built.tables if table.key == "knee")
    rates = [row.cells[0].facts["queries/s"] for row in table.rows]
    assert 80 < rates[0] < 140  # type: ignore[operator]
    assert 250 < rates[1] < 300  # type: ignore[operator]
    assert all(check.ok for check in built.checks)


def test_programs_have_the_confidence_of_a_knee(session: Session) -> None:
    document = json.loads(report.render_json(report.build(session)))
    assert (document["confidence"], document["margin"]) == (0.95, 0.05)  # one look, after six steps


def test_knees_are_compared_with_that_of_the_reference(session: Session) -> None:
    design = session.plan.design.model_copy(update={"reference": "b"})
    built = report.build(replace(session, plan=session.plan.model_copy(update={"design": design})))
    assert "; a against b: -" in built.verdict


def test_knees_are_compared_with_the_arm_that_is_asked_for(session: Session) -> None:
    assert "; a against b: -" in report.build(session, against="b").verdict


def test_of_three_arms_each_is_compared_with_the_reference(session: Session) -> None:
    built = report.build(recorded({"a": 1, "b": 2, "c": 1}))
    assert re.search(r"; b against a: \+[\d.]+% \[.*\], a difference; c against a: \+0.0% ", built.verdict)
    pair = re.search(r"b against a: .* \[\+([\d.]+)%, \+([\d.]+)%\]", report.build(session).verdict)
    shared = re.search(r"b against a: [^\[]*\[\+([\d.]+)%, \+([\d.]+)%\]", built.verdict)
    assert pair and shared  # noqa: PT018
    assert (float(shared[1]), float(shared[2])) != (float(pair[1]), float(pair[2]))  # they share the error
    assert float(shared[1]) <= float(pair[1]) < float(pair[2]) <= float(shared[2])


def test_programs_have_the_ratio_of_knees_that_the_first_line_has(session: Session) -> None:
    document = json.loads(report.render_json(report.build(session, against="b")))
    said = re.search(r"; a against b: (.*)% \[(.*)%, (.*)%\], (.*)\.$", document["verdict"])
    facts = document["tables"]["knee_ratios"]["a"]
    assert said
    shown = [f"{(facts[name][name] - 1) * 100:+.1f}" for name in ("ratio", "low", "high")]
    assert [*shown, facts["verdict"]["verdict"], facts["against"]["against"]] == [*said.groups(), "b"]


def test_the_table_of_ratios_says_how_sure_it_is(session: Session) -> None:
    (ratios,) = (table for table in report.build(session).tables if table.key == "knee_ratios")
    assert ratios.notes == ("These intervals, and those of all looks, hold together at 95%.",)


def test_no_ratio_is_given_of_arms_without_knees() -> None:
    built = report.build(recorded({"a": 1, "b": 2}, bound="p99=1ms"))
    assert "knee_ratios" not in [table.key for table in built.tables]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (101, 103, "[+0.6%, +3.4%], a difference"),
        (100.28, 103, "[+0.01%, +3.44%], a difference"),
        (100.2, 104.815, "[-0.059%, +5.003%], no difference is shown"),
    ],
)
def test_the_ends_of_an_interval_are_printed_on_the_side_of_0_and_of_the_margin_where_they_are(
    session: Session, monkeypatch: pytest.MonkeyPatch, low: float, high: float, said: str
) -> None:
    knees = itertools.cycle([Knee(rate=100, low=99, high=101), Knee(rate=102, low=low, high=high)])
    monkeypatch.setattr(KneeSearch, "knee", lambda *_: next(knees))
    assert f"b against a: +2.0% {said}." in report.build(session).verdict


@pytest.mark.parametrize(
    ("may_be_lower", "low", "high", "ends"),
    [
        (True, 119, 121, "a difference, but a knee is in doubt."),
        (False, 119, 121, "a difference."),
        (True, 99, 102, "equivalent, but a knee is in doubt."),
        (False, 99, 102, "equivalent."),
        (True, 90, 102, "no difference is shown."),
    ],
)
def test_what_is_claimed_of_a_knee_that_may_be_lower_is_in_doubt(
    session: Session, monkeypatch: pytest.MonkeyPatch, may_be_lower: bool, low: float, high: float, ends: str
) -> None:
    doubted = Knee(rate=(low + high) / 2, low=low, high=high, doubt="x", may_be_lower=may_be_lower)
    knees = itertools.cycle([Knee(rate=100, low=99, high=101), doubted])
    monkeypatch.setattr(KneeSearch, "knee", lambda *_: next(knees))
    assert report.build(session).verdict.endswith(f"], {ends}")


def test_every_format_has_the_knees_and_the_page_their_plot(session: Session) -> None:
    built = report.build(session)
    for form, render in report.RENDERERS.items():
        text = render(built)
        assert "Latency against rate" in text if form == "html" else "knee" in text or "Highest rate" in text
    assert json.loads(report.RENDERERS["json"](built))


def test_programs_have_every_step_of_every_arm(session: Session) -> None:
    built = report.build(session)
    shown = next(table for table in built.tables if table.key == "knee_steps")
    late = {f"{row.item} {row.cells[0].text}": row.cells[4].facts["late"] for row in shown.rows}
    assert len(late) == len(shown.rows)
    steps = json.loads(report.RENDERERS["json"](built))["tables"]["knee_steps"]
    assert {item: facts["late"]["late"] for item, facts in steps.items()} == late
    rows = list(csv.DictReader(io.StringIO(report.RENDERERS["csv"](built))))
    assert {r["item"] for r in rows if r["table"] == "knee_steps"} == late.keys()


@pytest.mark.parametrize(
    ("a_second", "words"),
    [
        (50.0, ["a: near its knee it spends 50 burst credits a second, so a full bucket lasts 5.0 min"]),
        (0.0, []),
        (-5.0, []),
    ],
)
def test_a_knee_that_burst_credits_hold_up_says_for_how_long(
    session: Session, a_second: float, words: list[str]
) -> None:
    telemetry = pa.Table.from_pylist(
        [
            {"arm": "a", "device": "d", "at_s": at_s, "metric": metric, "value": value, "unit": ""}
            for at_s in np.arange(0.0, 100.0, 0.5)
            for metric, value in (
                ("emulator.credits", 15_000 - a_second * at_s),
                ("emulator.credits_capacity", 15_000.0),
            )
        ],
        schema=TELEMETRY,
    )
    said = [
        text for text in report.build(replace(session, telemetry=telemetry)).warnings if "credits" in text
    ]
    assert [text.partition("; ")[0] for text in said] == words


@pytest.mark.parametrize(("ran_away", "ok"), [(True, None), (False, False)])
def test_late_volumes_of_steps_that_ran_away_are_no_matter(
    session: Session, ran_away: bool, ok: bool | None
) -> None:
    steps = steps_of(session)["a"]
    late = next(round_ for round_, step in steps.items() if step.rate and step.ran_away is ran_away)
    counters = ("device.reads", "device.read_s", "emulator.reads", "emulator.target_s.read")
    zeros = {
        **dict.fromkeys(counters, 0.0),
        "device.writes": 0.0,
        "device.write_s": 0.0,
        "emulator.writes": 0.0,
    }
    grown = dict(zip(counters, (9.0, 0.9, 9.0, 0.3), strict=True))
    event = Event(
        at_s=2.0,
        kind="io",
        arm="a",
        fields={
            "task": "queries", "round": late, "requests": 1, "started_s": 1.0,
            "begin": zeros, "end": {**zeros, **grown},
        },
    )  # fmt: skip
    checks = check_comparable(replace(session, events=(*session.events, event)))
    assert next((check.ok for check in checks if check.name == "lateness"), None) is ok


def test_arms_without_a_knee_say_why() -> None:
    built = report.build(recorded({"a": 1, "b": 1}, "p99=1ms"))
    assert "a (emulated) has none (no rate holds it: alone a query takes 5 ms (p99))" in built.verdict
    assert not built.figures.others


def test_a_request_that_failed_counts_as_late_and_forbids_no_knee(session: Session) -> None:
    """Arms are asked at rates of their own, so a log's bad queries fail more often on one."""
    samples = session.samples
    success = pa.array([False, *[True] * (samples.num_rows - 1)])
    changed = samples.set_column(samples.schema.get_field_index("success"), "success", success)
    built = report.build(replace(session, samples=changed))
    (check,) = [check for check in built.checks if not check.ok]
    said = f"1 of {samples.num_rows} measured requests failed (queries on a), which count as late"
    assert (check.text, check.mark) == (said, "warning")
    assert built.verdict.startswith("Highest rate")


def test_a_gate_says_why_it_has_no_limit_for_a_search_for_the_knee(session: Session) -> None:
    with pytest.raises(MeasurementError, match="looked for a knee, at rates of each arm's own"):
        judge_session(session, [parse_limit("p50=5%")])


def test_a_session_that_ended_before_its_first_step_has_a_report() -> None:
    whole = recorded({"a": 1, "b": 1}, "p99=1ms")
    cut = session_in_memory.session(plan=whole.plan, samples=SAMPLES.empty_table())
    assert "has none (no rate was tried)" in report.build(cut).verdict


@pytest.mark.parametrize("margin", [0.05, 0.01, 0.002])
def test_a_knee_that_is_not_known_well_says_how_long_steps_must_be_that_a_plan_may_have(
    session: Session, margin: float
) -> None:
    design = session.plan.design.model_copy(update={"margin": margin})
    built = report.build(replace(session, plan=session.plan.model_copy(update={"design": design})))
    known = [text for text in built.warnings if "the knee is known to" in text]
    assert known
    for text in known:
        assert re.search(rf"known to [\d.]+%, not to {margin * 100:g}%; ", text)
        if minutes := re.search(r"; steps of about (\d+) min would tell", text):
            assert int(minutes[1]) <= 10
        elif steps := re.search(r"; up to (\d+) steps of 10 min would tell \(--step 10m --set design", text):
            assert 6 < int(steps[1]) <= 100
        else:
            assert text.endswith("no search is long enough to tell")


@pytest.mark.parametrize(
    ("long", "state", "way"),
    [
        (0, State.COMPLETE, "raise design.budget"),
        (2, State.COMPLETE, "raise design.budget"),
        (2, State.CANCELLED, "its session was cancelled; search again"),
        (2, State.FAILED, "its session failed; search again"),
        (2, State.RUNNING, "its session still runs"),
    ],
)
def test_a_search_that_was_ended_asks_for_another_and_not_for_longer_steps(
    session: Session, long: int, state: State, way: str
) -> None:
    steps = steps_of(session)["a"]
    kept = [at for at, step in steps.items() if step.purpose is Purpose.MEASURE][long] - 1
    cut = session.samples.filter(pc.less_equal(session.samples["round"], kept))
    built = report.build(replace(session, samples=cut, state=state))
    warnings = [text for text in built.warnings if text[:3] == "a: "]
    (known,) = [text for text in warnings if "known to" in text]
    assert known.endswith(f"; only {long} of 6 long steps were made: {way}")
    assert bool(long) or warnings == [known]


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED, State.RUNNING])
def test_a_step_that_a_session_ended_in_is_no_rate_that_held(session: Session, state: State) -> None:
    """A queue that cannot keep up answers the first requests in time."""
    steps = steps_of(session)["a"]
    last = next(round_ for round_, step in steps.items() if step.ran_away)
    rounds, started_s = session.samples["round"], session.samples["started_s"]
    is_recorded = pc.or_(
        pc.less(rounds, last), pc.and_(pc.equal(rounds, last), pc.less(started_s, 0.05))
    )  # a blink of the step
    cut = replace(session, samples=session.samples.filter(is_recorded), state=state)
    assert f"it held up to {steps[last - 1].rate:.0f}/s" in report.build(cut).verdict
    assert last not in steps_of(cut)["a"]


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED, State.RUNNING])
def test_the_first_queries_of_a_session_that_ended_in_them_break_no_bound(state: State) -> None:
    session = recorded({"a": 1}, "p99=10ms", service_s=0.02)
    assert "alone a query takes 20 ms" in report.build(session).verdict
    first = session.samples.slice(0, 2)
    assert "no rate was tried" in report.build(replace(session, samples=first, state=state)).verdict


def test_a_knee_far_below_one_query_a_second_has_its_digits() -> None:
    built = report.build(recorded({"a": 1}, "p90=30s", service_s=8.0))
    shown = {table.key: table.rows for table in built.tables}
    assert shown["knee"][0].cells[1].facts["low"] == pytest.approx(0.0580, abs=0.001)
    assert shown["knee_steps"][1].cells[2].facts["queries/s"] == 0.0625


@pytest.mark.parametrize(
    "fields",
    [
        {"purpose": []},
        {"purpose": "x"},
        {"rate": "fast"},
        {"rate": -1.0},
        {"rate": 1e300},
        {"seconds": {}},
        {"seconds": 1e300},
        {"round": "?"},
        None,
    ],
)
def test_a_step_that_is_not_as_it_is_written_is_left_out(
    session: Session, fields: dict[str, Any] | None
) -> None:
    for place in (0, 1):  # one query at a time, and a rate
        events = list(session.events)
        changed = replace(events[place], fields={**events[place].fields, **fields} if fields else {})
        events[place] = changed
        assert report.build(replace(session, events=tuple(events))).verdict.startswith("Highest rate")


def busy(session: Session, node_s: float, machine_s: float) -> Session:
    """Each step of arm a was observed for a second: processor time of its node, and of all processes."""
    end = {"node.processor_s": node_s, "processor.busy_s": machine_s}
    counters = {"begin": dict.fromkeys(end, 0.0), "end": end}
    fields = {"task": "queries", "requests": 1, "started_s": 0.0, **counters}
    observed = [
        Event(at_s=1.0, kind="io", arm="a", fields={**fields, "round": event.fields["round"]})
        for event in session.events
        if event.arm == "a"
    ]
    nodes = {"a": {"processors": 2}, "b": {"processors": 2}}
    environment = {"cores": 8, "nodes": nodes}
    return replace(session, events=(*session.events, *observed), environment=environment)


@pytest.mark.parametrize(
    ("node_s", "machine_s", "says"),
    [
        (
            1.8,
            2.5,
            "the processors (its node has 90% of 2 busy while it answers); give the node more of them.",
        ),
        (
            1.0,
            7.2,
            "the machine's processors (90% of 8 are busy, 12% with its node), which also make the load; take "
            "more of them.",
        ),
        (1.0, 2.5, ""),
    ],
)
def test_processors_bind_that_the_node_may_use_or_that_make_the_load(
    session: Session, node_s: float, machine_s: float, says: str
) -> None:
    clients = pa.array([31] * session.samples.num_rows, SAMPLES.field("client").type)
    place = session.samples.schema.get_field_index("client")
    many = replace(session, samples=session.samples.set_column(place, "client", clients))
    held_back = report.build(busy(many, node_s, machine_s)).bottlenecks
    assert held_back == ((f"a (emulated) is held back by {says}",) if says else ())


def test_a_load_generator_whose_clients_all_wait_is_said_to_bind(session: Session) -> None:
    assert report.build(session).bottlenecks == (
        "b (emulated) is held back by the load generator (1 of its 1 clients wait for answers, and no limit "
        "shows why); give the search more clients.",
    )


def test_a_step_of_one_request_has_a_result() -> None:
    measured = NextStep(purpose=Purpose.MEASURE, rate=1.0, seconds=1.0)
    one = np.ones(1)
    assert observe(measured, one, one, one, parse_bound(BOUND, "knee")).requests == 1
