"""Collaborators of the protocol that write down when they were called, and fail where a test wants it."""

from pathlib import Path
from typing import Any

from small_plan import small_plan

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.node.eviction import Drop
from esrally_ebs.plan import parse_plan
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context, Member

PLAN = parse_plan('name = "x"\n[[arm]]\nname = "a"\ntype = "gp3"\n', "x.toml")
ARM = Arm(
    name="a",
    cluster="default",
    members=(
        Member(volume=Volume(spec=VolumeSpec(name="a", type="gp3"), kind=Kind.EMULATED, mount=Path("/a"))),
    ),
)


class _RecordedSteps:
    """``order`` has the names of steps as they were taken."""

    def __init__(self, fails_at: str, error: BaseException | None) -> None:
        self.order: list[str] = []
        self._fails_at = fails_at
        self._error = error or SetupError("it broke")

    def _take(self, step: str) -> None:
        self.order.append(step)
        if step == self._fails_at:
            raise self._error


class RecordedSession(_RecordedSteps):
    """The steps of a session."""

    def __init__(
        self,
        home: Path,
        *,
        with_nodes: bool = True,
        fails_at: str = "",
        error: BaseException | None = None,
        stays: tuple[str, ...] = (),
        broken: str = "",
    ) -> None:
        """``stays`` is what cannot be taken down, ``broken`` why the arms cannot be compared."""
        super().__init__(fails_at, error)
        self.home = home
        self.with_nodes = with_nodes
        self.folder: SessionFolder | None = None
        self.said: list[str] = []
        self._stays = stays
        self._broken = broken

    def check_plan(self) -> None:
        self._take("check plan")

    def record(self) -> None:
        self._take("record")
        self.folder = SessionFolder.create(self.home, "s", kind="race", plan=small_plan())

    def preflight(self) -> None:
        self._take("preflight")

    def begin(self) -> None:
        self._take("begin")

    def attach(self) -> tuple[Arm, ...]:
        self._take("attach")
        return (ARM,)

    def check(self, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        self._take("check")
        return arms

    def copy(self, arms: tuple[Arm, ...]) -> Any:  # noqa: ANN401 - no index is made
        self._take("copy")

    def start_nodes(self, arms: tuple[Arm, ...], index: object) -> tuple[Arm, ...]:
        self._take("start nodes")
        return arms

    def explain(self, error: BaseException) -> BaseException:
        return error

    def describe(self, arms: tuple[Arm, ...]) -> Context:
        self._take("describe")
        return Context(session="s", folder=self.home, run=self.home, plan=PLAN, arms=arms)

    def verify(self) -> None:
        self._take("verify")

    def take_down(self) -> list[str]:
        self._take("take down")
        return list(self._stays)

    def say(self, text: str) -> None:
        self.said.append(text)

    def collect(self) -> None:
        self._take("collect")

    def report(self) -> tuple[str, str]:
        self._take("report")
        return "the report", self._broken

    def record_fault(self, text: str, exit_code: int) -> None:
        self._take("record fault")


class RecordedSearch(_RecordedSteps):
    """The steps of searches, of all requests."""

    def __init__(self, *, fails_at: str = "", error: Exception | None = None) -> None:
        super().__init__(fails_at, error)

    async def connect(self) -> None:
        self._take("connect")

    async def prepare(self) -> None:
        self._take("prepare")

    def make_cold(self) -> Drop:
        self._take("make cold")
        return Drop(before=0.5, after=0.001, attempts=1, seconds=0.1, refill_s=1.5)

    def record(self, drop: Drop) -> None:
        self._take("record")

    async def request(self) -> dict[str, Any]:
        self._take("request")
        return {"hits": 7}
