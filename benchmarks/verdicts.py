"""How often verdicts are wrong, and how often right, in sessions drawn from recorded ones.

    python benchmarks/verdicts.py [--sessions 2000] SESSION_FOLDER...

A session of eight tasks on two arms is drawn from one recorded session: requests of a round are a run of
requests of a recorded round (so times keep their shape and their order), relative to that round's median;
each arm's own departure in a round is a recorded one. Added are what a longer day brings: a level of each
round that both arms share, with the recorded spread, half of it shared by all tasks, and autocorrelated from
round to round (0.5; recorded: 0.1 to 0.4); a drift of up to 30 % in every fifth session; in one block of an
arm of fifty a stall (up to twice as long), and one request of a hundred three times as long. The arms' own
departures are autocorrelated too, by 0.05 (recorded: -0.1 to 0.03).

Printed per design: sessions with any false "faster" or "slower" of a task or of all tasks together (must
reach: at most 5 %), with any "equivalent" at 5 %; the same of a true difference of 10 %, and of 3 % held
against a margin of 2 % (must never be "equivalent").
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from esrally_ebs.analysis.compare import Verdict, judge
from esrally_ebs.analysis.sequential import confidence_of_a_look, looks
from esrally_ebs.analysis.summary import Blocks, measured_blocks
from esrally_ebs.store import load_session

Floats = npt.NDArray[np.float64]
ARMS = ("a", "b")
CLAIMS = (Verdict.FASTER, Verdict.SLOWER)
CONFIDENCE = 0.95
LEVEL_KEPT, OWN_KEPT = 0.5, 0.05  # autocorrelation from one round to the next
DRIFTING, DRIFT = 0.2, 0.3
STALLED, STALL = 0.02, 2.0
SLOW, SLOWER = 0.01, 3.0


@dataclass(frozen=True)
class Task:
    """What a recorded session says of one task, as logarithms of service times."""

    rounds: list[Floats]  # requests of one arm in one round, less their median
    own: Floats  # departures of an arm from the level of its round
    level: float  # spread of the levels of rounds


@dataclass(frozen=True)
class Design:
    """What is drawn and how it is judged."""

    rounds: int
    requests: int
    ratio: float = 1.0
    margin: float = 0.05
    auto: bool = False  # ``rounds`` at most, with looks

    def __str__(self) -> str:
        how = f"up to {self.rounds}" if self.auto else f"{self.rounds}"
        return f"{how} x {self.requests}, difference {self.ratio - 1:.0%}, margin {self.margin:.0%}"


def recorded(folder: Path) -> list[Task]:
    """The tasks of a recorded session."""
    session = load_session(folder)
    blocks = measured_blocks(session.samples)
    first, second = [arm.spec.name for arm in session.arms][:2]
    tasks = []
    for task in dict.fromkeys(task for task, _ in blocks):
        a, b = blocks[task, first], blocks[task, second]
        pairs = [(np.log(a[r]), np.log(b[r])) for r in a if r > 0 and r in b]
        medians = np.array([[np.median(x), np.median(y)] for x, y in pairs])
        own = medians[:, 0] - medians[:, 1]
        own = (own - own.mean()) / np.sqrt(2)
        times = [x - np.median(x) for pair in pairs for x in pair]
        tasks.append(Task(times, np.concatenate([own, -own]), float(medians.mean(axis=1).std(ddof=1))))
    return tasks


def chain(draw: np.random.Generator, fresh: Floats, kept: float) -> Floats:
    """Values of the same spread as ``fresh`` (rounds along the last axis), each holding some of the last."""
    out = fresh.copy()
    for number in range(1, out.shape[-1]):
        out[..., number] = kept * out[..., number - 1] + np.sqrt(1 - kept**2) * fresh[..., number]
    return out


def drawn(draw: np.random.Generator, tasks: Sequence[Task], design: Design) -> Blocks:
    """One session."""
    rounds = design.rounds
    common = chain(draw, draw.normal(size=rounds), LEVEL_KEPT)
    drift = np.linspace(0, draw.uniform(-DRIFT, DRIFT), rounds) * (draw.random() < DRIFTING)
    blocks: dict[tuple[str, str], dict[int, Floats]] = {}
    for name, task in enumerate(tasks):
        alone = chain(draw, draw.normal(size=rounds), LEVEL_KEPT)
        level = task.level * (common + alone) / np.sqrt(2) + drift
        own = chain(draw, draw.choice(task.own, (2, rounds)), OWN_KEPT)
        own += np.log(draw.uniform(1, STALL, own.shape)) * (draw.random(own.shape) < STALLED)
        for arm, departure, scale in zip(ARMS, own, (1.0, design.ratio), strict=True):
            blocks[f"t{name}", arm] = {
                number + 1: scale * np.exp(level[number] + departure[number] + requests(draw, task, design))
                for number in range(rounds)
            }
    return blocks


def requests(draw: np.random.Generator, task: Task, design: Design) -> Floats:
    """One round's, less the median of that they were recorded in."""
    times = task.rounds[draw.integers(len(task.rounds))]
    first = draw.integers(len(times))
    log_times = times[(first + np.arange(design.requests)) % len(times)]
    slow: Floats = log_times + np.log(SLOWER) * (draw.random(design.requests) < SLOW)
    return slow


def verdicts(blocks: Blocks, design: Design) -> tuple[list[Verdict], int]:
    """Of all tasks and of all together, and after how many rounds."""
    if not design.auto:
        return judged(blocks, design, CONFIDENCE), design.rounds
    confidence = confidence_of_a_look(CONFIDENCE, design.rounds)
    for rounds in looks(design.rounds):
        so_far = {key: {r: t for r, t in by.items() if r <= rounds} for key, by in blocks.items()}
        outcomes = judged(so_far, design, confidence)
        if Verdict.INCONCLUSIVE not in outcomes[:-1]:
            break
    return outcomes, rounds


def judged(blocks: Blocks, design: Design, confidence: float) -> list[Verdict]:
    judgement = judge(blocks, ARMS, margin=design.margin, confidence=confidence, intervals=False)
    return [one.verdict for one in (*judgement.comparisons, *judgement.overall)]


def simulate(design: Design, sources: Sequence[Sequence[Task]], sessions: int, seed: int) -> Floats:
    """Per session: any faster or slower, any slower, slower on all together, any equivalent, rounds."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(sessions):
        tasks = sources[draw.integers(len(sources))]
        outcomes, rounds = verdicts(drawn(draw, tasks, design), design)
        rows.append(
            [
                any(verdict in CLAIMS for verdict in outcomes),
                Verdict.SLOWER in outcomes,
                outcomes[-1] is Verdict.SLOWER,
                Verdict.EQUIVALENT in outcomes,
                rounds,
            ]
        )
    return np.array(rows, dtype=np.float64)


DESIGNS = (
    *(Design(rounds, requests) for rounds, requests in ((6, 5), (10, 8), (16, 4), (24, 4))),
    Design(48, 4, auto=True),
    *(Design(rounds, requests, 1.1) for rounds, requests in ((10, 8), (16, 4), (24, 4))),
    Design(48, 4, 1.1, auto=True),
    *(Design(rounds, requests, 1.03, 0.02) for rounds, requests in ((10, 8), (16, 4), (24, 4))),
    Design(48, 4, 1.03, 0.02, auto=True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--sessions", type=int, default=2000)
    words = parser.parse_args()
    sources = [recorded(folder) for folder in words.folders]
    print(f"{words.sessions} sessions a line, drawn from {len(sources)} recorded ones")
    print(f"{'':44} {'faster or':>9} {'':>7} {'slower on':>9} {'equiv-':>7} {'rounds':>7}")
    print(f"{'rounds x requests':44} {'slower':>9} {'slower':>7} {'the whole':>9} {'alent':>7} {'(mean)':>7}")
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        for design in DESIGNS:
            run = partial(simulate, design, sources, -(-words.sessions // workers))
            means = np.concatenate(list(pool.map(run, range(workers)))).mean(axis=0)
            shares = " ".join(
                f"{share:{width}.1%}" for share, width in zip(means[:4], (9, 7, 9, 7), strict=True)
            )
            print(f"{design!s:44} {shares} {means[4]:7.1f}", flush=True)


if __name__ == "__main__":
    main()
