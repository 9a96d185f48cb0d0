"""What can come next, as values: nothing here does anything.

A planner takes a History and an ArmState, and gives one step; the executor does it, writes down what came of
it, looks again, and asks again. None means that the arm is there (or gone).
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NoReturn

from esrally_ebs.aws.provision.journal import History
from esrally_ebs.aws.provision.state import ArmState
from esrally_ebs.errors import SetupError

SETTLE_S = 20.0  # a created resource may be missing from AWS's lists for some seconds
APPEAR_S = 180.0
ATTACH_S = 300.0
GONE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of AWS."""

    key: str
    service: str
    operation: str
    parameters: Mapping[str, Any]
    keeps: tuple[str, ...] = ()  # of the answer, for the journal
    go_on_after: Set[str] = frozenset()  # refusals that the next look explains
    optional: str = ""  # to be said when AWS refuses it, which is no error then

    @property
    def asks_for_rights(self) -> bool:
        """Whether it changes nothing: AWS only says whether it would be allowed."""
        return bool(self.parameters.get("DryRun"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """One thing that this machine does."""

    key: str
    operation: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that was learned and must be remembered."""

    key: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do but to look again; an error after ``limit_s`` of waiting for the same thing."""

    text: str
    limit_s: float
    advice: str = "look at it in the AWS console"


Step = Call | HostWork | Note | Wait
Stage = Callable[[History, ArmState], Step | None]


def in_order(*stages: Stage) -> Stage:
    """The planner that gives the step of the first stage that has one."""

    def plan(history: History, state: ArmState) -> Step | None:
        return next((step for stage in stages if (step := stage(history, state)) is not None), None)

    return plan


def may_appear(state: ArmState) -> bool:
    """Whether what was requested before may be there without being listed yet.

    A call may take minutes, and take effect at its end: nobody knows of a process that was killed meanwhile.
    """
    return state.watched_s < SETTLE_S


def delete(what: str, id_: str, state: str, *, service: str, operation: str, go_on_after: Set[str]) -> Step:
    """The step that deletes a resource; while it is on its way to another state, one that waits.

    The operation's only parameter is the id, named as the operation is: ``VolumeId`` of ``DeleteVolume``.
    """
    if state in ("creating", "updating", "deleting"):
        return Wait(text=f"{what} {id_}, which is {state}", limit_s=GONE_S)
    return Call(
        key=f"delete/{id_}",
        service=service,
        operation=operation,
        parameters={f"{operation.removeprefix('Delete')}Id": id_},
        go_on_after=go_on_after,
    )


def refuse(history: History, text: str) -> NoReturn:
    """SetupError for what the pack does not do with what is there."""
    raise SetupError(f"arm {history.goal.arm}: {text}")
