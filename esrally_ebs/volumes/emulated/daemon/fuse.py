"""The raw FUSE protocol for one regular file: parses requests and builds replies; no I/O.

Source: include/uapi/linux/fuse.h, protocol 7.36. The other side is always this machine's kernel, and all
machines with EBS are little-endian.
"""

import stat
import struct
from enum import IntEnum

MAX_IO_BYTES = 1024 * 1024
HEADER_BYTES = 40
WRITE_DATA_AT = 80  # header and fuse_write_in, then the data
REQUEST_BYTES = MAX_IO_BYTES + 4096  # a whole request; the kernel refuses smaller buffers
MAX_BACKGROUND = 1024  # requests in flight; the default of 12 would be the limit


class Opcode(IntEnum):
    """Requests for a mounted regular file."""

    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43


# opcode and unique of the header; offset and size of fuse_read_in and fuse_write_in, unused in others
REQUEST = struct.Struct("<4xIQ24x8xQI")
_INIT_IN = struct.Struct("<IIII")
_FALLOCATE_IN = struct.Struct("<QQQI")
_INTERRUPT_IN = struct.Struct("<Q")
REPLY = struct.Struct("<IiQ")  # len, -errno, unique
WRITTEN = struct.Struct("<IiQII")  # the reply to a write: header, size, padding
_INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
_ATTR_OUT = struct.Struct("<QII6Q3I7I")
_OPEN_OUT = struct.Struct("<QII")
_STATFS_OUT = struct.Struct("<QQQQQIIII24x")

_ASYNC_READ = 1 << 0
_BIG_WRITES = 1 << 5
_ASYNC_DIO = 1 << 15
_MAX_PAGES = 1 << 22
_OPEN_DIRECT_IO = 1 << 0
_OPEN_PARALLEL_DIRECT_WRITES = 1 << 6
_ATTRIBUTES_VALID_S = 3600
_PAGE = 4096

FALLOC_KEEP_SIZE = 0x01
FALLOC_PUNCH_HOLE = 0x02
FALLOC_ZERO_RANGE = 0x10


def reply(unique: int, payload: bytes = b"", error: int = 0) -> bytes:
    """A whole reply; ``error`` is a positive errno."""
    return REPLY.pack(REPLY.size + len(payload), -error, unique) + payload


def init_payload(request: bytes | memoryview) -> bytes:
    """Answer to INIT: many requests in flight, each up to MAX_IO_BYTES."""
    _, _, readahead, flags = _INIT_IN.unpack_from(request, HEADER_BYTES)
    wanted = flags & (_ASYNC_READ | _BIG_WRITES | _ASYNC_DIO | _MAX_PAGES)
    congestion = MAX_BACKGROUND * 3 // 4
    pages = MAX_IO_BYTES // _PAGE
    return _INIT_OUT.pack(7, 36, readahead, wanted, MAX_BACKGROUND, congestion, MAX_IO_BYTES, 1, pages, 0, 0)


def attributes_payload(size: int) -> bytes:
    """Answer to GETATTR and SETATTR: a regular file of ``size`` bytes, readable by root alone."""
    times = (0, 0, 0, 0, 0, 0)
    mode = stat.S_IFREG | 0o600
    blocks = size // 512
    return _ATTR_OUT.pack(_ATTRIBUTES_VALID_S, 0, 0, 1, size, blocks, *times, mode, 1, 0, 0, 0, _PAGE, 0)


def open_payload() -> bytes:
    """Answer to OPEN: no page cache for this file, and parallel writes."""
    return _OPEN_OUT.pack(1, _OPEN_DIRECT_IO | _OPEN_PARALLEL_DIRECT_WRITES, 0)


def statfs_payload(size: int) -> bytes:
    return _STATFS_OUT.pack(size // _PAGE, 0, 0, 0, 0, _PAGE, 255, _PAGE, 0)


def fallocate_fields(request: bytes | memoryview) -> tuple[int, int, int]:
    """Offset, length and mode of a FALLOCATE request."""
    _, offset, length, mode = _FALLOCATE_IN.unpack_from(request, HEADER_BYTES)
    return offset, length, mode


def interrupted(request: bytes | memoryview) -> int:
    """The unique number of the request that an INTERRUPT refers to."""
    unique: int = _INTERRUPT_IN.unpack_from(request, HEADER_BYTES)[0]
    return unique
