"""Monthly cost of each arm, and what that buys, beside its slow requests."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from esrally_ebs.analysis.findings import Findings
from esrally_ebs.catalog import cost
from esrally_ebs.catalog.cost import ArmCost
from esrally_ebs.catalog.volume_types import efs_mode, known_model
from esrally_ebs.errors import PlanError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.report.model import NOTHING, Cell, Curve, Plot, Table, milliseconds, quantity, table_of
from esrally_ebs.store.session import PRICES, Session

OF_INSTANCE = "An instance store is in the price of its instance, and its data end when that stops."
_REGION = "us-east-1"  # default region: AWS prices its own examples there


def costs(session: Session, settings: Sequence[VolumeSpec] = ()) -> tuple[ArmCost, ...]:
    """Prices of the arms, or of other settings, on the session's day in the plan's region."""
    day = datetime.fromtimestamp(session.started_at, UTC).strftime("%Y-%m-%d")
    wanted = session.plan.cost
    usage = cost.Usage(read_bytes=wanted.read, written_bytes=wanted.written)
    specs = settings or [arm.spec for arm in session.arms]
    count = session.plan.node.count  # every node's volume is billed
    specs = [replace(spec, stripes=spec.stripes * count) for spec in specs] if count > 1 else specs
    try:
        prices = cost.price_list(own_prices(session))
    except PlanError as error:
        return tuple(ArmCost(arm=spec.name, problem=str(error)) for spec in specs)
    used = {spec.name: usage for spec in specs}
    return cost.of_arms(specs, region_of(session)[0], usage=used, prices=prices, on=day)


def own_prices(session: Session) -> str | None:
    """Path of the user's price list: the copy in the session's folder, else as plan or variable name it."""
    kept, named = session.path / PRICES, session.plan.cost.prices
    return str(kept) if kept.exists() else str(named) if named else cost.own_list()


def region_of(session: Session) -> tuple[str, bool]:
    """The region, and whether the plan or the real arms' instance names it."""
    plan = session.plan
    named = plan.cost.region or (plan.aws and plan.aws.region) or session.instance.get("region")
    return (str(named), True) if named else (_REGION, False)


def table(session: Session, findings: Findings, arm_costs: Sequence[ArmCost]) -> Table | None:
    """A row per arm; None if no arm has a price and none is expected (no price list or region named)."""
    sold = any(one.iops or one.bytes_per_s for one in arm_costs)
    wanted = own_prices(session) or (sold and region_of(session)[1])
    if all(one.price is None for one in arm_costs) and not wanted:
        return None
    p99 = _p99(findings)
    rows = {one.arm: _cells(one, p99.get(one.arm, {})) for one in arm_costs}
    return table_of("cost", "Cost", "arm", rows, *_notes(session, arm_costs, has_times=bool(p99)))


def _p99(findings: Findings) -> Mapping[str, Mapping[str, float]]:
    """99th percentile in seconds, by arm and compared task."""
    compared = {c.task for c in findings.comparisons}
    times: dict[str, dict[str, float]] = {}
    for summary in findings.summaries:
        if summary.task in compared:
            times.setdefault(summary.arm, {})[summary.task] = summary.p99_s
    return times


def _cells(arm_cost: ArmCost, p99: Mapping[str, float]) -> dict[str, Cell]:
    middle, slowest = _times(p99)
    return {
        "a month": _usd("usd_month", None if arm_cost.price is None else arm_cost.price.usd),
        "per 1,000 sustained IOPS": _usd("usd_month_per_1000_iops", arm_cost.usd_per_1000_iops),
        "per MiB/s sustained": _usd("usd_month_per_mib_per_s", arm_cost.usd_per_mib_per_s),
        "p99, middle of tasks": middle,
        "p99, slowest task": slowest,
    }


def _usd(metric: str, usd: float | None) -> Cell:
    if usd is None:
        return quantity(metric, usd, "")
    digits = 4 if 0 < usd < 1 else 2  # prices per MiB/s are below a dollar
    return quantity(metric, usd, f"{usd:,.{digits}f} USD")


def _times(p99: Mapping[str, float]) -> tuple[Cell, Cell]:
    known = [value for value in p99.values() if value > 0]
    if not known:
        return NOTHING, NOTHING
    middle = math.exp(sum(math.log(value) for value in known) / len(known))
    slowest = max(p99, key=lambda task: p99[task])
    of_slowest = milliseconds("p99_slowest_s", p99[slowest])
    return (
        milliseconds("p99_geometric_mean_s", middle),
        replace(of_slowest, facts={**of_slowest.facts, "task": slowest}),
    )


def _notes(session: Session, arm_costs: Sequence[ArmCost], *, has_times: bool) -> list[str]:
    priced = [one.price for one in arm_costs if one.price is not None]
    region, named = region_of(session)
    dates = ", ".join(dict.fromkeys(price.dated for price in priced if price.parts))
    chosen = "" if named else "; the plan names no region"
    lists = f", by price lists of {dates}" if dates else ""  # perhaps nothing of it has a price
    notes = [f"Storage and what is provisioned with it, in {region}{chosen}{lists}."]
    assumed = dict.fromkeys(part for price in priced for part in price.unverified)
    if assumed:
        notes.append(f"Not verified against AWS's price list: {', '.join(assumed)}.")
    if session.emulated:
        notes.append("An emulated arm is priced as the volume that it emulates.")
    if any(arm.spec.type == "instance-store" for arm in session.arms):
        notes.append(OF_INSTANCE)
    notes += by_use([arm.spec for arm in session.arms], session)
    if has_times:
        notes.append("The middle is the geometric mean of the tasks' 99th percentiles.")
    notes += dict.fromkeys(f"No price: {one.problem}" for one in arm_costs if one.price is None)
    return notes


def by_use(specs: Sequence[VolumeSpec], session: Session) -> Iterator[str]:
    """Usage that is billed besides the price, where the plan does not say how much."""
    wanted = session.plan.cost
    efs = [spec for spec in specs if spec.type == "efs" and known_model(spec)]
    if not (wanted.read or wanted.written) and any(efs_mode(spec) == "elastic" for spec in efs):
        yield (
            "Not in these costs is what EFS Elastic asks for each GiB that is read and written: the plan does"
            " not say how much that is (cost.read and cost.written, a month and arm)."
        )
    if any(spec.type in ("standard", "magnetic") for spec in specs):
        yield "Not in these costs is what each million I/Os of a magnetic volume costs."


def tradeoffs(findings: Findings, arm_costs: Sequence[ArmCost]) -> tuple[Plot, ...]:
    """Monthly cost of every priced arm against the 99th percentile of every compared task."""
    p99 = _p99(findings)
    usd = {one.arm: one.price.usd for one in arm_costs if one.price is not None and one.arm in p99}
    listed = dict.fromkeys(task for arm in usd for task in p99[arm])
    tasks = [task for task in listed if all(task in p99[arm] for arm in usd)]
    if not tasks:
        return ()
    links = [
        Curve(name=task, x=tuple(usd.values()), y=tuple(p99[arm][task] * 1e3 for arm in usd), style="link")
        for task in tasks
    ]
    marks = [
        Curve(
            name=arm,
            x=(price,) * len(tasks),
            y=tuple(p99[arm][task] * 1e3 for task in tasks),
            style="marks",
            hover=tuple(f"{task} on {arm}: {p99[arm][task] * 1e3:.2f} ms" for task in tasks),
            summary="; ".join(f"{task} on {arm} {p99[arm][task] * 1e3:.2f} ms" for task in tasks),
        )
        for arm, price in usd.items()
    ]
    title = "Cost against the 99th percentile of service time"
    across, up = "US dollars a month", "service time, ms"
    curves = (*links, *marks)
    return (Plot(title=title, across=across, up=up, curves=curves, from_zero=True),)
