"""Tables of a measurement's conditions: volumes, coldness, credits, events, stages, the machine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.rounds import Floats
from esrally_ebs.analysis.summary import is_time
from esrally_ebs.catalog.volume_types import known_model
from esrally_ebs.model import Event, Kind, Phase, Volume, VolumeSpec
from esrally_ebs.report.model import (
    NOTHING,
    Cell,
    Column,
    Moment,
    Row,
    Table,
    Value,
    milliseconds,
    quantity,
    table_of,
    titled,
    word,
)
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_bytes, format_seconds

_LONG_PAUSE_S = 0.05  # a shorter pause would be invisible on a session's timeline
_KINDS = {
    "gc": "gc",
    "fault": "fault",
    "not-cold": "not-cold",
    "telemetry-cut": "telemetry",
    "telemetry-dead": "telemetry",
}
# Kinds with a beginning event and an ending event, which has the duration.
_LASTING = {"limiter-begin": "limiter-end", "credits-exhausted": "credits-recovered"}
_ENDS = {end: begin for begin, end in _LASTING.items()}


def tables(session: Session) -> tuple[Table | None, ...]:
    return (
        _coldness(session.events, session.arm_names),
        _credits(session.telemetry, list(session.nodes)),
        _load_hosts(session.events),
        stages_table(session),
        environment(session),
    )


def arms_table(arms: Sequence[Volume], nodes: int) -> Table:
    """The compared arms; ``nodes`` is the number of an arm's nodes, all on volumes of one kind."""
    rows = {arm.spec.name: _arm_cells(arm) for arm in arms}
    return table_of("arms", "Arms", "arm", rows, *_arm_notes(arms, nodes), left=True)


def _arm_notes(arms: Sequence[Volume], nodes: int) -> Iterator[str]:
    if nodes > 1:
        yield f"Each arm is a cluster of {nodes} nodes, every one on such a volume."
    hosts = [f"{arm.spec.name} on {' + '.join(arm.spec.all_hosts)}" for arm in arms if arm.spec.all_hosts]
    if hosts:
        what = "node" if any(arm.spec.hosts for arm in arms) else "arm"
        yield f"Each {what} is on a host: {', '.join(hosts)}."


def _arm_cells(arm: Volume) -> dict[str, Cell]:
    spec = arm.spec
    readahead = arm.readahead_bytes
    return {
        "kind": word("kind", arm.kind.value),
        "type": word("type", spec.type),
        "size": _size(spec),
        "provisioned": _provisioned(arm),
        "device": word("device", arm.device),
        "file system": word("filesystem", arm.filesystem),
        "readahead": quantity("readahead_bytes", readahead, format_bytes(readahead or 0)),
    }


def _size(spec: VolumeSpec) -> Cell:
    """Size of the whole arm; if striped, number and size of its volumes."""
    size = format_bytes(spec.size_bytes)
    return Cell(
        text=size if spec.stripes == 1 else f"{spec.stripes} x {size}",
        facts={"size_bytes": spec.size_bytes * spec.stripes},
    )


def _provisioned(arm: Volume) -> Cell:
    """The volume's sustained limits and, after a slash, burst limits; for a real one, what the plan says."""
    spec = arm.spec
    model = known_model(spec) if arm.kind is Kind.EMULATED else None
    parts: list[str] = []
    facts: dict[str, Value] = {}
    for counts, metric, unit, size, given in (
        ("operations", "iops", "IOPS", 1, spec.iops),
        ("bytes", "throughput_bytes_per_s", "MiB/s", MIB, spec.throughput_bytes_per_s),
    ):
        limits = [limit for limit in model.limits if limit.counts == counts] if model else []
        rates = [limit.rate for limit in limits] or ([] if given is None else [given])
        burst = [limit.rate for limit in limits if not limit.of_credits] or rates
        ends = [min(of) * spec.stripes for of in (rates, burst) if of]
        text = "/".join(dict.fromkeys(f"{end / size:,.0f}" for end in ends))
        parts += [f"{text} {unit}"] if text else []
        facts |= zip((metric, f"burst_{metric}"), ends or (None, None), strict=True)
    if spec.read_latency != 1:
        parts.append(f"reads take {spec.read_latency:g} times as long")
    return Cell(text=", ".join(parts) or "-", facts=facts)


def _coldness(events: Sequence[Event], arms: Sequence[str]) -> Table | None:
    drops = [event for event in events if event.kind == "drop" and event.number("after") is not None]
    if not drops:
        return None
    return table_of(
        "coldness",
        "Coldness: page cache before measured requests",
        "arm",
        {arm: _coldness_cells([drop for drop in drops if drop.arm == arm]) for arm in arms},
        "Resident is the fraction of the index's bytes that was cached right after the drop.",
    )


def _coldness_cells(drops: Sequence[Event]) -> dict[str, Cell]:
    """An arm's cells; all but the first are empty for an arm without drops."""
    after = [drop.number("after") or 0.0 for drop in drops]
    retries = sum(int(drop.number("attempts") or 1) - 1 for drop in drops)
    waits = [drop.number("refill_s") or 0.0 for drop in drops]
    mean, most = sum(after) / max(1, len(after)), max(after, default=0.0)
    waited = sum(wait > 0 for wait in waits)
    cells = {
        "drops": quantity("drops", len(drops), str(len(drops))),
        "resident, mean": quantity("resident_mean", mean, f"{mean:.2%}"),
        "resident, most": quantity("resident_max", most, f"{most:.2%}"),
        "retries": quantity("retries", retries, str(retries)),
        "refill waits": quantity("refill_waits", waited, str(waited)),
        "waited in all": quantity("refill_s", sum(waits), format_seconds(sum(waits))),
    }
    return cells if drops else {title: NOTHING for title in cells} | {"drops": cells["drops"]}


def _credits(telemetry: pa.Table, arms: Sequence[str]) -> Table:
    rows = {}
    for arm in arms:
        _, levels = series_of(telemetry, arm, "emulator.credits")
        _, capacities = series_of(telemetry, arm, "emulator.credits_capacity")
        if len(levels):
            rows[arm] = _credit_cells(levels, capacities)
    note = "Spent adds up what left the bucket between two seconds, so refilling in between hides some."
    return table_of("credits", "Burst credits", "arm", rows, note)


def _credit_cells(levels: Floats, capacities: Floats) -> dict[str, Cell]:
    spent = float(-np.minimum(np.diff(levels), 0).sum())
    share = spent / capacities[-1] if len(capacities) and capacities[-1] else None
    numbers = {
        "at start": ("credits_start", levels[0]),
        "lowest": ("credits_lowest", levels.min()),
        "at end": ("credits_end", levels[-1]),
        "spent": ("credits_spent", spent),
    }
    cells = {title: quantity(metric, float(of), f"{of:,.0f}") for title, (metric, of) in numbers.items()}
    return cells | {"of bucket": quantity("fraction_spent", share, f"{share or 0:.2%}")}


def _load_hosts(events: Sequence[Event]) -> Table:
    """Hosts that made the load: delay of the connection to the volumes, and offset of the clocks."""
    hosts = sorted({str(event.fields["load_host"]) for event in events if "load_host" in event.fields})
    return table_of(
        "load_hosts",
        "Load from elsewhere",
        "load host",
        {host: _load_host_cells([e for e in events if e.fields.get("load_host") == host]) for host in hosts},
        "The way is what asking the coordinator for coldness and counters took besides the work, since the "
        "request before; a round trip (the quickest of eight, in the median) is part of each service time. "
        "Clocks are how far the load host's was ahead; times of requests are the coordinator's.",
    )


def _load_host_cells(events: Sequence[Event]) -> dict[str, Cell]:
    def values(name: str) -> list[float]:
        return [value for event in events if (value := event.number(name)) is not None]

    ways, offsets, uncertain = values("way_s"), values("offset_s"), values("uncertainty_s")
    round_trip = 2 * float(np.median(uncertain)) if uncertain else None
    return {
        "observed requests": quantity("observed", len(ways), str(len(ways))),
        "way, median": milliseconds("way_s_median", float(np.median(ways)) if ways else None),
        "most": milliseconds("way_s_max", max(ways, default=None)),
        "round trip": milliseconds("round_trip_s_median", round_trip),
        "clock at start": milliseconds("clock_offset_s_start", offsets[0] if offsets else None),
        "at end": milliseconds("clock_offset_s_end", offsets[-1] if offsets else None),
        "known to": milliseconds("clock_uncertainty_s", max(uncertain, default=None)),
    }


def series_of(telemetry: pa.Table, arm: str, metric: str) -> tuple[Floats, Floats]:
    """Times and values of one metric of one arm."""
    mask = pc.and_(
        pc.equal(telemetry["arm"].cast(pa.string()), arm),
        pc.equal(telemetry["metric"].cast(pa.string()), metric),
    )
    own = telemetry.filter(mask).sort_by("at_s")
    return own["at_s"].to_numpy(), own["value"].to_numpy()


def turns_of(samples: pa.Table, first_round: int = 0) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """By arm and task, (start of the first measured request, end of the last) per round, epoch seconds."""
    is_wanted = pc.and_(
        pc.equal(samples["phase"], Phase.MEASURE.value), pc.greater_equal(samples["round"], first_round)
    )
    own = samples.select(["arm", "task", "round", "started_s", "service_time_s"]).filter(is_wanted)
    times = own.append_column("ended_s", pc.add(own["started_s"], own["service_time_s"])).unify_dictionaries()
    grouped = times.group_by(["arm", "task", "round"]).aggregate([("started_s", "min"), ("ended_s", "max")])
    turns: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in grouped.sort_by("started_s_min").to_pylist():
        turns.setdefault((row["arm"], row["task"]), []).append((row["started_s_min"], row["ended_s_max"]))
    return turns


def environment(session: Session) -> Table:
    """Machine, software and dataset, one line each; unknown facts are left out."""
    facts: dict[str, Value] = {}
    tasks = {
        task: {key: value for key, value in asked.items() if key != "query"}  # "query" is a hash
        for task, asked in session.environment.get("tasks", {}).items()
    }
    shown = {key: value for key, value in session.environment.items() if key != "aws"}
    _flatten(facts, "", shown | {"tasks": tasks})
    dataset = {key: session.dataset.get(key) for key in ("documents", "bytes", "hash")}
    _flatten(facts, "dataset", dataset)
    return Table(
        key="environment",
        title="Environment",
        item_title="what",
        columns=(Column(title="value", subject="session", left=True),),
        rows=tuple(
            Row(item=name, cells=(Cell(text=_readable(name, value), facts={"value": value}),))
            for name, value in facts.items()
        ),
    )


def _flatten(facts: dict[str, Value], prefix: str, value: Any) -> None:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(facts, f"{prefix} {key}".strip(), inner)
    elif isinstance(value, list | tuple):
        facts[prefix] = ", ".join(str(item) for item in value)
    elif value is not None and value != "":
        facts[prefix] = value


def _readable(name: str, value: Value) -> str:
    is_size = name.endswith(("_bytes", " bytes")) and isinstance(value, int | float)
    return format_bytes(float(value)) if is_size and value is not None else str(value)


def moments(session: Session) -> tuple[Moment, ...]:
    """All moments in order; one without an end lasts to the end of the recording."""
    events = tuple(event for event in session.events if event.has_time)
    last = max((event.at_s for event in events), default=session.started_at)
    listed = [_moment(session, *span) for span in _lasting(events, last)]
    starts = [event for event in events if str(event.fields.get("name")).startswith("start nodes, ")]
    for event in events:
        if event.kind == "telemetry-cut" and any(_during(event, start) for start in starts):
            continue  # a restarted node has no cgroup for a while
        length = (event.number("seconds") or 0.0) if event.kind == "gc" else 0.0
        if event.kind in _KINDS and not (event.kind == "gc" and length < _LONG_PAUSE_S):
            listed.append(_moment(session, event, event.at_s - length, event.at_s))
    return tuple(sorted(listed, key=lambda moment: moment.start_s))


def _during(event: Event, stage: Event) -> bool:
    return stage.at_s - (stage.number("seconds") or 0.0) <= event.at_s <= stage.at_s


def _lasting(events: tuple[Event, ...], last: float) -> Iterator[tuple[Event, float, float]]:
    open_: dict[tuple[str, str | None, str], Event] = {}
    for event in events:
        kind = _ENDS.get(event.kind, event.kind)
        key = kind, event.arm, f"{event.fields.get('limit')} {event.fields.get('node')}"
        if event.kind in _LASTING:
            open_.setdefault(key, event)
        elif event.kind in _ENDS and key in open_:
            begun = open_.pop(key)
            yield begun, begun.at_s, event.at_s
    for begun in open_.values():
        yield begun, begun.at_s, max(begun.at_s, last)


def _moment(session: Session, event: Event, start: float, end: float) -> Moment:
    kind = _KINDS.get(event.kind) or event.kind.split("-")[0]
    own = event.fields.get("text")
    text = f"{event.fields.get('limit')} limiter at work" if kind == "limiter" else "burst credits used up"
    return Moment(
        arm=event.arm or "",
        kind=kind,
        text=str(own) if own else text if event.kind in _LASTING else event.kind,
        start_s=start - session.started_at,
        end_s=end - session.started_at,
    )


def moments_table(moments: Sequence[Moment], arms: Sequence[str]) -> Table:
    """Each kind of moment once: how often on which arm, for how long in total, and when first."""
    columns = list(titled(*arms, left=True))
    if not all(moment.arm in arms for moment in moments):
        columns.append(Column(title="no arm of its own", subject="session", left=True))
    rows = []
    for kind, text in dict.fromkeys((moment.kind, moment.text) for moment in moments):
        same = [moment for moment in moments if (moment.kind, moment.text) == (kind, text)]
        of_arms = [[m for m in same if m.arm == arm] for arm in arms]
        of_none = [m for m in same if m.arm not in arms]
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


def _times(moments: Sequence[Moment]) -> Cell:
    if not moments:
        return NOTHING
    seconds, first = sum(m.end_s - m.start_s for m in moments), max(0.0, min(m.start_s for m in moments))
    facts: dict[str, Value] = {"events": len(moments), "seconds": seconds, "first_at_s": first}
    often = "once" if len(moments) == 1 else f"{len(moments)} times, first"
    lasted = f", {format_seconds(seconds)} in all" if seconds else ""
    return Cell(text=f"{often} at {first / 60:.1f} min{lasted}", facts=facts)


def stages_table(session: Session) -> Table | None:
    """The recorded stages, then the parts of the race in between.

    If the rounds were recorded as a stage, their parts are listed separately, not added again.
    """
    stages = [
        (str(event.fields["name"]), seconds)
        for event in session.events
        if event.kind == "stage" and "name" in event.fields
        if (seconds := event.number("seconds")) is not None
    ]
    names = {name for name, _ in stages}
    fio = ("fio baselines", _seconds(session.events, "baseline", "seconds"))
    race = [
        ("evicting and verifying", _seconds(session.events, "drop", "seconds")),
        ("waiting for volumes to refill", _seconds(session.events, "drop", "refill_s")),
        ("warm-up requests", _requests_s(session.samples, Phase.WARMUP)),
        ("measured requests", _requests_s(session.samples, Phase.MEASURE)),
    ]
    spent = stages + [fio] * ("baselines" not in names and fio[1] > 0)
    parts = [(name, seconds) for name, seconds in race if seconds > 0]
    inside = "rounds" in names
    if not inside:
        spent += parts
    if not spent:
        return None
    if session.ended_at is not None:
        total = session.ended_at - session.started_at
        rest = total - sum(seconds for _, seconds in spent)
        if rest >= 0:  # clients that evict at once, or a clock that was set, make the parts longer
            spent.append(("all else" if inside else "Rally between tasks, and all else", rest))
        spent.append(("whole session", total))
    if inside:
        spent += [(f"in the race: {name}", seconds) for name, seconds in parts]
    return Table(
        key="stages",
        title="Where the time went",
        item_title="stage",
        columns=(Column(title="time", subject="session"),),
        rows=tuple(
            Row(item=name, cells=(quantity("seconds", seconds, f"{seconds:.1f} s"),))
            for name, seconds in spent
        ),
    )


def _seconds(events: Sequence[Event], kind: str, key: str) -> float:
    return sum(event.number(key) or 0.0 for event in events if event.kind == kind)


def _requests_s(samples: pa.Table, phase: Phase) -> float:
    """Seconds spent in requests; of concurrent clients only the first counts."""
    mask = pc.and_(pc.equal(samples["phase"], phase.value), pc.equal(samples["client"], 0))
    mask = pc.and_(mask, is_time(samples["service_time_s"]))
    return float(pc.sum(samples["service_time_s"].filter(mask)).as_py() or 0.0)
