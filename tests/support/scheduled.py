"""Tasks of a track, and a session's schedule of them on two arms."""

from collections.abc import Sequence
from typing import Any

from esrally import track as rally_track
from small_plan import TWO_ARMS

from esrally_ebs.model import Block
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.schedule import block_of, expand, settled
from esrally_ebs.workload.queries.replay import PARAM_SOURCE

PLAIN = rally_track.Track("plain")
MANY = rally_track.Track("many", indices=[rally_track.Index(f"i{n}") for n in range(257)])
WARM = {"cache.mode": "warm"}
ONE = {"design.nodes": "one"}
PLAN = f"""{TWO_ARMS}[design]
rounds = 2
[[baseline]]
name = "short"
rw = "randread"
bs = "4k"
repeat = true
[[baseline]]
name = "long"
rw = "readwrite"
bs = "16k"
"""


def plan(**overrides: object) -> Plan:
    return parse_plan(PLAN, "test.toml", overrides)


def nodes(
    searches: Sequence[Any],
    building: Sequence[Any] = (),
    track: rally_track.Track = PLAIN,
    **overrides: object,
) -> str:
    return settled(plan(**overrides), track, building, searches).design.nodes


def task(name: str, kind: str = "search") -> rally_track.Task:
    return rally_track.Task(
        name, rally_track.Operation(name, kind, params={}), warmup_iterations=0, iterations=1
    )


def block(made: rally_track.Task) -> Block:
    ours = block_of(made)
    assert ours is not None
    return ours


def parallel(*tasks: rally_track.Task) -> rally_track.Parallel:
    return rally_track.Parallel(list(tasks))


def names(made: list[rally_track.Task]) -> list[str]:
    return [task.name for task in made]


def log_beside_writes() -> list[Any]:
    operation = rally_track.Operation("log", "search", params={}, param_source=PARAM_SOURCE)
    return expand([parallel(rally_track.Task("log", operation), task("a", "bulk"))], plan(**WARM))
