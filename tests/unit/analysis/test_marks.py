"""Which rounds are marked: an event on one arm only, with its cause; constructed sessions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_session
import pytest
from small_plan import small_plan
from stored import sample_of

from esrally_ebs.analysis.marks import Cause, marked_blocks
from esrally_ebs.model import Event, Phase, Sample
from esrally_ebs.session.steps import conclude
from esrally_ebs.store import Session, SessionFolder, load_session

START = 1_000_000.0
ARMS = ("gp2", "gp3")
TASK = "big_range"
REQUEST_S = 0.1
REQUESTS = 5  # of a block; one begins every second


def at(arm: str, round_: int) -> float:
    """When a block begins."""
    return START + 100 * round_ + 20 * ARMS.index(arm)


def samples() -> list[Sample]:
    return [
        sample_of(REQUEST_S, arm=arm, round=round_, task=TASK, started_s=at(arm, round_) + request)
        for round_ in (1, 2)
        for arm in ARMS
        for request in range(REQUESTS)
    ]


def session(path: Path, events: Sequence[Event] = (), rows: Sequence[Sample] | None = None) -> Session:
    folder = SessionFolder.create(path, "s", kind="race", plan=small_plan(name="x", race={}))
    folder.update(arms=[golden_session.arm(arm) for arm in ARMS])
    with folder.part_writer("samples") as writer:
        writer.add(samples() if rows is None else rows)
    for event in events:
        folder.event(event)
    return load_session(folder.path)


def pause(arm: str, start: float, seconds: float) -> Event:
    return Event(at_s=start + seconds, kind="gc", arm=arm, fields={"seconds": seconds, "text": "Pause Full"})


def limited(arm: str, round_: int, waited_s: float, io_s: float = 0.05, limit: str = "iops") -> Event:
    """One request whose I/O took so long, so much of it waiting."""
    begin = {"device.read_s": 5.0, "device.write_s": 0.0, f"emulator.waited_s.{limit}": 3.0}
    end = {**begin, "device.read_s": 5.0 + io_s, f"emulator.waited_s.{limit}": 3.0 + waited_s}
    fields = {"task": TASK, "round": round_, "requests": 1, "started_s": at(arm, round_)}
    return Event(
        at_s=at(arm, round_) + REQUEST_S, kind="io", arm=arm, fields={**fields, "begin": begin, "end": end}
    )


def kinds(whole: Session) -> dict[tuple[str, int], list[str]]:
    return {
        (arm, round_): [c.kind for c in causes] for (arm, _, round_), causes in marked_blocks(whole).items()
    }


def test_a_session_in_which_nothing_happened_has_no_marks(tmp_path: Path) -> None:
    assert marked_blocks(session(tmp_path)) == {}


def test_a_limiter_at_work_on_one_arm_only_marks_that_round_with_its_share(tmp_path: Path) -> None:
    events = [
        limited("gp2", 1, 0.02),
        limited("gp3", 1, 0.0),
        limited("gp2", 2, 0.0004),
        limited("gp3", 2, 0),
    ]

    marks = marked_blocks(session(tmp_path, events))

    # 20 of 50 ms; in round 2 it is 0.4 of 50 ms: less than the hundredth that matters
    assert marks == {
        ("gp2", TASK, 1): (
            Cause(
                kind="limiter",
                what="iops limiter",
                text="its iops limiter held it back for 40% of its I/O time",
                share=pytest.approx(0.4),
            ),
        )
    }


def test_a_limiter_at_work_on_every_arm_of_a_round_marks_none(tmp_path: Path) -> None:
    assert kinds(session(tmp_path, [limited("gp2", 1, 0.02), limited("gp3", 1, 0.01)])) == {}


@pytest.mark.parametrize(("round_", "limit"), [(1, "throughput"), (2, "iops")])
def test_different_limiters_or_rounds_mark_both_arms(round_: int, limit: str, tmp_path: Path) -> None:
    events = [limited("gp2", 1, 0.02), limited("gp3", round_, 0.02, limit=limit)]
    assert kinds(session(tmp_path, events)) == {("gp2", 1): ["limiter"], ("gp3", round_): ["limiter"]}


def test_a_pause_counts_by_how_much_of_requests_it_took(tmp_path: Path) -> None:
    begin = at("gp3", 1)
    # The block has 5 x 100 ms. 30 ms of this pause fall into its second request: 6 %; the rest is before.
    events = [pause("gp3", begin + 1.0 - 0.5, 0.53)]

    ((block, (cause,)),) = marked_blocks(session(tmp_path, events)).items()

    assert block == ("gp3", TASK, 1)
    assert (cause.kind, cause.share) == ("gc", pytest.approx(0.06))
    assert cause.text == "1 garbage collection pause took 6% of its time"


@pytest.mark.parametrize(
    ("after_s", "seconds"),
    [
        (REQUEST_S + 0.1, 0.5),  # between two requests
        (0.0, 0.004),  # 4 of 500 ms
        (-10.0, 5.0),  # before the block
        (50.0, 1.0),  # after it
    ],
)
def test_a_pause_that_no_request_noticed_marks_nothing(
    tmp_path: Path, after_s: float, seconds: float
) -> None:
    assert kinds(session(tmp_path, [pause("gp2", at("gp2", 1) + after_s, seconds)])) == {}


def test_a_fault_marks_the_block_that_it_fell_into(tmp_path: Path) -> None:
    fault = Event(at_s=at("gp2", 2) + 3.5, kind="fault", arm="gp2", fields={"text": "its node has died"})

    ((block, (cause,)),) = marked_blocks(session(tmp_path, [fault])).items()

    assert block == ("gp2", TASK, 2)
    assert cause.text == "its node has died"


def test_failed_requests_pages_left_in_the_cache_and_repeated_evictions_mark_their_blocks(
    tmp_path: Path,
) -> None:
    rows = samples()
    rows[0] = replace(rows[0], success=False)  # gp2, round 1
    rows[-1] = replace(rows[-1], resident_before=0.02)  # gp3, round 2; 1 % is allowed
    fields: dict[str, Any] = {"task": TASK, "round": 1, "attempts": 3, "after": 0.0}
    again = Event(at_s=at("gp3", 1), kind="drop", arm="gp3", fields=fields)

    marked = session(tmp_path, [again], rows)

    assert kinds(marked) == {("gp2", 1): ["failed"], ("gp3", 1): ["retried"], ("gp3", 2): ["resident"]}


@pytest.mark.parametrize("phase", [Phase.BESIDE, Phase.WARMUP])
def test_writes_beside_a_search_and_its_warm_up_that_fail_mark_no_block_of_measured_requests(
    tmp_path: Path, phase: Phase
) -> None:
    failed = replace(samples()[0], task="append-beside-q", phase=phase, success=False)
    assert kinds(session(tmp_path, rows=[*samples(), failed])) == {}


@pytest.mark.parametrize(
    "event",
    [
        Event(at_s=START, kind="gc", arm="gp2", fields={"seconds": "long"}),
        Event(at_s=START, kind="gc", arm=None, fields={"seconds": 500.0}),
        Event(at_s=START, kind="fault", arm="gp2", fields={}),  # before the first request
        Event(at_s=START, kind="fault", arm=None, fields={"text": "the race ended"}),
        Event(at_s=START, kind="drop", arm="gp2", fields={"attempts": True, "round": None}),
        Event(at_s=START, kind="io", arm="gp2", fields={"round": 1}),
    ],
)
def test_an_event_that_says_nothing_of_a_block_marks_none(tmp_path: Path, event: Event) -> None:
    assert kinds(session(tmp_path, [event])) == {}


def test_a_session_without_samples_has_no_marks(tmp_path: Path) -> None:
    fault = Event(at_s=START, kind="fault", arm="gp2", fields={"text": "died"})

    assert marked_blocks(session(tmp_path, [fault], [])) == {}


def test_marks_are_recorded_when_a_session_is_concluded(tmp_path: Path) -> None:
    folder = SessionFolder(session(tmp_path, [pause("gp2", at("gp2", 1), 0.05)]).path)

    conclude(folder)

    (marked,) = [event for event in folder.events() if event.kind == "marked"]
    assert (marked.arm, marked.fields["task"], marked.fields["round"]) == ("gp2", TASK, 1)
    assert marked.fields["causes"][0]["kind"] == "gc"


def test_a_round_that_was_cut_off_is_not_marked(tmp_path: Path) -> None:
    begun = [row for row in samples() if row.round == 1 or row.arm == "gp2"]
    fault = Event(at_s=at("gp2", 2) + 1, kind="fault", arm="gp2", fields={"text": "the node ended"})
    assert marked_blocks(session(tmp_path, [fault], begun)) == {}
