"""Where the time of a session went, from its events and samples."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.causes.told import number_of
from esrally_ebs.model import Event, Phase
from esrally_ebs.report.model import Column, Row, Table, quantity
from esrally_ebs.store.session import Session


def stages_table(session: Session) -> Table | None:
    """The stages as recorded, then what the race in between was made of.

    Where the rounds were recorded as a stage, what they were made of is told apart, not added again.
    """
    stages = [
        (str(event.fields["name"]), seconds)
        for event in session.events
        if event.kind == "stage" and "name" in event.fields
        if (seconds := number_of(event, "seconds")) is not None
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
        spent.append(
            (
                "all else" if inside else "Rally between tasks, and all else",
                total - sum(seconds for _, seconds in spent),
            )
        )
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
    return sum(number_of(event, key) or 0.0 for event in events if event.kind == kind)


def _requests_s(samples: pa.Table, phase: Phase) -> float:
    """Time in requests; of several clients at once only the first one's counts."""
    mask = pc.and_(pc.equal(samples["phase"], phase.value), pc.equal(samples["client"], 0))
    return float(pc.sum(samples["service_time_s"].filter(mask)).as_py() or 0.0)
