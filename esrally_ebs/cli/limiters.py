"""``esrally-ebs volumes show`` and ``set``: what an emulated arm's limiters hold now, and changing it."""

import json
from typing import Annotated

import typer

from esrally_ebs import by_hand
from esrally_ebs.cli.output import Json, console, new_table
from esrally_ebs.emulator.control import LimiterState
from esrally_ebs.errors import PlanError

ArmName = Annotated[str, typer.Argument(metavar="ARM", help="Name or mount of an attached emulated arm.")]
Credits = Annotated[
    float | None,
    typer.Option("--credits", min=0, max=1, help="Fill the burst credits to this share of their bucket."),
]
TimeScale = Annotated[
    float | None,
    typer.Option(min=1, max=10_000, help="Let buckets empty and fill so many times as fast as real ones."),
]


def show(arm: ArmName, as_json: Json = False) -> None:
    """Show bucket levels and credits of an emulated arm, and how long I/Os waited for each limit."""
    _print(by_hand.limiters(arm), as_json=as_json)


def change(
    arm: ArmName,
    credits_: Credits = None,
    drain: Annotated[bool, typer.Option("--drain", help="Empty all buckets but the credits.")] = False,
    refill: Annotated[bool, typer.Option("--refill", help="Fill all buckets but the credits.")] = False,
    time_scale: TimeScale = None,
    as_json: Json = False,
) -> None:
    """Change what an emulated arm's limiters hold, while it is used, and show it."""
    asked = {"credits": credits_, "drain": drain, "refill": refill, "time_scale": time_scale}
    settings = {key: value for key, value in asked.items() if value is not None and value is not False}
    if not settings or (drain and refill):
        raise PlanError(f"arm {arm}: give --credits, --time-scale, and one of --drain and --refill")
    _print(by_hand.set_limiters(arm, **settings), as_json=as_json)


def _print(state: LimiterState, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(state.to_json(), indent=2))
        return
    rows = new_table("limit", "tokens", "of", "full", "I/Os waited for it")
    for name, level in state.levels.items():
        capacity = state.capacities[name]
        share = f"{level / capacity:.1%}"
        rows.add_row(name, f"{level:,.0f}", f"{capacity:,.0f}", share, f"{state.waited_s[name]:,.3f} s")
    console().print(rows)
    unlimited = "; unlimited now" if state.unlimited else ""
    print(
        f"{state.reads:,} reads and {state.writes:,} writes, {state.in_flight} in flight,"
        f" {state.errors} errors; time scale {state.time_scale:g}{unlimited}"
    )
