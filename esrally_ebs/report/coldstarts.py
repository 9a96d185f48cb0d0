"""Cold starts in a report: a curve per task, and a table of first request, warm level and the way to it."""

from collections.abc import Sequence

from esrally_ebs.report.cells import arm_columns, arm_rows
from esrally_ebs.report.model import NOTHING, Cell, ColdStart, Curve, Table, quantity
from esrally_ebs.stats.coldstart import ColdStartCurve

_POINTS = 300  # of a curve


def figures(found: Sequence[ColdStartCurve]) -> tuple[ColdStart, ...]:
    """One drawing per task; of a long curve every n-th point is drawn, and always the first and the last."""
    tasks = dict.fromkeys(curve.task for curve in found)
    return tuple(
        ColdStart(task=task, curves=tuple(_curve(one) for one in found if one.task == task)) for task in tasks
    )


def _curve(found: ColdStartCurve) -> Curve:
    step = -(-len(found.requests) // _POINTS)
    places = sorted({*range(0, len(found.requests), step), len(found.requests) - 1})
    return Curve(
        arm=found.arm,
        x=tuple(float(found.requests[place]) for place in places),
        y=tuple(float(found.median_s[place]) for place in places),
    )


def table(found: Sequence[ColdStartCurve], arms: Sequence[str]) -> Table | None:
    """A row per task; None where every request was preceded by a drop."""
    if not found:
        return None
    return Table(
        key="cold_start",
        title="Cold start: from the drop to the warm level",
        item_title="task",
        columns=arm_columns(arms, ("first", "warm", "warm from")),
        rows=arm_rows({(curve.task, curve.arm): curve for curve in found}, arms, _cells),
        notes=(
            "Medians over all rounds by number of the request since the drop. The warm level is that of the "
            "last quarter; warm from: the request from which on all stay within 10 % of it.",
        ),
    )


def _cells(found: ColdStartCurve | None) -> tuple[Cell, Cell, Cell]:
    if found is None:
        return NOTHING, NOTHING, NOTHING
    first = float(found.median_s[0])
    meets = "not yet" if found.meets is None else f"request {found.meets}"
    return (
        quantity("first_s", first, f"{first * 1e3:.2f} ms"),
        quantity("warm_s", found.warm_s, f"{found.warm_s * 1e3:.2f} ms"),
        Cell(text=meets, facts={"warm_from": found.meets}),
    )
