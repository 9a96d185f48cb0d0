"""Data hosts, from the coordinator: a helper on each (``host.py``), started and spoken with by SSH."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

import esrally_ebs
from esrally_ebs.checks.arms import Guarded
from esrally_ebs.errors import EbsError, SetupError
from esrally_ebs.machine.processes import compare_clocks, last_lines, tool_environment
from esrally_ebs.model import MAX_SESSION_NAME, Check, Severity, Volume, VolumeSpec
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import reaper
from esrally_ebs.session.host import BEAT_S, PATIENCE_S
from esrally_ebs.session.keeper import MAX_REQUEST_BYTES, result_of
from esrally_ebs.session.measure import FioRun, record_fio
from esrally_ebs.session.root_steps import RootSteps, Say, StartReaper
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context

T = TypeVar("T")

# Variables and no keys of a plan, which may be somebody else's and must not say what is run.
SSH = "ESRALLY_EBS_SSH"  # the command, where it is not just "ssh"
PYTHON = "ESRALLY_EBS_HOST_PYTHON"  # what starts Python on a host, where it is not this one's path
_OPTIONS = {  # nobody answers questions; a connection without a network is noticed within 20 s
    "BatchMode": "yes",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RemoteCommand": "none",
    "ControlMaster": "no",  # a shared connection has its own ConnectTimeout and ServerAlive...
    "ControlPath": "none",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "4",
}
_MAX_ANSWER_BYTES = 1 << 26  # of an answer
_MAX_TEXT_BYTES = 1 << 16  # of a greeting, or what ssh said last
_GREETINGS = 100  # lines that a shell may print before the helper's first
_GREETS_S = 60.0
_LEAVES_S = 45.0  # to take down all that it has
_NO_ANSWER = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # reading other JSON
_ALIKE = ("kernel", "os", "cpu", "cores", "memory_bytes", "fio")


class HostClient:
    """The helper on one host; one request at a time."""

    def __init__(self, host: HostPlan, *, greets_s: float = _GREETS_S) -> None:
        """Start it. Raises SetupError where it cannot be within ``greets_s``, or is of another version."""
        self._host = host
        self._left: list[str] | None = None  # what it said that stays when it ended
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._writing = threading.Lock()
        self._gone = threading.Event()
        python = os.environ.get(PYTHON) or shlex.quote(sys.executable)
        options = [f"-o{name}={value}" for name, value in _OPTIONS.items()]
        command = [*shlex.split(os.environ.get(SSH, "ssh")), "-T", *options, "--", host.ssh]
        try:
            self._process = subprocess.Popen(
                [*command, f"exec {python} -P -m esrally_ebs.session.host"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C: the helper takes down when it is told, and says what stays
                env=tool_environment(),
            )
        except OSError as error:
            raise SetupError(f"host {host.name}: {command[0]}: {error.strerror}; install OpenSSH") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            self._greet(greets_s)
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        operation: str,
        gives: TypeAdapter[T],
        *,
        say: Say = lambda text: None,
        **arguments: Any,  # noqa: ANN401 - what the operation takes
    ) -> T:
        """What an operation of ``HostSteps`` gives. Raises its errors, which begin with the host's name."""
        with suppress(OSError):  # what it said last tells why
            self._write(_JSON.dump_json({"operation": operation, "arguments": arguments}) + b"\n")
        while line := self._answers.readline(_MAX_ANSWER_BYTES):
            try:
                answer = json.loads(line)
                if "left" in answer:
                    self._left = _LEFT.validate_python(answer["left"])
                    break
                if "say" not in answer:
                    return gives.validate_python(result_of(answer))
                said = str(answer["say"])
            except EbsError as error:
                raise type(error)(f"host {self._host.name}: {error}") from error
            except _NO_ANSWER as error:
                raise SetupError(
                    f"host {self._host.name}: what it answers to {operation!r} is no such answer; install "
                    "esrally_ebs there anew"
                ) from error
            say(f"host {self._host.name}: {said}")
        if self._left is None:
            raise self._lost()
        raise SetupError(
            f"host {self._host.name}: its helper ended before {operation!r} was done: nothing came for "
            f"{PATIENCE_S:.0f} s, or a request of more than {MAX_REQUEST_BYTES >> 10} KiB; run it again"
        )

    def close(self) -> list[str]:
        """Have it take down what it began; a line for each thing that stays, or when it did not say."""
        if self._gone.is_set():
            return []
        self._gone.set()
        with self._killed_after(_LEAVES_S):
            with suppress(OSError), self._writing:
                self._requests.close()  # which ends it
            while line := self._answers.readline(_MAX_TEXT_BYTES):
                with suppress(*_NO_ANSWER):  # cut by its end
                    self._left = _LEFT.validate_python(json.loads(line).get("left", self._left))
            self._process.wait()
        left = [f"host {self._host.name}: {line}" for line in self._left or ()]
        if self._left is None:
            left = [f"{self._lost()}; its helper takes down by itself within a minute"]
        self._answers.close()
        self._errors.close()
        return left

    def _greet(self, greets_s: float) -> None:
        """Find the helper's first line below what shells and banners print, and compare versions."""
        began = time.monotonic()
        with self._killed_after(greets_s):
            for _ in range(_GREETINGS):
                line = self._answers.readline(_MAX_TEXT_BYTES)
                if not line:
                    break
                with suppress(*_NO_ANSWER):
                    version = json.loads(line)["esrally_ebs"]
                    if version == esrally_ebs.__version__:
                        return
                    raise SetupError(
                        f"host {self._host.name}: has esrally_ebs {version}, the coordinator "
                        f"{esrally_ebs.__version__}; install that one there"
                    )
        if time.monotonic() - began >= greets_s:
            raise SetupError(
                f"host {self._host.name}: no helper by ssh {self._host.ssh} within {greets_s:.0f} s; see "
                "that a login there waits for nothing"
            )
        raise SetupError(
            f"host {self._host.name}: no helper by ssh {self._host.ssh}: {self._said()}; see that ssh gets in"
            f" unasked, and that esrally_ebs {esrally_ebs.__version__} is there ({PYTHON})"
        )

    def _lost(self) -> SetupError:
        return SetupError(f"host {self._host.name}: SSH was lost ({self._said()})")

    def _said(self) -> str:
        """What ssh, or the helper, said last."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(BEAT_S)
        file = self._errors.fileno()  # its offset is ssh's, which may still write there
        last = os.pread(file, _MAX_TEXT_BYTES, max(0, os.fstat(file).st_size - _MAX_TEXT_BYTES))
        return last_lines(last.decode(errors="replace"))

    @contextmanager
    def _killed_after(self, seconds: float) -> Iterator[None]:
        """End ssh when the block takes longer."""
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _beat(self) -> None:
        """Say something now and then: the helper ends when nothing comes."""
        while not self._gone.wait(BEAT_S):
            with suppress(OSError, ValueError):  # whoever asks next hears of it
                self._write(b"\n")

    def _write(self, line: bytes) -> None:
        with self._writing:
            self._requests.write(line)
            self._requests.flush()


class DataHosts(RootSteps):
    """The steps of a session whose arms are on other machines; its record, and its reaper, are here."""

    def __init__(
        self,
        plan: Plan,
        *,
        start_reaper: StartReaper = reaper.start,
        start_helper: Callable[[HostPlan], HostClient] = HostClient,
    ) -> None:
        super().__init__(start_reaper=start_reaper)
        self._plan = plan
        self._start_helper = start_helper
        self._clients: dict[str, HostClient] = {}
        self.facts: dict[str, dict[str, Any]] = {}  # by host

    def preflight(self) -> None:
        """Start the helpers, and have them refuse what their machines cannot measure."""
        for host in self._plan.host:
            client = self._clients[host.name] = self._start_helper(host)
            self.facts[host.name] = client.ask("facts", _FACTS)
            client.ask("preflight", _NOTHING, plan=self._plan, host=host.name)

    def begin(self, session: str, folder: Path, watched: tuple[int, ...]) -> None:
        super().begin(session, folder, watched)
        for name, client in self._clients.items():
            client.ask("begin", _NOTHING, session=session_on(name, session))

    def attach(self, specs: tuple[VolumeSpec, ...], *, say: Say = lambda text: None) -> tuple[Volume, ...]:
        attached: dict[str, Volume] = {}
        for name, client in self._clients.items():
            own = tuple(spec for spec in specs if spec.host == name)
            volumes = client.ask("attach", _VOLUMES, say=say, specs=own)
            attached |= {volume.spec.name: volume for volume in volumes}
        return tuple(attached[spec.name] for spec in specs)

    def look(self, arms: tuple[Arm, ...]) -> Guarded:
        """What the arms really are, the checks of each host, and one of what hosts must have alike."""
        looked = {
            name: client.ask("look", _GUARDED, plan=self._plan, host=name, arms=_on(name, arms))
            for name, client in self._clients.items()
        }
        checked = {arm.name: arm for guarded in looked.values() for arm in guarded.arms}
        return Guarded(
            arms=tuple(checked[arm.name] for arm in arms),
            checks=(*_merged({n: each.checks for n, each in looked.items()}), hosts_alike(self.facts)),
            record=_as_one([each.record for each in looked.values() if each.record is not None]),
        )

    def measure(self, context: Context, arm: Arm, job: BaselineJob, round_: int) -> None:
        """Have a job run where the arm is, and keep what it gave, in this machine's time."""
        host = arm.volume.spec.host
        assert host is not None
        client, folder = self._clients[host], SessionFolder(context.folder)
        clock = compare_clocks(lambda: client.ask("now", _SECONDS))
        ahead_s = -clock.ahead_s  # of the host's
        folder.note("clock", host=host, offset_s=ahead_s, uncertainty_s=clock.uncertainty_s)
        done = client.ask("run_job", _FIO_RUN, arm=arm.name, job=job, round_=round_)
        done = replace(done, began_at=done.began_at - ahead_s, ended_at=done.ended_at - ahead_s)
        record_fio(folder, arm.name, job, round_, done)

    def ending(self) -> None:
        if self._session:  # else helpers are all there is
            super().ending()

    def take_down(self) -> list[str]:
        left: list[str] = []
        for name, client in self._clients.items():
            try:
                left += client.close()
            except Exception as error:  # noqa: BLE001 - the others are taken down, whatever it is
                left.append(f"host {name}: {error!r}; run 'esrally-ebs clean' there")
        return [*left, *super().take_down()]


def session_on(host: str, session: str) -> str:
    """What a session is called on a host: not as here or on others, which may be the same machine."""
    return f"{session[: MAX_SESSION_NAME - 1 - len(host)]}-{host}"


def hosts_alike(facts: Mapping[str, Mapping[str, Any]]) -> Check:
    """Whether arms on different hosts differ by their volumes alone, as far as the hosts tell."""
    different = [key for key in _ALIKE if len({each.get(key) for each in facts.values()}) > 1]
    shown = "; ".join(
        f"{key}: {', '.join(f'{name} {each.get(key)}' for name, each in facts.items())}" for key in different
    )
    return Check(
        name="hosts",
        ok=not different,
        value=f"{len(facts)} hosts",
        text=f"arms are on different machines: {shown}" if different else "alike: " + ", ".join(_ALIKE),
        severity=Severity.WARN,
        mend="" if not different else "take hosts of one type and image",
    )


def _merged(checks: Mapping[str, Sequence[Check]]) -> Iterator[Check]:
    """One check for each name: the worst of the hosts', with the text of all."""
    named: dict[str, list[tuple[str, Check]]] = {}
    for host, of_host in checks.items():
        for check in of_host:
            named.setdefault(check.name, []).append((host, check))
    for of_name in named.values():
        worst = max((check for _, check in of_name), key=lambda check: (check.forbids, not check.ok))
        yield replace(worst, text="; ".join(f"host {host}: {check.text}" for host, check in of_name))


def _as_one(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What AWS says of all hosts' arms; the instance is the first one's."""
    if not records:
        return None
    arms = {name: arm for each in records for name, arm in each["arms"].items()}
    return {**records[0], "arms": arms, "unknown": [line for each in records for line in each["unknown"]]}


def _on(host: str, arms: Sequence[Arm]) -> tuple[Arm, ...]:
    return tuple(arm for arm in arms if arm.volume.spec.host == host)


_JSON: TypeAdapter[Any] = TypeAdapter(Any)
_NOTHING: TypeAdapter[None] = TypeAdapter(None)
_LEFT: TypeAdapter[list[str] | None] = TypeAdapter(list[str] | None)
_SECONDS = TypeAdapter(float)
_FACTS: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_VOLUMES = TypeAdapter(tuple[Volume, ...])
_GUARDED = TypeAdapter(Guarded)
_FIO_RUN = TypeAdapter(FioRun)
