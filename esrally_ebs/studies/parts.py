"""What a study's own module gives: observed figures, and what only that study shows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from esrally_ebs.plan import Plan
from esrally_ebs.prices import PriceList
from esrally_ebs.published import Observed, Plot, Study, Table
from esrally_ebs.store import Session
from esrally_ebs.studies.runs import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a study is asked for."""

    study: Study
    plan: Plan
    runner: Runner
    prices: PriceList
    session: Session | None = None  # a recorded race to show beside the published one


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What came of it."""

    observed: Observed
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    remarks: Sequence[str] = field(default_factory=tuple)
