"""What a race's processes share about their session: written by race control, read by all others."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Node, Volume
from esrally_ebs.plan import Plan

FILE = "context.json"
NEW = f"{FILE}.new"  # until complete
FIO_PID = "fio.pid"  # the running fio's pid and start time
ENDING = "ending"  # exists once the owner takes the session down
STAYS = "stays"  # exists once that is done, except for what could not be removed
MADE_ON_HOSTS = "made-on-hosts"  # exists if data hosts have arms that AWS makes
ENOUGH = "enough-rounds"  # number of the last round, once known
LOST = "lost"  # why a lost load host ends the race
STEP = "step"  # rate and length of each arm's next step in a search for the knee
ENDED = "ended"  # searches done, by each client with writes beside it
STARTS = "starts"  # when the first client began each task with a schedule
NOTES = (FIO_PID, ENDED, ENOUGH, LOST, STARTS, STEP)  # messages between a session's processes
# In the session's run folder, beside its arms' folders.
FILES = (FILE, NEW, ENDING, STAYS, MADE_ON_HOSTS, *NOTES)
# Folder that the caller's processes write to; arms' names have no underscore.
OF_CALLER = "of_caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    volume: Volume
    node: Node | None = None  # if one node serves all arms, its data directory is the arm's part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Volumes of one kind, with a node on each; ``cluster`` is Rally's name for these nodes."""

    name: str
    cluster: str
    members: tuple[Member, ...]
    suffix: str = ""  # of its indices' names, if one node has all arms' indices
    preference: str | None = None  # of a cluster's searches: the same copies of shards as on the other arms

    @property
    def volumes(self) -> tuple[Volume, ...]:
        return tuple(member.volume for member in self.members)

    @property
    def volume(self) -> Volume:
        """The first node's volume, which represents all where one is enough."""
        return self.members[0].volume

    @property
    def recorded(self) -> Volume:
        """The arm as recorded in a session: its first node's volume under the arm's name, with all hosts."""
        spec = replace(self.volume.spec, name=self.name)
        hosts = tuple(volume.spec.host for volume in self.volumes if volume.spec.host is not None)
        apart: dict[str, Any] = {"host": None, "hosts": hosts} if len(set(hosts)) > 1 else {}
        return replace(self.volume, spec=replace(spec, **apart))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The running nodes; empty in a session of fio alone."""
        return tuple(member.node for member in self.members if member.node is not None)

    def named(self, expression: str) -> str:
        """The arm's name for an index, or for an expression that names several."""
        if not self.suffix:
            return expression
        parts = (expression or "_all").split(",")
        return ",".join(f"{'*' if part == '_all' else part}{self.suffix}" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    session: str
    folder: Path  # session folder; for volumes attached by hand, the run folder
    run: Path  # run folder
    plan: Plan
    arms: tuple[Arm, ...]
    has_writes: bool = False  # documents are added beside searches
    copied: bool = False  # all arms have the same files of an index that nothing writes to
    of_caller: bool = False  # its processes do not run as root
    hosts_at: str = ""  # abstract socket of the process that asks the data hosts; "": all arms are here

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def fio_pid_file(self) -> Path:
        """File with a running fio's pid, for whoever cleans up."""
        return self.notes / FIO_PID

    @property
    def notes(self) -> Path:
        """Where the session's processes leave messages for one another."""
        return self.run / OF_CALLER if self.of_caller else self.run

    @property
    def path(self) -> Path:
        """File that the session's other processes read."""
        return self.run / FILE

    def save(self) -> None:
        """Write it atomically into the run directory, where others may be reading."""
        new = self.path.with_name(NEW)
        new.write_bytes(_ADAPTER.dump_json(self))
        new.replace(self.path)


_ADAPTER = TypeAdapter(Context)


def load_context(path: Path) -> Context:
    """Read what race control wrote. Raises SetupError if the session was taken down, or the file is cut."""
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise SetupError(f"{path}: the session was taken down meanwhile; start the race again") from error
    except ValueError as error:
        raise SetupError(
            f"{path}: not readable here; 'esrally-ebs volumes down' and 'clean' detach what is attached"
        ) from error
