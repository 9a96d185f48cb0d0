"""A log's usage as a report: how long settings would have been at their limits."""

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.advice.advice import UsageOption
from esrally_ebs.advice.caveats import MODELS, price_warnings
from esrally_ebs.advice.cells import cell_table, setting_text, share_cell, usd_text
from esrally_ebs.advice.traces import access_of, lacks
from esrally_ebs.advice.usage import Interval
from esrally_ebs.report.model import Cell, Report, Table, milliseconds, quantity, word
from esrally_ebs.units import KIB, MIB, format_seconds, number_of

_MINUTE_S, _HOUR_S = 60, 3600
_CENSORED = (
    "Where today's volume was at a limit, the log has what it did, not what was wanted: on a larger one it"
    " may be more, so log again there.",
)
_OF_LOG = (
    "Bursts shorter than an interval are not in the log, so a limit may be reached more often.",
    "I/Os are counted as random, as the log does not say: st1 and sc1 do more of sequential ones.",
)
_OF_TRACE = (
    "The trace is counted second by second, so a limit may be reached more often, in shorter bursts.",
    "I/Os are counted as random, although the trace has places: st1 and sc1 do more of sequential ones.",
)


def build_usage(
    source: str,
    intervals: Sequence[Interval],
    options: Sequence[UsageOption],
    *,
    region: str,
    unpriced: Sequence[str] = (),
    ios: pa.Table | None = None,
    notes: Sequence[str] = (),
) -> Report:
    """A log's usage on today's setting (the first option) and on others.

    ``unpriced`` types were left out; ``ios`` are a trace's, ``notes`` what readers must know about it.
    """
    today = options[0]
    below = [one for one in options if one.keeps]
    free = min(below, key=lambda one: math.inf if one.usd is None else one.usd, default=None)
    length = _length_text(sum(one.seconds for one in intervals))
    rows = [
        (setting_text(one.spec) + (" (today)" if one is today else ""), _cells(today, one))
        for one in options
        if one is today or setting_text(one.spec) != setting_text(today.spec)
    ]
    titles = ["setting", "a month", "saves", "at its limit for", "which limit", "lowest credits"]
    return Report(
        kind="usage",
        title=f"Usage of {source}: {number_of(len(intervals), 'interval')}, {length}, prices of {region}",
        about=(),
        facts={"session": source, "state": "usage", "plan": ""},
        verdict=_verdict(today, free),
        details=tuple(dict.fromkeys(_living_on_credits(options))),
        labels=(
            f"A statement {MODELS}.",
            "Nothing is said of the latency of requests; 'esrally-ebs advise' does, from a session's trace.",
        ),
        tables=(
            cell_table("usage", "Settings, each less at its limits than all cheaper ones", titles, rows),
            *([] if ios is None else [access_table(ios)]),
        ),
        warnings=(
            *notes,
            *([] if ios is None else lacks(ios)),
            *price_warnings(options, unpriced, region),
            *_gaps(intervals),
            *(_OF_LOG if ios is None else _OF_TRACE),
            *(_CENSORED if today.usage.limited_s else ()),
            f"Credits were {today.spec.credits:.0%} full at the start; what a volume does not get done stays"
            " owed, as if nobody slowed down.",
        ),
    )


def _verdict(today: UsageOption, free: UsageOption | None) -> str:
    """``free``: the cheapest setting that stays below its limits."""
    if free is None:
        return "No setting that was looked at stays below its limits for good."
    saves = _saves(today, free)
    if setting_text(free.spec) == setting_text(today.spec):
        against = "that of today"
    elif saves is None:
        against = f"{usd_text(free.usd or 0.0)} a month"
    else:
        against = f"{usd_text(abs(saves))} a month {'less' if saves >= 0 else 'more'} than today"
    return f"{setting_text(free.spec)} is the cheapest that stays below its limits: {against}."


def _cells(today: UsageOption, option: UsageOption) -> tuple[Cell, ...]:
    usage, saves = option.usage, _saves(today, option)
    longest = max(usage.at_limit_s, key=usage.at_limit_s.__getitem__) if usage.limited_s else None
    return (
        quantity("usd_month", option.usd, usd_text(option.usd or 0.0)),
        quantity("usd_month", saves, usd_text(saves or 0.0, sign=True)),
        quantity("s", usage.limited_s, _length_text(usage.limited_s) if usage.limited_s else "never"),
        word("limit", longest),
        share_cell(usage.lowest_credits),
    )


def _living_on_credits(options: Sequence[UsageOption]) -> Iterator[str]:
    """A sentence for each volume that a longer log of the same usage would have shown at its limits."""
    for option in options:
        last_s = option.usage.credits_last_s
        if last_s is not None and not option.usage.limited_s:
            yield (
                f"{setting_text(option.spec)} stays below them only on burst credits: on average more is"
                f" taken than comes back, so they last {last_s / 3600:,.1f} hours."
            )


def _gaps(intervals: Sequence[Interval]) -> tuple[str, ...]:
    """A sentence if the log lacks reports."""
    gaps_s = [one.seconds for one in intervals if one.is_gap]
    if not gaps_s:
        return ()
    return (
        f"The log has nothing of {_length_text(sum(gaps_s))} ({number_of(len(gaps_s), 'gap')}), which count"
        " as idle: credits come back meanwhile. If the volume was in use then, take a log without gaps.",
    )


def _length_text(seconds: float) -> str:
    if seconds < 2 * _MINUTE_S:
        return format_seconds(seconds)
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:,.1f} h"


def access_table(ios: pa.Table) -> Table:
    """How a trace's I/Os, in order of time, use the device."""
    rows = []
    for name, op in (("reads", "read"), ("writes", "write")):
        own = ios.filter(pc.equal(ios["op"], op))
        if own.num_rows:
            of = access_of(own)
            cells = (
                quantity("ios", of.ios, f"{of.ios:,}"),
                quantity("bytes", of.bytes, f"{of.bytes / MIB:,.1f}"),
                quantity("bytes", of.median_bytes, f"{of.median_bytes / KIB:g} KiB"),
                share_cell(of.continuing),
                share_cell(of.ahead),
                quantity("ios", of.in_flight, f"{of.in_flight or 0.0:.1f}"),
                milliseconds("s", of.median_s),
                milliseconds("s", of.p99_s),
            )
            rows.append((name, cells))
    titles = ["", "I/Os", "MiB", "size, middle", "read or written on", "readahead", "in flight", "p50", "p99"]
    note = "To read on is to begin where one of the last 64 ended. In flight: as one is issued, it included."
    return cell_table("access", "What the trace's I/Os do", titles, rows, note)


def _saves(today: UsageOption, other: UsageOption) -> float | None:
    """USD per month; None if either has no price."""
    return None if today.usd is None or other.usd is None else today.usd - other.usd
