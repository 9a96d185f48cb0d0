"""Logs of iostat, sar and sadf say the same, whatever options, versions and languages they are of."""

import json
import re
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from usage_logs import IOSTAT, idle

from esrally_ebs.advice.usage import Interval, parse_usage, usage_notes
from esrally_ebs.errors import FormatError
from esrally_ebs.units import KIB, MIB

REPORT = IOSTAT[IOSTAT.index("11/23/2026") :]  # the one that counts
SAR = """12:00:01          DEV       tps     rkB/s     wkB/s   areq-sz
12:10:01      nvme1n1    100.00   1600.00      0.00     16.00
12:20:01      nvme1n1    200.00   3200.00      0.00     16.00
Average:      nvme1n1    150.00   2400.00      0.00     16.00
"""
SADF = """# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz
h;600;2026-11-22 12:10:01 UTC;nvme1n1;100,00;1600,00;0,00;16,00
h;600;2026-11-22 12:10:01 UTC;nvme0n1;9,00;90,00;0,00;16,00
h;-1;2026-11-22 12:10:05 UTC;LINUX-RESTART\t(2 CPU)
h;600;2026-11-22 12:20:01 UTC;nvme1n1;200,00;3200,00;0,00;16,00
"""
SADF_JSON = {
    "sysstat": {
        "hosts": [
            {
                "nodename": "h",
                "statistics": [
                    {
                        "timestamp": {"date": "2026-11-22", "time": f"12:{n}0:01", "utc": 1, "interval": 600},
                        "disk": [{"disk-device": "nvme1n1", "tps": n * 100.0, "rkB": n * 1600.0, "wkB": 0.0}],
                    }
                    for n in (1, 2)
                ],
            }
        ]
    }
}
PRETTY = """     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device
 1000.00     15.6M     0.00   0.0%    0.50    16.0k nvme1n1

     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz Device
   10.00     40.0k     0.00   0.0%    0.50     4.0k nvme1n1
"""
SHORT = """Device             tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util
nvme1n1        1010.00  16040.00     0.00    0.50    15.88    0.51   4.00
"""
IOSTAT_READ = [
    Interval(seconds=10, reads=10_000, read_bytes=16_000 * KIB * 10, writes=100, written_bytes=400 * KIB)
]
SAR_READ = [
    Interval(seconds=600, reads=n * 60_000, read_bytes=n * 1600 * KIB * 600, writes=0, written_bytes=0)
    for n in (1, 2)
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


def with_table(table: str) -> str:
    """Reports of iostat with another table of devices."""
    return re.sub(r"Device(.*\n)+?nvme1n1.*\n", table, IOSTAT)


def stamped(before: str, text: str = IOSTAT) -> str:
    """Reports without times of their own, each line behind that of its report, as another program puts it."""
    time, lines = "23:59:50", []
    for line in text.splitlines():
        if line.startswith("11/23"):
            time = "00:00:00"
        if not line.startswith("11/2"):
            lines.append(before.format(time) + line)
    return "\n".join(lines)


def devices_last(text: str) -> str:
    """As ``sar -dp`` writes."""
    return re.sub(r"^(\S+) +(\S+) +(.*)$", r"\1 \3 \2", text, flags=re.MULTILINE)


def logs_of_iostat() -> Iterator[tuple[str, str]]:
    """What is read as IOSTAT is, each with what is special to it."""
    for before, after in (
        ("12:59:50 pm", "01:00:00 pm"),
        ("11:59:50 p.m.", "12:00:00 a.m."),
        ("12:59:50 p. m.", "1:00:00 p. m."),
        ("12:59:50\u202fPM", "01:00:00\u202fPM"),
        ("23時59分50秒", "00時00分00秒"),
        ("23时59分50秒", "00时00分00秒"),
        ("23시 59분 50초", "00시 00분 00초"),
        ("9:59:50 AM", "10:00:00 AM"),
        ("12:59:50 PM", "1:00:00 PM"),
        ("11:59:50 PM IST", "12:00:00 AM IST"),
        ("23:59:50 +04", "00:00:00 +04"),
    ):
        yield f"time {before}", IOSTAT.replace("11:59:50 PM", before).replace("12:00:00 AM", after)
    for before, after in (
        ("22.11.2026 23.59.50", "23.11.2026 00.00.00"),
        ("22-11-2026 23.59.50", "23-11-2026 00.00.00"),
        ("22.11.26 23:59:50", "23.11.26 00:00:00"),  # whose dates are no times
        ("1795391990", "1795392000"),
    ):
        yield f"date {before}", re.sub(r"11/23/.*", after, re.sub(r"11/22/.* PM", before, IOSTAT))
    for before in ("Nov 22 {} ", "[2026-11-22 {}] ", "2026-11-22T{}.123456789Z ", "Nov 22 {} h iostat[1]: "):
        yield f"lines behind {before}", stamped(before)
    yield "JSON", as_json(IOSTAT)
    yield "JSON before sysstat 12", as_json(IOSTAT, before_12=True)
    yield "-h before sysstat 12", re.sub(r"^nvme1n1 ", "nvme1n1\n" + 13 * " ", IOSTAT, flags=re.MULTILINE)
    coloured = IOSTAT.replace("1000.00", "\x1b[34;22m1000.00\x1b[0m").replace("0.50 ", "0.50\0 ")
    yield "colours, and zeros of a machine that went down", coloured.replace("\n\n", "\n" + "\0" * 99 + "\n")


def logs_of_sar() -> Iterator[tuple[str, str]]:
    """What is read as SAR is, each with what is special to it."""
    titles, first, second, average = SAR.splitlines()
    yield "its own", SAR
    yield "Finnish", re.sub(r"(\d\d):(\d\d):", r"\1.\2.", SAR.replace(".00", ",00"))
    yield "devices last", devices_last(SAR)
    of_cpu = titles.replace("DEV", "CPU"), first.replace("nvme1n1", "all"), second.replace("nvme1n1", "all")
    yield "-A by tables", "\n".join([*of_cpu, average, "", *SAR.splitlines()])
    later = (line.replace("12:00:01", "12:10:01") for line in (of_cpu[0], of_cpu[2], "", titles, second))
    yield "-A by reports", "\n".join(["", *of_cpu[:2], "", titles, first, "", *later])
    for zone in ("UTC", "+04"):
        lines = titles, first, "12:13:00 COM moved to new disks", second, average
        yield f"zone {zone}", "\n".join(re.sub(r"^(12:\S+)", rf"\1 AM {zone}", line) for line in lines)
    for said in ("moved", "moved to new disks"):  # as many words as there are columns, and fewer
        comment = f"12:13:00     COM {said}"
        yield f"-C, {said}", "\n".join((titles, first, comment, second, average))
    with_titles = "\n".join((titles, first, second, titles, average))
    for order, text in (("first", with_titles), ("last", devices_last(with_titles))):
        head, averages = text.rsplit("12:00:01", 1)
        for word in ("Average:", "Moyenne :"):
            yield f"titles of {word} devices {order}", f"{head}{word}{averages.replace('Average:', word)}"
    yield "sadf", SADF
    in_one_line = SADF.replace("16,00\nh;600;2026-11-22 12:10:01 UTC;nvme0", "16,00;nvme0")
    yield "sadf -h", in_one_line.replace("areq-sz", "areq-sz[...]")
    yield "sadf of a later day first", "".join(SADF.splitlines(keepends=True)[at] for at in (0, 4, 1, 2, 3))
    yield "sadf of sysstat 9", SADF.replace("0:01", "0-01").replace(" 12:", " 12-")
    yield "sadf -T", SADF.replace("UTC", "CEST")
    yield "sadf -j", json.dumps(SADF_JSON)
    of_epoch = re.sub(
        r'"2026-11-22", "time": "12:(\d)0:01"',
        lambda time: f'"", "time": "{1795341000 + 600 * int(time[1])}"',
        json.dumps(SADF_JSON),
    )
    yield "sadf -j -U", of_epoch


@pytest.mark.parametrize("text", [pytest.param(text, id=what) for what, text in logs_of_iostat()])
def test_iostat_is_read_over_midnight_and_without_its_first_report(text: str) -> None:
    assert parse_usage(IOSTAT, "log") == parse_usage(text, "log") == IOSTAT_READ


@pytest.mark.parametrize("text", [pytest.param(text, id=what) for what, text in logs_of_sar()])
def test_sar_is_read_from_its_first_report_on_and_without_its_averages(text: str) -> None:
    device = "nvme1n1" if "nvme0n1" in text else None
    assert parse_usage(text, "log", device) == SAR_READ
    assert parse_usage(text, "log", "/dev/nvme1n1") == SAR_READ


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


def test_machines_that_ran_at_the_same_time_are_not_one_volume() -> None:
    """Logs of a cluster's nodes in one file: the month was three months long."""
    line = "{0};600;2026-11-22 {1:02}:{2}0:01 UTC;nvme1n1;1.00;0.00;16.00;16.00"

    def of(hosts: str, hours: int) -> str:
        lines = [line.format(host, hour, n) for host in hosts for hour in range(hours) for n in range(6)]
        return "\n".join(("# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz", *lines))

    assert len(parse_usage(of("a", 3), "log")) == 18
    assert len(parse_usage(of("ab", 1), "log")) == 12  # an hour twice: its clock may have been set back
    with pytest.raises(FormatError, match="several reports of nvme1n1 for the same time; give one machine's"):
        parse_usage(of("ab", 3), "log")
    seconds = "\n".join(
        f"{host};1;{10**9 + second};nvme1n1;1.00;0.00;16.00;16.00" for second in range(7300) for host in "ab"
    )
    with pytest.raises(FormatError, match="several reports of nvme1n1"):
        parse_usage(f"# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s;areq-sz\n{seconds}", "log")
    (note,) = usage_notes(IOSTAT + IOSTAT.replace("(host)", "(other)"))
    assert note.startswith("The log is of 2 machines (host, other), whose reports count one after the other.")
    assert usage_notes(as_json(IOSTAT) + as_json(IOSTAT).replace('"host"', '"other"')) == (note,)


def test_of_json_without_sizes_it_is_said_that_kilobytes_may_be_sectors() -> None:
    (note,) = usage_notes('{"sysstat": {"disk": [{"tps": 119.81, "kB_read/s": 2256.52}]}}')
    assert "half as many" in note
    assert not usage_notes(as_json(IOSTAT))
    assert not usage_notes("Device tps kB_read/s")


def test_of_days_of_sar_what_lies_between_them_is_no_part_of_the_first_report() -> None:
    """Its rate was taken for all of the time since the last report of the day before."""
    restart = "12:25:00     LINUX RESTART  (2 CPU)\n\n"
    later = SAR.replace("12:00", "14:00").replace("12:10", "14:10").replace("12:20", "14:20")
    assert parse_usage(f"{SAR}\n{restart}{later}", "log") == [*SAR_READ, idle(6000), *SAR_READ]


def test_of_runs_that_were_added_to_one_log_the_first_reports_are_left_out() -> None:
    """What iostat says of the time since the machine started was taken for what was done between two runs."""
    later = IOSTAT.replace("11:59:50 PM", "09:00:00 AM").replace("12:00:00", "09:00:10")
    assert parse_usage(f"{IOSTAT}\n{later}", "log") == 2 * IOSTAT_READ
    without_times = re.sub(r"\n\d\d/.*", "", IOSTAT)
    assert parse_usage(f"{IOSTAT}\n{without_times}", "log") == IOSTAT_READ
    assert usage_notes(IOSTAT) == usage_notes(SADF) == ()
    (note,) = usage_notes(2 * IOSTAT)
    assert usage_notes(2 * as_json(IOSTAT)) == (note,)
    assert note.startswith("The log has 2 runs. The time between them is left out")


def test_devices_are_told_apart_though_journald_put_a_host_before_them() -> None:
    """They were one, called as the host, of which the log had what the first of them did."""
    before, two = "Nov 22 {} h iostat[1]: ", re.sub(r"(?m)^nvme1n1(.*)", r"loop0\1\nnvme1n1\1", IOSTAT)
    with pytest.raises(FormatError, match="of 2 devices; name one with --device: loop0, nvme1n1"):
        parse_usage(stamped(before, two), "log")
    runs = f"{stamped(before, two)}\n{stamped(before, two)}"
    assert parse_usage(runs, "log", "nvme1n1") == 2 * IOSTAT_READ


def test_a_report_that_journald_reads_over_the_end_of_a_second_is_one() -> None:
    """The devices below had a second of it, and the rest of the minute counted as idle."""
    once = stamped("Nov 22 {} ")
    report = once[once.index("Nov 22 00:00:00") :]
    later = [report.replace("00:00:00", f"00:00:{n}0") for n in (1, 2)]
    cut = later[0].index("Nov 22 00:00:10 nvme1n1")
    later[0] = later[0][:cut] + later[0][cut:].replace(":10", ":11")
    assert parse_usage("\n".join((once, *later)), "log") == 3 * IOSTAT_READ


@pytest.mark.parametrize(
    ("before", "after"), [("01:59:50", "03:00:00"), ("02:59:50", "02:00:00"), ("00:59:49", "00:00:00")]
)
def test_a_report_is_as_long_as_the_last_one_where_clocks_are_put_on_or_back(before: str, after: str) -> None:
    """In spring it was taken for one of an hour more, and in autumn times seemed to run backwards."""
    first = f"{before[:6]}{int(before[6:]) - 10}"
    text = "\n".join(
        REPORT.replace("11/23/2026 12:00:00 AM", f"2026-10-25T{time}+0100") for time in (first, before, after)
    )
    assert [one.reads for one in parse_usage(text, "log")] == [10_000, 10_000]


def test_a_long_log_takes_at_most_five_times_its_size_of_memory() -> None:
    """It was nine times, of a month of five devices."""
    others = " ".join(f"d{n}" for n in range(14))
    report = REPORT.replace("w/s     wkB/s", f"w/s wkB/s {others}")
    report = report.replace("40.00", "40.00" + 14 * "    0.10").replace("11/23/2026 12:00:00 AM", "{}")
    long = "".join(report.format(timedelta(seconds=n)) for n in range(3000))
    tracemalloc.start()
    assert len(parse_usage(long, "log")) == 2999
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5 * len(long)


def test_days_are_not_laid_over_each_other_where_times_name_a_zone() -> None:
    """As in India, Hong Kong or the Philippines: of a month of ``iostat`` one day was left."""
    times = ("10:00:00 AM IST", "10:00:00 PM IST") * 3
    text = "\n".join(REPORT.replace("12:00:00 AM", time) for time in times)
    assert sum(one.seconds for one in parse_usage(text, "log")) == 5 * 12 * 3600
    greek = [f"{hour}:00 μμ" for hour in ("12:40", "12:50", "01:00")]  # of which half of the day is not read
    text = "\n".join(REPORT.replace("12:00:00 AM", time) for time in greek)
    assert [one.seconds for one in parse_usage(text, "log")] == [600, 600]
    with pytest.raises(FormatError, match=r"from 12:50:00 to 1:00:00.*24 hours"):
        parse_usage(text[text.index("12:50") :], "log")


@pytest.mark.parametrize(("unit", "size"), [("kB", KIB), ("MB", MIB), ("Blk", 512)])
def test_iostat_without_x_tells_no_writes_from_reads_but_how_much(unit: str, size: int) -> None:
    """It was said not to say how many bytes."""
    report = f"Device tps {unit}_read/s {unit}_wrtn/s {unit}_read {unit}_wrtn\nnvme1n1 9.00 30.00 12.00 9 9\n"
    text = with_table(report)
    assert parse_usage(text, "log") == [
        Interval(seconds=10, reads=90, read_bytes=420 * size, writes=0, written_bytes=0)
    ]


def test_iostat_for_human_readers_is_read_though_it_rounds() -> None:
    """``-h``: "could not convert string to float"; reads and writes are in tables of their own."""
    (one,) = parse_usage(with_table(PRETTY), "log")
    assert (one.reads, one.writes, one.written_bytes) == (10_000, 100, 400 * KIB)
    assert one.read_bytes == pytest.approx(15.6 * MIB * 10)
    (megabytes,) = parse_usage(re.sub("([rw])kB", r"\1MB", IOSTAT).replace("16000.00", "15.6M"), "log")
    assert megabytes.read_bytes == pytest.approx(15.6 * MIB * 10)
    human = SAR.replace("1600.00", "   1.6M").replace("0.00     16.00", "0.0k     16.0k")
    assert parse_usage(human, "log")[0].read_bytes == pytest.approx(1.6 * MIB * 600)


def test_short_reports_of_iostat_have_reads_and_writes_in_one() -> None:
    """``-s``: its columns were said not to say how many I/Os and bytes."""
    text = with_table(SHORT)
    both = Interval(seconds=10, reads=10_100, read_bytes=16_040 * KIB * 10, writes=0, written_bytes=0)
    assert parse_usage(text, "log") == [both]
    apart = SHORT.replace("     kB/s    rqm/s", "kB_read/s kB_w+d/s").replace("    0.00 ", "  100.00 ", 1)
    text = with_table(apart)
    assert parse_usage(text, "log") == [replace(both, read_bytes=16_140 * KIB * 10)]


def test_a_device_that_iostat_leaves_out_while_it_is_idle_did_nothing_meanwhile() -> None:
    """``iostat -z``: the next rate was taken for all of the time since it was last there."""
    other = REPORT.replace("nvme1n1", "sda").replace("12:00:00", "12:00:10")
    text = f"{IOSTAT}\n{other}\n{REPORT.replace('12:00:00', '12:00:20')}"
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
    sadf = json.dumps(SADF_JSON).replace('"rkB"', '"rd_sec"').replace('"wkB"', '"wr_sec"')
    assert parse_usage(sadf, "log")[0].read_bytes == 1600 * 512 * 600


def test_sadf_says_for_how_long_each_of_its_lines_is() -> None:
    text = re.sub(r"2026\S+ 12:([12])0:01 UTC", r"179534\g<1>600", SADF)
    assert parse_usage(text, "log", "nvme1n1") == [SAR_READ[0], idle(400), SAR_READ[1]]


@pytest.mark.parametrize("title", ["rkB/s", "wkB/s", "tps"])
def test_a_log_without_a_column_that_counts_is_refused_rather_than_no_load(title: str) -> None:
    with pytest.raises(FormatError, match="log: its columns do not say how many I/Os and bytes"):
        parse_usage(SAR.replace(title, "other"), "log")


@pytest.mark.parametrize("amount", ["nan", "-5", "1e308"])
def test_what_is_no_amount_is_refused_rather_than_no_load(amount: str) -> None:
    with pytest.raises(FormatError, match=r"x: .* is no amount \(interval 1\)"):
        parse_usage(IOSTAT.replace("16000.00", amount), "x")


# "sar -b", which has times and the I/Os of all devices together
SAR_B = "12:00:01  tps  rtps  wtps  bread/s  bwrtn/s\n12:10:01  9.0  4.0  5.0  32.0  40.0\n"


@pytest.mark.parametrize(
    ("text", "device", "says"),
    [
        *((text, None, "log: ") for text in ("", "{}", "nothing of the kind", IOSTAT[:400])),
        (SAR.replace("12:10:01", "12:30:01"), None, "times run backwards, from 12:30:01 to 12:20:01; give"),
        (IOSTAT + IOSTAT.replace("nvme1n1", "nvme2n1"), None, "nvme1n1, nvme2n1"),
        (IOSTAT.replace(" 1000.00", " 1000.x0"), None, "log: '1000.x0' is no number of r/s; give"),
        (IOSTAT, "sdz", "log: nothing of device sdz; it has nvme1n1"),
        (SAR_B, None, r"between two times of day.*text of sar -d \(sar -b names no device\)"),
        (
            as_json(IOSTAT).replace('"timestamp"', '"at"'),
            None,
            "log: no report of a device between two times of day",
        ),
        ('{"sysstat": {"hosts": 3}}', None, "log: JSON, but neither of get-metric-data nor of sysstat"),
    ],
)
def test_anything_else_is_refused_with_its_name(text: str, device: str | None, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        parse_usage(text, "log", device)
