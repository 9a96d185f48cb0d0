"""The executor: asks the planner for a step, records the intent, acts, records the outcome, looks again.

Between steps nothing is kept in memory except waiting times: after a crash, another process continues exactly
as this one would have.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from esrally_ebs.aws.clients import THROTTLED, Api, AwsError, redacted
from esrally_ebs.aws.provision import ebs
from esrally_ebs.aws.provision.devices import devices_down, local_up
from esrally_ebs.aws.provision.efs import efs_down, efs_up, unmount
from esrally_ebs.aws.provision.goal import Sort, usd_an_hour
from esrally_ebs.aws.provision.host import ArmHost
from esrally_ebs.aws.provision.journal import EntryState, History, Journal, JournalEntry
from esrally_ebs.aws.provision.state import (
    ArmState,
    Call,
    HostWork,
    Note,
    Stage,
    Wait,
    state_here,
    state_of,
)
from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock

_POLL_S = 2.0
_MAX_TIMES = 20  # tries of one step: AWS may be slow to show its effect
_PATIENCE_S = 600.0  # for AWS's requests to try again later
_PUT_OFF_S = 45.0  # before asking again; the SDK has already tried several times
UP: Mapping[Sort, Stage] = {"ebs": ebs.up, "efs": efs_up, "instance-store": local_up}
DOWN: Mapping[Sort, Stage] = {"ebs": ebs.down, "efs": efs_down, "instance-store": devices_down}
# Steps that need no AWS; the instance's own disks never need it.
_DOWN_HERE: Mapping[Sort, Stage] = {"ebs": devices_down, "efs": unmount, "instance-store": devices_down}
# With these error codes the call had no effect, even if the SDK had tried it before.
_REFUSED = ("Invalid", "Unauthorized", "AccessDenied", "Missing", "Unknown", "Unsupported", "OptInRequired")
_REFUSED_END = (
    *("LimitExceeded", "Capacity"),
    *("InUse", "IncorrectState", "Conflict", "AlreadyExists", "NotFound"),
)
_EXISTS = frozenset({"FileSystemAlreadyExists"})  # made by an earlier try


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Everything needed to perform one arm's steps."""

    api: Api
    host: ArmHost
    journal: Journal
    clock: Clock = SYSTEM_CLOCK
    say: Callable[[str], None] = lambda text: None

    def up(self) -> ArmState:
        """Perform steps until the arm is mounted; returns its state.

        Raises SetupError; the journal has everything made until then.
        """
        return self._until_done(UP, partial(state_of, self.api, self.host))

    def down(self) -> None:
        """Perform steps until nothing of the arm is left, on this machine first. Idempotent.

        Raises SetupError, with the cost, if something has to stay.
        """
        if self.journal.read() is None:
            return
        try:
            # Needs no credentials: they may have expired by now.
            self._until_done(_DOWN_HERE, lambda history, _: state_here(self.host, history))
            self._until_done(DOWN, partial(state_of, self.api, self.host, contents=False))
        except AwsError as error:
            raise AwsError(error.action, error.code, error.message + self._what_stays()) from error
        except SetupError as error:  # something uses the mount, say
            raise SetupError(f"{error}{self._what_stays()}") from error
        except OSError as error:
            what = f"{error.filename or self.journal.path}: {error.strerror or error}; see that there is room"
            raise SetupError(f"{what}{self._what_stays()}") from error
        self.journal.remove()

    def _what_stays(self) -> str:
        history = self.journal.read()
        left = history.left() if history is not None else []
        if history is None or not left:
            return ""
        usd = usd_an_hour(replace(history.goal, count=len(left)))
        price = f" {usd:.4f} USD an hour" if usd else ""  # EFS's contents are unknown
        return f"; {', '.join(left)} stays and goes on costing{price} until 'esrally-ebs clean' succeeds"

    def _until_done(
        self, planners: Mapping[Sort, Stage], look: Callable[[History, float], ArmState]
    ) -> ArmState:
        times: Counter[str] = Counter()
        command = "run the same command again" if planners is UP else "run 'esrally-ebs clean'"
        patience, began_s = _Patience(self.clock, command), self.clock.monotonic()
        while True:
            history = self.journal.read()
            assert history is not None
            try:
                state = look(history, self.clock.monotonic() - began_s)
                step = planners[history.goal.sort](history, state)
                if step is None:
                    return state
                if isinstance(step, Wait):
                    patience.wait(history, step)
                else:
                    times[step.key] += 1
                    self._do(step, history, times[step.key])
                patience.answered()
            except AwsError as error:
                patience.bear(error)

    def _do(self, step: Call | HostWork | Note, history: History, times: int) -> None:
        """Perform a step, which has been asked for so many ``times``."""
        if times > _MAX_TIMES:
            raise SetupError(f"arm {history.goal.arm}: {step.key} changes nothing; see {self.journal.path}")
        if isinstance(step, Note):
            self._write(step.key, "done", step.fields)
        elif isinstance(step, HostWork):
            self.say(f"{step.operation} {step.arguments.get('device') or step.arguments.get('point') or ''}")
            intent = {"operation": step.operation, "arguments": dict(step.arguments)}
            self._write(step.key, "intent", intent)
            self.host.do(step.operation, step.arguments)
            self._write(step.key, "done", {})
        else:
            self._call(step, last=times == _MAX_TIMES)

    def _call(self, step: Call, *, last: bool) -> None:
        if step.asks_for_rights:
            self._ask_for_right(step)
            return
        self.say(step.operation)
        self._write(step.key, "intent", {"operation": step.operation, "parameters": dict(step.parameters)})
        try:
            answer = self.api.call(step.service, step.operation, **step.parameters)
        except AwsError as error:
            if step.optional and not (error.passes or error.unanswered):
                self.say(f"{error}: {step.optional}")
                self._write(step.key, "done", {"code": error.code})
                return
            if _is_refusal(error.code):
                self._write(step.key, "refused", {"code": error.code})
            if last or error.code not in step.go_on_after:
                raise
            self.clock.sleep(_POLL_S)
            return
        kept = {name: redacted(answer[name]) for name in step.keeps if name in answer}
        self._write(step.key, "done", kept)

    def _ask_for_right(self, step: Call) -> None:
        """Raise AwsError if the call would not be allowed; other errors are left to the call itself."""
        try:
            self.api.call(step.service, step.operation, **step.parameters)
        except AwsError as error:
            if error.denied or error.passes or error.unanswered:
                raise
        self._write(step.key, "done", {})

    def _write(self, key: str, state: EntryState, fields: Mapping[str, Any]) -> None:
        self.journal.append(JournalEntry(key=key, state=state, at_s=self.clock.epoch(), fields=fields))


class _Patience:
    """Tracks how long one thing has been waited for, and how long AWS has not accepted calls."""

    def __init__(self, clock: Clock, command: str) -> None:
        """``command``: what to do after a wait that was too long."""
        self._clock, self._command = clock, command
        self._since: dict[str, float] = {}
        self._answered = clock.monotonic()

    def answered(self) -> None:
        """AWS has accepted a call."""
        self._answered = self._clock.monotonic()

    def bear(self, error: AwsError) -> None:
        """Wait if AWS says to try again later, for some minutes in total; raise any other error.

        The call may have succeeded all the same: the next look shows it.
        """
        if not error.passes or self._clock.monotonic() - self._answered > _PATIENCE_S:
            raise error
        self._clock.sleep(_PUT_OFF_S)

    def wait(self, history: History, step: Wait) -> None:
        since = self._since.setdefault(step.text, self._clock.monotonic())
        if self._clock.monotonic() - since > step.limit_s:
            raise SetupError(
                f"arm {history.goal.arm}: waited {step.limit_s:.0f} s for {step.text}; {step.advice}, then"
                f" {self._command}"
            )
        self._clock.sleep(_POLL_S)


def _is_refusal(code: str) -> bool:
    if code in THROTTLED | _EXISTS:
        return False  # an earlier try by the SDK may have succeeded
    return code.startswith(_REFUSED) or code.endswith(_REFUSED_END)
