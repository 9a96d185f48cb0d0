"""The user who called a command by sudo, and continuing as that user.

Root is needed for volumes and caches, not for reading tracks, logs and other people's sessions.
"""

import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from esrally_ebs.errors import CommandError, SetupError
from esrally_ebs.machine.processes import run

KEEPER = "ESRALLY_EBS_KEEPER"  # address of the root process that takes the steps this user may not
_QUICK_S = 15.0


@dataclass(frozen=True, slots=True)
class Caller:
    uid: int
    gid: int
    name: str
    home: str

    @classmethod
    def of(cls, uid: int) -> "Caller":
        """The user with that number. Raises SetupError if the machine has none."""
        try:
            entry = pwd.getpwuid(uid)
        except (KeyError, OverflowError) as error:
            raise SetupError(f"SUDO_UID={uid}: no user of this machine; call by sudo, or unset it") from error
        return cls(entry.pw_uid, entry.pw_gid, entry.pw_name, entry.pw_dir)

    def become(self) -> None:
        os.initgroups(self.name, self.gid)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.environ.update(HOME=self.home, USER=self.name, LOGNAME=self.name)

    def go_on(self, argv: list[str]) -> None:
        """Become this user and run a program in place of this one. SetupError if the user may not."""
        self.go_on_here(argv[0])
        os.execv(argv[0], argv)

    def go_on_here(self, program: str = sys.executable) -> None:
        """Become this user for good. Raises SetupError if the user may not use what runs here."""
        self.become()
        if not os.access(program, os.R_OK | os.X_OK):
            raise SetupError(
                f"{program}: user {self.name}, who called by sudo, may not use it; install the pack"
                " where all may read it, or be root alone: unset SUDO_UID"
            )

    def may_write(self, folder: Path) -> bool:
        """Whether this user may create files there; checked in a process of that user."""
        become = ["setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups", "--"]
        try:
            run([*become, "test", "-w", folder, "-a", "-x", folder], timeout_s=_QUICK_S)
        except CommandError:
            return False
        return True

    def do(self, work: Callable[[], object]) -> None:
        """Do ``work`` as this user in a separate process; ignores its errors."""
        child = os.fork()
        if child == 0:
            try:
                self.become()
                work()
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def caller() -> Caller | None:
    """Who called this root process by sudo; None if nobody did, or it is not root."""
    text = os.environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or not text.strip("0"):
        return None
    if not (text.isascii() and text.isdecimal()):
        raise SetupError(f"SUDO_UID={text}: is no number of a user; call by sudo, or unset it")
    return Caller.of(int(text))
