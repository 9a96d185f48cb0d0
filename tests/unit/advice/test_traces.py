"""Traces of other tools, as each writes the same three I/Os."""

import re
import time
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from recorded_requests import GP3, folder_of, recorded

from esrally_ebs.advice.advice import usage_options
from esrally_ebs.advice.traces import access_of, lacks, lost_events, parse_trace
from esrally_ebs.advice.usage import intervals_of
from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError
from esrally_ebs.report import RENDERERS
from esrally_ebs.store.encoding import TRACE
from esrally_ebs.units import GIB, KIB

GOLDEN = Path(__file__).parents[2] / "golden" / "traces"
TOOLS = sorted(path.stem for path in GOLDEN.iterdir())
OF_FIO = ("iolog-v2", "iolog-v3")


def text(tool: str) -> str:
    return (GOLDEN / f"{tool}.txt").read_text()


def trace(tool: str) -> pa.Table:
    return parse_trace(text(tool), tool)


@pytest.mark.parametrize("tool", TOOLS)
def test_an_io_has_its_place_size_and_direction(tool: str) -> None:
    ios = trace(tool)
    assert ios.schema == TRACE
    assert ios["op"].to_pylist() == ["read", "read", "write"]
    assert ios["bytes"].to_pylist() == [4096, 16_384, 131_072]
    assert ios["offset"].to_pylist() == [223490 * 512, 223498 * 512, 500 * 512]
    at_s = ios["at_s"].to_pylist()
    assert [round(at - at_s[0], 4) for at in at_s] == [0.0, 0.9995, 2.0985]


@pytest.mark.parametrize("tool", TOOLS)
def test_times_threads_and_readahead_are_there_as_far_as_the_tool_says(tool: str) -> None:
    ios = trace(tool)
    took_s = [
        None if row["done_s"] is None else round(row["done_s"] - row["at_s"], 6) for row in ios.to_pylist()
    ]
    assert took_s == ([None] * 3 if tool in OF_FIO else [400e-6, 700e-6, 1e-3])
    assert ios["thread"].to_pylist() == ([None] * 3 if tool in OF_FIO else [697, 697, 12])
    known = tool not in (*OF_FIO, "biosnoop")
    assert ios["ahead"].to_pylist() == ([False, True, False] if known else [None] * 3)
    assert len(lacks(ios)) == (2 if tool in OF_FIO else 1 if tool == "biosnoop" else 0)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_trace_becomes_seconds(tool: str) -> None:
    seconds = intervals_of(trace(tool))
    assert sum(one.reads for one in seconds) == 2
    assert sum(one.written_bytes for one in seconds) == 131_072
    assert 2 <= len(seconds) <= 3


def test_the_biosnoop_that_tells_readahead_is_read_too() -> None:
    """As libbpf-tools prints it: flags beside R and W. The lines with flags were passed over."""
    flagged = text("biosnoop").replace("R 223498", "RA 223498").replace(" W ", " WS ")
    ios = parse_trace(flagged, "t")
    assert ios["op"].to_pylist() == ["read", "read", "write"]
    assert ios["ahead"].to_pylist() == [False, True, False]
    assert lacks(ios) == []


def test_the_clock_of_a_trace_is_moved_to_the_time_of_day() -> None:
    ios = parse_trace(text("blkparse"), "t", began_s=1e9)
    assert ios["at_s"].to_pylist()[0] == pytest.approx(1e9 + 500e-6)
    assert ios["done_s"].to_pylist()[0] == pytest.approx(1e9 + 900e-6)


def test_of_several_devices_one_is_named() -> None:
    both = text("biosnoop") + text("biosnoop").split("\n", 1)[1].replace("nvme1n1", "nvme2n1")
    with pytest.raises(FormatError, match="both: of 2 devices; name one with --device: nvme1n1, nvme2n1"):
        parse_trace(both, "both")
    assert parse_trace(both, "both", "nvme2n1").num_rows == 3
    assert parse_trace(both, "both", "/dev/nvme2n1").num_rows == 3
    by_path = both.replace("nvme2n1", "/dev/nvme2n1")  # as fio's iolog names it
    assert parse_trace(by_path, "both", "nvme2n1").num_rows == 3


def test_a_device_that_is_not_in_a_trace_is_named() -> None:
    """It was said to be no trace, and a log to have no times."""
    with pytest.raises(FormatError, match="t: nothing of device nvme9n1; it has nvme1n1"):
        parse_trace(text("biosnoop"), "t", "nvme9n1")


def test_an_io_without_its_issue_is_kept_and_told() -> None:
    cut = text("perf-script").split("\n", 1)[1]
    ios = parse_trace(cut, "cut")
    assert ios["done_s"].null_count == 1
    assert "1 I/Os" in lacks(ios)[0]


def test_a_trace_of_completions_alone_is_not_said_to_have_none() -> None:
    """As blktrace has of LVM, whose devices are issued nothing."""
    done = "".join(line for line in text("blkparse").splitlines(keepends=True) if "  C " in line)
    assert lacks(parse_trace(done, "t"))[0].startswith("It has no I/O with both issue and completion: ")


def test_an_io_that_was_issued_before_the_clock_began_took_its_time_too() -> None:
    """biosnoop's clock is 0 as the first is done: that one, and those in flight meanwhile, took less."""
    first = parse_trace(text("biosnoop").replace("10.000900", "0.000000"), "t").to_pylist()[0]
    assert first["done_s"] - first["at_s"] == pytest.approx(400e-6)


def test_an_io_without_its_completion_is_kept_and_told() -> None:
    """``perf`` loses events: those were left out, and a volume seemed to do less."""
    lines = text("perf-script").splitlines(keepends=True)
    ios = parse_trace("".join(lines[:1] + lines[2:]), "cut")
    assert ios.num_rows == 3
    assert ios["at_s"].to_pylist()[0] == 13231.0005
    assert ios["thread"].to_pylist() == [697, 697, 12]
    assert lacks(ios)[0].startswith("Of 1 I/Os it has no issue or no completion")


def test_a_completion_that_is_missing_is_told_also_where_the_place_is_read_again() -> None:
    """The first of both I/Os was in no table, and nothing was said."""
    again = text("blkparse").replace("223498 + 32", "223490 + 32")
    cut = "".join(line for line in again.splitlines(keepends=True) if "0.000900000" not in line)
    ios = parse_trace(cut, "cut")
    assert ios["bytes"].to_pylist() == [4096, 16_384, 131_072]
    assert ios["done_s"].null_count == 1


def test_an_io_that_is_issued_twice_as_the_device_had_no_room_is_one() -> None:
    taken_back = "259,0 1 9 0.000600000 0 R R 223490 + 8 [0]\n259,0 1 10 0.000700000 0 D R 223490 + 8 [0]\n"
    ios = parse_trace(text("blkparse") + taken_back, "t")
    assert ios["bytes"].to_pylist() == [4096, 16_384, 131_072]
    assert (ios["at_s"][0].as_py(), ios["done_s"][0].as_py()) == (0.0007, 0.0009)


def test_an_io_that_is_issued_twice_is_one_though_requeues_were_not_recorded() -> None:
    """As Xen's and virtio's disks do when their ring is full: it counted as two, of which one is a half."""
    again = text("perf-script").splitlines(keepends=True)[0].replace("13231.000500", "13231.000600")
    ios = parse_trace(text("perf-script") + again, "t")
    assert ios["bytes"].to_pylist() == [4096, 16_384, 131_072]
    assert (ios["at_s"][0].as_py(), ios["done_s"].null_count) == (13231.0006, 0)
    later = again.replace("13231.000600", "13232.500000")
    assert parse_trace(text("perf-script") + 2 * later, "t")["done_s"].null_count == 1
    lost = re.sub(r".*13231.000900.*", "", text("perf-script"))
    assert parse_trace(lost + later, "t")["done_s"].null_count == 2  # the same place is read again


@pytest.mark.parametrize("tool", ["blkparse", "kernel-trace", "perf-script", "biosnoop"])
def test_a_trace_that_was_copied_twice_into_a_file_has_each_io_once(tool: str) -> None:
    """The volume seemed to do twice as much, and to have two in flight."""
    assert parse_trace(2 * f"{text(tool)}\n", "t") == trace(tool)


def test_a_command_to_the_disk_is_no_io() -> None:
    """As smartd sends them, of kernels 3.10: an I/O without a size was taken for the end of a request."""
    line = "smartd 812 [000] 13231.5: block:block_rq_issue: 259,0 R 96 (85 08 0e) 0 + 0 [smartd]\n"
    assert parse_trace(text("perf-script") + line, "t") == trace("perf-script")


@pytest.mark.parametrize("tool", ["blkparse", "kernel-trace", "perf-script"])
def test_events_of_one_processor_after_the_other_are_put_in_order(tool: str) -> None:
    """``cat per_cpu/cpu*/trace``: each I/O was taken for two, without an issue and without a completion."""
    assert parse_trace("\n".join(sorted(text(tool).splitlines(), reverse=True)), "t") == trace(tool)


def test_the_report_of_trace_cmd_is_read_as_the_kernels_trace() -> None:
    """It has columns, so more than a space before what an event says."""
    padded = text("kernel-trace").replace("issue: ", "issue:       ")
    assert parse_trace(padded, "t") == trace("kernel-trace")


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("CPU:3 [LOST 1234 EVENTS]", 1234),
        ("CPU:3 [1234 EVENTS DROPPED]", 1234),  # trace-cmd
        ("CPU:3 [EVENTS DROPPED]", 1),
        ("Skips: 5 forward (1,234 -  10.0%)", 1234),
        ("            java   697 [001] 13231.000500: PERF_RECORD_LOST lost 12", 12),
        ("Processed 123456 events and lost 3 chunks!", 3),
        ("Possibly lost 5 samples", 5),
        ("lost 7 events on CPU #1", 7),
        ("You have 1234 dropped events", 1234),
    ],
)
def test_what_a_tool_says_that_it_lost_is_counted(said: str, lost: int) -> None:
    assert lost_events(f"{text('perf-script')}\n{said}\n") == lost


def numbered(keep: Callable[[int], bool], kinds: str = "QGUDC", processors: int = 2) -> str:
    """Text of blkparse of 60 I/Os, of those that are kept; each processor numbers its events."""
    lines = [
        f"259,0 {io % processors} {len(kinds) * (io // processors) + place + 1} {io}.00000{place}000 7 {kind}"
        f" R {io * 800} + 8 [java]\n"
        for io in range(60)
        if keep(io)
        for place, kind in enumerate(kinds)
    ]
    return "".join(lines)


def test_ios_that_were_taken_out_whole_are_missing_in_the_numbers_of_blkparse() -> None:
    assert lost_events(numbered(lambda _: True)) == 0
    by_one_counter = numbered(lambda _: True, processors=1).replace("259,0 0 9 ", "259,0 1 9 ")
    assert lost_events(by_one_counter) == 0
    assert lost_events(numbered(lambda io: io % 5 != 3)) == 5 * 11  # and those at the end
    wrapped = re.sub(
        r"(?m)^(\S+ \d) (\d+)",
        lambda line: f"{line[1]} {(int(line[2]) + 2**32 - 9) % 2**32}",
        numbered(lambda io: io % 5 != 3),
    )
    assert lost_events(wrapped) == 5 * 11  # they begin anew after 32 bits
    elsewhere = numbered(lambda _: True)
    elsewhere = re.sub(r"(?m)^259,0 1 (\d+)", lambda line: f"259,0 1 {int(line[1]) + 5000}", elsewhere)
    assert lost_events(elsewhere) == 0  # of a part, by time, each processor has other numbers
    without_issues = numbered(lambda io: io % 5 != 3, "QGIC")
    assert lost_events(without_issues) == 0  # printed so: what else was not is not known


def test_what_blkparse_left_out_was_not_lost() -> None:
    """``-a read``: it was said that the trace itself says so, and no request was predicted."""
    reads = [line for line in numbered(lambda _: True).splitlines(keepends=True) if " U " not in line]
    assert lost_events("".join(reads)) == 0


def test_events_that_blkparse_lays_to_a_partition_were_not_lost() -> None:
    """With LVM on it, each remapping (A) was missing among the numbers of the disk."""
    remapped = re.sub(r"(?m)^259,0(.* A )", r"259,5\1", numbered(lambda _: True, "AQGUDC"))
    assert lost_events(remapped) == 0


def kernels(keep: Callable[[int], bool], *heads: str) -> str:
    """The kernel's trace of 60 I/Os of two processors, of those that are kept."""
    lines = [
        f"            java-697     [00{io % 2}] d..1. {io}.{place}00000:"
        f" {event}: 259,0 R {rest}{io * 800} + 8 [java]\n"
        for io in range(60)
        if keep(io)
        for place, (event, rest) in enumerate((("block_rq_issue", "4096 () "), ("block_rq_complete", "() ")))
    ]
    return "".join([*heads, *lines])


def test_ios_that_were_taken_out_whole_are_missing_in_the_count_of_the_kernels_trace() -> None:
    """Its head says how many events the buffers had."""
    head = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 120/120   #P:2\n#\n"
    assert lost_events(kernels(lambda _: True, head)) == 0
    assert lost_events(kernels(lambda _: True, head.replace("120/120", "121/4000"))) == 0  # read meanwhile
    assert lost_events(kernels(lambda io: io % 3 != 1, head)) == 40
    assert lost_events(kernels(lambda io: io % 3 != 1)) == 0  # without a head nobody knows
    apart = kernels(lambda io: io % 2 == 0, head) + kernels(lambda io: io % 2 == 1, head)
    assert lost_events(apart) == 0  # per_cpu/cpu*/trace, each with the count of all


def test_what_one_processor_overwrote_is_left_out_on_all() -> None:
    """The I/Os of the one that was busy were missing among the others' without a word."""
    text = kernels(lambda io: io % 2 == 0 or io >= 30, "##### CPU 0 buffer started ####\n")
    place = text.index("            java-697     [001]")
    ios = parse_trace(f"{text[:place]}##### CPU 1 buffer started ####\n{text[place:]}", "t")
    assert ios["at_s"].to_pylist() == [float(io) for io in range(31, 60)]
    assert ios["done_s"].null_count == 0


def test_a_line_that_was_cut_is_no_io_that_took_no_time() -> None:
    """What it had waited in the queue was taken for what it took."""
    cut = text("biosnoop").rstrip()[: -len("  1.00")]
    assert parse_trace(cut, "t")["bytes"].to_pylist() == [4096, 16_384]


def test_an_io_that_no_scheduler_queued_is_one() -> None:
    """As libbpf-tools prints it with -Q: all of an NVMe device without a scheduler were passed over."""
    direct = text("biosnoop").replace("  0.01  ", "-1.000  ")
    assert parse_trace(direct, "t")["bytes"].to_pylist() == [4096, 16_384, 131_072]


def test_the_pattern_that_biosnoop_prints_is_no_size() -> None:
    """``-P`` of bcc, which leaves no room beside a large size: its lines were passed over."""
    patterns = text("biosnoop").replace("4096   ", "4096   S ").replace("131072 ", "1048576R ")
    ios = parse_trace(patterns.replace("16384  ", "16384  ? "), "t")
    assert ios["bytes"].to_pylist() == [4096, 16_384, 2**20]


def test_periods_of_perf_are_passed_over() -> None:
    """``perf script -F +period`` was said to be no trace."""
    periods = text("perf-script").replace("    block:", "  1 block:")
    assert parse_trace(periods, "t").equals(trace("perf-script"))


def test_an_io_of_no_bytes_in_a_log_of_fio_is_none() -> None:
    lines = [f"{at} /dev/vdb read 4096 {size}" for at, size in enumerate((0, 2**32, 512))]
    ios = parse_trace("\n".join(("fio version 3 iolog", *lines)), "t")
    assert ios["bytes"].to_pylist() == [512]


def test_files_that_fio_laid_into_one_folder_are_on_one_volume() -> None:
    """``nrfiles=2``: one file was to be named, and the limits were those of its part of the I/Os."""
    lines = "1 /data/j.0.0 read 0 4096\n2 /data/j.0.1 read 4096 4096\n3 /data/j.0.1 read 8192 4096\n"
    ios = parse_trace(f"fio version 3 iolog\n{lines}", "t")
    assert ios["device"].to_pylist() == ["/data"] * 3
    assert access_of(ios).continuing == pytest.approx(1 / 3)  # not after the end of the other file
    with pytest.raises(FormatError, match="of 2 devices; name one with --device: /data, /other"):
        parse_trace(f"fio version 3 iolog\n{lines}4 /other/j.1.0 read 0 4096", "t")


@pytest.mark.parametrize("tool", ["iolog-v3", "blkparse", "biosnoop"])
def test_two_recordings_in_one_file_are_not_taken_for_one(tool: str) -> None:
    """fio adds to a file that is there: both were laid over each other, twice as many I/Os a second."""
    other = text(tool).replace("10.000900", "10.000800").replace("1,        4KiB", "2,        8KiB")
    with pytest.raises(FormatError, match="twice: 2 recordings, each with its own clock"):
        parse_trace(text(tool) + other, "twice")


def test_times_since_the_event_before_are_no_clock() -> None:
    """``perf script --deltatime``: events were put in the order of these, and seconds had any number."""
    lines, now_s = [], 0.0
    for line in text("perf-script").splitlines():
        seconds = float(re.search(r"\d+\.\d{6}", line)[0])
        lines.append(re.sub(r"\d+\.\d{6}", f"{seconds - (now_s or seconds):.6f}", line))
        now_s = seconds
    with pytest.raises(FormatError, match=r"t: its times are since the event before; .* --deltatime"):
        parse_trace("\n".join(lines), "t")


@pytest.mark.parametrize("tool", ["perf-script", "blkparse"])
def test_a_long_trace_takes_at_most_five_times_its_size_of_memory(tool: str) -> None:
    """It was more than seven times, of a trace that may have a GiB."""
    long = "".join(text(tool).replace(" 223490 + ", f" {n * 800} + ") for n in range(500))
    parse_trace(text(tool), "t")  # what is compiled or imported for the first time is no part of it
    tracemalloc.start()
    parse_trace(long, "t")
    lost_events(long)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * len(long)


@pytest.mark.parametrize(
    "other", ["", "nothing of the kind", "259,0 R", "fio version 3 iolog\n", "9" * 10**6]
)
def test_other_text_has_no_ios(other: str) -> None:
    assert parse_trace(other, "t").num_rows == 0


def test_the_pattern_of_a_trace() -> None:
    """Two streams in turn, of which each I/O continues its own; always two in flight, each for 2 ms."""
    plain = {"arm": "", "device": "d", "op": "read", "path_s": 0.0, "bytes": 16 * KIB}
    rows = [
        {
            **plain,
            "at_s": n * 1e-3,
            "done_s": n * 1e-3 + 1.999e-3,
            "offset": (n % 2) * GIB + n // 2 * 16 * KIB,
        }
        for n in range(100)
    ]
    of = access_of(pa.Table.from_pylist(rows, schema=TRACE))
    assert (of.ios, of.bytes, of.median_bytes) == (100, 1600 * KIB, 16 * KIB)
    assert of.continuing == 0.98
    assert of.in_flight == pytest.approx(1.99)
    assert of.p99_s == pytest.approx(1.999e-3)
    assert of.ahead is None


def test_an_io_that_continues_one_of_long_ago_continues_none() -> None:
    offsets = [0, *((n + 1) * GIB for n in range(64)), 16 * KIB]
    plain = {"arm": "", "device": "d", "op": "read", "path_s": 0.0, "bytes": 16 * KIB}
    rows = [{**plain, "at_s": float(n), "offset": offset} for n, offset in enumerate(offsets)]
    assert access_of(pa.Table.from_pylist(rows, schema=TRACE)).continuing == 0.0


def test_a_trace_without_completions_says_nothing_of_depth_or_time() -> None:
    of = access_of(trace("iolog-v3"))
    assert (of.in_flight, of.median_s) == (None, None)


def test_a_trace_of_a_moment_says_nothing_of_use() -> None:
    with pytest.raises(FormatError, match="less than two seconds"):
        intervals_of(trace("blkparse").slice(0, 1))
    without_waits = "".join(line for line in text("iolog-v2").splitlines(True) if "wait" not in line)
    with pytest.raises(FormatError, match="iolog of version 3"):  # as fio itself writes version 2
        intervals_of(parse_trace(without_waits, "t"))


@pytest.mark.parametrize("seconds", [600_000, 700_000])
def test_a_trace_whose_clock_jumps_is_replayed_at_once_or_refused(seconds: int) -> None:
    line = "{0}000000 /dev/a read 0 4096"
    ios = parse_trace("\n".join(("fio version 3 iolog", line.format(1), line.format(seconds))), "t")
    began_s = time.process_time()
    with pytest.raises(FormatError, match="more than a week") if seconds == 700_000 else nullcontext():
        usage_options(intervals_of(ios), GP3, region="us-east-1")
    assert time.process_time() - began_s < 20


def test_usage_shows_the_pattern_of_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", str(GOLDEN / "blkparse.txt"), "--size", "500GiB"]) == 0
    out = capsys.readouterr().out
    assert "What the trace's I/Os do" in out
    assert "0.55 ms" in out
    assert "whole I/Os are missing" in out


@pytest.mark.parametrize("form", RENDERERS)
def test_every_format_says_what_a_trace_does_not_tell(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV and JSON did not: times and depths are of whole I/Os alone there, too."""
    assert main(["usage", str(GOLDEN / "iolog-v3.txt"), "--size", "500GiB", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "It has no I/O with both issue and completion" in out
    assert "although the trace has places" in out
    assert not any(said in out for said in ("as the log does not say", "are not in the log"))


def test_what_goes_before_a_races_requests_is_no_use_of_its_volume(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its index is copied to the volume at 250 MiB/s before: for that the limit was reached."""
    made = recorded()
    first = made.telemetry.slice(0, 1).to_pylist()[0]
    times_s = [first["at_s"] - 60 + n / 1000 for n in range(2000)]
    copied = [{**first, "at_s": s, "done_s": s, "op": "write", "bytes": 256 * KIB} for s in times_s]
    trace = pa.concat_tables([pa.Table.from_pylist(copied, TRACE), made.telemetry])
    folder = folder_of(home, replace(made, telemetry=trace))
    assert main(["usage", folder.path.name, "--size", "100GiB", "--types", "gp3"]) == 0
    out = capsys.readouterr().out
    assert "125 MiB/s is the cheapest that stays below its limits: that of today." in out
    assert "A race: its volume is looked at from the first measured request" in out


def test_a_session_is_taken_by_its_name_and_has_the_size_of_its_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`usage latest` was no such file, and the size of a folder's volume was asked for though it says it."""
    monkeypatch.setenv("ESRALLY_EBS_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path, recorded())
    for name in ("latest", "s1", "sessions/s1"):
        assert main(["usage", name, "--types", "gp3"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage of {name.replace('latest', 's1')}: 49 intervals")
        assert "gp3 100 GiB, 3,000 IOPS, 125 MiB/s (today)" in out
    assert main(["usage", "latest", "--size", "1000GiB", "--type", "gp2"]) == 0
    assert "gp2 1000 GiB (today)" in capsys.readouterr().out
    (tmp_path / "iostat.txt").write_text("")
    for words, says in (
        (["latest", "--iops", "4000"], "--type, --iops, --throughput: the session has its own; give --size"),
        (["latest", "--device", "sda"], "--device: a recording's folder is taken whole; leave it out"),
        (["iostat.txt"], "--size: no log says how large its volume is; write for example --size 500GiB"),
        (["gone.txt", "--size", "1GiB"], "gone.txt: No such file or directory; name a file that can be read"),
        (["gone", "--size", "1GiB"], "gone: no such file; session 'gone': not found in "),
    ):
        assert main(["usage", *words]) == 2
        assert capsys.readouterr().err.startswith(f"esrally-ebs: {says}")


def test_usage_says_that_a_trace_lost_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``trace --from`` said so; here limits seemed to be reached less often."""
    log = tmp_path / "blkparse.txt"
    log.write_text(f"{text('blkparse')}\nSkips: 5 forward (1,234 -  10.0%)\n")
    assert main(["usage", str(log), "--size", "500GiB"]) == 0
    assert "1,234 events were lost" in capsys.readouterr().out
