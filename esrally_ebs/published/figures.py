"""Published figures beside ours: a study's data and what was observed in, errors out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from esrally_ebs.published.data import UNITS, Published, Study

Observed = Mapping[tuple[str, str, str], float]  # by arm, job and kind of figure; base units


class Status(StrEnum):
    """What a comparison of one figure came to."""

    OK = "ok"
    MISS = "MISS"
    OUTSIDE = "not covered"  # by the model, for the reason given
    GIVEN = "given"  # the figure went into the model or the load
    MISSING = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure and ours. ``low`` to ``high`` and ``ours`` are in the printed unit."""

    published: Published
    low: float  # corrected
    high: float
    ours: float | None

    @property
    def error(self) -> float | None:
        """Ours against the corrected figure, relative; 0 within a range, else against its nearer end."""
        if self.ours is None:
            return None
        nearest = min(max(self.ours, self.low), self.high)
        return self.ours / nearest - 1 if nearest else math.inf

    @property
    def status(self) -> Status:
        """What the comparison came to."""
        if self.error is None:
            return Status.MISSING
        if self.published.given:
            return Status.GIVEN
        if self.published.outside:
            return Status.OUTSIDE
        return Status.OK if abs(self.error) <= self.published.kind.tolerance else Status.MISS

    @property
    def is_corrected(self) -> bool:
        """Whether the article printed something else than it should have."""
        return not math.isclose(self.low, self.published.low, rel_tol=1e-9)


def compare(study: Study, observed: Observed) -> tuple[Figure, ...]:
    """Every published figure beside ours, in the study's order."""
    return tuple(_figure(published, observed) for published in study.figures)


def _figure(published: Published, observed: Observed) -> Figure:
    kind = published.kind
    # What was printed as 137.98 MB/s and meant as 137.98 thousand KiB/s is 141.29 MB/s.
    scale = published.factor / UNITS[kind.unit]
    low, high = published.low * scale, published.high * scale
    if published.corrected is not None:
        low = high = published.corrected
    ours = observed.get((published.arm, published.job, kind.key))
    return Figure(
        published=published, low=low, high=high, ours=None if ours is None else ours / UNITS[kind.unit]
    )


def summary(study: Study, figures: Sequence[Figure]) -> list[str]:
    """How many figures are within tolerance, and for each that is not the reason, as far as it is known."""
    counted = [figure for figure in figures if figure.status in (Status.OK, Status.MISS)]
    missed = [figure for figure in counted if figure.status is Status.MISS]
    lines = [f"{len(counted) - len(missed)} of {len(counted)} published figures are within tolerance."]
    lines += _by_reason("Outside", [(figure, _why(study, figure)) for figure in missed])
    outside = [figure for figure in figures if figure.status is Status.OUTSIDE]
    lines += _by_reason("Not covered", [(figure, figure.published.outside) for figure in outside])
    return lines


def _by_reason(heading: str, found: Sequence[tuple[Figure, str]]) -> list[str]:
    """A line for each reason, with the figures that it is about."""
    named: dict[str, list[str]] = {}
    for figure, reason in found:
        named.setdefault(reason, []).append(f"{name_of(figure)} {_error(figure)}".rstrip())
    return [f"{heading}: {'; '.join(those)}" + (f": {why}" if why else "") for why, those in named.items()]


def name_of(figure: Figure) -> str:
    """Arm, job and kind of a figure in words."""
    return " ".join(part for part in (figure.published.arm, figure.published.job) if part) + (
        f" {figure.published.kind.title}"
        if figure.published.arm or figure.published.job
        else figure.published.kind.title
    )


def _why(study: Study, figure: Figure) -> str:
    row = f"{figure.published.arm} {figure.published.job}"
    return study.knife_edges.get(f"{row} {figure.published.kind.key}", study.knife_edges.get(row, ""))


def _error(figure: Figure) -> str:
    return "" if figure.error is None else f"{figure.error * 100:+.1f} %"
