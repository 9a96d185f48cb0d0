"""How often intervals hold the truth: five distributions of service time, simulated, whose truth is known.

    python benchmarks/interval_coverage.py [--sessions 1000]

Rounds have an effect that both arms share (10 %) and one of each arm (3 %); b is 10 % slower. Per design
(rounds x requests) and distribution: the coverage of the nominal 95 % intervals of ratio and difference (b
against a), and of a's own percentile; "-" where the report gives no interval (in nine sessions of ten)
because too few requests, or requests of too few rounds, lie beyond, or (a's own) there are too few rounds.
Must reach: 93 to 97 %. With 1,000 sessions a percentage is uncertain by 1.4 points.
"""

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from esrally_ebs.stats import PERCENTILES, Estimate
from esrally_ebs.stats.rounds import Arm, Pair
from esrally_ebs.stats.summary import is_known_alone, is_seen

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
CONFIDENCE, RATIO = 0.95, 1.1
SHARED, OWN = 0.1, 0.03  # spread of the rounds' effects
DRIFT = 0.3  # from the first round to the last, of "drifted"
DESIGNS = ((6, 5), (10, 8), (24, 4), (12, 50), (20, 200))
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


def times(draw: np.random.Generator, name: str, rounds: int, requests: int) -> Floats:
    """Service times (s): arm, round, request."""
    drift = np.linspace(1, 1 + DRIFT, rounds) if name == "drifted" else np.ones(rounds)
    shared = np.exp(draw.normal(0, SHARED, (1, rounds, 1))) * drift[None, :, None]
    own = np.exp(draw.normal(0, OWN, (2, rounds, 1)))
    scale = np.array([1.0, RATIO])[:, None, None]
    return 0.03 * shared * own * scale * SHAPES[name](draw, (2, rounds, requests))


def truth(name: str, rounds: int) -> Floats:
    """a's percentiles over all that might have happened."""
    draw = np.random.default_rng(0)
    return np.percentile(
        np.concatenate([times(draw, name, rounds, 5)[0].ravel() for _ in range(20_000)]), PERCENTILES
    )


def covered(name: str, design: tuple[int, int], true: Floats, sessions: int, seed: int) -> Floats:
    """Per session, percentile and kind of interval: 1 when it holds the truth, 0 when not, NaN without."""
    draw = np.random.default_rng(seed)
    found = np.full((sessions, len(PERCENTILES), _KINDS), np.nan)
    for session in range(sessions):
        a, b = (Arm(list(arm)) for arm in times(draw, name, *design))
        pair = Pair(a, b)
        for place, percentile in enumerate(PERCENTILES):
            if is_seen(percentile, len(a.all)):
                alone = is_known_alone(percentile, len(a.rounds))
                estimates = (
                    (pair.ratio(percentile, CONFIDENCE), RATIO),
                    (pair.difference(percentile, CONFIDENCE), (RATIO - 1) * true[place]),
                    (a.interval(percentile, CONFIDENCE) if alone else Estimate(0.0), true[place]),
                )
                found[session, place] = [holds(estimate, value) for estimate, value in estimates]
    return found


def holds(estimate: Estimate, value: float) -> float:
    """1, 0, or NaN without an interval."""
    if estimate.low is None or estimate.high is None:
        return np.nan
    return float(estimate.low <= value <= estimate.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    sessions = parser.parse_args().sessions
    workers = os.cpu_count() or 1
    print(f"{sessions} sessions a line; coverage in % of ratio / difference / a's own percentile")
    print(f"{'rounds':>6} x {'requests':8} {'':10} " + " ".join(f"{f'p{q}':^18}" for q in PERCENTILES))
    with ProcessPoolExecutor(workers) as pool:
        for rounds, requests in DESIGNS:
            for name in SHAPES:
                true = truth(name, rounds)
                run = partial(covered, name, (rounds, requests), true, -(-sessions // workers))
                hits = np.concatenate(list(pool.map(run, range(workers))))
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
