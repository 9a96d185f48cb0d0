"""The directory backend: a plain directory instead of a volume, to try the pack without root."""

from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.mounts import describe
from esrally_ebs.machine.private import require_unchangeable
from esrally_ebs.machine.processes import is_root
from esrally_ebs.model import Kind, Volume, VolumeSpec
from esrally_ebs.volumes.mounted import detach, own_name
from esrally_ebs.volumes.record import Record, drop_record, write_record

__all__ = ["attach", "detach"]  # detach: as for a directory on a mount


def attach(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Volume:
    """A new directory: inside ``spec.mount`` or ``backing`` if given, else inside ``directory``.

    Never an existing one, so that nothing of the user's is read, changed or removed.
    """
    where = (spec.mount or backing or directory).resolve() / own_name(directory)
    if spec.mount is not None and is_root():
        require_unchangeable(where.parent, name=f"volume '{spec.name}': ")
    write_record(directory, Record(backend="directory", name=spec.name, type=spec.type, created=(where,)))
    try:
        where.mkdir()
    except OSError as error:
        drop_record(directory)
        raise SetupError(
            f"volume '{spec.name}': {where}: {error.strerror}; give another directory"
        ) from error
    return describe(spec, where, Kind.DIRECTORY, identity=f"directory:{where}")
