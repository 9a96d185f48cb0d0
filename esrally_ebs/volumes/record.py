"""What a volume's directory says about it: enough to detach it after its owner was killed, from the path
alone.

Written before the first thing is acquired.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from esrally_ebs.errors import FormatError, SetupError
from esrally_ebs.store.encoding import parse_sealed, seal

RECORD_NAME = "volume.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who made the directory, for which volume, and what of it is ours to delete."""

    backend: str  # emulated, directory, lent or mounted
    name: str
    type: str
    created: tuple[Path, ...] = ()  # files and directories that detaching removes
    owner: int | None = None  # the user whom lent files are given back to


_RECORD = TypeAdapter(Record)


def write_record(directory: Path, record: Record) -> None:
    """Put the record into the volume's directory, whole or not at all; SetupError when one is there
    already."""
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
    """The record of a volume's directory; None when there is none. SetupError when it was cut."""
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
    """The last step of detaching: the record, and the directory if nothing else is in it."""
    (directory / RECORD_NAME).with_suffix(".part").unlink(missing_ok=True)  # of who was killed on the way
    (directory / RECORD_NAME).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:  # not empty, or gone already
        return
