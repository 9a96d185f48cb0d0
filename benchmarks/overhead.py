"""What the pack adds to a request: one query through plain Rally, and warm through the pack, on one node.

    sudo .venv/bin/python benchmarks/overhead.py [--rounds 8] [--iterations 10000] [--documents 200000]

One node on a plain directory, its index in memory. *Plain* is ``esrally race --pipeline=benchmark-only``
with the files of tracks/noaa-ebs but without its plugin, so nothing of ours is in any process. *Pack* is
the same command with the plugin in overhead_track.py: our schedule, parameter source, ``ColdSearch`` runner
(cache: warm), sample tap and telemetry sampler as in a session, in a real session folder. Both warm up
alike, then ask as often.

The two races of a pair run by turns, a second each, in namespaces of their own, one stopped while the other
asks: whole races that follow one another differ by 20 % and more on a small machine, by how the JVM compiled
and by what the host does meanwhile; this way it befalls both. One request in each turn is held while the
other has its turn: too few to move the 99th percentile by more than 0.3 points, and as many on both sides.
Pairs are not counted until the node's compiler is quiet, which takes some fifty thousand queries: before, two
of three requests beyond the 98th percentile run beside it, and the 99th is up to three times as long.

Each pair gives one ratio of the percentiles in Rally's own race.json. Who begins may matter, so a round is
two pairs, one in either order; the result is the rounds' geometric mean with its 95 % interval (Student's t
over their logarithms). "plain / plain" is the same for pairs of two plain races: what the method repeats.
Must reach: 1.02 for p50 and 1.05 for p99.
"""

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import elasticsearch
import numpy as np
from compiler import compiler_s
from docker.models.containers import Container
from elasticsearch import helpers
from esrally.track import loader
from races import TRACK, be_called, race_command
from scipy import stats
from steal import steal_reported
from turns import Network, by_turns

from esrally_ebs import node
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.store import SessionFolder
from esrally_ebs.store.context import Arm, Context, Member
from esrally_ebs.workload import corpus

LIMITS = {"50_0": 1.02, "99_0": 1.05}
WARMUPS = 1000
_TURN_S = 1.0
_QUIET = 0.02  # of one processor, by the node's compiler
_MOST_UNCOUNTED = 10
ARM = "node"
INDEX = "weather-data-2016"

Percentiles = dict[str, float]  # Rally's key -> service time in ms


@dataclass(frozen=True)
class Race:
    """One race to run, and where its result will be."""

    command: list[str]
    env: dict[str, str]
    record: Path
    task: str
    samples: Path | None = None  # folder of what the pack records

    def service_times(self) -> Percentiles:
        """Of its task, as Rally itself has them."""
        if self.samples is not None and not list(self.samples.glob("*.parquet")):
            raise RuntimeError(f"{self.samples}: the pack recorded no samples; its path was not measured")
        document = json.loads(self.record.read_text())
        row = next(row for row in document["results"]["op_metrics"] if row["task"] == self.task)
        if row["error_rate"]:
            raise RuntimeError(f"task {self.task}: {row['error_rate']:.1%} of its requests failed")
        return {key: row["service_time"][key] for key in LIMITS}


@dataclass(frozen=True)
class Bench:
    """What all races share."""

    home: Path  # Rally's, ours and the tracks
    node: Node
    network: Network
    volume: Volume
    query: str
    iterations: int
    pids: Callable[[], list[int]]  # of the node

    def plain(self) -> Race:
        """One of plain Rally."""
        return self._race("plain", str(uuid.uuid4()), {}, self.query)

    def pack(self) -> Race:
        """One with all that the pack puts into a request."""
        context = self.session()
        env = {"EBS_OVERHEAD_CONTEXT": str(context.path)}
        race = self._race("pack", context.session, env, f"{self.query}-{ARM}-r1")
        return replace(race, samples=context.folder / "samples")

    def session(self) -> Context:
        """A session of the pack on the node, in a real folder."""
        session, plan = str(uuid.uuid4()), _plan(self.iterations)
        folder = SessionFolder.create(self.home, session, kind="race", plan=plan)
        run = self.home / "run" / session
        run.mkdir(parents=True)
        arm = Arm(name=ARM, cluster="default", members=(Member(volume=self.volume, node=self.node),))
        context = Context(session=session, folder=folder.path, run=run, plan=plan, arms=(arm,))
        context.save()
        return context

    def pair(self, *races: Race) -> list[Percentiles]:
        """Run them by turns."""
        by_turns(
            [race.command for race in races],
            [race.env for race in races],
            self.network,
            turn_s=_TURN_S,
            logs=self.home,
        )
        return [race.service_times() for race in races]

    def _race(self, track: str, race_id: str, env: dict[str, str], task: str) -> Race:
        home = self.home / race_id  # each has a Rally of its own: they run at the same time
        command = race_command(
            *(f"--race-id={race_id}", "--challenge=search-only", f"--include-tasks={self.query}"),
            *("--pipeline=benchmark-only", f"--target-hosts={self.node.host}:{self.node.port}"),
            f"--track-params=iterations:{self.iterations},warmup_iterations:{WARMUPS}",
            track=self.home / track / "noaa-ebs",
        )
        record = home / ".rally/benchmarks/races" / race_id / "race.json"
        return Race(command, {"RALLY_HOME": str(home), **env}, record, task)


def _plan(iterations: int) -> Plan:
    text = f"""
        name = "overhead"
        arm = [{{name = "{ARM}", type = "directory"}}]
        race = {{iterations = {iterations}, warmup_iterations = {WARMUPS}}}
        design = {{rounds = 1}}
        cache = {{mode = "warm"}}
    """
    return parse_plan(text, "overhead")


def _write_tracks(home: Path) -> None:
    for name in ("plain", "pack"):
        shutil.copytree(TRACK, home / name / "noaa-ebs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    plugin = Path(__file__).with_name("overhead_track.py")
    shutil.copy(plugin, home / "pack" / "noaa-ebs" / "track.py")


def _pids(container: Container) -> list[int]:
    """Of its processes, as this machine has them."""
    table = container.top()
    return [int(row[table["Titles"].index("PID")]) for row in table["Processes"]]


@contextmanager
def bench(query: str, iterations: int, documents: int) -> Iterator[Bench]:
    """A node that holds the index; nothing of it remains afterwards."""
    session = str(uuid.uuid4())
    image = node.choose_image(os.environ)
    settings = load_settings(["defaults"], {})
    with tempfile.TemporaryDirectory(prefix="ebs-overhead-") as directory:
        home = Path(directory)
        _write_tracks(home)
        volume = Volume(
            spec=VolumeSpec(name=ARM, type="directory", size_bytes=0),
            kind=Kind.DIRECTORY,
            mount=home / "volume",
        )
        volume.mount.mkdir()
        template = str(TRACK / "index.json")
        body = json.loads(loader.render_template_from_file(template, {}))
        made = corpus.ensure(home / "corpus", documents=documents).path
        try:
            with node.running(volume, settings, session=session, image=image) as indexing:
                _index(indexing, body, made)
            with node.running(volume, settings, session=session, image=image) as started:
                container = docker.from_env().containers.get(started.container)
                network = Network.of(container.attrs)
                # the namespaces of turns.py reach the container, not the port that is published for the host
                reached = replace(started, host=network.container.split("/")[0], port=9200)
                yield Bench(home, reached, network, volume, query, iterations, lambda: _pids(container))
        finally:
            node.remove(session)


def _index(started: Node, body: dict[str, Any], documents: Path) -> None:
    client = elasticsearch.Elasticsearch(f"http://{started.host}:{started.port}", request_timeout=300)
    client.indices.create(index=INDEX, settings=body["settings"], mappings=body["mappings"])
    with documents.open() as lines:
        deque(helpers.parallel_bulk(client, map(json.loads, lines), index=INDEX, chunk_size=5000), maxlen=0)
    client.indices.flush(index=INDEX)


def _rounds(bench: Bench, count: int) -> tuple[list[Percentiles], list[Percentiles]]:
    """Ratios of pack and plain, so many times, and half as often of plain and plain."""
    print(f"{'pair':14} {'p50 ms':>17} {'p99 ms':>17} {'compiler':>9}")
    for _ in range(_MOST_UNCOUNTED):
        *_, busy = _pair("not counted", bench, bench.pack(), bench.plain())
        if busy < _QUIET:
            break
    else:
        print(f"the node's compiler is still busy after {_MOST_UNCOUNTED} pairs: what follows is beside it")
    mixed, alike = [], []
    for number in range(count):
        mixed.append(_round("pack", bench, bench.pack))
        if number % 2:
            alike.append(_round("plain", bench, bench.plain))
    return mixed, alike


def _round(name: str, bench: Bench, measured: Callable[[], Race]) -> Percentiles:
    """Ratios of ``measured`` to plain, over two pairs."""
    plain, second, _ = _pair(f"plain, {name}", bench, bench.plain(), measured())
    first, other, _ = _pair(f"{name}, plain", bench, measured(), bench.plain())
    return {key: math.sqrt(first[key] * second[key] / (plain[key] * other[key])) for key in LIMITS}


def _pair(name: str, bench: Bench, *races: Race) -> tuple[Percentiles, Percentiles, float]:
    """Run and print one; what the two took, and how busy the node's compiler was meanwhile."""
    before, began = compiler_s(bench.pids()), time.monotonic()
    first, second = bench.pair(*races)
    busy = (compiler_s(bench.pids()) - before) / (time.monotonic() - began)
    cells = (f"{first[key]:8.3f} {second[key]:8.3f}" for key in LIMITS)
    print(f"{name:14} {' '.join(cells)} {busy:9.1%}", flush=True)
    return first, second, busy


def _mean(ratios: list[float]) -> tuple[float, float, float]:
    """The geometric mean, and the ends of its 95 % interval."""
    logs = np.log(ratios)
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    mean = float(logs.mean())
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--query", default="range_field_big_range")
    parser.add_argument("--rounds", type=int, default=8, help="of two pairs, one in either order; at least 4")
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=200_000)
    words = parser.parse_args()
    be_called("ebs-overhead")
    with bench(words.query, words.iterations, words.documents) as indexed, steal_reported():
        mixed, alike = _rounds(indexed, max(4, words.rounds))
    good = True
    for key, limit in LIMITS.items():
        ratio, low, high = _mean([ratios[key] for ratios in mixed])
        same, same_low, same_high = _mean([ratios[key] for ratios in alike])
        good &= ratio <= limit
        percentile = key.removesuffix("_0")
        print(f"p{percentile}: pack / plain {ratio:.3f} ({low:.3f} to {high:.3f}), at most {limit}")
        print(f"     plain / plain {same:.3f} ({same_low:.3f} to {same_high:.3f})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
