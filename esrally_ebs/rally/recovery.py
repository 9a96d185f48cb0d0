"""Work with shards that takes minutes, as one Rally request from beginning to end.

Shard copies go where their index allows them, so all work between nodes is started by a setting.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from esrally.driver import runner

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.node import api
from esrally_ebs.node.life import REPOSITORY
from esrally_ebs.plan import Plan
from esrally_ebs.report.recoveries import SETTING, expected, limits_of, reading_of, setting_of
from esrally_ebs.store.context import Arm
from esrally_ebs.units import one_line

RECOVERY = "ebs-recovery"  # the operation's type
KINDS = ("replica", "node-loss", "relocation", "restore", "merge")
REPLICA, NODE_LOSS, RELOCATION, RESTORE, MERGE = KINDS
_OF_REPLICAS = (REPLICA, NODE_LOSS)
_ALLOCATION = "index.routing.allocation.enable"
# Settings from losing a node until it is back; Elasticsearch would wait a minute for the lost copy.
_KEPT_BACK = {_ALLOCATION: "primaries", "index.unassigned.node_left.delayed_timeout": "0s"}
_RESTORED = "ebs-restored"  # name of an index
_SNAPSHOT = {"repository": "ebs", "snapshot": "one"}
_PATIENCE_S = 3600.0  # for work without a known limit, such as a merge
# For copies: seconds in addition to the time that limits allow, and factor on that time.
_SPARE_S = 120.0
_TIMES = 10.0
_REASON_SIGNS = 300


def require_able(tasks: Iterable[Any], plan: Plan) -> None:
    """Raise PlanError for work in these tasks that this plan's nodes cannot do."""
    for task in (task for task in tasks if task.operation.type == RECOVERY):
        params, why = task.operation.params, ""
        if params.get("kind") not in KINDS:
            why = f"kind: {params.get('kind')!r} is not one of {', '.join(KINDS)}"
        elif not params.get("index"):
            why = "index: is missing; name the one whose shards are moved"
        elif plan.node.count < 2:
            why = "moves shards between nodes; set node.count = 2 or more"
        elif task.clients > 1:
            why = f"{task.clients} clients would move the same shards; give it 1"
        if why:
            raise PlanError(f"task {task.name}: {why}")


class Recovery(runner.Runner):  # type: ignore[misc]
    """A shard copied to another node as replica or primary, an index restored, or its segments merged."""

    async def prepare(
        self, es: Any, params: dict[str, Any], arm: Arm, plan: Plan, lose: Callable[[str], None]
    ) -> dict[str, Any]:
        """Set up the work's initial state: an index on one node, a snapshot, a restored index, a lost node.

        ``lose`` kills the node of that name, and returns when it is back without its copies. Returns the
        parameters, with the nodes that have the first shard and that come after it.
        """
        es = es.options(request_timeout=_PATIENCE_S)
        index, names = params["index"], [node.arm for node in arm.nodes]
        shards = await es.cat.shards(index=index, format="json", h="prirep,node,store", bytes="b")
        here = next(shard["node"] for shard in shards if shard["prirep"] == "p")
        size = sum(float(shard["store"] or 0) for shard in shards if shard["prirep"] == "p")
        wait = CopyDeadline(arm.name, params["kind"], patience_s(size, arm, plan))
        if params["kind"] == NODE_LOSS:
            here = names[0]  # never lost itself: the others use its network
        there = names[(names.index(here) + 1) % len(names)]
        # an earlier task's index: a lost node may have it, and no cluster gets ready without it
        await es.indices.delete(index=_RESTORED, ignore_unavailable=True)
        await _settle(es, index, [here], 0, wait)
        if params["kind"] in (RESTORE, MERGE):
            await _require_snapshot(es, index, names[0])
        if params["kind"] == MERGE:
            await _restore(es, index, there, wait)
        if params["kind"] == NODE_LOSS:
            await _settle(es, index, [here, there], 1, wait)
            await es.indices.put_settings(index=index, settings=_KEPT_BACK)
            await asyncio.to_thread(lose, there)
        return {**params, "nodes": (here, there), "port": arm.nodes[0].port, "wait": wait}

    async def __call__(self, es: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Do the work; the result's ``recovery`` says what it moved."""
        if "nodes" not in params:
            raise SetupError(f"{RECOVERY}: works on nodes that the pack has started; leave out --pipeline")
        began_s = time.perf_counter()
        await _perform(es["default"].options(request_timeout=_PATIENCE_S), params)
        facts = {"work": params["kind"], "seconds": time.perf_counter() - began_s}
        # not through Rally's client, which would count it as service time
        facts |= await asyncio.to_thread(_moved, params)
        return {"weight": 1, "unit": "ops", "hits": facts.pop("documents"), "recovery": facts}

    def __str__(self) -> str:
        return "work with shards"


async def _perform(es: Any, params: dict[str, Any]) -> None:
    kind, index, (here, there) = params["kind"], params["index"], params["nodes"]
    if kind in _OF_REPLICAS:
        await _settle(es, index, [here, there], 1, params["wait"])
    elif kind == RELOCATION:
        await _settle(es, index, [there], 0, params["wait"])
    elif kind == RESTORE:
        await _restore(es, index, there, params["wait"])
    else:
        merged = await es.indices.forcemerge(index=_RESTORED, max_num_segments=1)
        params["wait"].require_whole(merged["_shards"])


def patience_s(size: float, arm: Arm, plan: Plan) -> float:
    """Seconds that copies of so many bytes may take: many times what an arm's limits, without credits, allow.

    For volumes without known limits, what the default setting allows.
    """
    spec = arm.volume.spec
    slowest = min(setting_of(plan.node.params)[SETTING], setting_of({})[SETTING])
    setting = {SETTING: slowest, **reading_of(spec)}
    of_volume = limits_of(spec, credits_left=0.0)
    expected_s, _ = expected(REPLICA, [size], setting=setting, of_volume=of_volume)
    return _SPARE_S + _TIMES * expected_s


@dataclass(frozen=True, slots=True)
class CopyDeadline:
    """Time limit for copies of one arm."""

    arm: str
    kind: str
    patience_s: float

    def patient(self, es: Any) -> Any:
        """The client with a longer timeout."""
        return es.options(request_timeout=2 * self.patience_s)

    async def on(self, es: Any, index: str, copied: Awaitable[Any]) -> Any:
        """The result. Raises SetupError, naming what is missing, if it takes too long."""
        work = asyncio.ensure_future(copied)
        done, _ = await asyncio.wait({work}, timeout=self.patience_s)
        if done:
            return await work
        work.cancel()
        raise SetupError(
            f"arm {self.arm}: {self.kind}: {index} is not green after {self.patience_s:.0f} s, which is "
            f"{_TIMES:.0f} times what its limits let copies take, and {_SPARE_S:.0f} s: "
            f"{await _missing(es, index)}; see the nodes' logs, start the race again"
        )

    def require_whole(self, shards: Mapping[str, Any]) -> None:
        """Raise SetupError if Elasticsearch has given up on some of these shards, before the time limit."""
        if shards["failed"]:
            raise SetupError(
                f"arm {self.arm}: {self.kind}: {shards['failed']} of {shards['total']} shards failed; see "
                "that the volume has room, and the nodes' logs"
            )


async def _missing(es: Any, index: str) -> str:
    """The first missing copy of a shard, and Elasticsearch's explanation."""
    shards = await es.cat.shards(index=index, format="json", h="shard,prirep,state,node")
    for shard in shards:
        if shard["state"] != "STARTED":
            name = f"{'primary' if shard['prirep'] == 'p' else 'replica'} {shard['shard']}"
            if shard["state"] != "UNASSIGNED":
                return f"{name} is {shard['state']} on {shard['node']}"
            about = {"index": index, "shard": int(shard["shard"]), "primary": shard["prirep"] == "p"}
            return f"{name} is on no node: {_reason(await es.cluster.allocation_explain(**about))}"
    return "all copies are there, and one is on its way" if shards else "it has no shards"


def _reason(explained: Mapping[str, Any]) -> str:
    """Why no node without the copy may have it, in one line."""
    reasons = [
        f"{node['node_name']}: {decider['explanation']}"
        for node in explained.get("node_allocation_decisions", ())
        for decider in node.get("deciders", ())
        if decider["decider"] != "same_shard"
    ]
    return one_line("; ".join(reasons) or "it does not say why")[:_REASON_SIGNS]


async def _settle(es: Any, index: str, nodes: Sequence[str], replicas: int, wait: CopyDeadline) -> None:
    """Restrict an index to these nodes and this number of replicas, and wait until all copies are there."""
    await es.indices.put_settings(index=index, settings=_placed(nodes, replicas))
    green = {"wait_for_status": "green", "wait_for_no_relocating_shards": True}
    health = wait.patient(es).cluster.health(index=index, timeout=f"{2 * wait.patience_s:.0f}s", **green)
    await wait.on(es, index, health)


def _placed(nodes: Sequence[str], replicas: int) -> dict[str, Any]:
    return {
        "index.number_of_replicas": replicas,
        _ALLOCATION: "all",
        "index.routing.allocation.include._name": ",".join(nodes),
    }


async def _require_snapshot(es: Any, index: str, first: str) -> None:
    """Make a snapshot of the index, once per arm; each arm has its own repository."""
    settings = {"location": f"{REPOSITORY}/{first}", "max_snapshot_bytes_per_sec": "4gb"}
    await es.snapshot.create_repository(name=_SNAPSHOT["repository"], type="fs", settings=settings)
    if not (await es.snapshot.get(**_SNAPSHOT, ignore_unavailable=True))["snapshots"]:
        await es.snapshot.create(
            **_SNAPSHOT, indices=index, include_global_state=False, wait_for_completion=True
        )


async def _restore(es: Any, index: str, node: str, wait: CopyDeadline) -> None:
    restored = wait.patient(es).snapshot.restore(
        **_SNAPSHOT,
        indices=index,
        rename_pattern=".+",
        rename_replacement=_RESTORED,
        index_settings=_placed([node], 0),
        include_global_state=False,
        wait_for_completion=True,
    )
    wait.require_whole((await wait.on(es, _RESTORED, restored))["snapshot"]["shards"])


def _moved(params: dict[str, Any]) -> dict[str, Any]:
    """What was copied (for a merge: read), and how long ``max_bytes_per_sec`` held it back."""
    kind = params["kind"]
    index = _RESTORED if kind in (RESTORE, MERGE) else params["index"]
    shards = api.get(params["port"], f"/{index}/_recovery?detailed=true")[index]["shards"]
    # a replica's primary is listed, too, as it came to its own node
    copied = [shard["index"] for shard in shards if shard["primary"] is (kind not in _OF_REPLICAS)]
    throttled_ms = sum(
        shard[f"{end}_throttle_time_in_millis"] for shard in copied for end in ("source", "target")
    )
    return {
        "bytes": sum(shard["size"]["recovered_in_bytes"] for shard in copied),
        "files_bytes": [file["length_in_bytes"] for shard in copied for file in shard["files"]["details"]],
        "documents": api.get(params["port"], f"/{index}/_count")["count"],
        "throttled_s": 0.0 if kind == MERGE else throttled_ms / 1000,
    }
