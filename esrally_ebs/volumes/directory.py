"""The directory backend: a plain directory stands in for a volume, to try the pack without root."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.volumes.mounted import OWN_PREFIX
from esrally_ebs.volumes.mounts import describe
from esrally_ebs.volumes.record import Record, drop_record, read_record, write_record


@contextmanager
def open_volume(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Iterator[Volume]:
    """Attach for the time of the ``with``; see ``attach``."""
    volume = attach(spec, directory, backing=backing)
    try:
        yield volume
    finally:
        detach(directory)


def attach(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Volume:
    """A fresh directory: inside ``spec.mount`` or ``backing`` if given, else inside ``directory``.

    Never one that was there before, so that nothing of the user's is read, changed or removed.
    """
    where = (spec.mount or backing or directory).resolve() / f"{OWN_PREFIX}{directory.parent.name}"
    created = (where,)
    write_record(directory, Record(backend="directory", name=spec.name, type=spec.type, created=created))
    try:
        where.mkdir(parents=True)
    except OSError as error:
        drop_record(directory)
        raise SetupError(
            f"volume '{spec.name}': {where}: {error.strerror}; give another directory"
        ) from error
    return describe(spec, where, Kind.DIRECTORY, identity=f"directory:{where}")


def detach(directory: Path) -> None:
    """Remove the directory that ``attach`` made, with all it holds."""
    record = read_record(directory)
    for path in record.created if record is not None else ():
        shutil.rmtree(path, ignore_errors=True)
    drop_record(directory)
