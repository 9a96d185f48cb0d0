"""Both ends of a volume's data: requests from the FUSE connection, bytes of the backing file, replies back.

Data go through pread and pwrite, not a mapping: a full backing store is an error in the reply, never SIGBUS.
Each request costs as few system calls and copies as that allows: one to receive it, one for its data, one to
answer it.
"""

import ctypes
import errno
import mmap
import os

from esrally_ebs.volumes.emulated.daemon import fuse

_libc = ctypes.CDLL(None, use_errno=True)


class Channel:
    """One FUSE connection and one backing file (both file descriptors)."""

    def __init__(self, backing: int, device: int) -> None:
        """Owns the buffers, not the descriptors."""
        self.device = device
        self.size = os.fstat(backing).st_size
        self.errors = 0  # I/Os that the backing store refused
        self._backing = backing
        self.request = _buffer(fuse.WRITE_DATA_AT, fuse.REQUEST_BYTES)
        self._into_request = (self.request,)
        self._reply = _buffer(fuse.REPLY.size, fuse.REPLY.size + fuse.MAX_IO_BYTES)

    def receive(self) -> bool | None:
        """Take one request into ``request``; False when none waits, None when it was withdrawn meanwhile.

        Raises OSError (ENODEV) once the file is unmounted.
        """
        try:
            os.readv(self.device, self._into_request)
        except BlockingIOError:
            return False
        except FileNotFoundError:
            return None
        return True

    def store(self, offset: int, size: int) -> int:
        """Write the request's data to the backing file; 0 or the errno of what went wrong."""
        done = 0
        try:
            while done < size:
                data = self.request[fuse.WRITE_DATA_AT + done : fuse.WRITE_DATA_AT + size]
                done += os.pwrite(self._backing, data, offset + done)
        except OSError as error:
            self.errors += 1
            return error.errno or errno.EIO
        return 0

    def answer_read(self, unique: int, offset: int, size: int) -> None:
        """Reply with the file's bytes as they are now."""
        head = fuse.REPLY.size
        try:
            got = os.preadv(self._backing, (self._reply[head : head + size],), offset)
        except OSError as error:
            self.errors += 1
            self.send(fuse.reply(unique, error=error.errno or errno.EIO))
            return
        fuse.REPLY.pack_into(self._reply, 0, head + got, 0, unique)
        self.send(self._reply[: head + got])

    def answer_write(self, unique: int, size: int, error: int) -> None:
        """Reply that ``size`` bytes were written, or with a positive errno."""
        if error:
            self.send(fuse.reply(unique, error=error))
        else:
            self.send(fuse.WRITTEN.pack(fuse.WRITTEN.size, 0, unique, size, 0))

    def send(self, message: bytes | memoryview) -> None:
        """Write a whole reply; nothing happens when its request was withdrawn meanwhile."""
        try:
            os.write(self.device, message)
        except FileNotFoundError:
            return

    def punch(self) -> int:
        """Discard, or zero, a range; both leave a hole in the backing file. 0 or an errno."""
        offset, length, mode = fuse.fallocate_fields(self.request)
        if not mode & (fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_ZERO_RANGE):
            return errno.EOPNOTSUPP
        hole = fuse.FALLOC_PUNCH_HOLE | fuse.FALLOC_KEEP_SIZE
        at, many = ctypes.c_int64(offset), ctypes.c_int64(length)
        return ctypes.get_errno() if _libc.fallocate(self._backing, hole, at, many) else 0


def _buffer(head: int, size: int) -> memoryview:
    """``size`` bytes whose data, after ``head`` bytes, begin a page; else pages are copied in two parts."""
    start = -head % mmap.PAGESIZE
    return memoryview(mmap.mmap(-1, start + size))[start:]
