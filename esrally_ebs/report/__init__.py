"""A loaded session to a report, and a report to text; pure, so it works on any machine.

``build`` makes the one model; a renderer is a function from it to ``str``. A new format is a new renderer.
"""

from collections.abc import Callable, Mapping

from esrally_ebs.report.build import build
from esrally_ebs.report.formats import WIDTH, render_csv, render_json, render_markdown, render_text
from esrally_ebs.report.html import render_html, render_svg
from esrally_ebs.report.model import Report
from esrally_ebs.store.encoding import SAMPLES

RENDERERS: Mapping[str, Callable[[Report], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "csv": render_csv,
    "json": render_json,
    "html": render_html,
}
_UNREAD = ("session", "operation", "processing_time_s", "took_s")
# Columns of samples that a report needs: loading only these halves the memory.
SAMPLE_COLUMNS = tuple(name for name in SAMPLES.names if name not in _UNREAD)
SUFFIX: Mapping[str, str] = {"text": "txt", "markdown": "md", "csv": "csv", "json": "json", "html": "html"}

__all__ = [
    "RENDERERS",
    "SAMPLE_COLUMNS",
    "SUFFIX",
    "WIDTH",
    "Report",
    "build",
    "render_csv",
    "render_html",
    "render_json",
    "render_markdown",
    "render_svg",
    "render_text",
]
