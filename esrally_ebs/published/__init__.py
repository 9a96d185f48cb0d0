"""Published figures beside ours: a study's data and what was observed in, errors, tables and plots out.

Pure. The data of a study stand beside its plan in ``pipelines/``.
"""

from esrally_ebs.published.data import Kind, Published, Study, parse_study
from esrally_ebs.published.drawing import drawing, page, sheet
from esrally_ebs.published.figures import Figure, Observed, Status, compare, summary
from esrally_ebs.published.formats import RENDERERS
from esrally_ebs.published.result import Cell, Plot, Result, Series, Table

__all__ = [
    "RENDERERS",
    "Cell",
    "Figure",
    "Kind",
    "Observed",
    "Plot",
    "Published",
    "Result",
    "Series",
    "Status",
    "Study",
    "Table",
    "compare",
    "drawing",
    "page",
    "parse_study",
    "sheet",
    "summary",
]
