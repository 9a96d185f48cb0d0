"""The directory backend: a plain directory stands in for a volume, to try the pack without root."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from os.path import lexists
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.resources import run_dir
from esrally_ebs.volumes.mounted import OWN_PREFIX
from esrally_ebs.volumes.mounts import describe
from esrally_ebs.volumes.record import RECORD_NAME, Record, drop_record, read_record, write_record


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
    record = Record(
        backend="directory",
        name=spec.name,
        type=spec.type,
        created=(where,),
        parents=_parents_of_ours(where.parent) if where.parent != directory.resolve() else (),
    )
    write_record(directory, record)
    try:
        where.mkdir(parents=True)
    except OSError as error:
        _remove_empty(record.parents)
        drop_record(directory)
        raise SetupError(
            f"volume '{spec.name}': {where}: {error.strerror}; give another directory"
        ) from error
    return describe(spec, where, Kind.DIRECTORY, identity=f"directory:{where}")


def detach(directory: Path) -> None:
    """Remove the directory that ``attach`` made, with all it holds, and the parents made for it."""
    record = read_record(directory)
    if record is None:
        return
    for path in record.created:
        shutil.rmtree(path, ignore_errors=True)
    _remove_empty(record.parents)
    drop_record(directory)


def _remove_empty(parents: Sequence[Path]) -> None:
    """Those with nothing in them; the outermost stands first."""
    for path in reversed(parents):
        with suppress(OSError):  # gone already, or something else is in it by now
            path.rmdir()


def _parents_of_ours(path: Path) -> tuple[Path, ...]:
    """``path`` and what is above it, outermost first, as far as it is missing or was made for another arm.

    So the last arm to go removes what several share.
    """
    made = {parent for record in _attached() for parent in record.parents}
    return tuple(each for each in (*reversed(path.parents), path) if each in made or not lexists(each))


def _attached() -> Iterator[Record]:
    """The records of all arms on this machine that can be read."""
    for file in run_dir().glob(f"*/*/{RECORD_NAME}"):
        with suppress(SetupError, OSError):  # cut, or another user's: whoever detaches that arm says so
            record = read_record(file.parent)
            if record is not None:
                yield record
