"""The keeper: a root process that takes the steps needing root for a user who called by sudo, and no others.

``sudo esrally race`` starts as root. It becomes the keeper, and what it was called for goes on in a child
that is the caller's. The child's processes ask for steps of ``RootSteps`` over an abstract Unix socket (there
is no file to leave behind), where only that user is answered.
"""

import errno
import json
import os
import pwd
import secrets
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, cast

from esrally_ebs import node as nodes
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.caller import KEEPER, Caller, caller
from esrally_ebs.machine.private import opened_below
from esrally_ebs.machine.processes import SYSTEM_CLOCK, as_shells_say, at_terminal, be_called
from esrally_ebs.model import Node, Volume
from esrally_ebs.session import reaper
from esrally_ebs.session.asking import (
    Answering,
    Arguments,
    Asking,
    Gives,
    Say,
    line_of,
    refusal,
    request_line,
    result_of,
    say_nothing,
)
from esrally_ebs.session.root_steps import RootSteps, StartReaper
from esrally_ebs.store import running
from esrally_ebs.store.context import Context
from esrally_ebs.telemetry.sources import ReadPage

# The steps that may be asked for: all of RootSteps but `serve`, which combines others, and `take`.
OPERATIONS = (
    *("image", "engine_facts", "begin", "attach", "lend", "give_back", "calibrate", "start_nodes"),
    *("attach_neutral", "start_shared", "stop_nodes", "restart_nodes", "remove_nodes", "segments"),
    *("content_hash", "keep", "bring_back", "require_kept", "publish", "evict", "cause", "gc_log"),
    *("ebs_page", "ending", "take_down", "lose_node"),
)
MAX_REQUEST_BYTES = 1 << 18
_MAX_CALLS = 64  # simultaneous calls
_SLOW_S = 10.0  # to receive a request, which normally comes at once
_PIECE_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_PATIENCE_S = 30.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # of accept(2), for a while
_POLL_S = 0.1
# Places that 'sudo -E' leaves to root: in the caller's own, the caller's processes could exchange files.
_OF_CALLER = ("ESRALLY_EBS_HOME", "TMPDIR", "TEMP", "TMP", "DOCKER_CONFIG", "DOCKER_CERT_PATH")


# --- in the caller's processes ---


class KeeperClient(Asking):
    """Asks the keeper, or another listener at that address."""

    def __init__(self, address: str, steps: type = RootSteps) -> None:
        super().__init__(steps)
        self._address = address

    def gc_log(self, arm: str) -> BinaryIO:
        descriptors: list[int] = []
        self._ask("gc_log", {"arm": arm}, say_nothing, lambda nothing: nothing, descriptors)
        return os.fdopen(descriptors[0], "rb")

    @contextmanager
    def serve(
        self,
        on: Sequence[Volume],
        settings: nodes.NodeSettings,
        repository: Path | None = None,
        linked: Sequence[Path] = (),
    ) -> Iterator[tuple[Node, ...]]:
        """Nodes on this user's directories until the block ends."""
        try:
            names = tuple(self._lend_data(volume.mount) for volume in on)
            for mount in linked:  # lent so that their files are given back, too
                self._lend_data(mount)
            seen = self._lend(repository, read_only=True) if repository else ""
            yield self.start_nodes(names, settings, repository=seen)
            self.stop_nodes(names)
        except BaseException:
            self.remove_nodes()
            raise
        finally:
            self.give_back()

    def _lend_data(self, mount: Path) -> str:
        data = mount / "elasticsearch"
        data.mkdir(mode=0o750, exist_ok=True)
        return self._lend(data)

    def _lend(self, path: Path, *, read_only: bool = False) -> str:
        with opened_below(path) as descriptor:
            return str(self.lend(descriptor, read_only=read_only))

    def _ask(
        self, step: str, arguments: Arguments, say: Say, gives: Gives, descriptors: list[int] | None = None
    ) -> Any:  # noqa: ANN401 - what the step gives
        """The result, as ``gives`` makes it; descriptors that come with it are appended to the list."""
        lent = [arguments.pop("data")] if step == "lend" else []
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(f"\0{self._address}")
                if _user_of(connection) not in (0, os.geteuid()):  # anybody may reuse an ended keeper's name
                    raise _ended("another user listens in its place")
                _send_with(connection, request_line(step, arguments), lent)
                for line, given in _lines(connection):
                    if descriptors is not None:
                        descriptors += given
                    answer = json.loads(line)
                    if "say" not in answer:
                        return gives(result_of(answer))
                    say(answer["say"])
        except OSError as error:
            raise _ended(error.strerror or str(error)) from error
        raise _ended("it hung up")


def _user_of(connection: socket.socket) -> int:
    """User id of the other end (who connected, or who listens), from the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _ended(why: str) -> SetupError:
    return SetupError(f"the root process of this session has ended ({why}); run 'sudo esrally-ebs clean'")


def _lines(connection: socket.socket, limit: int | None = None) -> Iterator[tuple[bytes, list[int]]]:
    """Lines, each with the descriptors that came with it. Raises SetupError beyond the limit.

    Descriptors that arrive without a whole line are closed.
    """
    rest, given = b"", list[int]()
    try:
        while True:
            part, descriptors, _, _ = socket.recv_fds(connection, _PIECE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            rest, given = rest + part, given + descriptors
            if len(given) > 1:
                raise SetupError("a request has several descriptors; send one at most")
            while b"\n" in rest:
                line, _, rest = rest.partition(b"\n")
                whole, given = given, []
                yield line, whole
            if not part:
                return
            if limit is not None and len(rest) > limit:
                raise SetupError(f"a request has over {limit} bytes; ask for less at a time")
    finally:
        for descriptor in given:
            os.close(descriptor)


def _send_with(connection: socket.socket, line: bytes, descriptors: Sequence[int]) -> None:
    rest = line[socket.send_fds(connection, [line], descriptors) :]
    if rest:  # the other end may have answered and closed already
        connection.sendall(rest)


def root_steps(context: Context | None = None, *, start_reaper: StartReaper = reaper.start) -> RootSteps:
    """The steps that need root, for a running session if ``context`` is given: direct, or by the keeper."""
    address = (context.hosts_at if context else "") or os.environ.get(KEEPER)
    if address:
        return cast(RootSteps, KeeperClient(address))
    steps = RootSteps(start_reaper=start_reaper)
    if context is not None:
        steps.take(context)
    return steps


def read_page() -> ReadPage | None:
    """The keeper's reader of EBS statistics, always the same; None if this process may read them itself."""
    address = os.environ.get(KEEPER)
    return _page_reader(address) if address else None


@cache
def _page_reader(address: str) -> ReadPage:
    return cast(RootSteps, KeeperClient(address)).ebs_page


# --- in the root process ---


def go_on_as_caller(argv: Sequence[str], *, needs_root: bool) -> None:
    """If a user called by sudo, run the command again as that user, and become the keeper here if needed.

    Returns where nobody did. Errors are printed: there is nobody to raise them to.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # nothing has begun: Ctrl-C ends it silently
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        user = caller()
        if user is not None:
            command = [sys.executable, *argv]
            _become_keeper(user, command) if needs_root else user.go_on(command)
    except (EbsError, OSError) as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        os._exit(SetupError.exit_code)
    signal.signal(signal.SIGINT, usual)


def bound() -> tuple[socket.socket, str]:
    """A listening socket and its name, abstract and impossible to guess."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    address = f"esrally-ebs-{secrets.token_hex(16)}"
    listener.bind(f"\0{address}")
    listener.listen()
    return listener, address


def _become_keeper(user: Caller, command: list[str]) -> None:
    listener, address = bound()
    wait, ready = os.pipe()
    apart = not at_terminal()
    child = os.fork()
    if child == 0:
        if apart:  # a group signal must not arrive twice: a second one would interrupt the cleanup
            os.setpgid(0, 0)
        os.close(ready)
        if not os.read(wait, 1):
            os._exit(SetupError.exit_code)  # the keeper has printed why
        os.environ[KEEPER] = address
        user.go_on(command)
    # the keeper takes a second or more to load; signals that come meanwhile are passed on then
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    for descriptor in (listener.fileno(), ready):
        os.set_inheritable(descriptor, True)
    words = [str(listener.fileno()), str(ready), str(child), str(user.uid)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", __name__, *words])


class KeeperService(Answering):
    def __init__(self, steps: object, uid: int, operations: Sequence[str] = OPERATIONS) -> None:
        super().__init__(steps, operations)
        self._uid = uid
        self._free = threading.BoundedSemaphore(_MAX_CALLS)

    def listen(self, listener: socket.socket) -> None:
        """Answer each connection in its own thread, until the socket is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    return
                SYSTEM_CLOCK.sleep(_POLL_S)
                continue
            if _user_of(connection) != self._uid or not self._free.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # no thread can start, for want of memory or of processes
                self._free.release()
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            try:
                self._attend(connection)
            finally:
                self._free.release()

    def _attend(self, connection: socket.socket) -> None:
        connection.settimeout(_SLOW_S)
        given: list[int] = []
        try:
            for line, given in _lines(connection, MAX_REQUEST_BYTES):
                answer, file = self.answer(line, given, partial(_say, connection))
                with file or nullcontext():
                    _send(connection, answer, file)
                break
        except SetupError as error:
            _send(connection, refusal(error))
        finally:
            for descriptor in given:
                os.close(descriptor)


def _say(connection: socket.socket, text: str) -> None:
    with suppress(OSError):  # nobody listens any more; the step itself continues
        _send(connection, {"say": text})


def _send(connection: socket.socket, answer: Mapping[str, Any], file: BinaryIO | None = None) -> None:
    _send_with(connection, line_of(answer), [file.fileno()] if file else [])


def main(argv: Sequence[str]) -> int:
    """``LISTENER READY CHILD UID``: descriptors, the command's process and user; returns its exit code."""
    be_called("ebs-keeper")
    fileno, ready, child, uid = map(int, argv)
    os.umask(0o022)
    user = Caller.of(uid)
    for name in [name for name in os.environ if name.startswith("SUDO_") or name in _OF_CALLER]:
        del os.environ[name]  # from here on mounts and images are root's, not the caller's
    os.environ["HOME"] = pwd.getpwuid(0).pw_dir

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            if os.getpgid(child) == child:
                os.killpg(child, number)
            elif number != signal.SIGINT or not at_terminal():  # at a terminal, the command got Ctrl-C itself
                os.kill(child, number)

    _on_signals(pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    steps = RootSteps(user)

    def take_down(_: int, __: FrameType | None) -> None:
        threading.Thread(target=steps.take_down, daemon=True).start()

    signal.signal(reaper.TAKE_DOWN, take_down)
    listener = socket.socket(fileno=fileno)
    threading.Thread(target=KeeperService(steps, uid).listen, args=(listener,), daemon=True).start()
    with suppress(BrokenPipeError):  # it has ended, perhaps by Ctrl-C
        os.write(ready, b"1")
    os.close(ready)
    _, status = os.waitpid(child, 0)
    _on_signals(signal.SIG_IGN)  # its pid may be another's from now on
    # race control, or the reaper, takes it down
    limit_s = max(_PATIENCE_S, steps.ends_within_s())
    SYSTEM_CLOCK.wait_until(lambda: not steps.ends_within_s(), limit_s=limit_s)
    running.await_removal()  # a thread of this process may be at it
    return as_shells_say(os.waitstatus_to_exitcode(status))


def _on_signals(action: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, action)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
