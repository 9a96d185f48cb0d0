"""Answers of CloudWatch about a volume, however they were asked for and put into a file."""

import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from usage_logs import idle

from esrally_ebs.advice.usage import parse_usage
from esrally_ebs.cli import main
from esrally_ebs.errors import FormatError

METRICS = ("VolumeReadOps", "VolumeReadBytes", "VolumeWriteOps", "VolumeWriteBytes")
TIMES = ["2026-11-22T10:00:00+00:00", "2026-11-22T10:01:00+00:00"]
CLOUDWATCH = json.dumps(
    {
        "MetricDataResults": [
            {"Label": f"vol-1 Volume{metric}", "Timestamps": TIMES, "Values": values}
            for metric, values in (
                ("ReadOps", [600, 1200]),
                ("ReadBytes", [600_000, 1_200_000]),
                ("WriteOps", [0, 1]),
                ("WriteBytes", [0, 512]),
            )
        ]
    }
)
PAGE = json.dumps({**json.loads(CLOUDWATCH), "NextToken": "abc"})
OTHER_VALUES = CLOUDWATCH.replace("[600, 1200]", "[6, 12]")


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


def answer(minute: int, count: int, step: int, ios: float, metrics: Sequence[str] = METRICS) -> str:
    """An answer of get-metric-data: so many periods of ``step`` minutes."""
    began = datetime(2026, 11, 22, tzinfo=UTC) + timedelta(minutes=minute)
    times = [(began + n * timedelta(minutes=step)).isoformat() for n in reversed(range(count))]
    results = [
        {"Label": name, "Timestamps": times, "Values": [ios * (4096 if "Bytes" in name else 1)] * count}
        for name in metrics
    ]
    return json.dumps({"MetricDataResults": results})


def changed(metric: int, **fields: object) -> str:
    """The answer with another result of one metric."""
    document = json.loads(CLOUDWATCH)
    document["MetricDataResults"][metric].update(fields)
    return json.dumps(document)


def test_cloudwatch_is_read_by_its_labels() -> None:
    first, second = parse_usage(CLOUDWATCH, "log")
    assert (first.seconds, first.reads, first.written_bytes) == (60, 600, 0)
    assert (second.read_bytes, second.writes) == (1_200_000, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"MetricDataResults": []}', ""),
        ('{"MetricDataResults": {"a": 1}}', ".*neither of get-metric-data nor of sysstat"),
        (CLOUDWATCH[:-2], "no whole JSON, .* line 1 .* copy it when what writes it has ended"),
        # bytes of no I/Os reach no limit, and I/Os of no bytes none of throughput
        (changed(0, Values=[0, 0]), "of VolumeReadOps and VolumeReadBytes one has nothing"),
        (changed(0, Label="reads"), "no sums of VolumeReadOps: its name must be in a result's label; give"),
        # the mean size of an I/O, as a console shows it, beside sums of I/Os
        (changed(1, Values=[1000, 1000]), "VolumeReadBytes are under 512 for each of VolumeReadOps; ask for"),
        (changed(3, Values=[], Timestamps=[]), "of VolumeWriteOps and VolumeWriteBytes one has nothing"),
        (changed(0, StatusCode="Forbidden"), "vol-1 VolumeReadOps: not answered, Forbidden; ask again"),
        (changed(0, StatusCode="PartialData"), r"vol-1 VolumeReadOps: a part of an answer \(PartialData\)"),
        (changed(1, Values=[1]), "vol-1 VolumeReadBytes: 2 timestamps for 1 values; give"),
        (changed(0, Timestamps=[1e300, 1795341660]), ""),
        (statistics("Average"), "VolumeReadOps: no sums; ask .* for --statistics Sum"),
        (answer(0, 12, 5, 60.2), r"VolumeReadOps: 60\.2 is no sum; ask for the statistic Sum"),  # averages
        (PAGE, r"a page of an answer \(NextToken\) without the last one"),
        # an hour of minutes that is also there in periods of five
        (
            answer(0, 24, 5, 300) + answer(0, 60, 1, 60),
            ".*, and one period for each time",
        ),
        ("DATAPOINTS\t600.0\t2026-11-22T10:00:00+00:00\tCount", r".*JSON \(aws --output json\)"),
        # not taken for pages of one volume
        (CLOUDWATCH + OTHER_VALUES, "vol-1 VolumeReadOps: two values of 2026.*; give those of one"),
    ],
)
def test_what_is_no_whole_answer_of_sums_is_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=f"^log: {says}"):
        parse_usage(text, "log")


def test_results_alone_are_an_answer() -> None:
    """As ``--query 'MetricDataResults[]'`` prints them: it was said to be no answer."""
    results = json.dumps(json.loads(CLOUDWATCH)["MetricDataResults"])
    assert parse_usage(results, "log") == parse_usage(CLOUDWATCH, "log")


def test_a_month_of_cloudwatch_comes_in_pages() -> None:
    """The AWS CLI puts the results of all pages into one list: the last page stood for the month."""
    document = json.loads(CLOUDWATCH)
    first = document["MetricDataResults"]
    later = [{**one, "Timestamps": [time.replace("T10", "T11") for time in TIMES]} for one in first]
    both = parse_usage(json.dumps({"MetricDataResults": first + later}), "log")
    assert [one.reads for one in both] == [600, 1200, 0, 600, 1200]
    assert both[2] == idle(3480)


def test_answers_of_cloudwatch_that_were_added_to_one_file_are_read_together() -> None:
    """They were said to be extra data; those of get-metric-statistics are of one metric each."""
    assert parse_usage(statistics(), "log") == parse_usage(CLOUDWATCH, "log")
    pages = CLOUDWATCH + "\n" + CLOUDWATCH.replace("T10", "T11")
    assert [one.reads for one in parse_usage(pages, "log")] == [600, 1200, 0, 600, 1200]
    assert parse_usage(f"[{CLOUDWATCH}]", "log") == parse_usage(CLOUDWATCH, "log")


def test_a_page_of_cloudwatch_is_not_taken_for_the_month() -> None:
    both = parse_usage(PAGE + CLOUDWATCH.replace("T10", "T11"), "log")
    assert [one.reads for one in both] == [600, 1200, 0, 600, 1200]


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


def test_times_of_cloudwatch_may_be_seconds_since_the_epoch() -> None:
    text = CLOUDWATCH.replace(f'"{TIMES[0]}"', "1795341600").replace(f'"{TIMES[1]}"', "1795341660.0")
    assert parse_usage(text, "log") == parse_usage(CLOUDWATCH, "log")


def test_a_volume_whose_name_begins_as_another_does_is_told_from_it() -> None:
    assert parse_usage(CLOUDWATCH + OTHER_VALUES.replace("vol-1", "vol-12"), "log", "vol-1") == parse_usage(
        CLOUDWATCH, "log"
    )
    with pytest.raises(FormatError, match="log: no sums of VolumeReadOps in whose label vol-2 stands"):
        parse_usage(CLOUDWATCH, "log", "vol-2")


def test_of_several_volumes_of_cloudwatch_one_must_be_named() -> None:
    text = CLOUDWATCH + OTHER_VALUES.replace("vol-1", "vol-2")
    with pytest.raises(FormatError, match=r"log: of several volumes, vol-1 .* and vol-2 .*--device"):
        parse_usage(text, "log")
    assert [one.reads for one in parse_usage(text, "log", "vol-2")] == [6, 12]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_a_file_is_read_as_other_shells_write_it_and_gzip_packs_it(encoding: str, tmp_path: Path) -> None:
    """It was said to have no report of a device."""
    log = tmp_path / "cloudwatch.json"
    text = CLOUDWATCH.encode(encoding)
    log.write_bytes(gzip.compress(text) if encoding == "utf-8" else text)
    assert main(["usage", str(log), "--size", "500GiB"]) == 0


@pytest.mark.parametrize(
    ("begins", "command"),
    [
        (b"\x96\xd5\x06\x0c", "sadf -d '{}' -- -d"),
        (b"\x07tae\x01\0\0\0", "blkparse -i '{}'"),
        (b"PERFILE2h\0", "perf script -i '{}'"),
        (b"\xfd7zXZ\0", "xz -dc '{}'"),
    ],
)
def test_of_a_binary_file_the_command_is_named_that_prints_it(
    begins: bytes, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """sar's own file of a day was said to have no report of a device between two times of day."""
    (log := tmp_path / "sa 22").write_bytes(begins)
    for words in (["usage", str(log)], ["trace", "--from", str(log)]):
        assert main([*words, "--size", "500GiB"]) == 2
        says = f'is no text; give a file with what "{command.format(log)}" prints\n'
        assert capsys.readouterr().err == f"esrally-ebs: {log}: {says}"


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
