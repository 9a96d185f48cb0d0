"""``esrally-ebs volumes show`` and ``set``: what an emulated arm's limiters hold now, and changing it."""

import json
from typing import Annotated

import typer

from esrally_ebs.cli.output import Json, console, new_table, put
from esrally_ebs.errors import PlanError
from esrally_ebs.model import MAX_TIME_SCALE
from esrally_ebs.session import manual
from esrally_ebs.units import format_bytes
from esrally_ebs.volumes.emulated.control import LimiterState

ArmName = Annotated[str, typer.Argument(metavar="ARM", help="Name or mount of an attached emulated arm.")]
Credits = Annotated[
    float | None,
    typer.Option("--credits", min=0, max=1, help="Fill the burst credits to this share of their bucket."),
]
TimeScale = Annotated[
    float | None,
    typer.Option(
        min=1, max=MAX_TIME_SCALE, help="Let buckets empty and fill so many times as fast as real ones."
    ),
]


def show(arm: ArmName, as_json: Json = False) -> None:
    """Show bucket levels and credits of an emulated arm, and how long I/Os waited for each limit."""
    _print(arm, manual.limiters(arm), as_json=as_json)


def change(
    arm: ArmName,
    credits_: Credits = None,
    drain: Annotated[bool, typer.Option("--drain", help="Empty all buckets but the credits.")] = False,
    refill: Annotated[bool, typer.Option("--refill", help="Fill all buckets but the credits.")] = False,
    time_scale: TimeScale = None,
    as_json: Json = False,
) -> None:
    """Change what an emulated arm's limiters hold, while it is used, and show it."""
    given = {"credits": credits_, "drain": drain, "refill": refill, "time_scale": time_scale}
    settings = {key: value for key, value in given.items() if value is not None and value is not False}
    if not settings or (drain and refill):
        raise PlanError(f"arm {arm}: give --credits, --time-scale, and one of --drain and --refill")
    _print(arm, manual.set_limiters(arm, **settings), as_json=as_json)


def _print(arm: str, state: LimiterState, *, as_json: bool) -> None:
    if as_json:
        put(json.dumps(state.to_json(), indent=2))
        return
    type_, limits = manual.limits_of(arm)
    rows = new_table("limit", "tokens", "of", "full", "refilled by", "I/Os waited for it")
    for name, level in state.levels.items():
        capacity, limit = state.capacities[name], limits[name]
        amount = format_bytes if limit.counts == "bytes" else _operations
        rate = f"{amount(limit.rate)}/s"
        share = f"{level / capacity:.1%}"
        rows.add_row(name, amount(level), amount(capacity), share, rate, f"{state.waited_s[name]:,.3f} s")
    console().print(rows)
    unlimited = "; unlimited now" if state.unlimited else ""
    put(
        f"{arm} ({type_}, emulated): {state.reads:,} reads and {state.writes:,} writes, {state.in_flight} in"
        f" flight, {state.errors} errors; time scale {state.time_scale:g}{unlimited}"
    )


def _operations(count: float) -> str:
    return f"{count:,.0f} I/Os"
