"""Several sessions as one report: times from the oldest to the newest, a trend, and what forbids them."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions_of_six_rounds import make

from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import Check
from esrally_ebs.plan import ModifyPlan
from esrally_ebs.report import RENDERERS, Report
from esrally_ebs.report.html.plots import named_places, plot
from esrally_ebs.report.model import Curve, Plot
from esrally_ebs.report.sessions import comparable, compare_sessions
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session

# 3 x round modulo 7 is 3, 6, 2, 5, 1, 4 per mille: the median of a session is 3.5 per mille above its scale.
MEDIAN = 1.0035


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Session, Session]:
    return load_session(make(tmp_path, "first-1")), load_session(make(tmp_path, "second-2", scale=1.1, at=1))


@pytest.fixture
def five(tmp_path: Path) -> list[Session]:
    """Five days, each a per cent slower than the one before, named in no order of time."""
    return [
        load_session(make(tmp_path, f"day-{n}", scale=1 + n / 100, at=86400.0 * n)) for n in (3, 0, 4, 1, 2)
    ]


def tables(built: Report) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    return dict(json.loads(RENDERERS["json"](built))["tables"])


def test_times_of_both_and_the_change_are_shown(pair: tuple[Session, Session]) -> None:
    shown = tables(compare_sessions(pair))
    assert shown["service_time_p50_gp2"]["q"]["first-1"]["p50_s"] == pytest.approx(0.1 * MEDIAN)
    assert shown["service_time_p50_gp2"]["q"]["change"]["ratio"] == pytest.approx(1.1)
    assert shown["service_time_p50_gp3"]["q"]["change"]["difference_s"] == pytest.approx(0.008 * MEDIAN)
    between = shown["between_arms_p50_gp3_gp2"]["q"]
    assert between["first-1"]["verdict"] == "faster"
    assert between["second-2"]["ratio"] == pytest.approx(0.8)


def test_many_sessions_are_shown_from_the_oldest_to_the_newest(five: list[Session]) -> None:
    built = compare_sessions(five)
    row = tables(built)["service_time_p50_gp2"]["q"]
    assert list(row) == ["day-0", "day-1", "day-2", "day-3", "day-4", "change", "spread"]
    assert row["change"]["ratio"] == pytest.approx(1.04)
    assert row["spread"]["spread"] == pytest.approx(0.04)
    (drawn,) = built.figures.trends
    assert drawn.places == ("day-0", "day-1", "day-2", "day-3", "day-4")
    assert drawn.curves[0].y == pytest.approx([100 * MEDIAN * (1 + n / 100) for n in range(5)])


def test_programs_have_what_a_verdict_of_all_sessions_claims_at(five: list[Session]) -> None:
    (verdict,) = tables(compare_sessions(five))["all_sessions_p50"]["q"].values()
    assert (verdict["confidence"], verdict["margin"]) == (0.95, 0.05)


def test_one_session_that_does_not_fit_is_named_with_what_differs(
    five: list[Session], tmp_path: Path
) -> None:
    other = load_session(make(tmp_path, "day-9", kernel="6.2", at=86400.0 * 9))
    built = compare_sessions([*five, other])
    assert not comparable(built.checks)
    assert built.verdict == (
        "Not comparable: machine: second = day-9: kernel: 6.1 in the first, 6.2 in the second."
    )
    assert [table.key for table in built.tables] == ["sessions"]
    assert built.figures.trends == ()


def test_no_times_are_shown_when_two_sessions_are_not_comparable(pair: tuple[Session, Session]) -> None:
    first, second = pair
    built = compare_sessions([first, replace(second, environment={**second.environment, "kernel": "6.2"})])
    assert built.verdict == "Not comparable: machine: kernel: 6.1 in the first, 6.2 in the second."
    assert [table.key for table in built.tables] == ["sessions"]


@pytest.mark.parametrize("form", RENDERERS)
def test_what_differs_and_may_stands_above_the_first_table(pair: tuple[Session, Session], form: str) -> None:
    first, second = pair
    design = second.plan.design.model_copy(update={"rounds": 12})
    longer = replace(second, plan=second.plan.model_copy(update={"design": design}))
    text = RENDERERS[form](compare_sessions([first, longer]))
    line = "Differs, first-1 the first and second-2 the second: rounds: 6 in the first, 12 in the second"
    assert line in text
    if form in ("text", "markdown"):
        assert text.splitlines().index(next(row for row in text.splitlines() if line in row)) < 5


def test_one_session_or_one_twice_is_no_comparison(five: list[Session]) -> None:
    with pytest.raises(PlanError, match="name two or more"):
        compare_sessions(five[:1])
    with pytest.raises(PlanError, match="day-3 is named twice"):
        compare_sessions([*five, five[0]])


def test_a_session_that_looked_for_a_knee_or_changed_a_volume_is_not_compared(
    pair: tuple[Session, Session],
) -> None:
    first, second = pair
    with pytest.raises(MeasurementError, match="second-2: looked for a knee"):
        compare_sessions([first, designed(second, knee="p99=100ms")])
    changed = second.plan.model_copy(update={"modify": ModifyPlan(arm="gp2", type="gp3")})
    with pytest.raises(MeasurementError, match="second-2: changed the volume of gp2 between"):
        compare_sessions([first, replace(second, plan=changed)])


def test_names_are_as_long_as_it_takes_to_tell_them_apart(tmp_path: Path) -> None:
    names = ("abcdefgh-1", "abcdefgh-2")
    built = compare_sessions([load_session(make(tmp_path, name)) for name in names])
    assert list(tables(built)["sessions"]) == list(names)


@pytest.mark.parametrize("form", RENDERERS)
def test_every_format_says_emulated(five: list[Session], form: str) -> None:
    text = RENDERERS[form](compare_sessions(five))
    assert "gp3 (emulated)" in text
    assert "emulated volumes: gp2, gp3" in text


@pytest.mark.parametrize("form", ["html", "md"])
def test_a_trend_is_what_the_golden_file_holds(five: list[Session], golden: object, form: str) -> None:
    render = RENDERERS["html" if form == "html" else "markdown"]
    golden(f"trend.{form}", render(compare_sessions(five)))  # type: ignore[operator]


def test_a_trend_has_a_mark_per_session_and_arm() -> None:
    hover = ("a, x", "a, y", "a, z")
    curve = Curve(name="a", x=(0.0, 1.0, 2.0), y=(0.1, 0.2, 0.1), hover=hover)
    data = Plot(title="t", across="session", up="ms", curves=(curve,), places=("x", "y", "z"))
    marks = [e for e in ElementTree.fromstring(plot(data)).iter() if "dot" in e.get("class", "")]
    assert [mark.find("title").text for mark in marks] == ["a, x", "a, y", "a, z"]  # type: ignore[union-attr]


@given(st.integers(2, 400))
def test_the_first_and_the_last_session_are_named_and_few_in_between(count: int) -> None:
    places = named_places(count)
    assert places[0] == 0
    assert places[-1] == count - 1
    assert places == sorted(set(places))
    assert len(places) <= 5


def designed(session: Session, **design: object) -> Session:
    changed = session.plan.design.model_copy(update=design)
    return replace(session, plan=session.plan.model_copy(update={"design": changed}))


def test_all_sessions_are_asked_about_the_reference_of_the_oldest(five: list[Session]) -> None:
    oldest, *others = sorted(five, key=lambda one: one.started_at)
    built = compare_sessions([oldest, *(designed(one, reference="gp3") for one in others)])
    assert "Over all sessions gp3 (emulated) is faster than gp2 (emulated) on q, -20.0 %" in built.verdict
    assert "reference: nothing in the first, gp3 in the second" in built.details[0]
    between = [key for key in tables(built) if key.startswith("between_arms")]
    assert between == ["between_arms_p50_gp3_gp2"]


def test_the_margin_of_a_verdict_of_all_sessions_is_said(five: list[Session]) -> None:
    oldest, *others = sorted(five, key=lambda one: one.started_at)
    built = compare_sessions([designed(oldest, margin=0.3), *others])
    assert "gp3 (emulated) is as fast as gp2 (emulated) on q within 30 %, with a difference" in built.verdict
    assert "with a difference that is shown, -20.0 %" in built.verdict
    assert "margin: 0.3 in the first, 0.05 in the second" in built.details[0]
    assert "scope of one session: these volumes under these JVMs" in built.labels


def test_sessions_of_volumes_that_are_others_under_one_name_get_no_verdict_together(
    five: list[Session],
) -> None:
    def of_type(session: Session, type_: str) -> Session:
        arms = tuple(replace(arm, spec=replace(arm.spec, type=type_)) for arm in session.arms)
        return replace(session, arms=arms)  # as AWS says of a mount; the plan says the same as the others'

    built = compare_sessions([of_type(one, "st1") if one.id == "day-3" else one for one in five])
    assert "Over all sessions" not in built.verdict
    assert built.details[0] == (
        "No verdict of all sessions: day-0 asks about other volumes, caches or another plan than day-3: gp2 "
        "type: gp3 in the first, st1 in the second; gp3 type: gp3 in the first, st1 in the second."
    )
    assert "all_sessions_p50" not in tables(built)


def test_sizes_and_modes_of_real_volumes_are_told(pair: tuple[Session, Session]) -> None:
    def on_aws(session: Session, gib: int, mode: str) -> Session:
        volume = {"size_bytes": gib * 1024**3}
        system = {"throughput_mode": mode, "provisioned_bytes_per_s": None}
        arms = {"gp2": {"volumes": [volume, volume]}, "gp3": {"volumes": [], "file_system": system}}
        return replace(session, environment={**session.environment, "aws": {"arms": arms}})

    first, second = pair
    built = compare_sessions([on_aws(first, 100, "bursting"), on_aws(second, 500, "elastic")])
    (line,) = built.details
    assert "gp2 size_bytes: 214748364800 in the first, 1073741824000 in the second" in line
    assert "gp3 mode: bursting in the first, elastic in the second" in line


def of_tasks(session: Session, **factors: float) -> Session:
    """Its one task as several, each with so many times the service times on gp3."""
    schema, parts = session.samples.schema, []
    for task, factor in factors.items():
        rows = session.samples.to_pylist()
        for row in rows:
            row["task"] = task
            row["service_time_s"] *= factor if row["arm"] == "gp3" else 1
        parts.append(pa.Table.from_pylist(rows, schema))
    return replace(session, samples=pa.concat_tables(parts).unify_dictionaries())


def test_tasks_that_speak_against_all_together_are_said_of_all_sessions(five: list[Session]) -> None:
    built = compare_sessions([of_tasks(one, q=1, r=1, s=1.5) for one in five])
    assert "gp3 (emulated) is faster than gp2 (emulated), -8.4 %" in built.verdict
    assert built.verdict.endswith(", but slower on 1 of 3 tasks (by up to 20.0 %).")


def test_why_sessions_of_few_rounds_or_of_other_tasks_have_no_verdict_together(five: list[Session]) -> None:
    def of_rounds(session: Session, count: int) -> Session:
        return replace(
            session, samples=session.samples.filter(pc.less_equal(session.samples["round"], count))
        )

    few = [of_rounds(one, 5 if one.id == "day-3" else 6) for one in five]
    others = [of_tasks(one, q=1, r=1, **{"s" if one.id == "day-3" else "t": 1}) for one in five]
    for sessions, why in (
        (few, "not each of them has an interval for every task"),
        (others, "they have different tasks"),
    ):
        assert compare_sessions(sessions).details == (f"No verdict of all sessions on gp3: {why}.",)
    assert compare_sessions(few[:2]).details == ()  # of two sessions none was to be had


def test_what_was_accepted_of_a_session_is_said_of_all_together(five: list[Session]) -> None:
    late = Check(name="lateness", ok=False, value="", text="emulated volumes took longer", accepted=True)
    built = compare_sessions([replace(one, checks=(late,)) if one.id == "day-3" else one for one in five])
    assert "Over all sessions gp3 (emulated) is faster" in built.verdict
    assert built.details == ("Accepted in day-3: lateness: emulated volumes took longer.",)


def test_latency_is_judged_beside_service_time_over_all_sessions_of_an_open_loop(tmp_path: Path) -> None:
    def open_loop(number: int) -> Session:
        made = load_session(make(tmp_path, f"day-{number}", scale=1 + number / 100, at=86400.0 * number))
        plan = made.plan.model_copy(
            update={
                "cache": made.plan.cache.model_copy(update={"mode": "warm"}),
                "design": made.plan.design.model_copy(update={"nodes": "per-arm"}),
            }
        )
        late = pc.if_else(pc.equal(made.samples["arm"].cast(pa.string()), "gp3"), 0.3, 0.001)
        place = made.samples.schema.get_field_index("latency_s")
        samples = made.samples.set_column(
            place, made.samples.schema.field(place), pc.add(made.samples["latency_s"], late)
        )
        return replace(made, plan=plan, samples=samples)

    built = compare_sessions([open_loop(number) for number in range(3)])
    assert "Over all sessions gp3 (emulated) is faster than gp2 (emulated) on q, -20.0 %" in built.verdict
    assert "By latency over all sessions gp3 (emulated) is slower than gp2 (emulated) on q" in built.verdict
    shown = tables(built)
    assert shown["latency_p50_gp2"]["q"]["day-0"]["p50_s"] == pytest.approx(0.1 * MEDIAN + 0.001)
    assert shown["latency_all_sessions_p50"]["q"]["gp3 against gp2"]["verdict"] == "slower"
    assert shown["latency_between_arms_p50_gp3_gp2"]["q"]["day-1"]["verdict"] == "slower"
