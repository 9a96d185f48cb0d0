"""In race control: Rally races against our nodes, and the session ends with the race."""

from collections.abc import Callable
from typing import Any, Protocol

from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.rally.patches.outcome import RaceFailure, RaceSuccess

_EXITING = "exiting"  # as the status of Rally's own driver is then


class RaceEnd(Protocol):
    """What hears of the race's end."""

    def load_may_go(self) -> None:
        """Nothing more is asked of those that make the load."""

    def complete(self) -> None:
        """After Rally's own summary of a race that went through; may raise."""

    def fail(self, error: EbsError) -> None:
        """The race cannot go on: record why, and end."""

    def end(self, cancelled: bool) -> None:
        """The actor exits, however the race ended. Perhaps twice."""

    def last_line(self) -> str:
        """What Rally's command is to say last."""

    def first_fault(self) -> tuple[str, int] | None:
        """Text and exit code of the error that one of our runners recorded first, if any."""


def start_engine(original: Any, race: RaceEnd) -> Callable[..., Any]:
    """The message that would have Rally start nodes says that the user has."""

    def start(cfg: Any, context: Any, *_: Any) -> Any:
        return original(cfg, context, False, False, True, False)

    return start


def on_benchmark_complete(original: Any, race: RaceEnd) -> Callable[..., None]:
    """Completes the session of a race that neither failed nor was cancelled."""

    def complete(self: Any, new_metrics: Any) -> None:
        race.load_may_go()
        original(self, new_metrics)
        if not self.cancelled and not self.error:
            race.complete()

    return complete


def receive_failure(original: Any, race: RaceEnd) -> Callable[..., None]:
    """Reports the first fault of the session in place of the failure that Rally heard of."""

    def receive(self: Any, msg: Any, sender: Any) -> None:
        fault = race.first_fault()
        original(self, RaceFailure(*fault) if fault else msg, sender)

    return receive


def receive_child_exit(original: None, race: RaceEnd) -> Callable[..., None]:
    """Fails the race when a process dies that Rally would wait for without an end."""

    def receive(self: Any, msg: Any, sender: Any) -> None:
        parts = {"driver": self.main_driver, "mechanic": self.mechanic}
        died = [name for name, address in parts.items() if address and address == msg.childAddress]
        if died and self.status != _EXITING:
            error = SetupError(f"Rally's {died[0]} was killed; all was taken down, start the race again")
            race.fail(error)
            self.receiveMsg_BenchmarkFailure(RaceFailure(str(error), error.exit_code), sender)

    return receive


def receive_exit(original: None, race: RaceEnd) -> Callable[..., None]:
    """Ends the session."""

    def receive(self: Any, msg: Any, sender: Any) -> None:
        self.status = _EXITING
        race.end(bool(self.coordinator and self.coordinator.cancelled))

    return receive


def success(original: Any, race: RaceEnd) -> Callable[[], RaceSuccess]:
    """``racecontrol.Success``, which race control sends to Rally's command."""
    return lambda: RaceSuccess(race.last_line())
