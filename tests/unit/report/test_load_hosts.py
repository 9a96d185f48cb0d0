"""The table of load from elsewhere: what the way to the volumes added, and how far clocks were apart."""

from dataclasses import replace
from pathlib import Path

import golden_session

from esrally_ebs.model import Event
from esrally_ebs.report.build import build
from esrally_ebs.store import load_session


def event(kind: str, host: str | None = "10.0.0.2", **fields: object) -> Event:
    return Event(at_s=1.0, kind=kind, arm=None, fields=fields | ({"load_host": host} if host else {}))


def test_each_load_host_has_its_way_and_its_clock(tmp_path: Path) -> None:
    session = load_session(golden_session.record(tmp_path))
    assert not [table for table in build(session).tables if table.key == "load_hosts"]
    events = (
        event("clock", offset_s=0.5, uncertainty_s=0.001),
        *(event("io", way_s=way) for way in (0.002, 0.004, 0.009)),
        event("io", host=None),  # made on the coordinator itself
        event("clock", offset_s=0.6, uncertainty_s=0.002),
        event("clock", host="10.0.0.3", offset_s=0.0, uncertainty_s=0.003),
    )
    (table,) = (t for t in build(replace(session, events=events)).tables if t.key == "load_hosts")
    first, idle = table.rows
    assert [first.item, *(cell.text for cell in first.cells)] == [
        *("10.0.0.2", "3", "4.00 ms", "9.00 ms", "3.00 ms"),
        *("500.00 ms", "600.00 ms", "2.00 ms"),
    ]
    assert [idle.item, *(cell.text for cell in idle.cells)] == [
        *("10.0.0.3", "0", "-", "-", "6.00 ms", "0.00 ms", "0.00 ms", "3.00 ms")
    ]
