"""Data hosts, from the coordinator: the steps of a session whose arms are on other machines."""

import base64
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from esrally_ebs import node as nodes
from esrally_ebs.checks.arms import Guarded
from esrally_ebs.errors import EbsError, FormatError, SetupError
from esrally_ebs.machine.processes import compare_clocks, is_root
from esrally_ebs.model import MAX_SESSION_NAME, Check, Node, Severity, State, Volume, VolumeSpec
from esrally_ebs.node import api
from esrally_ebs.node.dataset import Dataset
from esrally_ebs.node.eviction import Eviction
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import keeper, reaper
from esrally_ebs.session.asking import Say, say_nothing
from esrally_ebs.session.host import MAX_REQUEST_BYTES, Second, engine_of
from esrally_ebs.session.host_client import Forward, HostClient
from esrally_ebs.session.keeper import KeeperClient, KeeperService
from esrally_ebs.session.measure import record_fio
from esrally_ebs.session.root_steps import RootSteps, StartReaper
from esrally_ebs.store import SessionFolder, list_sessions
from esrally_ebs.store.context import Arm, Context
from esrally_ebs.store.reading import read_record
from esrally_ebs.telemetry.gc_log import Pause

# What the session's other processes may ask for.
OPERATIONS = ("measure", "evict", "counters", "sample", "pauses", "cause")
_ALIKE = ("kernel", "os", "cpu", "cores", "memory_bytes", "fio", "engine", "image")
_PART_BYTES = MAX_REQUEST_BYTES // 2  # of an index, at a time; in base64 a third more
_WAYS_APART_S = 0.0005  # a read of an SSD volume takes about as long
_DAY_S = 86_400.0
_CLOCK_S = 30.0  # between two comparisons of a host's clock


class DataHosts(RootSteps):
    """The steps of a session whose arms are on other machines; its record, and its reaper, are here."""

    def __init__(
        self,
        plan: Plan,
        *,
        start_reaper: StartReaper = reaper.start,
        start_helper: Callable[[HostPlan, Sequence[str]], HostClient] = HostClient,
    ) -> None:
        super().__init__(start_reaper=start_reaper)
        self._plan = plan
        self._start_helper = start_helper
        self._clients: dict[str, HostClient] = {}
        self._host_of = {arm.name: str(arm.host) for arm in plan.arm}
        self._forwards: dict[str, Forward] = {}  # by the first node of an arm
        self._clocks: dict[str, _Clock] = {}  # by host
        self.facts: dict[str, dict[str, Any]] = {}  # by host

    def preflight(self) -> None:
        """Start the helpers, and have them refuse what their machines cannot measure."""
        if self._plan.race and not is_root():
            raise SetupError("a race on data hosts: the index is built here, which needs root; run as root")
        for host in self._plan.host:
            arms = [arm.name for arm in self._plan.arm if arm.host == host.name]
            client = self._clients[host.name] = self._start_helper(host, arms)
            facts = self.facts[host.name] = client.steps.facts()
            client.steps.preflight(plan=self._plan, host=host.name)
            if self._plan.race:
                facts |= self._engine_of(host.name)

    def _engine_of(self, host: str) -> dict[str, str | None]:
        """The engine of a host and its image's id. Raises SetupError when that is not the image here."""
        image = self._clients[host].steps.image()
        if image != self.image():
            raise SetupError(
                f"host {host}: runs nodes of {image}, while the index is built with {self.image()}; set "
                "ES_IMAGE to one image, here and there"
            )
        engine = self._clients[host].steps.engine_facts(images=(image,))
        return {"engine": engine.get(""), "image": engine.get(image)}

    def begin(self, session: str, folder: Path, watched: tuple[int, ...]) -> None:
        super().begin(session, folder, watched)
        for name, client in self._clients.items():
            client.steps.begin_here(session=session_on(name, session))

    def attach(self, specs: tuple[VolumeSpec, ...], *, say: Say = say_nothing) -> tuple[Volume, ...]:
        attached: dict[str, Volume] = {}
        for name, client in self._clients.items():
            own = tuple(spec for spec in specs if spec.host == name)
            volumes = client.steps.attach(say=say, specs=own)
            attached |= {volume.spec.name: volume for volume in volumes}
            self._host_of |= {spec.name: name for spec in own}
        return tuple(attached[spec.name] for spec in specs)

    def look(self, arms: tuple[Arm, ...]) -> Guarded:
        """What the arms really are, the checks of each host, and one of what hosts must have alike."""
        looked = {
            name: client.steps.look(
                plan=self._plan, host=name, arms=tuple(arm for arm in arms if arm.volume.spec.host == name)
            )
            for name, client in self._clients.items()
        }
        checked = {arm.name: arm for guarded in looked.values() for arm in guarded.arms}
        return Guarded(
            arms=tuple(checked[arm.name] for arm in arms),
            checks=(*_merged({n: each.checks for n, each in looked.items()}), hosts_alike(self.facts)),
            record=_as_one([each.record for each in looked.values() if each.record is not None]),
        )

    def copy_to(self, index: Dataset, volumes: Sequence[Volume], say: Say) -> None:
        """Have the index on volumes of a host, which keeps it for later sessions.

        Segment files are compared there by their SHA-256 after they were copied.
        """
        names = tuple(volume.spec.name for volume in volumes)
        client, key = self._client(names[0]), f"{index.key}-{index.hash[:16]}"
        if not client.steps.has(key=key):
            say(f"Copying the index to host {self._host_of[names[0]]} once; later sessions find it there")
            for path in sorted(path for path in index.path.rglob("*") if path.is_file()):
                with path.open("rb") as file:
                    while (part := file.read(_PART_BYTES)) or not file.tell():
                        to, data = str(path.relative_to(index.path)), base64.b64encode(part)
                        client.steps.receive(key=key, path=to, data=data)
                        if not part:  # an empty file
                            break
        client.steps.place(key=key, arms=names)

    def calibrate(self) -> None:
        for client in self._clients.values():
            client.steps.calibrate()

    def start_nodes(
        self, on: tuple[str, ...], settings: nodes.NodeSettings, *, repository: str = ""
    ) -> tuple[Node, ...]:
        """Start an arm's nodes where the arm is; their ports are of this machine and lead there over SSH."""
        first = on[0]
        started = self._client(first).steps.start_nodes(on=on, settings=replace(settings, also_at=""))
        host = next(host for host in self._plan.host if host.name == self._host_of[first])
        ports = [node.port for node in started]
        forward = self._forwards[first] = Forward(host, first, ports, settings.also_at)
        here = zip(started, forward.ports, strict=True)
        return tuple(replace(node, host="127.0.0.1", port=port) for node, port in here)

    def check_ways(self) -> Check:
        """What the way to each arm's node adds to a request, and whether arms differ by it."""
        ways_s = {
            arm: api.round_trip_s(forward.ports[0]) - self._client(arm).steps.round_trip_s(arm=arm)
            for arm, forward in self._forwards.items()
        }
        shown = ", ".join(
            f"{arm} on {self._host_of[arm]} {way_s * 1e3:.2f} ms" for arm, way_s in sorted(ways_s.items())
        )
        apart_s = max(ways_s.values()) - min(ways_s.values())
        return Check(
            name="ways",
            ok=apart_s <= _WAYS_APART_S,
            value=f"{apart_s * 1e3:.2f} ms apart",
            text=f"what the way to a node adds to a request, which is part of its service time: {shown}",
            severity=Severity.WARN,
            mend="" if apart_s <= _WAYS_APART_S else "take hosts that are equally far from here",
        )

    def stop_nodes(self, on: tuple[str, ...]) -> None:
        if on[0] in self._nodes:  # it builds the index, here
            super().stop_nodes(on)
            return
        self._client(on[0]).steps.stop_nodes(on=on)
        self._forwards.pop(on[0]).close()

    def content_hash(self, on: tuple[str, ...]) -> str:
        return self._client(on[0]).steps.content_hash(on=on)

    def publish(self, context: Context) -> Context:
        listener, address = keeper.bound()
        # else who asks waits for ever once this process is killed
        os.register_at_fork(after_in_child=listener.close)
        service = KeeperService(self, os.geteuid(), OPERATIONS)
        threading.Thread(target=service.listen, args=(listener,), daemon=True).start()
        return super().publish(replace(context, hosts_at=address))

    def measure(self, arm: str, job: BaselineJob, round_: int) -> None:
        """Have a job run where the arm is, and keep what it gave, in this machine's time."""
        assert self._context is not None, "nothing is measured before it was published"
        host = self._host_of[arm]
        ahead_s = self._clock(host, 0.0)
        done = self._clients[host].steps.run_job(arm=arm, job=job, round_=round_)
        done = replace(done, began_at=done.began_at - ahead_s, ended_at=done.ended_at - ahead_s)
        record_fio(SessionFolder(self._context.folder), arm, job, round_, done)

    def evict(self, arm: str) -> Eviction:
        return self._client(arm).steps.evict(arm=arm)

    def counters(self, arm: str) -> list[dict[str, float]]:
        """What each volume of an arm, and the node on it, have done so far."""
        return self._client(arm).steps.counters(arm=arm)

    def sample(self) -> Second:
        """Telemetry of all arms now, in this machine's time."""
        second = Second(points=[], cuts=[])
        for host, client in self._clients.items():
            ahead_s = self._clock(host)
            began_s, of_host = time.time(), client.steps.sample()
            if any(not began_s - 1 < point.at_s - ahead_s < time.time() + 1 for point in of_host.points):
                ahead_s = self._clock(host, 0.0)  # it was set meanwhile
            second.points.extend(replace(point, at_s=point.at_s - ahead_s) for point in of_host.points)
            second.cuts.extend((node, f"host {host}: {why}") for node, why in of_host.cuts)
        return second

    def pauses(self, node: str) -> list[Pause]:
        """The pauses of a node since the last call, in this machine's time."""
        ahead_s = self._clock(self._host_of[node])
        pauses = self._client(node).steps.pauses(node=node)
        return [replace(pause, end_at=pause.end_at - ahead_s) for pause in pauses]

    def cause(self, arm: str) -> str | None:
        if self._is_ending:
            return None
        try:
            cause = self._client(arm).steps.cause(arm=arm)
        except EbsError as error:  # SSH was lost, for one
            return str(error)
        assert self._context is not None, "nothing is diagnosed before it was published"
        host, forward = self._host_of[arm], self._forwards.get(self._context.arm(arm).volume.spec.name)
        if not cause and forward and forward.is_lost:
            return f"host {host}: SSH's way to the node of arm {arm} was lost; start the race again"
        return cause and f"host {host}: {cause}"

    def _client(self, arm: str) -> HostClient:
        return self._clients[self._host_of[arm]]

    def _clock(self, host: str, lasts_s: float = _CLOCK_S) -> float:
        """How far a host's clock is ahead of this machine's (s); it is compared if that was long ago."""
        last = self._clocks.get(host)
        if last is None or time.monotonic() - last.compared_s >= lasts_s:
            clock = compare_clocks(lambda: self._clients[host].steps.now())
            last = self._clocks[host] = _Clock(compared_s=time.monotonic(), ahead_s=-clock.ahead_s)
            assert self._context is not None, "nothing is measured before it was published"
            folder = SessionFolder(self._context.folder)
            folder.note("clock", host=host, offset_s=last.ahead_s, uncertainty_s=clock.uncertainty_s)
        return last.ahead_s

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
        while self._forwards:
            self._forwards.popitem()[1].close()
        return [*left, *super().take_down()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clock:
    """A host's clock beside this machine's; ``compared_s`` is monotonic."""

    compared_s: float
    ahead_s: float


def hosts_of(context: Context) -> DataHosts | None:
    """Whom to ask about the arms of a session that are on other machines; None when they are here.

    Only ``OPERATIONS`` are answered.
    """
    return cast(DataHosts, KeeperClient(context.hosts_at, DataHosts)) if context.hosts_at else None


def session_on(host: str, session: str) -> str:
    """What a session is called on a host: not as here or on others, which may be the same machine."""
    return f"{session[: MAX_SESSION_NAME - 1 - len(host)]}-{host}"


def held(home: Path) -> Iterator[tuple[str, bool]]:
    """What data hosts hold of sessions that did not complete within a day: a line, and whether it is there.

    Else the line says why a host could not be asked.
    """
    asked: dict[HostPlan, list[str]] = {}
    for session in list_sessions(home):
        has_failed = session.state in (State.FAILED, State.CANCELLED)
        if not has_failed or (session.ended_at or session.started_at or 0.0) < time.time() - _DAY_S:
            continue
        with suppress(FormatError):
            for host in read_record(session.path).plan.host:
                asked.setdefault(host, []).append(session_on(host.name, session.id))
    with ThreadPoolExecutor(len(asked) or 1) as pool:  # one that is gone takes its seconds beside the others
        for of_host in pool.map(_held_by, asked, asked.values()):
            yield from of_host


def _held_by(host: HostPlan, sessions: Sequence[str]) -> list[tuple[str, bool]]:
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
    held_ = [(f"host {host.name}: still holds session {session}; {remedy}", True) for session in there]
    if silence:
        said = f"host {host.name}: engine {host.docker} cannot be asked what it holds: {silence}"
        held_.append((f"{said}; once it answers {remedy}", False))
    return held_


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
