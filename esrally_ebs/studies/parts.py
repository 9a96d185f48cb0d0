"""A study's module: its inputs and its results; and the result of one run of a whole study."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from esrally_ebs.catalog.cost import PriceList
from esrally_ebs.plan import Plan
from esrally_ebs.report.model import Plot, Table
from esrally_ebs.store import Session
from esrally_ebs.studies.published import Figure, Observed, Study
from esrally_ebs.studies.runs import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a study is run with."""

    study: Study
    plan: Plan
    runner: Runner
    prices: PriceList
    session: Session | None = None  # a recorded race to show beside the published one


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Figures of our own, and what only this study shows."""

    observed: Observed
    conclusion: str = ""  # in one sentence, from our own figures
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    remarks: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A study as run once."""

    study: Study
    how: str  # in one line: how ours came about, and on what
    figures: Sequence[Figure]
    parts: Parts
