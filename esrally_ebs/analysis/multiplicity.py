"""Adjusts p values of many questions so that all claims together share one chance of being false."""

from collections.abc import Sequence
from dataclasses import dataclass

from esrally_ebs.analysis.rounds import rarest
from esrally_ebs.analysis.summary import MIN_ROUNDS


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: comparing each to alpha bounds the chance of any false claim by alpha."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def hochberg(p_values: Sequence[float]) -> list[float]:
    """Hochberg's (1988) step-up adjustment: bounds the chance of any false claim, as Holm's does.

    Where many p values are small at once it claims more. It needs tests that are independent or positively
    dependent (Sarkar 1998), as arms are that are compared with one reference.
    """
    adjusted, lowest = [1.0] * len(p_values), 1.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: -p_values[i])):
        lowest = min(lowest, p_values[index] * (rank + 1))
        adjusted[index] = lowest
    return adjusted


@dataclass(frozen=True, slots=True)
class PValues:
    """P values for one arm against the reference: of each task, then of all tasks together."""

    different: Sequence[float]
    equivalent: Sequence[float]
    has_whole: bool  # whether the last is for all tasks together


def adjusted(families: Sequence[PValues], *, gated: bool = False) -> list[PValues]:
    """P values of all arms: comparing each with alpha bounds the chance of any false claim by alpha.

    One arm against the reference: Holm's method over its tasks and all of them together.

    Several arms share alpha equally (Bonferroni). Of an arm all tasks together are asked about first, and
    single tasks only where that is decided: a serial gatekeeper (Maurer, Hothorn and Lehmacher 1995; Westfall
    and Krishen 2001), which needs no further share of alpha for the first question. Tasks behind it are
    adjusted by Hochberg's method, as six rounds could never give the p values that 32 questions need of
    Holm's. Equivalence is proven for tasks and all of them together as one family behind either decision.
    So it is for one arm too (``gated``) where the nodes' few starts give no such p values.
    """
    if len(families) == 1 and not gated:
        (family,) = families
        return [PValues(holm(family.different), holm(family.equivalent), family.has_whole)]
    return [behind_gate(family, len(families)) for family in families]


def behind_gate(family: PValues, arms: int) -> PValues:
    """P values for one of ``arms`` arms; single tasks are tested behind all of them together."""
    different = [min(1.0, arms * p) for p in family.different]
    equivalent = [min(1.0, arms * p) for p in hochberg(family.equivalent)]
    if not family.has_whole:
        return PValues([min(1.0, arms * p) for p in hochberg(family.different)], equivalent, False)
    *tasks, whole = different
    gate = min(whole, equivalent[-1])
    return PValues(
        [*(max(whole, min(1.0, p)) for p in hochberg(tasks)), whole],
        [*(max(gate, p) for p in equivalent[:-1]), equivalent[-1]],
        True,
    )


def needed_rounds(arms: int, tasks: int, confidence: float) -> int:
    """The fewest rounds with which a session of these arms and tasks can show any difference.

    With fewer, even full agreement between rounds leaves p above what ``adjusted`` requires.
    """
    questions = arms - 1 if arms > 2 else tasks + (tasks > 1)
    rounds = MIN_ROUNDS
    while 2 * rarest(rounds) * questions > 1 - confidence:
        rounds += 1
    return rounds
