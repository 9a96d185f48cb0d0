"""What the pack adds to a request: one query through plain Rally, and warm through the pack, on one node.

    sudo .venv/bin/python benchmarks/overhead.py [--pairs 6] [--iterations 3000] [--documents 200000]

One node on a plain directory, its index in memory. *Plain* is ``esrally race --pipeline=benchmark-only``
with the files of tracks/noaa-ebs but without its plugin, so nothing of ours is in any process. *Pack* is
the same command with the plugin in overhead_track.py: our schedule, parameter source, ``ColdSearch`` runner
(cache: warm), sample tap and telemetry sampler as in a session, in a real session folder. Both warm up
alike, then ask as often.

Races alternate (plain pack, pack plain, ...) after two of each that are not counted, for a node gets faster
over its first ten thousand queries. Each pair gives one ratio of the percentiles in Rally's own race.json;
the figure is their geometric mean with its 95 % interval (Student's t over the logarithms of the pairs). The
last line, plain / plain, is the same for plain races that follow one another: what the machine repeats. Must
reach: 1.02 for p50 and 1.05 for p99.
"""

import argparse
import itertools
import json
import math
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from esrally.track import loader
from races import TRACK, be_called, race
from scipy import stats
from steal import steal_told

from esrally_ebs import corpus, dataset, node
from esrally_ebs.context import Arm, Context
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.plan import Plan, parse_plan
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.store import SessionFolder

LIMITS = {"50_0": 1.02, "99_0": 1.05}
WARMUPS = 1000
_NOT_COUNTED = 2
ARM = "node"

Percentiles = dict[str, float]  # Rally's key -> service time in ms


@dataclass(frozen=True)
class Bench:
    """What all races share."""

    home: Path  # Rally's, ours and the tracks
    node: Node
    volume: Volume
    query: str
    iterations: int

    def plain(self) -> Percentiles:
        """One race of plain Rally."""
        document = self._race("plain", str(uuid.uuid4()), {})
        return _service_times(document, self.query)

    def pack(self) -> Percentiles:
        """One race with all that the pack puts into a request."""
        session = str(uuid.uuid4())
        plan = _plan(self.iterations)
        folder = SessionFolder.create(self.home, session, kind="race", plan=plan.model_dump(mode="json"))
        run = self.home / "run" / session
        run.mkdir(parents=True)
        arm = Arm(name=ARM, cluster="default", volume=self.volume, node=self.node)
        context = Context(session=session, folder=folder.path, run=run, plan=plan, arms=(arm,))
        context.save()
        document = self._race("pack", session, {"EBS_OVERHEAD_CONTEXT": str(context.path)})
        recorded = list((folder.path / "samples").glob("*.parquet"))
        if not recorded:
            raise RuntimeError(f"{folder.path}: the pack recorded no samples; its path was not measured")
        return _service_times(document, f"{self.query}-{ARM}-r1")

    def _race(self, track: str, race_id: str, env: dict[str, str]) -> dict[str, Any]:
        race(
            *(f"--race-id={race_id}", "--challenge=search-only", f"--include-tasks={self.query}"),
            *("--pipeline=benchmark-only", f"--target-hosts={self.node.host}:{self.node.port}"),
            f"--track-params=iterations:{self.iterations},warmup_iterations:{WARMUPS}",
            track=self.home / track / "noaa-ebs",
            env={"RALLY_HOME": str(self.home), **env},
        )
        record = self.home / ".rally/benchmarks/races" / race_id / "race.json"
        document: dict[str, Any] = json.loads(record.read_text())
        return document


def _service_times(document: dict[str, Any], task: str) -> Percentiles:
    found = next(row for row in document["results"]["op_metrics"] if row["task"] == task)
    if found["error_rate"]:
        raise RuntimeError(f"task {task}: {found['error_rate']:.1%} of its requests failed")
    return {key: found["service_time"][key] for key in LIMITS}


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


@contextmanager
def _bench(query: str, iterations: int, documents: int) -> Iterator[Bench]:
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
        built = dataset.ensure(
            home,
            "overhead",
            documents=lambda: corpus.ensure(home / "corpus", documents=documents).path,
            index_body=body,
            start=lambda where: node.start(where, settings, session=session, image=image),
            session=session,
            say=print,
        )
        dataset.copy_to(built, volume)
        try:
            with node.running(volume, settings, session=session, image=image) as started:
                yield Bench(home=home, node=started, volume=volume, query=query, iterations=iterations)
        finally:
            node.remove(session)


def _alternate(bench: Bench, pairs: int) -> tuple[list[Percentiles], list[Percentiles]]:
    found: dict[str, list[Percentiles]] = {"plain": [], "pack": []}
    races: dict[str, Callable[[], Percentiles]] = {"plain": bench.plain, "pack": bench.pack}
    print(f"not counted: {_NOT_COUNTED} races of each")
    for one in [*races.values()] * _NOT_COUNTED:
        one()
    print(f"{'race':8} {'p50 ms':>9} {'p99 ms':>9}")
    for number in range(pairs):
        for name in ("plain", "pack") if number % 2 == 0 else ("pack", "plain"):
            times = races[name]()
            found[name].append(times)
            print(f"{name:8} {times['50_0']:9.3f} {times['99_0']:9.3f}", flush=True)
    return found["plain"], found["pack"]


def _ratio(pairs: list[tuple[Percentiles, Percentiles]], key: str) -> tuple[float, float, float]:
    """The geometric mean of first / second, and the ends of its 95 % interval."""
    logs = np.log([first[key] / second[key] for first, second in pairs])
    half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
    mean = float(logs.mean())
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--query", default="range_field_big_range")
    parser.add_argument("--pairs", type=int, default=6, help="races of each, at least 3")
    parser.add_argument("--iterations", type=int, default=3000)
    parser.add_argument("--documents", type=int, default=200_000)
    words = parser.parse_args()
    be_called("ebs-overhead")
    with _bench(words.query, words.iterations, words.documents) as bench, steal_told():
        plain, pack = _alternate(bench, max(3, words.pairs))
    good = True
    for key, limit in LIMITS.items():
        ratio, low, high = _ratio(list(zip(pack, plain, strict=True)), key)
        _, same_low, same_high = _ratio(list(itertools.pairwise(plain)), key)
        good &= ratio <= limit
        percentile = key.removesuffix("_0")
        print(f"p{percentile}: pack / plain {ratio:.3f} ({low:.3f} to {high:.3f}), at most {limit}")
        print(f"     plain / the plain before it: {same_low:.3f} to {same_high:.3f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
