"""How often verdicts are wrong and intervals miss, on simulated sessions: the figures of docs/statistics.md.

    python benchmarks/verdicts.py [sessions]

A session has eight tasks on two arms. A round has an effect of its own on each arm (3 %), one that both share
(10 %), and every fifth session drifts by 30 % from its first round to its last.
"""

import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from esrally_ebs.stats import Verdict, compare

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
TASKS, MARGIN, CONFIDENCE = 8, 0.05, 0.95

SHAPES: dict[str, Draw] = {
    "log-normal": lambda draw, shape: np.exp(draw.normal(0, 0.3, shape)),
    "bimodal": lambda draw, shape: (
        np.where(draw.random(shape) < 0.3, 0.2, 1) * np.exp(draw.normal(0, 0.1, shape))
    ),
    "heavy tail": lambda draw, shape: 1 + 0.3 * draw.pareto(1.5, shape),
    "steps": lambda draw, shape: draw.integers(1, 5, shape) + draw.normal(0, 0.01, shape),
}


def times(
    draw: np.random.Generator, shape: str, rounds: int, requests: int, ratio: float, drift: float
) -> Floats:
    """Service times (s): arm, round, request."""
    shared = np.exp(draw.normal(0, 0.1, (1, rounds, 1))) * np.linspace(1, 1 + drift, rounds)[None, :, None]
    own = np.exp(draw.normal(0, 0.03, (2, rounds, 1)))
    scale = np.array([1.0, ratio])[:, None, None]
    return 0.03 * shared * own * scale * SHAPES[shape](draw, (2, rounds, requests))


def simulate(shape: str, sessions: int, *, rounds: int, requests: int, ratio: float) -> str:
    """One line: wrong or found sessions, and coverage of each percentile's interval."""
    draw = np.random.default_rng(7)
    claimed = equivalent = undecided = 0
    covered: dict[int, list[bool]] = {50: [], 90: [], 99: []}
    for number in range(sessions):
        drift = 0.3 if number % 5 == 0 else 0.0
        blocks = {
            (f"t{task}", arm): dict(enumerate(data, start=1))
            for task in range(TASKS)
            for arm, data in zip("ab", times(draw, shape, rounds, requests, ratio, drift), strict=True)
        }
        found = compare(blocks, ("a", "b"), margin=MARGIN, confidence=CONFIDENCE)
        verdicts = [comparison.verdict for comparison in found]
        claimed += any(verdict in (Verdict.FASTER, Verdict.SLOWER) for verdict in verdicts)
        equivalent += any(verdict is Verdict.EQUIVALENT for verdict in verdicts)
        undecided += verdicts.count(Verdict.INCONCLUSIVE)
        for comparison in found:
            for one in comparison.percentiles:
                if one.ratio.low is not None and one.ratio.high is not None:
                    covered[one.percentile].append(one.ratio.low <= ratio <= one.ratio.high)
    coverage = " ".join(
        f"p{q} {np.mean(hits):6.1%}" if hits else f"p{q}      -" for q, hits in covered.items()
    )
    share = claimed / sessions, equivalent / sessions, undecided / sessions / TASKS
    return (
        f"{shape:<11} {rounds:>3} x {requests:<3} ratio {ratio:.2f}: sessions with faster or slower "
        f"{share[0]:6.1%}, with equivalent {share[1]:6.1%}; undecided tasks {share[2]:6.1%}; "
        f"coverage {coverage}"
    )


def main() -> None:
    """Every shape, identical arms and arms that differ, few and many rounds."""
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for ratio in (1.0, 1.1):
        for rounds, requests in ((4, 5), (6, 5), (12, 5), (12, 50)):
            for shape in SHAPES:
                print(simulate(shape, sessions, rounds=rounds, requests=requests, ratio=ratio), flush=True)


if __name__ == "__main__":
    main()
