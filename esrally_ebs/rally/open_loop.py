"""Open loop: requests are sent when they are due, whether or not earlier ones have been answered.

Rally measures latency from a request's due time. So if a volume stalls for a second, every request that is
due in that second shows it; a closed loop would send, and count, only one (coordinated omission). This holds
only if nothing but the schedule decides when requests are due: so the request that opens a client's
connection comes before the schedule, and counts as warm-up.
"""

import copy
import fcntl
import hashlib
import json
import random
import time
from functools import partial
from typing import Any

from esrally.driver import scheduler

from esrally_ebs.errors import PlanError
from esrally_ebs.model import Block
from esrally_ebs.plan import Plan
from esrally_ebs.store.context import STARTS

NAME = "ebs-open-loop"
ARRIVALS = "ebs-arrivals"  # schedule of a task with its log's arrivals
DRAWN = "ebs-drawn"  # schedule of writes beside a search
OPEN = "ebs-open"  # key of the track's own schedule and the seed
LEAD_S = 0.5  # after the last client has connected, before the first request is due
# parameters that define the request
_QUERY = ("body", "query", "queries", "requests", "request-params", "path", "pages", "results-per-page")
_MAX_LEAD_S = 5.0  # before that, for the other clients to connect, one after another


def load_of(task: Any) -> dict[str, Any]:
    """Load of a task: clients if several; rate and schedule if there is a rate.

    Also a hash of the query, if it is written in the track. Raises Rally's error for an invalid rate.
    """
    load = {} if task.clients == 1 else {"clients": task.clients}
    if asked := {key: task.operation.params[key] for key in _QUERY if task.operation.params.get(key)}:
        text = json.dumps(asked, sort_keys=True, default=str)
        load["query"] = hashlib.sha256(text.encode()).hexdigest()[:12]
    if scheduler.run_unthrottled(task):
        return load
    rate = task.target_throughput
    if rate is not None:
        load["target-throughput"] = f"{rate.value:g} {rate.unit}"
    load["schedule"] = task.schedule or scheduler.DeterministicScheduler.name
    if "speed" in task.params:
        load["speed"] = task.params["speed"]
    return load


def is_open(task: Any, plan: Plan) -> bool:
    """Whether a task keeps to a schedule, so that its latency is meaningful.

    With cold caches the eviction before a request delays later ones; on one node, arms delay one another.
    There a target throughput only paces. Raises PlanError for a log's arrivals, which need a real schedule.
    """
    if scheduler.run_unthrottled(task):
        return False
    if plan.has_latency:
        speed = task.params.get("speed", 1)
        if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
            raise PlanError(f"task {task.name}: speed: {speed!r} is no number above 0; 2 is twice as fast")
        return True
    if task.schedule == ARRIVALS:
        one = plan.design.nodes == "one"
        why = "requests in pairs have no arrivals" if one else "evictions would delay what is due meanwhile"
        way = 'design.nodes = "per-arm"' if one else "cache to warm or steady"
        raise PlanError(f"task {task.name}: keeps to the log's arrivals, and {why}; set {way}")
    return False


def apply(clone: Any, block: Block, plan: Plan) -> None:
    """Make a measured block of an open task keep to its schedule: the same on all arms of a round."""
    clone.warmup_iterations = 1
    if clone.schedule == ARRIVALS:
        take_piece(clone, block, plan)
    _schedule(clone, NAME, block, plan)


def apply_beside(clone: Any, block: Block, plan: Plan) -> None:
    """Make writes with Poisson arrivals come at the same times on all arms of a round."""
    if clone.schedule == scheduler.PoissonScheduler.name and not scheduler.run_unthrottled(clone):
        _schedule(clone, DRAWN, block, plan)


def _schedule(clone: Any, name: str, block: Block, plan: Plan) -> None:
    clone.operation.params[OPEN] = (clone.schedule, f"{plan.design.seed} {block.task} {block.round}")
    clone.schedule = name


def take_piece(clone: Any, block: Block, plan: Plan) -> None:
    """Make a measured block ask its round's piece of a log, the same on all arms."""
    clone.iterations = None  # decided by the piece
    number = 1 if plan.trace == "perturb" else block.round  # slower reads are compared with usual ones
    clone.operation.params["piece"] = (number, plan.design.most_rounds)


def lift(clone: Any, *, keeps_rate: bool) -> None:
    """Let warm-up take as long as needed, as fast as the node answers, or at the track's rate.

    If that rate is no number, but a log's times or the track's own schedule, these apply.
    """
    clone.operation.params["cycle"] = True
    if not keeps_rate:
        lift_rate(clone)
    if not keeps_rate or clone.target_throughput is not None:
        clone.schedule = None


def lift_rate(clone: Any) -> None:
    """Remove the track's rate."""
    for key in ("target-throughput", "target-interval"):
        clone.params.pop(key, None)


def first_start(task: str, now: float) -> float:
    """When the first client began this task, by ``time.perf_counter()``; ``now`` if this is the first.

    Rally's workers begin milliseconds apart; the counter is common to the machine's processes.
    """
    from esrally_ebs.rally import activation  # imported here: it imports schedule, which imports this module

    with (activation.current().notes / STARTS).open("a+") as starts:
        fcntl.flock(starts, fcntl.LOCK_EX)
        starts.seek(0)
        for line in starts:
            name, _, at = line.rpartition(" ")
            if name == task:
                return float(at)
        starts.write(f"{task} {now!r}\n")
    return now


class Arrivals(scheduler.Scheduler):  # type: ignore[misc]
    """Sends requests at the times of a log, divided by the task's ``speed``."""

    parameter_source: Any = None  # of one client; Rally sets it after ``__init__``

    def __init__(self, task: Any) -> None:
        self._speed = task.params.get("speed", 1)

    def next(self, current: float) -> float:
        """When the next request is due, in seconds since the first. StopIteration after the last."""
        due: float = self.parameter_source.due_s() / self._speed
        return due


class OpenLoop(scheduler.Scheduler):  # type: ignore[misc]
    """The track's schedule for one client, after the request that opens its connection."""

    parameter_source: Any = None

    def __init__(self, task: Any) -> None:
        self._task = copy.copy(task)
        self._task.schedule, self._seed = task.operation.params[OPEN]
        self._inner: Any = None
        self._begins_s = LEAD_S  # begin of the schedule, after this client began

    def next(self, current: float) -> float:
        """When the next request is due, in seconds since this client began."""
        if self._inner is None:
            self._inner = self._of_client()
            # each client connects by a query: sent all at once, these would still be queued at the first due
            # time
            clients = self._task.clients
            lead_s = min(self._gap_s() * clients, _MAX_LEAD_S)
            now = time.perf_counter()
            self._begins_s = first_start(self._task.name, now) + lead_s + LEAD_S - now
            return float(lead_s * self.parameter_source.client / clients)
        return self._begins_s + float(self._inner.next(max(0.0, current - self._begins_s)))

    def before_request(self, now: float) -> None:
        """Pass on to schedules that use it."""
        self._inner.before_request(now)

    def after_request(self, now: float, weight: float, unit: str, request_meta_data: Any) -> None:
        """Pass on to schedules that use it."""
        self._inner.after_request(now, weight, unit, request_meta_data)

    def _gap_s(self) -> float:
        """Mean seconds between requests of the task; 0 if the track's schedule decides."""
        if self._task.schedule == ARRIVALS:
            return float(self.parameter_source.gap_s()) / float(self._task.params.get("speed", 1))
        rate = self._task.target_throughput
        return 1 / rate.value if rate else 0.0

    def _of_client(self) -> Any:
        if self._task.schedule == scheduler.PoissonScheduler.name:
            draw = random.Random(f"{self._seed} {self.parameter_source.client}")
            return scheduler.UnitAwareScheduler(self._task, partial(_Poisson, draw))
        inner = scheduler.scheduler_for(self._task)
        if hasattr(inner, "parameter_source"):
            inner.parameter_source = self.parameter_source
        return inner


class DrawnArrivals(OpenLoop):
    """The track's schedule for one client, without a connecting request."""

    def next(self, current: float) -> float:
        """When the next request is due, in seconds since this client began."""
        self._inner = self._inner or self._of_client()
        return float(self._inner.next(current))


class _Poisson(scheduler.SimpleScheduler):  # type: ignore[misc]
    """Rally's Poisson schedule with its own seed: arms get requests at the same times, so chance cancels."""

    def __init__(self, draw: random.Random, task: Any, target_throughput: float) -> None:
        self._draw, self._rate = draw, target_throughput

    def next(self, current: float) -> float:
        return current + self._draw.expovariate(self._rate)
