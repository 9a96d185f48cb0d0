"""The pack's track processor: the one place where Rally hands a race to us.

In race control it starts the session; in all other processes it only expands the schedule.
"""

import logging
from pathlib import Path
from typing import Any

from esrally.track import loader
from esrally.utils import console

from esrally_ebs import corpus
from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.rally import failure, takeover
from esrally_ebs.rally.activation import Activation, install
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.rally.schedule import clusters, expand
from esrally_ebs.rally.settings import RaceSettings, race_settings
from esrally_ebs.rally.signatures import require_signatures
from esrally_ebs.session import Live, Load

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
        require_signatures()
        settings = race_settings(self.cfg)
        if not settings.managed:
            return
        selected = _selected(track, settings)
        copies_dataset = not any(task.operation.type == "bulk" for task in selected.schedule)
        _size_corpus(track, settings)
        for challenge in track.challenges:
            challenge.schedule = expand(challenge.schedule, settings.plan)
        if settings.in_race_control and not self.cfg.exists("driver", "ebs.activation"):
            load = Load(
                challenge=selected.name,
                copies_dataset=copies_dataset,
                index_body=track.indices[0].body,
                prepare_corpus=lambda: self._prepare_corpus(track, settings),
            )
            self._start(load, settings)

    def _start(self, load: Load, settings: RaceSettings) -> None:
        hosts = self.cfg.opts("driver", "load_driver_hosts", mandatory=False, default_value=["localhost"])
        if list(hosts) != ["localhost"]:
            raise SetupError(
                f"load driver hosts {', '.join(hosts)}: caches are dropped where the load is made, so it must be "
                "made on this host; remove --load-driver-hosts"
            )
        plan = settings.plan
        names = [arm.name for arm in plan.arm]
        live = Live(settings.race_id, takeover.main_process())
        takeover.watch_the_end(
            complete=lambda: console.println(live.complete()), ended=live.end, last_fault=live.last_fault
        )
        context = live.start(
            plan,
            node_settings=load_settings(plan.node.car, plan.node.params),
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


def _size_corpus(track: Any, settings: RaceSettings) -> None:
    """Let the plan decide how many documents there are; the track's template only knows the track parameter."""
    wanted = settings.plan.dataset.documents
    documents = track.corpora[0].documents[0]
    if documents.has_compressed_corpus() != (wanted == "full") and not settings.test_mode:
        raise PlanError(
            f"plan {settings.plan.name}: dataset.documents: 'full' must be said as --track-params=documents:full"
        )
    if wanted != "full":
        documents.number_of_documents = wanted
        documents.document_file = f"documents-{wanted}.json"


def _selected(track: Any, settings: RaceSettings) -> Any:
    """The challenge that Rally will race: the named one or the track's default."""
    name = settings.plan.race.challenge if settings.plan.race and settings.in_race_control else None
    for challenge in track.challenges:
        if challenge.name == name or (name is None and challenge.default):
            return challenge
    known = ", ".join(challenge.name for challenge in track.challenges)
    raise PlanError(f"challenge {name}: track {track.name} has none of that name; choose one of {known}")
