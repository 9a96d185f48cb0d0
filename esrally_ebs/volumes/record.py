"""What a volume's directory says about it: enough to detach it after its owner was killed, from the path
alone.

Written before the first thing is acquired.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esrally_ebs.errors import SetupError

RECORD_NAME = "volume.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Who made the directory, for which volume, and what of it is ours to delete."""

    backend: str  # emulated, directory or mounted
    name: str
    type: str
    created: tuple[Path, ...] = ()  # files and directories that detaching removes
    parents: tuple[Path, ...] = ()  # of what was created, outermost first: removed if nothing is in them


def write_record(directory: Path, record: Record) -> None:
    """Put the record into the volume's directory, whole or not at all; SetupError when one is there
    already."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / RECORD_NAME
    if target.exists():
        raise SetupError(
            f"{directory}: a volume is attached there already; run 'esrally-ebs volumes down' first"
        )
    fields: Mapping[str, Any] = {
        "backend": record.backend,
        "name": record.name,
        "type": record.type,
        "created": [str(path) for path in record.created],
        "parents": [str(path) for path in record.parents],
    }
    part = target.with_suffix(".part")
    part.write_text(json.dumps(fields))
    part.replace(target)


def read_record(directory: Path) -> Record | None:
    """The record of a volume's directory; None when there is none. SetupError when it was cut."""
    try:
        fields = json.loads((directory / RECORD_NAME).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise SetupError(
            f"{directory / RECORD_NAME}: not JSON: {error}; look at what is mounted there, then remove it"
        ) from error
    return Record(
        backend=fields["backend"],
        name=fields["name"],
        type=fields["type"],
        created=tuple(Path(path) for path in fields["created"]),
        parents=tuple(Path(path) for path in fields.get("parents", ())),  # none by an earlier release
    )


def drop_record(directory: Path) -> None:
    """The last step of detaching: the record, and the directory if nothing else is in it."""
    (directory / RECORD_NAME).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:  # not empty, or gone already
        return
