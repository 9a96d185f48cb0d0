"""What every process of a race must know of its session: written by race control, read by all others."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Node, Volume
from esrally_ebs.plan import Plan

FILE = "context.json"
NEW = f"{FILE}.new"  # until it is whole
FIO_PID = "fio.pid"  # of the fio that runs: its pid and start time
ENDING = "ending"  # there once its owner takes the session down
STAYS = "stays"  # there once it has, all but what could not be
ENOUGH = "enough-rounds"  # the number of the last round, once that is known
LOST = "lost"  # why a load host that is gone ends the race, once one is
STEP = "step"  # the rate and the length of each arm's next step in search of a knee
ENDED = "ended"  # the search that each client with writes beside it has done
STARTS = "starts"  # when the first client began each task that keeps to a schedule
NOTES = (FIO_PID, ENDED, ENOUGH, LOST, STARTS, STEP)  # that a session's processes leave for one another
FILES = (FILE, NEW, ENDING, STAYS, *NOTES)  # in its folder in the run directory, where its arms have theirs
# The folder of what the processes of a session's caller write; no arm's name, which has no underscore.
OF_CALLER = "of_caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One volume of an arm and the node on it."""

    volume: Volume
    node: Node | None = None  # where one node serves all arms, its data directory is the arm's own part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Volumes of one kind and the nodes on them, one each; ``cluster`` is Rally's name for these nodes."""

    name: str
    cluster: str
    members: tuple[Member, ...]
    suffix: str = ""  # of the names of its indices, where one node has those of all arms
    preference: str | None = None  # of a cluster's searches: the same copies of shards as on the other arms

    @property
    def volumes(self) -> tuple[Volume, ...]:
        """The volume of each node."""
        return tuple(member.volume for member in self.members)

    @property
    def volume(self) -> Volume:
        """The volume of the first node: what stands for all of them where one is enough."""
        return self.members[0].volume

    @property
    def recorded(self) -> Volume:
        """What a session keeps as this arm: the volume of its first node, by the arm's name; all hosts."""
        spec = replace(self.volume.spec, name=self.name)
        hosts = tuple(volume.spec.host for volume in self.volumes if volume.spec.host is not None)
        apart: dict[str, Any] = {"host": None, "hosts": hosts} if len(set(hosts)) > 1 else {}
        return replace(self.volume, spec=replace(spec, **apart))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that run; none in a session of fio alone."""
        return tuple(member.node for member in self.members if member.node is not None)

    def named(self, expression: str) -> str:
        """What an index, or an expression that names several, is called on this arm."""
        if not self.suffix:
            return expression
        parts = (expression or "_all").split(",")
        return ",".join(f"{'*' if part == '_all' else part}{self.suffix}" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    session: str
    folder: Path  # the session folder; for volumes attached by hand, the run directory
    run: Path  # what is attached and running now
    plan: Plan
    arms: tuple[Arm, ...]
    has_writes: bool = False  # documents are added beside searches
    copied: bool = False  # all arms have the same files of one index, which nothing writes to
    of_caller: bool = False  # its processes are not root's
    hosts_at: str = ""  # the abstract socket of who asks the data hosts; empty: all arms are on this machine

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def fio_pid_file(self) -> Path:
        """Where the pid of a running fio stands, so that whoever cleans up can end it."""
        return self.notes / FIO_PID

    @property
    def notes(self) -> Path:
        """Where the session's processes leave files for one another."""
        return self.run / OF_CALLER if self.of_caller else self.run

    @property
    def path(self) -> Path:
        """The file that the session's other processes read."""
        return self.run / FILE

    def save(self) -> None:
        """Write it into the run directory, where others may be reading what stood there before."""
        new = self.path.with_name(NEW)
        new.write_bytes(_ADAPTER.dump_json(self))
        new.replace(self.path)


_ADAPTER = TypeAdapter(Context)


def load_context(path: Path) -> Context:
    """Read what race control wrote; SetupError when the session was taken down, or the file was cut."""
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise SetupError(f"{path}: the session was taken down meanwhile; start the race again") from error
    except ValueError as error:
        raise SetupError(
            f"{path}: not readable here; 'esrally-ebs volumes down' and 'clean' detach what is attached"
        ) from error
