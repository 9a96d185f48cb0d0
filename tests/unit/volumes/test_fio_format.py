"""fio's JSON as fio 3.33 really wrote it, what is said of anything else, and the commands we give fio."""

import json
from pathlib import Path
from typing import Any

import pytest

from esrally_ebs.errors import FormatError
from esrally_ebs.plan import BaselineJob
from esrally_ebs.volumes.baseline import job_argv, layout_argv
from esrally_ebs.volumes.fio import parse_fio

RECORDED = (Path(__file__).parents[2] / "support" / "data" / "fio-3.33-seq-rw-16k-x2.json").read_text()


def changed(**of_job: Any) -> str:  # noqa: ANN401 - any JSON value
    document = json.loads(RECORDED)
    document["jobs"][0] |= of_job
    return json.dumps(document)


def test_both_directions_of_a_recorded_job() -> None:
    reads, writes = parse_fio(RECORDED, "recorded")

    assert (reads.job, reads.op, writes.op) == ("seq-rw-16k-x2", "read", "write")
    # 248 reads and 264 writes of 16 KiB are the 8 MiB of two clones of 4 MiB, and took 25 ms.
    assert (reads.ios + writes.ios) * 16 * 1024 == 8 * 1024**2
    assert reads.iops == pytest.approx(248 / 0.025)
    assert reads.bandwidth_bytes_per_s == pytest.approx(248 * 16 * 1024 / 0.025)


def test_percentiles_are_completion_latency_in_seconds() -> None:
    writes = parse_fio(RECORDED, "recorded")[1]

    # clat_ns in the recording: mean 87200.401515, percentiles 92672, 121344, 158720, 179200
    assert writes.mean_s == pytest.approx(87.200401515e-6)
    assert (writes.p50_s, writes.p90_s, writes.p99_s, writes.p999_s) == pytest.approx(
        (92.672e-6, 121.344e-6, 158.72e-6, 179.2e-6)
    )


def test_a_direction_without_io_has_no_record() -> None:
    document = json.loads(RECORDED)
    document["jobs"][0]["write"]["total_ios"] = 0

    assert [direction.op for direction in parse_fio(json.dumps(document), "recorded")] == ["read"]


def test_notes_before_the_json_are_passed_over() -> None:
    note = (
        "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n"
    )

    assert parse_fio(note + RECORDED, "recorded") == parse_fio(RECORDED, "recorded")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "run.json: not the JSON of fio .*output-format=json", id="empty"),
        pytest.param(RECORDED[: len(RECORDED) // 2], "run.json: not the JSON of fio", id="cut short"),
        pytest.param("{}", "run.json: written by version 'none'; fio 3.x is needed", id="other JSON"),
        pytest.param(
            RECORDED.replace("fio-3.33", "fio-2.1"), "run.json: written by version 'fio-2.1'", id="fio 2"
        ),
        pytest.param(changed(read={}), "run.json: lacks a figure .*total_ios", id="no figures"),
        pytest.param(
            changed(error=28), "job seq-rw-16k-x2 ended with: No space left on device", id="failed job"
        ),
        pytest.param(
            RECORDED.replace('"99.900000"', '"99.990000"'),
            "run.json: lacks a figure .*99.900000",
            id="percentile",
        ),
    ],
)
def test_what_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_fio(text, "run.json")


def test_a_job_without_any_io_is_refused() -> None:
    with pytest.raises(FormatError, match="did no I/O"):
        parse_fio(changed(read={"total_ios": 0}, write={"total_ios": 0}), "run.json")


def test_a_sequential_job_of_the_article_runs_by_size() -> None:
    job = BaselineJob(name="seq-rw-16k-x2", rw="readwrite", bs=16384, numjobs=2, size=128 * 1024**2)

    words = job_argv(job, Path("/mnt/a:b/fio/fio-bench"))

    assert {"--rw=readwrite", "--bs=16384", "--size=134217728", "--numjobs=2", "--direct=1"} <= set(words)
    assert {"--group_reporting", "--thread", "--percentile_list=50:90:99:99.9"} <= set(words)
    assert r"--filename=/mnt/a\:b/fio/fio-bench" in words
    assert not any("runtime" in word for word in words)


def test_the_layout_writes_the_file_and_measures_nothing() -> None:
    job = BaselineJob(name="a", rw="write", bs=4096)

    words = layout_argv(job, Path("f"))

    assert {"--create_only=1", "--rw=read", f"--size={job.size}"} <= set(words)
    assert "--thread" in words  # a process that fio forked would outlive a kill of fio's group
