"""How often intervals hold the truth: five distributions of service time, simulated, whose truth is known.

    python benchmarks/interval_coverage.py [--sessions 1000]

Rounds have an effect that both arms share (10 %) and one of each arm (3 %); b is 10 % slower. Per design
(rounds x requests) and distribution: the coverage of the nominal 95 % intervals of ratio and difference (b
against a), and of a's own percentile; "-" where the report gives no interval (in nine sessions of ten)
because too few requests, or requests of too few rounds, lie beyond, or (a's own) there are too few rounds.
Must reach: 93 to 97 %. With 1,000 sessions a percentage is uncertain by 1.4 points.

``--together`` simulates groups of sessions instead, whose ratio of the 50th percentile is off by 0, 1 or 2 %
for a whole session (what a JVM has compiled): the coverage of the interval over all sessions of a group, and
of that of one session by itself.

``--starts`` simulates sessions whose nodes are started several times, which moves the arms' ratio from start
to start (standard deviation 0, 1 or 2 %): the coverage of the intervals of ratio, difference and a's own
percentile over starts, of the 50th percentile, and of the ratio as if there had been one start.

``--volumes`` simulates sessions of several volumes of two types: volumes of the one differ by 0, 1 or 2 %
from one another (standard deviation), those of the other by twice as much, and all share the rounds. The
coverage of the intervals of ratio and difference over volumes, and of the ratio of the types' first volumes.

``--tasks`` simulates sessions of tasks that differ in ratio and in noise of their requests (5 % of a round,
2 % of an arm's round): the coverage of the interval of all tasks together, and how much its value varies
between sessions against its standard error.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from esrally_ebs.analysis.compare import judge
from esrally_ebs.analysis.rounds import ArmTimes, Estimate, Mean, Pair
from esrally_ebs.analysis.summary import PERCENTILES, has_enough_requests, is_known_alone, summarize_blocks

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
Job = Callable[[int, int], Floats]  # how many repetitions, and a seed; a row for each
CONFIDENCE, RATIO = 0.95, 1.1
SHARED, OWN = 0.1, 0.03  # spread of the rounds' effects
DRIFT = 0.3  # from the first round to the last, of "drifted"
DESIGNS = ((6, 5), (10, 8), (24, 4), (12, 50), (20, 200))
TOGETHER = (10, 8)  # rounds x requests of sessions that are taken together
COUNTS, OFF_BY = (3, 5, 10), (0.0, 0.01, 0.02)
VOLUMES = ((3, 6, 5), (4, 10, 8), (5, 6, 5))  # of each type x rounds x requests
STARTS = ((3, 4, 5), (4, 6, 5), (6, 4, 8), (4, 12, 20))  # starts x rounds of each x requests
OF_ROUND, OF_ARM = 0.05, 0.02  # spread of the effects of a round on tasks that are taken together
HIT = 0.2  # time of a request that a cache answers
ALIKE, MIXED = [(1.0, 0.15)] * 8, [(1.0, 0.03)] * 4 + [(1.0, 0.3)] * 4  # ratio and noise of each task
# tasks, the share of their requests that a cache answers, rounds x requests
TASKS = {
    "alike": (ALIKE, 0.0, ((6, 4), (10, 8), (24, 4), (24, 1), (8, 1))),
    "two alike": (ALIKE[:2], 0.0, ((6, 4), (24, 4))),
    "half narrow, half wide": (MIXED, 0.0, ((6, 4), (10, 8), (24, 4))),
    "one narrow, one wide": (MIXED[3:5], 0.0, ((6, 4), (24, 4))),
    "half 3 times as slow": ([(1.0, 0.05)] * 4 + [(3.0, 0.05)] * 4, 0.0, ((6, 4), (24, 4))),
    "half 1.5, half 1/1.5": ([(1.5, 0.05), (1 / 1.5, 0.05)] * 4, 0.0, ((6, 4), (24, 4))),
    "seven alike, one wide 1.55": ([(1.0, 0.03)] * 7 + [(1.55, 0.4)], 0.0, ((10, 8), (24, 4))),
    "narrow 1.1, wide 1/1.1": ([(1.1, 0.03)] * 4 + [(1 / 1.1, 0.3)] * 4, 0.0, ((10, 8), (24, 4))),
    "alike, with hits": (ALIKE, 0.3, ((6, 4), (12, 4), (24, 4))),
    "two alike, with hits": (ALIKE[:2], 0.3, ((6, 4),)),
    "two alike, half of them hits": (ALIKE[:2], 0.5, ((6, 4), (12, 4), (24, 4))),
}
_USUAL = 0.1
_KINDS = 3  # ratio, difference, a's own

SHAPES: dict[str, Draw] = {
    "log-normal": lambda draw, shape: np.exp(draw.normal(0, 0.3, shape)),
    "bimodal": lambda draw, shape: (
        np.where(draw.random(shape) < 0.3, 0.2, 1) * np.exp(draw.normal(0, 0.1, shape))
    ),
    "heavy tail": lambda draw, shape: 1 + 0.3 * draw.pareto(1.5, shape),
    "steps": lambda draw, shape: draw.integers(1, 5, shape) + draw.normal(0, 0.01, shape),
    "drifted": lambda draw, shape: np.exp(draw.normal(0, 0.3, shape)),
}


def spread(pool: Executor, job: Job, count: int) -> Floats:
    """The rows of ``count`` repetitions, made by as many processes as there are processors."""
    workers = os.cpu_count() or 1
    return np.concatenate(list(pool.map(partial(job, -(-count // workers)), range(workers))))


def times(draw: np.random.Generator, name: str, rounds: int, requests: int, volumes: int = 1) -> Floats:
    """Service times (s): arm (all of a before those of b), round, request."""
    drift = np.linspace(1, 1 + DRIFT, rounds) if name == "drifted" else np.ones(rounds)
    shared = np.exp(draw.normal(0, SHARED, (1, rounds, 1))) * drift[None, :, None]
    own = np.exp(draw.normal(0, OWN, (2 * volumes, rounds, 1)))
    scale = np.repeat([1.0, RATIO], volumes)[:, None, None]
    return 0.03 * shared * own * scale * SHAPES[name](draw, (2 * volumes, rounds, requests))


def truth(name: str, rounds: int) -> Floats:
    """a's percentiles over all that might have happened."""
    draw = np.random.default_rng(0)
    return np.percentile(
        np.concatenate([times(draw, name, rounds, 5)[0].ravel() for _ in range(20_000)]), PERCENTILES
    )


def covered(name: str, design: tuple[int, int], true: Floats, sessions: int, seed: int) -> Floats:
    """Per session, percentile and kind of interval: 1 when it holds the truth, 0 when not, NaN without."""
    draw = np.random.default_rng(seed)
    coverage = np.full((sessions, len(PERCENTILES), _KINDS), np.nan)
    for session in range(sessions):
        a, b = (ArmTimes(list(arm)) for arm in times(draw, name, *design))
        pair = Pair(a, b)
        for place, percentile in enumerate(PERCENTILES):
            if has_enough_requests(percentile, len(a.all)):
                alone = is_known_alone(percentile, len(a.rounds))
                estimates = (
                    (pair.ratio(percentile, CONFIDENCE), RATIO),
                    (pair.difference(percentile, CONFIDENCE), (RATIO - 1) * true[place]),
                    (a.interval(percentile, CONFIDENCE) if alone else Estimate(0.0), true[place]),
                )
                coverage[session, place] = [holds(estimate, value) for estimate, value in estimates]
    return coverage


def together(count: int, name: str, off: float, groups: int, seed: int) -> Floats:
    """Per group of ``count`` sessions: whether its common interval and its first session hold the truth."""
    draw = np.random.default_rng(seed)
    hits = np.empty((groups, 2))
    for group in range(groups):
        ratios = []
        for _ in range(count):
            a, b = times(draw, name, *TOGETHER)
            pair = Pair(ArmTimes(list(a)), ArmTimes(list(b * np.exp(draw.normal(0, off)))))
            ratios.append(pair.ratio(PERCENTILES[0], CONFIDENCE))
        common = Mean(tuple(np.log([ratio.value for ratio in ratios]))).ratio(CONFIDENCE)
        hits[group] = holds(common, RATIO), holds(ratios[0], RATIO)
    return hits


def print_together(groups: int) -> None:
    """A line for each number of sessions and deviation, over all distributions."""
    print(f"{groups} groups a cell; coverage in % of all sessions together / of one by itself")
    print(f"{'sessions':>8} {'off by':>7}  " + " ".join(f"{name:^13}" for name in SHAPES))
    for count in COUNTS:
        print_rows(f"{count:8}", 13, groups, partial(together, count))


def print_rows(begins: str, width: int, count: int, job: Callable[[str, float, int, int], Floats]) -> None:
    """A line for each deviation: in which shares of ``count`` repetitions intervals hold the truth.

    ``job`` is given a distribution, a deviation, how many repetitions, and a seed.
    """
    with ProcessPoolExecutor() as pool:
        for off in OFF_BY:
            cells = []
            for name in SHAPES:
                shares = 100 * spread(pool, partial(job, name, off), count).mean(axis=0)
                cells.append(" / ".join(f"{share:4.1f}" for share in shares).center(width))
            print(f"{begins} {off:7.0%}  " + " ".join(cells), flush=True)


def over_starts(
    design: tuple[int, int, int], true: Mapping[str, float], name: str, off: float, sessions: int, seed: int
) -> Floats:
    """Per session: whether the intervals over starts, and that over rounds, hold the truth."""
    draw = np.random.default_rng(seed)
    starts, rounds, requests = design
    parts = [range(first, first + rounds) for first in range(1, starts * rounds, rounds)]
    hits = np.empty((sessions, _KINDS + 1))
    for session in range(sessions):
        jvms = np.exp(draw.normal(0, off / np.sqrt(2), (2, starts))).repeat(rounds, axis=1)
        arms = times(draw, name, starts * rounds, requests) * jvms[:, :, None]
        hits[session] = (*over_parts(arms, parts, true[name]), holds(ratio_of_rounds(*arms), RATIO))
    return hits


def over_volumes(
    design: tuple[int, int, int], true: Mapping[str, float], name: str, off: float, sessions: int, seed: int
) -> Floats:
    """Per session: whether the intervals over volumes, and that of the first two, hold the types' truth."""
    draw = np.random.default_rng(seed)
    volumes, rounds, requests = design
    parts = [range(first, first + rounds) for first in range(1, volumes * rounds, rounds)]
    hits = np.empty((sessions, _KINDS))
    for session in range(sessions):
        drawn = np.exp(draw.normal(0, np.repeat([off, 2 * off], volumes)))
        cells = times(draw, name, rounds, requests, volumes) * drawn[:, None, None]
        arms = cells.reshape(2, volumes * rounds, requests)  # the volumes of a type one after the other
        as_types = ratio_of_rounds(cells[0], cells[volumes])
        hits[session] = (*over_parts(arms, parts, true[name])[:2], holds(as_types, RATIO))
    return hits


def over_parts(arms: Floats, parts: Sequence[range], true: float) -> tuple[float, float, float]:
    """Whether the intervals over parts of the rounds hold ratio, difference and a's own percentile."""
    blocks = {("t", arm): dict(enumerate(own, start=1)) for arm, own in zip("ab", arms, strict=True)}
    (judged,) = judge(blocks, "ab", margin=0.05, confidence=CONFIDENCE, starts=parts).comparisons
    alone = summarize_blocks(blocks, {}, confidence=CONFIDENCE, starts=parts)[0].percentiles[0]
    difference = judged.percentiles[0].difference_s
    return holds(judged.ratio, RATIO), holds(difference, (RATIO - 1) * true), holds(alone, true)


def ratio_of_rounds(a: Floats, b: Floats) -> Estimate:
    """The ratio with the interval that rounds give it."""
    return Pair(ArmTimes(list(a)), ArmTimes(list(b))).ratio(PERCENTILES[0], CONFIDENCE)


def print_parts(sessions: int, what: str) -> None:
    """A line for each design of several starts, or volumes, and each deviation, over all distributions."""
    job, designs = (over_starts, STARTS) if what == "starts" else (over_volumes, VOLUMES)
    own = " / a's own" if what == "starts" else ""
    print(f"{sessions} sessions a cell; coverage in % of ratio / difference{own} / ratio as of one")
    print(f"{what:>14} {'off by':>7}  " + " ".join(f"{name:^26}" for name in SHAPES))
    for design in designs:
        rounds = design[0] * design[1] if what == "starts" else design[1]
        true = {name: float(truth(name, rounds)[0]) for name in SHAPES}
        print_rows(f"{' x '.join(map(str, design)):>14}", 26, sessions, partial(job, design, true))


def print_tasks(sessions: int) -> None:
    """A line for each mix of tasks and design."""
    print(f"{sessions} sessions a line; coverage in %, and variation between sessions / standard error")
    with ProcessPoolExecutor() as pool:
        for name, (tasks, hits, designs) in TASKS.items():
            for design in designs:
                job = partial(all_tasks, tasks, hits, design)
                values, errors, covered = spread(pool, job, sessions).T
                varies = values.std() / np.sqrt(np.nanmean(errors**2))
                shape = " x ".join(map(str, design))
                print(f"{name:28}{shape:>8}  {100 * np.nanmean(covered):4.1f}  {varies:4.2f}", flush=True)


def all_tasks(
    tasks: Sequence[tuple[float, float]], hits: float, design: tuple[int, int], sessions: int, seed: int
) -> Floats:
    """Per session: the logarithm of the mean ratio, its error, and whether the interval holds the truth."""
    rounds, draw = design[0], np.random.default_rng([2, seed])
    truth = float(np.exp(np.mean(np.log([ratio for ratio, _ in tasks]))))
    of_session = np.full((sessions, 3), np.nan)
    for session in range(sessions):
        of_tasks = []
        for ratio, noise in tasks:
            of_round = draw.normal(0, OF_ROUND, (rounds, 1))
            own = [
                scale * np.exp(of_round + draw.normal(0, OF_ARM, (rounds, 1)) + draw.normal(0, noise, design))
                for scale in (1.0, ratio)
            ]
            if hits:
                own = [times * np.where(draw.random(design) < hits, HIT, 1.0) for times in own]
            a, b = (ArmTimes(list(times)) for times in own)
            of_tasks.append(Pair(a, b).log_ratios(PERCENTILES[0]))
        known = [values for values in of_tasks if values is not None]
        if len(known) == len(tasks):
            mean = Mean(tuple(np.mean(known, axis=0)))
            of_session[session] = mean.value, mean.error, holds(mean.ratio(CONFIDENCE), truth)
    return of_session


def holds(estimate: Estimate, value: float) -> float:
    """1, 0, or NaN without an interval."""
    if estimate.low is None or estimate.high is None:
        return np.nan
    return float(estimate.low <= value <= estimate.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--starts", action="store_true")
    parser.add_argument("--volumes", action="store_true")
    parser.add_argument("--tasks", action="store_true")
    words = parser.parse_args()
    sessions = words.sessions
    if words.together:
        print_together(sessions)
        return
    if words.tasks:
        print_tasks(sessions)
        return
    if words.starts or words.volumes:
        print_parts(sessions, "starts" if words.starts else "volumes")
        return
    print(f"{sessions} sessions a line; coverage in % of ratio / difference / a's own percentile")
    print(f"{'rounds':>6} x {'requests':8} {'':10} " + " ".join(f"{f'p{q}':^18}" for q in PERCENTILES))
    with ProcessPoolExecutor() as pool:
        for rounds, requests in DESIGNS:
            for name in SHAPES:
                true = truth(name, rounds)
                hits = spread(pool, partial(covered, name, (rounds, requests), true), sessions)
                print(
                    f"{rounds:6} x {requests:<8} {name:10} " + " ".join(map(_cell, hits.swapaxes(0, 1))),
                    flush=True,
                )


def _cell(hits: Floats) -> str:
    shares = [100 * kind[~np.isnan(kind)].mean() if _is_usual(kind) else None for kind in hits.T]
    return " / ".join("-".center(4) if share is None else f"{share:4.1f}" for share in shares).center(18)


def _is_usual(hits: Floats) -> bool:
    """Given in at least one session of ten: the rest are flukes."""
    return float(np.isnan(hits).mean()) <= 1 - _USUAL


if __name__ == "__main__":
    main()
