"""nikkei-2021: gp2 against gp3 by four fio jobs, price, baseline IOPS by size, and the Rally tasks."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from esrally_ebs.analysis.comparable import all_checks
from esrally_ebs.analysis.summary import summarize
from esrally_ebs.catalog import cost
from esrally_ebs.errors import MeasurementError, PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.report.model import Plot, Table, Value, curve_through, plain_table
from esrally_ebs.store import Session
from esrally_ebs.studies.published import Inputs, Parts
from esrally_ebs.studies.runs import observed, plot_of_jobs
from esrally_ebs.units import GIB, number_of

_SIZES_GIB = (1, 33, 34, 100, 170, 250, 334, 500, 750, 1000, 1500, 2000, 3000, 4000, 5334, 8000, 16384)
_HOW_TO_RACE = (
    "The Rally part needs Elasticsearch: 'esrally-ebs run gp2-vs-gp3' races the eight tasks, and"
    " 'esrally-ebs study nikkei-2021 --simulate --session latest' puts them beside the article's. There is no"
    " tolerance: other machine, other data; what can be compared is the shape of the table."
)


def run(inputs: Inputs) -> Parts:
    if inputs.session is not None:
        _require_raced(inputs.session)
    settings = inputs.study.settings
    specs = {spec.name: spec for spec in inputs.plan.arm}
    figures = observed(inputs.runner.jobs(inputs.plan, settings["reads"]))
    for arm in ("gp2", "gp3"):
        price = cost.monthly(specs[arm], settings["region"], prices=inputs.prices, on=settings["prices_on"])
        figures[arm, "", "usd"] = price.usd
    figures["", "", "crossover"] = crossover(specs["gp2"], specs["gp3"]) * GIB
    conclusion = (
        f"gp3 costs {figures['gp3', '', 'usd']:.2f} USD a month, gp2 {figures['gp2', '', 'usd']:.2f}; "
        f"gp2's baseline reaches gp3's from {figures['', '', 'crossover'] / GIB:,.0f} GiB on."
    )
    read_p50 = plot_of_jobs(inputs.plan, figures, "read_p50", "Read p50", "us", 1e-6)
    return Parts(
        observed=figures,
        conclusion=conclusion,
        tables=(_bills(inputs, specs), rally_table(settings["rally"], inputs.session)),
        plots=(replace(read_p50, log_y=True), _baselines(specs["gp2"], specs["gp3"])),
        remarks=(_HOW_TO_RACE,) if inputs.session is None else (),
    )


def _require_raced(session: Session) -> None:
    """Raise MeasurementError for a session that says nothing of which arm is faster."""
    broken = "; ".join(check.text for check in all_checks(session) if check.forbids)
    if broken:
        raise MeasurementError(f"session {session.id}: not comparable: {broken}; see its report")
    if not session.samples.num_rows:
        raise MeasurementError(f"session {session.id}: no search was measured in it; name a race")


def crossover(gp2: VolumeSpec, gp3: VolumeSpec) -> int:
    """Smallest size in GiB at which gp2's baseline reaches gp3's."""
    return 1 + bisect_left(range(1, 16_384), _baseline(gp3, 1000), key=lambda size: _baseline(gp2, size))


def _baseline(spec: VolumeSpec, size_gib: int) -> float:
    bought = spec.type == "gp3"  # the smallest volumes cannot buy 3,000 IOPS, but have them included
    changed = replace(spec, size_bytes=size_gib * GIB, iops=None if bought else spec.iops)
    iops, _ = cost.sustained(changed)
    return iops or 0.0


def _baselines(gp2: VolumeSpec, gp3: VolumeSpec) -> Plot:
    curves = tuple(
        curve_through(spec.name, [(float(size), _baseline(spec, size)) for size in _SIZES_GIB])
        for spec in (gp2, gp3)
    )
    title = "Baseline IOPS by size, as in the article's graph"
    return Plot(title=title, across="GiB", up="IOPS", curves=curves)


def _bills(inputs: Inputs, specs: Mapping[str, VolumeSpec]) -> Table:
    """The arms' prices, by the article's and the newest price list."""
    region = inputs.study.settings["region"]
    rows: list[list[Value]] = []
    for on in (inputs.study.settings["prices_on"], None):
        for arm in cost.of_arms([specs["gp2"], specs["gp3"]], region, prices=inputs.prices, on=on):
            if (price := arm.price) is None:
                raise PlanError(arm.problem)
            usd = (round(price.usd, 3), arm.usd_per_1000_iops, arm.usd_per_mib_per_s)
            rows.append([arm.arm, price.dated, *usd, price.source])
    columns = ("arm", "prices of", "USD a month", "USD per 1,000 IOPS", "USD per MiB/s", "source")
    note = "IOPS that the volume holds for good: gp2's 300, not the 3,000 of its burst."
    return plain_table("prices", f"Price in {region}", columns, rows, note)


def rally_table(published: Sequence[tuple[str, float, float]], session: Session | None) -> Table:
    """The article's medians in ms, and a recorded session's if there is one."""
    arms = [] if session is None else session.arm_names
    medians = {} if session is None else {(s.task, s.arm): s.p50_s * 1e3 for s in summarize(session.samples)}
    rows: list[list[Value]] = []
    for name, gp2, gp3 in published:
        ours = [medians.get((name, arm)) for arm in arms]
        rows.append([name, gp2, gp3, "gp2" if gp2 < gp3 else "gp3", *ours, *_faster(arms, ours)])
    columns = ["task", "gp2 (ms)", "gp3 (ms)", "faster", *(f"{arm}, ours (ms)" for arm in arms)]
    columns += ["faster, ours"] if len(arms) > 1 else []
    if session is None:
        return plain_table("rally", "The Rally tasks, p50 of service time, as published", columns, rows)
    note = f"session {session.id}"
    if {"gp2", "gp3"} <= set(arms):
        raced = [row for row in rows if row[-1] is not None]
        agree = sum(row[3] == row[-1] for row in raced)
        note += f"; the same arm is faster in {agree} of {number_of(len(raced), 'task')} raced on both"
    return plain_table("rally", "The Rally tasks, p50 of service time", columns, rows, note)


def _faster(arms: Sequence[str], ours: Sequence[float | None]) -> list[Value]:
    if len(arms) < 2:
        return []
    known = {arm: value for arm, value in zip(arms, ours, strict=True) if value is not None}
    return [min(known, key=lambda arm: known[arm]) if len(known) == len(arms) else None]
