"""A process that dies, as by kill -9, right before a chosen one of the changes that it makes to the world.

The interpreter's own audit events tell of each file that is about to be written, made, renamed or removed, of
each program that is about to be started and of each request that is about to be sent, whoever asks for it; so
no change of the code under test needs to be known here. What only looks is no moment: to die before a look is
the same as to die after the change before it.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_CHANGING = (  # programs; losetup --list only looks
    *("mkfs.xfs", "mount", "umount", "losetup", "mdadm", "blkdiscard"),
    *("pvcreate", "vgcreate", "lvcreate", "vgremove", "pvremove"),
)
_HALF_A_LINE = b'{"key": "create/0", "sta'
_watched: list["Doomed"] = []


class Doomed:
    """A process under observation in a ``with``; ``at`` is the number of the moment that it does not survive.

    ``die`` ends it, or raises what nothing catches: then whatever else runs on in its name changes nothing
    more. ``torn``: where it dies before it writes a file, the file is there, cut.
    """

    def __init__(
        self, root: Path, die: Callable[[], object], *, at: int | None = None, torn: bool = False
    ) -> None:
        self.moments: list[str] = []
        self._root, self._die, self._at, self._torn = str(root), die, at, torn
        self._dead = False

    def __enter__(self) -> "Doomed":
        _watched.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watched.remove(self)

    def before(self, change: str, tear: Callable[[], object] | None = None) -> None:
        """One moment."""
        self.lives()
        if len(self.moments) == self._at:
            self._dead = True
            if self._torn and tear is not None:
                with self.unseen():
                    tear()
            self._die()
        self.moments.append(change)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What is done in the ``with`` is not the process's doing."""
        _watched.remove(self)
        try:
            yield
        finally:
            _watched.append(self)

    def lives(self) -> None:
        """Nothing of a dead process even looks."""
        if self._dead:
            self._die()

    def hears(self, event: str, args: tuple[Any, ...]) -> None:
        """One audit event."""
        if event == "open" and isinstance(args[0], str):
            self._opens(*args)
        elif event in ("os.mkdir", "os.rmdir", "os.remove", "os.rename"):
            path = _whole(args[0], args[-1] if event != "os.rename" else args[-2])
            if self._is_ours(path):
                self.before(f"{event} {Path(path).name}")
        elif event == "subprocess.Popen":
            words = [str(word) for word in args[1]]
            if Path(words[0]).name in _CHANGING and "--list" not in words:
                self.before(" ".join(words[:2]))
        elif event == "http.client.send" and _changes_aws(bytes(args[1])):
            self.before("request")

    def _opens(self, path: str, mode: str | None, flags: int) -> None:
        writes = set("wax+") & set(mode) if mode is not None else flags & (os.O_WRONLY | os.O_RDWR)
        if writes and self._is_ours(path):
            self.before(f"open {Path(path).name} {mode}", lambda: _tear(path, mode or "w"))

    def _is_ours(self, path: str) -> bool:
        return path.startswith(f"{self._root}/") or path == self._root


def killed_at(number: int, change: Callable[[], object], root: Path = Path("/nowhere")) -> bool:
    """Whether a process of its own was killed (SIGKILL) before the moment of that number; see ``Doomed``."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with Doomed(root, lambda: os.kill(os.getpid(), signal.SIGKILL), at=number):
                change()
            code = 0
        except Exception:  # noqa: BLE001 - it is not told otherwise
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def _tear(path: str, mode: str) -> None:
    with suppress(OSError), Path(path).open("ab" if "a" in mode else "wb") as file:
        file.write(_HALF_A_LINE if "a" in mode else b"")


def _whole(path: Any, folder: int) -> str:  # noqa: ANN401 - whatever names a file
    """A path that may be relative to an open folder."""
    named = os.fsdecode(path)
    if folder < 0 or Path(named).is_absolute():
        return str(Path(named).absolute())
    return str(Path(f"/proc/self/fd/{folder}").readlink() / named)


def _changes_aws(sent: bytes) -> bool:
    return b"Action=" in sent and b"Action=Describe" not in sent


def _hook(event: str, args: tuple[Any, ...]) -> None:
    for doomed in tuple(_watched):
        doomed.hears(event, args)


sys.addaudithook(_hook)  # for good: an interpreter has no way to take one back
