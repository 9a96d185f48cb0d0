"""One real ``esrally race`` that a test breaks: starts it, says how far it is, lists what is left."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from esrally.utils.process import find_all_other_rally_processes
from quick_node import NODE_TABLE

ROOT = Path(__file__).parents[2]
ESRALLY = Path(sys.executable).with_name("esrally")
RUN = Path("/run/esrally-ebs")

# A race takes a fraction of each; beside other work it may take several times as long.
STARTS_S = 180.0  # until other Rally processes have gone
REACHES_S = 240.0
ENDS_S = 180.0
GONE_S = 30.0
_POLL_S = 0.05


class Race:
    """A race in a process group of its own, as a shell would start it, without a terminal."""

    def __init__(
        self,
        home: Path,
        plan: str,
        *words: str,
        env: Mapping[str, str] | None = None,
        as_user: int = 0,
        params: str = "",
    ) -> None:
        self.id = str(uuid.uuid4())
        self.home = home
        self.run = Path((env or {}).get("ESRALLY_EBS_RUN", RUN)) / self.id
        self._output = home / f"{self.id}.out"
        plan_file = home / f"{self.id}.toml"
        plan_file.write_text(plan)
        plan_file.chmod(0o644)
        command = [
            str(ESRALLY),
            "race",
            f"--track-path={ROOT / 'tracks' / 'noaa-ebs'}",
            f"--track-params=plan:{plan_file},{params}".rstrip(","),
            "--include-tasks=range_field_big_range",
            f"--race-id={self.id}",
            *words,
        ]
        if as_user:
            command = ["setpriv", f"--reuid={as_user}", f"--regid={as_user}", "--clear-groups", *command]
        self._sessions: set[int] = set()
        self._env = {**os.environ, "ESRALLY_EBS_HOME": str(home), **(env or {})}
        self._start(command)

    def _start(self, command: Sequence[str]) -> None:
        if not self._env.get("ESRALLY_EBS_ACTORS"):  # else Rally's daemons run
            await_no_rally()
        with self._output.open("w") as output:
            self.main = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=self._env,
            )

    @property
    def folder(self) -> Path:
        return self.home / "sessions" / self.id

    @property
    def events(self) -> str:
        """Its events so far, a line each; empty before it has any."""
        path = self.folder / "events.jsonl"
        return path.read_text() if path.exists() else ""

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def error(self) -> str:
        """What follows Rally's mark of an error up to the next empty line: it must be a single line."""
        error = re.search(
            r"^\[ERROR\] Cannot race\. (.*?)\n\s*\n", self.output + "\n\n", re.DOTALL | re.MULTILINE
        )
        return error[1] if error else ""

    @property
    def cancelled(self) -> str:
        """What Rally says when the user has cancelled."""
        line = re.search(r"^\[INFO\] (Aborted race\. .*)$", self.output, re.MULTILINE)
        return line[1] if line else ""

    def reach(self, stage: Callable[["Race"], bool]) -> None:
        """Wait until the race is where the fault shall strike."""
        until = time.monotonic() + REACHES_S
        while not stage(self):
            self._note_actors()
            assert not self._has_ended(), f"ended before the fault could strike: {self.output[-2000:]}"
            assert time.monotonic() < until, (
                f"never came to where the fault shall strike: {self.output[-2000:]}"
            )
            time.sleep(_POLL_S)

    def exit_code(self) -> int:
        """Of the command, which must end by itself."""
        until = time.monotonic() + ENDS_S
        while not self._has_ended():
            self._note_actors()
            assert time.monotonic() < until, f"does not end: {self.output[-2000:]}"
            time.sleep(_POLL_S)
        return self.main.returncode

    def _has_ended(self) -> bool:
        """Starts it again, too, where Rally took a process of a test beside this one for another Rally."""
        if self.main.poll() is None:
            return False
        if "There are other Rally processes" not in self.output:
            return True
        self._start(self.main.args)
        return False

    def _note_actors(self) -> None:
        """Rally's actors leave its process tree; the leader of their session stays its child, as a zombie."""
        with suppress(psutil.Error):
            self._sessions |= {child.pid for child in psutil.Process(self.main.pid).children()}

    def actors(self, kind: str = "") -> list[psutil.Process]:
        """Rally's actors, and what they started and did not set apart."""
        actors = []
        for process, title in processes():
            with suppress(ProcessLookupError):
                if os.getsid(process.pid) in self._sessions and title.startswith(kind):
                    actors.append(process)
        return actors

    def daemons(self) -> list[psutil.Process]:
        """The daemons of its emulated volumes."""
        return [
            process
            for process, title in processes()
            if title.startswith("ebs-volume") and self._is_at(process)
        ]

    def containers(self) -> list[str]:
        return docker("ps", "-aq", "--no-trunc", "--filter", f"label=esrally-ebs.session={self.id}").split()

    def remains(self) -> list[str]:
        """Everything of this race that is still on the machine."""
        remains = [f"container {name}" for name in self.containers()]
        networks = docker("network", "ls", "-q", "--filter", f"label=esrally-ebs.session={self.id}").split()
        remains += [f"network {name}" for name in networks]
        remains += [line for line in Path("/proc/mounts").read_text().splitlines() if self.id in line]
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                remains += [str(backing)] if self.id in backing.read_text() else []
        for root in (Path("/dev/shm"), self.home / "backing"):  # the machine's tmpfs
            remains += [str(path) for path in root.rglob("*.img") if self.id in str(path)]
        remains += [str(path) for path in [self.run] if path.exists()]
        remains += [f"process {process.pid}: {title[:80]}" for process, title in self._own_processes()]
        return remains

    def listeners(self) -> dict[str, list[tuple[str, int]]]:
        """Where each of its processes listens, by their titles: its command, actors, daemons and reaper."""
        own = [psutil.Process(self.main.pid), *(process for process, _ in self._own_processes())]
        of: dict[str, list[tuple[str, int]]] = {}
        for process in own:
            with suppress(psutil.NoSuchProcess):
                title = (process.cmdline() or [""])[0].partition(" ")[0]
                sockets = process.connections("tcp")
                of.setdefault(title, []).extend(
                    each.laddr for each in sockets if each.status == psutil.CONN_LISTEN
                )
        return of

    def _own_processes(self) -> list[tuple[psutil.Process, str]]:
        actors = {process.pid for process in self.actors()}
        return [
            (process, title)
            for process, title in processes()
            if process.pid in actors or self.id in title or self.id[:8] in title or self._is_at(process)
        ]

    def _is_at(self, process: psutil.Process) -> bool:
        with suppress(OSError):
            return self.id in str(Path(f"/proc/{process.pid}/cwd").readlink())
        return False

    def gone(self, since: float) -> float:
        """Seconds after ``since`` (monotonic) at which nothing was left."""
        while left := self.remains():
            assert time.monotonic() < since + GONE_S, f"still there after {GONE_S:.0f} s: {left}"
            time.sleep(_POLL_S)
        return time.monotonic() - since

    def destroy(self) -> None:
        """End what a failed test leaves: first as a user would, then by pid; only what is this race's."""
        if self.main.poll() is None:
            os.killpg(self.main.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.main.wait(ENDS_S)
        for process, title in self._own_processes():
            if not title.startswith("ebs-reaper"):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


@contextmanager
def race(
    home: Path,
    plan: str,
    *words: str,
    env: Mapping[str, str] | None = None,
    as_user: int = 0,
    params: str = "",
) -> Iterator[Race]:
    """A race that is gone after the block, whatever happened in it."""
    running = Race(home, plan, *words, env=env, as_user=as_user, params=params)
    try:
        yield running
    finally:
        running.destroy()


def processes(among: Iterable[psutil.Process] | None = None) -> list[tuple[psutil.Process, str]]:
    """All live processes, or those among some, with their command lines."""
    live = []
    for process in psutil.process_iter() if among is None else among:
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                live.append((process, " ".join(process.cmdline())))
    return live


def await_no_rally() -> None:
    """Rally refuses to race beside another, and takes any Python with "esrally" in its arguments for one."""
    until = time.monotonic() + STARTS_S
    while find_all_other_rally_processes() or any("ActorAddr-" in title for _, title in processes()):
        assert time.monotonic() < until, "another Rally runs on this machine"
        time.sleep(_POLL_S)


def docker(*words: str) -> str:
    done: subprocess.CompletedProcess[str] = subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def plan(*parts: str, arms: Sequence[str] = ("gp3",), documents: int = 2000, iterations: int = 1) -> str:
    """The smallest plan that has what a fault needs; an arm is a volume type."""
    text = 'name = "faults"\naccept = ["lateness"]\n' + NODE_TABLE
    for number, kind in enumerate(arms):
        text += f'[[arm]]\nname = "arm{number}"\ntype = "{kind}"\nsize = "1GiB"\n'
    text += f"[dataset]\ndocuments = {documents}\n[race]\niterations = {iterations}\nwarmup_iterations = 1\n"
    return text + '[design]\nnodes = "per-arm"\nrounds = 1\norder = "fixed"\n' + "".join(parts)


def fio_job(name: str, *, runtime: str, size: str = "4m") -> str:
    """A baseline that lasts ``runtime``."""
    return (
        f'[[baseline]]\nname = "{name}"\nrw = "randread"\nbs = "4k"\nsize = "{size}"\nruntime = "{runtime}"\n'
    )
