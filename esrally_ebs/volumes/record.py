"""The record in a volume's directory: enough to detach the volume from that path alone, after its owner was
killed. Written before anything is acquired.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.store.encoding import parse_sealed, seal

RECORD_NAME = "volume.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Which backend made the directory, for which volume, and what detaching may delete."""

    backend: str  # emulated, directory, lent or mounted
    name: str
    type: str
    created: tuple[Path, ...] = ()  # files and directories for detaching to remove
    owner: int | None = None  # user who gets lent files back


_RECORD = TypeAdapter(Record)


def write_record(directory: Path, record: Record) -> None:
    """Write the record atomically. Raises SetupError if there already is one."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / RECORD_NAME
    if target.exists():
        raise SetupError(
            f"{directory}: a volume is attached there already; run 'esrally-ebs volumes down' first"
        )
    part = target.with_suffix(".part")
    part.write_text(seal(_RECORD.dump_json(record).decode()), encoding="utf-8")
    part.replace(target)


def read_record(directory: Path) -> Record | None:
    """The record of a volume's directory; None if there is none. Raises SetupError if it is cut."""
    try:
        path = directory / RECORD_NAME
        return _RECORD.validate_python(parse_sealed(path.read_text(encoding="utf-8"), str(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, FormatError, AttributeError, TypeError) as error:
        raise SetupError(
            f"{path}: cut, or not ours; look at what is mounted there, then remove it"
        ) from error


def drop_record(directory: Path) -> None:
    """Last step of detaching: remove the record, and the directory unless it has other contents."""
    (directory / RECORD_NAME).with_suffix(".part").unlink(missing_ok=True)  # left by a killed process
    (directory / RECORD_NAME).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:  # not empty, or already gone
        return
