"""What an answer costs: machine time of a session against two plain Rally races, for intervals of one width.

    sudo .venv/bin/python benchmarks/cost_of_answer.py 4 --results cost.jsonl
         .venv/bin/python benchmarks/cost_of_answer.py 0 --results cost.jsonl

Side by side, as often as asked for: a session of the plan (``esrally race``, from the command to its report),
and on the same emulated volumes with the same index the way of the 2021 article: a node on the first volume,
``esrally race --pipeline=benchmark-only`` with 100 warm-up and 500 measured requests of each task, then the
same on the second. Of a session everything is counted, and so it is of the pair: volumes, copying the index,
nodes, races; what the two races alone take is printed, too. One line of JSON per session and per pair of
races goes to the file of results; the next call goes on from there.

Widths are those of 95 % intervals of the ratio of 50th percentiles, task by task, as +- per cent, so that
cold and warm times can be held against each other:

- *session*: as its report has it.
- *one pair*: what two races really tell. What differs from race to race (code that another JVM compiled
  otherwise, another hour) is not in any race, only in pairs that are run again: 1.96 standard deviations of
  the logarithm of the pairs' ratios. Who has only one pair cannot know it.
- *claimed*: what one pair would claim if its iterations were all that varies, for log-normal times with the
  50th and 90th percentile that Rally prints (it keeps no single times). Of a plan whose volumes are alike
  (``aa``) each claim whose interval leaves out 0 is wrong; they are counted.

A session's time to another width: its time before and after the rounds, and as many rounds, at least six, as
the square of the widths asks for. Must reach, for the task in the middle: a session as wide as one pair takes
at most a third of the pair's time.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from races import Line, append, be_called, lines_of, race
from scipy import special

from esrally_ebs import node
from esrally_ebs.analysis.compare import judge
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import MIN_ROUNDS, measured_blocks
from esrally_ebs.errors import EbsError, PlanError
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.model import Kind, Node, Volume, VolumeSpec
from esrally_ebs.node import dataset
from esrally_ebs.rally.cars import load_settings
from esrally_ebs.session import clean
from esrally_ebs.store import load_session, running
from esrally_ebs.store.session import Session
from esrally_ebs.volumes import backends as volumes

WARMUPS, ITERATIONS = 100, 500  # of the article
SHARE = 1 / 3
_NORMAL = float(special.ndtri(0.975))
_OF_P90 = float(special.ndtri(0.9))
_OF_MEDIAN = math.sqrt(math.pi / 2)  # a median's standard error against a mean's, for normal values


def pack(plan: Path, params: Mapping[str, Any], only: Sequence[str]) -> Line:
    """One session: its seconds, those of its rounds, and the half width (log) of each task that has one."""
    session_id = str(uuid.uuid4())
    wanted = json.dumps({"plan": str(plan), **params})
    seconds = race(*_only(only), f"--race-id={session_id}", f"--track-params={wanted}")
    session = load_session(home() / "sessions" / session_id)
    compared = judge(
        measured_blocks(session.samples),
        [arm.spec.name for arm in session.arms][:2],
        margin=session.plan.design.margin,
        confidence=0.95,
    ).comparisons
    rounds_s = [
        e.fields["seconds"] for e in session.events if (e.kind, e.fields.get("name")) == ("stage", "rounds")
    ]
    return {
        "kind": "session",
        "session": session_id,
        "seconds": seconds,
        "rounds_seconds": rounds_s[-1],
        "rounds": max(c.rounds for c in compared),
        "widths": {
            c.task: width for c in compared if (width := half_width(c.percentiles[0].ratio)) is not None
        },
    }


def half_width(ratio: Estimate) -> float | None:
    """Half the width of an interval, as a logarithm; None without one."""
    if ratio.low is None or ratio.high is None:
        return None
    return math.log(ratio.high / ratio.low) / 2


def plain(session: Session, only: Sequence[str], *, warmups: int, iterations: int) -> Line:
    """Two races of plain Rally, one volume after the other: their seconds, and p50 and p90 by task."""
    shape = f"--track-params=warmup_iterations:{warmups},iterations:{iterations}"
    races_s, races = 0.0, []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ebs-cost-") as folder, closing(_nodes(session)) as nodes:
        for started in nodes:
            race_id = str(uuid.uuid4())
            words = ("--pipeline=benchmark-only", f"--target-hosts={started.host}:{started.port}", shape)
            races_s += race(*_only(only), f"--race-id={race_id}", *words, env={"RALLY_HOME": folder})
            record = Path(folder) / ".rally/benchmarks/races" / race_id / "race.json"
            races.append(
                {row["task"]: row for row in json.loads(record.read_text())["results"]["op_metrics"]}
            )
    failed = [task for rows in races for task, row in rows.items() if row["error_rate"]]
    if failed:
        raise RuntimeError(f"requests of {', '.join(failed)} failed in a plain race")
    return {
        "kind": "pair",
        "seconds": time.monotonic() - began,
        "races_seconds": races_s,
        "iterations": iterations,
        "times": {
            task: [[rows[task]["service_time"][p] for p in ("50_0", "90_0")] for rows in races]
            for task in races[0]
        },
    }


def _nodes(session: Session) -> Generator[Node, None, None]:
    """A new node on each of the session's volumes, attached anew with its index; one at a time."""
    if any(arm.kind is not Kind.EMULATED for arm in session.arms):
        raise PlanError(f"plan {session.plan.name}: has arms that are not emulated; name one without")
    own = session.plan.node
    settings = load_settings(own.car, own.params)
    record = {**session.dataset, "path": Path(session.dataset["path"])}
    record["segments"] = tuple(record["segments"])
    image, owner = node.choose_image(os.environ), str(uuid.uuid4())
    with _attached([arm.spec for arm in session.arms[:2]], owner) as attached:
        for volume in attached:
            dataset.copy_to(dataset.Dataset(**record), volume)
        for volume in attached:
            with node.running(volume, settings, session=owner, image=image) as started:
                yield started


@contextmanager
def _attached(specs: Sequence[VolumeSpec], owner: str) -> Iterator[list[Volume]]:
    run = running.begin(owner)
    try:
        yield [volumes.attach(spec, run / spec.name) for spec in specs]
    finally:
        problems = clean.take_down(owner)
    if problems:
        raise RuntimeError("; ".join(problems))


def _only(tasks: Sequence[str]) -> list[str]:
    return ["--challenge=search-only", *([f"--include-tasks={','.join(tasks)}"] if tasks else [])]


def log_ratio(times: Sequence[Sequence[float]]) -> float:
    """Of the second volume's 50th percentile to the first one's."""
    return math.log(times[1][0] / times[0][0])


def claimed(times: Sequence[Sequence[float]], iterations: int) -> float:
    """Half the width (log) of what a pair's iterations alone would claim."""
    errors = [_OF_MEDIAN * math.log(p90 / p50) / _OF_P90 / math.sqrt(iterations) for p50, p90 in times]
    return _NORMAL * math.hypot(*errors)


def session_seconds(sessions: Sequence[Line], share: float) -> float:
    """A session whose intervals have this share of the width of those that were run."""
    rounds = max(MIN_ROUNDS, math.ceil(fmean(line["rounds"] for line in sessions) / share**2))
    fixed = fmean(line["seconds"] - line["rounds_seconds"] for line in sessions)
    return fixed + rounds * fmean(line["rounds_seconds"] / line["rounds"] for line in sessions)


def show(lines: Sequence[Line]) -> bool:
    """Widths by task, then what they cost; whether the target is reached, as far as it can be told."""
    sessions = [line for line in lines if line["kind"] == "session"]
    pairs = [line for line in lines if line["kind"] == "pair"]
    if not sessions or len(pairs) < 2:
        print(f"{len(sessions)} sessions and {len(pairs)} pairs of races: 1 and 2 are the least that tell")
        return False
    session_s, pair_s = (fmean(line["seconds"] for line in group) for group in (sessions, pairs))
    races_s = fmean(line["races_seconds"] for line in pairs)
    print(
        f"{len(sessions)} sessions of {session_s:.0f} s, {len(pairs)} pairs of plain races, {pair_s:.0f} s, "
        f"the races alone {races_s:.0f} s"
    )
    print(
        f"{'half width of the interval, %':54} {'session':>8} {'one pair':>8} {'claimed':>8} wrong if alike"
    )
    shares, claims = [], []
    for task in [task for task in pairs[0]["times"] if all(task in line["widths"] for line in sessions)]:
        own = fmean(line["widths"][task] for line in sessions)
        ratios = [log_ratio(line["times"][task]) for line in pairs]
        one, claimed_widths = (
            _NORMAL * stdev(ratios),
            [claimed(line["times"][task], line["iterations"]) for line in pairs],
        )
        wrong = sum(abs(ratio) > width for ratio, width in zip(ratios, claimed_widths, strict=True))
        shares.append(one / own)
        claims.append(fmean(claimed_widths) / own)
        percents = " ".join(f"{100 * math.expm1(width):8.1f}" for width in (own, one, fmean(claimed_widths)))
        print(f"{task:54} {percents} {wrong:7} of {len(pairs)}")
    if not shares:
        print("no session has an interval: more rounds are needed")
        return False
    cost = session_seconds(sessions, median(shares))
    print(
        f"a session as wide as one pair, task in the middle: {cost:.0f} s, {cost / pair_s:.2f} of a pair "
        f"(limit {SHARE:.2f}), {cost / races_s:.2f} of its races alone"
    )
    again = max(1, math.ceil(median(shares) ** 2))
    print(f"plain races as narrow as the sessions that were run: {again} pairs, {again * pair_s:.0f} s")
    narrow = session_seconds(sessions, median(claims))
    print(f"a session as narrow as a pair claims to be: {narrow:.0f} s, {narrow / pair_s:.2f} of a pair")
    return cost / pair_s <= SHARE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=int, help="how many sessions, and pairs of plain races, there shall be")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--plan", default="aa", help="its first two arms are compared")
    parser.add_argument("--tasks", default="", help="only these, with commas")
    parser.add_argument("--warmups", type=int, default=WARMUPS, help="of a plain race")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="of a plain race")
    parser.add_argument("--set", action="append", default=[], metavar="PARAM=VALUE", help="of the session")
    words = parser.parse_args()
    be_called("ebs-cost")
    os.umask(0o022)
    only = [task for task in words.tasks.split(",") if task]
    params = dict(text.split("=", 1) for text in words.set)
    while len(lines := lines_of(words.results)) < 2 * words.pairs:
        try:
            if len(lines) % 2 == 0:
                line = pack(plan_path(words.plan), params, only)
            else:
                session = load_session(home() / "sessions" / lines[-1]["session"])
                line = plain(session, only, warmups=words.warmups, iterations=words.iterations)
        except (EbsError, RuntimeError) as error:
            raise SystemExit(str(error)) from error
        append(words.results, line)
    return 0 if show(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
