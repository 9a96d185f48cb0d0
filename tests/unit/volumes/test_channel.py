"""The emulator's channel on a socket in place of /dev/fuse, and why requests may be left waiting in debt."""

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.catalog.limits import Accounting, per_second
from esrally_ebs.errors import SetupError
from esrally_ebs.volumes.emulated.control import SOCKET_NAME, ControlPoint, read_state
from esrally_ebs.volumes.emulated.daemon import fuse
from esrally_ebs.volumes.emulated.daemon.server import Channel
from esrally_ebs.volumes.emulated.law.buckets import Limiter
from esrally_ebs.volumes.emulated.release import detach

UNIQUE = 77


def test_a_volume_of_another_release_is_one_line_and_can_be_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(SOCKET_NAME)
        listener.listen()

        def serve() -> None:
            with suppress(OSError):  # shut down
                while True:
                    client, _ = listener.accept()
                    with client:
                        client.recv(4096)
                        client.sendall(b'{"levels": {}, "of_a_later_release": 1}\n')

        daemon = threading.Thread(target=serve, daemon=True)
        daemon.start()
        with pytest.raises(SetupError, match=f"^{tmp_path}/control: the volume's daemon is of another"):
            read_state(tmp_path / SOCKET_NAME)
        detach(tmp_path)
        listener.shutdown(socket.SHUT_RDWR)
        daemon.join()
    assert not (tmp_path / SOCKET_NAME).exists()


@pytest.fixture
def kernel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The kernel's end and the daemon's end; both keep messages apart as /dev/fuse does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(5)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def _backing(path: Path, flags: int = os.O_RDWR) -> int:
    path.write_bytes(bytes(range(256)) * 64)  # 16 KiB
    return os.open(path, flags)


def _request(opcode: int, offset: int, size: int, data: bytes = b"") -> bytes:
    # fuse_in_header, then fuse_read_in or fuse_write_in, which have the same 40 bytes up to the data
    header = struct.pack("<IIQQIIII", 80 + len(data), opcode, UNIQUE, 1, 0, 0, 0, 0)
    return header + struct.pack("<QQIIQII", 0, offset, size, 0, 0, 0, 0) + data


def test_a_write_is_in_the_file_and_a_read_replies_with_it(
    kernel: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = kernel
    backing = _backing(tmp_path / "image")
    channel = Channel(backing, theirs.fileno())
    assert channel.receive() is False
    ours.send(_request(fuse.Opcode.WRITE, 4096, 3, b"new"))
    assert channel.receive() is True
    assert fuse.REQUEST.unpack_from(channel.request) == (fuse.Opcode.WRITE, UNIQUE, 4096, 3)
    assert channel.store(4096, 3) == 0
    channel.answer_write(UNIQUE, 3, 0)
    assert ours.recv(4096) == struct.pack("<IiQII", 24, 0, UNIQUE, 3, 0)
    channel.answer_read(UNIQUE, 4095, 5)
    assert ours.recv(4096) == struct.pack("<IiQ", 16 + 5, 0, UNIQUE) + b"\xffnew\x03"
    os.close(backing)


def test_a_read_beyond_the_end_replies_with_what_there_is(
    kernel: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = kernel
    backing = _backing(tmp_path / "image")
    Channel(backing, theirs.fileno()).answer_read(UNIQUE, 16 * 1024 - 2, 4096)
    assert ours.recv(8192) == struct.pack("<IiQ", 16 + 2, 0, UNIQUE) + b"\xfe\xff"
    os.close(backing)


def test_what_the_backing_store_refuses_is_counted_and_an_error_in_the_reply(
    kernel: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = kernel
    backing = _backing(tmp_path / "image", os.O_WRONLY)
    channel = Channel(backing, theirs.fileno())
    channel.answer_read(UNIQUE, 0, 4096)
    assert ours.recv(8192) == struct.pack("<IiQ", 16, -errno.EBADF, UNIQUE)
    os.close(backing)
    backing = _backing(tmp_path / "image", os.O_RDONLY)
    channel = Channel(backing, theirs.fileno())
    assert channel.store(0, 4096) == errno.EBADF
    channel.answer_write(UNIQUE, 4096, errno.EBADF)
    assert ours.recv(8192) == struct.pack("<IiQ", 16, -errno.EBADF, UNIQUE)
    assert channel.errors == 1
    os.close(backing)


@given(
    sizes=st.lists(st.integers(min_value=1, max_value=256 * 1024), min_size=1, max_size=30),
    late_s=st.lists(st.floats(min_value=0.0, max_value=250e-6), min_size=30, max_size=30),
)
def test_in_debt_an_io_is_due_at_the_same_time_whether_it_is_taken_at_once_or_later(
    sizes: list[int], late_s: list[float]
) -> None:
    # One limiter sees each I/O as it comes, the other up to 250 us later, as the daemon may take it. Both
    # begin one operation in debt (1 ms at 1000 IOPS), and an I/O comes every 0.5 ms, so that the debt which
    # an I/O finds is never below 0.5 ms.
    limit = per_second("iops", "operations", 1000)
    at_once, later = (Limiter((limit,), Accounting(max_io_bytes=256 * 1024), 0.0) for _ in range(2))
    for limiter in (at_once, later):
        limiter.drain(0.0)
        limiter.charge(0, 1, 0.0)
    for number, (size, delay) in enumerate(zip(sizes, late_s, strict=False), start=1):
        came = number * 0.5e-3
        taken = came + delay
        due = came + at_once.charge(0, size, came)
        assert taken + later.charge(0, size, taken) == pytest.approx(due, abs=1e-9)


def test_whoever_holds_many_connections_takes_no_descriptors_that_io_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By sudo the socket is the caller's; each connection is one more to wait for beside I/O."""
    monkeypatch.chdir(tmp_path)
    point = ControlPoint(lambda request: request)
    (listener,) = point.descriptors()
    with ExitStack() as stack:
        clients = []
        for _ in range(70):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(5)
            client.connect(SOCKET_NAME)
            point.handle(listener)
            clients.append(client)
        assert len(point.descriptors()) == 1 + 64
        assert clients[-1].recv(1) == b""
        clients[0].sendall(b'{"a": 1}\n')
        first = point.descriptors()[1]
        point.handle(first)
        assert clients[0].recv(99) == b'{"a": 1}\n'
        clients[0].shutdown(socket.SHUT_WR)
        point.handle(first)
        assert len(point.descriptors()) == 64
    for descriptor in point.descriptors()[1:]:  # their clients have gone
        point.handle(descriptor)
    assert point.descriptors() == [listener]
    point._listener.close()
