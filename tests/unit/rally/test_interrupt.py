"""A message that race control has not read yet is noticed; nothing else is taken for one."""

import multiprocessing
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thespian.system.transport.MultiprocessQueueTransport import MultiprocessQueueTCore_Common

from esrally_ebs.errors import FormatError
from esrally_ebs.machine.processes import SYSTEM_CLOCK
from esrally_ebs.machine.procfs import CLOSE_WAIT, ESTABLISHED, TcpSocket, parse_tcp
from esrally_ebs.rally.processor import hearing_cancel, holds_message, message_waits


@pytest.fixture
def port() -> Iterator[int]:
    """Where this process listens, as an actor does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_silence_is_no_message(port: int) -> None:
    assert not message_waits()


def test_data_of_a_caller_that_is_not_yet_accepted_are_a_message(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as caller:
        assert not message_waits()
        caller.sendall(b"cancel")
        assert message_waits()
    assert message_waits()  # though it has hung up


def test_a_caller_that_hung_up_without_a_word_is_no_message(port: int) -> None:
    """Rally's command does this; taken for a wish to cancel it would end every session at its start."""
    socket.create_connection(("127.0.0.1", port)).close()
    assert not message_waits()


def test_a_word_that_wakes_the_own_actor_up_is_no_message() -> None:
    """Threads that log put it there; taken for a wish to cancel it ended races whose log was detailed."""
    mailbox = multiprocessing.get_context("fork").Queue()
    bump_of_thespian(mailbox)
    bump_of_thespian(mailbox)
    _until(lambda: not mailbox.empty())
    assert not holds_message(mailbox)
    mailbox.put(("relay", ("sender", "us", "cancel")))
    _until(lambda: holds_message(mailbox))
    _until(lambda: holds_message(mailbox))  # it is still there for race control to read
    waiting = [mailbox.get(timeout=5) for _ in range(2)]
    assert ("relay", ("sender", "us", "cancel")) in waiting
    assert mailbox.empty()


def bump_of_thespian(mailbox: Any) -> None:  # noqa: ANN401
    core = MultiprocessQueueTCore_Common(mailbox, None, None, None)
    core.interrupt_run()


def _until(come: Callable[[], bool]) -> None:
    """A queue hands over in a thread of its own."""
    assert SYSTEM_CLOCK.wait_until(come, limit_s=20, poll_s=0.01)


def test_a_line_of_the_table_is_a_socket_with_what_nobody_has_read() -> None:
    text = "head\n" + "".join(
        f"   {number}: 0100007F:1F9A 0100007F:C350 {state} 00000000:{unread} 00:00000000 0 0 0\n"
        for number, (state, unread) in enumerate([("01", "00000012"), ("08", "00000012"), ("08", "00000000")])
    )
    # 0x12 bytes; once a connection has ended, its end counts as one of them
    assert parse_tcp(text, "table") == [
        TcpSocket(local_port=8090, state=ESTABLISHED, unread_bytes=18),
        TcpSocket(local_port=8090, state=CLOSE_WAIT, unread_bytes=17),
        TcpSocket(local_port=8090, state=CLOSE_WAIT, unread_bytes=0),
    ]


def test_a_line_that_is_not_the_kernels_is_named() -> None:
    with pytest.raises(FormatError, match=r"^table:2: not a line of /proc/net/tcp: 'x'$"):
        parse_tcp("head\nx\n", "table")


def test_data_on_an_accepted_connection_is_a_message_and_its_end_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert not message_waits()
            caller.sendall(b"cancel")
            assert message_waits()
            accepted.recv(16)
            caller.close()
            assert not message_waits()


def test_an_answer_to_our_own_request_is_not_a_message(port: int) -> None:
    """What comes back on a connection that we opened is for whoever asked."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        mine = socket.create_connection(other.getsockname())
        theirs, _ = other.accept()
        with mine, theirs:
            theirs.sendall(b"answer")
            assert not message_waits()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Who was started in the background ignores Ctrl-C, and so would this process."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("interruptible")
def test_a_message_interrupts_what_runs_inside(port: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        _prepare_while_told_to_cancel(port)


def _prepare_while_told_to_cancel(port: int) -> None:
    with hearing_cancel(poll_s=0.02), socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall(b"cancel")
        time.sleep(30)


@pytest.mark.usefixtures("interruptible")
def test_a_message_that_is_read_before_the_next_look_interrupts_nothing() -> None:
    looks = [True, False, True, False]  # taken from the end
    all_taken = threading.Event()

    def look() -> bool:
        if not looks:
            all_taken.set()
        return looks.pop() if looks else False

    with hearing_cancel(look, poll_s=0.001):
        assert all_taken.wait(5)


@pytest.mark.usefixtures("interruptible")
def test_a_message_that_waits_already_is_looked_at_twice() -> None:
    looks: list[bool] = []

    def look() -> bool:
        looks.append(True)
        return True

    def prepare() -> None:
        with hearing_cancel(look, poll_s=0.001):
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        prepare()
    assert len(looks) == 2
