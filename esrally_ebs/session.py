"""The one place that knows the order of a session's stages, from attaching volumes to taking them down.

plan -> attach arms -> dataset copied to each -> node on each -> (Rally or fio) -> take down -> report.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from esrally_ebs import aws_telemetry, clean, environment, guarding, preflight, reaper
from esrally_ebs.arms import Load, Preparation, stage
from esrally_ebs.conclusion import conclude
from esrally_ebs.context import Arm, Context
from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.model import Event, State
from esrally_ebs.plan import Plan
from esrally_ebs.resources import home, run_dir
from esrally_ebs.store import SessionFolder


class Live:
    """A session that is being made by this process: Rally's race control or our own command."""

    def __init__(self, session: str, main_pid: int | None = None) -> None:
        self.id = session
        self._main_pid = main_pid
        self._folder: SessionFolder | None = None
        self._ended = False

    def start(
        self,
        plan: Plan,
        *,
        clusters: Mapping[str, str],
        load: Load | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Context:
        """Attach, copy and start everything; on any error, and on Ctrl-C, take down what was started."""
        try:
            with _interruptible():
                return self._start(plan, clusters, load, say)
        except BaseException as error:
            self.fail(error)
            raise

    def _start(
        self, plan: Plan, clusters: Mapping[str, str], load: Load | None, say: Callable[[str], None]
    ) -> Context:
        kind = "race" if load else "baseline"
        folder = SessionFolder.create(home(), self.id, kind=kind, plan=plan.model_dump(mode="json"))
        self._folder = folder  # before anything can fail, so that 'sessions' shows why it did
        preflight.require(plan, with_nodes=load is not None)
        run = clean.write_owner(self.id)
        watched = [os.getpid(), *([self._main_pid] if self._main_pid else [])]
        reaper.start(self.id, folder.path, watched)
        preparation = Preparation(session=self.id, plan=plan, run=run, folder=folder, say=say)
        arms = preparation.attach(clusters, readahead_bytes=load.settings.readahead_bytes if load else None)
        arms, aws = self._guarded(plan, arms, folder)
        if load is not None:
            arms = preparation.serve(arms, load)
        folder.update(environment=environment.describe([arm.node for arm in arms if arm.node]) | aws)
        context = Context(session=self.id, folder=folder.path, run=run, plan=plan, arms=arms)
        context.save()
        return context

    def _guarded(
        self, plan: Plan, arms: tuple[Arm, ...], folder: SessionFolder
    ) -> tuple[tuple[Arm, ...], dict[str, Any]]:
        """The arms as what they really are, if nothing forbids to measure them; what AWS says besides."""
        with stage(folder, "look at arms"):
            found = guarding.look_at(plan, arms)
        aws = {} if found.record is None else {"aws": found.record}
        folder.update(arms=[arm.volume for arm in found.arms], environment=aws)
        for check in found.checks:
            folder.add_check(check)
        found.require()
        return found.arms, aws

    def complete(self, *, patience_s: float = aws_telemetry.PATIENCE_S) -> str:
        """After the last measurement: take down, report, and return the report as text.

        ``patience_s`` is how long CloudWatch may take; the session is complete without its answer.
        Raises MeasurementError when what was measured cannot be compared.
        """
        folder = self._require_folder()
        with stage(folder, "take down"):
            for problem in self._take_down():
                folder.add_warning(problem)
        aws_telemetry.collect_in_time(folder, patience_s=patience_s)
        text, broken = conclude(folder)
        self._ended = True
        if broken:
            raise MeasurementError(f"the arms cannot be compared: {broken}; see {folder.path / 'report.md'}")
        return text

    def end(self, cancelled: bool) -> None:
        """However it ended: leave nothing behind and say what became of it. Idempotent."""
        if self._ended or self._folder is None:
            return
        self._ended = True
        problems = self._take_down()  # first: to look for a fault may fail, too
        fault = self.first_fault()
        state = State.CANCELLED if cancelled else State.FAILED
        reason = (
            "cancelled by the user"
            if cancelled
            else fault[0]
            if fault
            else "the race ended early; see Rally's log"
        )
        self._folder.finish(state, reason="; ".join([reason, *problems]))

    def fail(self, error: BaseException) -> None:
        """A stage raised: record why and leave nothing behind."""
        if self._folder is None:
            clean.take_down(self.id)
            return
        cancelled = isinstance(error, KeyboardInterrupt)
        if not cancelled:
            code = error.exit_code if isinstance(error, EbsError) else SetupError.exit_code
            fault = {"text": str(error) or repr(error), "exit_code": code}
            with suppress(SetupError):  # the disk may be full
                self._folder.event(Event(at_s=time.time(), kind="fault", fields=fault))
        self.end(cancelled)

    def first_fault(self) -> tuple[str, int] | None:
        """Text and exit code of what went wrong first, in whichever process; the rest follows from it."""
        if self._folder is None:
            return None
        faults = [event for event in self._folder.events() if event.kind == "fault"]
        return (faults[0].fields["text"], faults[0].fields["exit_code"]) if faults else None

    def _take_down(self) -> list[str]:
        run = run_dir() / self.id
        if run.is_dir():
            with suppress(OSError):  # a full disk must not keep what is attached
                (run / "ending").touch()  # the reaper waits for us then
        return clean.take_down(self.id)

    def _require_folder(self) -> SessionFolder:
        if self._folder is None:
            raise SetupError("the session was never started")
        return self._folder


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end what runs inside. Rally's actors ignore it, and so would the tools that they start."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
