"""Tables and plots of a report: percentiles, what volumes do, fio beside them, the processors of nodes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from eight_rounds import built, named, rows
from golden_session import ARMS, START, arm, fio, make, record, sample, samples

from esrally_ebs import report
from esrally_ebs.model import Event, Kind, State
from esrally_ebs.store import SessionFolder, load_session


def test_percentiles_of_a_task_stand_together_and_apart_for_programs(tmp_path: Path) -> None:
    made = report.build(load_session(record(tmp_path)))
    (table,) = [table for table in made.tables if table.key == "service_time"]
    assert [row.cells[0].text for row in table.rows[:3]] == ["p50", "p90", "p99"]
    assert [row.continues for row in table.rows[:3]] == [False, True, True]
    tables = json.loads(report.render_json(made))["tables"]
    assert [key for key in tables if "service_time" in key or "together" in key] == [
        "service_time_p50",
        "service_time_p90",
        "service_time_p99",
        "together_p50",
    ]


def test_the_text_breaks_no_number_of_many_arms(tmp_path: Path) -> None:
    scales = {f"arm-{number}": 1 + number / 10 for number in range(9)}
    made = built(tmp_path, rows(scales, tasks=("a_task_with_a_long_name",)), [named(name) for name in scales])
    (table,) = [table for table in made.tables if table.key == "service_time"]
    text = report.render_text(made)
    parts = [part for row in table.rows for cell in row.cells for part in cell.text.split("  ")]
    assert len(parts) > 60
    assert [part for part in parts if part not in text] == []


def test_arms_say_what_their_volumes_do_in_numbers(tmp_path: Path) -> None:
    arms = [arm("gp2"), named("real", type="gp2", iops=None, throughput_bytes_per_s=None)]
    arms[1] = replace(arms[1], kind=Kind.EBS)
    made = built(tmp_path, rows({"gp2": 1.0, "real": 1.0}), arms)
    (table,) = [table for table in made.tables if table.key == "arms"]
    # 3 IOPS per GiB for good, 3,000 while the credits last; of a real volume only what the plan says
    assert [row.cells[3].text for row in table.rows] == ["300/3,000 IOPS, 128 MiB/s", "-"]


def test_programs_get_the_size_and_the_rates_of_an_arm_that_people_read(tmp_path: Path) -> None:
    arms = [arm("gp2"), named("striped", type="gp3", stripes=4, iops=None, throughput_bytes_per_s=None)]
    made = built(tmp_path, rows({"gp2": 1.0, "striped": 1.0}), arms)
    by_format = json.loads(report.render_json(made))["tables"]["arms"]
    gib, mib = 1024**3, 1024**2
    assert by_format["gp2"]["provisioned"] == {
        **{"iops": 300, "burst_iops": 3000},
        **{"throughput_bytes_per_s": 128 * mib, "burst_throughput_bytes_per_s": 128 * mib},
    }
    assert by_format["striped"]["size"] == {"size_bytes": 400 * gib}
    assert by_format["striped"]["provisioned"] == {
        **{"iops": 12_000, "burst_iops": 12_000},
        **{"throughput_bytes_per_s": 500 * mib, "burst_throughput_bytes_per_s": 500 * mib},
    }
    (table,) = [table for table in made.tables if table.key == "arms"]
    assert [row.cells[2].text for row in table.rows] == ["100.0 GiB", "4 x 100.0 GiB"]


def test_a_disk_of_the_instance_costs_nothing_and_is_said_to_be_none_by_itself(tmp_path: Path) -> None:
    arms = [arm("gp2"), named("disk", type="instance-store")]
    made = built(tmp_path, rows({"gp2": 1.0, "disk": 0.5}), arms)
    assert made.next_step.startswith("take disk: ")
    assert made.next_step.endswith(" Its data end when its instance stops.")
    (table,) = [table for table in made.tables if table.key == "cost"]
    assert table.rows[1].cells[0].text == "0.00 USD"
    said = "An instance store is in the price of its instance, and its data end when that stops."
    assert said in table.notes


@pytest.mark.parametrize(
    ("spec", "cost", "said"),
    [
        ({"mode": "elastic"}, {}, "EFS Elastic asks for each GiB"),
        ({"mode": "elastic"}, {"read": "1TiB"}, ""),
        ({"mode": "bursting"}, {}, ""),
        ({"type": "standard"}, {}, "each million I/Os of a magnetic volume"),
    ],
)
def test_costs_say_what_is_paid_by_use_besides(
    tmp_path: Path, spec: dict[str, str], cost: dict[str, str], said: str
) -> None:
    """An EFS that is read from all day stood there for what it stores."""
    other = named("other", **{"type": "efs", "iops": None, "throughput_bytes_per_s": None, **spec})
    made = built(tmp_path, rows({"gp2": 1.0, "other": 0.5}), [arm("gp2"), other], cost=cost)
    (table,) = [table for table in made.tables if table.key == "cost"]
    assert [note for note in table.notes if note.startswith("Not in these costs")] == [
        note for note in table.notes if said and said in note
    ]
    assert any(said in note for note in table.notes)


def test_fio_above_what_a_volume_sustains_is_explained(tmp_path: Path) -> None:
    path = make(tmp_path, [], race=None, baseline=[{"name": "random", "rw": "randread", "bs": 16384}])
    measured = [replace(fio(name, 0, "read", 3010.0), job="random") for name in ARMS]
    SessionFolder(path).rows_baseline(measured)
    SessionFolder(path).finish(State.COMPLETE)
    made = report.build(load_session(path))
    (table,) = [table for table in made.tables if table.key == "fio_iops"]
    # gp3 has 3,000 of its own: 3,010 are not 2 % more
    assert table.notes[-1].endswith("gp2 in random 3,010 of 300 IOPS.")


def test_a_querys_time_is_split_into_processors_and_the_rest_where_that_was_counted(tmp_path: Path) -> None:
    path = make(tmp_path, rows(dict.fromkeys(ARMS, 1.0)))
    folder = SessionFolder(path)
    for name in ARMS:
        fields = {"task": "q", "round": 1, "requests": 1, "started_s": START}
        counters = {"begin": {"node.processor_s": 1.0}, "end": {"node.processor_s": 1.012}}
        folder.event(Event(at_s=START + 0.03, kind="io", arm=name, fields=fields | counters))
    (table,) = [table for table in report.build(load_session(path)).tables if table.key == "processors"]
    (row,) = table.rows
    assert [cell.text for cell in row.cells] == ["12.00 ms", "18.00 ms"] * len(ARMS)


def test_processors_that_worked_for_other_clients_are_not_laid_to_the_query_that_was_observed(
    tmp_path: Path,
) -> None:
    four = [sample(name, 1, "q", START, 0.03, client=client) for name in ARMS for client in range(4)]
    path = make(tmp_path, four, cache={"mode": "warm"})
    fields = {"task": "q", "round": 1, "requests": 1, "started_s": START}
    counters = {"begin": {"node.processor_s": 1.0}, "end": {"node.processor_s": 1.048}}
    SessionFolder(path).event(Event(at_s=START + 0.03, kind="io", arm="gp2", fields=fields | counters))
    (table,) = [table for table in report.build(load_session(path)).tables if table.key == "processors"]
    assert [cell.text for cell in table.rows[0].cells[:2]] == ["12.00 ms", "18.00 ms"]


def test_what_overlapping_requests_waited_is_not_told_from_the_time_that_they_took_together(
    tmp_path: Path,
) -> None:
    path = make(tmp_path, rows(dict.fromkeys(ARMS, 1.0)))
    for request in range(4):  # of 30 ms each, in 60 ms
        started_s = START + 0.01 * request
        begin, end = ({"node.processor_s": 1.0 + 0.012 * count} for count in (0, request + 1))
        fields = {"task": "q", "round": 1, "requests": 1, "started_s": started_s, "begin": begin, "end": end}
        SessionFolder(path).event(Event(at_s=started_s + 0.03, kind="io", arm="gp2", fields=fields))
    (table,) = [table for table in report.build(load_session(path)).tables if table.key == "processors"]
    assert [cell.text for cell in table.rows[0].cells[:2]] == ["12.00 ms", "-"]


def test_fio_is_drawn_against_the_arm_that_searches_are(tmp_path: Path) -> None:
    path = make(tmp_path, samples(), design={"reference": "gp3"})
    folder = SessionFolder(path)
    folder.rows_baseline([fio(name, 0, "read", 1000.0) for name in ARMS])
    folder.finish(State.COMPLETE, ended_at=START + 600)
    figures = report.build(load_session(path)).figures
    (search,), (baseline,) = figures.searches, figures.baselines
    assert search.title.startswith("Search: gp2 against gp3")
    assert baseline.title.startswith("fio: gp2 against gp3")
    assert (search.less, search.more) == (baseline.less, baseline.more)
    assert baseline.changes[0].value == pytest.approx(1 / 1.1 - 1)
