"""A plot on the terminal: horizontal bars, one per point, for plots of few points."""

from esrally_ebs.published.result import Plot, shown

_MOST = 48  # points; a plot of more needs a page, see --output
_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bars(plot: Plot) -> str:
    """The plot as text; nothing when it has too many points or a logarithmic axis."""
    count = sum(len(series.points) for series in plot.series)
    if not count or count > _MOST or plot.logarithmic or plot.spread:
        return ""
    highest = max((up for series in plot.series for _, up in series.points), default=0.0)
    across = max(len(_place(plot, x)) for series in plot.series for x, _ in series.points)
    lines = [f"{plot.title} ({plot.up} by {plot.across})"]
    for series in plot.series:
        if len(plot.series) > 1:
            lines.append(series.name)
        lines += [
            f"{_place(plot, x):>{across}} {_bar(up / highest if highest > 0 else 0.0)} {shown(up)}"
            for x, up in series.points
        ]
    return "\n".join(lines)


def _place(plot: Plot, x: float) -> str:
    return plot.names[int(x)] if plot.names else shown(x)


def _bar(share: float) -> str:
    eighths = round(max(0.0, share) * _WIDTH * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
