"""Cells of times and changes, and names of arms, for reports of one session and of several."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from esrally_ebs.analysis.compare import Claim, Comparison, PercentileComparison
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import Summary
from esrally_ebs.model import Kind
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Value
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_share

_Of = TypeVar("_Of")


def arm_names(session: Session) -> dict[str, str]:
    """Each arm's name in sentences; emulated ones are always named as such."""
    return {
        arm.spec.name: f"{arm.spec.name} (emulated)" if arm.kind is Kind.EMULATED else arm.spec.name
        for arm in session.arms
    }


def arm_columns(arms: Iterable[str], titles: Sequence[str]) -> tuple[Column, ...]:
    return tuple(Column(title=f"{arm} {title}", subject=arm) for arm in arms for title in titles)


def pair_columns(pairs: Sequence[tuple[str, str]], confidence: float) -> Iterator[Column]:
    """A column for the difference and one for the verdict, per pair of arms."""
    for a, b in pairs:
        subject = f"{b} against {a}"
        title = "difference" if len(pairs) == 1 else subject
        yield Column(title=f"{title} [{format_share(confidence)}]", subject=subject)
        yield Column(title=f"{b} is", subject=subject, left=True)


def arm_rows(
    of: Mapping[tuple[str, str], _Of], arms: Sequence[str], cells: Callable[[_Of], tuple[Cell, ...]]
) -> tuple[Row, ...]:
    """A row for each task of ``of`` (keyed by task and arm), with the cells of each arm that has some."""
    made = {key: cells(each) for key, each in of.items()}
    none = (NOTHING,) * len(next(iter(made.values()), ()))
    return tuple(
        Row(item=task, cells=tuple(cell for arm in arms for cell in made.get((task, arm), none)))
        for task in dict.fromkeys(task for task, _ in of)
    )


def time_cell(summary: Summary | None, percentile: int, *, better: bool = False) -> Cell:
    """One percentile of one task on one arm."""
    if summary is None:
        return NOTHING
    estimate = summary.percentile(percentile)
    facts = estimate_facts(f"p{percentile}", estimate, "_s")
    facts |= {"requests": summary.requests, "rounds": summary.rounds}
    return Cell(text=f"{estimate.value * 1e3:.2f} ms", facts=facts, better=better)


def difference_cell(comparison: PercentileComparison) -> Cell:
    """The difference of two arms, with their ratio as a change in per cent."""
    difference, ratio = comparison.difference_s, comparison.ratio
    facts = estimate_facts("difference", difference, "_s") | estimate_facts("ratio", ratio)
    return Cell(text=f"{difference.value * 1e3:+z,.2f} ms  {percent_change(ratio)}", facts=facts)


def ratio_cell(ratio: Estimate) -> Cell:
    """A ratio of two arms, as a change in per cent."""
    return Cell(text=percent_change(ratio), facts=estimate_facts("ratio", ratio))


def change_cell(comparison: Comparison | None) -> Cell:
    """The change of the 50th percentile in one session, with its interval and verdict."""
    if comparison is None:
        return NOTHING
    facts = estimate_facts("ratio", comparison.ratio) | {"verdict": comparison.verdict.value}
    return Cell(text=f"{percent_change(comparison.ratio)}  {comparison.verdict}", facts=facts)


def time_difference_cell(name: str, of: Estimate) -> Cell:
    """A difference in ms, with its interval if it has one."""
    text = f"{of.value * 1e3:+z,.2f} ms"
    if of.low is not None and of.high is not None:
        text += f" [{of.low * 1e3:+z,.2f}, {of.high * 1e3:+z,.2f}]"
    return Cell(text=text, facts=estimate_facts(name, of, "_s"))


def verdict_facts(word: str, of: Claim) -> dict[str, Value]:
    """A verdict as reports write it, and its p values."""
    return {"verdict": word, "p_different": of.p_different, "p_equivalent": of.p_equivalent}


def estimate_facts(name: str, of: Estimate, unit: str = "") -> dict[str, Value]:
    """A value and the ends of its interval."""
    return {f"{name}{unit}": of.value, f"{name}_low{unit}": of.low, f"{name}_high{unit}": of.high}


def percent_change(ratio: Estimate, digits: int = 1) -> str:
    """A ratio as a change in per cent, with its interval if there is one."""
    text = f"{(ratio.value - 1) * 100:+z,.{digits}f} %"
    if ratio.low is None or ratio.high is None:
        return text
    return f"{text} [{(ratio.low - 1) * 100:+z,.{digits}f}, {(ratio.high - 1) * 100:+z,.{digits}f}]"
