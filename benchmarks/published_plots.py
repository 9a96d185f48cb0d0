"""The plots of ``docs/internals/emulation.md``: ours against every published figure, and the study of 2021.

``python benchmarks/published_plots.py ROWS.json ... [--output docs/plots]`` writes ``published.svg`` (rows as
``published.py`` takes them, and the figures in their notes) and ``nikkei-2021.svg`` (as ``esrally-ebs study
nikkei-2021 --simulate --output`` draws it). Takes a minute or two; needs no root.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from published import Verdict, judge, kind_of, noted, rows_of
from published_metrics import BYTES, COUNTS, SECONDS, unit_of

from esrally_ebs.catalog.cost import price_list
from esrally_ebs.report import render_svg
from esrally_ebs.report.model import Figures, Plot, Report, curve_through
from esrally_ebs.studies import VirtualRunner, run_study
from esrally_ebs.studies.published import RENDERERS

_KINDS: Sequence[tuple[str, str, str, Mapping[str, float], float]] = (
    ("I/Os and IOPS", "published", "rate", COUNTS, 1.0),
    ("Throughput", "published, MB/s", "rate", BYTES, 1e6),
    ("Latency", "published, ms", "latency", SECONDS, 1e-3),
)


def main() -> None:
    """Write the drawings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "docs" / "plots")
    arguments = parser.parse_args()
    rows = [row for file in arguments.files for row in rows_of(json.loads(file.read_text()))]
    verdicts = [verdict for verdict in judge(rows) if verdict.counted and verdict.ours is not None]
    plots = [_errors(title, *kind, verdicts, _outcome) for title, *kind in _KINDS]
    of_notes = judge([row for of in rows for row in noted(of)])
    plots.append(_errors("Latency of runs of 2020, from notes", *_KINDS[-1][1:], of_notes, _percentile))
    arguments.output.mkdir(parents=True, exist_ok=True)
    title = "Ours in virtual time against published figures"
    figures = Figures(others=tuple(plot for plot in plots if plot is not None))
    drawn = Report(
        kind="study", title=title, about=(), facts={}, verdict="", labels=(), tables=(), figures=figures
    )
    _write(arguments.output / "published.svg", render_svg(drawn))
    result = run_study("nikkei-2021", VirtualRunner(), price_list())
    _write(arguments.output / "nikkei-2021.svg", RENDERERS["svg"](result))


def _errors(
    title: str,
    across: str,
    kind: str,
    units: Mapping[str, float],
    shown_in: float,
    verdicts: Sequence[Verdict],
    group_of: Callable[[Verdict], str],
) -> Plot | None:
    """Per cent off, over what was published (a range at its nearer end); None when there is none."""
    groups: dict[str, list[tuple[float, float]]] = {}
    allowed = 0.0
    for verdict in verdicts:
        if kind_of(verdict.row["metric"]) == kind and (unit := _unit(verdict, units)):
            point = (verdict.nearer * unit / shown_in, verdict.error * 100)
            groups.setdefault(group_of(verdict), []).append(point)
            allowed = verdict.tolerance * 100
    places = [x for points in groups.values() for x, _ in points]
    if not places:
        return None
    ends = min(places), max(places)
    marks = [curve_through(name, points, "marks") for name, points in sorted(groups.items())]
    margins = [curve_through(f"{at:+.0f} %", [(x, at) for x in ends]) for at in (allowed, -allowed)]
    return Plot(
        title=f"{title}: {len(places)} figures",
        across=across,
        up="ours against published, per cent",
        log_x=True,
        curves=(*marks, *margins),
    )


def _unit(verdict: Verdict, units: Mapping[str, float]) -> float | None:
    try:
        return unit_of(verdict.row, units)
    except ValueError:
        return None


def _outcome(verdict: Verdict) -> str:
    return "within" if verdict.ok else "outside"


def _percentile(verdict: Verdict) -> str:
    return "p99, p99.9" if verdict.row["metric"].endswith(("p99", "p999")) else "mean to p90"


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    print(f"{path}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
