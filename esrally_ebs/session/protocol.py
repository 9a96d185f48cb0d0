"""The order of a session, whatever carries it out: what comes after what, and what is undone when it fails.

    prepare   check plan, record, preflight, begin, attach, check, copy, start nodes, describe
    blocks    fio, indexing, warm-up, rounds (nodes anew, warm-up, rounds ...), fio again
    search    connect, prepare, make cold (clear, evict, refill, verify), request
    complete  verify, take down, collect, report
    end       take down, say why: after a failure of any of these, at any point, once

What a step does stands in ``steps.py`` (the machine) and in ``rally/runners.py`` (requests).
"""

import asyncio
import random
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from esrally_ebs.checks.preflight import require_rounds
from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.model import Block, Phase, Request, State, Work
from esrally_ebs.node.eviction import Drop
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.plan.tables import CachePlan
from esrally_ebs.session.asking import Say
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Context
from esrally_ebs.store.folder import CANCELLED

if TYPE_CHECKING:
    from esrally_ebs.session.steps import MachineSteps

T = TypeVar("T")
QUERIES = "queries"  # task that sends all of a track's searches in turn, in a search for the knee


class LiveSession:
    """A session made by this process: Rally's race control, or our own command."""

    def __init__(self, steps: "MachineSteps", *, warn: Say | None = None) -> None:
        """``warn`` gets a line per thing that stays of a failed session; by default ``steps.say``."""
        self._steps = steps
        self._warn = warn or steps.say
        self._ended = False

    @property
    def folder(self) -> SessionFolder:
        """The session's record. Raises SetupError before the start."""
        if self._steps.folder is None:
            raise SetupError("the session was never started")
        return self._steps.folder

    def prepare(self) -> Context:
        """Everything before the first measurement; an error or Ctrl-C takes down what was begun."""
        steps = self._steps
        try:
            with _interruptible():
                steps.check_plan()
                steps.record()  # before anything is begun, so that 'sessions' can show why it failed
                steps.preflight()
                steps.begin()
                arms = steps.attach()
                arms = steps.check(arms)
                if steps.with_nodes:
                    index = steps.copy(arms)
                    arms = steps.start_nodes(arms, index)
                return steps.describe(arms)
        except BaseException as error:
            explained = steps.explain(error)
            self.fail(explained)
            if explained is error:
                raise
            raise explained from error

    def complete(self) -> str:
        """Everything after the last measurement; returns the report as text.

        Raises MeasurementError if the measurements cannot be compared, SetupError if something is left.
        """
        try:
            self._steps.verify()
        except EbsError as error:
            self.fail(error)
            raise
        left = self._steps.take_down()
        for problem in left:
            self.folder.add_warning(problem)
        self._steps.collect()
        text, broken = self._steps.report()
        self._ended = True
        if broken:
            raise MeasurementError(
                f"the arms cannot be compared: {broken}; see {self.folder.path / 'report.md'}"
            )
        if left:
            raise SetupError(
                f"{'; '.join(left)}; run 'esrally-ebs clean'. The report: {self.folder.path / 'report.md'}"
            )
        return text

    def fail(self, error: BaseException) -> None:
        """A step failed: record why, and end."""
        cancelled = isinstance(error, KeyboardInterrupt)
        if self._steps.folder is not None and not cancelled:
            code = error.exit_code if isinstance(error, EbsError) else SetupError.exit_code
            with suppress(SetupError):  # the disk may be full
                self._steps.record_fault(str(error) or repr(error), code)
        self.end(cancelled)

    def end(self, cancelled: bool, why: str = "") -> None:
        """Take down, then report how the session ended. Idempotent; does nothing after ``complete``.

        ``why`` is Rally's reason, used if no fault of ours was recorded.
        """
        if self._ended or self._steps.folder is None:
            return
        self._ended = True
        problems: list[str] = []
        try:
            problems = self._steps.take_down()  # first: looking for a fault may fail, too
            for problem in problems:
                self._warn(f"take down: {problem}")
        finally:  # a second Ctrl-C leaves the rest to the reaper, but must not leave the end unreported
            fault = self.first_fault()
            reason = fault[0] if fault else why or "the race ended early; see Rally's log"
            state, reason = (State.CANCELLED, CANCELLED) if cancelled else (State.FAILED, reason)
            self._steps.folder.finish(state, reason="; ".join([reason, *problems]))

    def first_fault(self) -> tuple[str, int] | None:
        """Text and exit code of the first fault in any process; later ones follow from it."""
        if self._steps.folder is None:
            return None
        faults = [event for event in self._steps.folder.events() if event.kind == "fault"]
        return (faults[0].fields["text"], faults[0].fields["exit_code"]) if faults else None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt the block. Rally's actors ignore it, and tools that they start would, too."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def blocks(plan: Plan, *, indexing: Sequence[str] = (), searches: Sequence[str] = ()) -> Iterator[Block]:
    """All blocks of a session, in order.

    ``indexing`` and ``searches`` name the track's tasks; a session of fio alone has none. Raises PlanError if
    the rounds are too few to show any difference between arms.
    """
    require_rounds(plan, len(searches))
    arms = [arm.name for arm in plan.arm]

    def block(
        work: Work, task: str, arm: str, round_: int = 0, phase: Phase = Phase.MEASURE, start: int = 1
    ) -> Block:
        cluster = cluster_of(arm, arms)
        return Block(arm=arm, cluster=cluster, work=work, task=task, round=round_, phase=phase, start=start)

    fixed = plan.design.order == "fixed"

    def baselines(round_: int) -> Iterator[Block]:
        # Reversed in every other pass, so that a drift affects all arms alike.
        order = arms if fixed or round_ % 2 == 0 else arms[::-1]
        return (block(Work.FIO, job.name, arm, round_) for job in jobs_of(plan, round_) for arm in order)

    measured = searches if plan.design.knee is None else [QUERIES]
    yield from baselines(0)
    yield from (block(Work.INDEXING, task, arm) for arm in arms for task in indexing)
    order_of_round = orders(arms, seed=plan.design.seed, fixed=fixed)
    parts = plan.design.rounds_of_starts or (range(1, plan.design.most_rounds + 1),)
    for start, rounds in enumerate(parts, start=1):
        if start > 1:
            yield block(Work.START, "nodes", arms[0], start=start)
        if plan.race and plan.race.warmup_iterations:
            # Arm by arm for each query: no arm's JIT idles longer than another's before the first round.
            yield from (
                block(Work.SEARCH, task, arm, 0, Phase.WARMUP, start) for task in searches for arm in arms
            )
        for number in rounds:
            order = next(order_of_round)
            yield from (
                block(Work.SEARCH, task, arm, number, start=start) for task in measured for arm in order
            )
    for pass_ in range(1, last_pass(plan) + 1):
        yield from baselines(pass_)


def with_writes(measured: Iterable[Block], beside: Mapping[str, Iterable[str]]) -> Iterator[Block]:
    """The blocks, with the writes that ``beside`` has for each search.

    Before every search its arm is brought back, as the last search's writes are still there; after the search
    come the writes that begin and end with it.
    """
    for block in measured:
        writes = beside.get(block.task, ()) if block.work is Work.SEARCH else ()
        if beside and block.work is Work.SEARCH:
            yield replace(block, work=Work.BRING_BACK, writes=tuple(writes))
        yield block
        yield from (replace(block, work=Work.INDEXING, task=write, phase=Phase.BESIDE) for write in writes)


def jobs_of(plan: Plan, round_: int) -> list[BaselineJob]:
    """All fio jobs at the session's start (0); at its end, the jobs with at least ``round_`` repeats."""
    return [job for job in plan.baseline if job.repeat >= round_]


def last_pass(plan: Plan) -> int:
    return max((job.repeat for job in plan.baseline), default=0)


def cluster_of(arm: str, arms: Sequence[str]) -> str:
    """Rally's name for the cluster of an arm; Rally requires one called "default"."""
    return "default" if arm == arms[0] else arm


def orders(members: Sequence[T], *, seed: int | str, fixed: bool = False) -> Iterator[list[T]]:
    """Orders of the arms, endlessly: one per round, or per pair of requests.

    Counterbalanced: every second order reverses the one before, so that a drift over both affects all arms
    alike; ``seed`` draws the first of each two.
    """
    draw = random.Random(seed)
    while True:
        order = list(members)
        if not fixed:
            draw.shuffle(order)
        yield list(order)
        yield order if fixed else order[::-1]


class SearchSteps(Protocol):
    """What one search needs, on the arm of its block."""

    async def connect(self) -> None:
        """Open the connection to the node."""

    async def prepare(self) -> None:
        """Set the state that the request starts from, if it changes it."""

    def make_cold(self) -> Drop:
        """Clear Elasticsearch's caches, evict the index, wait until the volume's buckets are full, verify.

        Again if need be. May raise.
        """

    def record(self, drop: Drop) -> None:
        """Put the drop into the session's events."""

    async def request(self) -> dict[str, Any]:
        """Send the request; returns the result of Rally's runner."""


async def search(request: Request, cache: CachePlan, steps: SearchSteps) -> dict[str, Any]:
    """One search and its preparation; the result also has ``iteration``, and ``resident_before`` if cold.

    Raises MeasurementError, without sending the request, if the index does not get cold.
    """
    fields: dict[str, Any] = {"iteration": request.number}
    if request.number == 1:
        await steps.connect()  # so that no sample includes the handshake
    await steps.prepare()
    if cache.mode == "cold" and request.block.phase is Phase.MEASURE:
        every = cache.drop_every
        fields["iteration"] = (request.number - 1) % every + 1 if every else request.number
        if fields["iteration"] == 1:
            # in a thread: it may take a second, and other clients must continue
            drop = await asyncio.to_thread(steps.make_cold)
            steps.record(drop)
            fields["resident_before"] = drop.after
    return {**await steps.request(), **fields}
