"""Reading raw devices: whether one is blank, and all of one that was made from a snapshot."""

import errno
import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from esrally_ebs.errors import SetupError
from esrally_ebs.units import GIB, KIB, MIB

_LOOKED_AT = 64  # places, evenly spread, besides both ends
_PIECE = 64 * KIB
_CHUNK = MIB
_THREADS = 32  # one stream does not fill a volume's queue


def is_blank(device: Path, size: int) -> bool:
    """Whether the first and last MiB and 64 places between hold nothing but zeros.

    A new EBS volume reads as zeros; data without any signature (a raw database) do not.
    """
    places = [(0, MIB), (max(0, size - MIB), MIB)]
    places += [(size * place // _LOOKED_AT // _PIECE * _PIECE, _PIECE) for place in range(_LOOKED_AT)]
    try:
        with device.open("rb", buffering=0) as file:
            return not any(any(os.pread(file.fileno(), length, start)) for start, length in places)
    except OSError as error:
        raise SetupError(f"{device}: {error.strerror}; run as root") from error


def is_held(device: Path) -> bool:
    """Whether something has the device to itself, a mount above all, wherever on this machine it is seen.

    The mounts of other containers are in no list that this process can read; the kernel still tells.
    """
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def read_through(device: Path, size: int, progress: Callable[[int, int], None]) -> None:
    """Read every block once, past the page cache, so that all of it has come from the snapshot.

    ``progress(done, size)`` is called after each GiB. SetupError when the device fails.
    """
    handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_EXCL)  # hours during which others see it used
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, size, GIB):
                end = min(size, start + GIB)
                chunks = range(start, end, _CHUNK)
                list(pool.map(lambda offset: _read(handle, offset), chunks))
                progress(end, size)
    except OSError as error:
        raise SetupError(f"{device}: {error.strerror} while it was read; is it still attached?") from error
    finally:
        os.close(handle)


def _read(handle: int, offset: int) -> None:
    with mmap.mmap(-1, _CHUNK) as buffer:  # aligned, as direct I/O wants it
        os.preadv(handle, [buffer], offset)
