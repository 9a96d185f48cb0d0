"""The head of a report: the verdict in one sentence, one cause, what it costs, what to do next."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from eight_rounds import ROUNDS, THREE, built, named, rows
from golden_session import ARMS, START, arm, fio, make, observed, record, sample, samples
from small_plan import small_plan

from esrally_ebs import report
from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.analysis.findings import find
from esrally_ebs.analysis.reasons import Explanation
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import MIN_ROUNDS
from esrally_ebs.model import Sample, State, Volume
from esrally_ebs.report import head
from esrally_ebs.report.bottleneck import HeldBack
from esrally_ebs.report.causes import SharedReason
from esrally_ebs.report.next_step import next_step
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.units import GIB


def test_the_arms_of_three_stand_best_first_and_the_verdict_names_the_fastest(tmp_path: Path) -> None:
    arms = [
        named("gp2", type="gp2", iops=None, throughput_bytes_per_s=None),
        named("gp3"),
        named("big", iops=6000),
    ]
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 1.2, "big": 0.8}), arms)
    assert made.verdict.startswith("big (emulated) is the fastest of 3 arms, -20.")
    assert [line.split(" (")[0] for line in made.details] == ["big", "gp2", "gp3"]
    assert made.details[2].endswith("slower")


def test_of_two_arms_too_close_to_tell_none_is_said_to_be_the_fastest_of_three(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.801, "big": 0.8}, noise=0.05), THREE)
    assert "leads, but is not proven the fastest, of 3 arms" in made.verdict


def test_of_three_arms_that_are_all_equivalent_none_is_said_to_lead(tmp_path: Path) -> None:
    verdict = built(tmp_path, rows({"gp2": 1.0, "gp3": 1.0, "big": 1.0}), THREE).verdict
    assert verdict.startswith(
        "gp3 (emulated) and big (emulated) are as fast as gp2 (emulated) within 5 % (50th"
    )


def test_faster_and_cheaper_is_to_be_taken_and_emulated_arms_confirmed(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.8}))
    assert made.verdict.startswith("gp3 (emulated) is faster than gp2 (emulated): -20.")
    assert made.cost == "gp2 10.00 USD, gp3 8.12 USD (-19 %) a month in us-east-1."
    assert made.next_step == (
        "take gp3: faster and 1.88 USD a month less. Emulated here: confirm on real volumes."
    )


GP3, BIG, SMALL = named("gp3"), named("big", iops=6000), named("small", size_bytes=50 * GIB)
SIZES = [named(f"of{gib}", size_bytes=gib * GIB) for gib in (90, 50, 70)]
WITHOUT_PRICE = [named(name, type="directory") for name in ("here", "there")]


@pytest.mark.parametrize(
    ("arms", "scales", "step"),
    [
        # 3,000 IOPS above those included at 0.005 USD each
        ([GP3, BIG], (1.0, 0.8), "weigh 15.00 USD a month more for big against -20."),
        ([GP3, BIG], (1.0, 1.0), "keep gp3: big is as fast and 15.00 USD a month more."),
        (
            [GP3, named("like")],
            (1.0, 0.8),
            "take like: faster, at the same price. Emulated here: confirm on real",
        ),
        ([GP3, named("like")], (1.0, 1.0), "keep gp3: like is as fast, at the same price."),
        (WITHOUT_PRICE, (1.0, 1.0), "keep here: there is as fast."),
        ([GP3, BIG, SMALL], (1.0, 0.795, 0.8), "take small: faster and 4.00 USD a month less."),
        ([GP3, BIG, SMALL], (1.0, 0.995, 1.0), "take small: as fast and 4.00 USD a month less."),
        ([GP3, *SIZES], (1.0, 0.99, 1.005, 1.0), "take of50: as fast and 4.00 USD a month less."),
    ],
)
def test_what_to_do_weighs_time_against_cost(
    tmp_path: Path, arms: list[Volume], scales: tuple[float, ...], step: str
) -> None:
    names = [arm.spec.name for arm in arms]
    made = built(tmp_path, rows(dict(zip(names, scales, strict=True))), arms)
    assert made.next_step.startswith(step)


def test_a_difference_that_is_shown_is_said_though_it_is_within_the_margin(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 1.03}))
    start, _, shown = made.verdict.partition(" within 5 %")
    assert start == "gp3 (emulated) is as fast as gp2 (emulated)"
    assert shown.startswith(", with a difference that is shown: +3.1 % [+3.0, +3.1] (")


@pytest.mark.parametrize("form", ["text", "html"])
def test_a_change_that_is_rounded_away_has_no_sign_of_less(tmp_path: Path, form: str) -> None:
    shown = report.RENDERERS[form](built(tmp_path, rows({"gp2": 1.0, "gp3": 0.99999})))
    assert "+0.0 %" in shown
    assert not re.search(r"-0\.0+( %| ms|, |\])", shown)


def test_the_mean_of_tasks_is_the_verdict_and_those_against_it_are_said(tmp_path: Path) -> None:
    both = rows({"gp2": 1.0, "gp3": 0.9}) + rows({"gp2": 1.0, "gp3": 1.5}, ("s",))
    made = built(tmp_path, both)
    assert made.verdict.startswith("gp3 (emulated) is slower than gp2 (emulated): +6.8 % [+6.7, +6.8]")
    assert made.verdict.endswith(", but faster on 2 of 3 tasks (by up to 10.0 %).")


def test_what_cannot_be_told_asks_for_more_rounds(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 1.03}, ("q",), noise=0.05))
    assert made.verdict.startswith("Inconclusive whether gp3 (emulated) differs from gp2 (emulated)")
    assert made.next_step.startswith("measure about ")
    assert "(design.rounds = " in made.next_step


def test_the_limit_that_held_the_slower_arm_back_is_to_be_raised(tmp_path: Path) -> None:
    made = report.build(load_session(record(tmp_path)))
    assert made.reasons == (
        "gp3 (emulated) waited 60% of its I/O time in its throughput limiter (gp2 (emulated) 0%), on "
        "range_field_big_range.",
    )
    assert made.next_step == "raise throughput of gp3 as Limits says, or keep gp2."


def test_what_a_type_does_not_have_is_not_to_be_raised(tmp_path: Path) -> None:
    arms = [arm("gp2"), named("gp3", type="st1", size_bytes=2**39, iops=None, throughput_bytes_per_s=None)]
    path = make(tmp_path, samples(), arms=arms)
    folder = SessionFolder(path)
    for event in observed():
        folder.event(event)
    folder.finish(State.COMPLETE, ended_at=START + 600)
    made = report.build(load_session(path))
    assert "; take gp3 with " in made.bottlenecks[0]
    assert made.next_step == "for gp3 as Limits says: take gp3; or keep gp2."


@pytest.mark.parametrize("form", report.RENDERERS)
def test_every_format_has_verdict_cause_cost_and_next_step(tmp_path: Path, form: str) -> None:
    made = report.build(load_session(record(tmp_path)))
    text = " ".join(report.RENDERERS[form](made).split())
    for part in (made.verdict, *made.reasons, made.cost, made.next_step):
        assert part in text


def test_every_output_says_that_one_node_served_all_arms(tmp_path: Path) -> None:
    label = "node: one for all arms, requests in pairs"
    assert label in built(tmp_path / "one", rows(dict.fromkeys(ARMS, 1.0)), design={"nodes": "one"}).labels
    assert label not in built(tmp_path / "two", rows(dict.fromkeys(ARMS, 1.0))).labels


def test_every_output_says_which_parallel_searches_took_turns(tmp_path: Path) -> None:
    folder = record(tmp_path)
    assert not any(label.startswith("in turn") for label in report.build(load_session(folder)).labels)
    SessionFolder(folder).note("in-turn", text="q, p")
    label = "in turn, though the track runs them in parallel: q, p"
    assert label in report.build(load_session(folder)).labels


@pytest.mark.parametrize(
    ("verdict", "interval", "is_riddle"),
    [
        (Verdict.INCONCLUSIVE, (0.903, 0.987), True),  # -2.6 % [-9.7, -1.3]
        (Verdict.INCONCLUSIVE, (0.9, 1.1), False),
        (Verdict.INCONCLUSIVE, (None, None), False),
        (Verdict.FASTER, (0.903, 0.987), False),
    ],
)
def test_an_inconclusive_verdict_whose_interval_leaves_out_0_says_why(
    verdict: Verdict, interval: tuple[float | None, float | None], is_riddle: bool
) -> None:
    why = head.not_proven(verdict, Estimate(0.974, *interval), 1)
    assert why.startswith("the interval leaves out 0 by itself") if is_riddle else why == ""


def test_one_task_by_itself_is_not_said_to_be_counted_together_with_others(tmp_path: Path) -> None:
    few = [row for row in rows({"gp2": 1.0, "gp3": 1.2}, ("q",)) if row.round <= MIN_ROUNDS]
    made = built(tmp_path, few, design={"confidence": 0.999, "rounds": 12})
    assert made.verdict.startswith("Inconclusive whether gp3")
    (why,) = made.details
    assert why.startswith("The interval leaves out 0, but by so few rounds, or times so often equal, it is")


def test_a_session_without_arms_measured_nothing_on_nobody(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path, "s", kind="baseline", plan=small_plan())
    assert report.build(load_session(folder.path)).verdict.endswith("Nothing was measured.")


@pytest.mark.parametrize("state", [State.CANCELLED, State.FAILED, State.RUNNING])
@pytest.mark.parametrize("left", [("q", ARMS), ("q", ARMS[:1]), ("r", ARMS[:1])])
def test_a_round_that_was_cut_off_takes_no_verdict_from_those_before(
    tmp_path: Path, state: State, left: tuple[str, tuple[str, ...]]
) -> None:
    samples = rows({"gp2": 1.0, "gp3": 0.8})
    whole = built(tmp_path / "whole", [one for one in samples if one.round < ROUNDS[-1]])
    cut = [one for one in samples if one.round < ROUNDS[-1] or (one.task == left[0] and one.arm in left[1])]
    made = built(tmp_path / "cut", cut, state=state)
    assert made.verdict.endswith(whole.verdict)
    assert (made.details, made.next_step) == (whole.details, whole.next_step)
    of_rounds = [table for table in whole.tables if table.key == "service_time"]
    assert [table for table in made.tables if table.key == "service_time"] == of_rounds
    where = "is still" if state is State.RUNNING else "ended"
    assert f"the session {where} within round 8, which is left out" in made.warnings


def test_the_last_round_counts_where_a_session_ended_after_it(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.8}), state=State.CANCELLED)
    assert not any("left out" in warning for warning in made.warnings)
    (requests,) = (check.value for check in made.checks if check.name == "requests")
    assert requests == "160"


def test_one_round_that_is_missing_is_one_round(tmp_path: Path) -> None:
    made = built(tmp_path, [one for one in rows({"gp2": 1.0, "gp3": 0.8}) if one.round < 6])
    assert made.next_step == "measure 1 more round (design.rounds = 6)."


def test_no_margin_and_no_confidence_loses_a_digit(tmp_path: Path) -> None:
    design = {"margin": 0.025, "confidence": 0.995}
    text = report.render_text(built(tmp_path, rows({"gp2": 1.0, "gp3": 1.0}), design=design))
    for said in ("within 2.5 %", "within 2.5%", "at 99.5%", "difference [99.5%]"):
        assert said in text
    assert "100%" not in text


def test_of_several_arms_it_is_said_how_they_share_the_error(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.9, "big": 0.8}), THREE)
    (table,) = (table for table in made.tables if table.key == "service_time")
    assert "other arms share the error equally; single tasks behind all of them" in table.notes[0]
    assert "on the other arms (Bonferroni)" in head.not_proven(
        Verdict.INCONCLUSIVE, Estimate(0.97, 0.95, 0.99), len(THREE) - 1
    )


def test_a_session_of_which_a_start_is_missing_is_to_be_measured_to_its_end(tmp_path: Path) -> None:
    design = {"rounds": 12, "starts": 3}
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.8}), state=State.CANCELLED, design=design)
    assert made.verdict.endswith("8 rounds measured at 2 starts of the nodes; at least 3 starts are needed.")
    assert made.next_step == "measure again, to the end of the plan's rounds."
    assert "scope: these volumes under any JVM: nodes were started 2 times" in made.labels


def test_rounds_that_are_still_to_be_measured_are_parts_of_equal_length(tmp_path: Path) -> None:
    samples = [one for one in rows({"gp2": 1.0, "gp3": 0.8}) if one.round <= 4]
    made = built(tmp_path, samples, design={"rounds": 4, "starts": 4})
    assert made.next_step == "measure 4 more rounds (design.rounds = 8)."


@pytest.mark.parametrize(
    ("scale", "of_r", "claim", "step"),
    [
        (
            1.0,
            1.25,
            "as fast as",
            "weigh task by task whether to take gp3: as fast and 1.88 USD a month less",
        ),
        (
            0.8,
            1.25,
            "faster than",
            "weigh task by task whether to take gp3: faster and 1.88 USD a month less",
        ),
        (1.25, 0.8, "slower than", "keep gp2, unless 1.88 USD a month less are worth it"),
    ],
)
def test_a_task_that_says_the_opposite_of_all_together_is_said(
    tmp_path: Path, scale: float, of_r: float, claim: str, step: str
) -> None:
    samples = [
        replace(one, service_time_s=one.service_time_s * (of_r if one.task == "r" else scale))
        if one.arm == "gp3"
        else one
        for one in rows({"gp2": 1.0, "gp3": 1.0}, tuple("qrstuvwx"))
    ]
    made = built(tmp_path, samples)
    but = f"{'faster' if of_r < 1 else 'slower'} on 1 of 8 tasks (by up to "
    assert f"gp3 (emulated) is {claim} gp2 (emulated)" in made.verdict
    assert f"cold caches), but {but}" in made.verdict
    assert made.next_step.startswith(step)
    assert (but in made.next_step) == (of_r > 1)
    assert "Emulated here" not in made.next_step


def test_a_task_that_is_slower_on_an_arm_of_three_is_said_in_its_line(tmp_path: Path) -> None:
    samples = [
        replace(one, service_time_s=one.service_time_s * 2.5) if (one.arm, one.task) == ("big", "r") else one
        for one in rows({"gp2": 1.0, "gp3": 1.2, "big": 0.5}, ("q", "r", "s"))
    ]
    made = built(tmp_path, samples, THREE)
    assert made.details[0].endswith("faster, but slower on 1 of 3 tasks (by up to 25.1 %)")


GP3_READS = (("q",), (Explanation(kind="reads", slower="gp3 (emulated)", faster="gp2 (emulated)"),))
BIG_READS = (("q",), (Explanation(kind="reads", slower="big (emulated)", faster="gp2 (emulated)"),))


@pytest.mark.parametrize(
    ("shared", "held_back", "is_useless"),
    [
        (GP3_READS, {"gp3": {}}, True),
        (GP3_READS, {"gp2": {}, "gp3": {}}, True),
        (GP3_READS, {"gp2": {}}, False),  # waits of this one were not counted
        (GP3_READS, {}, False),
        (BIG_READS, {}, False),  # another arm's reason says nothing of this one
        (GP3_READS, {"gp3": {"throughput": "gp3 is held back by it."}}, False),
    ],
)
def test_more_iops_are_useless_only_where_reads_alone_explain_the_arm(
    tmp_path: Path, shared: SharedReason, held_back: HeldBack, is_useless: bool
) -> None:
    session = load_session(make(tmp_path, rows({"gp2": 1.0, "gp3": 1.2, "big": 1.5}), arms=THREE))
    step = next_step(session, find(session), (), [shared], (), held_back)
    assert step.startswith("keep gp2")
    assert ("would not help" in step) == is_useless


@pytest.mark.parametrize(
    ("limit", "step"),
    [
        ("throughput", "raise throughput of gp3 as Limits says"),
        ("iops", "raise iops of gp3 (now 3,000), which held it back"),
    ],
)
def test_the_next_step_is_of_limits_only_where_these_name_its_limit(
    tmp_path: Path, limit: str, step: str
) -> None:
    """It was to raise iops 'as Limits says', which said to raise throughput."""
    said = {"gp3": {"throughput": "gp3 (emulated) is held back by volume throughput."}}
    reason = Explanation(kind="waited", slower="gp3 (emulated)", faster="gp2 (emulated)", limit=limit)
    session = load_session(make(tmp_path, rows({"gp2": 1.0, "gp3": 1.2})))
    made = next_step(session, find(session), (), [(("q", "r"), (reason, reason))], (), said)
    assert made.startswith(step)


@pytest.mark.parametrize(
    ("scale", "tasks", "step"),
    [
        (0.8, ("q", "r"), "choose neither by this: the node's processors"),
        (1.25, ("q", "r"), "choose neither by this: the node's processors"),
        (0.8, ("q",), "take gp3: faster"),  # the volume's on the other half
    ],
)
def test_no_volume_is_taken_for_what_the_processors_of_the_node_made(
    tmp_path: Path, scale: float, tasks: tuple[str, ...], step: str
) -> None:
    slower, faster = ("gp2", "gp3") if scale < 1 else ("gp3", "gp2")
    reason = Explanation(kind="processors", slower=f"{slower} (emulated)", faster=f"{faster} (emulated)")
    session = load_session(make(tmp_path, rows({"gp2": 1.0, "gp3": scale})))
    shared = [(tasks, (reason,) * len(tasks))]
    assert next_step(session, find(session), (), shared, (), {}).startswith(step)


@pytest.mark.parametrize(
    ("arms", "round_"),
    [(ARMS[:1], 1), (ARMS, 0)],  # of one arm alone, as for advice; indexing, once on each
)
def test_requests_that_no_arms_are_compared_by_were_measured(
    tmp_path: Path, arms: tuple[str, ...], round_: int
) -> None:
    samples = [sample(name, round_, "q", START, 0.03) for name in arms]
    plan = [{"name": name, "type": name} for name in arms]
    path = make(tmp_path, samples, arms=[arm(name) for name in arms], arm=plan)
    SessionFolder(path).rows_baseline([fio(name, 0, "read", 3000.0) for name in arms])
    SessionFolder(path).finish(State.COMPLETE, ended_at=START + 600)
    made = report.build(load_session(path))
    listed = " and ".join(f"{name} (emulated)" for name in arms)
    assert made.verdict == f"No search was compared; the tables show what was measured on {listed}."
    assert made.next_step == ""


def test_a_difference_within_the_margin_that_is_shown_is_said_of_each_of_several_arms(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 1.03, "big": 0.8}), THREE)
    assert made.details[2].endswith("equivalent within 5 %, with a difference that is shown")


def test_costs_are_against_the_arm_that_times_are_against(tmp_path: Path) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.8}), design={"reference": "gp3"})
    assert made.cost == "gp2 10.00 USD (+23 %), gp3 8.12 USD a month in us-east-1."


def test_an_arm_that_is_proven_faster_is_taken_though_another_may_be_faster_still(tmp_path: Path) -> None:
    noisy = [one for one in rows({"gp2": 1.0, "gp3": 1.0, "big": 0.8}, noise=0.2) if one.arm == "big"]
    samples = rows({"gp2": 1.0, "gp3": 0.9}) + noisy
    made = built(tmp_path, samples, THREE)
    assert made.verdict.startswith("big (emulated) leads, but is not proven the fastest,")
    assert made.next_step.startswith("take gp3: faster, at the same price.")


def test_of_a_session_that_was_cut_in_its_first_round_it_is_said_that_rounds_are_too_few(
    tmp_path: Path,
) -> None:
    first = [one for one in rows({"gp2": 1.0, "gp3": 0.8}, ("q",)) if one.round == 1]
    made = built(tmp_path, first[:-2], state=State.CANCELLED)
    assert made.verdict.endswith(
        "No verdict on gp2 (emulated) and gp3 (emulated): 1 round measured; at least 6 are needed."
    )
    assert made.next_step == "measure again, to the end of the plan's rounds."


def test_a_task_that_mostly_failed_is_said_to_leave_all_tasks_without_a_verdict(tmp_path: Path) -> None:
    made = rows({"gp2": 1.0, "gp3": 0.8}, ("q", "r"))
    made = [replace(one, success=one.task == "q" or one.round > 4) for one in made]
    about = "r has too few successful requests"
    report_ = built(tmp_path, made)
    assert report_.verdict == (
        f"No verdict on gp2 (emulated) and gp3 (emulated) over all tasks: {about} for one."
    )
    assert report_.next_step == f"see why {about}, or leave out what cannot be answered."


def test_a_start_that_was_cut_off_at_once_is_counted_nowhere(tmp_path: Path) -> None:
    made = built(tmp_path, samples(10), state=State.CANCELLED, design={"rounds": 12, "starts": 4})
    (table,) = (table for table in made.tables if table.key == "service_time")
    assert "means over 3 starts of the nodes, Student's t" in table.notes[0]
    assert "scope: these volumes under any JVM: nodes were started 3 times" in made.labels
    assert any(warning.startswith("round 10 is left out") for warning in made.warnings)


def slow_tail(arm_name: str, scale: float) -> list[Sample]:
    """Twelve rounds of fifty requests a task, of which four in a hundred take a second on one arm."""
    return [
        sample(name, round_, task, START + round_, seconds * (1 + 0.001 * ((place + 3 * round_ + n) % 7 - 3)))
        for place, (name, of) in enumerate((("gp2", 1.0), ("gp3", scale)))
        for task in ("q", "r")
        for round_ in range(1, 13)
        for n in range(50)
        for seconds in (1.0 if name == arm_name and n % 25 == 0 else 0.03 * of,)
    ]


@pytest.mark.parametrize(
    ("arm_name", "scale", "said", "step"),
    [
        ("gp3", 1.0, "as fast", "weigh task by task whether to take gp3: as fast"),
        ("gp3", 0.8, "faster", "weigh task by task whether to take gp3: faster"),
        ("gp2", 1.2, "slower", "keep gp2"),
        ("gp2", 1.0, "as fast", "take gp3: as fast"),
    ],
)
def test_an_arm_whose_slowest_requests_say_the_opposite_of_its_median_is_said_to_have_such(
    tmp_path: Path, arm_name: str, scale: float, said: str, step: str
) -> None:
    made = built(tmp_path, slow_tail(arm_name, scale))
    assert f"gp3 (emulated) is {said}" in made.verdict
    word = {"gp3": "slower", "gp2": "faster"}[arm_name]
    other = re.search(rf", but p99 {word} on 2 of 2 tasks \(by up to [\d,.]+ %\)\.$", made.verdict)
    assert bool(other) is (scale != 1.0 or arm_name == "gp3")  # as fast, and faster now and then
    assert made.next_step.startswith(step)


@pytest.mark.parametrize(("every", "how"), [(0, "once a block"), (5, "every 5 requests"), (1, "")])
def test_where_not_each_request_was_cold_the_first_line_and_the_label_say_so(
    tmp_path: Path, every: int, how: str
) -> None:
    made = built(tmp_path, rows({"gp2": 1.0, "gp3": 0.8}), cache={"mode": "cold", "drop_every": every})
    dropped = f", dropped {how}" if how else ""
    assert f"(50th percentile of 2 tasks, cold caches{dropped})" in made.verdict
    assert f"cache: cold{dropped}" in made.labels
