"""The pack's track processor: where Rally hands a race over to us.

In race control it starts the session; in all other processes it only expands the schedule.
"""

import contextlib
import gc
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import psutil
from esrally import config, exceptions, paths, racecontrol
from esrally.track import loader
from esrally.utils import console, process

from esrally_ebs.errors import EbsError, PlanError, SetupError
from esrally_ebs.machine.procfs import CLOSE_WAIT, ESTABLISHED, parse_tcp
from esrally_ebs.machine.resources import sockets_wanted
from esrally_ebs.node.data_directory import DataDirectory
from esrally_ebs.node.dataset import Source
from esrally_ebs.node.snapshot import Snapshot
from esrally_ebs.plan import Plan
from esrally_ebs.rally import any_track, local_actors, metrics_store, patches
from esrally_ebs.rally.activation import ACTIVATION, Activation, install
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.rally.coordinator_service import CoordinatorService, address_towards, require_able_elsewhere
from esrally_ebs.rally.indexing import TrackIndexing, left_out, require_raceable, tag_searches, with_tasks
from esrally_ebs.rally.patches.outcome import is_rally_process
from esrally_ebs.rally.request_source import require_requests
from esrally_ebs.rally.sample_recorder import line_writer
from esrally_ebs.rally.schedule import (
    SEARCH_TAG,
    divide,
    expand,
    is_idle,
    is_search,
    loads,
    settled,
    untold,
    writes_of,
)
from esrally_ebs.rally.settings import (
    PLAIN,
    RaceSettings,
    naming,
    race_settings,
    require_arms,
    require_own_nodes,
    updated,
    use_nodes,
)
from esrally_ebs.session.asking import Say
from esrally_ebs.session.protocol import LiveSession
from esrally_ebs.session.steps import MachineSteps, RaceNodes, objects_of
from esrally_ebs.units import one_line
from esrally_ebs.workload import corpus

_POLL_S = 0.2
_WAKE_UP = "BuMP"  # Thespian's own (MultiprocessQueueTransport.interrupt_run)
_TABLE = Path("/proc/net/tcp")

_IN_TURN = (
    "tasks {}: run in parallel in the track; here they take turns, since else how long one takes would "
    "depend on what others do just then, on each volume something else"
)

LOG = logging.getLogger(__name__)


@contextmanager
def hearing_cancel(waits: Callable[[], bool] | None = None, *, poll_s: float = _POLL_S) -> Iterator[None]:
    """During the block, a message for this actor raises SIGINT in this process.

    Rally's actors form a session of their own that the terminal's signals do not reach. Its command asks race
    control to cancel by a message, which is read only when the track has been loaded, perhaps minutes later.
    Race control has no other actors yet, so the first message can only be the command's wish to end. It must
    wait for two looks in a row: this process has inherited ports of actors that read theirs at once.
    ``waits`` is what a look finds, by default whether a message waits.
    """
    look = waits or _mailbox() or message_waits
    done = threading.Event()

    def listen() -> None:
        waited = False
        while not done.wait(poll_s):
            waits_now = look()
            if waits_now and waited:
                os.kill(os.getpid(), signal.SIGINT)
                return
            waited = waits_now

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _mailbox() -> Callable[[], bool] | None:
    """Checks whether race control's queue holds a message; None if it uses a port, or runs elsewhere."""
    control = next((each for each in gc.get_objects() if isinstance(each, racecontrol.BenchmarkActor)), None)
    core = getattr(control._myRef.transport, "_QCore", None) if control else None
    return None if core is None else partial(holds_message, core.mainLocalInputQueueEndpoint())


def holds_message(mailbox: "Queue[Any]") -> bool:
    """Whether an actor's queue holds another actor's message; leaves all messages in it.

    A thread of this process that logs also puts a word into the queue, to wake up its own actor.
    """
    waiting = []
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.append(mailbox.get_nowait())
    messages = [each for each in waiting if each != _WAKE_UP]
    for each in (*messages, *([_WAKE_UP] if len(messages) < len(waiting) else [])):
        mailbox.put(each)
    return bool(messages)


def message_waits() -> bool:
    """Whether unread data have arrived at a port of this process, on accepted connections or not.

    A connection alone is no message: Rally's command also connects and hangs up silently.
    """
    own = psutil.Process().connections(kind="tcp")
    ports = {one.laddr.port for one in own if one.status == psutil.CONN_LISTEN}
    return any(
        one.local_port in ports and one.state in (ESTABLISHED, CLOSE_WAIT) and one.unread_bytes > 0
        for one in parse_tcp(_TABLE.read_text(), str(_TABLE))
    )


def main_process() -> int | None:
    """Pid of the ``esrally`` command that started this race; None if it runs on another machine.

    The actor system leaves the command's process tree and session, so the command is no ancestor of race
    control. Rally allows only one race at a time on a machine.
    """
    commands = []
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            # a newly forked actor still has the command's name
            is_race = is_rally_process(process.is_rally_process, candidate)
            if is_race and os.getsid(candidate.pid) != os.getsid(0):
                commands.append((candidate.create_time(), candidate.pid))
    return min(commands)[1] if commands else None


class Pack(loader.TrackProcessor):  # type: ignore[misc]
    """Turns a challenge into a session over arms, and starts the session."""

    def __init__(self, plan: str = "", *, of_track: bool = True) -> None:
        self._plan = plan  # used if the track parameter names none
        self._of_track = of_track  # whether the track's parameters may be the pack's
        self.cfg: Any = None  # set by Rally
        self.downloader: Any = None  # set by Rally
        self.decompressor: Any = None  # set by Rally

    def on_after_load_track(self, track: Any) -> None:
        """Expand the schedule; in race control, also start the session."""
        patches.install([patches.FAILURE])
        settings = race_settings(self.cfg, self._plan, of_track=self._of_track)
        _require_number(track, settings)
        if not settings.managed:
            require_arms(self.cfg)
            # for this race's other processes, which do not know its pipeline: the user started the nodes
            self.cfg.add(config.Scope.benchmark, "driver", PLAIN, True)
            _name_corpora(track)
            return
        patches.require_signatures()
        _size_corpus(track, settings)
        starts = settings.in_race_control and not self.cfg.exists("driver", ACTIVATION)
        challenge = track.selected_challenge_or_default
        whole = challenge.schedule = list(filter(list, challenge.schedule))  # without elements left empty
        if starts:
            require_own_nodes(self.cfg)
            require_raceable(self.cfg, track)
        tag_searches(track, challenge)
        building, searches = divide(challenge.schedule)
        building = [] if searches and all(map(is_idle, building)) else building
        telemetry = self.cfg.opts("telemetry", "devices", mandatory=False, default_value=None) or ()
        settings = replace(settings, plan=settled(settings.plan, track, building, searches, telemetry))
        challenge.schedule = expand(challenge.schedule, settings.plan)
        if starts:
            require_requests(track, challenge.schedule)
            plan = updated(settings.plan, "race", track=track.name, challenge=challenge.name)
            indexing = with_tasks(track, building or left_out(self.cfg, track, searches))
            nodes = RaceNodes(
                settings=replace(
                    load_settings(plan.node.car, plan.node.params), keeps_port=plan.design.starts > 1
                ),
                source=self._source(indexing, plan) if searches else None,
                prepare_corpus=lambda: self._prepare(indexing),
                has_writes=bool(writes_of(searches)),
                also_at=self._address(plan, challenge.schedule),
                loads=loads(searches or building),
            )
            settings = replace(settings, plan=plan)
            notes = (
                _untold(building, bool(searches), plan.dataset.is_own),
                _left_undone(building, plan),
                _taken_for_searches(searches, plan),
                _idle(whole, [*building, *searches]),
                *map(_IN_TURN.format, turns := _in_parallel(searches, plan)),
            )
            self._start(nodes, settings, notes, turns)

    def on_prepare_track(
        self, track: Any, data_root_dir: str
    ) -> Iterator[tuple[Callable[..., None], dict[str, Any]]]:
        """Generate the challenge's synthetic documents where Rally looks for them."""
        seed = race_settings(self.cfg, self._plan, of_track=self._of_track).plan.dataset.seed
        for rally_corpus in filter(_kind, loader.used_corpora(track)):
            directory = loader.data_dir(self.cfg, track.name, rally_corpus.name)[-1]
            for documents in rally_corpus.documents:
                wanted = {"documents": documents.number_of_documents, "kind": _kind(rally_corpus)}
                part = int(rally_corpus.meta_data.get("part", 0))  # each has its own documents
                yield _generate, {"directory": directory, "seed": seed + part, **wanted}

    def _start(self, nodes: RaceNodes, settings: RaceSettings, notes: Iterable[str], turn: list[str]) -> None:
        local_actors.require_closed()
        service = CoordinatorService(nodes.also_at) if nodes.also_at else None
        load_may_go = service.end if service else lambda: None
        is_quiet = bool(self.cfg.opts("system", "quiet.mode", mandatory=False, default_value=False))
        write = line_writer(is_quiet)

        def say(text: str) -> None:
            line = one_line(text)  # may contain a data host's output
            console.info(line, logger=LOG)
            write(line)

        for note in filter(None, notes):
            say(note)
        main_pid = main_process()
        steps = MachineSteps(settings.race_id, settings.plan, race=nodes, main_pid=main_pid, say=say)
        live = LiveSession(steps, warn=_loud(say) if is_quiet else say)
        patches.install(patches.RACE_CONTROL, RaceEnd(live, self.cfg, is_quiet, load_may_go))
        with hearing_cancel():
            context = live.prepare()
        for names in turn:
            live.folder.note("in-turn", text=names)
        install(context.path, write)
        use_nodes(self.cfg, {arm.cluster: arm.nodes[0] for arm in context.arms if arm.nodes}, nodes.also_at)
        activation = Activation(context.path, is_quiet)
        if service is not None:
            service.start()
            activation.coordinator = service.coordinator
        self.cfg.add(config.Scope.benchmark, "driver", ACTIVATION, activation)

    def _address(self, plan: Plan, schedule: Sequence[Any]) -> str:
        """This machine's address for hosts that make the load; "" if this machine makes it.

        Raises SetupError or PlanError for what other hosts cannot do.
        """
        if plan.host:
            require_able_elsewhere(plan, schedule, "remove the hosts")
        hosts = self.cfg.opts("driver", "load_driver_hosts", mandatory=False, default_value=["localhost"])
        if all(host == "localhost" for host in hosts):
            return ""
        if not sockets_wanted():
            raise SetupError(
                f"load driver hosts {', '.join(hosts)}: Rally's actors talk by queues here; set "
                "ESRALLY_EBS_ACTORS=sockets for 'esrallyd start' on all hosts and for 'esrally race'"
            )
        if not self.cfg.opts("system", "remote.benchmarking.supported", mandatory=False, default_value=False):
            raise SetupError(
                f"load driver hosts {', '.join(hosts)}: Rally's daemon does not run here; run "
                "'esrallyd start' on this machine and on all of them"
            )
        require_able_elsewhere(plan, schedule, "drop --load-driver-hosts")
        return address_towards([host for host in hosts if host != "localhost"])

    def _source(self, indexing: Any, plan: Plan) -> Source:
        """Source of the indices that the track searches."""
        dataset = plan.dataset
        names = [each.name for each in (*indexing.indices, *indexing.data_streams)]
        if dataset.data is not None:
            return DataDirectory(path=dataset.data, indices=dataset.indices, searched=names)
        if dataset.snapshot is not None:
            return Snapshot(
                path=dataset.snapshot,
                objects=objects_of(dataset.snapshot),
                indices=dataset.indices,
                searched=names,
            )
        if indexing.challenges[0].auto_generated and not indexing.corpora:
            way = "--set dataset.data=/path" if any_track.parameters() else "--track-params=data:/path"
            raise PlanError(
                f"track {indexing.name}: has no documents to make its indices of; name a data directory that "
                f"has them, {way} (or a snapshot), or race it on nodes that have them, 'esrally race' with "
                "--pipeline=benchmark-only --target-hosts=HOST:PORT"
            )
        generated = (
            {"format": corpus.FORMAT, "seed": dataset.seed} if any(map(_kind, indexing.corpora)) else {}
        )
        return TrackIndexing(
            cfg=self.cfg, track=indexing, corpora=generated, prepare=lambda: self._prepare(indexing)
        )

    def _prepare(self, indexing: Any) -> None:
        """Make all documents available to Rally: made by the track or by us, already there, or fetched."""
        registry = loader.TrackProcessorRegistry(self.cfg)
        loader.load_track_plugins(
            self.cfg, indexing.name, register_track_processor=registry.register_track_processor
        )
        for each in registry.processors:
            for prepare, wanted in each.on_prepare_track(
                indexing, self.cfg.opts("benchmarks", "local.dataset.cache")
            ):
                with _named_archive(getattr(wanted.get("document_set"), "document_archive", None)):
                    prepare(**wanted)


@contextmanager
def _named_archive(name: str | None) -> Iterator[None]:
    """Turn what the archive's own library raises into a SetupError with its name."""
    try:
        yield
    except (exceptions.RallyError, EbsError):
        raise
    except Exception as error:
        if name is None or getattr(error, "strerror", None):  # a full disk, for example
            raise
        raise SetupError(
            f"documents {name}: Rally cannot fetch or unpack them ({type(error).__name__}: {error}); see "
            "that the file is whole, or put a whole one in its place, and remove what was unpacked of it"
        ) from error


class RaceEnd:
    """Ends the session with the race."""

    def __init__(self, live: LiveSession, cfg: Any, is_quiet: bool, load_may_go: Callable[[], None]) -> None:
        self._cfg = cfg
        self._live = live
        self._is_quiet = is_quiet
        self.load_may_go = load_may_go
        self.first_fault = live.first_fault
        self.why = ""  # Rally's reason for a failed race
        local_actors.stay()

    def fail(self, error: EbsError) -> None:
        """Record why the race cannot continue, and take down what is left."""
        self.load_may_go()
        self._live.fail(error)
        local_actors.leave()

    def end(self, cancelled: bool) -> None:
        """Take down what is left, however the race ended; may be called twice."""
        self.load_may_go()
        self._live.end(cancelled, self.why)
        local_actors.leave()

    def complete(self) -> None:
        """Keep Rally's own record, print the report, and send the session to Rally's metrics store."""
        recorded = Path(paths.race_root(self._cfg)) / "race.json"
        self._live.folder.write_file("race.json", recorded.read_text())
        try:
            console.println(self._live.complete())
        finally:  # sessions that cannot be compared are sent, too
            metrics_store.keep(self._cfg, self._live.folder.path, warn=console.warn)
            local_actors.leave()

    def last_line(self) -> str:
        return "" if self._is_quiet else f"[INFO] The report is {self._live.folder.path / 'report.html'}\n"


def _loud(say: Say) -> Say:
    """Also prints what is said, as Rally prints errors, with ``--quiet``."""

    def warn(text: str) -> None:
        say(text)
        console.println(f"[WARNING] {one_line(text)}", force=True)

    return warn


def _untold(building: Sequence[Any], before_search: bool, is_own: bool) -> str:
    """Says that tasks which may be searches are not raced as such; "" without any."""
    listed = ", ".join(f"{task.name} ({task.operation.type})" for task in untold(building))
    runs = "once on each arm, not in rounds"
    if before_search:
        runs = "not at all, for the index is yours" if is_own else "once, to make the index, and is not raced"
    return listed and (
        f"task {listed}: nothing tells that it searches, so it runs {runs}; if it does, "
        f'say so in the track, "tags": "{SEARCH_TAG}"'
    )


def _left_undone(building: Sequence[Any], plan: Plan) -> str:
    """Says which tasks do not run as the indices are the user's; "" if all of them do."""
    may_search = untold(building)
    names = [task.name for element in building for task in element if task not in may_search]
    return bool(plan.dataset.is_own and names) * (
        f"task {', '.join(names)}: does not run, for the index is yours; it must have what the searches need "
        "of that, such as an alias or a stored script (which no snapshot restores)"
    )


def _taken_for_searches(searches: Sequence[Any], plan: Plan) -> str:
    """That tasks count as searches of which nothing tells it; empty when there are none."""
    assert plan.race is not None
    tasks = [task for element in searches if not element.nested for task in element]
    names = [task.name for task in tasks if not is_search(task)]
    return bool(names) * (
        f"task {', '.join(names)}: nothing tells that it searches; after a search it counts as one, asked "
        f"{plan.race.iterations} times in each round on each arm, and to warm up; if it does something else, "
        f"such as to measure recall, leave it out: {naming(names)}"
    )


def _idle(whole: Sequence[Any], raced: Sequence[Any]) -> str:
    """That tasks of the challenge which are not among these do not run; "" without any."""
    kept = [task for element in raced for task in element]
    names = [task.name for element in whole for task in element if task not in kept]
    return bool(names) * (f"task {', '.join(names)}: changes nothing that a search meets, so it does not run")


def _in_parallel(searches: Sequence[Any], plan: Plan) -> list[str]:
    """Names of searches that the track has in parallel, element by element; a knee's steps mix all."""
    elements = [[task.name for task in element if is_search(task)] for element in searches]
    return [", ".join(names) for names in elements if len(names) > 1 and plan.design.knee is None]


def _generate(directory: str, documents: int, seed: int, kind: str) -> None:
    """Run in one of Rally's preparing processes; those of a session find what race control has made."""
    console.info(f"Generating {documents:,} documents in {directory}, unless they are there", logger=LOG)
    corpus.ensure(Path(directory), documents=documents, seed=seed, kind=kind)


def _kind(rally_corpus: Any) -> str:
    """Kind of our generated documents in a corpus; "" for a corpus of the track's own."""
    kind = str(rally_corpus.meta_data.get("generated"))
    return kind if kind in corpus.RENDERERS else ""


def _name_corpora(track: Any) -> None:
    """Rename generated documents to our names; Rally's ``--test-mode`` changes names and numbers."""
    for documents in _generated(track):
        documents.document_file = f"documents-{documents.number_of_documents}.json"


def _generated(track: Any) -> list[Any]:
    return [documents for made in filter(_kind, track.corpora) for documents in made.documents]


def _require_number(track: Any, settings: RaceSettings) -> None:
    """Raise PlanError if all documents are wanted of a track that generates any number."""
    if settings.plan.dataset.documents == "full" and _generated(track):
        raise PlanError(
            f"plan {settings.plan.name}: dataset.documents: 'full' is of the track noaa-ebs alone, "
            "and only as --track-params=documents:full; give a number"
        )


def _size_corpus(track: Any, settings: RaceSettings) -> None:
    """Let the plan decide the number of generated documents; the template only knows the parameter."""
    generated = _generated(track)
    for documents in generated:
        documents.number_of_documents = max(1, int(settings.plan.dataset.documents) // len(generated))
    _name_corpora(track)
