"""The one place that knows the order of a session's stages, from attaching volumes to taking them down.

plan -> attach arms -> dataset copied to each -> node on each -> (Rally or fio measures) -> report -> take down.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from esrally_ebs import clean, dataset, environment, preflight, reaper, report, volumes
from esrally_ebs import node as nodes
from esrally_ebs.context import Arm, Context
from esrally_ebs.errors import EbsError, MeasurementError, SetupError
from esrally_ebs.model import Check, Event, Node, Phase, State, Volume
from esrally_ebs.plan import Plan
from esrally_ebs.resources import home, run_dir
from esrally_ebs.stats import check_comparable
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the race will do to the nodes, as far as preparing them depends on it."""

    challenge: str
    copies_dataset: bool  # False: every arm indexes by itself
    index_body: Mapping[str, Any]
    prepare_corpus: Callable[[], Path]


class Live:
    """A session that is being made by this process: Rally's race control or our own command."""

    def __init__(self, session: str, main_pid: int | None = None) -> None:
        self.id = session
        self._main_pid = main_pid
        self._folder: SessionFolder | None = None
        self._ended = False

    def start(
        self,
        plan: Plan,
        *,
        clusters: Mapping[str, str],
        node_settings: nodes.NodeSettings | None = None,
        load: Load | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> Context:
        """Attach, copy and start everything; on any error, and on Ctrl-C, take down what was started."""
        try:
            with _interruptible():
                return self._start(plan, clusters, node_settings, load, say)
        except BaseException as error:
            self.fail(error)
            raise

    def _start(
        self,
        plan: Plan,
        clusters: Mapping[str, str],
        node_settings: nodes.NodeSettings | None,
        load: Load | None,
        say: Callable[[str], None],
    ) -> Context:
        preflight.require(plan, with_nodes=load is not None)
        run = clean.write_owner(self.id)
        folder = SessionFolder.create(
            home(), self.id, kind="race" if load else "baseline", plan=plan.model_dump(mode="json")
        )
        self._folder = folder
        watched = [os.getpid(), *([self._main_pid] if self._main_pid else [])]
        reaper.start(self.id, folder.path, watched)
        with _stage(folder, "attach volumes"):
            say(f"Attaching {', '.join(arm.name for arm in plan.arm)}")
            specs = plan.specs()
            if node_settings is not None and node_settings.readahead_bytes is not None:
                specs = tuple(replace(spec, readahead_bytes=node_settings.readahead_bytes) for spec in specs)
            volumes.check_distinct(specs)
            attached = [volumes.attach(spec, run / spec.name) for spec in specs]
            folder.update(arms=attached)  # at once: from here on every output must say what they are
        arms = [Arm(name=v.spec.name, cluster=clusters[v.spec.name], volume=v, node=None) for v in attached]
        if load is not None and node_settings is not None:
            arms = self._with_nodes(folder, arms, plan, node_settings, load, say)
        folder.update(environment=environment.describe([arm.node for arm in arms if arm.node]))
        context = Context(session=self.id, folder=folder.path, run=run, plan=plan, arms=tuple(arms))
        context.save()
        return context

    def _with_nodes(
        self,
        folder: SessionFolder,
        arms: list[Arm],
        plan: Plan,
        settings: nodes.NodeSettings,
        load: Load,
        say: Callable[[str], None],
    ) -> list[Arm]:
        image = nodes.choose_image(os.environ)

        def start(volume: Volume) -> Node:
            return nodes.start(volume, settings, session=self.id, image=image)

        built = None
        if load.copies_dataset:
            with _stage(folder, "build dataset"):
                key = dataset.key_of(
                    documents=plan.dataset.documents,
                    corpus=f"seed {plan.dataset.seed}",
                    index_body=load.index_body,
                    image=image,
                )
                built = dataset.ensure(
                    home(),
                    key,
                    documents=load.prepare_corpus,
                    index_body=load.index_body,
                    start=start,
                    session=self.id,
                    say=say,
                )
            with _stage(folder, "copy dataset"):
                say("Copying the index to every arm")
                for arm in arms:
                    dataset.copy_to(built, arm.volume)
        else:
            with _stage(folder, "prepare corpus"):
                load.prepare_corpus()
        with _stage(folder, "start nodes"):
            say("Starting a node on every arm")
            with ThreadPoolExecutor(len(arms)) as pool:
                started = pool.map(start, [arm.volume for arm in arms])
                arms = [replace(arm, node=node) for arm, node in zip(arms, started, strict=True)]
        if built is not None:
            folder.update(dataset=built.record())
            _check_segments(folder, arms, built)
            _check_page_cache(folder, built, settings)
        else:
            folder.update(dataset={"documents": plan.dataset.documents, "copied": False})
        return arms

    def complete(self) -> str:
        """After the last measurement: take down, report, and return the report as text.

        Raises MeasurementError when what was measured cannot be compared.
        """
        folder = self._require_folder()
        with _stage(folder, "take down"):
            self._take_down()
        _time_measured(folder)
        checks = check_comparable(load_session(folder.path))
        for check in checks:
            folder.add_check(check)
        broken = "; ".join(f"{check.name}: {check.text}" for check in checks if not check.ok)
        folder.finish(State.FAILED if broken else State.COMPLETE, reason=broken)
        self._ended = True
        text = _write_reports(folder)
        if broken:
            raise MeasurementError(f"the arms cannot be compared: {broken}; see {folder.path / 'report.md'}")
        return text

    def end(self, cancelled: bool) -> None:
        """However it ended: leave nothing behind and say what became of it. Idempotent."""
        if self._ended or self._folder is None:
            return
        self._ended = True
        (run_dir() / self.id / "ending").touch()
        fault = self.last_fault()
        problems = self._take_down()
        state = State.CANCELLED if cancelled else State.FAILED
        reason = (
            "cancelled by the user"
            if cancelled
            else fault[0]
            if fault
            else "the race ended early; see Rally's log"
        )
        self._folder.finish(state, reason="; ".join([reason, *problems]))

    def fail(self, error: BaseException) -> None:
        """A stage raised: record why and leave nothing behind."""
        if self._folder is None:
            clean.take_down(self.id)
            return
        cancelled = isinstance(error, KeyboardInterrupt)
        if not cancelled:
            code = error.exit_code if isinstance(error, EbsError) else SetupError.exit_code
            self._folder.event(
                Event(
                    at_s=time.time(),
                    kind="fault",
                    fields={"text": str(error) or repr(error), "exit_code": code},
                )
            )
        self.end(cancelled)

    def last_fault(self) -> tuple[str, int] | None:
        """Text and exit code of the last fault that any process of the session recorded."""
        if self._folder is None:
            return None
        faults = [event for event in self._folder.events() if event.kind == "fault"]
        return (faults[-1].fields["text"], faults[-1].fields["exit_code"]) if faults else None

    def _take_down(self) -> list[str]:
        (run_dir() / self.id / "ending").touch()
        return clean.take_down(self.id)

    def _require_folder(self) -> SessionFolder:
        if self._folder is None:
            raise SetupError("the session was never started")
        return self._folder


def _check_segments(folder: SessionFolder, arms: list[Arm], built: dataset.Dataset) -> None:
    """Every arm must serve the very segments that were built; stored before the first query."""
    for arm in arms:
        assert arm.node is not None
        found = dataset.content_hash(arm.node.data_dir)
        check = Check(
            name=f"segments of {arm.name}",
            ok=found == built.hash,
            value=found[:16],
            text="the same segment files as the dataset"
            if found == built.hash
            else f"dataset has {built.hash[:16]}",
        )
        folder.add_check(check)
        if not check.ok:
            raise MeasurementError(
                f"arm {arm.name}: its node changed the copied segments ({check.value} against {built.hash[:16]}); "
                "arms would not be comparable, see the node's log"
            )


def _check_page_cache(folder: SessionFolder, built: dataset.Dataset, settings: nodes.NodeSettings) -> None:
    room = nodes.page_cache_bytes(settings)
    ratio = built.bytes / room if room > 0 else float("inf")
    folder.add_check(
        Check(
            name="index against page cache",
            ok=True,
            value=f"{ratio:.1f}",
            text=f"the index has {format_bytes(built.bytes)}, a node's page cache room for about {format_bytes(max(room, 0))}",
        )
    )
    if ratio < 2:
        folder.add_warning(
            f"the index is only {ratio:.1f} times a node's page cache; with more documents storage matters more"
        )


@contextmanager
def _stage(folder: SessionFolder, name: str) -> Iterator[None]:
    """Record how long a stage of the session took."""
    started = time.monotonic()
    try:
        yield
    finally:
        folder.event(
            Event(
                at_s=time.time(), kind="stage", fields={"name": name, "seconds": time.monotonic() - started}
            )
        )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end what runs inside. Rally's actors ignore it, and so would the tools that they start."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _time_measured(folder: SessionFolder) -> None:
    """Stage events for what Rally ran, from what it recorded."""
    recorded = load_session(folder.path)
    baselines = sum(event.fields["seconds"] for event in recorded.events if event.kind == "baseline")
    times: list[dict[str, Any]] = recorded.samples.to_pylist()
    spans = {"baselines": baselines}
    for name, wanted in (
        ("indexing", lambda row: row["round"] == 0 and row["phase"] == Phase.MEASURE),
        ("warm-up", lambda row: row["phase"] == Phase.WARMUP),
        ("rounds", lambda row: row["round"] > 0),
    ):
        starts = [row["started_s"] for row in times if wanted(row)]
        spans[name] = max(starts) - min(starts) if starts else 0.0
    for name, seconds in spans.items():
        if seconds:
            folder.event(Event(at_s=time.time(), kind="stage", fields={"name": name, "seconds": seconds}))


def _write_reports(folder: SessionFolder) -> str:
    """Every format into the folder; the text one is returned."""
    built = report.build(load_session(folder.path))
    for form, render in report.RENDERERS.items():
        folder.write_file(f"report.{report.SUFFIX[form]}", render(built))
    return report.RENDERERS["text"](built)
