"""The pack's track processor: the one place where Rally hands a race to us.

In race control it starts the session; in all other processes it only expands the schedule.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from esrally import config, paths
from esrally.track import loader
from esrally.utils import console

from esrally_ebs import corpus
from esrally_ebs.arms import Load
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.rally import failure, interrupt, reporting, takeover
from esrally_ebs.rally.activation import Activation, install
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.rally.schedule import clusters, expand
from esrally_ebs.rally.settings import PLAIN, RaceSettings, race_settings
from esrally_ebs.rally.signatures import require_signatures
from esrally_ebs.session import Live
from esrally_ebs.store import SessionFolder

LOG = logging.getLogger(__name__)


class Pack(loader.TrackProcessor):  # type: ignore[misc]
    """Turns a challenge into a session over arms and starts what it needs."""

    def __init__(self) -> None:
        self.cfg: Any = None  # set by Rally
        self.downloader: Any = None  # set by Rally
        self.decompressor: Any = None  # set by Rally

    def on_after_load_track(self, track: Any) -> None:
        """Expand the schedule; in race control, also start the session."""
        failure.speak_plainly()
        settings = race_settings(self.cfg)
        if not settings.managed:
            _leave_to_rally(self.cfg)
            _name_corpus(track)
            return
        require_signatures()
        selected = _selected(track, settings)
        copies_dataset = not any(task.operation.type == "bulk" for task in selected.schedule)
        _size_corpus(track, settings)
        for challenge in track.challenges:
            challenge.schedule = expand(challenge.schedule, settings.plan)
        if settings.in_race_control and not self.cfg.exists("driver", "ebs.activation"):
            node = settings.plan.node
            load = Load(
                settings=load_settings(node.car, node.params),
                copies_dataset=copies_dataset,
                index_body=track.indices[0].body,
                prepare_corpus=lambda: self._prepare_corpus(track, settings),
            )
            self._start(load, settings)

    def on_prepare_track(
        self, track: Any, data_root_dir: str
    ) -> Iterator[tuple[Callable[..., None], dict[str, Any]]]:
        """Generate the synthetic documents that the challenge indexes where Rally looks for them."""
        seed = race_settings(self.cfg).plan.dataset.seed
        for rally_corpus in loader.used_corpora(track):
            directory = loader.data_dir(self.cfg, track.name, rally_corpus.name)[-1]
            for documents in rally_corpus.documents:
                if not documents.has_compressed_corpus():
                    wanted = {"documents": documents.number_of_documents, "seed": seed}
                    yield _generate, {"directory": directory, **wanted}

    def _start(self, load: Load, settings: RaceSettings) -> None:
        hosts = self.cfg.opts("driver", "load_driver_hosts", mandatory=False, default_value=["localhost"])
        if list(hosts) != ["localhost"]:
            raise SetupError(
                f"load driver hosts {', '.join(hosts)}: caches are dropped where the load is made, so "
                "it must be made on this host; remove --load-driver-hosts"
            )
        plan = settings.plan
        names = [arm.name for arm in plan.arm]
        live = Live(settings.race_id, takeover.main_process())

        def complete() -> None:
            recorded = Path(paths.race_root(self.cfg)) / "race.json"
            SessionFolder(context.folder).write_file("race.json", recorded.read_text())
            try:
                console.println(live.complete())
            finally:  # what cannot be compared is kept there, too
                reporting.keep(self.cfg, Path(context.folder), warn=console.warn)

        takeover.watch_the_end(complete=complete, ended=live.end, first_fault=live.first_fault)
        with interrupt.hearing_cancel():
            context = live.start(
                plan,
                clusters=clusters(names),
                load=load,
                say=lambda text: console.info(text, logger=LOG),
            )
        install(context.path)
        takeover.use_nodes(self.cfg, context.arms, Activation(context.path))

    def _prepare_corpus(self, track: Any, settings: RaceSettings) -> Path:
        """The track's documents where Rally looks for them: fetched (``documents:full``) or generated."""
        rally_corpus = track.corpora[0]
        documents = rally_corpus.documents[0]
        directory = Path(loader.data_dir(self.cfg, track.name, rally_corpus.name)[-1])
        plan = settings.plan
        if documents.has_compressed_corpus():
            preparator = loader.DocumentSetPreparator(track.name, self.downloader, self.decompressor)
            preparator.prepare_document_set(documents, str(directory))
            return directory / str(documents.document_file)
        made = corpus.ensure(directory, documents=documents.number_of_documents, seed=plan.dataset.seed)
        return made.path


def _generate(directory: str, documents: int, seed: int) -> None:
    """In one of Rally's preparing processes; those of a session find what race control has made."""
    console.info(f"Generating {documents:,} documents in {directory}, unless they are there", logger=LOG)
    corpus.ensure(Path(directory), documents=documents, seed=seed)


def _leave_to_rally(cfg: Any) -> None:
    """Tell this race's other processes, which do not know its pipeline, that the user started the nodes."""
    cfg.add(config.Scope.benchmark, "driver", PLAIN, True)


def _name_corpus(track: Any) -> None:
    """Name the synthetic corpus as we generate it; Rally's ``--test-mode`` changes its name and size."""
    documents = track.corpora[0].documents[0]
    if not documents.has_compressed_corpus():
        documents.document_file = f"documents-{documents.number_of_documents}.json"


def _size_corpus(track: Any, settings: RaceSettings) -> None:
    """Let the plan decide how many documents there are; the template only knows the parameter."""
    wanted = settings.plan.dataset.documents
    documents = track.corpora[0].documents[0]
    if documents.has_compressed_corpus() != (wanted == "full") and not settings.test_mode:
        raise PlanError(
            f"plan {settings.plan.name}: dataset.documents: say 'full' as --track-params=documents:full"
        )
    if wanted != "full":
        documents.number_of_documents = wanted
        _name_corpus(track)


def _selected(track: Any, settings: RaceSettings) -> Any:
    """The challenge that Rally will race: the named one or the track's default."""
    name = settings.plan.race.challenge if settings.plan.race and settings.in_race_control else None
    for challenge in track.challenges:
        if challenge.name == name or (name is None and challenge.default):
            return challenge
    known = ", ".join(challenge.name for challenge in track.challenges)
    raise PlanError(f"challenge {name}: track {track.name} has none of that name; choose one of {known}")
