"""Which searches had a merge or a refresh beside them, and how fast was written meanwhile."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_rows import row, table
from session_in_memory import session

from esrally_ebs import report
from esrally_ebs.analysis.beside import MERGE, NEITHER, REFRESH, compare_rates, searches_apart, writes
from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.analysis.findings import find
from esrally_ebs.model import Check, Event, Phase
from esrally_ebs.report import beside
from esrally_ebs.report.bottleneck import bottleneck_lines, held_back
from esrally_ebs.store.encoding import TELEMETRY
from esrally_ebs.store.session import Session


def telemetry(*seconds: tuple[float, ...], arm: str = "a") -> pa.Table:
    """A look at a node at each time: merges under way, merges and refreshes so far, s of refreshes."""
    rows = [
        {"arm": arm, "device": "d", "at_s": at_s, "metric": f"index.{metric}", "value": value, "unit": ""}
        for at_s, *values in seconds
        for metric, value in zip(
            ("merging", "merges", "refreshes", "refresh_s"), (*values, 0.0), strict=False
        )
    ]
    return pa.Table.from_pylist(rows, schema=TELEMETRY)


def searched(*times: tuple[float, float], looks: pa.Table) -> Session:
    """Requests of arm a, by when they began and how long they took."""
    rows = [row(started_s=at, service_time_s=took, latency_s=took) for at, took in times]
    return session(samples=table(*rows), telemetry=looks)


LOOKS = telemetry((10, 0, 0, 0), (11, 0, 0, 1), (12, 0, 0, 1), (13, 1, 0, 1), (14, 0, 1, 2), (15, 0, 1, 2))


@pytest.mark.parametrize(
    ("started_s", "took_s", "what"),
    [
        (10.1, 0.1, REFRESH),
        (11.1, 0.1, NEITHER),
        (11.9, 0.2, MERGE),  # one began within the second that it reaches into
        (10.5, 1.0, REFRESH),
        (13.5, 0.1, MERGE),  # beside a refresh as well
        (14.5, 0.1, NEITHER),
        (10.5, 3.0, MERGE),
    ],
)
def test_a_request_is_told_by_the_most_that_went_on_in_any_second_it_touches(
    started_s: float, took_s: float, what: str
) -> None:
    ((key, by_arm),) = searches_apart(searched((started_s, took_s), looks=LOOKS)).items()
    assert key == ("t", what)
    assert by_arm["a"].requests == 1
    assert by_arm["a"].p99_s == took_s


def test_a_refresh_is_beside_what_ran_since_it_began_though_it_is_counted_at_its_end() -> None:
    looks = telemetry((10, 0, 0, 4, 1.0), (11, 0, 0, 4, 1.0), (12, 0, 0, 5, 1.3))
    apart = searches_apart(searched((10.5, 0.15), (10.75, 0.2), looks=looks))
    p99_s = {what: by_arm["a"].p99_s for (_, what), by_arm in apart.items()}
    assert p99_s == {NEITHER: 0.15, REFRESH: 0.2}


def test_what_was_beside_a_request_counts_from_when_it_was_due() -> None:
    late = row(started_s=14.5, service_time_s=0.1, latency_s=1.6)  # due at 13, when a merge began
    ((_, what),) = searches_apart(session(samples=table(late), telemetry=LOOKS))
    assert what == MERGE


def test_nothing_is_said_of_requests_while_nobody_looked() -> None:
    assert searches_apart(searched((9.9, 0.2), (14.9, 0.2), looks=LOOKS)) == {}
    assert searches_apart(searched((5.0, 0.1), (20.0, 0.1), looks=LOOKS)) == {}
    assert searches_apart(searched((10.0, 0.1), looks=telemetry())) == {}


def test_counters_that_begin_anew_when_indices_are_opened_again_are_no_merge() -> None:
    looks = telemetry((10, 0, 7, 9), (11, 0, 0, 0), (12, 0, 0, 3))
    apart = searches_apart(searched((10.5, 0.1), (11.5, 0.1), looks=looks))
    assert [what for _, what in apart] == [NEITHER, REFRESH]


@given(st.lists(st.tuples(st.floats(9, 16), st.floats(0.001, 4)), min_size=1, max_size=30))
def test_every_request_while_somebody_looked_is_in_one_group(times: list[tuple[float, float]]) -> None:
    apart = searches_apart(searched(*times, looks=LOOKS))
    seen = [at for at, took in times if (at + took) - took >= 10 and at + took <= 15]
    assert sum(each.requests for by_arm in apart.values() for each in by_arm.values()) == len(seen)


def written(**changes: Any) -> dict[str, object]:  # noqa: ANN401 - columns
    plain = {"task": "append-beside-t", "phase": Phase.BESIDE.value, "ops": 100.0, "latency_s": 0.5}
    return row(**{**plain, "service_time_s": 0.5, **changes})


def test_the_rate_of_writes_is_of_the_rounds_and_without_the_time_between_them() -> None:
    rows = [
        written(round=0, started_s=0.0),
        *(written(round=1, started_s=10.0 + 0.5 * number) for number in range(4)),
        *(written(round=2, started_s=90.0 + 0.5 * number) for number in range(4)),
        written(round=2, started_s=91.5, success=False),
    ]
    (of,) = writes(session(samples=table(*rows))).values()
    assert of.documents_per_s == pytest.approx(800 / 4)
    assert (of.p50_s, of.failed) == (0.5, 1)


def test_what_is_written_before_and_after_the_measured_searches_is_no_part_of_the_rate() -> None:
    """A bulk request that runs into them counts by its part within."""
    rows = [
        written(round=1, started_s=10.0, service_time_s=1.0, ops=9000.0),  # the buckets are full
        written(round=1, started_s=11.0, service_time_s=2.0, ops=200.0),
        written(round=1, started_s=13.0, service_time_s=2.0, ops=200.0),
        written(round=1, started_s=15.0, service_time_s=2.0, ops=500.0),
        row(round=1, started_s=12.0, service_time_s=0.1),
        row(round=1, started_s=15.9, service_time_s=0.1),
        row(round=2, started_s=99.0, service_time_s=0.1),
    ]
    (of,) = writes(session(samples=table(*rows))).values()
    assert of.rates == {1: pytest.approx((100 + 200 + 250) / 4)}


def test_the_table_of_few_requests_says_what_their_p99_is() -> None:
    searches = [row(started_s=11.0, service_time_s=took, latency_s=took) for took in (0.1, 0.2, 0.4)]
    raced = session(samples=table(written(started_s=11.0), *searches), telemetry=LOOKS)
    (made,) = [each for each in beside.tables(raced, writes(raced), ["a"]) if each.key == "apart"]
    assert "Of fewer than 100, p99 lies between the two slowest" in made.notes[0]
    assert 0.2 < made.rows[0].cells[3].facts["p99_s"] < 0.4


def indexed(rates_of_b: list[float], refused: bool = False) -> Session:
    """Arms whose rounds of one second add 100 documents on a, and so many on b."""
    rows = [
        written(arm=arm, round=round_, started_s=10.0 * round_, service_time_s=1.0, ops=rate)
        for round_, rate_of_b in enumerate(rates_of_b, start=1)
        for arm, rate in (("a", 100.0), ("b", rate_of_b))
    ]
    return session(samples=table(*rows), events=(observed("a", 9.0), observed("b", 0.0)))


@pytest.mark.parametrize(
    ("rates", "verdict"),
    [
        ([140, 150, 145, 160, 150, 138], Verdict.FASTER),
        ([70, 75, 66, 72, 70, 71], Verdict.SLOWER),
        ([100, 101, 99, 100.5, 99.5, 100], Verdict.EQUIVALENT),
        ([80, 125, 90, 130, 85, 120], Verdict.INCONCLUSIVE),
        ([150, 150.1, 150.2, 150.3, 150.4], Verdict.INCONCLUSIVE),  # five rounds
    ],
)
def test_rates_of_arms_are_compared_round_by_round(rates: list[float], verdict: Verdict) -> None:
    raced = indexed(rates)
    (found,) = compare_rates(writes(raced), find(raced))
    assert (found.a, found.b, found.verdict) == ("a", "b", verdict)
    assert found.ratio.value == pytest.approx(float(np.exp(np.mean(np.log(rates)))) / 100)
    assert (found.ratio.low is None) == (len(rates) < 6)


def test_nothing_is_claimed_of_rates_where_a_check_forbids_it() -> None:
    raced = indexed([150.0, 151, 150, 149, 150, 152])
    forbids = Check(name="hits", ok=False, value="", text="other hits")
    (found,) = compare_rates(writes(raced), find(raced, checks=(forbids,)))
    assert (found.verdict, found.p_different) == (Verdict.INCONCLUSIVE, None)
    built = report.build(replace(raced, checks=(forbids,)))
    assert built.verdict == "Not comparable: other hits."
    assert built.details == ()
    (made,) = [each for each in built.tables if each.key == "indexing"]
    assert made.rows[0].cells[-1].text == "not comparable"


def test_a_round_in_which_an_arm_added_nothing_is_not_left_out() -> None:
    raced = indexed([150.0, 151, 150, 149, 150, 152, 0])
    (found,) = compare_rates(writes(raced), find(raced))
    assert (found.verdict, found.p_different) == (Verdict.INCONCLUSIVE, None)
    built = report.build(raced)
    (line,) = [line for line in built.details if line.startswith("Indexing")]
    assert line.endswith("(append-beside-t): in a round one of them added nothing.")
    (made,) = [each for each in built.tables if each.key == "indexing"]
    assert made.rows[0].cells[-1].text == "-"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 1e5), min_size=6, max_size=12))
def test_two_arms_that_change_places_have_the_opposite_said_of_them(rates: list[float]) -> None:
    raced = indexed(rates)
    (forth,) = compare_rates(writes(raced), find(raced))
    (back,) = compare_rates(writes(raced), find(raced, against="b"))
    opposite = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
    assert back.verdict is opposite.get(forth.verdict, forth.verdict)
    assert back.ratio.value == pytest.approx(1 / forth.ratio.value)


def test_the_report_says_who_indexes_faster_by_how_much_and_what_held_the_other_back() -> None:
    built = report.build(indexed([140.0, 150, 145, 160, 150, 138]))
    (line,) = [line for line in built.details if line.startswith("Indexing")]
    assert line.startswith("Indexing: b (emulated) is faster than a (emulated): +47.0 % [")
    assert line.endswith("] documents/s (append-beside-t); volume throughput held a (emulated) back.")
    (made,) = [each for each in built.tables if each.key == "indexing"]
    assert made.rows[0].cells[0].text == "100"
    assert made.rows[0].cells[-1].text == "faster"
    assert (
        "append-beside-t: more documents were added on b, which slows the searches beside them"
        in built.warnings
    )
    assert built.next_step.startswith(
        "to compare searches beside equal writes, give append-beside-t a target"
    )


def observed(arm: str, waited_s: float) -> Event:
    end = {
        "device.read_s": 0.0,
        "device.write_s": 10.0,
        "device.written_bytes": 8.0 * 2**20,
        "emulator.waited_s.throughput": waited_s,
    }
    fields = {
        "task": "append-beside-t",
        "round": 1,
        "requests": 1,
        "started_s": 0.0,
        "begin": dict.fromkeys(end, 0.0),
        "end": end,
    }
    return Event(at_s=2.0, kind="beside", arm=arm, fields=fields)


def test_the_limit_that_held_writes_back_is_named_with_the_rate_that_it_left() -> None:
    rows = [written(arm=arm) for arm in ("a", "b")]
    raced = session(samples=table(*rows), events=(observed("a", 9.0), observed("b", 0.0)))
    (made,) = [each for each in beside.tables(raced, writes(raced), ["a", "b"]) if each.key == "writes"]
    cells = [cell.text for cell in made.rows[0].cells]
    assert cells == [
        "500.0 ms",
        "4.0 MiB/s",
        "90% volume throughput",
        "500.0 ms",
        "4.0 MiB/s",
        "-",
    ]
    assert bottleneck_lines(raced, held_back(raced, {})) == (
        "a (emulated) is held back by volume throughput (90% of its I/O time); raise throughput.",
        "No limit held back b (emulated).",
    )


@pytest.mark.parametrize(
    ("measured_s", "rate"),
    [((), 43.8), ((0.01,), 43.8), ((1.5,), 43.8), ((3.0,), 10.0), ((4.0, 6.0), 10.0), ((9.0,), 10.0)],
)
def test_what_is_written_while_a_block_warms_up_is_no_part_of_the_rate_of_the_device(
    measured_s: tuple[float, ...], rate: float
) -> None:
    """The buckets are full in its first second. What was observed before the first search begins it."""
    written_mib = {0.0: 0.0, 2.0: 358.0, 4.0: 378.0, 6.0: 398.0, 8.0: 418.0, 9.9: 437.0}
    event = observed("a", 0.0)
    events = []
    for at_s, mib in written_mib.items():
        begin = {name: 0.0 for name in event.fields["end"]} | {"device.written_bytes": mib * 2**20}
        end = begin | {"device.written_bytes": (mib + 1.0) * 2**20}
        changed = {"started_s": at_s, "begin": begin, "end": end}
        events.append(replace(event, at_s=at_s + 0.1, fields={**event.fields, **changed}))
    searches = [row(started_s=at_s, service_time_s=0.02) for at_s in (-5.0, *measured_s, 20.0)]
    raced = session(samples=table(written(started_s=0.0), *searches), events=tuple(events))
    (profile,) = [of.profile for of in writes(raced).values()]
    assert profile is not None
    assert profile.grown["device.written_bytes"] / 2**20 / profile.seconds == pytest.approx(rate, abs=0.05)


def test_no_reason_is_given_of_searches_beside_writes_whose_work_the_counters_have_too() -> None:
    events = [
        Event(
            at_s=10.0 * round_ + 0.1,
            kind="io",
            arm=arm,
            fields={
                "task": "t", "round": round_, "requests": 1, "started_s": 10.0 * round_,
                "begin": {"node.processor_s": 0.0}, "end": {"node.processor_s": used_s},
            },
        )
        for round_ in range(1, 7)
        for arm, used_s in (("a", 0.05), ("b", 0.1))
    ]  # fmt: skip
    whole = report.build(session(1.5, events=tuple(events)))
    (reason,) = whole.reasons
    assert reason.startswith("a query uses 50.00 ms more of the node's processors on b")
    brought_back = Event(at_s=1.0, kind="brought-back", arm="a", fields={"task": "t"})  # of an older session
    assert report.build(session(1.5, events=(brought_back, *events))).reasons == ()
    named = replace(brought_back, fields={"task": "t", "writes": ["w"]})
    beside_writes = report.build(session(1.5, events=(named, *events)))
    assert beside_writes.reasons == ()
    of_queries = {"io", "processors", "expected"}  # tables of what a query reads and uses
    assert of_queries & {made.key for made in whole.tables} == {"io", "processors"}
    assert not of_queries & {made.key for made in beside_writes.tables}
    without = replace(brought_back, fields={"task": "t", "writes": []})
    assert report.build(session(1.5, events=(without, *events))).reasons == (reason,)


def test_a_session_without_writes_beside_searches_has_no_such_table() -> None:
    assert list(beside.tables(session(), {}, ["a", "b"])) == []
    assert beside.rates_table({}, (), find(session()), ["a", "b"]).rows == ()
    assert list(beside.warnings({}, ())) == []


def test_failed_writes_are_a_warning_and_so_is_what_hits_do_not_say() -> None:
    raced = session(samples=table(written(success=False)))
    assert list(beside.warnings(writes(raced), ())) == [
        "append-beside-t: 1 bulk request failed on a, so less was added there",
        "hits change while documents are added, so those searches were not checked to have the same",
    ]
