"""The steps of a session on this machine; ``protocol.py`` has their order.

Each records itself in the session folder and leaves to its caller what is to be taken down when it fails.
"""

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs import node as nodes
from esrally_ebs import report
from esrally_ebs.analysis.comparable import check_comparable
from esrally_ebs.analysis.marks import marked_blocks
from esrally_ebs.analysis.profile import CALIBRATION
from esrally_ebs.aws import cloudwatch, s3
from esrally_ebs.checks import arms as arm_checks
from esrally_ebs.checks import preflight
from esrally_ebs.errors import MeasurementError, PlanError, SetupError
from esrally_ebs.machine.mounts import unmounted
from esrally_ebs.machine.processes import booted_at_s
from esrally_ebs.machine.resources import home
from esrally_ebs.model import Check, Node, Phase, State, Volume, session_name
from esrally_ebs.node import copies, dataset, identity
from esrally_ebs.plan import Plan
from esrally_ebs.session import diagnosis, environment, reaper
from esrally_ebs.session.asking import Say, say_nothing
from esrally_ebs.session.hosts import DataHosts
from esrally_ebs.session.keeper import root_steps
from esrally_ebs.session.protocol import cluster_of
from esrally_ebs.session.root_steps import StartReaper, empty_steady_caches
from esrally_ebs.store import SessionFolder, load_session, running
from esrally_ebs.store.context import Arm, Context, Member
from esrally_ebs.units import format_bytes
from esrally_ebs.volumes import backends as volumes
from esrally_ebs.volumes.emulated import control
from esrally_ebs.volumes.emulated.trace import take_trace

_MAX_STARTS = 20  # of a cluster, to find like routing; with three nodes, one start in three has it
_ROOMY = 2.0  # an index this many times a node's page cache cannot hide the volume for long

_STAGES = (
    "attach volumes",
    "look at arms",
    "build dataset",
    "copy dataset",
    "calibrate volumes",
    "start nodes",
)
_STAGES_OF_INDEXING = ("attach volumes", "look at arms", "prepare corpus", "start nodes")
_CLOCK_MOVES_S = 2.0  # moves by hand or by a time server; telemetry has whole seconds


def objects_of(snapshot: Path) -> s3.Objects | None:
    """The S3 repository of a snapshot; None if the repository is in files."""
    return s3.Objects.of(snapshot.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceNodes:
    """What the race requires of the nodes."""

    settings: nodes.NodeSettings
    source: dataset.Source | None  # of the dataset copied to every arm; None: each arm indexes by itself
    prepare_corpus: Callable[[], object]  # prepares what each arm indexes
    has_writes: bool = False  # documents are added beside searches: arms are brought back before each block
    also_at: str = ""  # address at which load-generating hosts reach the arms' nodes
    loads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by task: clients, rate, schedule


class MachineSteps:
    """The steps on a real machine, in the order of ``protocol.LiveSession``."""

    def __init__(
        self,
        session: str,
        plan: Plan,
        *,
        race: RaceNodes | None = None,
        main_pid: int | None = None,
        say: Say = say_nothing,
        start_reaper: StartReaper = reaper.start,
        patience_s: float = cloudwatch.PATIENCE_S,
    ) -> None:
        """Begin nothing yet. Raises PlanError for an invalid session name.

        ``main_pid``: another process whose end also ends the session. ``patience_s``: how long to wait for
        CloudWatch; the session is complete without its answer.
        """
        self.session = session_name(session)
        self.with_nodes = race is not None  # else fio alone
        self.folder: SessionFolder | None = None  # the record, once it exists
        self._plan = plan
        self._race = race
        self._say = say
        self._watched = (os.getpid(), *([main_pid] if main_pid else []))
        self.hosts = DataHosts(plan, start_reaper=start_reaper) if plan.host else None
        self._root = self.hosts or root_steps(start_reaper=start_reaper)
        self._patience_s = patience_s
        self._stages = _STAGES[:2] if race is None else _STAGES if race.source else _STAGES_OF_INDEXING
        self._booted_at_s = booted_at_s()
        self._attached: tuple[Arm, ...] = ()
        self._begun = False  # whether anything on this machine is ours to take down
        self._aws: dict[str, Any] = {}  # what AWS says of the arms
        self._copied = False  # whether all arms have a copied index that nothing writes to
        self._kept: dict[str, tuple[str, str]] = {}  # volume, and hash of what it is brought back to
        self._traced: dict[str, Path] = {}  # control sockets by arm

    def check_plan(self) -> None:
        """Refuse a plan that cannot be carried out, before anything is recorded."""
        if self._race is not None and self._race.has_writes:
            self._plan.require_local("adding documents beside searches")
        preflight.check_plan(self._plan)

    def record(self) -> None:
        kind = "race" if self.with_nodes else "baseline"
        self.folder = SessionFolder.create(home(), self.session, kind=kind, plan=self._plan)
        self._booted_at_s = booted_at_s()

    def preflight(self) -> None:
        """Refuse what this machine cannot measure."""
        if self.hosts is not None:
            self._begun = True  # helpers
            self.hosts.preflight()
        else:
            preflight.require(self._plan, with_nodes=self.with_nodes)
        if self._race is not None and self._race.source is not None:
            self._race.source.require(self._image)

    def begin(self) -> None:
        """Own what is begun from here on, and have it taken down if this process is killed."""
        self._root.begin(self.session, self._folder.path, self._watched)
        self._begun = True

    def attach(self) -> tuple[Arm, ...]:
        specs = self._plan.arm
        if self._race and self._race.settings.readahead_bytes is not None:
            readahead_bytes = self._race.settings.readahead_bytes
            specs = tuple(replace(spec, readahead_bytes=readahead_bytes) for spec in specs)
        names = [spec.name for spec in specs]
        with self._stage("attach volumes"):
            for caveat in (text for spec in specs for text in volumes.caveats(spec)):
                self._folder.add_warning(caveat)
            all_of_them = tuple(each for spec in specs for each in self._plan.volumes_of(spec))
            attached = iter(self._root.attach(all_of_them, say=self._say))
            arms = tuple(
                Arm(
                    name=spec.name,
                    cluster=cluster_of(spec.name, names),
                    members=tuple(Member(volume=next(attached)) for _ in self._plan.volumes_of(spec)),
                )
                for spec in specs
            )
        # at once, since every output from here on must state the volumes' kind
        self._folder.update(arms=[arm.recorded for arm in arms])
        self._attached = arms
        return arms

    def explain(self, error: BaseException) -> BaseException:
        """The cause, if an arm has lost its volume, instead of an error that follows from it."""
        if self.hosts is not None or not isinstance(error, Exception):
            return error
        attached = (volume for arm in self._attached for volume in arm.volumes)
        return diagnosis.explain(error, next(filter(None, map(unmounted, attached)), None)) or error

    def check(self, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Find out what the arms really are, and refuse those that must not be compared."""
        with self._stage("look at arms"):
            guarded = self.hosts.look(arms) if self.hosts else arm_checks.look_at(self._plan, arms)
        self._aws = {} if guarded.record is None else {"aws": guarded.record}
        self._folder.update(arms=[arm.recorded for arm in guarded.arms], environment=self._aws)
        for check in guarded.checks:
            self._folder.add_check(check)
        guarded.require()
        return guarded.arms

    def copy(self, arms: tuple[Arm, ...]) -> dataset.Dataset | None:
        """Build the index and copy it to every arm; None if each arm indexes by itself.

        Raises PlanError for an index without documents, unless some are added beside searches.
        """
        race = self._needs
        if race.source is None:
            with self._stage("prepare corpus"):
                race.prepare_corpus()
            return None
        with self._stage("build dataset"):
            index = dataset.ensure(
                home(),
                race.source,
                image=self._image,
                server=self,
                session=self.session,
                say=self._say,
                nodes_per_arm=self._plan.node.count,
            )
        if not index.segments and not race.has_writes:
            raise PlanError(
                f"{race.source.label}: gives no document, so that no search finds any; index some before "
                "the first search, or leave out what comes before it (--exclude-tasks): then all documents "
                "of the track are indexed"
            )
        with self._stage("copy dataset"):
            for arm in arms:
                if self.hosts is not None:
                    self.hosts.copy_to(index, arm.volumes, self._say)
                else:
                    dataset.copy_to(index, *arm.volumes)
                if race.has_writes:
                    self._root.keep(arm.volume.spec.name)
        with self._stage("calibrate volumes"):
            errors = self._root.calibrate()
            for arm in arms:
                own = [errors[volume.spec.name] for volume in arm.volumes if volume.spec.name in errors]
                if own:
                    mean = {size: math.sqrt(fmean(of[size] ** 2 for of in own)) for size in own[0]}
                    self._folder.note(CALIBRATION, arm=arm.name, error_s=mean)
        return index

    def start_nodes(self, arms: tuple[Arm, ...], index: dataset.Dataset | None) -> tuple[Arm, ...]:
        """Start a node on every arm, and check that all have the same index."""
        with self._stage("start nodes"):
            if index and self._plan.design.nodes == "one":
                arms = self._start_one(arms, index)
            else:
                with ThreadPoolExecutor(len(arms)) as pool:
                    arms = tuple(pool.map(self._start, arms))
            if self.hosts is not None:
                self._folder.add_check(self.hosts.check_ways())
        if index is None:
            self._folder.update(dataset={"documents": self._plan.dataset.documents, "copied": False})
        else:
            self._copied = not self._needs.has_writes
            self._folder.update(dataset=asdict(index))
            if self._plan.node.count > 1:  # a cluster that is to index by itself has no shards to compare yet
                arms = self._route_equally(arms)
            for arm in arms:
                self._check_segments(arm, index)
            if self._needs.has_writes:
                self._kept = {arm.name: (arm.volume.spec.name, index.hash) for arm in arms}
            self._check_page_cache(index)
            empty_steady_caches(self._plan, (node for arm in arms for node in arm.nodes), self._root.evict)
        return arms

    def _start(self, arm: Arm) -> Arm:
        """A node on each of an arm's volumes, as one cluster."""
        started = zip(arm.volumes, self._start_nodes(arm.volumes), strict=True)
        return replace(arm, members=tuple(Member(volume=on, node=node) for on, node in started))

    def _start_one(self, arms: tuple[Arm, ...], index: dataset.Dataset) -> tuple[Arm, ...]:
        """One node on a neutral disk, with each arm's index on the arm's volume."""
        names = [arm.name for arm in arms]
        made = copies.prepare(index, names, server=self, session=self.session)
        for arm in arms:
            made.place_on(arm.volume)
        shutil.copytree(made.data, self._root.attach_neutral(), dirs_exist_ok=True)
        parts = self._root.start_shared(made.uuids, nodes.of_all_arms(self._settings, len(arms)))
        return tuple(
            replace(arm, members=(Member(volume=arm.volume, node=part),), suffix=copies.suffix_of(arm.name))
            for arm, part in zip(arms, parts, strict=True)
        )

    def describe(self, arms: tuple[Arm, ...]) -> Context:
        """Record what the session runs on, and publish what its other processes must know."""
        started = [node for arm in arms for node in arm.nodes]
        engine = self._root.engine_facts(tuple({node.image for node in started}))
        hosts = {"hosts": self.hosts.facts} if self.hosts else {}
        tasks = {"tasks": self._race.loads} if self._race else {}
        described = environment.describe(started, engine)
        self._folder.update(environment=described | tasks | hosts | self._aws)
        context = self._root.publish(
            Context(
                session=self.session,
                folder=self._folder.path,
                run=self._run,
                plan=self._plan,
                arms=arms,
                has_writes=self.with_nodes and self._needs.has_writes,
                copied=self._copied,
            )
        )
        for volume in (volume for arm in arms for volume in arm.volumes):
            if self._plan.trace and volume.control:
                control.change(volume.control, trace=True)
                self._traced[volume.spec.name] = volume.control
        return context

    def verify(self) -> None:
        """Refuse measurements on arms that were not brought back to the same bytes."""
        for arm, (volume, hash_) in self._kept.items():
            actual = self._root.require_kept(volume, hash_)
            text = "still the same segment files as the dataset"
            self._folder.add_check(Check(name=f"brought back: {arm}", ok=True, value=actual[:16], text=text))

    def take_down(self) -> list[str]:
        """Remove everything that was begun here; returns a line per thing that stays."""
        if not self._begun:  # the session id may be in use by another session
            return []
        self._root.ending()
        self.say("take down")
        started = time.monotonic()
        problems = [*self._save_traces(), *self._root.take_down()]
        with suppress(SetupError):
            self._folder.note("stage", name="take down", seconds=time.monotonic() - started)
        return problems

    def _save_traces(self) -> list[str]:
        """Keep the I/Os of traced arms; returns a line per failure."""
        problems = []
        while self._traced:
            arm, socket = self._traced.popitem()
            try:
                ios, lost = take_trace(socket, arm)
                self._folder.write_trace(arm, ios)
                self._folder.note("trace", arm=arm, ios=ios.num_rows, lost=lost)
            except (SetupError, OSError) as error:
                problems.append(f"arm {arm}: its trace is missing: {error}")
        return problems

    def say(self, text: str) -> None:
        with suppress(OSError):  # nobody listens any more
            self._say(text)

    def collect(self) -> None:
        cloudwatch.collect_in_time(self._folder, patience_s=self._patience_s)

    def report(self) -> tuple[str, str]:
        """Check, finish and report; returns the report as text, and why arms cannot be compared, or ""."""
        self._say("report")
        moved_s = booted_at_s() - self._booted_at_s
        if abs(moved_s) > _CLOCK_MOVES_S:
            self._folder.add_warning(
                f"the clock was set by {moved_s:+.0f} s meanwhile: requests and what devices did then do not "
                "fit in time, so causes may be wrong; measure again"
            )
        return conclude(self._folder)

    def record_fault(self, text: str, exit_code: int) -> None:
        self._folder.note("fault", text=text, exit_code=exit_code)

    @property
    def _folder(self) -> SessionFolder:
        assert self.folder is not None
        return self.folder

    @property
    def _run(self) -> Path:
        return running.folder_of(self.session)

    @property
    def _needs(self) -> RaceNodes:
        assert self._race is not None
        return self._race

    @cached_property
    def _image(self) -> str:
        return self._root.image()

    def serve(
        self, on: Sequence[Volume], repository: Path | None = None, linked: Sequence[Path] = ()
    ) -> AbstractContextManager[Sequence[Node]]:
        return self._root.serve(on, self._needs.settings, repository, linked)

    def segments(self, cluster: Sequence[Node]) -> Sequence[nodes.Segment]:
        return self._root.segments(tuple(node.arm for node in cluster))

    def _start_nodes(self, on: Sequence[Volume]) -> tuple[Node, ...]:
        return self._root.start_nodes(tuple(volume.spec.name for volume in on), self._settings)

    @property
    def _settings(self) -> nodes.NodeSettings:
        return replace(self._needs.settings, also_at=self._needs.also_at)

    def _check_segments(self, arm: Arm, index: dataset.Dataset) -> None:
        """Require every arm to have exactly the segments that were built; recorded before the first query."""
        actual = self._root.content_hash(tuple(volume.spec.name for volume in arm.volumes))
        same = actual == index.hash
        text = "the same segment files as the dataset" if same else f"dataset has {index.hash[:16]}"
        self._folder.add_check(Check(name=f"segments of {arm.name}", ok=same, value=actual[:16], text=text))
        if not same:
            raise MeasurementError(
                f"arm {arm.name}: its node changed the copied segments ({actual[:16]} against "
                f"{index.hash[:16]}); arms would not be comparable, see the node's log"
            )

    def _route_equally(self, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        """Require each shard copy on the same node number of every arm; make searches use the same copies."""
        first, *others = arms
        preference = identity.PREFERENCES[0]
        where = identity.settled(first.nodes)
        searched = identity.searched(first.nodes, preference)
        routed = tuple(self._routed(arm, first.name, where, searched) for arm in others)
        for check, does in (("allocation", "has"), ("routing", "asks")):
            text = f"every arm {does} the same copies of shards on nodes of the same number"
            self._folder.add_check(Check(name=check, ok=True, value=f"{len(searched)} shards", text=text))
        return (replace(first, preference=preference), *routed)

    def _routed(
        self, arm: Arm, first: str, where: Sequence[identity.Shard], searched: Sequence[identity.Shard]
    ) -> Arm:
        """The arm with a preference that selects these copies; restarts its nodes until one does."""
        for _ in range(_MAX_STARTS):
            wrong = identity.difference(first, where, arm.name, identity.settled_as(arm.nodes, where))
            if wrong:
                raise MeasurementError(
                    f"allocation: arms would not be comparable: {wrong}; see the nodes' logs, start again"
                )
            preference = identity.preference(arm.nodes, searched)
            if preference is not None:
                return replace(arm, preference=preference)
            self._root.stop_nodes(tuple(node.arm for node in arm.nodes))
            arm = self._start(arm)
        raise MeasurementError(
            f"routing: searches of arm {arm.name} ask other copies of shards than those of {first}, after "
            f"{_MAX_STARTS} starts of its nodes; lower node.count, or number_of_replicas to 0"
        )

    def _check_page_cache(self, index: dataset.Dataset) -> None:
        cache_bytes = nodes.page_cache_bytes(self._needs.settings) * self._plan.node.count
        ratio = index.bytes / cache_bytes if cache_bytes else float("inf")
        text = (
            f"the index has {format_bytes(index.bytes)}, an arm has page cache for about"
            f" {format_bytes(cache_bytes)}"
        )
        self._folder.add_check(
            Check(name="index against page cache", ok=True, value=f"{ratio:.2g}", text=text)
        )
        if ratio < _ROOMY:
            self._folder.add_warning(
                f"the index is only {ratio:.2g} times a node's page cache; more documents make storage matter"
            )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Announce a stage and how many are left; record its duration, even if it fails."""
        number = self._stages.index(name) + 1
        self._say(f"{name}: step {number} of {len(self._stages)} before the first measurement")
        started = time.monotonic()
        try:
            yield
        finally:
            self._folder.note("stage", name=name, seconds=time.monotonic() - started)


def conclude(folder: SessionFolder) -> tuple[str, str]:
    """Check, finish and report; returns the report as text, and why arms cannot be compared, or ""."""
    folder.compact()
    recorded = load_session(folder.path)
    for name, seconds in spans(recorded.samples):
        folder.note("stage", name=name, seconds=seconds)
    # events that hit only one arm of a round, for readers of the session without this package
    for (arm, task, round_), causes in marked_blocks(recorded).items():
        folder.note("marked", arm=arm, task=task, round=round_, causes=causes)
    checks = check_comparable(recorded)
    for check in checks:
        folder.add_check(check)
    broken = "; ".join(f"{check.name}: {check.text}" for check in checks if check.forbids)
    folder.finish(State.FAILED if broken else State.COMPLETE, reason=broken)
    built = report.build(load_session(folder.path))
    texts = {form: render(built) for form, render in report.RENDERERS.items()}
    for form, text in texts.items():
        folder.write_file(f"report.{report.SUFFIX[form]}", text)
    return texts["text"], broken


def spans(samples: pa.Table) -> list[tuple[str, float]]:
    """Seconds spent in indexing, warm-up and rounds, from first to last request; only those that occurred.

    Warm-up adds up: restarted nodes are warmed up again between rounds.
    """
    measured = pc.equal(samples["phase"].cast(pa.string()), Phase.MEASURE.value).to_numpy()
    in_rounds = samples["round"].to_numpy() > 0
    names = ("indexing", "warm-up", "rounds")
    kinds = np.where(in_rounds, 2, np.where(measured, 0, 1))
    started = samples["started_s"].to_numpy()
    order = np.argsort(started, kind="stable")
    seconds: dict[str, float] = {}
    for stretch in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(stretch):
            name = names[kinds[stretch[0]]]
            seconds[name] = seconds.get(name, 0.0) + float(started[stretch[-1]] - started[stretch[0]])
    return [(name, seconds[name]) for name in names if name in seconds]
