"""efs-2022: Bursting and Elastic throughput through one client, what is metered, and the bill."""

from collections.abc import Mapping
from dataclasses import replace

from esrally_ebs.catalog import cost
from esrally_ebs.catalog.cost import Usage
from esrally_ebs.catalog.limits import Limit
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.report.model import Table, Value, plain_table
from esrally_ebs.studies.published import Inputs, Parts
from esrally_ebs.studies.runs import Run, grouped, observed, plot_of_jobs
from esrally_ebs.units import GIB, MIB

_Figures = dict[tuple[str, str, str], float]


def run(inputs: Inputs) -> Parts:
    specs = {spec.name: spec for spec in inputs.plan.arm}
    runs = inputs.runner.jobs(inputs.plan, {})
    figures = observed(runs)
    for job in ("write", "read"):
        if {("bursting", job, "bandwidth"), ("elastic", job, "bandwidth")} <= figures.keys():
            ratio = figures["elastic", job, "bandwidth"] / figures["bursting", job, "bandwidth"]
            figures["", job, "ratio"] = ratio
    if inputs.runner.virtual:  # a device moves less, see DeviceRunner
        for run_ in runs:
            if run_.arm == "elastic":
                figures[run_.arm, run_.job, "billed"] = float(run_.ios * run_.block_bytes)
    _permitted(inputs, specs, figures)
    ratios = [
        f"{job}s {figures['', job, 'ratio']:.2f}"
        for job in ("read", "write")
        if ("", job, "ratio") in figures
    ]
    return Parts(
        observed=figures,
        conclusion=f"Elastic against Bursting, as a ratio: {', '.join(ratios)}." if ratios else "",
        tables=(_metered(specs, runs), _bill(inputs, specs["elastic"])),
        plots=(plot_of_jobs(inputs.plan, figures, "bandwidth", "Throughput", "MB/s", 1e6),),
    )


def _permitted(inputs: Inputs, specs: Mapping[str, VolumeSpec], figures: _Figures) -> None:
    """CloudWatch's PermittedThroughput: what may be metered; for Elastic, its write rate."""
    standard = inputs.study.settings["ia"]["standard_bytes"]
    with_ia = replace(specs["bursting"], size_bytes=standard)  # data in IA do not count
    figures["bursting", "", "permitted"] = _limit(specs["bursting"], "throughput").rate
    figures["bursting", "", "permitted_mb"] = _limit(with_ia, "throughput").rate
    figures["elastic", "", "permitted_gib"] = _limit(specs["elastic"], "throughput").rate


def _limit(spec: VolumeSpec, name: str) -> Limit:
    return next(limit for limit in model_for(spec).limits if limit.name == name)


def _metered(specs: Mapping[str, VolumeSpec], runs: list[Run]) -> Table:
    """Bytes moved and bytes metered by EFS; Bursting pays for the latter by credits."""
    rows: list[list[Value]] = []
    for (arm, job), group in grouped(runs).items():
        run = group[0]
        weights = _limit(replace(specs[arm], mode="bursting"), "throughput")
        seconds = max(direction.ios / direction.iops for direction in run.directions)
        moved = run.ios * run.block_bytes
        metered = moved * (weights.reads if job == "read" else weights.writes)
        earned = sum(limit.rate for limit in model_for(specs[arm]).limits if limit.of_credits) * seconds
        spent = max(0.0, metered - earned) / GIB if specs[arm].mode == "bursting" else None
        rows.append([arm, job, moved / GIB, seconds, metered / GIB, metered / seconds / MIB, spent])
    columns = ["arm", "job", "moved (GiB)", "seconds", "metered (GiB)", "metered (MiB/s)"]
    columns += ["credits spent (GiB)"]
    return plain_table("metered", "Metered throughput: a byte read counts a third", columns, rows)


def _bill(inputs: Inputs, elastic: VolumeSpec) -> Table:
    """What Elastic charges for the article's I/O; Bursting and Provisioned charge nothing for it."""
    moved = inputs.study.settings["moved_bytes"]
    usage = Usage(stored_bytes=0, read_bytes=moved, written_bytes=moved)
    rows: list[list[Value]] = []
    for region in inputs.study.settings["regions"]:
        try:
            price = cost.monthly(elastic, region, usage=usage, prices=inputs.prices)
        except PlanError as error:
            rows.append([region, None, None, None, None, str(error)])
            continue
        for part in price.parts:
            doubt = "" if part.rate.verified else "; not verified"
            source = f"{part.rate.dated}; {part.rate.source}{doubt}"
            rows.append([region, part.what, part.amount, part.rate.usd, part.usd, source])
        rows.append([region, "together", None, None, price.usd, ""])
    columns = ("region", "what", "GiB", "USD per GiB", "USD", "prices of")
    return plain_table("bill", "The bill for the transfer, Elastic", columns, rows)
