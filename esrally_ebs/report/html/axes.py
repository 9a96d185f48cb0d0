"""What plots share: axes, lines across, and the legend of arms."""

from collections.abc import Callable, Iterator, Sequence

from esrally_ebs.report.html.svg import LEFT, RIGHT, WIDTH, Scale, label, line, number, path

AXIS = 44  # height of an axis with its names and a line of words below
TICKS = 6
STYLES = 4  # colours with dashes of their own


def axis(x: Scale, bottom: float, names: Sequence[str], values: Sequence[float]) -> Iterator[str]:
    """A horizontal axis with a name at each value."""
    yield line(x.start, bottom, x.end, bottom, "axis")
    for value, name in zip(values, names, strict=True):
        yield line(x.at(value), bottom, x.at(value), bottom + 4, "axis")
        place = x.at(value)
        anchor = "end" if place > WIDTH - 20 else "start" if place < 20 else "middle"
        yield label(place, bottom + 18, name, anchor=anchor)


def rungs(y: Scale, most: int, text: Callable[[float], str] = number) -> Iterator[str]:
    """Lines across at round values of a vertical axis, named on its left."""
    for value in y.ticks(most):
        yield line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), "grid" if value else "axis")
        yield label(LEFT - 6, y.at(value) + 4, text(value), anchor="end")


def legend(shown: Sequence[str], arms: Sequence[str]) -> Iterator[str]:
    """The line and the name of each arm, in one row."""
    left = float(LEFT)
    for arm in shown:
        yield path([(left, 14), (left + 28, 14)], f"curve {style_of(arm, arms)}")
        yield label(left + 34, 18, arm, class_="name")
        left += 56 + 7 * len(arm)


def style_of(arm: str, arms: Sequence[str]) -> str:
    """The class that gives an arm its colour and its dashes."""
    return f"arm{arms.index(arm) % STYLES}"
