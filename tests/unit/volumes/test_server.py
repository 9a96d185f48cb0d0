"""The daemon's loop in a process of its own, on a socket in place of /dev/fuse."""

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import SetupError
from esrally_ebs.model import VolumeSpec
from esrally_ebs.volumes.emulated.control import SOCKET_NAME, change, read_state
from esrally_ebs.volumes.emulated.daemon import fuse, trace
from esrally_ebs.volumes.emulated.daemon.admission import Admission
from esrally_ebs.volumes.emulated.daemon.server import Server
from esrally_ebs.volumes.emulated.trace import take_trace

HELD_S = 20e-3


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, Path]]:
    """The kernel's end, and the control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    image = tmp_path / "image"
    image.write_bytes(bytes(64 * 1024))
    spec = VolumeSpec(name="a", type="gp3", size_bytes=2**34)
    settings = {
        "model": model_for(spec).to_json(),
        "seed": 1,
        "credits": 1.0,
        "time_scale": 1.0,
        "instance_page": None,
    }
    monkeypatch.chdir(tmp_path)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            theirs.setblocking(False)
            server = Server(Admission(settings, time.monotonic()), os.open(image, os.O_RDWR), theirs.fileno())
            os.write(tell, b"!")  # that the control socket is there does not say that it listens
            server.serve()
            os._exit(0)
        finally:
            os._exit(1)  # whatever is raised, no second pytest goes on
    os.close(tell)
    with ours, theirs, os.fdopen(ready, "rb") as ready_pipe:
        assert ready_pipe.read(1) == b"!"
        ours.settimeout(5)
        yield ours, tmp_path / SOCKET_NAME
        os.kill(child, signal.SIGTERM)
        assert os.waitpid(child, 0)[1] == 0  # ends in order


def _request(opcode: int, unique: int, offset: int, size: int, data: bytes = b"") -> bytes:
    header = struct.pack("<IIQQIIII", 80 + len(data), opcode, unique, 1, 0, 0, 0, 0)
    return header + struct.pack("<QQIIQII", 0, offset, size, 0, 0, 0, 0) + data


def _reply(kernel: socket.socket) -> tuple[int, bytes]:
    message = kernel.recv(65536)
    _, error, unique = struct.unpack_from("<IiQ", message)
    assert error == 0
    return unique, message[16:]


def test_replies_come_when_they_are_due_and_all_requests_wait_together(
    volume: tuple[socket.socket, Path],
) -> None:
    kernel, control = volume
    held_s = 0.3  # long: one after the other would take three seconds, however busy the machine is
    change(control, unlimited=False, fixed_latency_s=(held_s, held_s))
    start = time.monotonic()
    for unique in range(1, 11):
        kernel.send(_request(fuse.Opcode.READ, unique, 0, 512))
    answered = [_reply(kernel)[0] for _ in range(10)]
    took_s = time.monotonic() - start
    assert answered == list(range(1, 11))
    assert held_s <= took_s < 9 * held_s
    state = read_state(control)
    assert (state.reads, state.in_flight) == (10, 0)
    assert state.target_s["read"] == pytest.approx(10 * held_s)


def test_a_read_sees_the_write_that_came_before_it_though_neither_is_answered(
    volume: tuple[socket.socket, Path],
) -> None:
    kernel, control = volume
    change(control, unlimited=False, fixed_latency_s=(HELD_S, HELD_S))
    kernel.send(_request(fuse.Opcode.WRITE, 1, 1024, 512, b"w" * 512))
    kernel.send(_request(fuse.Opcode.READ, 2, 1024, 512))
    assert dict(_reply(kernel) for _ in range(2))[2] == b"w" * 512


def test_an_unknown_setting_is_refused_and_the_volume_goes_on(volume: tuple[socket.socket, Path]) -> None:
    kernel, control = volume
    with pytest.raises(SetupError, match="no setting 'speed'"):
        change(control, speed=2.0)
    with pytest.raises(SetupError, match="time scale"):
        change(control, time_scale=0.1)
    assert json.dumps(read_state(control).to_json())
    kernel.send(_request(fuse.Opcode.READ, 1, 0, 512))
    assert _reply(kernel)[1] == bytes(512)


def test_lines_that_are_no_request_are_answered_and_the_volume_goes_on(
    volume: tuple[socket.socket, Path],
) -> None:
    kernel, control = volume
    lines = [b"[]", b"5", b"null", b'"x"', b"{}", b"\xff", b"[" * 60_000]
    lines += [b'{"command": "set", "fixed_latency_s": %s}' % wrong for wrong in (b"[1]", b"7", b"[null, 1]")]
    lines += [b'{"command": "set", "overhead": {}}', b'{"command": "set", "credits": NaN}']
    lines += [b'{"command": "set", "time_scale": %s}' % (b"9" * digits) for digits in (400, 5000)]
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(os.path.relpath(control))
        for line in lines:
            client.sendall(line + b"\n")
            assert "error" in json.loads(client.recv(65536)), line[:40]
    assert read_state(control).time_scale == 1
    kernel.send(_request(fuse.Opcode.READ, 1, 0, 512))
    assert _reply(kernel)[1] == bytes(512)


def test_every_io_is_kept_with_its_times_when_asked_for(volume: tuple[socket.socket, Path]) -> None:
    kernel, control = volume
    change(control, unlimited=False, fixed_latency_s=(HELD_S, HELD_S), trace=True)
    before = time.time()
    kernel.send(_request(fuse.Opcode.READ, 1, 8192, 4096))
    kernel.send(_request(fuse.Opcode.WRITE, 2, 512, 4, b"data"))
    for _ in range(2):
        kernel.recv(65536)
    ios, lost = take_trace(control, "gp3")
    rows = ios.to_pylist()
    assert [(r["op"], r["offset"], r["bytes"]) for r in rows] == [("read", 8192, 4096), ("write", 512, 4)]
    assert {(r["arm"], r["queue_s"], r["ahead"]) for r in rows} == {("gp3", 0.0, None)}
    assert lost == 0
    for one in rows:
        assert before - 1e-3 <= one["at_s"] <= time.time()
        assert one["done_s"] - one["at_s"] == pytest.approx(HELD_S, abs=1e-4)
    change(control, trace=False)
    with pytest.raises(SetupError, match="no trace"):
        take_trace(control, "gp3")


def test_of_more_ios_than_fit_the_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "CAPACITY", 4)
    ring = trace.TraceRing()
    for number in range(6):
        ring.add(float(number), number + 0.5, 0.0, 0.0, number, 1, False)
    ring.save(tmp_path / "trace")
    count, _ = trace.HEAD.unpack_from(data := (tmp_path / "trace").read_bytes())
    kept = [trace.RECORD.unpack_from(data, trace.HEAD.size + i * trace.RECORD.size)[4] for i in range(4)]
    assert (count, sorted(kept)) == (6, [2, 3, 4, 5])
    assert len(data) == trace.HEAD.size + 4 * trace.RECORD.size
