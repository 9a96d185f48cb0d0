"""One data host, seen from the coordinator: its helper (``host.py``) and its nodes' ports, over SSH."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, cast

from pydantic import TypeAdapter

import esrally_ebs
from esrally_ebs.errors import EbsError, FormatError, SetupError
from esrally_ebs.machine.processes import last_lines, tool_environment
from esrally_ebs.model import MAX_SESSION_NAME, State
from esrally_ebs.node import api, lasting_port
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session.asking import Arguments, Asking, Gives, Say, request_line, result_of
from esrally_ebs.session.host import BEAT_S, END, MAX_REQUEST_BYTES, PATIENCE_S, HostSteps, engine_of
from esrally_ebs.store import list_sessions
from esrally_ebs.store.reading import read_record

# Environment variables, not keys of a plan: a plan from somebody else must not decide what is run.
SSH = "ESRALLY_EBS_SSH"  # the ssh command, if not just "ssh"
PYTHON = "ESRALLY_EBS_HOST_PYTHON"  # command that starts Python on a host, if not at this one's path
_OPTIONS = {  # never ask questions; notice a lost network within 20 s
    "BatchMode": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RemoteCommand": "none",
    "ControlMaster": "no",  # a shared connection would use its own ConnectTimeout and ServerAlive...
    "ControlPath": "none",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "4",
}
_MAX_ANSWER_BYTES = 1 << 26  # of an answer
_MAX_TEXT_BYTES = 1 << 16  # for a greeting, or ssh's last messages
_GREETS_S = 60.0  # from login to the helper's or forward's first line
_DAY_S = 86_400.0
_LEAVES_S = 45.0  # to take down everything it has
_NO_ANSWER = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # other JSON raises these
_POLL_S = 0.1
_WAITS = f"import os, select\nwhile select.select([0], [], [], {PATIENCE_S})[0] and os.read(0, 99): pass"
_WITH_IPV6 = re.compile(r"ssh://(.*@)?\[(.+)\](?::(\d+))?")


def _ssh(host: HostPlan, command: str, errors: IO[bytes], *options: str) -> subprocess.Popen[bytes]:
    """Run a command on a host; it ends when its input does."""
    try:
        words = shlex.split(os.environ.get(SSH) or "ssh")
    except ValueError as error:
        raise SetupError(f"{SSH}: {error}; set it to a command") from error
    fixed = [f"-o{name}={value}" for name, value in _OPTIONS.items()]
    try:
        return subprocess.Popen(
            [*words, "-T", *fixed, *(options or ["-oClearAllForwardings=yes"]), *_to(host.ssh), command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C must not end ssh: the helper, told so, reports what stays
            env=tool_environment(),
        )
    except OSError as error:
        raise SetupError(f"host {host.name}: {words[0]}: {error.strerror}; install OpenSSH") from error


def _python(words: str) -> str:
    return f"exec {os.environ.get(PYTHON) or shlex.quote(sys.executable)} -P {words}"


def _to(destination: str) -> list[str]:
    """ssh's words for a destination: in a URI, ssh takes no IPv6 address in brackets."""
    match = _WITH_IPV6.fullmatch(destination)
    if match is None:
        return ["--", destination]
    user, address, port = match.groups(default="")
    return [*([f"-p{port}"] if port else []), "--", user + address.replace("%25", "%")]


class HostClient(Asking):
    """Asks the helper on one host; thread-safe."""

    def __init__(self, host: HostPlan, arms: Sequence[str] = (), *, greets_s: float = _GREETS_S) -> None:
        """Start the helper; ``arms`` are on that host.

        Raises SetupError if it does not start within ``greets_s``, or has another version.
        """
        super().__init__(HostSteps)
        self.steps = cast(HostSteps, self)
        self.leaves_s = _LEAVES_S  # longest to take down what is there
        self._host = host
        self._arms = arms
        self._left: list[str] | None = None  # what the helper said stays, once it ended
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._writing = threading.Lock()
        self._gone = threading.Event()
        self._numbers = count()
        self._asking: dict[str, SimpleQueue[dict[str, Any] | None]] = {}  # for answers, by request number
        self._is_over = False
        self._is_strange = False  # something that is no answer arrived
        self._pid = 0  # the helper's, on its host
        self._unheard = 0  # heartbeats sent since it last said anything
        self.on_loss: Callable[[], object] = lambda: None  # called when it is lost before ``close``
        self._process = _ssh(host, _python("-m esrally_ebs.session.host"), self._errors)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            self._greet(greets_s)
        except BaseException:
            self._process.kill()  # nothing was begun there; a login might wait for ever, even at Ctrl-C
            self.close()
            raise
        self._reader.start()

    def _ask(self, step: str, arguments: Arguments, say: Say, gives: Gives) -> Any:  # noqa: ANN401
        """Raises the step's errors, prefixed with the host's name."""
        number, answers = str(next(self._numbers)), SimpleQueue[dict[str, Any] | None]()
        request = number.encode() + b" " + request_line(step, arguments)
        with self._writing:
            self._asking[number] = answers
            if self._is_over or self._is_strange:
                answers.put(None)
        try:
            with suppress(OSError, ValueError):  # its last messages tell why
                self._write(request)
            while (answer := answers.get()) is not None:
                if "say" not in answer:
                    return gives(result_of(answer))
                say(f"host {self._host.name}: {answer['say']}")
        except EbsError as error:
            raise type(error)(f"host {self._host.name}: {error}") from error
        except _NO_ANSWER as error:
            raise self._no_answer(step) from error
        finally:
            self._asking.pop(number)
        if self._is_strange:
            raise self._no_answer(step)
        if self._left is None:
            raise self._lost()
        raise SetupError(
            f"host {self._host.name}: its helper ended before {step!r} was done: nothing came for "
            f"{PATIENCE_S:.0f} s, or a request of more than {MAX_REQUEST_BYTES >> 10} KiB; run it again"
        )

    def close(self) -> list[str]:
        """Have the helper take down what it began; a line per thing that stays, or if it did not say."""
        if self._gone.is_set():
            return []
        self._gone.set()
        with self._killed_after(self.leaves_s):
            with suppress(OSError, ValueError), self._writing:
                self._requests.write(b"\n" + END + b"\n")
                self._requests.close()
            if self._reader.ident is None:
                self._reader.start()
            self._reader.join()
            self._process.wait()
        left = [f"host {self._host.name}: {line}" for line in self._left or ()]
        if self._left is None:
            then = "then it" if self._is_silent else "its helper"
            within = "a minute" if self.leaves_s == _LEAVES_S else f"{self.leaves_s / 60:.0f} minutes"
            left = [f"{self._lost()}; {then} takes down by itself within {within}"]
        self._answers.close()
        self._errors.close()
        return left

    def _greet(self, greets_s: float) -> None:
        """Find the helper's first line after output of shells and banners, and compare versions."""
        began, printed = time.monotonic(), b""
        with self._killed_after(greets_s):
            while line := self._answers.readline(_MAX_TEXT_BYTES):
                printed = (printed + line)[-_MAX_TEXT_BYTES:]
                with suppress(*_NO_ANSWER):
                    greeting = json.loads(line)
                    version = greeting["esrally_ebs"]
                    if version == esrally_ebs.__version__:
                        self._pid = int(greeting.get("pid", 0))
                        return
                    raise SetupError(
                        f"host {self._host.name}: has esrally_ebs {version}, the coordinator "
                        f"{esrally_ebs.__version__}; install that one there"
                    )
        is_late = time.monotonic() - began >= greets_s
        said = last_said(self._process, self._errors, printed)
        if is_late:
            raise SetupError(
                f"host {self._host.name}: no helper by ssh {self._host.ssh} within {greets_s:.0f} s ({said});"
                " see that a login there waits for nothing"
            )
        raise SetupError(
            f"host {self._host.name}: no helper by ssh {self._host.ssh}: {said}; see that ssh gets in"
            f" unasked, and that esrally_ebs {esrally_ebs.__version__} is there ({PYTHON})"
        )

    def _read(self) -> None:
        """Pass each answer to its waiting thread, until the output ends."""
        while line := self._answers.readline(_MAX_ANSWER_BYTES):
            self._unheard = 0
            try:
                answer = json.loads(line)
                if "left" in answer:
                    self._left = _LEFT.validate_python(answer["left"])
                elif "lives" not in answer:
                    self._asking[answer["id"]].put(answer)
            except _NO_ANSWER:
                with self._writing:
                    self._is_strange = self._left is None
                    self._wake()
        with self._writing:
            self._is_over = True
            self._wake()
        if not self._gone.is_set():
            self.on_loss()

    def _wake(self) -> None:
        for answers in tuple(self._asking.values()):
            answers.put(None)

    def _no_answer(self, operation: str) -> SetupError:
        return SetupError(
            f"host {self._host.name}: what it answers to {operation!r} is no such answer; install "
            "esrally_ebs there anew"
        )

    def _lost(self) -> SetupError:
        arms = f" with arm {', '.join(self._arms)}" if self._arms else ""
        if self._is_silent:
            return SetupError(
                f"host {self._host.name}: its helper says nothing any more{arms}: process {self._pid} there "
                "is stopped, or gets no processor; let it go on, or kill it"
            )
        return SetupError(
            f"host {self._host.name}: SSH was lost{arms} ({last_said(self._process, self._errors)})"
        )

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """Kill ssh if the block takes longer."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @property
    def _is_silent(self) -> bool:
        return self._unheard * BEAT_S > PATIENCE_S

    def _beat(self) -> None:
        """Send heartbeats: the helper ends when nothing comes. End ssh when the helper falls silent.

        Silence is counted in beats, so a pause of this process does not look like a silent helper.
        """
        while not self._gone.wait(BEAT_S):
            if self._reader.ident is not None:
                self._unheard += 1
            if self._is_silent:
                self._process.kill()
                return
            if self._writing.acquire(blocking=False):  # else a request is being sent, which serves as a beat
                try:
                    with suppress(OSError, ValueError):  # the next request reports it
                        self._requests.write(b"\n")
                        self._requests.flush()
                finally:
                    self._writing.release()

    def _write(self, line: bytes) -> None:
        with self._writing:
            self._requests.write(line)
            self._requests.flush()


class Forward:
    """Forwards ports of 127.0.0.1 (and ``also_at``) over SSH to ports of a host's nodes, until closed.

    The command on the host ends when its input does (this process died) or when nothing has come for a while
    (no network): otherwise the SSH server there would keep it for hours.
    """

    def __init__(
        self, host: HostPlan, arm: str, ports: Sequence[int], also_at: str = "", *, nodes: int = 0
    ) -> None:
        """Open it. Raises SetupError if the first node does not answer through it.

        ``nodes``: size of the cluster, of which some nodes are on other hosts.
        """
        self.ports = tuple(lasting_port(also_at) for _ in ports)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        ways = [
            f"-L{at}:{own}:127.0.0.1:{port}"
            for own, port in zip(self.ports, ports, strict=True)
            for at in ("127.0.0.1", also_at)
            if at
        ]
        command = _python(f"-c {shlex.quote(_WAITS)}")
        self._process = _ssh(host, command, self._errors, "-oExitOnForwardFailure=yes", *ways)
        threading.Thread(target=self._beat, daemon=True).start()
        until = time.monotonic() + _GREETS_S
        while not api.is_ready(self.ports[0], nodes=nodes or len(ports)):
            if self._process.poll() is not None or time.monotonic() > until:
                why = last_said(self._process, self._errors)
                self.close()
                raise SetupError(
                    f"host {host.name}: arm {arm}: its node is not reached over SSH ({why}); see that its "
                    "SSH server lets ports be forwarded, and that no LocalForward or RemoteForward for "
                    f"{host.ssh} is in ssh's configuration"
                )
            time.sleep(_POLL_S)

    @property
    def is_lost(self) -> bool:
        return self._process.poll() is not None

    def _beat(self) -> None:
        with suppress(OSError, ValueError):  # already closed
            while not self.is_lost:
                assert self._process.stdin is not None
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()
                time.sleep(BEAT_S)

    def cut(self) -> None:
        """Break the connections, so that requests waiting for an answer fail."""
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def last_said(process: subprocess.Popen[bytes], errors: IO[bytes], printed: bytes = b"") -> str:
    """The last words of ssh or its command, after what a login ``printed``, where some put refusals."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(BEAT_S)
    file = errors.fileno()  # shares its offset with ssh, which may still write
    last = os.pread(file, _MAX_TEXT_BYTES, max(0, os.fstat(file).st_size - _MAX_TEXT_BYTES))
    said = [last_lines(text.decode(errors="replace")) for text in (printed, last) if text.strip()]
    return " | ".join(said) or "no output"


_LEFT: TypeAdapter[list[str] | None] = TypeAdapter(list[str] | None)


def session_on(host: str, session: str) -> str:
    """The session's name on a host: different on each, since two hosts may be the same machine."""
    return f"{session[: MAX_SESSION_NAME - 1 - len(host)]}-{host}"


def leftovers(home: Path) -> Iterator[tuple[str, bool]]:
    """A line and True for each session that ended within a day and of which a data host still has something.

    A line with False says why a host could not be asked.
    """
    asked: dict[HostPlan, list[str]] = {}
    for session in list_sessions(home):
        ended_at = session.ended_at or session.started_at or 0.0
        if session.state is State.RUNNING or ended_at < time.time() - _DAY_S:
            continue
        with suppress(FormatError):
            record = read_record(session.path)
            for host in record.plan.host:
                # a complete session lists what stays there among its warnings
                has_warned = any(text.startswith(f"host {host.name}: ") for text in record.warnings)
                if has_warned or session.state is not State.COMPLETE:
                    asked.setdefault(host, []).append(session_on(host.name, session.id))
    with ThreadPoolExecutor(len(asked) or 1) as pool:  # in parallel: a lost host takes seconds to fail
        for of_host in pool.map(_left_on, asked, asked.values()):
            yield from of_host


def _left_on(host: HostPlan, sessions: Sequence[str]) -> list[tuple[str, bool]]:
    engine = "".join(f"{name}={shlex.quote(value)} " for name, value in engine_of(host.docker).items())
    remedy = f"run '{engine}esrally-ebs clean' there"
    try:
        client = HostClient(host)
        try:
            there, silence = client.steps.held(tuple(sessions), host.docker)
        finally:
            client.close()
    except EbsError as error:
        return [(f"{error}; {remedy}", False)]
    lines = [(f"host {host.name}: still holds session {session}; {remedy}", True) for session in there]
    if silence:
        said = f"host {host.name}: engine {host.docker} cannot be asked what it holds: {silence}"
        lines.append((f"{said}; once it answers {remedy}", False))
    return lines
