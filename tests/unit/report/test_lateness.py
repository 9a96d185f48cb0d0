"""Latency of an open loop, judged beside service time."""

from dataclasses import replace
from pathlib import Path

from eight_rounds import built, rows

from esrally_ebs.model import Sample

OPEN = {"cache": {"mode": "warm"}, "design": {"nodes": "per-arm"}}


def waiting(made: list[Sample], tasks: tuple[str, ...] = ("q", "r")) -> list[Sample]:
    """Those of ``tasks`` kept to a schedule, to which gp3 came 60 ms late and any other arm 30."""
    return [
        replace(row, latency_s=row.service_time_s + (0.06 if row.arm == "gp3" else 0.03))
        if row.task in tasks
        else row
        for row in made
    ]


def test_an_arm_that_is_as_fast_but_late_is_said_to_be_late_and_not_taken(tmp_path: Path) -> None:
    made = built(tmp_path, waiting(rows({"gp2": 1.0, "gp3": 1.0})), **OPEN)
    assert made.verdict.startswith("gp3 (emulated) is as fast as gp2 (emulated) within 5 %: ")
    assert " Latency: gp3 (emulated) is slower than gp2 (emulated): +50." in made.verdict
    assert made.details[1].startswith("Latency: By task: slower on all 2 (by up to 50.")
    assert made.next_step == "by latency, keep gp2, unless 1.88 USD a month less are worth it."


def test_where_some_tasks_alone_are_late_what_to_do_names_them_beside_the_others(tmp_path: Path) -> None:
    made = built(tmp_path, waiting(rows({"gp2": 1.0, "gp3": 1.0}), ("q",)), **OPEN)
    assert "(50th percentile of q, warm caches)" in made.verdict
    assert made.next_step.startswith("weigh task by task whether to take gp3: as fast")
    assert made.next_step.endswith("but slower on 1 of 2 tasks (by up to 50.0 %).")


def test_latency_that_is_mostly_the_wait_for_a_client_is_doubted(tmp_path: Path) -> None:
    late = [
        replace(row, latency_s=row.service_time_s + (2.5 if (row.task, row.arm) == ("q", "gp3") else 0.004))
        for row in rows({"gp2": 0.01, "gp3": 0.01})
    ]
    # what indexes beforehand keeps to a rate, too, and no latency of it is shown
    late += [replace(row, task="index", round=0, latency_s=row.service_time_s + 9) for row in late[:1]]
    (said,) = (text for text in built(tmp_path, late, **OPEN).warnings if "free client" in text)
    assert said.startswith("latency: q on gp3: mostly the wait for a free client (up to 2.5 s in the median)")


def test_too_few_rounds_are_said_once_and_not_of_latency_again(tmp_path: Path) -> None:
    few = [row for row in waiting(rows({"gp2": 1.0, "gp3": 1.0})) if row.round < 4]
    made = built(tmp_path, few, **OPEN)
    assert "Latency" not in made.verdict
    assert made.next_step == "measure 3 more rounds (design.rounds = 6)."
