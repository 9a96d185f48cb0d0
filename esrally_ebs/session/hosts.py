"""Data hosts, seen from the coordinator: the steps of a session whose arms are on other machines."""

import base64
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from esrally_ebs import node as nodes
from esrally_ebs.analysis.sessions import machine_facts
from esrally_ebs.checks.arms import Guarded
from esrally_ebs.checks.facts import ArmFacts, Facts, is_real
from esrally_ebs.checks.guards import BETWEEN_ARMS, guard
from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.machine.processes import compare_clocks, is_root
from esrally_ebs.model import Backend, Check, Kind, Node, Severity, Volume, VolumeSpec
from esrally_ebs.node import api
from esrally_ebs.node.dataset import RECORD, Dataset
from esrally_ebs.node.eviction import Eviction
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.plan.tables import HostPlan
from esrally_ebs.session import keeper, reaper
from esrally_ebs.session.asking import Say, say_nothing
from esrally_ebs.session.host import MAX_REQUEST_BYTES, HostSteps, Second
from esrally_ebs.session.host_client import Forward, HostClient, session_on
from esrally_ebs.session.keeper import KeeperClient, KeeperService
from esrally_ebs.session.measure import record_fio
from esrally_ebs.session.root_steps import RootSteps, StartReaper
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import MADE_ON_HOSTS, Arm, Context
from esrally_ebs.telemetry.gc_log import Pause

# Steps that the session's other processes may ask for.
OPERATIONS = ("measure", "evict", "counters", "sample", "pauses", "cause", "restart_nodes")
_ALIKE = ("kernel", "os", "cpu", "cores", "memory", "fio", "engine", "image")
_PART_BYTES = MAX_REQUEST_BYTES // 2  # bytes of an index sent at a time; base64 adds a third
_WAYS_APART_S = 0.0005  # about as long as a read of an SSD volume
_CLOCK_S = 30.0  # seconds between two comparisons of a host's clock
_T = TypeVar("_T")


class DataHosts(RootSteps):
    """The steps of a session whose arms are on other machines; its record and reaper are on this one."""

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
        # hosts of each arm's first node, and of each node
        self._host_of = {arm.name: arm.all_hosts[0] for arm in plan.arm}
        self._forwards: dict[str, Forward] = {}  # by the first node of an arm on that host
        self._clocks: dict[str, _Clock] = {}  # by host
        self.facts: dict[str, dict[str, Any]] = {}  # by host

    def preflight(self) -> None:
        """Start the helpers, and have them refuse what their machines cannot measure."""
        if self._plan.race and not is_root():
            raise SetupError("a race on data hosts: the index is built here, which needs root; run as root")
        for host in self._plan.host:
            arms = [arm.name for arm in self._plan.arm if host.name in arm.all_hosts]
            client = self._clients[host.name] = self._start_helper(host, arms)
            client.on_loss = partial(self._cut, arms)
            facts = self.facts[host.name] = client.steps.facts()
            client.steps.preflight(plan=self._plan, host=host.name)
            if self._plan.race:
                facts |= self._engine_of(host.name)

    def _engine_of(self, host: str) -> dict[str, str | None]:
        """A host's engine and image id. Raises SetupError if the image differs from the one here."""
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
            if any(spec.backend is Backend.AWS for spec in own):
                client.leaves_s = reaper.AWS_S
                (self._run / MADE_ON_HOSTS).touch()
            volumes = client.steps.attach(say=say, specs=own)
            attached |= {volume.spec.name: volume for volume in volumes}
            self._host_of |= {spec.name: name for spec in own}
        return tuple(attached[spec.name] for spec in specs)

    def look(self, arms: tuple[Arm, ...]) -> Guarded:
        """What the arms really are, each host's checks, and a check of what must agree between hosts.

        Raises PlanError if two arms on hosts of different names share a volume.
        """
        looked = {
            name: client.steps.look(plan=self._plan, host=name, arms=tuple(_parts_on(name, arms)))
            for name, client in self._clients.items()
        }
        members = (one for guarded in looked.values() for arm in guarded.arms for one in arm.members)
        checked = {one.volume.spec.name: one for one in members}
        boots = {name: client.steps.boot_id() for name, client in self._clients.items()}
        real = [one.volume for one in checked.values() if is_real(one.volume)]
        _require_distinct(real, boots)
        facts = Facts(plan=self._plan, arms=tuple(ArmFacts(volume=volume) for volume in real))
        # of equally named checks the last: a host compares only its own arms
        checks = (*_merged({n: each.checks for n, each in looked.items()}), *guard(facts, BETWEEN_ARMS))
        return Guarded(
            arms=tuple(
                replace(arm, members=tuple(checked[each.spec.name] for each in arm.volumes)) for arm in arms
            ),
            checks=(*{check.name: check for check in checks}.values(), hosts_alike(self.facts)),
            record=_as_one([each.record for each in looked.values() if each.record is not None]),
        )

    def copy_to(self, index: Dataset, volumes: Sequence[Volume], say: Say) -> None:
        """Put the index on the volumes of an arm; their hosts keep their nodes' part for later sessions.

        Segment files are compared by SHA-256 after copying.
        """
        names = tuple(volume.spec.name for volume in volumes)
        for host, on in self._by_host(names).items():
            client, at = self._clients[host], [names.index(name) for name in on]
            key = f"{index.key}-{index.hash[:16]}"
            if len(on) < len(names):
                key += "-" + "".join(str(one + 1) for one in at)
            if not client.steps.has(key=key):
                say(f"Copying the index to host {host} once; later sessions find it there")
                _send(client, key, index, at)
            client.steps.place(key=key, arms=on)

    def calibrate(self) -> dict[str, dict[int, float]]:
        errors: dict[str, dict[int, float]] = {}
        for client in self._clients.values():
            errors |= client.steps.calibrate()
        return errors

    def start_nodes(
        self, on: tuple[str, ...], settings: nodes.NodeSettings, *, repository: str = ""
    ) -> tuple[Node, ...]:
        """Start an arm's nodes on their hosts; returns them with local ports that lead there over SSH."""
        there = replace(settings, also_at="", apart=self._apart(on))
        started = self._on_each(
            on, lambda steps, names: steps.start_nodes(on=names, settings=there), self._remove_nodes
        )
        ports: dict[str, int] = {}
        for name, own in self._by_host(on).items():
            host = next(host for host in self._plan.host if host.name == name)
            also_at = settings.also_at if on[0] in own else ""  # only the first node gets requests
            leads_to = [node.port for node in started if node.arm in own]
            forward = self._forwards[own[0]] = Forward(host, own[0], leads_to, also_at, nodes=len(on))
            ports |= zip(own, forward.ports, strict=True)
        return tuple(replace(node, host="127.0.0.1", port=ports[node.arm]) for node in started)

    def _apart(self, on: tuple[str, ...]) -> dict[str, str]:
        """Transport addresses of an arm's nodes, by name; empty if all are on one host."""
        places = self._by_host(on)
        if len(places) == 1:
            return {}
        seeds: dict[str, str] = {}
        for host in (host for host in self._plan.host if host.name in places):
            own = places[host.name]
            ports = self._clients[host.name].steps.transport_ports(str(host.address), len(own))
            seeds |= {name: f"{host.seed}:{port}" for name, port in zip(own, ports, strict=True)}
        return {name: seeds[name] for name in on}

    def _remove_nodes(self, hosts: Iterable[str]) -> None:
        """Stop nodes that are starting and wait for others that will not come."""
        for host in hosts:
            with suppress(EbsError):
                self._clients[host].steps.remove_nodes()

    def _by_host(self, on: Iterable[str]) -> dict[str, tuple[str, ...]]:
        places: dict[str, tuple[str, ...]] = {}
        for name in on:
            host = self._host_of[name]
            places[host] = (*places.get(host, ()), name)
        return places

    def _on_each(
        self,
        on: Sequence[str],
        ask: Callable[[HostSteps, tuple[str, ...]], Sequence[_T]],
        on_failure: Callable[[Iterable[str]], None] = lambda hosts: None,
    ) -> list[_T]:
        """Ask all hosts of the nodes at once; their answers, one per node, in the nodes' order.

        Raises the first error; ``on_failure`` gets the hosts that have not answered, to end their requests.
        """
        places = self._by_host(on)
        if len(places) == 1:  # no thread, which would add its start-up to each request
            return [*ask(self._client(on[0]).steps, tuple(on))]
        with ThreadPoolExecutor(len(places)) as pool:
            asked = {
                host: pool.submit(ask, self._clients[host].steps, names) for host, names in places.items()
            }
            wait(asked.values(), return_when=FIRST_EXCEPTION)
            failed = [each for each in asked.values() if each.done() and each.exception() is not None]
            if failed:
                on_failure(host for host, each in asked.items() if not each.done())
                failed[0].result()
            given = {
                name: one
                for host, names in places.items()
                for name, one in zip(names, asked[host].result(), strict=True)
            }
        return [given[name] for name in on]

    def check_ways(self) -> Check:
        """Time that the connection to each arm's node adds to a request, and whether arms differ in it."""
        firsts = [self._plan.node_names(arm.name)[0] for arm in self._plan.arm]
        ways_s = {
            arm: api.round_trip_s(self._forwards[arm].ports[0])
            - self._client(arm).steps.round_trip_s(arm=arm)
            for arm in firsts
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
        if on[0] in self._nodes:  # a node that builds the index runs here
            super().stop_nodes(on)
            return
        self._on_each(on, _stop)
        for own in self._by_host(on).values():
            self._forwards.pop(own[0]).close()

    def restarted(self, copied: bool) -> tuple[Node, ...]:
        """Restarted nodes, with the ports that they had before: forwards from here still lead to them."""
        before = {node.arm: node for arm in self._published.arms for node in arm.nodes}
        with ThreadPoolExecutor(len(self._clients)) as pool:
            of_hosts = pool.map(lambda client: client.steps.restarted(copied=copied), self._clients.values())
            started = {node.arm: node for of_host in of_hosts for node in of_host}
        return tuple(
            replace(node, host=before[name].host, port=before[name].port) for name, node in started.items()
        )

    def hashes(self, on: tuple[str, ...]) -> list[dict[str, str]]:
        return self._on_each(on, lambda steps, names: steps.hashes(on=names))

    def publish(self, context: Context) -> Context:
        listener, address = keeper.bound()
        # else clients wait for ever once this process is killed, as forked ones hold the socket
        os.register_at_fork(after_in_child=listener.close)
        service = KeeperService(self, os.geteuid(), OPERATIONS)
        threading.Thread(target=service.listen, args=(listener,), daemon=True).start()
        return super().publish(replace(context, hosts_at=address))

    def measure(self, arm: str, job: BaselineJob, round_: int) -> None:
        """Run a job on the arm's host, and record its result in this machine's time."""
        host = self._host_of[arm]
        ahead_s = self._clock(host, 0.0)
        done = self._clients[host].steps.run_job(arm=arm, job=job, round_=round_)
        done = replace(done, began_at=done.began_at - ahead_s, ended_at=done.ended_at - ahead_s)
        record_fio(SessionFolder(self._published.folder), arm, job, round_, done)

    def evict(self, arm: str) -> Eviction:
        return self._client(arm).steps.evict(arm=arm)

    def counters(self, arm: str) -> list[dict[str, float]]:
        return self._on_each(self._plan.node_names(arm), lambda steps, _: steps.counters(arm=arm))

    def sample(self) -> Second:
        """Telemetry of all arms now, in this machine's time."""
        second = Second(points=[], cuts=[])
        for host, client in self._clients.items():
            ahead_s = self._clock(host)
            began_s, of_host = time.time(), client.steps.sample()
            if any(not began_s - 1 < point.at_s - ahead_s < time.time() + 1 for point in of_host.points):
                ahead_s = self._clock(host, 0.0)  # the host's clock was set meanwhile
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
        places = self._by_host(self._plan.node_names(arm))
        broken = filter(None, (self._cause_on(host, arm) for host in places))
        lost = (
            f"host {host}: SSH's way to the node of arm {arm} was lost; start the race again"
            for host, own in places.items()
            if own[0] in self._forwards and self._forwards[own[0]].is_lost
        )
        return next(broken, None) or next(lost, None)

    def _cause_on(self, host: str, arm: str) -> str | None:
        """What is broken on this host's part of an arm."""
        try:
            cause = self._clients[host].steps.cause(arm=arm)
        except EbsError as error:  # such as a lost SSH connection
            return str(error)
        return cause and f"host {host}: {cause}"

    def _cut(self, arms: Sequence[str]) -> None:
        """Break connections to arms that lost a host: nodes elsewhere would wait for the lost ones."""
        for name in (name for arm in arms for name in self._plan.node_names(arm)):
            if forward := self._forwards.get(name):
                forward.cut()

    def _client(self, arm: str) -> HostClient:
        return self._clients[self._host_of[arm]]

    def _clock(self, host: str, lasts_s: float = _CLOCK_S) -> float:
        """How far a host's clock is ahead of this machine's (s), compared again after ``lasts_s`` seconds."""
        last = self._clocks.get(host)
        if last is None or time.monotonic() - last.compared_s >= lasts_s:
            clock = compare_clocks(lambda: self._clients[host].steps.now())
            last = self._clocks[host] = _Clock(compared_s=time.monotonic(), ahead_s=-clock.ahead_s)
            folder = SessionFolder(self._published.folder)
            folder.note("clock", host=host, offset_s=last.ahead_s, uncertainty_s=clock.uncertainty_s)
        return last.ahead_s

    def ending(self) -> None:
        if self._session:  # without a session there are only helpers
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
    """How far a host's clock is ahead; ``compared_s`` is monotonic."""

    compared_s: float
    ahead_s: float


def _require_distinct(volumes: Iterable[Volume], boots: Mapping[str, str]) -> None:
    """Raise PlanError if two volumes are one: the same device of one machine (boot id), or of AWS.

    Each host has already compared its own.
    """
    owner: dict[tuple[str, str], Volume] = {}
    for volume in volumes:
        is_of_aws = volume.kind in (Kind.EBS, Kind.EFS)
        names = volume.identity.split() if is_of_aws else filter(None, [volume.device])
        for name in names:
            other = owner.setdefault(("" if is_of_aws else boots[str(volume.spec.host)], name), volume)
            if other is not volume:
                places = (f"{one.spec.mount} of host {one.spec.host}" for one in (other, volume))
                raise PlanError(
                    f"volumes '{other.spec.name}' and '{volume.spec.name}': {' and '.join(places)} are on "
                    f"one device ({name}); give each arm a device of its own, and each host its own address"
                )


def _stop(steps: HostSteps, names: tuple[str, ...]) -> tuple[str, ...]:
    steps.stop_nodes(on=names)
    return names


def _parts_on(host: str, arms: Sequence[Arm]) -> Iterator[Arm]:
    """Arms with volumes on the host, reduced to those volumes."""
    for arm in arms:
        own = tuple(member for member in arm.members if member.volume.spec.host == host)
        if own:
            yield replace(arm, members=own)


def _send(client: HostClient, key: str, index: Dataset, at: Sequence[int]) -> None:
    """Send a host the part of an index for the nodes at these places; it is kept under that key."""
    part = index.part(at) if len(at) < index.nodes else replace(index, path=Path())
    for place, to in zip(at, part.folders, strict=True):
        folder = index.folders[place]
        for path in sorted(path for path in (folder / "elasticsearch").rglob("*") if path.is_file()):
            with path.open("rb") as file:
                while (data := file.read(_PART_BYTES)) or not file.tell():
                    client.steps.receive(
                        key=key, path=str(to / path.relative_to(folder)), data=base64.b64encode(data)
                    )
                    if not data:  # an empty file
                        break
    client.steps.receive(key=key, path=RECORD, data=base64.b64encode(part.sealed().encode()))


def hosts_of(context: Context) -> DataHosts | None:
    """Client for the steps of arms on other machines; None if the session's arms are here.

    It answers only ``OPERATIONS``.
    """
    return cast(DataHosts, KeeperClient(context.hosts_at, DataHosts)) if context.hosts_at else None


def hosts_alike(facts: Mapping[str, Mapping[str, Any]]) -> Check:
    """Check that hosts differ in nothing but their volumes, as far as their facts tell."""
    facts = {name: {**each, **machine_facts(each)} for name, each in facts.items()}
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
    """Merge the hosts' checks by name: the worst result, with the text of all."""
    named: dict[str, list[tuple[str, Check]]] = {}
    for host, of_host in checks.items():
        for check in of_host:
            named.setdefault(check.name, []).append((host, check))
    for of_name in named.values():
        worst = max((check for _, check in of_name), key=lambda check: (check.forbids, not check.ok))
        yield replace(worst, text="; ".join(f"host {host}: {check.text}" for host, check in of_name))


def _as_one(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """AWS's facts about all hosts' arms in one record; the instance is the first host's."""
    if not records:
        return None
    arms = {name: arm for each in records for name, arm in each["arms"].items()}
    return {**records[0], "arms": arms, "unknown": [line for each in records for line in each["unknown"]]}
