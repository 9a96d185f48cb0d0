"""From the I/Os of requests to what they would take on another volume."""

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_rows import row, table
from session_in_memory import session

from esrally_ebs.advice.advice import Advice, advise, settings
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.memory import footprint_bytes, in_memory
from esrally_ebs.advice.prediction import Predictor
from esrally_ebs.advice.recording import Recording, recording_of
from esrally_ebs.advice.tables import build_advice, plan_text, raced_settings
from esrally_ebs.catalog.limits import Service
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import Bound, Event, Kind, Phase, Sample, State, Volume, VolumeSpec
from esrally_ebs.plan import load_plan, parse_plan
from esrally_ebs.report import RENDERERS
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.store.session import Session
from esrally_ebs.units import GIB, KIB, MIB
from esrally_ebs.volumes.virtual.replay import replay

GP3 = VolumeSpec(name="a", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=125 * MIB)
ST1 = replace(GP3, type="st1", size_bytes=500 * GIB, iops=None, throughput_bytes_per_s=None)
COMPUTE_S, PATH_S, BLOCK = 300e-6, 100e-6, 16 * KIB
REQUESTS, IOS = 48, 30
Breaking = Callable[[Session, np.random.Generator], pa.Table]


def latencies_s(count: int) -> list[float]:
    """What the model of gp3 takes for a block, drawn here by hand."""
    read = model_for(GP3).read
    return list(read.median_s(BLOCK) * np.exp(np.random.default_rng(7).normal(0, read.sigma, count)))


def recorded(offsets: list[int] | None = None, slowed: Callable[[int], float] | None = None) -> Session:
    """Requests that read ``IOS`` missing pages one after the other; six rounds on arm a.

    ``slowed``: by round, how many times as long as usual reads took; then there are eight rounds.
    """
    samples, ios, now_s = [], [], 1e9
    rounds = 8 if slowed else 6
    drawn = iter(latencies_s(REQUESTS * IOS))
    for number in range(REQUESTS):
        began_s = now_s
        round_ = 1 + number % rounds
        for place in range(IOS):
            now_s += COMPUTE_S
            done_s = now_s + next(drawn) * (slowed(round_) if slowed else 1.0) - PATH_S
            offset = offsets[place] if offsets else (2 * place + 1) * BLOCK
            ios.append((now_s, done_s, offset))
            now_s = done_s
        now_s += COMPUTE_S
        one = {"round": round_, "started_s": began_s, "service_time_s": now_s - began_s}
        samples.append(row(**one, task=f"t{number // rounds % 2}"))
        now_s += 1.0
    plain = {"arm": "a", "device": "a", "bytes": BLOCK, "op": "read", "queue_s": 0.0, "path_s": PATH_S}
    trace = [{**plain, "at_s": at, "done_s": done, "offset": o, "ahead": None} for at, done, o in ios]
    arm = Volume(spec=GP3, kind=Kind.EMULATED, mount=Path("/mnt"))
    made = session(arms=("a",), samples=table(*samples))
    made = replace(made, arms=(arm,))
    return replace(made, path=Path(), telemetry=pa.Table.from_pylist(trace, schema=TRACE))


def recording(of: Session) -> Recording:
    return recording_of(of, of.telemetry, "a")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    made = recording(recorded())
    return Predictor(made, thread_of(made))


def test_a_missing_page_is_waited_for_and_what_is_between_is_computed() -> None:
    thread = thread_of(recording(recorded()))
    assert len(thread.needed) == REQUESTS * IOS
    assert thread.compute_s == pytest.approx(np.full(REQUESTS * (IOS + 1), COMPUTE_S), abs=1e-6)


def test_readahead_that_nothing_continues_is_not_waited_for() -> None:
    """The second I/O continues the first; the request goes on long before and after it is done."""
    at_s, done_s = np.array([0.001, 0.0011, 0.005]), np.array([0.002, 0.0022, 0.006])
    ios = {"path_s": np.full(3, PATH_S)}
    ios |= {"write": np.zeros(3, int), "ahead": np.full(3, -1), "bytes": np.full(3, BLOCK)}
    one = Recording(
        spec=GP3,
        task=np.array(["t"]),
        round=np.array([1]),
        began_s=np.array([0.0]),
        latency_s=np.array([0.0065]),
        pause_s=np.zeros(1),
        cold=np.array([True]),
        ios={**ios, "at_s": at_s, "done_s": done_s, "offset": np.array([0, BLOCK, 9 * BLOCK])},
        first=np.array([0, 3]),
    )
    thread = thread_of(one)
    assert list(zip(thread.needed, np.repeat(np.arange(4), np.diff(thread.first_needed)), strict=True)) == [
        (0, 2),
        (2, 3),
    ]


def seen() -> Recording:
    """One request whose thread slept for its first I/O, and later for one that was read ahead; not for two.

    It needs 0.05 and 0.1 ms to be woken.
    """
    nan = np.nan
    at_s, done_s = np.array([1, 2.1, 3.1, 3.2]) / 1e3, np.array([2, 5.1, 4.9, 3.9]) / 1e3
    ios = {"at_s": at_s, "done_s": done_s, "offset": np.array([0, 9, 5, 7]) * BLOCK}
    ios |= {
        "path_s": np.zeros(4),
        "bytes": np.full(4, BLOCK),
        "write": np.zeros(4, int),
        "ahead": np.ones(4, int),
    }
    ios |= {"thread": np.full(4, 7.0), "waiter": np.array([7, 7, nan, nan])}
    ios |= {"slept_s": np.array([1.1, 4.2, nan, nan]) / 1e3, "woken_s": np.array([2.05, 5.2, nan, nan]) / 1e3}
    one = recording_of_cache()
    columns = {"began_s": np.zeros(1), "latency_s": np.array([0.0061]), "round": np.ones(1)}
    return replace(
        one, **columns, task=np.array(["t"]), cold=np.array([True]), ios=ios, first=np.array([0, 4])
    )


def test_what_a_thread_was_seen_to_sleep_for_is_what_it_waits_for() -> None:
    """The page that was read ahead is needed 1 ms into computing; others by the first event after them."""
    thread = thread_of(seen())
    events = np.repeat(np.arange(5), np.diff(thread.first_needed))
    assert list(zip(events, thread.needed, strict=True)) == [(1, 0), (4, 1), (4, 2), (4, 3)]
    assert 1e3 * thread.compute_s == pytest.approx([1, 0.15, 1, 0.1, 1.9])
    assert 1e3 * thread.after_s == pytest.approx([0.1, 1.0, 0.975, 1.275])
    fast = replace(model_for(GP3), limits=(), read=Service(base_us=0.0, per_kib_us=0.0, sigma=0.0))
    assert replay(thread, fast).latency_s == pytest.approx([4.15e-3])


def test_the_access_pattern_of_a_task_is_told(predictor: Predictor) -> None:
    one, other = predictor.patterns
    assert (one.task, other.task) == ("t0", "t1")
    assert (one.ios, one.bytes, one.writes) == (IOS, IOS * BLOCK, 0.0)
    assert (one.continuing, one.waited_for, one.in_flight) == (0.0, 1.0, 1.0)
    assert 0.3 < one.computing < 0.6


def test_the_recorded_volume_is_predicted(predictor: Predictor) -> None:
    assert abs(predictor.errors[50]) < 0.02
    assert abs(predictor.errors[99]) < 0.05


PERTURBED = """
name = "p"
trace = "perturb"
race = {}
design = {rounds = 8}
arm = [{name = "a", type = "gp3", size = "100GiB"}]
"""


def perturbed(slowed: Callable[[float], float]) -> Predictor:
    """Recorded while reads took ``slowed`` times as long, by what the plan says that they should."""
    plan = parse_plan(PERTURBED, "p.toml")
    made = replace(recorded(slowed=lambda round_: slowed(plan.read_latency_of(round_))), plan=plan)
    of = recording(made)
    return Predictor(of, thread_of(of))


def test_the_slope_of_slowed_reads_is_that_of_the_graph_and_only_usual_rounds_are_predicted() -> None:
    made = perturbed(lambda times: times)
    made.require_right()
    assert made.slope is not None
    assert made.slope.predicted_s == pytest.approx(IOS * model_for(GP3).read.median_s(BLOCK), rel=0.05)
    assert made.slope.measured.value == pytest.approx(made.slope.predicted_s, rel=0.05)
    assert made.patterns[0].ios == IOS
    assert abs(made.errors[50]) < 0.02


def test_requests_that_are_slowed_otherwise_than_their_graph_says_give_no_advice() -> None:
    with pytest.raises(MeasurementError, match="self-check fails: for each usual time"):
        perturbed(lambda times: 1 + (times - 1) / 2).require_right()


def test_a_volume_of_known_latency_is_predicted_to_ten_microseconds() -> None:
    """A request takes its computing, and of each I/O the median less what the path takes anyway."""
    model = model_for(replace(GP3, type="io2", iops=8000, throughput_bytes_per_s=None))
    exact = replace(model, read=replace(model.read, sigma=0.0))
    expected_s = (IOS + 1) * COMPUTE_S + IOS * (exact.read.median_s(BLOCK) - PATH_S)
    assert replay(thread_of(recording(recorded())), exact).latency_s == pytest.approx(expected_s, abs=1e-5)


def test_a_limit_makes_requests_wait_and_is_named(predictor: Predictor) -> None:
    slow = predictor.predict(replace(ST1, credits=0.0))
    assert slow.binds == "credits"
    assert slow.percentile(50).value > 10 * predictor.check.percentile(50).value
    assert predictor.check.binds == "latency"


def test_beside_other_volumes_of_a_race_one_that_lives_on_credits_gets_more_back(
    predictor: Predictor,
) -> None:
    """Requests came 1 s after one another; by turns with another such volume they come twice as far apart."""
    empty = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, credits=0.0)
    alone = predictor.predict(empty)
    by_turns = predictor.predict(empty, beside=[GP3])
    assert by_turns.waits["credits"] < alone.waits["credits"]
    times_s = [one.percentile(50).value for one in (predictor.predict(GP3, beside=[GP3]), predictor.check)]
    assert times_s[0] == pytest.approx(times_s[1])


def test_the_pause_before_a_request_is_without_those_of_other_arms() -> None:
    made = recorded()
    others = [{**one, "arm": "b", "started_s": one["started_s"] + 0.2} for one in made.samples.to_pylist()]
    others = [{**one, "service_time_s": 0.5} for one in others]
    both = pa.concat_tables([made.samples, pa.Table.from_pylist(others, schema=made.samples.schema)])
    assert recording(made).pause_s == pytest.approx([0.0, *[1.0] * (REQUESTS - 1)])
    assert recording(replace(made, samples=both)).pause_s == pytest.approx([0.0, *[0.25] * (REQUESTS - 1)])


def test_the_cheapest_setting_whose_upper_end_keeps_the_bound_is_advised(predictor: Predictor) -> None:
    today = predictor.check.percentile(99).value
    advice = advise(predictor, GP3, Bound(percentile=99, seconds=today * 1.2), region="us-east-1")
    assert advice.best is not None
    assert advice.best.keeps
    assert not [option for option in advice.options if option.usd < advice.best.usd and option.keeps]
    costs = [option.usd for option in advice.front]
    assert costs == sorted(costs)
    times = [option.value_s for option in advice.front]
    assert times == list(accumulate(times, min))


def test_no_setting_keeps_what_computing_alone_takes(predictor: Predictor) -> None:
    advice = advise(predictor, GP3, Bound(percentile=50, seconds=0.001), region="us-east-1", types=["gp3"])
    assert (advice.best, advice.doubtful) == (None, None)


def test_todays_volume_is_not_raced_against_itself(predictor: Predictor) -> None:
    today = predictor.check.percentile(99)
    assert today.high is not None
    bound = Bound(percentile=99, seconds=(today.value + today.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    advice = replace(advice, doubtful=advice.options[0], best=None)
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    assert "race" not in f"{report.verdict} {report.next_step}"
    assert "more rounds" in report.next_step


def test_memory_is_as_doubtful_as_a_setting(predictor: Predictor) -> None:
    cached = predictor.predict(predictor.check.spec, cache_bytes=MIB).percentile(99)
    assert cached.high is not None
    bound = Bound(percentile=99, seconds=(cached.value + cached.high) / 2)
    advice = advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])
    report = build_advice(recorded(), advice, predictor, region="us-east-1")
    (memory,) = (table for table in report.tables if table.key == "memory")
    assert memory.rows[0].cells[-1].text == "perhaps"


def test_every_format_says_that_it_is_of_models_and_the_plan_is_one(predictor: Predictor) -> None:
    bound = Bound(percentile=99, seconds=predictor.check.percentile(99).value * 0.8)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    report = build_advice(made, advice, predictor, region="us-east-1")
    assert all("statement of volume models" in render(report) for render in RENDERERS.values())
    assert "What requests wait for is inferred" in RENDERERS["text"](report)
    plan = parse_plan(plan_text(advice, made), "prove")
    assert plan.arm[0].type == "gp3"
    assert len(plan.arm) > 1


def test_the_plan_races_the_same_nodes_and_indices(predictor: Predictor) -> None:
    made = recorded()
    keys = {"node.car": ["4gheap"], "node.params.x": 'a"b', "dataset.data": "/data", "dataset.indices": "i,j"}
    made = replace(made, plan=parse_plan(plan_text(advised := advise_first(predictor), made), "p", keys))
    plan = parse_plan(plan_text(advised, made), "prove")
    assert (plan.node, plan.dataset) == (made.plan.node, made.plan.dataset)


def advise_first(predictor: Predictor) -> Advice:
    """Advice of a bound that today's volume does not keep."""
    bound = Bound(percentile=99, seconds=predictor.check.percentile(99).value * 0.8)
    return advise(predictor, GP3, bound, region="us-east-1", types=["gp3"])


def test_a_race_of_the_advice_stands_beside_what_was_predicted(predictor: Predictor) -> None:
    """Raced on a machine on which everything takes twice as long: the change is right, the times are not."""
    bound = Bound(percentile=99, seconds=predictor.check.percentile(99).value * 0.9)
    made = recorded()
    advice = advise(predictor, GP3, bound, region="us-east-1")
    rows = []
    raced = raced_settings(advice, made)
    for spec in raced:
        prediction = predictor.predict(spec, beside=[one for one in raced if one is not spec])
        times_s = np.interp(
            np.linspace(0, 1, 201),
            [0, 0.5, 0.9, 0.99, 1],
            [0, *[2 * e.value for e in prediction.whole], 9],
        )
        rows += [row(arm=spec.name, service_time_s=float(seconds)) for seconds in times_s]
    report = build_advice(
        made, advice, predictor, region="us-east-1", proof=replace(made, samples=table(*rows))
    )
    today = report.tables[0].rows[0]
    assert today.item == "today: gp3 100 GiB, 3,000 IOPS, 125 MiB/s"
    for one in report.tables[0].rows:
        texts = [cell.text for cell in one.cells]
        assert texts[3] == "-50.0%"
        assert float(texts[4].rstrip("%")) == 0.0
        assert texts[-1] == ("no" if texts[0] == "p99" else "-")


def test_a_race_without_requests_of_an_arm_is_no_proof(predictor: Predictor) -> None:
    made = recorded()
    advice = advise(predictor, GP3, Bound(percentile=99, seconds=1.0), region="us-east-1")
    with pytest.raises(MeasurementError, match="race again"):
        build_advice(made, advice, predictor, region="us-east-1", proof=made)


def test_a_trace_of_another_volume_gives_no_advice() -> None:
    made = recorded()
    other = replace(recording(made), spec=replace(GP3, type="io2", iops=8000, throughput_bytes_per_s=None))
    with pytest.raises(MeasurementError, match="self-check"):
        Predictor(other, thread_of(other)).require_right()


def moved(trace: pa.Table, seconds: float) -> pa.Table:
    for name in ("at_s", "done_s"):
        place = trace.column_names.index(name)
        trace = trace.set_column(place, TRACE.field(name), pc.add(trace[name], seconds))
    return trace


@pytest.mark.parametrize("shift_s", [-1.1, -0.02, -0.008, 0.008, 0.02, 1.1])
def test_a_trace_of_another_clock_is_refused(shift_s: float) -> None:
    made = recorded()
    with pytest.raises(MeasurementError, match="in time"):
        recording_of(made, moved(made.telemetry, shift_s), "a")


def third_removed(made: Session, draw: np.random.Generator) -> pa.Table:
    return made.telemetry.filter(pa.array(draw.random(made.telemetry.num_rows) > 1 / 3))


def stretch_removed(made: Session, draw: np.random.Generator) -> pa.Table:
    rows = made.telemetry.num_rows
    begin = draw.integers(0, rows - rows // 3)
    return pa.concat_tables([made.telemetry.slice(0, begin), made.telemetry.slice(begin + rows // 3)])


def clock_shifted(made: Session, draw: np.random.Generator) -> pa.Table:
    return moved(made.telemetry, draw.choice([-1, 1]) * np.exp(draw.uniform(np.log(0.008), np.log(3600))))


def other_device(made: Session, draw: np.random.Generator) -> pa.Table:
    """Another arm's I/Os: as many, while that arm had its turn."""
    length_s = pc.max(made.telemetry["done_s"]).as_py() - pc.min(made.telemetry["at_s"]).as_py()
    return moved(made.telemetry, length_s * draw.uniform(0.2, 0.8))


@pytest.mark.parametrize("broken", [third_removed, stretch_removed, clock_shifted, other_device])
@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_a_broken_trace_is_refused_in_20_of_20(broken: Breaking, *, noted: bool) -> None:
    """Also one whose number of I/Os nobody noted: the volume counted reads during requests."""
    made = recorded()
    trace = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": made.telemetry.num_rows, "lost": 0})
    made = replace(made, events=(*counted(made), *([trace] if noted else [])))
    assert recording_of(made, made.telemetry, "a").requests == REQUESTS
    for seed in range(20):
        with pytest.raises(MeasurementError):
            recording_of(made, broken(made, np.random.default_rng(seed)), "a")


def counted(made: Session) -> list[Event]:
    """The volume's counters around each request."""
    events = []
    for one in made.samples.to_pylist():
        fields = {"task": one["task"], "round": one["round"], "requests": 1, "started_s": one["started_s"]}
        fields |= {"begin": {"emulator.reads": 100}, "end": {"emulator.reads": 100 + IOS}}
        at_s = one["started_s"] + one["service_time_s"]
        events.append(Event(at_s=at_s, kind="io", arm="a", fields=fields))
    return events


def test_requests_that_overlap_are_refused() -> None:
    made = recorded()
    twice = pa.concat_tables([made.samples, made.samples])
    with pytest.raises(MeasurementError, match="overlap"):
        recording(replace(made, samples=twice))


def test_a_session_with_writes_beside_its_searches_is_refused() -> None:
    made = recorded()
    rows = [{**row, "phase": "beside"} for row in made.samples.to_pylist()[:1]]
    both = pa.concat_tables([made.samples, pa.Table.from_pylist(rows, schema=made.samples.schema)])
    with pytest.raises(
        MeasurementError, match="documents were added beside its searches, so I/Os of both can"
    ):
        recording(replace(made, samples=both))


def test_a_session_without_a_trace_is_refused() -> None:
    made = recorded()
    with pytest.raises(MeasurementError, match="trace = true"):
        recording_of(made, TRACE.empty_table(), "a")


def test_a_percentile_that_is_not_predicted_is_refused(predictor: Predictor) -> None:
    with pytest.raises(PlanError, match=r"^--keep p95: p50, p90 and p99 are predicted"):
        advise(predictor, GP3, Bound(percentile=95, seconds=1.0), region="us-east-1")


def test_settings_hold_the_data_of_today_and_have_no_credits() -> None:
    made = list(settings(GP3, ["gp2", "gp3", "io2", "st1", "sc1", "io1"]))
    assert min(spec.size_bytes for spec in made) >= GP3.size_bytes
    assert {spec.credits for spec in made} == {0.0}
    with pytest.raises(PlanError, match="efs"):
        list(settings(GP3, ["efs"]))


def test_the_command_reads_a_session_folder_and_its_exit_code_says_how_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorded()
    folder = SessionFolder.create(tmp_path, "s1", kind="race", plan=made.plan)
    folder.update(arms=made.arms)
    with folder.part_writer("samples") as writer:
        writer.add(Sample(**{**one, "phase": Phase.MEASURE}) for one in made.samples.to_pylist())
    folder.write_trace("a", made.telemetry)
    folder.note("trace", arm="a", ios=made.telemetry.num_rows, lost=0)
    folder.finish(State.COMPLETE)
    plan = tmp_path / "prove.toml"
    advise_ = ["advise", str(folder.path), "--plan", str(plan)]
    assert main([*advise_, "--keep", "p99=10s"]) == 0
    assert "is the cheapest that keeps" in capsys.readouterr().out
    assert main([*advise_, "--keep", "p99=1ms"]) == 1
    assert load_plan(plan).arm[0].name == "today"
    assert main([*advise_, "--keep", "p99=1ms", "--race"]) == 1
    assert "no race" in capsys.readouterr().err
    refused: list[str] = []
    monkeypatch.setattr(
        "esrally_ebs.cli.advice.run_sessions", lambda *a, **_: refused.append(a[0]) or ([], 4)
    )
    assert main([*advise_, "--keep", "p99=10s", "--race"]) == 4
    assert refused
    assert "is the cheapest" in capsys.readouterr().out
    for option in ("--arm=b", "--types="):
        assert main([*advise_, "--keep", "p99=10s", option]) == 2
        assert option.strip("=b") in capsys.readouterr().err
    (trace,) = (folder.path / "trace").glob("*.parquet")
    trace.unlink()
    assert main([*advise_, "--keep", "p99=1s"]) == 4
    assert "trace = true" in capsys.readouterr().err


def logged() -> Session:
    """What a query log knows of the requests, and the kernel's tracepoints of their I/Os."""
    made = recorded()
    rows = made.samples.to_pylist()
    for one in rows:
        ended_ms = np.floor(1e3 * (one["started_s"] + one["service_time_s"]))
        took_ms = np.floor(1e3 * one["service_time_s"])
        one.update(started_s=(ended_ms - took_ms) / 1e3, service_time_s=took_ms / 1e3)
    trace = made.telemetry.drop_columns("path_s")
    trace = trace.append_column(TRACE.field("path_s"), pa.array([0.0] * trace.num_rows))
    note = Event(at_s=0.0, kind="trace", arm="a", fields={"ios": trace.num_rows, "lost": 0, "missed": 0})
    return replace(
        made, kind="trace", samples=table(*rows), telemetry=trace.select(TRACE.names), events=(note,)
    )


def test_requests_of_a_log_get_their_ios_though_it_knows_milliseconds() -> None:
    of, exact = recording(logged()), recording(recorded())
    assert np.diff(of.first).tolist() == [IOS] * REQUESTS
    assert of.latency_s == pytest.approx(exact.latency_s, abs=1.6e-3)
    assert of.slower_s == pytest.approx(-PATH_S, abs=30e-6)  # what is recorded here is done that much sooner
    made = Predictor(of, thread_of(of))
    made.require_right()
    assert made.slower_s == of.slower_s


def test_a_volume_that_is_another_than_was_said_is_refused() -> None:
    made = logged()
    local = replace(GP3, type="instance-store", iops=200_000, throughput_bytes_per_s=None)
    other = replace(made, arms=(replace(made.arms[0], spec=local),))
    with pytest.raises(MeasurementError, match=r"take \+0\.\d\d ms from those of instance-store"):
        recording(other)


def test_a_recording_that_lost_events_is_refused() -> None:
    made = logged()
    fields = {**made.events[0].fields, "missed": 7}
    with pytest.raises(MeasurementError, match=r"7 events .* record it again"):
        recording(replace(made, events=(replace(made.events[0], fields=fields),)))


def test_what_few_reads_or_not_all_sleeps_tell_is_not_taken_for_what_requests_wait_for() -> None:
    """Where the wrong process was watched, or events of threads were lost, it is inferred."""
    made = logged()
    trace, count = made.telemetry, made.telemetry.num_rows

    def waits_seen(waited: int, **fields: int) -> bool:
        values = {"waiter": 7, "slept_s": trace["at_s"][0].as_py(), "woken_s": trace["done_s"][0].as_py()}
        told = trace
        for name, value in values.items():
            column = pa.array([value] * waited + [None] * (count - waited), TRACE.field(name).type)
            told = told.set_column(TRACE.names.index(name), TRACE.field(name), column)
        note = replace(made.events[0], fields={**made.events[0].fields, **fields})
        return recording(replace(made, telemetry=told, events=(note,))).waits_seen

    assert waits_seen(count)
    assert not waits_seen(1)
    assert not waits_seen(count, missed_waits=3)


def test_a_trace_without_completions_predicts_no_requests() -> None:
    made = logged()
    place = TRACE.names.index("done_s")
    nothing = pa.nulls(made.telemetry.num_rows, pa.float64())
    trace = made.telemetry.set_column(place, TRACE.field(place), nothing)
    with pytest.raises(MeasurementError, match="usage"):
        recording(replace(made, telemetry=trace))


def test_a_cache_of_all_that_is_read_leaves_the_first_requests_reads_alone() -> None:
    of = recording(recorded())
    assert footprint_bytes(of) == IOS * BLOCK
    hits = in_memory(of, IOS * BLOCK).reshape(REQUESTS, IOS)
    assert not hits[0].any()
    assert hits[1:].all()
    assert not in_memory(of, (IOS - 1) * BLOCK).any()  # in turns, each comes when it has just gone


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200), st.integers(1, 30))
def test_a_larger_cache_answers_no_fewer_reads(pages: list[int], cache: int) -> None:
    count = len(pages)
    ios = {"at_s": np.arange(count) * 1.0, "offset": np.array(pages) * BLOCK, "write": np.zeros(count, int)}
    of = replace(recording_of_cache(), ios={**ios, "bytes": np.full(count, BLOCK)})
    smaller, larger = in_memory(of, cache * BLOCK), in_memory(of, (cache + 1) * BLOCK)
    assert not np.any(smaller & ~larger)
    assert in_memory(of, 41 * BLOCK).sum() == count - len(set(pages))


def recording_of_cache() -> Recording:
    """Of which only the I/Os matter."""
    none = np.zeros(0)
    return Recording(
        spec=GP3,
        task=none,
        round=none,
        began_s=none,
        latency_s=none,
        pause_s=none,
        cold=none,
        ios={},
        first=none,
    )


def test_what_is_in_memory_is_neither_waited_for_nor_charged(predictor: Predictor) -> None:
    slow = replace(ST1, credits=0.0)
    without, with_all = predictor.predict(slow), predictor.predict(slow, cache_bytes=IOS * BLOCK)
    assert without.waits["credits"] > 0.5
    assert with_all.percentile(50).value == pytest.approx((IOS + 1) * COMPUTE_S, rel=0.02)
