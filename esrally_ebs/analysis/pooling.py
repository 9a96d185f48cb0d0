"""One verdict from several sessions of the same question, with the session as a random effect.

What stays the same from a session's start to its end (the code that a JVM compiled, the very volumes) moves
its ratio by as much in every round, so no session sees it in its own interval. Several sessions do: so the
session is the unit, as the round is within one. The common ratio is the geometric mean of theirs; its
interval is Student's t over sessions, with (sessions - 1) degrees of freedom. For sessions of equally many
rounds that is what REML with Satterthwaite's degrees of freedom gives (Searle, Casella and McCulloch 1992).
Weights by the sessions' own errors (Hartung and Knapp 2001) held the truth less often: these errors are
estimates themselves. Pure.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from esrally_ebs.analysis.compare import Claim, verdict_of
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.multiplicity import PValues, behind_gate
from esrally_ebs.analysis.rounds import Estimate, Mean, critical_t

MIN_SESSIONS = 3  # two have one degree of freedom: intervals of twelve standard errors and more


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRatio(Claim):
    """The ratio b / a of the 50th percentile over several sessions."""

    task: str | None  # None = all tasks together
    sessions: int
    ratio: Estimate  # for this task alone, not corrected for several
    between: float  # standard deviation of the logarithm between sessions, beyond their own errors


def pool(sessions: Sequence[Findings], *, margin: float, confidence: float) -> tuple[PooledRatio, ...]:
    """Common ratios of each arm against the reference, all tasks together before single tasks.

    Leaves out what some session has no interval for; pools nothing below MIN_SESSIONS. The chance of any
    false claim is at most 1 - ``confidence``: single tasks are tested behind all of them together.
    """
    if len(sessions) < MIN_SESSIONS:
        return ()
    pooled: list[PooledRatio] = []
    pairs = sessions[0].pairs
    tasks: list[str | None] = list(sessions[0].tasks)
    if all(set(one.tasks) == set(tasks) for one in sessions):  # else "all together" means different tasks
        tasks.append(None)
    for pair in pairs:
        means = {
            task: _mean(estimates)
            for task in tasks
            if (estimates := _estimates(sessions, task, pair)) is not None
        }
        if means:
            pooled += _judged(means, pair, len(pairs), margin, confidence)
    return tuple(pooled)


def _with_error(ratio: Estimate, rounds: int, confidence: float) -> tuple[float, float] | None:
    """Logarithm of a session's ratio and its standard error; None without an interval."""
    if ratio.low is None or ratio.high is None:
        return None
    half = math.log(ratio.high / ratio.low) / 2
    return math.log(ratio.value), half / critical_t(rounds, confidence)


def _estimates(
    sessions: Sequence[Findings], task: str | None, pair: tuple[str, str]
) -> list[tuple[float, float]] | None:
    """Logarithm and standard error of each session; None if any session has no interval."""
    estimates = []
    for one in sessions:
        results = one.overall if task is None else [c for c in one.comparisons if c.task == task]
        result = next((result for result in results if (result.a, result.b) == pair), None)
        estimate = None if result is None else _with_error(result.ratio, result.observations, one.confidence)
        if estimate is None:
            return None
        estimates.append(estimate)
    return estimates


def _mean(estimates: Sequence[tuple[float, float]]) -> Mean:
    values, errors = zip(*estimates, strict=True)
    return Mean(tuple(values), own=sum(error**2 for error in errors) / len(errors))


def _judged(
    means: dict[str | None, Mean], pair: tuple[str, str], arms: int, margin: float, confidence: float
) -> list[PooledRatio]:
    alpha = 1 - confidence
    raw = PValues(
        [mean.p_different() for mean in means.values()],
        [mean.p_equivalent(math.log1p(margin)) for mean in means.values()],
        has_whole=None in means and len(means) > 1,
    )
    p_values = behind_gate(raw, arms)
    pooled = []
    for (task, mean), different, equivalent in zip(
        means.items(), p_values.different, p_values.equivalent, strict=True
    ):
        one = PooledRatio(
            task=task,
            a=pair[0],
            b=pair[1],
            sessions=mean.count,
            ratio=mean.ratio(confidence),
            between=math.sqrt(max(0.0, mean.variance - mean.own)),
            p_different=different,
            p_equivalent=equivalent,
        )
        pooled.append(replace(one, verdict=verdict_of(mean.value, different <= alpha, equivalent <= alpha)))
    return pooled
