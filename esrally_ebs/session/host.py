"""The helper on a data host: a coordinator starts it by SSH and asks it for the steps that arms there need.

It answers on its standard output what comes on its standard input, one JSON line each, and listens nowhere.
When its input ends, or nothing has come for a while, it takes down what it began and ends; when it is killed,
its session's reaper does so.
"""

import os
import select
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Base64Bytes, Field

import esrally_ebs
from esrally_ebs import node as nodes
from esrally_ebs.checks import arms as arm_checks
from esrally_ebs.checks import preflight
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.machine.kernel_trees import Roots
from esrally_ebs.machine.private import private_directory
from esrally_ebs.machine.processes import be_called
from esrally_ebs.machine.resources import home
from esrally_ebs.model import ENGINE, MIN_MAPS, Node, TelemetryPoint
from esrally_ebs.node import api, dataset
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.session import diagnosis, environment, reaper
from esrally_ebs.session.asking import Answering, line_of
from esrally_ebs.session.measure import FioRun, run_fio
from esrally_ebs.session.root_steps import RootSteps, StartReaper
from esrally_ebs.store import running
from esrally_ebs.store.context import FIO_PID, Arm
from esrally_ebs.store.files import sync_folder
from esrally_ebs.telemetry.gc_log import GcLog, Pause
from esrally_ebs.telemetry.observation import counters_of
from esrally_ebs.telemetry.sampler import Sampler
from esrally_ebs.volumes.backends import check_mounts
from esrally_ebs.volumes.emulated.control import read_state

OPERATIONS = (
    *("now", "facts", "boot_id", "held", "preflight", "begin_here", "attach", "look", "run_job"),
    *("image", "engine_facts", "has", "receive", "place", "calibrate", "start_nodes", "stop_nodes"),
    *("transport_ports", "hashes", "evict", "round_trip_s", "counters", "sample", "pauses", "cause"),
    *("restarted", "remove_nodes"),
)
END = b"end"  # ends the requests; processes forked from race control hold the input open
PATIENCE_S = 30.0  # of silence; the coordinator sends something every BEAT_S
BEAT_S = 5.0  # both sides send something this often
MAX_REQUEST_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_MAPS = Path("/proc/sys/vm/max_map_count")
_Key = Annotated[str, Field(pattern=r"^[0-9a-z-]{1,80}$")]  # an index's folder, which may be removed
_Engine = Annotated[str | None, Field(pattern=ENGINE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """One second of telemetry, and reasons for missing values: (node, reason) pairs."""

    points: list[TelemetryPoint]
    cuts: list[tuple[str, str]]


class HostSteps(RootSteps):
    """The steps that a coordinator may ask for, one method each."""

    def __init__(self, *, start_reaper: StartReaper = reaper.start) -> None:
        super().__init__(start_reaper=start_reaper)
        self._arms: dict[str, Arm] = {}
        self._sampler: Sampler | None = None
        self._cuts: list[tuple[str, str]] = []
        self._gc_logs: dict[str, GcLog] = {}

    def now(self) -> float:
        """This machine's clock: seconds since the epoch."""
        return time.time()

    def facts(self) -> dict[str, Any]:
        return environment.describe((), {})

    def boot_id(self) -> str:
        """Identifies this machine since it booted, by whatever name it is reached."""
        return Roots().boot_id()

    def held(self, sessions: tuple[str, ...], docker: _Engine) -> tuple[list[str], str]:
        """Which of these sessions still have something on this machine or that engine.

        Also why the engine could not be asked; "" if it answered or none was named.
        """
        _use(docker)
        with_nodes, silence = list[str](), ""
        try:
            with_nodes = nodes.leftovers()
        except SetupError as error:
            silence = str(error) if docker is not None else ""
        return [one for one in sessions if running.is_ours(one) or one in with_nodes], silence

    def preflight(self, plan: Plan, host: str) -> None:
        """Raise if this machine cannot measure its part of the plan; ``host`` is its name there."""
        own = next(each for each in plan.host if each.name == host)
        _use(own.docker)
        check_mounts(plan, host)
        if any(len({each.host for each in plan.volumes_of(arm)}) > 1 for arm in _own(plan, host).arm):
            _require_reachable(str(own.address))
        preflight.require(_own(plan, host), with_nodes=plan.race is not None)

    def begin_here(self, session: str) -> None:
        """Own a session, and have it taken down when this process dies."""
        self.begin(session, home() / "sessions" / session, ())  # no record here: the coordinator has it

    def look(self, plan: Plan, host: str, arms: tuple[Arm, ...]) -> arm_checks.Guarded:
        guarded = arm_checks.look_at(_own(plan, host), arms)
        self._arms = {arm.name: arm for arm in guarded.arms}
        return guarded

    def run_job(self, arm: str, job: BaselineJob, round_: int) -> FioRun:
        try:
            return run_fio(
                self._arm(arm), job, round_, pid_file=self._run / FIO_PID, start=self._while_standing
            )
        except EbsError as error:
            raise diagnosis.explain(error, self.cause(arm)) or error from error

    def has(self, key: _Key) -> bool:
        return dataset.cached(home(), key) is not None

    def receive(self, key: _Key, path: str, data: Base64Bytes) -> None:
        """Append bytes to a file of an index. Raises SetupError on a full disk."""
        unfinished = dataset.unfinished_folder(home(), key, self._session)
        file = unfinished / path
        if not file.resolve().is_relative_to(unfinished.resolve()):
            raise PlanError(f"{path}: is not below the index; name a file of it")
        private_directory(file.parent)
        try:
            with file.open("ab") as opened:
                opened.write(data)
        except OSError as error:
            raise SetupError(
                f"{file}: {error.strerror}; make room there for the index, or set ESRALLY_EBS_HOME"
            ) from error

    def place(self, key: _Key, arms: tuple[str, ...]) -> None:
        """Keep a received index and copy it to the volumes of arms. Raises as ``dataset.copy_to``."""
        unfinished = dataset.unfinished_folder(home(), key, self._session)
        if unfinished.exists():
            sync_folder(unfinished, {})
            kept = home() / "datasets" / key
            if dataset.cached(home(), key) is None:
                shutil.rmtree(kept, ignore_errors=True)  # an interrupted copy
                unfinished.rename(kept)
            else:  # another session was faster
                shutil.rmtree(unfinished)
        index = dataset.cached(home(), key)
        if index is None:
            raise SetupError(f"{home() / 'datasets' / key}: has gone meanwhile; start again")
        with self._lock:  # take_down waits for the lock, and stops this at the next file
            volumes = (self._of(self._volumes, arm) for arm in arms)
            dataset.copy_to(index, *volumes, go_on=self._require_standing)

    def transport_ports(self, address: str, count: int) -> list[int]:
        """Free transport ports on an address of this machine that the cluster's other nodes reach."""
        ports = set[int]()
        while len(ports) < count:
            ports.add(nodes.lasting_port(address))
        return list(ports)

    def counters(self, arm: str) -> list[dict[str, float]]:
        """Counters of each volume of an arm and of the node on it."""
        own = self._arm(arm)
        diagnosis.require_nodes(own)
        return counters_of(own.members)

    def round_trip_s(self, arm: str) -> float:
        """Seconds that an arm's node takes to answer on this machine."""
        node: Node = self._of(self._nodes, arm)
        return api.round_trip_s(node.port)

    def sample(self) -> Second:
        """Telemetry of all arms now, by this machine's clock."""
        if self._sampler is None:
            members = (member for name in self._arms for member in self._arm(name).members)
            self._sampler = Sampler(
                [(member.volume, member.node) for member in members],
                read_state=read_state,
                on_cut=lambda node, why: self._cuts.append((node, why)),
            )
        points = self._sampler.sample()
        cuts, self._cuts = self._cuts, []
        return Second(points=points, cuts=cuts)

    def pauses(self, node: str) -> list[Pause]:
        """A node's pauses since the last call, by this machine's clock."""
        log = self._gc_logs.setdefault(node, GcLog(partial(self.gc_log, node)))
        return log.new()

    def cause(self, arm: str) -> str | None:
        return diagnosis.cause(self._arm(arm))

    @contextmanager
    def _while_standing(self) -> Iterator[None]:
        """Keep volumes attached during the block. Raises SetupError once the session is to be taken down."""
        with self._lock:
            self._require_standing()
            yield

    def _arm(self, name: str) -> Arm:
        return self._with_nodes(self._of(self._arms, name))


def engine_of(docker: str | None) -> dict[str, str]:
    """Environment variable that makes Docker's client use this engine; empty for the default engine."""
    return {"DOCKER_HOST" if ":" in docker else "DOCKER_CONTEXT": docker} if docker else {}


def _use(docker: str | None) -> None:
    """Use that engine from now on; the reaper inherits it."""
    if docker:
        os.environ.pop("DOCKER_HOST", None)
    os.environ.update(engine_of(docker))


def _own(plan: Plan, host: str) -> Plan:
    """The plan with this host's arms alone."""
    return plan.model_copy(update={"arm": tuple(arm for arm in plan.arm if host in arm.all_hosts)})


def _require_reachable(address: str) -> None:
    """Raise SetupError if other hosts' nodes could not reach nodes at this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise SetupError(
                f"address {address}: {error.strerror}; give one that this machine has"
            ) from error
    maps = int(_MAPS.read_text())
    if maps < MIN_MAPS:
        raise SetupError(
            f"vm.max_map_count is {maps}, and a node that is reached from elsewhere does not start below "
            f"{MIN_MAPS}; run: sysctl -w vm.max_map_count={MIN_MAPS}"
        )


def serve(
    requests: int, answers: BinaryIO, *, steps: HostSteps | None = None, patience_s: float = PATIENCE_S
) -> list[str]:
    """Answer requests from the descriptor until it ends, then take down. Returns a line per thing that stays.

    A request is a line: a number, then JSON. Answers may come in another order, with the number as ``id``. In
    between, and during long steps, the helper sends signs of life.
    """
    steps = steps or HostSteps()
    service = Answering(steps, OPERATIONS)
    writing = threading.Lock()

    def send(answer: object) -> None:
        with suppress(OSError), writing:  # nobody listens any more; the end of the input will tell
            answers.write(line_of(answer))
            answers.flush()

    def answer(line: bytes) -> None:
        number, _, request = line.partition(b" ")
        id_ = number.decode(errors="replace")
        send({"id": id_, **service.answer(request, say=lambda text: send({"id": id_, "say": text}))[0]})

    def beat() -> None:
        while not is_over.wait(BEAT_S):
            send({"lives": True})

    is_over = threading.Event()
    try:
        send({"esrally_ebs": esrally_ebs.__version__, "pid": os.getpid()})
        threading.Thread(target=beat, daemon=True).start()
        for line in _lines(requests, patience_s):
            # In threads, so that the end of the input is noticed meanwhile: take_down ends what runs.
            threading.Thread(target=answer, args=(line,), daemon=True).start()
    finally:
        left = steps.take_down()
        is_over.set()
        send({"left": left})
    return left


def _lines(descriptor: int, patience_s: float) -> Iterator[bytes]:
    """Non-empty lines, until the end of input, END, a silence or an overlong line."""
    rest = b""
    while len(rest) <= MAX_REQUEST_BYTES and select.select([descriptor], [], [], patience_s)[0]:
        part = os.read(descriptor, _READ_BYTES)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in filter(None, lines):
            if line == END:
                return
            yield line


def main() -> int:
    """Serve at standard input and output; returns the exit code."""
    be_called("ebs-host")
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what tools print must not look like an answer
        answers.write(b"\n")  # the login's own output may lack a final newline
        left = serve(sys.stdin.fileno(), answers)
    return SetupError.exit_code if left else 0


if __name__ == "__main__":
    sys.exit(main())
