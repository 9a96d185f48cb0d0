"""In Rally's driver process: every request sample and once-a-second telemetry into the session folder.

Rally has no plug-in point for either, so two methods of its Driver are wrapped. Both add and change nothing.
"""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from esrally import metrics, telemetry
from esrally.driver import driver

from esrally_ebs.context import Context, load_context
from esrally_ebs.emulator.control import read_state
from esrally_ebs.model import Event, Phase, Sample, TelemetryPoint
from esrally_ebs.rally.schedule import META
from esrally_ebs.store import PartWriter, SessionFolder
from esrally_ebs.system import SYSTEM_CLOCK
from esrally_ebs.telemetry import GcLog, Sampler, SamplerThread, Watch


def _epoch_of_counter() -> float:
    """When ``time.perf_counter()`` was 0 (epoch, s), by the closest of three pairs of readings."""

    def read() -> tuple[float, float]:
        before, now, after = time.perf_counter(), time.time(), time.perf_counter()
        return after - before, now - (before + after) / 2

    return min(read() for _ in range(3))[1]


class SampleTap:
    """Rally's samples to rows of ``samples/*.parquet``; made anew in each process that uses it."""

    def __init__(self, context: Context) -> None:
        self._session = context.session
        self._pid = os.getpid()
        self._epoch_s = _epoch_of_counter()
        # rows are made in the writer's thread, which gives way: the driver's own runs beside requests
        self._writer: PartWriter = SessionFolder(context.folder).part_writer("samples", row=self._row)

    @property
    def is_mine(self) -> bool:
        """False in a process that was forked from the one that opened the writer."""
        return self._pid == os.getpid()

    def add(self, samples: list[Any]) -> None:
        """Keep the samples of our tasks; fio has its own rows."""
        self._epoch_s = _epoch_of_counter()
        self._writer.add(sample for sample in samples if self._is_request(sample))

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()

    @staticmethod
    def _is_request(sample: Any) -> bool:
        return META in sample.task.meta_data and "fio" not in sample.request_meta_data

    def _row(self, sample: Any) -> Sample:
        ours = sample.task.meta_data[META]
        meta = sample.request_meta_data
        warming = sample.sample_type == metrics.SampleType.Warmup
        return Sample(
            session=self._session,
            arm=ours["arm"],
            round=ours["round"],
            task=ours["task"],
            operation=sample.operation_name,
            phase=Phase.WARMUP if warming else Phase(ours["phase"]),
            iteration=meta.get("iteration", 0),
            client=sample.client_id,
            # When the request was sent: Rally's absolute time is that of its runner, before caches are
            # dropped. The counter behind it is the machine's, the same in all of Rally's processes.
            started_s=sample.request_start + self._epoch_s,
            service_time_s=sample.service_time,
            latency_s=sample.latency,
            processing_time_s=sample.processing_time,
            ops=float(sample.total_ops),
            success=bool(meta.get("success", True)),
            hits=meta.get("hits"),
            took_s=meta["took"] / 1000 if isinstance(meta.get("took"), int | float) else None,
            resident_before=meta.get("resident_before"),
        )


class VolumeTelemetry(telemetry.TelemetryDevice):  # type: ignore[misc]
    """Rally's telemetry life cycle for our sampler: devices, page cache and limiters of all arms."""

    internal = True
    command = "ebs-volumes"
    human_name = "Volumes under comparison"
    help = "Samples block devices, page cache and volume limiters of all arms once a second"
    serverless_status = telemetry.serverless.Status.Public

    def __init__(self, context: Context, on_stop: Callable[[], None]) -> None:
        super().__init__()
        self._context = context
        self._on_stop = on_stop
        self._folder = SessionFolder(context.folder)
        self._thread: SamplerThread | None = None
        self._writer: PartWriter | None = None
        self._watch = Watch()
        self._gc_logs = [(arm.name, GcLog.of(arm.node)) for arm in context.arms if arm.node]

    def on_benchmark_start(self) -> None:
        """Start sampling."""
        arms = [(arm.volume, arm.node) for arm in self._context.arms]
        self._writer = self._folder.part_writer("telemetry")
        sampler = Sampler(arms, clock=SYSTEM_CLOCK, read_state=read_state, on_cut=self._on_cut)
        self._thread = SamplerThread(sampler, functools.partial(self._keep, self._writer))
        self._thread.start()

    def _keep(self, writer: PartWriter, points: list[TelemetryPoint]) -> None:
        """A second's rows, and what they and the nodes' logs say has happened."""
        writer.add(points)
        for event in self._watch.look(points):
            self._folder.event(event)
        for arm, log in self._gc_logs:
            for pause in log.new():
                fields = {"text": pause.text, "seconds": pause.seconds}
                self._folder.event(Event(at_s=pause.end_at, kind="gc", arm=arm, fields=fields))

    def _on_cut(self, arm: str, reason: str) -> None:
        event = Event(at_s=time.time(), kind="telemetry-cut", arm=arm, fields={"text": reason})
        self._folder.event(event)

    def on_benchmark_stop(self) -> None:
        """Stop sampling and write what is still in memory."""
        if self._thread is not None:
            self._thread.stop()
            if self._thread.error is not None:
                fields = {"text": str(self._thread.error) or repr(self._thread.error)}
                self._folder.event(Event(at_s=time.time(), kind="telemetry-dead", fields=fields))
        if self._writer is not None:
            self._writer.close()
        self._on_stop()


def install(context_path: Any) -> None:
    """Wrap the driver's two methods; the wrappers act only in the process that drives the benchmark."""
    taps: list[SampleTap] = []

    def tap() -> SampleTap:
        if not taps or not taps[0].is_mine:
            taps[:] = [SampleTap(load_context(context_path))]
        return taps[0]

    original_update = driver.Driver.update_samples
    original_prepare = driver.Driver.prepare_telemetry

    @functools.wraps(original_update)
    def update_samples(self: Any, samples: list[Any]) -> None:
        original_update(self, samples)
        if samples:
            tap().add(samples)

    @functools.wraps(original_prepare)
    def prepare_telemetry(self: Any, *args: Any, **kwargs: Any) -> None:
        original_prepare(self, *args, **kwargs)
        self.telemetry.devices.append(
            VolumeTelemetry(load_context(context_path), on_stop=lambda: tap().close())
        )

    driver.Driver.update_samples = update_samples
    driver.Driver.prepare_telemetry = prepare_telemetry
