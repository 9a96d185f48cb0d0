"""A day in the life: session after session, most struck by a fault at a random moment, for two hours.

    soak.py [--hours 2] [--seed 1] [--lock FILE] [--results FILE]      as root, with the packages of the tests

Sessions of fio alone, races and volumes attached by hand, as root and by sudo. After each: nothing of it is
on the machine and 'clean' finds nothing to do; it can be read, and is listed with the end that its exit code
says; every earlier one is listed as it was. At the end memory and disk are as they were, but for what the
sessions recorded. The table and ``--results`` say what befell what; exit code 1 when any of it fails.
"""

import argparse
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import psutil
from race_under_test import docker, find_all_other_rally_processes, fio_job, plan, processes
from races import TRACK, be_called
from shared_python import NOBODY, by_sudo, environment

from esrally_ebs.analysis.profile import FIO as FIO_EVENT
from esrally_ebs.errors import EbsError
from esrally_ebs.model import State
from esrally_ebs.store import SessionFolder, list_sessions, load_session
from esrally_ebs.store.session import SessionSummary

MAX_LOST_MIB = 512  # of memory and of disk, beside what others on the machine do meanwhile
DISK = f"size={2 * 1024**3},mode=0755"  # where sessions are recorded: a tmpfs that a fault may fill
ENDS_S, GONE_S, FROZEN_S, UNNOTICED_S = 240.0, 30.0, 3.0, 0.5  # the last: until a job is recorded
_POLL_S, FILLER = 0.05, "filler"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SUBREAPER = 36  # of prctl: what loses its parent becomes this process's child
_SIGNS = 3000  # of what a command said that are kept

RACE = plan(fio_job("short", runtime="1s"), arms=("gp3", "directory"), iterations=30)
ARMS = "".join(
    f'[[arm]]\nname = "arm{n}"\ntype = "{kind}"\nsize = "1GiB"\n' for n, kind in enumerate(("gp3", "gp2"))
)
FIO = f'name = "soak"\naccept = ["lateness"]\n{ARMS}' + "".join(
    fio_job(f"job{n}", runtime="1s") for n in range(3)
)


@dataclass(frozen=True)
class Kind:
    """A kind of session."""

    name: str
    words: tuple[str, ...]  # of the command; {folder} is the world's
    typical_s: float  # for which it runs undisturbed, on two cores beside other work
    weight: int
    is_by_sudo: bool = False
    stays: bool = False  # what it began, when its command has ended


_FIO = ("{folder}/bin/esrally-ebs", "run", "{folder}/fio.toml")
_RACE = (
    *("{folder}/bin/esrally", "race", f"--track-path={TRACK}", "--offline"),
    *("--include-tasks=range_field_big_range", "--track-params=plan:{folder}/race.toml"),
)
KINDS = (
    Kind("fio by root", _FIO, 12, 3),
    Kind("fio by sudo", _FIO, 14, 4, is_by_sudo=True),
    Kind("race by root", _RACE, 40, 2),
    Kind("race by sudo", _RACE, 45, 3, is_by_sudo=True),
    Kind("volumes by hand", (_FIO[0], "volumes", "up", "{folder}/fio.toml"), 5, 1, stays=True),
)
QUIET_SHARE = 0.08  # of sessions that nothing shall befall


@dataclass(frozen=True)
class World:
    """What the sessions have to themselves: homes on a small disk, a run directory, a Python for all."""

    folder: Path
    disk: Path
    run: Path
    homes: tuple[Path, Path]  # root's and the user's

    def env(self, *, is_by_sudo: bool = False) -> Mapping[str, str]:
        own = self.homes[is_by_sudo]
        env = {**by_sudo(self.folder, self.run), "RALLY_HOME": str(own), "ESRALLY_EBS_HOME": str(own / "ebs")}
        return env if is_by_sudo else {**env, "SUDO_UID": "0"}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A short command of root's, to its end."""
        command = [str(self.folder / "bin" / "esrally-ebs"), *words]
        return subprocess.run(
            command, env=self.env(), cwd="/", capture_output=True, text=True, timeout=ENDS_S, check=False
        )

    def listed(self) -> dict[str, SessionSummary]:
        """All sessions by their ids, root's and the user's."""
        return {one.id: one for home in self.homes for one in list_sessions(home / "ebs")}

    def containers(self) -> list[str]:
        return self._of_engine("ps", "-a", "--no-trunc")

    def _of_engine(self, *words: str) -> list[str]:
        return docker(*words, "-q", "--filter", f"label=esrally-ebs.run={self.run}").split()

    def mounts(self) -> list[str]:
        lines = Path("/proc/mounts").read_text().splitlines()
        return [line.split()[1] for line in lines if str(self.run) in line]

    def loops(self) -> list[str]:
        names = []
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                names += [f"/dev/{backing.parts[3]}"] if str(self.run) in backing.read_text() else []
        return names

    def remains(self) -> list[str]:
        """All of sessions that is still on the machine."""
        remains = [f"container {name}" for name in self.containers()]
        remains += [f"network {name}" for name in self._of_engine("network", "ls")]
        remains += [f"mount {point}" for point in self.mounts()]
        remains += [f"loop device {name}" for name in self.loops()]
        remains += [str(path) for path in self.run.glob("*")]
        images = Path("/dev/shm") / "-".join(self.run.parts[1:])
        remains += [str(path) for root in (images, *self.homes) for path in root.rglob("*.img")]
        return remains + [f"process {each.pid}: {title}" for each, title in descendants()]


@dataclass
class Running:
    """A session that runs."""

    world: World
    kind: Kind
    command: "subprocess.Popen[str]"
    unmounted: str = ""  # arm

    def victims(self, name: str) -> list[psutil.Process]:
        """Its processes whose title begins so; "command" is the one that a user would see."""
        if name != "command":
            return sorted(
                (one for one, title in descendants() if title.startswith(name)), key=lambda one: one.pid
            )
        with suppress(psutil.Error):  # it may have ended
            mine = psutil.Process(self.command.pid)
            if not self.kind.is_by_sudo:
                return [mine]
            return [each for each in mine.children() if each.uids().real == NOBODY]
        return []


Strike = Callable[[Running], bool]  # whether there was something to strike


def kill(*names: str) -> Strike:
    """kill -9 of one process of each name, all at once."""

    def strike(running: Running) -> bool:
        victims = [running.victims(name)[:1] for name in names]
        for each in victims if all(victims) else ():
            with suppress(psutil.Error):
                each[0].kill()
        return all(victims)

    return strike


def tell(number: signal.Signals) -> Strike:
    """A signal to the whole process group, as a terminal sends it."""

    def strike(running: Running) -> bool:
        with suppress(ProcessLookupError):
            os.killpg(running.command.pid, number)
            return True
        return False

    return strike


def freeze(running: Running) -> bool:
    """A volume's daemon gets no processor for some seconds."""
    daemons = running.victims("ebs-volume")
    for daemon in daemons:
        with suppress(psutil.Error):
            daemon.suspend()
            time.sleep(FROZEN_S)
            daemon.resume()
    return bool(daemons)


def tool(*words: str, on: Callable[[World], Sequence[str]]) -> Strike:
    """A command, on the first that there is."""

    def strike(running: Running) -> bool:
        first = on(running.world)[:1]
        return bool(first) and not _failed(*words, *first)

    return strike


def unmount(running: Running) -> bool:
    points = [point for point in running.world.mounts() if point.endswith("/mnt")]
    if not points or _failed("umount", "--lazy", points[0]):
        return False
    running.unmounted = Path(points[0]).parent.name
    return True


def fill_disk(running: Running) -> bool:
    """Until the session has ended, nothing more can be written where it is recorded."""
    with suppress(OSError), (running.world.disk / FILLER).open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1 << 20))
    return True


def _failed(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode != 0


@dataclass(frozen=True)
class Fault:
    """Something that may befall a session, of kinds in whose names one of the words is."""

    name: str
    strike: Strike
    words: tuple[str, ...] = ("",)


_SESSIONS = ("fio", "race")
FAULTS = (
    Fault("kill -9 of the command", kill("command")),
    Fault("kill -9 of the keeper", kill("ebs-keeper"), ("by sudo",)),
    Fault("kill -9 of the reaper", kill("ebs-reaper"), _SESSIONS),
    Fault("kill -9 of reaper and command", kill("ebs-reaper", "command"), _SESSIONS),
    Fault("kill -9 of race control", kill("BenchmarkActor"), ("race",)),
    Fault("kill -9 of the driver", kill("DriverActor"), ("race",)),
    Fault("kill -9 of a worker", kill("Worker"), ("race",)),
    Fault("kill -9 of fio", kill("fio --output"), _SESSIONS),
    Fault("kill -9 of a volume's daemon", kill("ebs-volume")),
    Fault("a volume's daemon frozen for 3 s", freeze),
    *(Fault(each.name, tell(each)) for each in SIGNALS),
    Fault("disk full", fill_disk, _SESSIONS),
    Fault("docker kill of a node", tool("docker", "kill", on=World.containers), ("race",)),
    Fault("docker rm -f of a node", tool("docker", "rm", "--force", on=World.containers), ("race",)),
    Fault("a volume unmounted", unmount),
    Fault("a loop device detached", tool("losetup", "--detach", on=World.loops)),
)


@dataclass
class Outcome:
    """What befell one session, and what was wrong after it."""

    kind: str
    fault: str  # "none" where it ended before it could be struck
    after_s: float
    exit_code: int = 0
    ended: str = "not begun"
    lasted_s: float = 0.0
    gone_s: float = 0.0
    unmounted: str = ""  # arm whose volume was
    wrong: list[str] = field(default_factory=list)
    text: str = ""  # the end of what the command said, where something was wrong


@dataclass
class Results:
    """What the soak saw until now; a file of it at any time."""

    seed: int
    struck: int = 0
    wrong: int = 0
    hours: float = 0.0
    lost_mib: Mapping[str, int] = field(default_factory=dict)  # of memory and of disk
    load: tuple[float, ...] = ()
    sessions: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome, lost_mib: Mapping[str, int], hours: float, file: Path) -> None:
        self.sessions.append(outcome)
        self.lost_mib, self.hours, self.load = lost_mib, round(hours, 2), os.getloadavg()
        self.struck = sum(one.fault != "none" for one in self.sessions)
        too_much = any(each > MAX_LOST_MIB for each in lost_mib.values())
        self.wrong = sum(bool(one.wrong) for one in self.sessions) + too_much
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")


def descendants() -> list[tuple[psutil.Process, str]]:
    """All live processes that sessions started, wherever they went."""
    return processes(psutil.Process().children(recursive=True))


def live(world: World, kind: Kind, fault: Fault | None, share: float) -> Outcome:
    """One session, struck after that share of its time, and everything that is checked after it."""
    outcome = Outcome(kind.name, "none", round(share * kind.typical_s, 1))
    before, output = world.listed(), world.folder / "output"
    words = [word.format(folder=world.folder) for word in kind.words]
    env, nowhere = world.env(is_by_sudo=kind.is_by_sudo), subprocess.DEVNULL
    with output.open("w") as text:
        command = subprocess.Popen(
            words, env=env, cwd="/", stdin=nowhere, stdout=text, stderr=text, start_new_session=True
        )
    struck_at = _strike(Running(world, kind, command), fault, outcome)
    outcome.exit_code = command.wait()
    (world.disk / FILLER).unlink(missing_ok=True)
    if kind.stays:
        down = world.call("volumes", "down")
        outcome.wrong += [f"volumes down: {down.stderr}"] if down.returncode else []
    if "reaper" in outcome.fault:
        world.call("clean")
    outcome.gone_s = round(_wait_until_gone(world, outcome), 1)
    said = output.read_text(errors="replace")
    _check_machine(world, outcome, said)
    _check_records(world, outcome, before, struck_at, stays=kind.stays)
    outcome.text = said[-_SIGNS:] if outcome.wrong else ""
    return outcome


def _strike(running: Running, fault: Fault | None, outcome: Outcome) -> float:
    """Watch a session to its end, and strike it on the way; when it was struck (s since the epoch), or 0."""
    began, struck_at = time.monotonic(), 0.0
    least_s = outcome.after_s + 1 if running.kind.stays else 0.0
    while running.command.poll() is None or time.monotonic() < began + least_s:
        if fault and not struck_at and time.monotonic() > began + outcome.after_s and fault.strike(running):
            outcome.fault, outcome.unmounted, struck_at = fault.name, running.unmounted, time.time()
        if time.monotonic() > began + ENDS_S:
            outcome.wrong.append(f"did not end within {ENDS_S:.0f} s")
            for process, _ in descendants():
                with suppress(psutil.Error):
                    process.kill()
            break
        time.sleep(_POLL_S)
    outcome.lasted_s = round(time.monotonic() - began, 1)
    return struck_at


def _wait_until_gone(world: World, outcome: Outcome) -> float:
    """Seconds until nothing of any session was left; a race without command and reaper goes on to its end."""
    began, patience_s = time.monotonic(), ENDS_S if "reaper and" in outcome.fault else GONE_S
    while remains := world.remains():
        if time.monotonic() > began + patience_s:
            outcome.wrong.append(f"still there after {patience_s:.0f} s: {remains}")
            break
        time.sleep(_POLL_S)
    return time.monotonic() - began


def _check_machine(world: World, outcome: Outcome, output: str) -> None:
    """Note down what the command should not have said, and whether 'clean' has something to do."""
    if "other Rally processes" in output:
        outcome.fault, outcome.ended = "none", "refused"  # beside somebody else's, as it should be
    elif outcome.fault == "none" and outcome.exit_code:
        outcome.wrong.append(f"exit code {outcome.exit_code} though nothing befell it")
    # Ctrl-C while Rally's own modules load is Rally's to answer
    if "Traceback" in output and not ("race" in outcome.kind and "KeyboardInterrupt" in output):
        outcome.wrong.append("a traceback")
    clean = world.call("clean")
    if not clean.stdout.endswith("nothing is left behind\n"):
        outcome.wrong.append(f"clean: {clean.stdout}{clean.stderr}")


def _check_records(
    world: World, outcome: Outcome, before: Mapping[str, SessionSummary], struck_at: float, *, stays: bool
) -> None:
    """Note down what is not listed as it must be: this session, and those before."""
    listed = world.listed()
    for id_, earlier in before.items():
        now = listed[id_].state if id_ in listed else None
        outcome.wrong += [f"session {id_}: {earlier.state} before, now {now}"] if now != earlier.state else []
    new = [one for id_, one in listed.items() if id_ not in before]
    if len(new) > 1 or (outcome.exit_code == 0 and not new and not stays):
        outcome.wrong.append(f"{len(new)} sessions were recorded, not one")
    for one in new:
        outcome.ended = one.state.value
        try:
            load_session(one.path)
        except EbsError as error:
            outcome.wrong.append(f"cannot be read: {error}")
        jobs = [event for event in SessionFolder(one.path).events() if event.kind == FIO_EVENT]
        if any(job.arm == outcome.unmounted and job.at_s > struck_at + UNNOTICED_S for job in jobs):
            outcome.wrong.append("a job was recorded that had no volume to measure")
        # struck while it ended, told to while it took down, or left to race control: it has all the same
        has_all = abs(outcome.exit_code) % 128 in SIGNALS or "reaper and" in outcome.fault
        was_over = one.ended_at is not None and struck_at > one.ended_at
        wanted = outcome.exit_code == 0 or (has_all and one.state is State.COMPLETE)
        if (one.state is State.COMPLETE) != wanted and not was_over:
            outcome.wrong.append(f"exit code {outcome.exit_code}, and it is {one.state}: {one.reason}")


def free_mib(world: World) -> dict[str, int]:
    """Memory, with what the sessions recorded in it, and disk."""
    memory = psutil.virtual_memory().available + shutil.disk_usage(world.disk).used
    return {"memory": memory >> 20, "disk": shutil.disk_usage("/").free >> 20}


def _may_race(lock: Path | None, turn: ExitStack) -> bool:
    """Whether nobody else who takes the lock has it; it is ours until the end of ``turn``."""
    if lock is None:
        return True
    file = turn.enter_context(lock.open("a"))
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _reap() -> None:
    """Let go of what sessions left to this process: beside an "esrally", ended or not, Rally races nobody."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def soak(world: World, args: argparse.Namespace) -> Results:
    """Sessions until the time is over."""
    results, draw = Results(args.seed), random.Random(args.seed)
    began, before = time.monotonic(), free_mib(world)
    while (hours := (time.monotonic() - began) / 3600) < args.hours:
        with ExitStack() as turn:
            kind, fault = drawn(draw, may_race=_may_race(args.lock, turn))
            outcome = live(world, kind, fault, draw.random())
            _reap()
        lost_mib = {name: before[name] - now for name, now in free_mib(world).items()}
        results.add(outcome, lost_mib, hours, args.results)
        ending = f"{outcome.exit_code:>4} {outcome.ended:<10} {outcome.lasted_s:>6} s {outcome.wrong}"
        print(f"{len(results.sessions):>4} {outcome.kind:<16} {outcome.fault:<34} {ending}", flush=True)
    return results


def drawn(draw: random.Random, *, may_race: bool) -> tuple[Kind, Fault | None]:
    """What comes next; no race while somebody else's Rally runs, beside which ours would be refused."""
    beside = not may_race or find_all_other_rally_processes()
    kinds = [kind for kind in KINDS if not (beside and "race" in kind.name)]
    (kind,) = draw.choices(kinds, [kind.weight for kind in kinds])
    fitting = [fault for fault in FAULTS if any(word in kind.name for word in fault.words)]
    return kind, None if draw.random() < QUIET_SHARE else draw.choice(fitting)


def show(outcomes: Sequence[Outcome]) -> None:
    """A row per fault: how often, how sessions ended, seconds until nothing was left."""
    print(f"\n{'fault':<34} {'times':>5} {'wrong':>5} {'gone s':>6}  sessions")
    for name in ("none", *(fault.name for fault in FAULTS)):
        rows = [one for one in outcomes if one.fault == name]
        ends = ", ".join(f"{count} {end}" for end, count in Counter(one.ended for one in rows).items())
        wrong, gone_s = sum(bool(one.wrong) for one in rows), max((one.gone_s for one in rows), default=0.0)
        print(f"{name:<34} {len(rows):>5} {wrong:>5} {gone_s:>6}  {ends}")


@contextmanager
def made_world() -> Iterator[World]:
    """Gone after the block, sessions and all."""
    with environment() as folder:
        disk = folder / "disk"
        world = World(folder, disk, folder / "run", (disk / "root", disk / "user"))
        disk.mkdir()
        (folder / "fio.toml").write_text(FIO)
        (folder / "race.toml").write_text(RACE)
        subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", disk], check=True)
        try:
            for home, owner in zip(world.homes, (0, NOBODY), strict=True):
                home.mkdir(mode=0o700)
                os.chown(home, owner, owner)
            yield world
        finally:
            subprocess.run(["umount", disk], check=True)


def main() -> int:
    """Soak, show what befell; exit code 1 when anything was wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lock", type=Path, help="taken by turns; no races without it")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("results") / "soak.json")
    args = parser.parse_args()
    be_called("soak")
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup and '&' would have sessions ignore these, too
    signal.signal(signal.SIGINT, lambda *_: setattr(args, "hours", 0.0))  # the session that runs is the last
    with made_world() as world:
        results = soak(world, args)
    show(results.sessions)
    print(f"{len(results.sessions)} sessions, {results.struck} faults, {results.wrong} wrong;", end=" ")
    print(", ".join(f"{lost} MiB less {name}" for name, lost in results.lost_mib.items()), "than before")
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
