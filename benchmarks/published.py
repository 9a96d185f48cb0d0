"""Every published figure beside ours in virtual time, with its error, and totals.

``python benchmarks/published.py ROWS.json ...`` (or $ESRALLY_EBS_PUBLISHED): files with rows of the schema of
``published_measurements.json``, in lists under any names. ``published_scope.json`` says which rows are not
counted, and why; they are run and printed all the same where that is possible. ``--notes`` adds the figures
that rows of fio runs carry in their notes. Takes about a minute; needs no root.
"""

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import published_experiments as experiments
from published_experiments import Outcome
from published_metrics import BYTES, Reading, reading_of, unit_of
from published_rows import Row, spec_of

from esrally_ebs.catalog.cost import monthly
from esrally_ebs.catalog.generations import last_day
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import EbsError
from esrally_ebs.studies.published import relative_error

_VARIABLE = "ESRALLY_EBS_PUBLISHED"
_BURST = {
    "prewarm_write_ops_per_5min": ("prewarm_iops", 1 / 300),
    "prewarm_iops": ("prewarm_iops", 1.0),
    "burst_write_ops_per_5min": ("burst_iops", 1 / 300),
    "burst_iops": ("burst_iops", 1.0),
    "post_burst_iops": ("after_iops", 1.0),
    "burst_duration_including_prewarm": ("burst_s", 60.0),
    "burst_after_2h_idle": ("again_s", 60.0),
    "await_prewarm": ("prewarm_await_s", 1e-3),
    "await_burst": ("burst_await_s", 1e-3),
    "await_after_burst": ("after_await_s", 1e-3),
    "refill_time_full": ("refill_s", 3600.0),
}


_FIELDS = {
    "iops": "iops",
    "bandwidth": "bw_bytes",
    "bytes": "io_bytes",
    "total_ios": "total_ios",
    "device_ios": "total_ios",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row beside ours; a row without ours has a reason."""

    row: Row
    published: tuple[float, float]  # in the row's unit; both ends of a range
    ours: float | None
    tolerance: float
    counted: bool
    why: str

    @property
    def nearer(self) -> float:
        """The published figure, or what of its range is nearest to ours."""
        assert self.ours is not None
        low, high = self.published
        return min(max(self.ours, low), high)

    @property
    def error(self) -> float:
        """Relative to the published figure, or to the nearer end of a range."""
        assert self.ours is not None
        return relative_error(self.ours, *self.published)

    @property
    def ok(self) -> bool:
        """Whether ours is within tolerance."""
        return self.ours is not None and abs(self.error) <= self.tolerance


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=os.environ.get(_VARIABLE, "").split())
    parser.add_argument("--notes", action="store_true")
    arguments = parser.parse_args()
    if not arguments.files:
        parser.error(f"no file with rows; name one, or set {_VARIABLE}")
    for file in map(Path, arguments.files):
        rows = list(rows_of(json.loads(file.read_text())))
        print(f"{file.name}: {len(rows)} rows")
        _print(judge(rows))
        if arguments.notes:
            of_notes = [row for of in rows for row in noted(of)]
            print(f"\n{file.name}: {len(of_notes)} figures in notes of rows")
            _print(judge(of_notes))


def rows_of(document: Any) -> Iterator[Row]:  # noqa: ANN401 - whatever the file holds
    """All rows: mappings with a volume, a metric and a value, in lists."""
    if isinstance(document, list):
        yield from (row for row in document if isinstance(row, dict) and {"metric", "value"} <= row.keys())
    elif isinstance(document, dict):
        for part in document.values():
            yield from rows_of(part)


def noted(row: Row) -> Iterator[Row]:
    """Latencies that a row's note gives, as rows."""
    note = row.get("note")
    for name, value in note.items() if isinstance(note, dict) else ():
        if name.startswith("clat_") and name.endswith("_us"):
            yield {**row, "metric": name.removesuffix("_us"), "value": value, "unit": "us"}


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Every row beside ours."""
    siblings: dict[str, list[Row]] = {}
    for row in rows:
        siblings.setdefault(experiments.key_of(row), []).append(row)
    outcomes: dict[str, Outcome] = {}
    verdicts = []
    for row in rows:
        out = _reason(row, "out_of_scope")
        try:
            ours, why = _ours(row, siblings[experiments.key_of(row)], outcomes), ""
        except (EbsError, LookupError, TypeError, ValueError, AttributeError) as error:
            ours, why = None, f"not understood: {error!r}"
        value = row["value"]
        ends = value if isinstance(value, list) else [value, value]
        known = all(isinstance(end, int | float) for end in ends)
        verdicts.append(
            Verdict(
                row=row,
                published=(min(ends), max(ends)) if known else (0.0, 0.0),
                ours=ours if known else None,
                tolerance=_scope()["tolerances"][kind_of(row["metric"])],
                counted=not out,
                why=out or why or _reason(row, "reasons"),
            )
        )
    return verdicts


def _ours(row: Row, siblings: Sequence[Row], outcomes: dict[str, Outcome]) -> float:
    """Our figure in the row's unit."""
    metric = row["metric"]
    if metric in _BURST and "while true" in str((row.get("workload") or {}).get("cmd")):
        name, unit = _BURST[metric]
        return float(getattr(_burst(json.dumps(dict(row), sort_keys=True)), name)) / unit
    if metric.startswith("monthly_cost"):
        region = metric.removeprefix("monthly_cost_")
        return monthly(spec_of(row), region, on=last_day(row["date"][:10])).usd
    if metric.startswith("PermittedThroughput"):
        limits = {limit.name: limit.rate for limit in model_for(spec_of(row)).limits}
        return limits["throughput"] / unit_of(row, BYTES)
    reading, key = reading_of(metric), experiments.key_of(row)
    if key not in outcomes:
        outcomes[key] = experiments.run(row, siblings)
    return _read_off(outcomes[key], reading) / unit_of(row, reading.units)


@cache
def _burst(row: str) -> experiments.Burst:
    whole = json.loads(row)
    return _burst_of(json.dumps({name: whole[name] for name in ("volume", "instance", "date")}))


@cache
def _burst_of(row: str) -> experiments.Burst:
    return experiments.burst(json.loads(row))


def _read_off(outcome: Outcome, reading: Reading) -> float:
    """Our figure in base units."""

    def total(run: Mapping[str, Any], of: str) -> float:
        return float(sum(run["jobs"][0][side][of] for side in reading.sides))

    if reading.what == "latency":
        return outcome.median(lambda run: _latency(run, reading))
    if reading.what == "runtime":
        return outcome.median(lambda run: max(run["jobs"][0][s]["runtime"] for s in reading.sides)) / 1e3
    split = -(-outcome.block_bytes // outcome.request_bytes) if reading.what == "device_ios" else 1
    return outcome.median(lambda run: total(run, _FIELDS[reading.what])) * split


def _latency(run: Mapping[str, Any], reading: Reading) -> float:
    """Seconds, of the direction that did I/O (of the first, when both did and none is named)."""
    done = [run["jobs"][0][side] for side in reading.sides if run["jobs"][0][side]["total_ios"]]
    if reading.percentile is None:
        ios = sum(side["total_ios"] for side in done)
        return float(sum(side["clat_ns"]["mean"] * side["total_ios"] for side in done)) / ios / 1e9
    return float(done[0]["clat_ns"]["percentile"][f"{reading.percentile:.6f}"]) / 1e9


def kind_of(metric: str) -> str:
    """What is allowed for a metric: that of latencies, or that of rates."""
    return "latency" if re.search(r"lat|await|service_time|response|(^|_)p\d", metric) else "rate"


@cache
def _scope() -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(Path(__file__).with_name("published_scope.json").read_text())
    return parsed


def _reason(row: Row, of: str) -> str:
    for entry in _scope()[of]:
        if all(_at(row, path) == value for path, value in entry["match"].items()):
            return str(entry["why"])
    return ""


def _at(row: Any, path: str) -> Any:  # noqa: ANN401 - any value of a row
    for name in path.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _print(verdicts: Sequence[Verdict]) -> None:
    print(f"{'row':58}{'metric':34}{'published':>14}{'ours':>14}{'error':>9}{'allowed':>9}")
    for verdict in verdicts:
        print(_line(verdict))
    counted = [verdict for verdict in verdicts if verdict.counted]
    within = sum(verdict.ok for verdict in counted)
    share = within / len(counted) if counted else 1.0
    print(f"\n{within} of {len(counted)} rows in scope are within tolerance ({share:.1%});", end=" ")
    print(f"{len(verdicts) - len(counted)} out of scope.")
    for title, group in (
        ("Outside", [v for v in counted if not v.ok]),
        ("Out of scope", [v for v in verdicts if not v.counted]),
    ):
        for why in dict.fromkeys(v.why for v in group):
            same = [f"{_name(v.row)} {v.row['metric']}" for v in group if v.why == why]
            print(f"{title}: {len(same)} x {why or 'no reason known'}: {'; '.join(same[:6])}")


def _name(row: Row) -> str:
    volume, workload = row.get("volume") or {}, row.get("workload") or {}
    parts = [row.get("id") or row.get("study"), volume.get("type", "").split()[0] if volume else ""]
    if not row.get("id"):
        parts += [volume.get("mode") or (volume.get("encrypted") is False and "plain")]
        parts += [
            f"{workload[name]}{unit}"
            for name, unit in (("bs_kib", "k"), ("numjobs", "x"))
            if name in workload
        ]
        parts += [f"{volume['count']} vol" if volume.get("count") else "", workload.get("rw", "")]
    return " ".join(str(part) for part in parts if part)[:56]


def _line(verdict: Verdict) -> str:
    low, high = verdict.published
    published = f"{low:,.5g}" if low == high else f"{low:,.4g}-{high:,.4g}"
    start = f"{_name(verdict.row):58}{verdict.row['metric'][:32]:34}{published:>14}"
    if verdict.ours is None:
        return f"{start}{'-':>14}{'':18}  out"
    mark = "out" if not verdict.counted else "ok" if verdict.ok else "MISS"
    return f"{start}{verdict.ours:>14,.5g}{verdict.error:>+9.1%}{verdict.tolerance:>9.0%}  {mark}"


if __name__ == "__main__":
    main()
