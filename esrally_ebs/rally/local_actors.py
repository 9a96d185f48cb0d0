"""Changes to Rally that must be made before it loads a track; all others follow when it does.

Rally's actors communicate through queues here, as Rally does without a network. By default they listen on
0.0.0.0, from port 1900 on, and run whatever is sent there: as root, in our races. Rally decides this early,
and has no setting for it. If sockets are wanted, they listen on the named address only. Also: actors whose
command was killed are ended, and so is a command whose race control was; an unknown track parameter and a
track's syntax error become one line. ``esrally_ebs.pth``, which Python reads at start-up, calls ``install``
in the commands ``esrally`` and ``esrallyd``.
"""

import importlib.abc
import importlib.util
import logging
import mmap
import multiprocessing
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import ModuleSpec
from ipaddress import IPv4Address, ip_address
from types import ModuleType
from typing import Any

import psutil

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import (
    Process,
    be_called,
    close_to_others,
    interrupt_again,
    is_root,
    kill_all,
    members_of,
    tell,
)
from esrally_ebs.machine.resources import actors_address, sockets_wanted
from esrally_ebs.rally import any_track

LEAVE_S = 5.0  # for actors after their command has ended
ANSWERS_S = 60.0  # for a command after its race control has ended; a session's reaper is quicker
_POLL_S = 0.1


class _NotedPid:
    """Shared memory with a pid, visible to all processes forked from here on."""

    def __init__(self) -> None:
        self._pid = mmap.mmap(-1, 4)

    def note(self, pid: int) -> None:
        """Set the pid; 0 for none."""
        self._pid[:] = pid.to_bytes(4)

    @property
    def pid(self) -> int:
        """The noted process, which may have ended."""
        return int.from_bytes(self._pid[:])


_BUSY, _CONTROL = _NotedPid(), _NotedPid()  # the process with a session to take down; race control


def install() -> None:
    """Change four modules of Rally once they are loaded; keep sockets if they are requested by name.

    Under sudo all of Rally runs as the calling user: it restarts, and a keeper does what needs root. In
    Rally's daemon only the listening address is changed. Python may run the line that calls this twice.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    close_to_others()
    changes = _changes_at(actors_address())
    if sys.argv[0].rpartition("/")[2] == "esrallyd":
        sys.meta_path.insert(0, _Finder(changes))
        return
    if os.environ.get("SUDO_UID"):
        from esrally_ebs.session.keeper import go_on_as_caller  # imported here: it loads slowly

        go_on_as_caller(sys.orig_argv[1:], needs_root="race" in sys.argv)
    sys.unraisablehook = interrupt_again
    logging.raiseExceptions = False  # with a full disk each line of Rally's log would give a traceback
    changes |= {"esrally.track.loader": any_track.join, "esrally.rally": refuse_in_one_line}
    if not sockets_wanted():
        changes |= {"esrally.actor": _use_queues, "esrally.racecontrol": _note_control}
    sys.meta_path.insert(0, _Finder(changes))


def require_closed() -> None:
    """Raise SetupError if race control, as root, listens beyond this machine against the user's wish."""
    wanted = actors_address()
    if not is_root() or (sockets_wanted() and wanted is None):
        return
    for socket in psutil.Process().connections("tcp"):
        at = socket.laddr
        if socket.status == psutil.CONN_LISTEN and at.ip != wanted and not ip_address(at.ip).is_loopback:
            raise SetupError(
                f"Rally's actors listen on {at.ip}:{at.port} and run as root whatever is sent there; "
                "install esrally_ebs again, for its esrally_ebs.pth, or end esrallyd"
            )


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, changes: dict[str, Callable[[ModuleType], None]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self._changes.pop(fullname, None)  # only once: the search below comes here again
        spec = importlib.util.find_spec(fullname) if change else None
        if change and spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, change)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, original: importlib.abc.Loader, change: Callable[[ModuleType], None]) -> None:
        self._original = original
        self._change = change

    def exec_module(self, module: ModuleType) -> None:
        self._original.exec_module(module)
        self._change(module)


def _use_queues(actor: ModuleType) -> None:
    from thespian.system.transport import MultiprocessQueueTransport as transport

    # Senders to a full queue would wait for up to 20 s and then lose the message: make it unbounded.
    transport.MAX_ADMIN_QUEUESIZE = transport.MAX_ACTOR_QUEUESIZE = 0
    # With spawn, if Rally's configuration wants it, a queue's descriptor is passed on twice, which Python
    # refuses.
    _fork_actors()
    if command := Process.of(os.getpid()):
        _end_actors_after(command)
    actor.use_offline_actor_system()


def stay() -> None:
    """Note that this process has a session to take down: until ``leave``, actors outlive their command."""
    _BUSY.note(os.getpid())


def leave() -> None:
    """Note that the session has been taken down."""
    _BUSY.note(0)


def _note_control(racecontrol: ModuleType) -> None:
    init = racecontrol.BenchmarkActor.__init__

    def noted(self: Any) -> None:
        init(self)
        _CONTROL.note(os.getpid())

    racecontrol.BenchmarkActor.__init__ = noted


def _end_actors_after(command: Process) -> None:
    """Have the actors' common parent start a process that ends actors after their command."""
    from thespian.system.multiprocCommon import MultiProcAdmin

    init = MultiProcAdmin.__init__

    def watched(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        _in_background(partial(_outlive, command, os.getsid(0)))

    MultiProcAdmin.__init__ = watched


def _in_background(work: Callable[[], None]) -> None:
    """Run in a separate process; nobody waits for its output or end."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nowhere, descriptor)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            work()
    finally:
        os._exit(0)


def _outlive(command: Process, actors: int) -> None:
    be_called("ebs-actors")
    with suppress(ProcessLookupError):
        _wait_for(command)
    while command.alive or (_BUSY.pid and Process.of(_BUSY.pid)):
        time.sleep(_POLL_S)
    until = time.monotonic() + LEAVE_S
    while (left := members_of(actors)) and time.monotonic() < until:
        time.sleep(_POLL_S)
    kill_all(left)


def _wait_for(command: Process) -> None:
    """Wait for the command; ends it if race control is killed before the session has its reaper."""
    ends = os.pidfd_open(command.pid)
    while not _CONTROL.pid:
        if select.select([ends], [], [], _POLL_S)[0]:
            return
    with suppress(ProcessLookupError):
        select.select([ends, os.pidfd_open(_CONTROL.pid)], [], [])
    if not select.select([ends], [], [], ANSWERS_S)[0]:
        tell(command, f"race control (process {_CONTROL.pid}) was killed; start the race again")
        command.signal(signal.SIGKILL)


def _fork_actors() -> None:
    from thespian.system import multiprocCommon

    multiprocCommon.get_multiproc_context = lambda capabilities: multiprocessing.get_context("fork")


def _changes_at(address: str | None) -> dict[str, Callable[[ModuleType], None]]:
    """Changes that make actors listen only on the address; empty if none is named.

    Ends this command for an invalid address: Python would continue, and actors would listen everywhere.
    """
    if address is None:
        return {}
    try:
        IPv4Address(address)
    except ValueError:
        what = f"ESRALLY_EBS_ACTORS=sockets:{address}: is no IPv4 address"
        sys.stderr.write(f"[ERROR] {what}; name one of this machine's, by which the others reach it\n")
        sys.stderr.flush()
        os._exit(SetupError.exit_code)  # an exit while Python reads a .pth file would be a fatal error
    return {
        "esrally.actor": partial(_join_at, address),
        "thespian.system.transport.IPBase": partial(_listen_at, address),
    }


def _join_at(address: str, actor: ModuleType) -> None:
    """Have Rally look for its daemon at the address, and fork its actors, which then listen there, too."""
    running = actor.actor_system_already_running

    def running_at(ip: str | None = None, *arguments: Any, **more: Any) -> Any:
        return running(ip or address, *arguments, **more)

    setattr(actor, running.__name__, running_at)
    _fork_actors()


def _listen_at(address: str, transport: ModuleType) -> None:
    """Make actors listen only on the address; Thespian listens on all, whatever address it announces."""
    os.environ.update(THESPIAN_BASE_IPADDR=address)  # the address that it announces
    init = transport.IPActorAddress.__init__

    def bound(self: Any, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        self.bindname = (address, self.sockname[1])

    transport.IPActorAddress.__init__ = bound


def refuse_in_one_line(_: object) -> None:
    """Make Rally report faulty track parameters and tracks in one line; its module is loaded."""
    from esrally_ebs.rally import patches  # imported here: it imports the module that was just loaded

    patches.install(patches.LOADING)
