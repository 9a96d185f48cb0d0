"""The keeper: a process of root's that does for a caller by sudo what needs root, and nothing else.

``sudo esrally race`` starts as root. It becomes the keeper, and what it was called for goes on in a child
that is the caller's. The child's processes ask by name for steps of ``RootSteps``: one JSON line each way,
over an abstract Unix socket (there is no file to leave behind), where only that user is answered.
"""

import io
import json
import os
import pwd
import secrets
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import setproctitle
from pydantic import TypeAdapter, ValidationError, validate_call

from esrally_ebs import errors
from esrally_ebs import node as nodes
from esrally_ebs.aws.ebs_statistics import LogPage
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.machine.caller import KEEPER, Caller, caller
from esrally_ebs.machine.private import opened_below
from esrally_ebs.machine.processes import at_terminal
from esrally_ebs.model import Node, Volume, VolumeSpec
from esrally_ebs.node.eviction import Eviction
from esrally_ebs.node.kept import BroughtBack
from esrally_ebs.session import reaper
from esrally_ebs.session.root_steps import RootSteps, Say, StartReaper
from esrally_ebs.store.context import Context
from esrally_ebs.telemetry.ebs import ReadPage

# All that may be asked: the steps of RootSteps but `serve`, which is made of others, and `take`.
OPERATIONS = (
    *("image", "engine_facts", "begin", "attach", "lend", "give_back", "calibrate", "start_nodes"),
    *("attach_neutral", "start_shared", "stop_nodes", "restart_nodes", "remove_nodes", "segments"),
    *("content_hash", "keep", "bring_back", "require_kept", "publish", "evict", "cause", "gc_log"),
    *("ebs_page", "ending", "take_down"),
)
MAX_REQUEST_BYTES = 1 << 18
_MAX_CALLS = 64  # at once
_SLOW_S = 10.0  # a request comes at once, or not at all
_PIECE_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_POLL_S = 0.1
_PATIENCE_S = 30.0
_ERROR_SIGNS = 500  # of an answer: what was asked may be quoted in it


def _say_nothing(text: str) -> None:
    """For those whom progress does not concern."""


# --- of the caller's processes ---


class KeeperClient:
    """The steps of ``RootSteps``, asked of the keeper."""

    def __init__(self, address: str) -> None:
        self._address = address

    def image(self) -> str:
        return str(self._ask("image"))

    def begin(self, session: str, folder: Path, watched: tuple[int, ...]) -> None:
        self._ask("begin", session=session, folder=folder, watched=watched)

    def attach(self, specs: tuple[VolumeSpec, ...], *, say: Say = _say_nothing) -> tuple[Volume, ...]:
        return _VOLUMES.validate_python(self._ask("attach", say=say, specs=specs))

    def calibrate(self) -> None:
        self._ask("calibrate")

    def start_nodes(
        self, on: tuple[str, ...], settings: nodes.NodeSettings, *, repository: str = ""
    ) -> tuple[Node, ...]:
        answer = self._ask("start_nodes", on=on, settings=settings, repository=repository)
        return _NODES.validate_python(answer)

    def attach_neutral(self) -> Path:
        return Path(self._ask("attach_neutral"))

    def start_shared(
        self, copies: Mapping[str, Mapping[str, str]], settings: nodes.NodeSettings
    ) -> tuple[Node, ...]:
        return _NODES.validate_python(self._ask("start_shared", copies=copies, settings=settings))

    def stop_nodes(self, on: tuple[str, ...]) -> None:
        self._ask("stop_nodes", on=on)

    def restart_nodes(self) -> None:
        self._ask("restart_nodes")

    def segments(self, on: tuple[str, ...]) -> list[nodes.Segment]:
        segments: list[nodes.Segment] = self._ask("segments", on=on)
        return segments

    def content_hash(self, on: tuple[str, ...]) -> str:
        return str(self._ask("content_hash", on=on))

    def keep(self, arm: str) -> None:
        self._ask("keep", arm=arm)

    def bring_back(self, arm: str) -> BroughtBack:
        return _BROUGHT_BACK.validate_python(self._ask("bring_back", arm=arm))

    def require_kept(self, arm: str, hash_: str) -> str:
        return str(self._ask("require_kept", arm=arm, hash_=hash_))

    def engine_facts(self, images: tuple[str, ...]) -> dict[str, str | None]:
        return dict(self._ask("engine_facts", images=images))

    def publish(self, context: Context) -> Context:
        return _CONTEXT.validate_python(self._ask("publish", context=context))

    def evict(self, arm: str) -> Eviction:
        return _EVICTION.validate_python(self._ask("evict", arm=arm))

    def cause(self, arm: str) -> str | None:
        answer = self._ask("cause", arm=arm)
        return None if answer is None else str(answer)

    def gc_log(self, arm: str) -> BinaryIO:
        descriptors: list[int] = []
        self._ask("gc_log", descriptors=descriptors, arm=arm)
        return os.fdopen(descriptors[0], "rb")

    def ebs_page(self, arm: str, disk: int) -> LogPage:
        return _LOG_PAGE.validate_python(self._ask("ebs_page", arm=arm, disk=disk))

    def ending(self) -> None:
        self._ask("ending")

    def take_down(self) -> list[str]:
        return [str(line) for line in self._ask("take_down")]

    @contextmanager
    def serve(
        self,
        on: Sequence[Volume],
        settings: nodes.NodeSettings,
        repository: Path | None = None,
        linked: Sequence[Path] = (),
    ) -> Iterator[tuple[Node, ...]]:
        """Nodes on directories of this user's, until the block ends."""
        try:
            names = tuple(self._lend_data(volume.mount) for volume in on)
            for mount in linked:  # for what is given back
                self._lend_data(mount)
            seen = self._lend(repository, read_only=True) if repository else ""
            yield self.start_nodes(names, settings, repository=seen)
            self.stop_nodes(names)
        except BaseException:
            self._ask("remove_nodes")
            raise
        finally:
            self._ask("give_back")

    def _lend_data(self, mount: Path) -> str:
        data = mount / "elasticsearch"
        data.mkdir(mode=0o750, exist_ok=True)
        return self._lend(data)

    def _lend(self, path: Path, *, read_only: bool = False) -> str:
        with opened_below(path) as descriptor:
            return str(self._ask("lend", data=descriptor, read_only=read_only))

    def _ask(
        self,
        operation: str,
        /,
        *,
        say: Say = _say_nothing,
        descriptors: list[int] | None = None,
        **arguments: Any,  # noqa: ANN401 - what the operation takes
    ) -> Any:  # noqa: ANN401 - what it gives
        """The result of an operation; descriptors that come with it are added to the list."""
        lent = [arguments.pop("data")] if operation == "lend" else []
        request = _JSON.dump_json({"operation": operation, "arguments": arguments}) + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(f"\0{self._address}")
                _send_with(connection, request, lent)
                for line, given in _lines(connection):
                    if descriptors is not None:
                        descriptors += given
                    answer = json.loads(line)
                    if "say" not in answer:
                        return result_of(answer)
                    say(answer["say"])
        except OSError as error:
            raise _ended(error.strerror or str(error)) from error
        raise _ended("it hung up")


def _ended(why: str) -> SetupError:
    return SetupError(f"the root process of this session has ended ({why}); run 'sudo esrally-ebs clean'")


def result_of(answer: Mapping[str, Any]) -> Any:  # noqa: ANN401 - what the operation gives
    """The result in an answer; raises the error that is in it instead."""
    if "error" in answer:
        raise error_of(answer["error"])
    return answer["result"]


def error_of(answer: Mapping[str, str]) -> EbsError:
    """The error that ``refusal`` made an answer of."""
    kind = getattr(errors, answer["kind"], SetupError)
    error: EbsError = kind(answer["text"])
    return error


def _lines(connection: socket.socket, limit: int | None = None) -> Iterator[tuple[bytes, list[int]]]:
    """Lines, each with the descriptors that came with it; SetupError beyond the limit.

    Descriptors that come with no whole line are closed.
    """
    rest, given = b"", list[int]()
    try:
        while True:
            part, descriptors, _, _ = socket.recv_fds(connection, _PIECE_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            rest, given = rest + part, given + descriptors
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
    if rest:  # the other end may have answered and gone already
        connection.sendall(rest)


def root_steps(
    context: Context | None = None, *, start_reaper: StartReaper = reaper.start
) -> RootSteps | KeeperClient:
    """The steps that need root, of a session that runs where one is given: done here, or by the keeper."""
    address = (context.hosts_at if context else "") or os.environ.get(KEEPER)
    if address:
        return KeeperClient(address)
    steps = RootSteps(start_reaper=start_reaper)
    if context is not None:
        steps.take(context)
    return steps


def read_page() -> ReadPage | None:
    """Who reads EBS statistics for this process, always the same; None where it may do so itself."""
    address = os.environ.get(KEEPER)
    return _page_reader(address) if address else None


@cache
def _page_reader(address: str) -> ReadPage:
    return KeeperClient(address).ebs_page


# --- of root ---


def go_on_as_caller(argv: Sequence[str], *, needs_root: bool) -> None:
    """Where a user called by sudo, run the command again as that user; here then is the keeper, if need be.

    Returns where nobody did. Errors are printed: there is nobody to raise them to.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # nothing has begun: Ctrl-C ends it without a word
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
    """A socket that listens, and its name among abstract ones, which nobody guesses."""
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
        if apart:  # a signal to the group must not reach it twice: the second would cut its end short
            os.setpgid(0, 0)
        os.close(ready)
        if not os.read(wait, 1):
            os._exit(SetupError.exit_code)  # it has said why
        os.environ[KEEPER] = address
        user.go_on(command)
    # its modules load for a second or more; what comes meanwhile is passed on then
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    for descriptor in (listener.fileno(), ready):
        os.set_inheritable(descriptor, True)
    words = [str(listener.fileno()), str(ready), str(child), str(user.uid)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", __name__, *words])


@dataclass(frozen=True, slots=True, kw_only=True)
class RootRequest:
    """One line of a caller's."""

    operation: str
    arguments: dict[str, Any]


class KeeperService:
    """Answers the requests of one user."""

    def __init__(self, steps: object, uid: int, operations: Sequence[str] = OPERATIONS) -> None:
        self._uid = uid
        self._free = threading.BoundedSemaphore(_MAX_CALLS)
        self._calls = {name: checked(getattr(steps, name)) for name in operations}

    def listen(self, listener: socket.socket) -> None:
        """Answer each connection in a thread of its own, until the socket is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            try:
                self._answer(connection)
            finally:
                self._free.release()

    def _answer(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(credentials)[1] != self._uid:
            return
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

    def answer(
        self, line: bytes, given: Sequence[int] = (), say: Say = _say_nothing
    ) -> tuple[dict[str, Any], BinaryIO | None]:
        """What is answered to a request, and a file that goes with it."""
        try:
            result = self._perform(_REQUEST.validate_json(line), given, say)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller hears of it
            return refusal(error), None
        return (
            ({"result": None}, result)
            if isinstance(result, io.BufferedReader)
            else ({"result": result}, None)
        )

    def _perform(self, request: RootRequest, given: Sequence[int], say: Say) -> Any:  # noqa: ANN401
        if request.operation not in self._calls:
            raise PlanError("request: operation: there is no such operation")
        arguments = dict(request.arguments)
        if request.operation == "attach":
            arguments["say"] = say
        if request.operation == "lend":
            if len(given) != 1:
                raise PlanError("request: a directory comes as one descriptor")
            arguments["data"] = given[0]
        return self._calls[request.operation](**arguments)


def checked(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, which takes what its signature says and refuses the rest."""
    checked: Callable[..., Any] = validate_call(step)
    return checked


def refusal(error: Exception) -> dict[str, Any]:
    """An error as an answer, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        error = PlanError(f"request: {where}: {first['msg']}"[:_ERROR_SIGNS])
    elif not isinstance(error, EbsError):
        error = SetupError(f"{type(error).__name__}: {error}"[:_ERROR_SIGNS])
    return {"error": {"kind": type(error).__name__, "text": str(error)}}


def _say(connection: socket.socket, text: str) -> None:
    with suppress(OSError):  # nobody listens any more, and what was asked goes on
        _send(connection, {"say": text})


def _send(connection: socket.socket, answer: Mapping[str, Any], file: BinaryIO | None = None) -> None:
    _send_with(connection, _JSON.dump_json(answer) + b"\n", [file.fileno()] if file else [])


def main(argv: Sequence[str]) -> int:
    """``LISTENER READY CHILD UID``: descriptors, the command's process and user; gives its exit code."""
    # Rally refuses to race while a python process has "esrally" in its command line.
    setproctitle.setproctitle("ebs-keeper")
    fileno, ready, child, uid = map(int, argv)
    os.umask(0o022)
    user = Caller.of(uid)
    for name in [name for name in os.environ if name.startswith("SUDO_") or name == "ESRALLY_EBS_HOME"]:
        del os.environ[name]  # from here on nothing is the caller's: neither mounts nor images
    os.environ["HOME"] = pwd.getpwuid(0).pw_dir

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            if os.getpgid(child) == child:
                os.killpg(child, number)
            elif number != signal.SIGINT or not at_terminal():  # the command has heard Ctrl-C as well
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
    until = time.monotonic() + _PATIENCE_S
    while not steps.is_over and time.monotonic() < until:  # race control, or the reaper, takes it down
        time.sleep(_POLL_S)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _on_signals(action: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, action)


_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_REQUEST = TypeAdapter(RootRequest)
_VOLUMES = TypeAdapter(tuple[Volume, ...])
_NODES = TypeAdapter(tuple[Node, ...])
_BROUGHT_BACK = TypeAdapter(BroughtBack)
_EVICTION = TypeAdapter(Eviction)
_CONTEXT = TypeAdapter(Context)
_LOG_PAGE = TypeAdapter(LogPage)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
