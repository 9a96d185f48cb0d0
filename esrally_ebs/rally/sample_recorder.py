"""In Rally's driver: writes samples and telemetry to the session folder, ends rounds, reports progress."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from esrally import telemetry
from esrally.metrics import SampleType

from esrally_ebs.analysis.knee import EVENT
from esrally_ebs.analysis.profile import calibration_errors
from esrally_ebs.analysis.sequential import InterimResult, look, looks
from esrally_ebs.analysis.summary import Blocks, Off
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.model import Block, Event, Node, Phase, Sample, TelemetryPoint, Work
from esrally_ebs.node import api
from esrally_ebs.plan import Plan
from esrally_ebs.rally.coordinator_client import CoordinatorClient
from esrally_ebs.rally.knee import StepRule
from esrally_ebs.rally.schedule import block_of, round_of
from esrally_ebs.session.hosts import DataHosts, hosts_of
from esrally_ebs.session.keeper import read_page, root_steps
from esrally_ebs.store import PartWriter, SessionFolder
from esrally_ebs.store.context import ENOUGH, LOST, STEP, Context
from esrally_ebs.telemetry.gc_log import GcLog, Pause
from esrally_ebs.telemetry.sampler import Sampler, SamplerThread, Watch
from esrally_ebs.units import number_of
from esrally_ebs.volumes.backends import take_credits
from esrally_ebs.volumes.emulated.control import read_state


def line_writer(is_quiet: bool) -> Callable[[str], None]:
    """A function that writes a line to stdout unless that is a terminal; ignores a closed reader."""

    def write(text: str) -> None:
        if not is_quiet and not sys.stdout.isatty():
            with suppress(OSError):
                sys.stdout.write(f"[INFO] {text}\n")
                sys.stdout.flush()

    return write


class StageLines:
    """In Rally's driver: reports when the race reaches another stage, and how many tasks are left."""

    def __init__(
        self, rounds: int, *, write: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds = rounds
        self._write = write
        self._now = now
        self._began_s = now()
        self._stage = ""

    def begins(self, block: Block, left: int) -> None:
        """Report that a task of this block begins; ``left`` tasks remain, including this one."""
        stage = self._stage_of(block)
        if stage != self._stage:
            self._stage = stage
            minutes, seconds = divmod(round(self._now() - self._began_s), 60)
            self._write(f"{stage}: {number_of(left, 'task')} left, {minutes} min {seconds:02} s so far")

    def _stage_of(self, block: Block) -> str:
        if block.work is Work.FIO:
            return "fio again" if block.round else "fio"
        if block.work is Work.START:
            return f"start {block.start} of the nodes"
        if block.work is Work.INDEXING and block.phase is Phase.MEASURE:
            return "indexing"
        return f"round {block.round} of {self._rounds}" if block.round else "warm-up"


class StopRule:
    """Collects the times of each round, and decides whether another one is needed."""

    def __init__(
        self,
        plan: Plan,
        *,
        record: Callable[[InterimResult, str], None],
        off: Callable[[], Off] = dict,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``record`` gets each look, and why it is the last ("" if it is not).

        ``off`` is as for ``judge``.
        """
        self._plan = plan
        self._record = record
        self._off = off
        self._now = now
        self._times: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
        self._round = 0
        self._began_s = 0.0

    def add(self, task: str, arm: str, round_: int, service_time_s: float, latency_s: float) -> None:
        self._times.setdefault((task, arm), {}).setdefault(round_, []).append((service_time_s, latency_s))

    def take(self, sample: Any, arm: str, block: Block) -> None:
        """Add one of Rally's samples; ignores warm-up and failures."""
        if sample.sample_type is not SampleType.Warmup and sample.request_meta_data.get("success", True):
            self.add(block.task, arm, block.round, sample.service_time, sample.latency)

    def describe(self, arm: str) -> str:
        """ "": all rounds are alike."""
        return ""

    def begins(self, round_: int) -> bool:
        """Whether this round, whose first task is next, is wanted."""
        if round_ <= self._round:
            return True
        ended, self._round = self._round, round_
        if not ended:
            self._began_s = self._now()
            return True
        used_s = self._now() - self._began_s
        budget_s = self._plan.design.budget
        spent = budget_s is not None and used_s + used_s / ended > budget_s
        if not spent and ended not in looks(self._plan.design.most_rounds):
            return True
        return self._look(spent)

    def _look(self, spent: bool) -> bool:
        design = self._plan.design
        places = (0, 1) if self._plan.has_latency else (0,)
        result = look(
            [self._blocks(place) for place in places],
            design.reference_first(arm.name for arm in self._plan.arm),
            margin=design.margin,
            confidence=design.confidence,
            most=design.most_rounds,
            off=self._off(),
        )
        why = "every task is decided" if result.decides else "the time budget is spent" if spent else ""
        self._record(result, why)
        return not why

    def _blocks(self, place: int) -> Blocks:
        """Service times (0) or latencies (1), which are the same for tasks without due times."""
        return {
            key: {round_: np.array([times[place] for times in rows]) for round_, rows in by_round.items()}
            for key, by_round in self._times.items()
        }


def _epoch_of_counter() -> float:
    """When ``time.perf_counter()`` was 0 (epoch, s), from the closest of three pairs of readings."""

    def read() -> tuple[float, float]:
        before, now, after = time.perf_counter(), time.time(), time.perf_counter()
        return after - before, now - (before + after) / 2

    return min(read() for _ in range(3))[1]


class SampleRecorder:
    """Rally's samples as rows of ``samples/*.parquet``; recreated in each process that uses it."""

    def __init__(self, context: Context) -> None:
        self._session = context.session
        self.pid = os.getpid()  # process that opened the writer; forked ones differ
        self._epoch_s = _epoch_of_counter()
        # the writer's low-priority thread makes rows: the driver's own runs beside requests
        self._writer: PartWriter = SessionFolder(context.folder).part_writer("samples", row=self._row)

    def add(self, samples: Iterable[Any]) -> None:
        """Keep the samples of our tasks, except fio's, which has its own rows."""
        self._epoch_s = _epoch_of_counter()
        self._writer.add(sample for sample in samples if self._is_request(sample))

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()

    @staticmethod
    def _is_request(sample: Any) -> bool:
        block = block_of(sample.task)
        return block is not None and block.work in (Work.SEARCH, Work.INDEXING)

    def _row(self, sample: Any) -> Sample:
        block = block_of(sample.task)
        assert block is not None
        meta = sample.request_meta_data
        return Sample(
            session=self._session,
            arm=meta.get("arm", block.arm),
            round=block.round,
            task=block.task,
            operation=sample.operation_name,
            phase=Phase.WARMUP if sample.sample_type is SampleType.Warmup else block.phase,
            iteration=meta.get("iteration", 0),
            client=sample.client_id,
            # When the request was sent. Rally's absolute time is from when its runner began, before caches
            # are dropped. The counter behind it is common to the machine's processes; load hosts send their
            # counter's zero.
            started_s=sample.request_start + meta.get("epoch_s", self._epoch_s),
            service_time_s=sample.service_time,
            latency_s=sample.latency,
            processing_time_s=sample.processing_time,
            ops=float(sample.total_ops),
            success=bool(meta.get("success", True)),
            hits=_count(meta.get("hits")),
            took_s=meta["took"] / 1000 if isinstance(meta.get("took"), int | float) else None,
            resident_before=meta.get("resident_before"),
        )


def _count(hits: object) -> int | None:
    """Hits as the track's own runner gives them: a number or Elasticsearch's ``total``; else None."""
    number = hits.get("value") if isinstance(hits, Mapping) else hits
    return int(number) if isinstance(number, int | float) and float(number).is_integer() else None


class VolumeTelemetry(telemetry.TelemetryDevice):  # type: ignore[misc]
    """A Rally telemetry device that runs our sampler: devices, page cache and limiters of all arms."""

    internal = True
    command = "ebs-volumes"
    human_name = "Volumes under comparison"
    help = "Samples block devices, page cache and volume limiters of all arms once a second"
    serverless_status = telemetry.serverless.Status.Public

    def __init__(self, session: Callable[[], Context], on_stop: Callable[[], None]) -> None:
        super().__init__()
        context = self._context = session()
        self._on_stop = on_stop
        self._folder = SessionFolder(context.folder)
        self._thread: SamplerThread | None = None
        self._writer: PartWriter | None = None
        self._watch = Watch()
        self._arms = {volume.spec.name: arm.name for arm in context.arms for volume in arm.volumes}
        nodes = [node.arm for arm in context.arms for node in arm.nodes]
        self._pauses = {name: _pauses(session, name) for name in nodes}

    def on_benchmark_start(self) -> None:
        self._writer = self._folder.part_writer("telemetry")
        hosts = hosts_of(self._context)
        sample = partial(_sample_hosts, hosts, self._on_cut) if hosts else self._sampler().sample
        self._thread = SamplerThread(sample, partial(self._keep, self._writer))
        self._thread.start()

    def _sampler(self) -> Sampler:
        arms = [(one.volume, one.node) for arm in self._context.arms for one in arm.members]
        return Sampler(
            arms,
            clock=SYSTEM_CLOCK,
            read_state=read_state,
            read_work=_index_work if self._context.has_writes else None,
            read_page=read_page(),
            on_cut=self._on_cut,
        )

    def _keep(self, writer: PartWriter, points: list[TelemetryPoint]) -> None:
        """Record a second's rows, and the events in them and in the nodes' logs."""
        writer.add(points)
        for event in self._watch.look(points):
            self._event(event)
        for node, new_pauses in self._pauses.items():
            for pause in new_pauses():
                fields = {"text": pause.text, "seconds": pause.seconds}
                self._event(Event(at_s=pause.end_at, kind="gc", arm=node, fields=fields))

    def _event(self, event: Event) -> None:
        """Record an event of a node or its volume as its arm's."""
        arm = self._arms[str(event.arm)]
        fields = event.fields if arm == event.arm else {**event.fields, "node": event.arm}
        self._folder.event(replace(event, arm=arm, fields=fields))

    def _on_cut(self, node: str, reason: str) -> None:
        self._event(Event(at_s=time.time(), kind="telemetry-cut", arm=node, fields={"text": reason}))

    def on_benchmark_stop(self) -> None:
        """Stop sampling and write what is still in memory."""
        if self._thread is not None:
            self._thread.stop()
            if self._thread.error is not None:
                self._folder.note("telemetry-dead", text=str(self._thread.error) or repr(self._thread.error))
        if self._writer is not None:
            self._writer.close()
        self._on_stop()


def _sample_hosts(hosts: DataHosts, on_cut: Callable[[str, str], None]) -> list[TelemetryPoint]:
    """A sampler of arms on other machines."""
    second = hosts.sample()
    for node, reason in second.cuts:
        on_cut(node, reason)
    return second.points


class DrivenSession:
    """The session in Rally's driver and workers; the counterpart of ``patches.worker``."""

    def __init__(
        self,
        session: Callable[[], Context],
        write: Callable[[str], None] = lambda line: None,
        coordinator: Callable[[], CoordinatorClient | None] = lambda: None,
    ) -> None:
        """``session`` returns the session of the process in which a method is called.

        ``coordinator`` returns the client of a load host's process.
        """
        self._session = session
        self._coordinator = coordinator
        self._write = write
        self._lines: StageLines | None = None
        self._recorder: SampleRecorder | None = None
        self._rule: StopRule | StepRule | None = None

    def add_samples(self, samples: Sequence[Any]) -> None:
        """Record requests, and pass them to the rule that ends rounds."""
        if not samples:
            return
        self._recorder_here().add(samples)
        rule = self._rule_here()
        for sample in samples if rule else ():
            block = block_of(sample.task)
            if rule is None or block is None or block.work is not Work.SEARCH or not block.round:
                continue
            arm = sample.request_meta_data.get("arm", block.arm)
            rule.take(sample, arm, block)

    def telemetry_device(self) -> VolumeTelemetry:
        """A device that samples arms during the benchmark, and closes the recorder at its end."""
        return VolumeTelemetry(self._session, on_stop=lambda: self._recorder_here().close())

    def begin_tasks(self, tasks: Sequence[Any], left: int) -> None:
        """Report progress; let the stop rule decide, which leaves a file for workers."""
        round_ = max(map(round_of, tasks), default=0)
        rule = self._rule_here()
        if rule and not self._last_round.exists() and not rule.begins(round_):
            self._last_round.write_text(str(round_ - 1))
        block = block_of(tasks[0]) if tasks else None
        if block and not self.is_over(round_):
            if self._lines is None:
                self._lines = StageLines(self._session().plan.design.most_rounds, write=self._write)
            self._lines.begins(block, left)
            if rule and round_ and (text := rule.describe(block.arm)):
                self._write(text)
            if round_:
                _take_credits(self._session(), block)

    def is_over(self, round_: int) -> bool:
        """Whether the stop rule has ended the rounds before this one."""
        if remote := self._coordinator():
            return remote.is_over(round_)
        return self._last_round.exists() and round_ > int(self._last_round.read_text())

    @property
    def notes(self) -> Path | None:
        """Folder by which this machine's processes leave messages; None on a load host."""
        return None if self._coordinator() else self._session().notes

    def attend(self) -> None:
        """On a load host: let the coordinator notice when this process is gone."""
        if remote := self._coordinator():
            remote.attend()

    def require_load(self) -> None:
        """Raise SetupError once a load host is gone."""
        path = self._session().notes / LOST
        if path.exists():
            raise SetupError(path.read_text())

    @property
    def _last_round(self) -> Path:
        return self._session().notes / ENOUGH

    def _recorder_here(self) -> SampleRecorder:
        if self._recorder is None or self._recorder.pid != os.getpid():
            self._recorder = SampleRecorder(self._session())
        return self._recorder

    def _rule_here(self) -> StopRule | StepRule | None:
        context = self._session()
        folder = SessionFolder(context.folder)
        if self._rule is None and context.plan.design.knee is not None:
            self._rule = StepRule(
                context.plan,
                publish=(context.notes / STEP).write_text,
                record=lambda arm, round_, step: folder.note(EVENT, arm=arm, round=round_, **asdict(step)),
            )
        if self._rule is None and context.plan.design.is_auto:
            self._rule = StopRule(
                context.plan,
                record=lambda look, why: folder.note("look", **asdict(look), ends=why),
                off=lambda: calibration_errors(folder.events()),
            )
        return self._rule


def _take_credits(session: Context, block: Block) -> None:
    """Have the block's arms begin it without credits if they began so; of those on this machine."""
    named = block.arm.split("+")  # several, where their requests alternate
    for volume in (volume for arm in session.arms if arm.name in named for volume in arm.volumes):
        if volume.spec.host is None:
            take_credits(volume)


def _pauses(session: Callable[[], Context], node: str) -> Callable[[], list[Pause]]:
    """A function that returns a node's pauses since its last call."""
    if hosts := hosts_of(session()):
        return partial(hosts.pauses, node)
    # the log of the node's current process, in case it was restarted
    return GcLog(lambda: root_steps(session()).gc_log(node)).new


def _index_work(node: Node) -> Any:
    """Merges and refreshes of all open indices since they were opened."""
    return api.get(node.port, "/_stats/merge,refresh?filter_path=_all.total").get("_all", {}).get("total", {})
