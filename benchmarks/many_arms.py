"""Sessions of several arms: how often anything false is claimed, and what is decided, of simulated ones.

    python benchmarks/many_arms.py [SESSIONS]

Eight tasks; requests are log-normal (15 % wide), a round moves all arms of a task by 5 % and each arm by
another 3 %. A true difference on half of the tasks opens the gate of an arm while the other half must not be
claimed. Must reach: any false "faster" or "slower" in at most 5 % of sessions, so any false "equivalent".
"""

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from esrally_ebs.analysis.compare import Comparison, Judgement, Overall, Verdict, judge
from esrally_ebs.analysis.summary import Blocks

TASKS, MARGIN, CONFIDENCE = 8, 0.05, 0.95
ALIKE = (1.0,) * TASKS
# name to rounds, requests, and the true ratio of each arm but the reference on each task
CASES: Mapping[str, tuple[int, int, Sequence[Sequence[float]]]] = {
    "five like arms, 6 x 4": (6, 4, [ALIKE] * 4),
    "five like arms, 10 x 8": (10, 8, [ALIKE] * 4),
    "half of the tasks 3 times as slow, 6 x 4": (6, 4, [(3.0,) * 4 + (1.0,) * 4] * 4),
    "half of the tasks 20 % slower, 10 x 8": (10, 8, [(1.2,) * 4 + (1.0,) * 4] * 4),
    "st1 4.5 times, io2 0.75 times, 6 x 4": (6, 4, [(4.5,) * TASKS, (0.75,) * TASKS, ALIKE, ALIKE]),
    "6 % slower than within the margin, 24 x 4": (24, 4, [(1.06,) * TASKS] * 4),
}


def session(
    draw: np.random.Generator, rounds: int, requests: int, ratios: Sequence[Sequence[float]]
) -> Blocks:
    """Service times of the reference and of an arm for each of ``ratios``."""
    blocks = {}
    for task in range(TASKS):
        of_round = 0.03 * np.exp(draw.normal(0, 0.05, rounds))
        for arm, ratio in enumerate([ALIKE, *ratios]):
            level = of_round * ratio[task] * np.exp(draw.normal(0, 0.03, rounds))
            times = level[:, None] * np.exp(draw.normal(0, 0.15, (rounds, requests)))
            blocks[f"t{task}", f"a{arm}"] = dict(enumerate(times, start=1))
    return blocks


def is_false(claim: Comparison | Overall, truth: float) -> tuple[bool, bool]:
    """Whether a verdict claims a difference, or an equivalence, that there is not."""
    different = {Verdict.FASTER: truth >= 1 - 1e-9, Verdict.SLOWER: truth <= 1 + 1e-9}
    inside = 1 / (1 + MARGIN) <= truth <= 1 + MARGIN
    return different.get(claim.verdict, False), claim.verdict is Verdict.EQUIVALENT and not inside


def mistakes(judged: Judgement, ratios: Sequence[Sequence[float]]) -> tuple[bool, bool]:
    """Whether anything false is claimed of a session: a difference, an equivalence."""
    claims = [is_false(c, ratios[int(c.b[1:]) - 1][int(c.task[1:])]) for c in judged.comparisons]
    claims += [is_false(o, float(np.exp(np.mean(np.log(ratios[int(o.b[1:]) - 1]))))) for o in judged.overall]
    return any(different for different, _ in claims), any(equivalent for _, equivalent in claims)


def main() -> None:
    """Print a line a case."""
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, (rounds, requests, ratios) in CASES.items():
        draw = np.random.default_rng(1)
        false, decided, whole = np.zeros(2), np.zeros(len(ratios)), np.zeros(len(ratios))
        for _ in range(sessions):
            arms = [f"a{arm}" for arm in range(len(ratios) + 1)]
            blocks = session(draw, rounds, requests, ratios)
            judged = judge(blocks, arms, margin=MARGIN, confidence=CONFIDENCE, intervals=False)
            false += mistakes(judged, ratios)
            for number, arm in enumerate(arms[1:]):
                differs = (Verdict.FASTER, Verdict.SLOWER)
                decided[number] += sum(c.verdict in differs for c in judged.comparisons if c.b == arm)
                whole[number] += sum(o.verdict in differs for o in judged.overall if o.b == arm)
        different, equivalent = false / sessions
        print(
            f"{name:42}  false different {different:5.1%}, equivalent {equivalent:5.1%}; "
            f"decided of 8 tasks {np.round(decided / sessions, 1)}, "
            f"of all together {np.round(whole / sessions, 2)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
