"""Doing: asks the planner for a step, writes the intent down, does it, writes down the outcome, looks again.

Nothing is kept in memory between steps but how long it has waited: a process that takes over after a crash
does the same as this one would have done.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from esrally_ebs.aws.clients import THROTTLED, Api, AwsError
from esrally_ebs.aws.provision import ebs, other
from esrally_ebs.aws.provision.goal import Sort
from esrally_ebs.aws.provision.journal import Entry, History, Journal, State
from esrally_ebs.aws.provision.look import look
from esrally_ebs.aws.provision.machine import Machine
from esrally_ebs.aws.provision.seen import Seen
from esrally_ebs.aws.provision.steps import Call, Note, Stage, Step, Wait, Work
from esrally_ebs.errors import SetupError
from esrally_ebs.system import SYSTEM_CLOCK, Clock

_POLL_S = 2.0
_MOST_TIMES = 20  # that one step is tried: AWS may be slow to show what it has done
_PATIENCE_S = 600.0  # with AWS that asks to try again later
_PUT_OFF_S = 45.0  # until it is asked again; the SDK has tried some times before it tells us
_UP: Mapping[Sort, Stage] = {"ebs": ebs.up, "efs": other.efs_up, "instance-store": other.local_up}
_DOWN: Mapping[Sort, Stage] = {"ebs": ebs.down, "efs": other.efs_down, "instance-store": other.local_down}
# After these words of AWS nothing has come of a call, even if the SDK had tried it before.
_REFUSED = ("Invalid", "Unauthorized", "AccessDenied", "Missing", "Unknown", "Unsupported", "OptInRequired")
_REFUSED_END = (
    "LimitExceeded",
    "InUse",
    "IncorrectState",
    "Conflict",
    "AlreadyExists",
    "NotFound",
    "Capacity",
)
_THERE = frozenset({"FileSystemAlreadyExists"})  # an earlier try has made it


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Everything that one arm's steps are done with."""

    api: Api
    machine: Machine
    journal: Journal
    clock: Clock = SYSTEM_CLOCK
    say: Callable[[str], None] = lambda text: None

    def up(self) -> Seen:
        """Go on until the arm is mounted; what is there then.

        Raises SetupError; everything that was made until then stands in the journal.
        """
        return self._until_done(_UP)

    def down(self) -> None:
        """Go on until nothing of the arm is left. Idempotent; SetupError when something has to stay."""
        history = self.journal.read()
        if history is None:
            return
        self._until_done(_DOWN)
        self.journal.remove()

    def _until_done(self, planners: Mapping[Sort, Stage]) -> Seen:
        times: Counter[str] = Counter()
        patience, since_s = _Patience(self.clock), self.clock.epoch()
        while True:
            history = self.journal.read()
            assert history is not None
            try:
                seen = look(self.api, self.machine, history, at_s=self.clock.epoch())
                seen = replace(seen, since_s=since_s)
                step = planners[history.goal.sort](history, seen)
                if step is None:
                    return seen
                self._take(step, history, times, patience)
                patience.answered()
            except AwsError as error:
                patience.bear(error)

    def _take(self, step: Step, history: History, times: Counter[str], patience: "_Patience") -> None:
        if isinstance(step, Wait):
            patience.wait(history, step)
            return
        times[step.key] += 1
        if times[step.key] > _MOST_TIMES:
            raise SetupError(f"arm {history.goal.arm}: {step.key} changes nothing; see {self.journal.path}")
        self._do(step, last=times[step.key] == _MOST_TIMES)

    def _do(self, step: Step, *, last: bool) -> None:
        if isinstance(step, Note):
            self._write(step.key, "done", step.fields)
        elif isinstance(step, Work):
            self.say(f"{step.operation} {step.arguments.get('device') or step.arguments.get('point') or ''}")
            self._write(step.key, "intent", {"operation": step.operation})
            self.machine.do(step.operation, step.arguments)
            self._write(step.key, "done", {})
        elif isinstance(step, Call):
            self._call(step, last=last)

    def _call(self, step: Call, *, last: bool) -> None:
        self.say(step.operation)
        self._write(step.key, "intent", {"operation": step.operation, "parameters": dict(step.parameters)})
        try:
            answer = self.api.call(step.service, step.operation, **step.parameters)
        except AwsError as error:
            if _is_refusal(error.code):
                self._write(step.key, "refused", {"code": error.code})
            if last or error.code not in step.go_on_after:
                raise
            self.clock.sleep(_POLL_S)
            return
        self._write(step.key, "done", {name: answer[name] for name in step.keeps})

    def _write(self, key: str, state: State, fields: Mapping[str, Any]) -> None:
        self.journal.append(Entry(key=key, state=state, at_s=self.clock.epoch(), fields=fields))


class _Patience:
    """How long one thing has been waited for, and AWS has put us off."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._answered = clock.monotonic()

    def answered(self) -> None:
        """AWS did what it was asked for."""
        self._answered = self._clock.monotonic()

    def bear(self, error: AwsError) -> None:
        """Wait when AWS asks to try again later, for some minutes; whatever else it says is raised.

        What was asked for may have been done all the same: the next look tells.
        """
        if not error.passes or self._clock.monotonic() - self._answered > _PATIENCE_S:
            raise error
        self._clock.sleep(_PUT_OFF_S)

    def wait(self, history: History, step: Wait) -> None:
        since = self._since.setdefault(step.text, self._clock.monotonic())
        if self._clock.monotonic() - since > step.limit_s:
            raise SetupError(
                f"arm {history.goal.arm}: waited {step.limit_s:.0f} s for {step.text}; look at it in the AWS"
                " console, then run the same command again"
            )
        self._clock.sleep(_POLL_S)


def _is_refusal(code: str) -> bool:
    if code in THROTTLED | _THERE:
        return False  # an earlier try of the SDK may have got through
    return code.startswith(_REFUSED) or code.endswith(_REFUSED_END)
