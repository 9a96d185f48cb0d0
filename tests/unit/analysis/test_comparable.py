"""What forbids a comparison of arms, and what is only said."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import session_in_memory
from sample_rows import row, table
from small_plan import small_plan
from stored import ROW

from esrally_ebs.analysis.comparable import all_checks, check_comparable, whole_rounds
from esrally_ebs.analysis.summary import summarize
from esrally_ebs.model import Event, Kind, State, Volume, VolumeSpec
from esrally_ebs.plan import parse_plan
from esrally_ebs.store.encoding import BASELINE, SAMPLES
from esrally_ebs.store.session import Session


def volume(name: str, kind: Kind = Kind.EMULATED, readahead: int = 131072) -> Volume:
    spec = VolumeSpec(name=name, type="gp3", size_bytes=1)
    return Volume(spec=spec, kind=kind, mount=Path("/mnt"), filesystem="xfs", readahead_bytes=readahead)


def session(samples: pa.Table, *arms: Volume, **changes: Any) -> Session:  # noqa: ANN401
    plain = {
        "plan": small_plan(),
        "arms": arms or (volume("a"), volume("b")),
        "environment": {"nodes": {"a": {"version": "8.8.2"}, "b": {"version": "8.8.2"}}},
        "dataset": {"hash": "abc"},
        "samples": samples,
    }
    return replace(session_in_memory.session(), **{**plain, **changes})


def failing(measured: Session) -> list[str]:
    return [check.name for check in check_comparable(measured) if not check.ok]


def test_of_hits_those_that_not_all_arms_have_are_named() -> None:
    asked = ((arm, hits) for arm, last in (("a", 4), ("b", 5)) for hits in (1, 2, 3, last))
    measured = session(table(*(row(arm=arm, hits=hits) for arm, hits in asked)))
    (check,) = (check for check in check_comparable(measured) if not check.ok)
    assert "(a [4], b [5])" in check.text


@pytest.mark.parametrize(("last", "ok"), [(12, True), (11, False)])
def test_blocks_beside_writes_begin_with_the_same_documents(last: int, ok: bool) -> None:
    events = tuple(
        Event(at_s=1.0, kind="brought-back", arm=arm, fields={"documents": count})
        for arm, count in (("a", 12), ("b", 12), ("a", 12), ("b", last))
    )
    checks = check_comparable(session(table(row(), row(arm="b")), events=events))
    (check,) = (check for check in checks if check.name == "documents")
    assert check.ok == ok
    assert ("each time" if ok else "times") + " that" in check.text  # also before searches without writes


def test_equal_arms_are_comparable() -> None:
    checks = check_comparable(session(table(row(), row(arm="b"))))
    assert {check.name for check in checks} == {
        "hits",
        "segments",
        "versions",
        "settings",
        "requests",
        "errors",
        "cold",
    }
    assert all(check.ok for check in checks)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        ([row(arm="b", hits=6)], "hits"),
        ([row(arm="b", hits=None)], "hits"),
        ([row(arm="b"), row(arm="b")], "requests"),
        ([], "requests"),
        ([row(arm="b", success=False)], "errors"),
        ([row(arm="b", service_time_s=math.nan)], "times"),
        ([row(arm="b", service_time_s=0.0)], "times"),
        ([row(arm="b", resident_before=0.02)], "cold"),
        ([row(arm="b", latency_s=math.nan)], "times"),
        ([row(arm="b", latency_s=math.inf)], "times"),
        ([row(arm="b", resident_before=None)], "cold"),
        ([row(arm="b", resident_before=math.nan)], "cold"),
    ],
)
def test_samples_that_cannot_be_compared_are_named(other: list[dict[str, object]], name: str) -> None:
    samples = table(row(), row(task="other"), row(task="other", arm="b"), *other)
    assert failing(session(samples)) == [name]


@pytest.mark.parametrize(
    ("mode", "clients", "round_", "warned"),
    [("cold", 2, 1, True), ("cold", 1, 1, False), ("warm", 2, 1, False), ("cold", 2, 0, False)],
)
def test_cold_clients_that_evict_what_others_read_are_said(
    mode: str, clients: int, round_: int, warned: bool
) -> None:
    """Those that index, in round 0, evict nothing."""
    asked = [(arm, number) for arm in "ab" for number in range(clients)]
    samples = table(*(row(arm=arm, client=number, round=round_) for arm, number in asked))
    checks = check_comparable(session(samples, plan=small_plan(cache={"mode": mode})))
    (check,) = [check for check in checks if not check.ok] or [None]
    assert (check is not None) is warned
    if check:
        assert check.text.startswith("t: asked cold by several clients")
        assert not check.forbids


def test_an_arm_that_was_sent_no_request_at_all_is_named() -> None:
    (check,) = [check for check in check_comparable(session(table(row()))) if not check.ok]
    assert check.text == "t: unequal numbers of requests: a 1, b 0"


def test_arms_that_index_by_themselves_may_need_other_numbers_of_requests() -> None:
    """As until a transform is done, or for half an hour of documents."""
    indexed = [row(arm=arm, round=0) for arm in "abb"]
    (check,) = (each for each in check_comparable(session(table(*indexed))) if each.name == "requests")
    assert check.ok
    assert check.text.endswith(", but for what an arm does until it is done, or for a time: t (a 1, b 2)")
    assert failing(session(table(row(round=0)))) == ["requests"]


def test_failed_requests_are_named_with_their_arm() -> None:
    samples = table(row(), row(arm="b"), row(task="u"), row(task="u", arm="b", success=False))
    (check,) = [check for check in check_comparable(session(samples)) if not check.ok]
    assert check.text == "1 of 4 measured requests failed (u on b)"


def test_of_many_that_failed_the_others_are_counted() -> None:
    samples = table(*(row(task=task, arm=arm, success=False) for task in "tu" for arm in "ab"))
    (check,) = [check for check in check_comparable(session(samples)) if not check.ok]
    assert check.text == "4 of 4 measured requests failed (t on a, t on b, u on a and 1 more)"


@pytest.mark.parametrize(
    ("others", "rounds", "forbids"), [("ab", (1, 1), False), ("ab", (1, 2), True), ("", (1, 1), True)]
)
def test_requests_that_fail_as_often_on_all_arms_forbid_nothing_if_others_do_not(
    others: str, rounds: tuple[int, int], forbids: bool
) -> None:
    failed = [row(task="u", arm=arm, round=at, success=False) for arm, at in zip("ab", rounds, strict=True)]
    samples = table(*(row(arm=arm) for arm in others), *failed)
    check = next(check for check in check_comparable(session(samples)) if check.name == "errors")
    assert check.forbids is forbids
    assert ("(u), as many on each arm: they are left out" in check.text) is not forbids


def test_a_session_that_was_cut_in_a_round_is_held_to_its_whole_rounds() -> None:
    whole = [row(arm=arm, round=round_) for round_ in (1, 2) for arm in "ab"]
    cut = session(table(*whole, row(hits=6, round=3)), state=State.FAILED)
    assert failing(cut) == ["hits", "requests"]  # as it would be were it over
    assert all(check.ok for check in all_checks(cut))
    uneven = session(table(*whole, row(round=2), row(round=3)), state=State.RUNNING)
    assert [check.text for check in all_checks(uneven) if not check.ok] == [
        "t: unequal numbers of requests: a 3, b 2"
    ]


def test_requests_that_fail_on_each_arm_forbid_nothing_where_a_session_was_cut_between_two_arms() -> None:
    rows = [
        row(task=task, arm=arm, round=round_, success=task == "t")
        for round_ in (1, 2, 3)
        for arm in "ab"
        for task in "tu"
        if (arm, round_) != ("b", 3)
    ]
    cut = session(table(*rows), state=State.CANCELLED)
    (check,) = [check for check in all_checks(cut) if not check.ok]
    assert check.text == "4 of 8 measured requests failed (u), as many on each arm: they are left out"
    assert not check.forbids


@pytest.mark.parametrize("state", [State.CANCELLED, State.RUNNING])
def test_a_first_round_that_was_cut_is_too_little_and_no_difference_of_arms(state: State) -> None:
    cut = session(table(row(), row(hits=6), row(arm="b")), state=state)
    assert failing(cut) == ["hits", "requests"]
    assert all(check.ok for check in all_checks(cut))


@pytest.mark.parametrize("lost", [0, 1])  # samples of the round that was cut
def test_of_a_round_that_was_cut_no_request_is_explained(lost: int) -> None:
    rows = [row(arm=arm, round=round_) for round_ in (1, 2) for arm in "ab"]
    events = tuple(Event(at_s=1.0, kind="io", arm="a", fields={"round": round_}) for round_ in (1, 2, 3))
    faults = (Event(at_s=1.0, kind="fault", arm="a", fields={}),)
    cut = session(table(*rows, *[row(round=3)][lost:]), state=State.CANCELLED)
    whole = whole_rounds(replace(cut, events=events + faults))
    assert whole.events == events[:2] + faults
    assert whole.samples.num_rows == len(rows)


def test_other_versions_and_settings_are_named() -> None:
    samples = table(row(), row(arm="b"))
    nodes = {"nodes": {"a": {"version": "8.8.2"}, "b": {"version": "8.8.1"}}}
    assert failing(session(samples, environment=nodes)) == ["versions"]
    assert failing(session(samples, volume("a"), volume("b", readahead=4096))) == ["settings"]


def test_volumes_of_different_kinds_may_differ_in_settings_but_it_is_said() -> None:
    measured = session(table(row(), row(arm="b")), volume("a"), volume("b", Kind.EFS, readahead=4096))
    assert not failing(measured)
    assert any("readahead_bytes differs" in check.text for check in check_comparable(measured))
    on_disks = replace(measured, arms=(volume("a"), volume("b", Kind.EBS, readahead=4096)))
    (check,) = (check for check in check_comparable(on_disks) if not check.ok)
    assert (check.name, check.forbids) == ("settings", False)


def test_a_warm_session_is_not_asked_to_be_cold() -> None:
    samples = table(row(resident_before=None), row(arm="b", resident_before=None))
    assert not failing(session(samples, plan=small_plan(cache={"mode": "warm"})))


def observed(arm: str, **read_bytes: float) -> Event:
    begin = {f"{layer}.read_bytes": 7.0 for layer in read_bytes}
    end = {name: 7.0 + grown for name, grown in zip(begin, read_bytes.values(), strict=True)}
    fields = {"task": "q", "round": 1, "requests": 1, "started_s": 1.0, "begin": begin, "end": end}
    return Event(at_s=2.0, kind="io", arm=arm, fields=fields)


@pytest.mark.parametrize(
    ("layers", "ok"),
    [
        ({"device": 1000.0}, True),
        ({"device": 1000.0, "lowest": 950.0}, True),
        ({"device": 1000.0, "lowest": 1500.0}, True),  # which reads ahead
        ({"device": 1000.0, "lowest": 800.0}, False),
        ({"device": 1000.0, "lowest": 0.0}, False),
        ({"device": 0.0}, False),
    ],
)
def test_what_cold_requests_read_must_reach_the_lowest_device(layers: dict[str, float], ok: bool) -> None:
    events = (observed("a", device=1000.0), observed("b", **layers))
    one = session(table(row(), row(arm="b")), events=events)
    (check,) = (check for check in check_comparable(one) if check.name == "reach")
    assert (check.ok, check.forbids) == (ok, not ok)
    assert ok or check.text.startswith("a cache answered cold requests, which read too little: b ")
    for accepted in ("reach", "caches-below"):
        plan = parse_plan(
            f'name = "p"\naccept = ["{accepted}"]\n[[arm]]\nname = "a"\ntype = "gp2"\n', "p.toml"
        )
        assert not any(check.forbids for check in check_comparable(replace(one, plan=plan)))


@pytest.mark.parametrize(
    ("hits", "read_bytes", "named"),
    [
        (0, 0.0, ["unread"]),  # of a field that no document has
        (0, 512.0, ["unread"]),  # which the file system had read just then
        (5, 0.0, ["reach"]),  # a cache had it
        (None, 0.0, ["reach"]),  # nothing tells that there was nothing to read
        (0, 4096.0, ["reach"]),  # of one arm's device, and a cache of the other's
    ],
)
def test_a_task_that_finds_and_reads_nothing_is_no_cache(
    hits: int | None, read_bytes: float, named: list[str]
) -> None:
    events = (observed("a", device=0.0), observed("b", device=read_bytes))
    rows = [row(task="q", arm=arm, hits=hits) for arm in "ab"]
    one = session(table(*rows), events=events)
    assert failing(one) == named
    assert [check.name for check in check_comparable(one) if check.forbids] == [
        name for name in named if name == "reach"
    ]


ALONE = {"name": "alone", "rw": "randread", "bs": "4k"}
DEEP = {"name": "deep", "rw": "randread", "bs": "4k", "iodepth": 32, "engine": "libaio"}


def direct(job: Mapping[str, Any]) -> pa.Table:
    """What fio had of that job on arm b: a median of a millisecond."""
    times = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p99_s", "p999_s"), 1e-3)
    shape = {"bs_bytes": 4096, "numjobs": 1, "iodepth": job.get("iodepth", 1)}
    one = replace(ROW, arm="b", job=job["name"], **shape, **times)
    return pa.Table.from_pylist([asdict(one)], schema=BASELINE)


@pytest.mark.parametrize(
    ("await_s", "reads", "kind", "job", "ok"),
    [
        (0.9e-3, 100, Kind.EBS, ALONE, True),
        (0.4e-3, 100, Kind.EBS, ALONE, False),
        (0.0, 9, Kind.EBS, ALONE, True),  # the kernel's clock is too coarse
        (0.0, 100, Kind.EBS, ALONE, True),  # its kernel counts no times, as of md arrays
        (0.4e-3, 100, Kind.EMULATED, ALONE, True),  # lateness is about these
        (0.4e-3, 100, Kind.EBS, DEEP, True),  # its reads waited for one another
    ],
)
def test_cold_requests_read_no_faster_than_the_device_does(
    await_s: float, reads: int, kind: Kind, job: Mapping[str, Any], ok: bool
) -> None:
    begin = {"device.reads": 0.0, "device.read_bytes": 0.0, "device.read_s": 0.0}
    end = {"device.reads": reads, "device.read_bytes": 4096.0 * reads, "device.read_s": reads * await_s}
    fields = {"task": "q", "round": 1, "requests": 1, "started_s": 1.0, "begin": begin, "end": end}
    one = session(
        table(row(), row(arm="b")),
        volume("a"),
        volume("b", kind),
        events=(Event(at_s=2.0, kind="io", arm="b", fields=fields),),
        plan=small_plan(baseline=[job]),
        baseline=direct(job),
    )
    (check,) = (check for check in check_comparable(one) if check.name == "reach")
    assert check.ok is ok
    assert ok or check.text.endswith("read too fast: b 400 us a read, fio 1 ms")


def test_nothing_measured_gives_nothing_rather_than_an_error() -> None:
    empty = session(SAMPLES.empty_table())
    assert summarize(empty.samples) == ()
    assert not failing(empty)
