"""A source of a dataset: runs a track's own indexing once, on a node apart from the race."""

import asyncio
import copy
import hashlib
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from esrally import exceptions
from esrally import track as rally_track
from esrally.driver import driver, runner, scheduler
from esrally.track import loader, params
from esrally.utils.error_behavior import OnErrorBehavior

from esrally_ebs.errors import PlanError, SetupError, near
from esrally_ebs.model import Node
from esrally_ebs.node import api
from esrally_ebs.node.data_directory import end_upkeep
from esrally_ebs.node.dataset import MERGE_ROOM, require_all
from esrally_ebs.rally import any_track, open_loop
from esrally_ebs.rally.schedule import OURS, PAGED, SEARCH_TAG, SEARCHES, before_tasks, is_search, may_index
from esrally_ebs.rally.settings import use_nodes
from esrally_ebs.units import MIB
from esrally_ebs.workload.queries import replay

LOG = logging.getLogger(__name__)

_BULK = {"bulk-size": 5000, "include-in-reporting": False}
_BULK_BYTES = 8 * MIB  # most of a request: a node of 512 MiB refuses several of 51 MiB at once
# Errors of a node without the module, about a path, field, setting, analyzer, pipeline or script.
_NEEDS_MODULE = re.compile(
    r" for uri \[|No handler for type|plugins are installed|failed to find \w+ under name|Unknown \w+ type"
    r"|No processor type exists|lang not supported"
)
_BULK_CLIENTS = 2  # enough to keep two cores busy together with Elasticsearch's own threads


@dataclass(frozen=True, kw_only=True)
class TrackIndexing:
    """A source that runs a track's tasks; see ``node.dataset.Source``."""

    cfg: Any  # Rally's
    track: Any  # with one challenge that has only these tasks
    corpora: Mapping[str, Any]  # facts that decide documents but are not in the track
    prepare: Callable[[], object]  # makes the documents ready
    repository: None = None

    @property
    def label(self) -> str:
        return f"track {self.track.name}"

    @property
    def _tasks(self) -> list[Any]:
        return [task for element in self.track.challenges[0].schedule for task in element]

    def require(self, image: str) -> None:
        """Accept any node."""

    def shape(self) -> Mapping[str, Any]:
        """Tasks, indices, templates, documents and the track's own code."""
        track = self.track
        parts = (*track.indices, *track.data_streams, *track.templates)
        parts = (*parts, *track.composable_templates, *track.component_templates)
        given = track.challenges[0].parameters
        code = hashlib.sha256()
        for path in _code(Path(track.root)):
            code.update(path.read_bytes())
        return {
            "tasks": [[each.clients, *map(repr, each)] for each in track.challenges[0].schedule],
            "parts": [repr(sorted(vars(part).items())) for part in parts],
            "documents": [
                repr(sorted(vars(each).items())) for corpus in track.corpora for each in corpus.documents
            ],
            "corpora": self.corpora,
            "code": code.hexdigest(),
            **({"files": files} if (files := list(self._own_files())) else {}),
            **({"parameters": repr(sorted(given.items()))} if given else {}),
        }

    def _own_files(self) -> Iterator[list[Any]]:
        """Name, size and time of each file beside the track that shapes the index, and may be changed.

        These are its documents and, if its own code takes part, all that this may read.
        """
        root = Path(self.track.root)
        known = {root / "track.json"}  # or made by Rally
        for corpus in self.track.corpora:
            for documents in corpus.documents:
                beside, *downloaded = loader.data_dir(self.cfg, self.track.name, corpus.name)
                path = Path(beside, documents.document_archive or documents.document_file or "")
                unpacked = Path(beside, documents.document_file or "")
                known |= {path, unpacked, Path(f"{unpacked}.offset")}
                if downloaded and path.is_file():
                    yield [path.name, *_size_and_time(path)]
        if any(map(_is_own_code, self._tasks)):
            for path in sorted({*_visible(root)} - known):
                if path.is_file() and path.suffix not in (".py", ".pyc"):  # code is compared as such
                    yield [str(path.relative_to(root)), *_size_and_time(path)]

    def room_bytes(self) -> float:
        """The documents' size, as an index is about as large, and as much again for merges."""
        with self._one_line("documents"):
            self.prepare()
        loader.set_absolute_data_path(self.cfg, self.track)
        return MERGE_ROOM * self._indexed_bytes()

    def _indexed_bytes(self) -> float:
        """Size of what each bulk task indexes of its documents; at least of all if one does not say which."""
        bulks = [task for task in self._tasks if task.operation.type == "bulk"]
        sources = [loader.operation_parameters(self.track, task) for task in bulks]
        parts = [_part_bytes(source) for source in sources if hasattr(source, "corpora")]
        whole = sum(path.stat().st_size for path in self._files())
        return sum(parts) if parts and len(parts) == len(sources) else max(sum(parts), whole)

    def _files(self) -> Mapping[Path, int]:
        """Existing files to index, with their number of documents."""
        documents = [each for corpus in loader.used_corpora(self.track) for each in corpus.documents]
        files = {Path(each.document_file): each.number_of_documents for each in documents}
        return {path: count for path, count in files.items() if path.is_file()}

    def _fit_bulk_size(self) -> None:
        """In tasks of our own making, send fewer documents at once if they are large."""
        if not self.track.challenges[0].auto_generated:
            return
        sizes = (path.stat().st_size / max(count, 1) for path, count in self._files().items())
        largest = max((1.0, *sizes))
        for task in self._tasks:
            if "bulk-size" in task.operation.params:
                size = min(_BULK["bulk-size"], int(_BULK_BYTES / largest))
                task.operation.params["bulk-size"] = max(1, size)

    def _keep_settings(self) -> None:
        """Make transient cluster settings persistent: the arms' nodes are not this one."""
        for task in self._tasks:
            body, path = task.operation.params.get("body"), str(task.operation.params.get("path"))
            sets = task.operation.type == "put-settings" or path.startswith("/_cluster/settings")
            if sets and isinstance(body, dict) and "transient" in body:
                body["persistent"] = {**body.get("persistent", {}), **body.pop("transient")}

    def lay_out(self, data: Path) -> None:
        """Nothing: the node starts empty."""

    def build(self, node: Node) -> None:
        """Run the tasks in order. Raises SetupError for one that fails."""
        self._fit_bulk_size()
        self._keep_settings()
        use_nodes(self.cfg, {"default": node})
        with self._one_line("indexing"), _registered(self.cfg, self.track.name):
            for element in self.track.challenges[0].schedule:
                for task in element:
                    if task.operation.type == "cluster-health":
                        require_green(task.name, task.operation.params, node)
                places = [(task, number) for task in element for number in range(task.clients)]
                # a parallel element may have fewer clients, which then run further tasks
                for first in range(0, len(places), element.clients):
                    asyncio.run(self._run(places[first : first + element.clients]))
        end_upkeep(node)  # policies, for example, that the tasks created
        self._require_all(node)

    @contextmanager
    def _one_line(self, what: str) -> Iterator[None]:
        """Turn Rally's errors into an EbsError, and what it made of Ctrl-C back into that."""
        try:
            yield
        except exceptions.RallyError as error:
            if isinstance(error.__context__, asyncio.CancelledError):
                raise KeyboardInterrupt from error
            text = " ".join(str(error).split()).rstrip(".")[:400]
            way = "or see Rally's log"
            if _NEEDS_MODULE.search(text):
                way = "or set ES_IMAGE to an image that has the module (the one that set-up builds has none)"
            raise SetupError(f"{what} of {self.label}: {text}; mend the track, {way}") from error

    def _require_all(self, node: Node) -> None:
        """Raise MeasurementError if our own indexing did not index exactly the track's documents."""
        if self.track.challenges[0].auto_generated:
            sent = sum(each.number_of_documents for corpus in self.track.corpora for each in corpus.documents)
            require_all(api.get(node.port, "/_count?expand_wildcards=open,hidden")["count"], sent, self.label)

    async def _run(self, places: Sequence[tuple[Any, int]]) -> None:
        allocations = [
            driver.ClientAllocation(client, driver.TaskAllocation(task, number, client, len(places)))
            for client, (task, number) in enumerate(places)
        ]
        contexts = {client: driver.ClientContext(client, 0) for client, _ in allocations}
        run = driver.AsyncIoAdapter(
            self.cfg,
            self.track,
            allocations,
            _NoSamples(),
            threading.Event(),
            threading.Event(),
            OnErrorBehavior.ABORT,
            contexts,
            0,
        )
        await run.run()


def require_green(task: str, params: Mapping[str, Any], node: Node) -> None:
    """Raise PlanError for a task that waits for replicas that one node cannot have; Rally would not end."""
    wanted = str((params.get("request-params") or {}).get("wait_for_status"))
    if wanted.lower() != "green":
        return
    index = quote(str(params.get("index") or "_all"), safe="")
    settled = "wait_for_events=languid&wait_for_no_initializing_shards=true&timeout=20s"
    try:
        health = api.get(node.port, f"/_cluster/health/{index}?{settled}", timeout_s=30.0)
    except SetupError:  # the index does not exist yet; the task says what it waits for
        return
    if health["status"] == "yellow" and health["number_of_nodes"] == 1:
        raise PlanError(
            f"task {task}: waits for status green, and {health['unassigned_shards']} replicas need "
            "another node; give indices none, by the track's parameter if it has one (number_of_replicas:0), "
            "or set node.count"
        )


def _code(root: Path) -> list[Path]:
    """The track's own code, with imported packages in or beside it and the data that these read.

    Packages are beside it in elastic/logs, and in it in eventdata, whose sources draw from JSON files.
    """
    packages = {
        path
        for name, module in list(sys.modules.items())
        for path in map(Path, getattr(module, "__path__", ()))
        if path.parent == root.parent or (name.startswith(f"{root.name}.") and root in path.parents)
    }
    files = {*root.rglob("*.py"), *(path for package in packages - {root} for path in _visible(package))}
    # an editor's lock is no file
    return sorted(path for path in files if path.is_file() and path.suffix != ".pyc")


def _part_bytes(source: Any) -> float:
    """Size of the part of its documents that a parameter source of Rally's for bulk requests takes."""
    documents = [each for corpus in source.corpora for each in corpus.documents]
    paths = [Path(each.document_file) for each in documents]
    share = getattr(source, "ingest_percentage", 100.0) / 100
    if most := getattr(source, "ingest_doc_count", None):
        share = most / sum(each.number_of_documents for each in documents)
    return share * float(sum(path.stat().st_size for path in paths if path.is_file()))


def _is_own_code(task: Any) -> bool:
    """Whether a task's requests are made or sent by the track's own code."""
    types = {kind.to_hyphenated_string() for kind in rally_track.OperationType}
    return task.operation.param_source not in (None, "file-reader") or task.operation.type not in types


def _size_and_time(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mtime_ns


def _visible(folder: Path) -> Iterator[Path]:
    """Files below the folder except hidden ones (such as .git), which do not affect documents."""
    for path in folder.rglob("*"):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            yield path


class _NoSamples:
    """A sampler that measures nothing."""

    def add(self, *_: object) -> None:
        """Discard the sample."""


@contextmanager
def _registered(cfg: Any, track_name: str) -> Iterator[None]:
    """Register Rally's and the track's own runners and schedulers during the block."""
    runner.register_default_runners(cfg)
    registries = (runner.register_runner, scheduler.register_scheduler)
    schedulers = vars(scheduler)["__SCHEDULERS"]
    before = dict(schedulers)
    try:
        try:
            loader.load_track_plugins(cfg, track_name, *registries)
        except exceptions.SystemSetupError as error:
            any_track.refuse(error)
        yield
    finally:
        vars(runner)["__RUNNERS"].clear()  # the race's processes register their own
        schedulers.clear()  # and would be refused inherited names
        schedulers.update(before)


def require_raceable(cfg: Any, track: Any) -> None:
    """Raise PlanError for what Rally would refuse once nodes run: an unknown challenge, source or runner."""
    wanted = cfg.opts("track", "challenge.name", mandatory=False)
    names = [each.name for each in track.challenges]
    if wanted and wanted not in names:
        raise PlanError(
            f"--challenge {wanted}: track {track.name} has none of that name; it has {', '.join(names)}"
            f"{near(wanted, names)}"
        )
    challenge = track.selected_challenge_or_default
    _require_chosen(cfg, track.name, challenge.name)
    if not challenge.schedule:
        raise PlanError(
            f"challenge {challenge.name}: --include-tasks or --exclude-tasks leaves no task of it; "
            "give names as the track has them"
        )
    with _registered(cfg, track.name):
        for task in (task for element in challenge.schedule for task in element):
            if reason := _refusal(track, task):
                raise PlanError(
                    f"task {task.name} ({task.operation.type}): {reason.rstrip('.')}; mend the track"
                )


def _require_chosen(cfg: Any, track: str, challenge: str) -> None:
    """Raise PlanError for an option that names tasks which there are none of: Rally would ignore it."""
    included = cfg.opts("track", "include.tasks", mandatory=False)
    given = included or cfg.opts("track", "exclude.tasks", mandatory=False)
    if not given:
        return
    whole = _as_written(cfg, track)
    flag, where, challenges = "--exclude-tasks", f"track {track}", whole.challenges
    if included:  # what is excluded may be of another challenge, and is then not raced in any case
        flag, where = "--include-tasks (of knee: --task)", f"challenge {challenge}"
        challenges = [whole.find_challenge_or_default(challenge)]
    tasks = [task for each in challenges for element in each.schedule for task in element]
    for name, wanted in zip(given, loader.TaskFilterTrackProcessor(cfg).filters, strict=True):
        if not any(task.matches(wanted) for task in tasks):
            raise PlanError(
                f"{flag} {name}: {where} has no such task{near(name, [task.name for task in tasks])}; "
                "'esrally info --track-path=...' lists them"
            )


def _misnamed(task: Any) -> str:
    """Why a task's schedule or parameter source cannot be what it names; "" if they can."""
    name = task.operation.param_source
    for ours in OURS & {task.schedule, task.operation.type, name}:
        return f"{ours!r} is what the pack itself calls so; give yours another name"
    if name and name not in vars(params)["__PARAM_SOURCES_BY_NAME"]:
        return f"no parameter source is registered as {name!r}"
    if task.schedule == open_loop.ARRIVALS and name != replay.PARAM_SOURCE:
        return f"schedule {task.schedule!r} is the times of an imported log, and its requests are of none"
    return ""


def _refusal(track: Any, task: Any) -> str:
    """Why Rally cannot run a task; "" if it can."""
    if reason := _misnamed(task):
        return reason
    if task.operation.type == "composite" and (part := _misfit(task.operation.params.get("requests", []))):
        return f"its requests have {part:.80}, which is nothing that Rally does in a composite operation"
    try:
        runner.runner_for(task.operation.type)
        scheduler.scheduler_for(task)
        task.error_behavior(OnErrorBehavior.ABORT)  # raises for an unknown ignore-response-error-level
        rate, units = task.target_throughput, _units(task.operation)
        if rate and units and rate.unit not in units:
            return f"target-throughput: {rate.unit!r} is not what Rally counts of it, {' or '.join(units)}"
        if task.operation.param_source != replay.PARAM_SOURCE:  # which reads all of a log for each template
            loader.operation_parameters(track, task)
    except exceptions.RallyError as error:
        return str(error)
    except Exception:  # the track's own code, which may need what is prepared later
        LOG.exception("Cannot make parameters of task [%s] yet", task)
    return ""


def _misfit(requests: Any) -> str:
    """What Rally would refuse in a composite operation; "" if nothing."""
    if not isinstance(requests, list):
        return repr(requests)
    able = runner.Composite().supported_op_types
    for part in requests:
        if isinstance(part, dict) and "stream" in part:
            misfit = _misfit(part["stream"])
        else:
            kind = part.get("operation-type") if isinstance(part, dict) else part
            misfit = "" if kind in able else repr(kind)
        if misfit:
            return misfit
    return ""


def _units(operation: Any) -> Sequence[str]:
    """Units of a rate that Rally accepts for an operation; empty if its own code decides."""
    kind, is_own = operation.type, operation.param_source is not None
    if kind == "bulk":
        return () if is_own else ("docs/s", "ops/s")
    if kind in PAGED or (kind == "search" and (is_own or "pages" in operation.params)):
        return "pages/s", "ops/s"
    return ("ops/s",) if kind in SEARCHES else ()


def _as_written(cfg: Any, track: str) -> Any:
    """The track with all of its tasks."""
    tracks = loader.track_repo(cfg, fetch=False, update=False)  # as it was read at first
    return loader.TrackFileReader(cfg).read(track, tracks.track_file(track), tracks.track_dir(track))


def tag_searches(track: Any, challenge: Any) -> None:
    """Tag tasks of which the first request tells that they search: one that a parameter source makes."""
    for task in (task for element in challenge.schedule for task in element):
        if task.operation.type not in ("composite", "raw-request") or not task.operation.param_source:
            continue
        asking = copy.copy(task)
        asking.operation = copy.copy(task.operation)
        try:
            asking.operation.params = loader.operation_parameters(track, task).partition(0, 1).params()
            if is_search(asking):
                task.tags = [*task.tags, SEARCH_TAG]
        except Exception:  # the track's own code, which may need what is prepared later
            LOG.exception("Cannot see whether task [%s] searches", task)


def left_out(cfg: Any, track: Any, searches: Sequence[Any]) -> list[Any]:
    """Tasks that build the indices, if ``--include-tasks`` names only these searches of a challenge.

    Indices built from all documents of the track would differ from the challenge's. Empty if no task of the
    challenge builds them.
    """
    if not cfg.opts("track", "include.tasks", mandatory=False):
        return []
    whole = _as_written(cfg, track.name)
    loader.TestModeTrackProcessor(cfg).on_after_load_track(whole)
    challenge = whole.find_challenge_or_default(track.selected_challenge_or_default.name)
    tag_searches(whole, challenge)
    building = before_tasks(challenge.schedule, {task.name for element in searches for task in element})
    return building if may_index(building) else []


def with_tasks(track: Any, schedule: Sequence[Any]) -> Any:
    """The track with these tasks alone; without any, with tasks that index all documents into all indices."""
    made = copy.copy(track)
    made.corpora = copy.deepcopy(track.corpora)  # its paths are replaced by those of existing files
    challenge = copy.copy(track.selected_challenge_or_default)  # the track's own code reads its parameters
    challenge.schedule, challenge.auto_generated = list(schedule) or _indexing(track), not schedule
    made.challenges = [challenge]
    return made


def _indexing(track: Any) -> list[Any]:
    kinds = [
        *(["create-component-template"] if track.component_templates else []),
        *(["create-composable-template"] if track.composable_templates else []),
        *(["create-index-template"] if track.templates else []),
        *(["create-data-stream"] if track.data_streams else ["create-index"] if track.indices else []),
        "bulk",
        "refresh",
    ]
    return [_task(kind) for kind in kinds]


def _task(kind: str) -> Any:
    operation = rally_track.Operation(kind, kind, params=dict(_BULK if kind == "bulk" else {}))
    return rally_track.Task(kind, operation, clients=_BULK_CLIENTS if kind == "bulk" else 1)
