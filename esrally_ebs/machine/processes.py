"""The only access to processes, pids and the clock. Nothing else starts a process."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import setproctitle

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.model import names_secret

_TAIL_LINES = 3
_NICENESS = 10
FIRST_NAMESPACE = "4026531836"  # Linux's PROC_PID_INIT_INO: from there the processes of all others are seen
_OFTEN_LEFT_OUT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as a parameter, so that waiting code can be tested without waiting."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    epoch: Callable[[], float] = time.time

    def wait_until(self, done: Callable[[], object], *, limit_s: float, poll_s: float = 0.1) -> bool:
        """Call ``done`` until it is true, with pauses; returns False if it is not within ``limit_s``."""
        until = self.monotonic() + limit_s
        while not done():
            if self.monotonic() >= until:
                return False
            self.sleep(poll_s)
        return True


SYSTEM_CLOCK = Clock()
_CLOCK_QUESTIONS = 8


class ClockAgainst(NamedTuple):
    """This machine's clock compared with another's, in seconds."""

    uncertainty_s: float
    epoch_s: float  # when ``time.perf_counter()`` was 0, by the other's clock
    ahead_s: float  # how far this machine's is ahead


def compare_clocks(ask: Callable[[], float]) -> ClockAgainst:
    """Compare by the quickest of some round trips: ``ask``'s time is from its middle, give or take half."""
    trips = []
    for _ in range(_CLOCK_QUESTIONS):
        sent_s, wall_s = time.perf_counter(), time.time()
        at_s = ask()
        half_s = (time.perf_counter() - sent_s) / 2
        trips.append(ClockAgainst(half_s, at_s - sent_s - half_s, wall_s + half_s - at_s))
    return min(trips)


def tool_environment() -> dict[str, str]:
    """Environment for tools or daemons that we start: ours without passwords, keys and tokens.

    A daemon lives as long as its volume, and its environment can be read all that time.
    """
    own = {name: value for name, value in os.environ.items() if not names_secret(name)}
    return {**own, "PATH": _tool_path()}


def which(tool: str) -> str | None:
    """Path of a tool as ``run`` would find it; None if missing."""
    return shutil.which(tool, path=_tool_path())


def _tool_path() -> str:
    """PATH plus directories that cron and ``su`` leave out: of root's tools, and where Docker's may be."""
    path = os.environ.get("PATH", os.defpath)
    return f"{path}:{_OFTEN_LEFT_OUT}" if path else path


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a command to its end; returns its stdout.

    Raises SetupError if the program is missing; CommandError, with the command, its exit code and last lines,
    if it fails or outlives ``timeout_s`` (then it is killed). Ctrl-C does not reach it: by sudo, its step
    would fail before the session learns that it is cancelled.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env={**tool_environment(), **(env or {})},
            cwd=cwd,
            input="",  # in its own group it must not read from the terminal
            process_group=0,
            check=False,
        )
    except FileNotFoundError as error:
        missing = error.filename if error.filename != str(cwd) else f"{words[0]} (in {cwd})"
        raise SetupError(
            f"{missing}: not found; run 'esrally-ebs doctor' to see how to install it"
        ) from error
    except OSError as error:
        raise SetupError(
            f"{words[0]}: {error.strerror}; run 'esrally-ebs doctor' to see what is wrong with it"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(
            f"{' '.join(words)}: still running after {timeout_s:.0f} s and was ended"
        ) from error
    if done.returncode != 0:
        raise CommandError(
            f"{' '.join(words)}: exit code {done.returncode}: {last_lines(done.stderr or done.stdout)}"
        )
    return done.stdout


def run_in_terminal(argv: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a command on this process's terminal; returns its exit code. Ctrl-C reaches the command.

    ``env`` is added to this process's variables.
    """
    try:
        process = subprocess.Popen(list(argv), env={**os.environ, **(env or {})})
    except OSError as error:
        raise SetupError(
            f"{argv[0]}: {error.strerror}; install it in the environment of this command"
        ) from error
    while True:
        try:
            return as_shells_say(process.wait())
        except KeyboardInterrupt:
            continue  # the command got the same signal and is taking things down


def as_shells_say(code: int) -> int:
    """The exit code; 128 plus the signal's number if a signal ended the process."""
    return code if code >= 0 else 128 - code


def last_lines(text: str) -> str:
    """The last lines of a tool's output, as one line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:]) or "no output"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, identified even if its pid is reused."""

    pid: int
    start_ticks: int  # field 22 of /proc/<pid>/stat

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has ``pid`` now; None if there is none (zombies do not count)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")  # names may contain any bytes
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat[stat.rindex(")") + 2 :].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def alive_in(self, namespace: str) -> bool | None:
        """For numbers of another PID namespace, as of a container; None if it is not seen from here."""
        if self.here(namespace):
            return True
        return False if namespace == "" or pid_namespace() in (namespace, FIRST_NAMESPACE) else None

    def here(self, namespace: str) -> "Process | None":
        """This process of another PID namespace by its number here; None if it is gone, or not seen."""
        if namespace in ("", pid_namespace()):
            return self if self.alive else None
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
            with suppress(PermissionError):  # of another user, with hidepid=1
                seen = Process.of(pid)
                if seen and seen.start_ticks == self.start_ticks and _innermost_pid(pid) == self.pid:
                    return seen
        return None

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)  # stays this process's, even if its pid is reused
            try:
                if self.alive:
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)


def pid_namespace() -> str:
    """Identifies this process's PID namespace; "" if unknown."""
    try:
        return Path("/proc/self/ns/pid").readlink().name.removeprefix("pid:[").removesuffix("]")
    except OSError:
        return ""


def _innermost_pid(pid: int) -> int | None:
    """The pid that a process has for itself; None if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return None


def members_of(kernel_session: int) -> list[Process]:
    """All processes of a kernel session (setsid)."""
    members = []
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == kernel_session and (process := Process.of(pid)):
                members.append(process)
    return members


def kill_all(processes: Iterable[Process]) -> None:
    """Kill -9 those that belong to this user."""
    for process in processes:
        with suppress(PermissionError):
            process.signal(signal.SIGKILL)


def tell(process: Process, text: str) -> None:
    """Write an error to another process's stderr if it accepts it, such as Rally's waiting command."""
    # without blocking on a pager that nobody scrolls, or a terminal stopped by Ctrl-S
    how = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with suppress(OSError), os.fdopen(os.open(f"/proc/{process.pid}/fd/2", how), "wb", 0) as stderr:
        if process.alive:  # so the descriptor is its own, not that of a later process with its pid
            stderr.write(f"[ERROR] Cannot race. {text}\n".encode(errors="replace"))


def interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Hook for exceptions that Python drops (in callbacks, destructors): do not lose a Ctrl-C."""
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
        return
    # later, from another thread: here it would be dropped again
    threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()


def end_as_by_interrupt() -> None:
    """Make SIGTERM and SIGHUP end this process like Ctrl-C, so that it removes unfinished work.

    Only the first one does; later ones do not interrupt that, as a closing terminal sends two. An ignored
    signal, such as SIGHUP under ``nohup``, stays ignored.
    """
    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]

    def interrupt(*_: object) -> None:
        for number in numbers:
            signal.signal(number, lambda *_: None)  # tools that are run meanwhile end by it as ever
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, interrupt)


def argv_of(pid: int) -> list[str]:
    """A process's command line or title; empty if it is gone or may not be read."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return []
    return text.split("\0")[:-1]


def threads_of(pid: int) -> list[int]:
    """Thread ids of a process; empty if it is gone."""
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def shares_mounts(pid: int) -> bool:
    """Whether a process sees our mounts; in another container a path is another file."""
    try:
        theirs, ours = (Path(f"/proc/{each}/ns/mnt").stat() for each in (pid, "self"))
    except OSError:
        return False
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)


def at_terminal() -> bool:
    """Whether a terminal's keys reach this process, and thus its whole group."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:  # no terminal
        return False


def be_called(title: str) -> None:
    """Replace this process's command line in listings by a title of any bytes.

    Rally refuses to race while a python process's command line contains "esrally".
    """
    setproctitle.setproctitle(title.encode(errors="replace").decode())


def close_to_others() -> None:
    """Make new files writable for this user only, even if the umask is 0, as in some CI jobs."""
    os.umask(os.umask(0o077) | 0o002)


def give_way() -> None:
    """Give this thread a low priority: processors belong to requests and nodes first."""
    thread = threading.get_native_id()
    # a process started with an even lower priority cannot raise it, except as root
    os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))


def booted_at_s() -> float:
    """When this machine booted, in epoch seconds by the current clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def is_root() -> bool:
    """Whether this process may mount, attach loop devices and evict others' pages."""
    return os.geteuid() == 0
