"""What befell arms: a session's events in, moments on the session's own clock out, and a table of them."""

from collections.abc import Iterator, Sequence

from esrally_ebs.causes.told import has_time, number_of
from esrally_ebs.model import Event
from esrally_ebs.report.model import NOTHING, Cell, Column, Moment, Row, Table, Value
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_seconds

_LONG_PAUSE_S = 0.05  # a shorter one cannot be seen on the timeline of a session
_KINDS = {
    "gc": "gc",
    "fault": "fault",
    "not-cold": "not-cold",
    "telemetry-cut": "telemetry",
    "telemetry-dead": "telemetry",
}
# What begins with one event and ends with another, which says how long it was.
_LASTING = {"limiter-begin": "limiter-end", "credits-exhausted": "credits-recovered"}
_ENDS = {end: begin for begin, end in _LASTING.items()}


def moments(session: Session) -> tuple[Moment, ...]:
    """All moments in order; what had not ended lasts to the end of what was recorded."""
    events = tuple(event for event in session.events if has_time(event))
    last = max((event.at_s for event in events), default=session.started_at)
    found = [_moment(session, *span) for span in _lasting(events, last)]
    for event in events:
        length = (number_of(event, "seconds") or 0.0) if event.kind == "gc" else 0.0
        if event.kind in _KINDS and not (event.kind == "gc" and length < _LONG_PAUSE_S):
            found.append(_moment(session, event, event.at_s - length, event.at_s))
    return tuple(sorted(found, key=lambda moment: moment.start_s))


def _lasting(events: tuple[Event, ...], last: float) -> Iterator[tuple[Event, float, float]]:
    open_: dict[tuple[str, str | None, object], Event] = {}
    for event in events:
        kind = _ENDS.get(event.kind, event.kind)
        key = kind, event.arm, event.fields.get("limit")
        if event.kind in _LASTING:
            open_.setdefault(key, event)
        elif event.kind in _ENDS and key in open_:
            begun = open_.pop(key)
            yield begun, begun.at_s, event.at_s
    for begun in open_.values():
        yield begun, begun.at_s, max(begun.at_s, last)


def _moment(session: Session, event: Event, start: float, end: float) -> Moment:
    kind = _KINDS.get(event.kind) or event.kind.split("-")[0]
    said = event.fields.get("text")
    text = f"{event.fields.get('limit')} limiter at work" if kind == "limiter" else "burst credits used up"
    return Moment(
        arm=event.arm or "",
        kind=kind,
        text=str(said) if said else text if event.kind in _LASTING else event.kind,
        start_s=start - session.started_at,
        end_s=end - session.started_at,
    )


def moments_table(found: Sequence[Moment], arms: Sequence[str]) -> Table | None:
    """Each kind of moment once: how often it befell which arm, for how long, and when first."""
    if not found:
        return None
    columns = [Column(title=arm, subject=arm, left=True) for arm in arms]
    if not all(moment.arm in arms for moment in found):
        columns.append(Column(title="no arm of its own", subject="session", left=True))
    rows = []
    for kind, text in dict.fromkeys((moment.kind, moment.text) for moment in found):
        alike = [moment for moment in found if (moment.kind, moment.text) == (kind, text)]
        of_arms = [[m for m in alike if m.arm == arm] for arm in arms]
        of_none = [m for m in alike if m.arm not in arms]
        cells = (_times(own) for own in [*of_arms, of_none][: len(columns)])
        rows.append(Row(item=f"{kind}: {text}", cells=tuple(cells)))
    return Table(
        key="events",
        title="Events",
        item_title="event",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            f"Minutes are those since the session began. Garbage collections shorter than "
            f"{_LONG_PAUSE_S * 1e3:.0f} ms stand in events.jsonl only.",
        ),
    )


def _times(found: Sequence[Moment]) -> Cell:
    if not found:
        return NOTHING
    seconds, first = sum(m.end_s - m.start_s for m in found), max(0.0, min(m.start_s for m in found))
    facts: dict[str, Value] = {"events": len(found), "seconds": seconds, "first_at_s": first}
    often = "once" if len(found) == 1 else f"{len(found)} times, first"
    lasted = f", {format_seconds(seconds)} in all" if seconds else ""
    return Cell(text=f"{often} at {first / 60:.1f} min{lasted}", facts=facts)
