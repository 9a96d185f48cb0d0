"""A report as one HTML file that opens offline: text, tables and SVG, no script, nothing loaded."""

from esrally_ebs.report.html.page import render_html, render_svg

__all__ = ["render_html", "render_svg"]
