"""Runs a sampler beside the race: a sampler and a sink in, a call of the sink each second out."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from esrally_ebs.errors import SetupError
from esrally_ebs.model import TelemetryPoint
from esrally_ebs.system import SYSTEM_CLOCK, Clock, give_way
from esrally_ebs.telemetry.sampler import Sampler

_JOIN_S = 10.0  # a control socket that does not answer holds a sample up for 5 s

Sink = Callable[[list[TelemetryPoint]], None]


class SamplerThread:
    """Samples on the beat of ``interval_s``, counted from the start; a beat that is late is left out.

    A sink that fails is tried again at the next beat; the first failure stays in ``error``.
    """

    def __init__(
        self, sampler: Sampler, sink: Sink, *, interval_s: float = 1.0, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._sampler = sampler
        self._sink = sink
        self._interval_s = interval_s
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ebs-telemetry", daemon=True)
        self.error: Exception | None = None

    def start(self) -> None:
        """Take the first sample at once, in the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it samples; False before its start, after its end, and when it has died."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End after the sample under way, whose rows the sink has then. May be called twice."""
        if self._thread.ident is not None and not self._stopping.is_set() and not self.is_alive:
            self.error = self.error or SetupError("telemetry: its thread ended before it was stopped")
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self.error = SetupError(f"telemetry: no answer for {_JOIN_S:.0f} s; see the volumes' logs")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        give_way()
        begin = self._clock.monotonic()
        while True:
            self._beat()
            passed = self._clock.monotonic() - begin
            if self._stopping.wait(self._interval_s - passed % self._interval_s):
                return

    def _beat(self) -> None:
        try:
            self._sink(self._sampler.sample())
        except Exception as error:  # noqa: BLE001 - a thread has no caller: its owner looks at .error
            self.error = self.error or error
