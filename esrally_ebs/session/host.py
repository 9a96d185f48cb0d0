"""The helper on a data host: started there by SSH, it does for a coordinator what volumes need done.

It answers on its standard output what comes on its standard input, one JSON line each, and listens nowhere.
When its input ends, or nothing has come for a while, it takes down what it began and ends; when it is killed,
its session's reaper does so.
"""

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import BinaryIO

import setproctitle
from pydantic import TypeAdapter

import esrally_ebs
from esrally_ebs.checks import arms as arm_checks
from esrally_ebs.checks import preflight
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import Volume, VolumeSpec
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.session import diagnosis, environment
from esrally_ebs.session.keeper import MAX_REQUEST_BYTES, KeeperService
from esrally_ebs.session.measure import FioRun, run_fio
from esrally_ebs.session.root_steps import RootSteps, Say
from esrally_ebs.store import running
from esrally_ebs.store.context import FIO_PID, Arm
from esrally_ebs.volumes.backends import check_mounts

OPERATIONS = ("now", "facts", "preflight", "begin", "attach", "look", "run_job")
PATIENCE_S = 30.0  # without a word of the coordinator, which says one every BEAT_S
BEAT_S = 5.0
_READ_BYTES = 1 << 16


class HostSteps:
    """What a coordinator may ask for, one method each."""

    def __init__(self, root: RootSteps) -> None:
        self._root = root
        self._session = ""
        self._arms: dict[str, Arm] = {}

    def now(self) -> float:
        """The time by this machine's clock (epoch, s)."""
        return time.time()

    def facts(self) -> dict[str, object]:
        """What this machine is."""
        return environment.describe((), {})

    def preflight(self, plan: Plan, host: str) -> None:
        """Refuse what this machine cannot measure of a plan; it is called ``host`` there."""
        check_mounts(plan, host)
        preflight.require(_own(plan, host), with_nodes=False)

    def begin(self, session: str) -> None:
        """Own a session, and have it taken down when this process dies."""
        self._root.begin(session, home() / "sessions" / session, ())  # no record: that is the coordinator's
        self._session = session

    def attach(self, specs: tuple[VolumeSpec, ...], *, say: Say) -> tuple[Volume, ...]:
        """Attach the volumes of all arms that are here."""
        return self._root.attach(specs, say=say)

    def look(self, plan: Plan, host: str, arms: tuple[Arm, ...]) -> arm_checks.Guarded:
        """Find out what they really are, and check them."""
        guarded = arm_checks.look_at(_own(plan, host), arms)
        self._arms = {arm.name: arm for arm in guarded.arms}
        return guarded

    def run_job(self, arm: str, job: BaselineJob, round_: int) -> FioRun:
        """Run a job of fio on an arm."""
        own = self._arms[arm]
        try:
            return run_fio(own, job, round_, pid_file=running.folder_of(self._session) / FIO_PID)
        except EbsError as error:
            raise diagnosis.explain(error, diagnosis.cause(own)) or error from error


def _own(plan: Plan, host: str) -> Plan:
    """The plan with the arms of this host alone."""
    return plan.model_copy(update={"arm": tuple(arm for arm in plan.arm if arm.host == host)})


def serve(
    requests: int, answers: BinaryIO, *, root: RootSteps | None = None, patience_s: float = PATIENCE_S
) -> list[str]:
    """Answer what comes at the descriptor until it ends; then take down. Gives a line for what stays."""
    root = root or RootSteps()
    service = KeeperService(HostSteps(root), os.geteuid(), OPERATIONS)

    def send(answer: object) -> None:
        try:
            answers.write(_JSON.dump_json(answer) + b"\n")
            answers.flush()
        except OSError:  # nobody listens any more; the end of the input says so, too
            return

    def answer(line: bytes) -> None:
        send(service.answer(line, say=lambda text: send({"say": text}))[0])

    try:
        send({"esrally_ebs": esrally_ebs.__version__})
        for line in _lines(requests, patience_s):
            # In a thread, so that the end of the input is seen meanwhile: take_down ends what runs.
            threading.Thread(target=answer, args=(line,), daemon=True).start()
    finally:
        left = root.take_down()
        send({"left": left})
    return left


def _lines(descriptor: int, patience_s: float) -> Iterator[bytes]:
    """Lines that are not empty, until the end, a silence, or a line that is too long."""
    rest = b""
    while len(rest) <= MAX_REQUEST_BYTES and select.select([descriptor], [], [], patience_s)[0]:
        part = os.read(descriptor, _READ_BYTES)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from filter(None, lines)


def main() -> int:
    """Serve at standard input and output; gives the exit code."""
    # Rally refuses to race while a python process has "esrally" in its command line.
    setproctitle.setproctitle("ebs-host")
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what tools print there is no answer
        left = serve(sys.stdin.fileno(), answers)
    return SetupError.exit_code if left else 0


_JSON: TypeAdapter[object] = TypeAdapter(object)


if __name__ == "__main__":
    sys.exit(main())
