"""Recordings of nodes that are none of ours, of another tool's trace and a query log."""

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from esrally_ebs.advice import prediction
from esrally_ebs.advice.traces import parse_trace
from esrally_ebs.cli import main
from esrally_ebs.machine.disks import RequestQueue
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.processes import SYSTEM_CLOCK, end_as_by_interrupt
from esrally_ebs.model import Kind, State, Volume, VolumeSpec
from esrally_ebs.session import tracing
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.telemetry.block_trace import TraceSummary
from esrally_ebs.volumes.virtual.replay import Load, Replayed, Thread

READS = 400  # a read each 10 ms
BEGAN = 1_700_000_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ESRALLY_EBS_RUN", str(tmp_path / "run"))
    return tmp_path


def blkparse(folder: Path) -> Path:
    """Reads of 0.46 ms, as gp3's are."""
    lines = []
    for number in range(READS):
        at_s, sector = number * 0.01, (7919 * number % 100_000) * 8
        for action, seconds in (("D", at_s), ("C", at_s + 0.46e-3)):
            lines.append(f"259,0 1 1 {seconds:.9f} 697 {action} R {sector} + 8 [java]")
    path = folder / "blkparse.txt"
    path.write_text("\n".join(lines))
    return path


def queries(folder: Path, *, began: float = BEGAN, took_ms: int | None = 8) -> Path:
    """A search for each read, which begins a millisecond before it."""
    body = {"query": {"term": {"user": 7}}}
    rows = [
        {"at": began + n * 0.01 - 0.001, "method": "POST", "path": "/logs/_search", "body": body}
        | ({} if took_ms is None else {"took_ms": took_ms})
        for n in range(1, READS - 1)
    ]
    path = folder / "queries.ndjson"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def run(home: Path, *words: str) -> int:
    began = ["--began", "2023-11-14T22:13:20Z"]
    return main(["trace", "--from", str(blkparse(home)), "--size", "500GiB", *began, *words])


def test_another_tools_trace_becomes_a_session_with_requests(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = home / "made"
    assert run(home, "--log", str(queries(home)), "--output", str(made)) == 0
    out = capsys.readouterr().out
    assert "What the trace's I/Os do" in out
    assert f"esrally-ebs advise {made} --keep p99=" in out
    session = load_session(made)
    assert session.kind == "trace"
    assert session.samples.num_rows == READS - 2
    assert sorted(set(session.samples["round"].to_pylist())) == list(range(1, 11))
    assert SessionFolder(made).read_trace()["at_s"][0].as_py() == pytest.approx(BEGAN)
    code = main(["advise", str(made), "--keep", "p99=100ms"])
    advice = capsys.readouterr()
    assert (code, advice.err) == (0, "")
    assert "whole I/Os are missing" in advice.out  # no self-check sees that
    assert main(["advise", str(made), "--keep", "p99=100ms", "--race"]) == 2
    assert "workload import" in capsys.readouterr().err


def test_the_credits_of_ones_own_volume_are_said_when_it_is_recorded_or_afterwards(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gp2 that was throttled could not be predicted at all: it was replayed from full credits."""
    made, of_gp2 = home / "made", ["--type", "gp2", "--log", str(queries(home))]
    assert run(home, *of_gp2, "--credits", "0.25", "--output", str(made)) == 0
    assert load_session(made).arms[0].spec.credits == 0.25
    replayed: list[float] = []

    def counted(thread: Thread, spec: VolumeSpec, load: Load | None = None) -> list[Replayed]:
        replayed.append(spec.credits)
        return runs(thread, spec, load)

    runs = prediction._runs
    monkeypatch.setattr(prediction, "_runs", counted)
    advise = ["advise", str(made), "--keep", "p99=1s", "--types", "gp3"]
    assert main(advise) == 0
    assert main([*advise, "--credits", "0.5"]) == 0
    assert [share for share in replayed if 0 < share < 1] == [0.25, 0.5]  # others are of none, and of all
    assert main([*advise, "--credits", "nan"]) == 2
    assert "--credits nan: is no share" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--region", "eu-west-9"), ("--types", "gp9")])
def test_what_has_no_setting_or_price_is_refused_before_it_is_recorded(
    home: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    """It was after the minutes that were to be recorded, and nothing said where these are."""
    made = home / "made"
    assert run(home, option, value, "--output", str(made)) == 2
    assert value in capsys.readouterr().err
    assert not made.exists()


def test_an_arm_that_is_attached_is_taken_with_the_credits_that_it_has(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = VolumeSpec(name="a", type="gp2")
    arm = Volume(spec=spec, kind=Kind.EMULATED, mount=home, device="/dev/loop7", control=home / "control")
    for name, value in (
        ("describe", arm),
        ("identify", arm),
        ("attached", [arm]),
        ("read_state", SimpleNamespace(credits=-5.0, credits_capacity=100.0)),
    ):
        monkeypatch.setattr(tracing, name, lambda *_, value=value: value)
    assert tracing.volume_at(home, spec).spec.credits == 0.0
    monkeypatch.setattr(tracing, "read_state", lambda _: SimpleNamespace(credits=None, credits_capacity=None))
    assert tracing.volume_at(home, spec) == arm


def test_a_recording_names_a_percentile_that_its_requests_bound(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = home / "few.ndjson"
    few.write_text("".join(queries(home).read_text().splitlines(keepends=True)[:99]))
    assert run(home, "--log", str(few)) == 0
    assert "--keep p90=100ms" in capsys.readouterr().out


def test_ios_that_are_not_whole_are_said_with_the_advice(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace said so; the advice from it did not."""
    source, made = home / "cut.txt", home / "made"
    lines = blkparse(home).read_text().splitlines()
    source.write_text("\n".join(line for number, line in enumerate(lines) if number not in (201, 401)))
    words = ["--began", "2023-11-14T22:13:20Z", "--log", str(queries(home)), "--output", str(made)]
    assert main(["trace", "--from", str(source), "--size", "500GiB", *words]) == 0
    capsys.readouterr()
    assert main(["advise", str(made), "--keep", "p99=100ms"]) == 0
    assert "Of 2 I/Os the trace has no issue or no completion: they are left out" in capsys.readouterr().out


def test_a_recording_goes_among_the_sessions(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(home) == 0
    assert "requests" not in capsys.readouterr().err
    assert main(["sessions", "--ids"]) == 0
    session = capsys.readouterr().out.strip()
    assert main(["report", session]) == 0
    assert main(["advise", session, "--keep", "p99=1s"]) == 4
    assert "no measured requests in its trace; record it anew, by 'trace --log'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--log", "LATE"], "no request of it came"),
        (["--log", "UNTIMED"], "no search with a time and a duration"),
        (["--log", "/nowhere.json"], "/nowhere.json"),
        (["--output", "HERE"], "exists already"),
        (["--began", "yesterday"], "is no time"),
        (["--began", "2023-11-14"], "names no time zone; write for example 2023-11-14T00:00:00Z"),
        (["--type", "gp9"], "gp9"),
        (["--mount", "/"], "name a --mount to record, or"),
        (["--device", "8,0"], "nothing of device 8,0; it has 259,0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str
) -> None:
    late = home / "late"
    late.mkdir()
    untimed = home / "untimed"
    untimed.mkdir()
    paths = {
        "LATE": str(queries(late, began=BEGAN + 9999)),
        "UNTIMED": str(queries(untimed, took_ms=None)),
        "HERE": str(home),
    }
    assert run(home, *(paths.get(word, word) for word in words)) in (2, 3, 4)
    line = capsys.readouterr().err
    assert text in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("line", ["CPU:1 [LOST 1234 EVENTS]", "Skips: 3 forward (1,234 -   0.2%)"])
def test_a_trace_that_says_that_it_lost_events_gives_no_advice(
    home: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    """Nothing else tells of I/Os of which neither issue nor completion is there: they count as computing."""
    source, made = home / "with-lost.txt", home / "made"
    source.write_text(f"{blkparse(home).read_text()}\n{line}\n")
    words = ["--began", "2023-11-14T22:13:20Z", "--log", str(queries(home)), "--output", str(made)]
    assert main(["trace", "--from", str(source), "--size", "500GiB", *words]) == 0
    out = capsys.readouterr().out
    assert "1,234 events were lost" in out
    assert "--keep" not in out
    assert main(["usage", str(made), "--size", "500GiB"]) == 0
    assert "1,234 events were lost" in capsys.readouterr().out
    assert main(["advise", str(made), "--keep", "p99=100ms"]) == 4
    assert "1,234 events of arm 'mount' were lost" in capsys.readouterr().err


@pytest.mark.parametrize("tool", ["iolog-v2", "iolog-v3", "biosnoop", "perf-script"])
def test_a_trace_of_each_tool_becomes_a_session(
    home: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    source = Path(__file__).parents[2] / "golden" / "traces" / f"{tool}.txt"
    assert main(["trace", "--from", str(source), "--size", "500GiB", "--output", str(home / "made")]) == 0
    assert "never" in capsys.readouterr().out
    assert SessionFolder(home / "made").read_trace().num_rows == 3
    assert main(["usage", str(home / "made"), "--size", "500GiB"]) == 0
    assert "What the trace's I/Os do" in capsys.readouterr().out


def test_a_trace_without_completions_names_no_advice(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = home / "iolog"
    reads = [f"{n * 10_000} /dev/a read {n * 4096} 4096" for n in range(READS)]
    source.write_text("\n".join(("fio version 3 iolog", *reads)))
    words = ["--began", "2023-11-14T22:13:20Z", "--log", str(queries(home))]
    assert main(["trace", "--from", str(source), "--size", "500GiB", *words]) == 0
    out = capsys.readouterr().out
    assert "requests are not predicted" in out
    assert "--keep" not in out


def test_seconds_are_asked_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--mount", "/", "--size", "500GiB"]) == 2
    assert "--seconds" in capsys.readouterr().err


def test_a_log_that_is_none_is_refused_before_a_trace_is_read(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "notes.txt").write_text("nothing that was asked\n")
    words = ["--from", "/nowhere", "--log", str(home / "notes.txt")]
    assert main(["trace", "--size", "500GiB", *words]) in (2, 3, 4)
    error = capsys.readouterr().err
    assert "is of a known format" in error
    assert "workload import --format" in error  # 'trace' has no such option, which the line named


QUEUE = RequestQueue(name="sda", number="8:0", first_sector=0, end_sector=8, is_part=False, is_mount=True)


@pytest.fixture
def mount(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words that record a mount on two disks, of which none does anything; ``began`` is there once it is."""
    volume = Volume(spec=VolumeSpec(name="mount", type="gp3"), kind=Kind.DIRECTORY, mount=home)
    nothing = TraceSummary(ios=0, began_s=BEGAN, seconds=2.0, lost=0, in_flight=0, processor_s=0.0)
    for name, value in (
        ("telemetry.block_trace.queues_of", ((QUEUE, replace(QUEUE, name="sdb", number="8:16")), ())),
        ("telemetry.block_trace.record", nothing),
        ("session.tracing.threads_at", ([], "")),
        ("session.tracing.require_tracing", None),
        ("session.tracing.caller", None),
        ("session.tracing.volume_at", volume),
        ("session.tracing.take_down", ()),
        ("session.reaper.start", lambda: None),
    ):
        monkeypatch.setattr(f"esrally_ebs.{name}", lambda *_, value=value, **__: value)
    monkeypatch.setattr("esrally_ebs.store.running.begin", lambda _: (home / "began").touch())
    return ["trace", "--mount", str(home), "--seconds", "2", "--size", "500GiB"]


def test_the_size_of_a_mount_is_that_of_its_disks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the whole disk, which is the volume, also where the mount is on a partition of it."""
    queues = QUEUE, replace(QUEUE, first_sector=8, end_sector=9, is_part=True), replace(QUEUE, name="sdb")
    monkeypatch.setattr("esrally_ebs.telemetry.block_trace.queues_of", lambda path: (queues, ()))
    for name, sectors in (("sda", 20_971_520), ("sdb", 2_097_152)):
        (home / "block" / name).mkdir(parents=True)
        (home / "block" / name / "size").write_text(f"{sectors}\n")
    assert tracing.size_of(Path("/"), replace(Roots(), sys=home)) == "11GiB"


def test_of_another_tools_trace_the_size_is_asked_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--from", str(blkparse(home))]) == 2
    assert "give --size, for example 500GiB" in capsys.readouterr().err


def recorded(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    reads: slice,
    *,
    began_s: float,
    seconds: float,
    until: signal.Signals | None = None,
) -> None:
    """Have these reads of ``blkparse`` recorded, in so many seconds from then on, or ``until`` a signal."""
    ios = parse_trace(blkparse(home).read_text(), "blkparse", began_s=BEGAN)
    rows = ios.slice(reads.start, reads.stop - reads.start).to_pylist()
    ios = pa.Table.from_pylist([{**row, "arm": tracing.ARM} for row in rows], ios.schema)

    def record(
        *_: object, keep: Callable[[pa.Table], None], ended: threading.Event, **__: object
    ) -> TraceSummary:
        if until is not None:
            SYSTEM_CLOCK.wait_until((home / "said").exists, limit_s=60, poll_s=0.01)
            os.kill(os.getppid(), until)
            ended.wait(60)
        keep(ios)
        times = {"began_s": began_s, "seconds": seconds, "processor_s": 0.0}
        return TraceSummary(ios=ios.num_rows, lost=0, in_flight=0, **times)

    if until is not None:
        monkeypatch.setattr("esrally_ebs.cli.usage.complain", lambda _: (home / "said").touch())
    monkeypatch.setattr("esrally_ebs.telemetry.block_trace.record", record)


def test_requests_from_memory_before_the_first_io_and_after_the_last_are_kept(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them percentiles were of those alone that read."""
    recorded(home, monkeypatch, slice(100, 300), began_s=BEGAN - 1, seconds=8.0)
    assert main([*mount, "--log", str(queries(home)), "--output", str(home / "made")]) == 0
    assert load_session(home / "made").samples.num_rows == READS - 2


def test_a_recording_that_has_all_ios_that_it_may_have_says_when_it_ended(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("esrally_ebs.telemetry.block_trace.MAX_IOS", READS)
    recorded(home, monkeypatch, slice(0, READS), began_s=BEGAN, seconds=419.4)
    assert main(mount) == 0
    assert f"ended after 419 s, with as many I/Os as it may have ({READS})" in capsys.readouterr().out


def test_ios_of_a_moment_in_minutes_that_were_recorded_are_minutes(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command said that it was too short, with another exit code, and not how its session is called."""
    recorded(home, monkeypatch, slice(0, 50), began_s=BEGAN - 10, seconds=300.0)
    assert main([*mount, "--output", str(home / "made")]) == 0
    assert "made: 301 intervals" in capsys.readouterr().out
    assert main(["usage", str(home / "made"), "--size", "500GiB"]) == 0
    assert "made: 301 intervals" in capsys.readouterr().out


def test_ctrl_c_in_the_first_second_says_that_it_was_too_short(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its session was complete, and the command spoke of fio's iologs."""
    recorded(home, monkeypatch, slice(0, 40), began_s=BEGAN, seconds=0.4, until=signal.SIGINT)
    assert main([*mount, "--output", str(home / "made")]) == 4
    assert "it was recorded for 0.4 s; record for longer" in capsys.readouterr().err
    assert load_session(home / "made").state is State.FAILED


def test_a_signal_after_the_one_that_cancels_a_recording_does_not_cut_short_what_it_removes(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two come where a terminal closes, and where systemd ends a session."""
    numbers = (signal.SIGHUP, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    end_as_by_interrupt()
    recorded(home, monkeypatch, slice(0, READS), began_s=BEGAN, seconds=4.0, until=signal.SIGHUP)
    try:
        assert main(mount) == 130
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_another_tools_trace_of_a_moment_leaves_no_session(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = home / "short.txt"
    source.write_text("".join(blkparse(home).read_text().splitlines(keepends=True)[:100]))
    assert main(["trace", "--from", str(source), "--size", "500GiB", "--output", str(home / "made")]) == 4
    assert "less than two seconds" in capsys.readouterr().err
    assert not (home / "made").exists()


def test_a_recorder_whose_folder_cannot_be_made_records_nothing(
    home: Path, mount: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It took the word to end for the folder's name, and recorded for up to a minute."""
    assert main([*mount, "--output", str(home)]) == 3
    assert "exists already" in capsys.readouterr().err
    assert not (home / "began").exists()


def test_disks_of_an_array_that_are_taken_for_one_volume_are_said(
    home: Path, mount: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four in a RAID 0 one was said to be at its limits that had a quarter of that to do."""
    assert main([*mount, "--output", str(home / "made")]) == 4
    assert "nothing was read or written" in capsys.readouterr().err
    (warning,) = load_session(home / "made").warnings
    assert warning.startswith("2 disks are taken for one volume")


def test_a_volume_that_was_unmounted_meanwhile_is_said(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may have its device by then, whose I/Os are in the recording then."""
    recorded(home, monkeypatch, slice(0, READS), began_s=BEGAN, seconds=5.0)
    gone = {"filesystem": "ext4", "device_number": "7:9999"}
    volume = Volume(spec=VolumeSpec(name="mount", type="gp3"), kind=Kind.DIRECTORY, mount=home, **gone)
    monkeypatch.setattr(tracing, "volume_at", lambda *_: volume)
    assert main([*mount, "--output", str(home / "made")]) == 0
    warnings = load_session(home / "made").warnings
    assert any("no longer mounted" in warning for warning in warnings)


def test_what_keeping_ios_takes_of_a_processor_is_part_of_what_recording_takes(
    home: Path, mount: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the events gives them to a second process, which writes them: it takes as much."""
    recorded(home, monkeypatch, slice(0, READS), began_s=BEGAN, seconds=5.0)
    seconds = iter(range(0, 1000, 2))
    monkeypatch.setattr("time.process_time", lambda: next(seconds))
    assert main([*mount, "--output", str(home / "made")]) == 0
    assert "recording took 0.400 of a processor" in capsys.readouterr().err
