"""A volume for the time of a ``with``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.volumes.backends import attach, detach


@contextmanager
def open_volume(spec: VolumeSpec, directory: Path, *, backing: Path | None = None) -> Iterator[Volume]:
    volume = attach(spec, directory, backing=backing)
    try:
        yield volume
    finally:
        detach(directory)
