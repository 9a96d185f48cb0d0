"""From a plan to arms that can be measured: volumes attached, one index copied to each, one node on each.

Each step records itself in the session folder; whoever calls takes down what a failing step leaves.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from esrally_ebs import corpus, dataset, volumes
from esrally_ebs import node as nodes
from esrally_ebs.context import Arm
from esrally_ebs.errors import MeasurementError
from esrally_ebs.model import Check, Event, Node, Volume
from esrally_ebs.plan import Plan
from esrally_ebs.resources import home
from esrally_ebs.store import SessionFolder
from esrally_ebs.units import format_bytes

Say = Callable[[str], None]
_ENOUGH = 2.0  # an index this many times a node's page cache cannot hide the volume for long


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the race needs of the nodes."""

    settings: nodes.NodeSettings
    copies_dataset: bool  # False: every arm indexes by itself
    index_body: Mapping[str, Any]
    prepare_corpus: Callable[[], Path]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The steps of one session up to its first measurement."""

    session: str
    plan: Plan
    run: Path  # the session's run directory
    folder: SessionFolder
    say: Say

    def attach(self, clusters: Mapping[str, str], *, readahead_bytes: int | None = None) -> tuple[Arm, ...]:
        """Attach every arm's volume; ``readahead_bytes`` of its device, None = the kernel's default."""
        specs = self.plan.specs()
        if readahead_bytes is not None:
            specs = tuple(replace(spec, readahead_bytes=readahead_bytes) for spec in specs)
        with stage(self.folder, "attach volumes"):
            self.say(f"Attaching {', '.join(spec.name for spec in specs)}")
            volumes.check_distinct(specs)
            for caveat in (text for spec in specs for text in volumes.caveats(spec)):
                self.folder.add_warning(caveat)
            attached = [volumes.attach(spec, self.run / spec.name, say=self.say) for spec in specs]
        self.folder.update(arms=attached)  # at once: from here on every output must say what they are
        return tuple(
            Arm(name=volume.spec.name, cluster=clusters[volume.spec.name], volume=volume, node=None)
            for volume in attached
        )

    def serve(self, arms: tuple[Arm, ...], load: Load) -> tuple[Arm, ...]:
        """Give every arm its index (unless it indexes by itself) and a node, and check that all are alike."""
        image = nodes.choose_image(os.environ)

        def start(volume: Volume) -> Node:
            return nodes.start(volume, load.settings, session=self.session, image=image)

        built = self._copied(arms, load, image, start) if load.copies_dataset else None
        if built is None:
            with stage(self.folder, "prepare corpus"):
                load.prepare_corpus()
        with stage(self.folder, "start nodes"), ThreadPoolExecutor(len(arms)) as pool:
            self.say("Starting a node on every arm")
            started = list(pool.map(start, [arm.volume for arm in arms]))
        arms = tuple(replace(arm, node=node) for arm, node in zip(arms, started, strict=True))
        if built is None:
            self.folder.update(dataset={"documents": self.plan.dataset.documents, "copied": False})
        else:
            self.folder.update(dataset=built.record())
            self._check_segments(arms, built)
            self._check_page_cache(built, load.settings)
        return arms

    def _copied(
        self, arms: tuple[Arm, ...], load: Load, image: str, start: Callable[[Volume], Node]
    ) -> dataset.Dataset:
        wanted = self.plan.dataset
        key = dataset.key_of(
            documents=wanted.documents,
            corpus=f"format {corpus.FORMAT}, seed {wanted.seed}",
            index_body=load.index_body,
            image=image,
        )
        with stage(self.folder, "build dataset"):
            built = dataset.ensure(
                home(),
                key,
                documents=load.prepare_corpus,
                index_body=load.index_body,
                start=start,
                session=self.session,
                say=self.say,
            )
        with stage(self.folder, "copy dataset"):
            self.say("Copying the index to every arm")
            for arm in arms:
                dataset.copy_to(built, arm.volume)
        with stage(self.folder, "calibrate volumes"):
            volumes.calibrate_on_data(arm.volume for arm in arms)
        return built

    def _check_segments(self, arms: tuple[Arm, ...], built: dataset.Dataset) -> None:
        """Every arm must serve the very segments that were built; stored before the first query."""
        for arm in arms:
            assert arm.node is not None
            found = dataset.content_hash(arm.node.data_dir)
            same = found == built.hash
            text = "the same segment files as the dataset" if same else f"dataset has {built.hash[:16]}"
            self.folder.add_check(Check(name=f"segments of {arm.name}", ok=same, value=found[:16], text=text))
            if not same:
                raise MeasurementError(
                    f"arm {arm.name}: its node changed the copied segments ({found[:16]} against "
                    f"{built.hash[:16]}); arms would not be comparable, see the node's log"
                )

    def _check_page_cache(self, built: dataset.Dataset, settings: nodes.NodeSettings) -> None:
        room = nodes.page_cache_bytes(settings)
        ratio = built.bytes / room if room else float("inf")
        text = (
            f"the index has {format_bytes(built.bytes)}, a node has page cache for about {format_bytes(room)}"
        )
        self.folder.add_check(
            Check(name="index against page cache", ok=True, value=f"{ratio:.1f}", text=text)
        )
        if ratio < _ENOUGH:
            self.folder.add_warning(
                f"the index is only {ratio:.1f} times a node's page cache; more documents make storage matter"
            )


@contextmanager
def stage(folder: SessionFolder, name: str) -> Iterator[None]:
    """Record how long a stage of the session took, also when it fails."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds = time.monotonic() - started
        folder.event(Event(at_s=time.time(), kind="stage", fields={"name": name, "seconds": seconds}))
