"""What a log says that a volume did, on other volumes' limits."""

import gzip
import json
import re
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from esrally_ebs.advice.advice import usage_options
from esrally_ebs.advice.usage import Interval, columns_of, parse_usage, replay_usage, usage_notes
from esrally_ebs.advice.usage_tables import build_usage
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.units import GIB, KIB, MIB

GP3 = VolumeSpec(name="a", type="gp3", size_bytes=500 * GIB, iops=16_000, throughput_bytes_per_s=1000 * MIB)
QUIET = Interval(seconds=60, reads=60_000, read_bytes=60_000 * 16 * KIB, writes=0, written_bytes=0)
BUSY = replace(QUIET, reads=60 * 5000, read_bytes=60 * 5000 * 16 * KIB)

IOSTAT = """Linux 6.1.0 (host)  11/22/2026  _x86_64_  (2 CPU)

11/22/2026 11:59:50 PM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
nvme1n1         99.00   9999.00     0.00   0.00    0.50    16.00    1.00      4.00

11/23/2026 12:00:00 AM
avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           1.00    0.00    1.00    0.00    0.00   98.00

Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s
nvme1n1       1000.00  16000.00     0.00   0.00    0.50    16.00   10.00     40.00
"""
SAR = """12:00:01          DEV       tps     rkB/s     wkB/s   areq-sz
12:10:01      nvme1n1    100.00   1600.00      0.00     16.00
12:20:01      nvme1n1    200.00   3200.00      0.00     16.00
Average:      nvme1n1    150.00   2400.00      0.00     16.00
"""
METRICS = ("VolumeReadOps", "VolumeReadBytes", "VolumeWriteOps", "VolumeWriteBytes")
TIMES = ["2026-11-22T10:00:00+00:00", "2026-11-22T10:01:00+00:00"]
CLOUDWATCH = json.dumps(
    {
        "MetricDataResults": [
            {"Label": f"vol-1 Volume{metric}", "Timestamps": TIMES, "Values": values}
            for metric, values in (
                ("ReadOps", [600, 1200]),
                ("ReadBytes", [6000, 12_000]),
                ("WriteOps", [0, 1]),
                ("WriteBytes", [0, 512]),
            )
        ]
    }
)


@pytest.fixture
def iostat(tmp_path: Path) -> Path:
    (path := tmp_path / "iostat.txt").write_text(IOSTAT)
    return path


def test_iostat_is_read_over_midnight_and_without_its_first_report() -> None:
    assert parse_usage(IOSTAT, "log") == [
        Interval(seconds=10, reads=10_000, read_bytes=16_000 * KIB * 10, writes=100, written_bytes=400 * KIB)
    ]


def as_json(text: str, *, before_12: bool = False) -> str:
    """What ``iostat -o JSON`` says instead of this text."""
    reports = []
    for report in text.split("\n\n")[1::2]:
        time = report.splitlines()[0]
        reports.append({"timestamp": time, "avg-cpu": {"user": 1.0}})
    for report, lines in zip(reports, text.split("\n\n")[2::2], strict=True):
        titles, values = (line.split() for line in lines.splitlines())
        names = [title.removesuffix("/s") for title in titles] if before_12 else titles
        numbers = dict(zip(names[1:], map(float, values[1:]), strict=True))
        report["disk"] = [{"disk_device": values[0], **numbers}]
    return json.dumps({"sysstat": {"hosts": [{"nodename": "host", "statistics": reports}]}})


@pytest.mark.parametrize("before_12", [False, True])
def test_json_of_iostat_is_read_as_its_text_is(before_12: bool) -> None:
    assert parse_usage(as_json(IOSTAT, before_12=before_12), "log") == parse_usage(IOSTAT, "log")
    with pytest.raises(FormatError, match="log: no report of a device between two times of day"):
        parse_usage(re.sub(r'"timestamp": "[^"]*", ', "", as_json(IOSTAT)), "log")
    with pytest.raises(FormatError, match="log: JSON, but neither of get-metric-data nor of sysstat"):
        parse_usage('{"sysstat": {"hosts": 3}}', "log")


def test_sectors_that_json_calls_kilobytes_are_sectors() -> None:
    """By iostat of sysstat 12.1.2 to 12.2.0 (Ubuntu 20.04): bytes were twice as many, with -m 2,048 times."""
    disks = (
        {"r/s": 6.0, "w/s": 59.0, "rMB/s": 296.0, "wMB/s": 448.0, "rareq-sz": 24.67, "wareq-sz": 3.80},
        {"tps": 65.0, "kB/s": 744.0, "rqm/s": 0.0, "areq-sz": 5.72},
    )
    for disk in disks:
        reports = [{"timestamp": f"10:00:{n}0", "disk": [{"disk_device": "vda"} | disk]} for n in (1, 2)]
        (one,) = parse_usage(json.dumps({"sysstat": {"hosts": [{"statistics": reports}]}}), "log")
        assert one.read_bytes + one.written_bytes == pytest.approx(10 * 372 * KIB, rel=1e-3)


def test_of_json_without_sizes_it_is_said_that_kilobytes_may_be_sectors() -> None:
    (note,) = usage_notes('{"sysstat": {"disk": [{"tps": 119.81, "kB_read/s": 2256.52}]}}')
    assert "half as many" in note
    assert not usage_notes(as_json(IOSTAT))
    assert not usage_notes("Device tps kB_read/s")


SADF = """# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz
h;600;2026-11-22 12:10:01 UTC;nvme1n1;100,00;1600,00;0,00;16,00
h;600;2026-11-22 12:10:01 UTC;nvme0n1;9,00;90,00;0,00;16,00
h;-1;2026-11-22 12:10:05 UTC;LINUX-RESTART\t(2 CPU)
h;600;2026-11-22 12:20:01 UTC;nvme1n1;200,00;3200,00;0,00;16,00
"""


def test_sadf_says_for_how_long_each_of_its_lines_is() -> None:
    """A month of ``sar`` as many keep it: it was said to be no report, or neither of iostat."""
    assert parse_usage(SADF, "log", "nvme1n1") == SAR_READ
    in_one_line = SADF.replace("16,00\nh;600;2026-11-22 12:10:01 UTC;nvme0", "16,00;nvme0")  # -h
    assert parse_usage(in_one_line.replace("areq-sz", "areq-sz[...]"), "log", "nvme1n1") == SAR_READ
    later_day_first = "".join(SADF.splitlines(keepends=True)[i] for i in (0, 4, 1, 2, 3))
    assert parse_usage(later_day_first, "log", "nvme1n1") == SAR_READ
    assert parse_usage(re.sub(r"2026\S+ 12:([12])0:01 UTC", r"179534\g<1>600", SADF), "log", "nvme1n1")
    assert parse_usage(SADF.replace("UTC", "CEST"), "log", "nvme1n1") == SAR_READ  # -T
    reports = [
        {
            "timestamp": {"date": "2026-11-22", "time": f"12:{n}0:01", "utc": 1, "interval": 600},
            "disk": [{"disk-device": "nvme1n1", "tps": n * 100.0, "rkB": n * 1600.0, "wkB": 0.0, "util": 1}],
        }
        for n in (1, 2)
    ]
    document = {"sysstat": {"hosts": [{"nodename": "h", "statistics": reports}]}}
    assert parse_usage(json.dumps(document), "log") == SAR_READ
    since_epoch = re.sub(  # -U
        r'"2026-11-22", "time": "12:(\d)0:01"',
        lambda time: f'"", "time": "{1795341000 + 600 * int(time[1])}"',
        json.dumps(document),
    )
    assert parse_usage(since_epoch, "log") == SAR_READ
    older = json.dumps(document).replace('"rkB"', '"rd_sec"').replace('"wkB"', '"wr_sec"')
    assert parse_usage(older, "log")[0].read_bytes == 1600 * 512 * 600


SAR_READ = [
    Interval(seconds=600, reads=n * 60_000, read_bytes=n * 1600 * KIB * 600, writes=0, written_bytes=0)
    for n in (1, 2)
]


def test_sar_is_read_from_its_first_report_on_and_without_its_averages() -> None:
    assert parse_usage(SAR, "log") == SAR_READ


def test_of_days_of_sar_what_lies_between_them_is_no_part_of_the_first_report() -> None:
    """Its rate was taken for all of the time since the last report of the day before."""
    restart = "12:25:00     LINUX RESTART  (2 CPU)\n\n"
    later = SAR.replace("12:00", "14:00").replace("12:10", "14:10").replace("12:20", "14:20")
    assert parse_usage(f"{SAR}\n{restart}{later}", "log") == [*SAR_READ, idle(6000), *SAR_READ]


def idle(seconds: float) -> Interval:
    """In which nothing was done."""
    return Interval(seconds=seconds, reads=0, read_bytes=0, writes=0, written_bytes=0)


def test_of_runs_that_were_added_to_one_log_the_first_reports_are_left_out() -> None:
    """What iostat says of the time since the machine started was taken for what was done between two runs."""
    later = IOSTAT.replace("11:59:50 PM", "09:00:00 AM").replace("12:00:00", "09:00:10")
    assert parse_usage(f"{IOSTAT}\n{later}", "log") == 2 * parse_usage(IOSTAT, "log")
    without_times = re.sub(r"\n\d\d/.*", "", IOSTAT)
    assert parse_usage(f"{IOSTAT}\n{without_times}", "log") == parse_usage(IOSTAT, "log")


@pytest.mark.parametrize("tables", [1, 2])
def test_other_tables_of_sar_are_passed_over(tables: int) -> None:
    """``sar -A``, by whole tables as ``sa2`` keeps it or by reports: times seemed to run backwards."""
    titles, first, second, average = SAR.splitlines()
    of_cpu = titles.replace("DEV", "CPU"), first.replace("nvme1n1", "all"), second.replace("nvme1n1", "all")
    if tables == 1:
        lines = [*of_cpu, average, "", titles, first, second, average]
    else:
        reports = of_cpu[:2], (titles, first), (of_cpu[0], of_cpu[2]), (titles, second)
        lines = [line for report in reports for line in ("", *report)]
        lines[6:] = [line.replace("12:00:01", "12:10:01") for line in lines[6:]]
    assert parse_usage("\n".join(lines), "log") == SAR_READ


@pytest.mark.parametrize(
    ("before", "after"), [("01:59:50", "03:00:00"), ("02:59:50", "02:00:00"), ("00:59:49", "00:00:00")]
)
def test_a_report_is_as_long_as_the_last_one_where_clocks_are_put_on_or_back(before: str, after: str) -> None:
    """In spring it was taken for one of an hour more, and in autumn times seemed to run backwards."""
    first = f"{before[:6]}{int(before[6:]) - 10}"
    report = IOSTAT[IOSTAT.index("11/23/2026") :]
    text = "\n".join(
        report.replace("11/23/2026 12:00:00 AM", f"2026-10-25T{time}+0100") for time in (first, before, after)
    )
    assert [one.reads for one in parse_usage(text, "log")] == [10_000, 10_000]


def test_sar_whose_devices_come_last_is_read() -> None:
    """``sar -dp``, as many know it: it was said to have no times."""
    moved = re.sub(r"^(\S+) +(\S+) +(.*)$", r"\1 \3 \2", SAR, flags=re.MULTILINE)
    assert parse_usage(moved, "log") == SAR_READ


@pytest.mark.parametrize("average", ["Average:", "Moyenne :"])
@pytest.mark.parametrize("last", [False, True])
def test_averages_of_sar_have_titles_and_are_left_out(average: str, last: bool) -> None:
    """Of devices that come last, and in French: they were said to be no numbers."""
    text = "\n".join([*SAR.splitlines()[:3], SAR.splitlines()[0], SAR.splitlines()[3]])
    if last:
        text = re.sub(r"^(\S+) +(\S+) +(.*)$", r"\1 \3 \2", text, flags=re.MULTILINE)
    head, averages = text.rsplit("12:00:01", 1)
    assert parse_usage(f"{head}{average}{averages.replace('Average:', average)}", "log") == SAR_READ


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("12:59:50 pm", "01:00:00 pm"),
        ("11:59:50 p.m.", "12:00:00 a.m."),
        ("12:59:50 p. m.", "1:00:00 p. m."),
        ("12:59:50\u202fPM", "01:00:00\u202fPM"),
        ("23時59分50秒", "00時00分00秒"),
        ("23时59分50秒", "00时00分00秒"),
        ("23시 59분 50초", "00시 00분 00초"),
        ("9:59:50 AM", "10:00:00 AM"),  # each hour before ten was passed over
        ("12:59:50 PM", "1:00:00 PM"),
        ("11:59:50 PM IST", "12:00:00 AM IST"),
        ("23:59:50 +04", "00:00:00 +04"),
    ],
)
def test_times_of_day_are_read_as_other_languages_write_them(before: str, after: str) -> None:
    text = IOSTAT.replace("11:59:50 PM", before).replace("12:00:00 AM", after)
    assert parse_usage(text, "log") == parse_usage(IOSTAT, "log")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("22.11.2026 23.59.50", "23.11.2026 00.00.00"),
        ("22.11.26 23:59:50", "23.11.26 00:00:00"),  # whose dates are no times
        ("1795391990", "1795392000"),
    ],
)
def test_times_of_finland_and_since_the_epoch_are_read(before: str, after: str) -> None:
    """``iostat -U`` and a Finnish clock: no report was seen between two times of day."""
    text = re.sub(r"11/23/.*", after, re.sub(r"11/22/.* PM", before, IOSTAT))
    assert parse_usage(text, "log") == parse_usage(IOSTAT, "log")
    finnish = re.sub(r"(\d\d):(\d\d):", r"\1.\2.", SAR.replace(".00", ",00"))
    assert parse_usage(finnish, "log") == SAR_READ


def test_a_long_log_takes_at_most_five_times_its_size_of_memory() -> None:
    """It was nine times, of a month of five devices."""
    others = " ".join(f"d{n}" for n in range(14))
    report = IOSTAT[IOSTAT.index("11/23/2026") :].replace("w/s     wkB/s", f"w/s wkB/s {others}")
    report = report.replace("40.00", "40.00" + 14 * "    0.10").replace("11/23/2026 12:00:00 AM", "{}")
    long = "".join(report.format(timedelta(seconds=n)) for n in range(3000))
    tracemalloc.start()
    assert len(parse_usage(long, "log")) == 2999
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * len(long)


def test_what_is_no_text_is_passed_over() -> None:
    """Zeros where the machine went down (and of iostat 11.6.0), and colours: no number was seen."""
    text = IOSTAT.replace("1000.00", "\x1b[34;22m1000.00\x1b[0m").replace("0.50 ", "0.50\0 ")
    assert parse_usage(text.replace("\n\n", "\n" + "\0" * 99 + "\n"), "log") == parse_usage(IOSTAT, "log")


def test_days_are_not_laid_over_each_other_where_times_name_a_zone() -> None:
    """As in India, Hong Kong or the Philippines: of a month of ``iostat`` one day was left."""
    report = IOSTAT[IOSTAT.index("11/23/2026") :]
    times = ("10:00:00 AM IST", "10:00:00 PM IST") * 3
    text = "\n".join(report.replace("12:00:00 AM", time) for time in times)
    assert sum(one.seconds for one in parse_usage(text, "log")) == 5 * 12 * 3600
    greek = [f"{hour}:00 μμ" for hour in ("12:40", "12:50", "01:00")]  # of which half of the day is not read
    text = "\n".join(report.replace("12:00:00 AM", time) for time in greek)
    assert [one.seconds for one in parse_usage(text, "log")] == [600, 600]
    with pytest.raises(FormatError, match=r"from 12:50:00 to 1:00:00.*24 hours"):
        parse_usage(text[text.index("12:50") :], "log")


@pytest.mark.parametrize("zone", ["UTC", "+04"])
def test_a_zone_in_lines_of_sar_is_no_device(zone: str) -> None:
    """They were refused: could not convert string to float: 'nvme1n1'."""
    lines = [*SAR.splitlines()[:2], "12:13:00 COM moved to new disks", *SAR.splitlines()[2:]]
    text = "\n".join(re.sub(r"^(12:\S+)", rf"\1 AM {zone}", line) for line in lines)
    assert parse_usage(text, "log") == SAR_READ


@pytest.mark.parametrize(("unit", "size"), [("kB", KIB), ("MB", MIB), ("Blk", 512)])
def test_iostat_without_x_tells_no_writes_from_reads_but_how_much(unit: str, size: int) -> None:
    """It was said not to say how many bytes."""
    report = f"Device tps {unit}_read/s {unit}_wrtn/s {unit}_read {unit}_wrtn\nnvme1n1 9.00 30.00 12.00 9 9\n"
    text = re.sub(r"Device(.*\n)+?nvme1n1.*\n", report, IOSTAT)
    assert parse_usage(text, "log") == [
        Interval(seconds=10, reads=90, read_bytes=420 * size, writes=0, written_bytes=0)
    ]


PRETTY = """     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device
 1000.00     15.6M     0.00   0.0%    0.50    16.0k nvme1n1

     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz Device
   10.00     40.0k     0.00   0.0%    0.50     4.0k nvme1n1
"""
SHORT = """Device             tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util
nvme1n1        1010.00  16040.00     0.00    0.50    15.88    0.51   4.00
"""


def test_iostat_for_human_readers_is_read_though_it_rounds() -> None:
    """``-h``: "could not convert string to float"; reads and writes are in tables of their own."""
    (one,) = parse_usage(re.sub(r"Device(.*\n)+?nvme1n1.*\n", PRETTY, IOSTAT), "log")
    assert (one.reads, one.writes, one.written_bytes) == (10_000, 100, 400 * KIB)
    assert one.read_bytes == pytest.approx(15.6 * MIB * 10)
    (megabytes,) = parse_usage(re.sub("([rw])kB", r"\1MB", IOSTAT).replace("16000.00", "15.6M"), "log")
    assert megabytes.read_bytes == pytest.approx(15.6 * MIB * 10)
    human = SAR.replace("1600.00", "   1.6M").replace("0.00     16.00", "0.0k     16.0k")
    assert parse_usage(human, "log")[0].read_bytes == pytest.approx(1.6 * MIB * 600)


def test_a_device_whose_numbers_are_in_the_line_below_is_read() -> None:
    """``-h`` before sysstat 12: it was said to be no report of a device."""
    below = re.sub(r"^nvme1n1 ", "nvme1n1\n" + 13 * " ", IOSTAT, flags=re.MULTILINE)
    assert parse_usage(below, "log") == parse_usage(IOSTAT, "log")


def test_short_reports_of_iostat_have_reads_and_writes_in_one() -> None:
    """``-s``: its columns were said not to say how many I/Os and bytes."""
    text = re.sub(r"Device(.*\n)+?nvme1n1.*\n", SHORT, IOSTAT)
    both = Interval(seconds=10, reads=10_100, read_bytes=16_040 * KIB * 10, writes=0, written_bytes=0)
    assert parse_usage(text, "log") == [both]
    apart = SHORT.replace("     kB/s    rqm/s", "kB_read/s kB_w+d/s").replace("    0.00 ", "  100.00 ", 1)
    text = re.sub(r"Device(.*\n)+?nvme1n1.*\n", apart, IOSTAT)
    assert parse_usage(text, "log") == [replace(both, read_bytes=16_140 * KIB * 10)]


def test_comments_in_sar_end_no_report() -> None:
    """``-C``: one of as many words as there are columns was refused as no number, others cut a report."""
    lines = SAR.splitlines(keepends=True)
    for said in ("moved", "moved to new disks"):
        lines.insert(2, f"12:13:00     COM {said}\n")
        assert parse_usage("".join(lines), "log") == SAR_READ


def test_a_device_that_iostat_leaves_out_while_it_is_idle_did_nothing_meanwhile() -> None:
    """``iostat -z``: the next rate was taken for all of the time since it was last there."""
    report = IOSTAT[IOSTAT.index("11/23/2026") :]
    other = report.replace("nvme1n1", "sda").replace("12:00:00", "12:00:10")
    text = f"{IOSTAT}\n{other}\n{report.replace('12:00:00', '12:00:20')}"
    (before, between, after) = parse_usage(text, "log", device="nvme1n1")
    assert before == after
    assert after.seconds == 10
    assert between == idle(10)


def test_what_sar_wrote_counts_although_it_tells_no_writes_from_reads() -> None:
    """250 MiB/s, most of them written, were said to stay below 125."""
    text = SAR.replace("     0.00     16.00", "192000.00     16.00")
    assert parse_usage(text, "log")[1] == replace(SAR_READ[1], read_bytes=195_200 * KIB * 600)


def test_sectors_of_an_older_sysstat_are_bytes_too() -> None:
    sar = SAR.replace("   rkB/s     wkB/s", "rd_sec/s  wr_sec/s").replace("0.00     16.00", "100.00   16.00")
    assert parse_usage(sar, "log")[1].read_bytes == 3300 * 512 * 600
    iostat = IOSTAT.replace("rkB/s", "rsec/s").replace("wkB/s", "wsec/s")
    assert parse_usage(iostat, "log")[0].written_bytes == 40 * 512 * 10


@pytest.mark.parametrize("title", ["rkB/s", "wkB/s", "tps"])
def test_a_log_without_a_column_that_counts_is_refused_rather_than_no_load(title: str) -> None:
    with pytest.raises(FormatError, match="log: its columns do not say how many I/Os and bytes"):
        parse_usage(SAR.replace(title, "other"), "log")


def test_cloudwatch_is_read_by_its_labels() -> None:
    first, second = parse_usage(CLOUDWATCH, "log")
    assert (first.seconds, first.reads, first.written_bytes) == (60, 600, 0)
    assert (second.read_bytes, second.writes) == (12_000, 1)


# "sar -b", which has times and the I/Os of all devices together
SAR_B = "12:00:01  tps  rtps  wtps  bread/s  bwrtn/s\n12:10:01  9.0  4.0  5.0  32.0  40.0\n"


@pytest.mark.parametrize(
    ("text", "device", "says"),
    [
        *((text, None, "log: ") for text in ("", "{}", "nothing of the kind", IOSTAT[:400])),
        ('{"MetricDataResults": []}', None, "log: "),
        (CLOUDWATCH[:-2], None, "log: no whole JSON, .* line 1 .* copy it when what writes it has ended"),
        ('{"MetricDataResults": {"a": 1}}', None, "neither of get-metric-data nor of sysstat"),
        (SAR.replace("12:10:01", "12:30:01"), None, "times run backwards, from 12:30:01 to 12:20:01; give"),
        (IOSTAT + IOSTAT.replace("nvme1n1", "nvme2n1"), None, "nvme1n1, nvme2n1"),
        (IOSTAT.replace(" 1000.00", " 1000.x0"), None, "log: '1000.x0' is no number of r/s; give"),
        (IOSTAT, "sdz", "log: nothing of device sdz; it has nvme1n1"),
        (SAR_B, None, r"between two times of day.*text of sar -d \(sar -b names no device\)"),
    ],
)
def test_anything_else_is_refused_with_its_name(text: str, device: str | None, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse_usage(text, "log", device)


@pytest.mark.parametrize("amount", ["nan", "-5", "1e308"])
def test_what_is_no_amount_is_refused_rather_than_no_load(amount: str) -> None:
    with pytest.raises(FormatError, match=r"x: .* is no amount \(interval 1\)"):
        parse_usage(IOSTAT.replace("16000.00", amount), "x")


def test_a_month_of_cloudwatch_comes_in_pages() -> None:
    """The AWS CLI puts the results of all pages into one list: the last page stood for the month."""
    document = json.loads(CLOUDWATCH)
    first = document["MetricDataResults"]
    later = [{**one, "Timestamps": [time.replace("T10", "T11") for time in TIMES]} for one in first]
    both = parse_usage(json.dumps({"MetricDataResults": first + later}), "log")
    assert [one.reads for one in both] == [600, 1200, 0, 600, 1200]
    assert both[2] == idle(3480)


def statistics(kind: str = "Sum") -> str:
    """The four answers of get-metric-statistics, the newest value first, added to one file."""
    answers = [
        {
            "Label": result["Label"].removeprefix("vol-1 "),
            "Datapoints": [
                {"Timestamp": time, kind: value, "Unit": "Count"}
                for time, value in reversed(list(zip(TIMES, result["Values"], strict=True)))
            ],
        }
        for result in json.loads(CLOUDWATCH)["MetricDataResults"]
    ]
    return "\n".join(json.dumps(answer, indent=1) for answer in answers)


def test_answers_of_cloudwatch_that_were_added_to_one_file_are_read_together() -> None:
    """They were said to be extra data; those of get-metric-statistics are of one metric each."""
    assert parse_usage(statistics(), "log") == parse_usage(CLOUDWATCH, "log")
    pages = CLOUDWATCH + "\n" + CLOUDWATCH.replace("T10", "T11")
    assert [one.reads for one in parse_usage(pages, "log")] == [600, 1200, 0, 600, 1200]
    assert parse_usage(f"[{CLOUDWATCH}]", "log") == parse_usage(CLOUDWATCH, "log")
    with pytest.raises(FormatError, match=r"log: VolumeReadOps: no sums; ask .* for --statistics Sum"):
        parse_usage(statistics("Average"), "log")


@pytest.mark.parametrize(
    ("metric", "changed", "says"),
    [
        (0, {"Values": [0, 0]}, "of VolumeReadOps and VolumeReadBytes one has nothing"),
        (3, {"Values": [], "Timestamps": []}, "of VolumeWriteOps and VolumeWriteBytes one has nothing"),
        (0, {"StatusCode": "Forbidden"}, "vol-1 VolumeReadOps: not answered, Forbidden; ask again"),
        (0, {"StatusCode": "PartialData"}, r"vol-1 VolumeReadOps: a part of an answer \(PartialData\)"),
    ],
)
def test_sums_that_cloudwatch_does_not_give_are_not_taken_for_none(
    metric: int, changed: dict[str, object], says: str
) -> None:
    """Bytes of no I/Os reach no limit, and I/Os of no bytes none of throughput."""
    document = json.loads(CLOUDWATCH)
    document["MetricDataResults"][metric].update(changed)
    with pytest.raises(FormatError, match=f"log: {says}"):
        parse_usage(json.dumps(document), "log")


def test_a_page_of_cloudwatch_is_not_taken_for_the_month() -> None:
    page = json.dumps({**json.loads(CLOUDWATCH), "NextToken": "abc"})
    with pytest.raises(FormatError, match=r"log: a page of an answer \(NextToken\) without the last one"):
        parse_usage(page, "log")
    both = parse_usage(page + CLOUDWATCH.replace("T10", "T11"), "log")
    assert [one.reads for one in both] == [600, 1200, 0, 600, 1200]


def answer(minute: int, count: int, step: int, ios: float, metrics: Sequence[str] = METRICS) -> str:
    """An answer of get-metric-data: so many periods of ``step`` minutes."""
    began = datetime(2026, 11, 22, tzinfo=UTC) + timedelta(minutes=minute)
    times = [(began + n * timedelta(minutes=step)).isoformat() for n in reversed(range(count))]
    result = {"Timestamps": times, "Values": [ios] * count}
    return json.dumps({"MetricDataResults": [{"Label": name, **result} for name in metrics]})


def test_answers_of_other_periods_are_each_of_their_own() -> None:
    """CloudWatch keeps no minutes of the first weeks of a month: five minutes' sums were taken for one's."""
    month = parse_usage(answer(0, 12, 5, 300) + answer(60, 20, 1, 60), "log")
    assert [(one.seconds, one.reads) for one in month] == [(300, 300)] * 12 + [(60, 60)] * 20
    few_and_apart = parse_usage(answer(0, 3, 7, 60) + answer(60, 20, 1, 60), "log")
    assert few_and_apart[0].seconds == 60


def test_metrics_that_were_asked_for_a_minute_later_are_not_laid_beside_the_others() -> None:
    """Periods begin when an answer does: two hours became four, in which no read met a write."""
    for count in (24, 11):
        reads, writes = answer(0, count, 5, 300, METRICS[:2]), answer(1, count, 5, 300, METRICS[2:])
        with pytest.raises(FormatError, match=r"00:00:00\+00:00 and .*00:01:00.* overlap, each of other"):
            parse_usage(reads + writes, "log")
    assert parse_usage(answer(0, 24, 5, 0) + answer(118, 20, 1, 0), "log")  # minutes from amid the last five


def test_averages_of_cloudwatch_are_not_taken_for_sums() -> None:
    """``get-metric-data`` names no statistic: of five minutes a fifth of the I/Os was left."""
    with pytest.raises(FormatError, match=r"log: VolumeReadOps: 60\.2 is no sum; ask for the statistic Sum"):
        parse_usage(answer(0, 12, 5, 60.2), "log")


def test_times_of_cloudwatch_may_be_seconds_since_the_epoch() -> None:
    text = CLOUDWATCH.replace(f'"{TIMES[0]}"', "1795341600").replace(f'"{TIMES[1]}"', "1795341660.0")
    assert parse_usage(text, "log") == parse_usage(CLOUDWATCH, "log")
    with pytest.raises(FormatError, match="log: "):
        parse_usage(text.replace("1795341600", "1e300"), "log")


def test_two_volumes_of_one_label_are_not_taken_for_pages_of_one() -> None:
    """The second's values stood for both."""
    other = CLOUDWATCH.replace("[600, 1200]", "[6, 12]")
    with pytest.raises(
        FormatError, match=r"log: vol-1 VolumeReadOps: two values of 2026.*; give those of one"
    ):
        parse_usage(CLOUDWATCH + other, "log")


def test_a_volume_whose_name_begins_as_another_does_is_told_from_it() -> None:
    other = CLOUDWATCH.replace("vol-1", "vol-12").replace("[600, 1200]", "[6, 12]")
    assert parse_usage(CLOUDWATCH + other, "log", "vol-1") == parse_usage(CLOUDWATCH, "log")
    with pytest.raises(FormatError, match="log: no sums of VolumeReadOps in whose label vol-2 stands"):
        parse_usage(CLOUDWATCH, "log", "vol-2")


def test_of_several_volumes_of_cloudwatch_one_must_be_named() -> None:
    document = json.loads(CLOUDWATCH)
    other = json.loads(CLOUDWATCH.replace("vol-1", "vol-2").replace("[600, 1200]", "[6, 12]"))
    text = json.dumps({"MetricDataResults": document["MetricDataResults"] + other["MetricDataResults"]})
    with pytest.raises(FormatError, match=r"log: of several volumes, vol-1 .* and vol-2 .*--device"):
        parse_usage(text, "log")
    assert [one.reads for one in parse_usage(text, "log", "vol-2")] == [6, 12]


def test_next_to_no_ios_of_any_size_are_replayed() -> None:
    hardly = replace(QUIET, reads=1e-300, read_bytes=1e300)
    assert replay_usage(columns_of([hardly]), model_for(GP3)).limited_s in (0, 60)


def test_values_without_their_times_are_named() -> None:
    document = json.loads(CLOUDWATCH)
    document["MetricDataResults"][1]["Values"].pop()
    with pytest.raises(FormatError, match=r"log: vol-1 VolumeReadBytes: 2 timestamps for 1 values; give"):
        parse_usage(json.dumps(document), "log")


def test_a_limit_is_reached_until_what_is_owed_is_done() -> None:
    """5,000 a second for a minute on 3,000, which had a second of its rate saved, leaves 117,000 owed."""
    gp3 = model_for(replace(GP3, iops=3000, throughput_bytes_per_s=125 * MIB))
    usage = replay_usage(columns_of([QUIET, BUSY, QUIET, QUIET]), gp3)
    assert usage.at_limit_s == {"iops": 60 + 117_000 / 2000, "throughput": 0.0}
    assert usage.limited_s == 118.5
    assert usage.lowest_credits is None


@pytest.mark.parametrize("lengths", [[60] * 60, [3600]])
def test_credits_come_back_while_a_volume_is_idle_however_long_its_reports_are(lengths: list[int]) -> None:
    """What ``iostat -z`` and CloudWatch leave out was no time: nothing came back, and nothing was done."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([BUSY] * 20 + [idle(seconds) for seconds in lengths] + [QUIET] * 10), gp2)
    assert usage.at_limit_s["credits"] == 2 * 60 + 240_000 / 300  # used up, and then what is owed


@pytest.mark.parametrize(("share", "limited_s"), [(0.90, 0.0), (0.97, 60.0), (1.0, 60.0)])
def test_who_uses_nearly_all_of_a_limit_is_at_it(share: float, limited_s: float) -> None:
    """A log of a volume that was held back never shows more than its limit."""
    gp3 = model_for(replace(GP3, iops=3000, throughput_bytes_per_s=125 * MIB))
    held = replace(QUIET, read_bytes=60 * share * 125 * MIB)
    assert replay_usage(columns_of([QUIET, held]), gp3).at_limit_s == {"iops": 0.0, "throughput": limited_s}


def test_the_baseline_is_no_limit_while_there_are_credits() -> None:
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    baseline = replace(QUIET, reads=300 * 60, read_bytes=300 * 60 * 16 * KIB)
    assert replay_usage(columns_of([baseline] * 60), gp2).limited_s == 0
    assert replay_usage(columns_of([baseline] * 60), gp2, credits=0.0).limited_s == 3600


def test_credits_are_used_up_at_the_rate_beyond_the_baseline() -> None:
    """gp2 of 100 GiB has 300 IOPS and 5.4 million credits: 700 beyond it an hour are 2.52 million."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=100 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([QUIET] * 60), gp2)
    assert usage.lowest_credits == pytest.approx(1 - 2.52 / 5.4)


def test_credits_that_were_left_at_first_are_those_of_every_setting(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could say them: a volume whose balance was used up seemed to burst for half an hour."""
    today = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB, credits=0.0)
    first, *others = usage_options([QUIET] * 10, today, region="us-east-1", types=["gp2"])[0]
    assert first.usage.at_limit_s["credits"] == 600
    assert others[0].usage == first.usage
    command = ["usage", str(iostat), "--size", "100GiB", "--credits"]
    assert main([*command, "0.25", "--type", "gp2"]) == 0
    assert "Credits were 25% full at the start" in capsys.readouterr().out
    for share, says in (("0.25", "gp3 of this size has no burst"), ("nan", "no share"), ("25", "no share")):
        assert main([*command, share, *([] if "gp3" in says else ["--type", "gp2"])]) == 2
        assert says in capsys.readouterr().err


def test_credits_were_never_lower_than_at_first_where_they_grew() -> None:
    """Of 900 GiB whose balance was half full 52 % were said to be the lowest."""
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=900 * GIB, iops=None, throughput_bytes_per_s=None))
    assert replay_usage(columns_of([QUIET] * 60), gp2, credits=0.5).lowest_credits == 0.5


@pytest.mark.parametrize(("idle_s", "hours"), [(0, "2.1"), (60, "7.5"), (240, None)])
def test_a_volume_that_lives_on_credits_is_not_named_without_saying_how_long(
    idle_s: int, hours: str | None
) -> None:
    """Of a log of minutes: gp2 of 100 GiB has 300 of the 1,000 IOPS, and credits of 5.4 million."""
    today = VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB)
    log = [QUIET, idle(idle_s)] * 10
    options, _ = usage_options(log, today, region="us-east-1", types=["gp2"])
    details = build_usage("log", log, options, region="us-east-1").details
    assert details == (
        ()
        if hours is None
        else (
            "gp2 100 GiB lives on burst credits there: on average more is taken than comes back, so they last"
            f" {hours} hours.",
        )
    )


def test_an_instances_credits_are_its_own() -> None:
    spec = replace(GP3, type="gp2", iops=None, throughput_bytes_per_s=None, instance="t3.small")
    full, empty = (
        replay_usage(columns_of([BUSY]), model_for(spec), credits=share).at_limit_s for share in (1.0, 0.0)
    )
    assert {name for name in full if full[name] != empty[name]} == {"credits"}


def test_random_ios_cost_a_disk_a_mebibyte_each() -> None:
    """1,000 a second are 1,000 MiB/s to st1, of 125 MB/s at 500 GiB."""
    st1 = model_for(replace(GP3, type="st1", iops=None, throughput_bytes_per_s=None))
    assert replay_usage(columns_of([QUIET]), st1).at_limit_s["throughput"] == 60.0


@pytest.mark.parametrize(("per_s", "kib_per_s"), [("976.56", "250000.00"), ("1000.00", "250.2M")])
def test_ios_of_the_largest_size_are_one_operation_each_though_a_log_rounds(
    per_s: str, kib_per_s: str
) -> None:
    """A byte more than 256 KiB on average counted as two: 1,000 IOPS of a stream were 2,000, credits too."""
    text = IOSTAT.replace("1000.00  16000.00", f"{per_s}  {kib_per_s}")
    (interval,) = parse_usage(text, "log")
    gp2 = model_for(replace(GP3, type="gp2", size_bytes=400 * GIB, iops=None, throughput_bytes_per_s=None))
    usage = replay_usage(columns_of([interval] * 60), gp2)
    assert usage.at_limit_s["iops"] == usage.at_limit_s["credits"] == 0
    assert usage.lowest_credits == 1.0  # 1,200 IOPS come back
    doubled = replace(interval, read_bytes=1.2 * interval.read_bytes)
    assert replay_usage(columns_of([doubled] * 60), gp2).lowest_credits < 1.0


def test_today_comes_first_and_then_the_cheaper_the_longer_at_a_limit() -> None:
    (today, *others), _ = usage_options([QUIET, BUSY], GP3, region="us-east-1", types=["gp3"])
    assert today.spec == GP3
    costs = [one.usd for one in others]
    limited = [one.usage.limited_s for one in others]
    assert costs == sorted(costs)
    assert limited == sorted(limited, reverse=True)
    assert limited[-1] == 0


def test_todays_own_setting_is_one_of_those_that_suffice() -> None:
    """Of 3,500 IOPS 4,000 were said to be the cheapest, for 2.50 USD a month more."""
    today = replace(GP3, iops=3500, throughput_bytes_per_s=None)
    of_3200 = replace(BUSY, reads=60 * 3200, read_bytes=60 * 3200 * 16 * KIB)
    options, _ = usage_options([of_3200], today, region="us-east-1")
    report = build_usage("log", [of_3200], options, region="us-east-1")
    assert report.verdict == (
        "gp3 500 GiB, 3,500 IOPS, 125 MiB/s is the cheapest that stays below its limits: that of today."
    )
    settings = [row.item.removesuffix(" (today)") for row in report.tables[0].rows]
    assert len(settings) == len(set(settings))


@pytest.mark.parametrize(
    ("type_", "iops", "ios", "region", "types"),
    [
        ("sc1", None, 1, "us-east-1", ["gp3"]),  # 50 USD a month more were asked for
        ("io1", 20_000, 18_000, "us-east-1", ["gp2"]),  # none was said to stay below its limits
        ("io1", 20_000, 18_000, "us-east-2", ["gp2"]),  # where its price is not known
    ],
)
def test_a_volume_of_today_that_suffices_is_among_those_that_do(
    type_: str, iops: int | None, ios: int, region: str, types: list[str]
) -> None:
    today = VolumeSpec(name="a", type=type_, size_bytes=500 * GIB, iops=iops)
    log = [Interval(seconds=60, reads=60 * ios, read_bytes=60 * ios * KIB, writes=0, written_bytes=0)]
    options, _ = usage_options(log, today, region=region, types=types)
    verdict = build_usage("log", log, options, region=region).verdict
    assert verdict.startswith(f"{type_} 500 GiB")
    assert verdict.endswith("is the cheapest that stays below its limits: that of today.")


@pytest.mark.parametrize(
    ("today", "log", "usd"),
    [
        (VolumeSpec(name="a", type="standard"), QUIET, 5 + 0.05 * 2628),
        (VolumeSpec(name="a", type="efs", mode="elastic"), QUIET, 30 + 0.03 * 40_100.1),
        (VolumeSpec(name="a", type="standard"), replace(QUIET, reads=1e300), 5 + 0.05 * 2**62 / 1e6),
    ],
)
def test_what_is_paid_by_use_is_that_of_the_log(today: VolumeSpec, log: Interval, usd: float) -> None:
    """A magnetic volume of 1,000 I/Os a second was cheaper than the gp3 that costs a quarter of it."""
    first = usage_options([log] * 2, today, region="us-east-1", types=["gp3"])[0][0]
    assert first.usd == pytest.approx(usd, rel=1e-4)


def test_settings_without_a_price_in_a_region_are_left_out_and_said(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of us-east-2 two types' prices are not known: all were refused, naming an option that there is not."""
    command = ["usage", str(iostat), "--size", "500GiB", "--region", "us-east-2"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "Settings of io2, st1 were left out, as prices of theirs in us-east-2" in out
    assert "Prices in us-east-2 that were not verified against AWS's price list: storage" in out
    assert main([*command, "--type", "io2", "--iops", "8000"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"io2 500 GiB, 8,000 IOPS \(today\) +- +- +never", out)
    assert (
        "gp3 500 GiB, 3,000 IOPS, 125 MiB/s is the cheapest that stays below its limits: 40.00 USD a month."
        in out
    )
    assert main([*command, "--types", "io2"]) == 2
    assert capsys.readouterr().err.endswith(
        "name a file with it in ESRALLY_EBS_PRICES, see docs/studies.md\n"
    )


def test_types_that_are_not_sold_in_a_size_are_named_with_it(
    iostat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was not said that it is the size: "no setting of these types is sold; name others"."""
    assert main(["usage", str(iostat), "--size", "20TiB", "--types", "st1,sc1"]) == 2
    said = "--types st1,sc1: none is sold for 20480 GiB; name others, such as gp3\n"
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_a_file_is_read_as_other_shells_write_it_and_gzip_packs_it(encoding: str, tmp_path: Path) -> None:
    """It was said to have no report of a device."""
    log = tmp_path / "cloudwatch.json"
    text = CLOUDWATCH.encode(encoding)
    log.write_bytes(gzip.compress(text) if encoding == "utf-8" else text)
    assert main(["usage", str(log), "--size", "500GiB"]) == 0


def test_what_is_cut_of_a_packed_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "cloudwatch.json.gz"
    for data in (gzip.compress(CLOUDWATCH.encode())[:-20], b"\x1f\x8bnone"):
        log.write_bytes(data)
        assert main(["usage", str(log), "--size", "500GiB"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"esrally-ebs: {log}: ")
        assert said.endswith("; name a file that can be read\n")


def test_the_command_says_what_it_cannot(iostat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["usage", str(iostat), "--size", "500GiB", "--iops", "16000", "--throughput", "1000MiB/s"]) == 0
    )
    out = capsys.readouterr().out
    assert "gp3 500 GiB, 3,000 IOPS, 160 MiB/s" in out or "less than today" in out
    assert "nothing is said of the latency" in out.lower()
