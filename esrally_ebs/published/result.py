"""What a study comes to: figures beside ours, tables and plots of what only this study shows."""

from collections.abc import Sequence
from dataclasses import dataclass

from esrally_ebs.published.data import Study
from esrally_ebs.published.figures import Figure

Cell = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under titles; numbers stay numbers until they are shown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line, or one row of marks, of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False  # single marks instead of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Values against a common horizontal axis; ``spread`` over powers of ten, as the vertical one may be.

    Where ``names`` are given the horizontal values are places among them.
    """

    title: str
    across: str
    up: str
    series: Sequence[Series]
    logarithmic: bool = False
    spread: bool = False
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A study as run once."""

    study: Study
    how: str  # in one line: how ours came about, and on what
    figures: Sequence[Figure]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    remarks: Sequence[str] = ()


def shown(value: Cell) -> str:
    """A cell as text: four significant digits, thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
