"""The table of work with shards: bytes over the slowest limit, and what held it back."""

from dataclasses import replace
from pathlib import Path

import golden_session
import pytest

from esrally_ebs.analysis.profile import WAITED, Profile
from esrally_ebs.model import Event, VolumeSpec
from esrally_ebs.report.recoveries import SETTING, expected, limits_of, recovery_table
from esrally_ebs.store import Session, load_session
from esrally_ebs.units import GIB, MIB


def recovery(round_: int = 1, seconds: float = 12.0) -> Event:
    fields = {"task": "replica", "work": "replica", "round": round_, "seconds": seconds}
    fields |= {"bytes": 400 * MIB, "largest_file_bytes": 125 * MIB, "throttled_s": 6.0}
    return Event(at_s=1.0, kind="recovery", arm="gp3", fields=fields)


@pytest.fixture
def recorded(tmp_path: Path) -> Session:
    return load_session(golden_session.record(tmp_path))


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 10.0), ("20mb", 20.0), ("1gb", 2.125), ("-1", 2.125), ("0", 2.125)]
)
def test_the_setting_is_in_the_units_of_elasticsearch_and_has_its_default(
    recorded: Session, text: str | None, seconds: float
) -> None:
    node = recorded.plan.node.model_copy(update={"params": {SETTING: text} if text else {}})
    plan = recorded.plan.model_copy(update={"node": node})
    table = recovery_table(replace(recorded, plan=plan, events=(recovery(),)), {})
    assert table is not None
    assert table.rows[0].cells[3].facts == {"expected_s": seconds}


def test_the_largest_file_is_written_when_it_has_come() -> None:
    limits = {"setting": {SETTING: (50.0, 0.0)}, "of_volume": {"throughput": (10.0, 20.0)}}
    assert expected("replica", 120, 40, **limits) == (12.0, "throughput")
    assert expected("restore", 120, 40, **limits) == (10.0, "throughput")
    assert expected("merge", 120, 40, **limits) == (22.0, "throughput")
    limits["setting"] = {SETTING: (5.0, 0.0)}
    assert expected("restore", 120, 40, **limits) == (26.0, SETTING)
    assert expected("replica", 120, 40, setting={SETTING: (5.0, 0.0)}, of_volume={}) == (24.0, SETTING)


def test_burst_credits_are_a_limit_where_there_are_none_left() -> None:
    full = VolumeSpec(name="a", type="st1", size_bytes=1024 * GIB)
    assert limits_of(full) == {"throughput": (250 * MIB, 250 * MIB)}
    assert limits_of(replace(full, credits=0))["credits"] == (40 * MIB, 0.0)
    assert limits_of(VolumeSpec(name="a", type="mounted", size_bytes=0)) == {}


def test_the_table_has_what_was_measured_and_what_held_it_back(recorded: Session) -> None:
    events = (recovery(round_=0, seconds=99.0), recovery(seconds=11.0), recovery(seconds=13.0))
    grown = {"node.processor_s": 12.0, "device.read_s": 6.0, "device.write_s": 6.0, f"{WAITED}iops": 3.0}
    profiles = {("replica", "gp3"): {1: Profile(requests=1, seconds=12.0, grown=grown)}}
    table = recovery_table(replace(recorded, events=events), profiles)
    assert table is not None
    (row,) = table.rows
    assert [row.item, *(cell.text for cell in row.cells)] == [
        *("replica on gp3", "400.0 MiB", "125.0 MiB", "12 s", "10 s", "120%", SETTING),
        f"{SETTING} 50%, volume IOPS 25%, 1.0 processors, 0.5 reads, 0.5 writes",
    ]
    assert recovery_table(recorded, {}) is None
