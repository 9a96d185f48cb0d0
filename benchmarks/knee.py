"""How near the knee that is found is to the true one, on simulated queues and on real nodes.

         .venv/bin/python benchmarks/knee.py [--runs 1000] [--step 120]
    sudo .venv/bin/python benchmarks/knee.py --sessions 20 --results knee.jsonl [--volume]

Queues are first come, first served by some servers, with arrivals as steps make them; true is the rate at
which just the allowed share of a million requests or more is late. Printed per queue: runs within 5 % of the
truth (must reach: 95 %), runs whose interval holds it (95 %), pairs of runs within 5 % of one another (95 %),
half the interval in the mean, and the seconds of one arm. Queues with few requests a second cannot reach it
in as many seconds: their intervals must say so.

With ``--sessions`` it races the two like volumes of plan ``aa`` with steady caches instead, which have the
same knee: must reach 19 of 20 within 5 % of each other, each session in at most 15 minutes. Processors bind
there; with ``--volume`` it races the track ``lookups`` beside this script, where volumes do.
"""

import argparse
import json
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import simulated_queue
from races import TRACK, Line, be_called, lines_of, race, record_sessions

from esrally_ebs.analysis.knee import KneeSearch
from esrally_ebs.analysis.profile import profiles_of, read_windows
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.plan import DesignPlan
from esrally_ebs.report.knee import knees_of
from esrally_ebs.store import load_session

Floats = simulated_queue.Floats
TRUTH = 1_000_000  # requests; sixteen times as many where they are simulated at once
DRAWS = 200_000  # of service times, that queues draw from


def service_times(name: str, mean_s: float) -> Floats:
    """So many of a law with this mean."""
    draw = np.random.default_rng(3)
    if name == "fixed":
        return np.full(1, mean_s)
    if name == "exponential":
        return draw.exponential(mean_s, DRAWS)
    if name == "erlang-4":
        return draw.gamma(4, mean_s / 4, DRAWS)
    if name == "lognormal":  # as uneven as the exponential
        return draw.lognormal(math.log(mean_s) - math.log(2) / 2, math.sqrt(math.log(2)), DRAWS)
    rare = draw.random(DRAWS) < 0.1  # "two kinds": a tenth of the queries takes six times as long
    return np.where(rare, 6.0, 1.0) * draw.gamma(8, mean_s / 1.5 / 8, DRAWS)


KNEE = {"design.knee": "p99=100ms", "cache.mode": "steady", "baseline": []}
LOOKUPS = Path(__file__).with_name("lookups")  # a track with its plan
QUEUES = (  # law, servers, mean service time, bound
    ("fixed", 2, 0.005, "p99=20ms"),
    ("erlang-4", 4, 0.005, "p99=20ms"),
    ("lognormal", 2, 0.002, "p99=30ms"),
    ("lognormal", 4, 0.01, "p99=100ms"),
    ("two kinds", 4, 0.004, "p99=40ms"),
    ("exponential", 2, 0.002, "p99=30ms"),
    ("fixed", 2, 0.005, "p99=300ms"),  # so far beyond a query that all or none are late
    ("exponential", 2, 0.005, "p99=1s"),
    ("exponential", 1, 0.005, "p99=50ms"),
    ("exponential", 1, 0.02, "p99=300ms"),
)


def one(
    queue: tuple[str, int, float, str], search: KneeSearch, seed: int
) -> tuple[float, float, float, float]:
    """Knee, ends of its interval, and the seconds of its steps."""
    law, servers, mean_s, _ = queue
    steps = simulated_queue.run(search, service_times(law, mean_s), servers, seed)
    knee = search.knee(steps)
    return knee.rate, knee.low, knee.high, sum(step.requests / step.rate / 0.8 for step in steps if step.rate)


def of_queues(runs: int, step_s: float) -> None:
    """Print a line per queue."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for queue in QUEUES:
            law, servers, mean_s, bound = queue
            search = KneeSearch.of(DesignPlan(knee=bound, step=step_s))
            truth = simulated_queue.true_knee(
                service_times(law, mean_s), servers, search, TRUTH * (16 if servers == 1 else 1)
            )
            rows = np.array(list(pool.map(partial(one, queue, search), range(runs), chunksize=5)))
            knees, lows, highs, seconds = rows.T
            near = np.mean(np.abs(knees / truth - 1) <= 0.05)
            holds = np.mean((lows <= truth) & (truth <= highs))
            alike = np.mean(np.abs(knees[::2] / knees[1::2] - 1) <= 0.05)
            print(
                f"{law}, {servers} servers, {mean_s * 1e3:g} ms, {bound}: {truth:.1f}/s"
                f" ({truth * mean_s / servers:.0%} busy); within 5 %: {near:.1%}, bias"
                f" {np.mean(knees / truth - 1):+.1%}, interval holds it: {holds:.1%}, "
                f" pairs within 5 %: {alike:.1%}, half an interval {np.mean((highs - lows) / 2 / knees):.1%},"
                f" {seconds.mean():.0f} s",
                flush=True,
            )


def of_real_nodes(sessions: int, results: Path, lock: Path, track: Path) -> None:
    """Seek the knees of two like volumes, so many times; a line each, then how many are near each other."""
    plan, changes = (LOOKUPS / "plan.toml", {}) if track == LOOKUPS else (plan_path("aa"), KNEE)

    def one(name: str) -> Line:
        params = {"plan": str(plan), "set": {**changes, "design.seed": 1 + len(lines_of(results))}}
        seconds = race(f"--race-id={name}", f"--track-params={json.dumps(params)}", track=track)
        session = load_session(home() / "sessions" / name)
        knees = knees_of(session)
        assert knees is not None
        rates = {arm: [knee.rate, knee.low, knee.high, knee.why] for arm, knee in knees.of.items()}
        binds = knees.held_back(profiles_of(read_windows(session.events)[0]))
        return {"session": name, "seconds": round(seconds, 1), "knees": rates, "binds": binds}

    record_sessions(results, sessions, one, lock=lock)
    lines = [line for line in lines_of(results) if "failed" not in line]
    near = 0
    for line in lines:
        (first, *_), (second, *_) = line["knees"].values()
        near += abs(math.log(second / first)) <= math.log(1.05)
        print(json.dumps(line))
    print(f"two like volumes within 5 % of each other: {near} of {len(lines)}")


def main() -> int:
    """Print a line per queue, or per session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--step", type=float, default=DesignPlan().step, help="seconds, on simulated queues")
    parser.add_argument("--sessions", type=int, help="how many there shall be in the file of results")
    parser.add_argument("--results", type=Path, default=Path("knee.jsonl"))
    parser.add_argument("--volume", dest="track", action="store_const", const=LOOKUPS, default=TRACK)
    parser.add_argument("--lock", type=Path, default=Path(os.devnull))
    words = parser.parse_args()
    if words.sessions is None:
        of_queues(words.runs, words.step)
        return 0
    be_called("ebs-sessions")
    os.umask(0o022)
    of_real_nodes(words.sessions, words.results, words.lock, words.track)
    return 0


if __name__ == "__main__":
    sys.exit(main())
