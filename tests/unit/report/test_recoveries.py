"""The table of work with shards: bytes over the slowest limit, and what held it back."""

from dataclasses import replace
from pathlib import Path

import golden_session
import pytest

from esrally_ebs.analysis.profile import WAITED, Profile
from esrally_ebs.model import Event, VolumeSpec
from esrally_ebs.report.recoveries import SETTING, Limits, expected, limits_of, recovery_table
from esrally_ebs.store import Session, load_session
from esrally_ebs.units import GIB, MIB


def recovery(round_: int = 1, seconds: float = 12.0) -> Event:
    fields = {"task": "replica", "work": "replica", "round": round_, "seconds": seconds}
    fields |= {"bytes": 400 * MIB, "files_bytes": [150 * MIB, 250 * MIB], "throttled_s": 6.0}
    return Event(at_s=1.0, kind="recovery", arm="gp3", fields=fields)


@pytest.fixture
def recorded(tmp_path: Path) -> Session:
    return load_session(golden_session.record(tmp_path))


@pytest.mark.parametrize(
    ("text", "mib_per_s", "bound_s"),
    [(None, 40, 0.0), ("20mb", 20, 0.0), ("1gb", 232.4, 0.234), ("-1", 232.4, 0.234)],
)
def test_the_setting_is_in_the_units_of_elasticsearch_and_has_its_default(
    recorded: Session, text: str | None, mib_per_s: float, bound_s: float
) -> None:
    node = recorded.plan.node.model_copy(update={"params": {SETTING: text} if text else {}})
    plan = recorded.plan.model_copy(update={"node": node})
    table = recovery_table(replace(recorded, plan=plan, events=(recovery(),)), {})
    # 128 MiB/s after 128 MiB: each file is forced, and half a MiB of the second comes during the first one;
    # without a setting files are read 128 KiB after 128 KiB, and the second is bound by the volume, too
    expected_s = 399.5 / mib_per_s + bound_s + 22 / 128 + 122 / 128
    assert table.rows[0].cells[3].facts == {"expected_s": pytest.approx(expected_s, rel=0.005)}


def test_files_are_forced_to_the_volume_when_they_have_come() -> None:
    limits: dict[str, Limits] = {
        "setting": {SETTING: (50 * MIB, 0.0)},
        "of_volume": {"throughput": (10.0 * MIB, 0.0)},
    }
    files = [20.0 * MIB, 40.0 * MIB, 60.0 * MIB]
    # both ends take 12 s; after either of the first two files, half a MiB of the next one comes meanwhile
    assert expected("replica", files, **limits) == (pytest.approx(24 - 2 * 0.05), "throughput")
    assert expected("restore", files, **limits) == (12.0, "throughput")  # of no volume
    assert expected("merge", files, **limits) == (24.0, "throughput")
    limits["setting"] = {SETTING: (5.0 * MIB, 0.0)}
    assert expected("restore", files, **limits) == (24.0 + 6.0, SETTING)
    assert expected("replica", files, setting=limits["setting"], of_volume={}) == (24.0, SETTING)
    assert expected("replica", [], **limits) == (0.0, "")


def test_the_bucket_of_one_end_fills_while_the_other_works() -> None:
    limits: dict[str, Limits] = {"setting": {}, "of_volume": {"throughput": (10.0 * MIB, 20.0 * MIB)}}
    files = [20.0 * MIB, 40.0 * MIB, 60.0 * MIB]
    # from full buckets: 20 at once at both ends, 39.5 in 4 s, 40 in 2 s as 20 have come back meanwhile; then
    # the source has 20 less half a MiB, gets 59.5 in 4 s, and the target forces 60 in 4 s
    assert expected("replica", files, **limits) == (pytest.approx(14.0, abs=0.01), "throughput")
    assert expected("restore", files, **limits) == (10.0, "throughput")


def test_what_comes_while_a_small_file_is_forced_costs_nothing() -> None:
    limits: dict[str, Limits] = {"setting": {}, "of_volume": {"throughput": (1.0 * MIB, 0.0)}}
    small = [0.25 * MIB] * 8
    assert expected("relocation", small, **limits) == (pytest.approx(2.25), "throughput")


def test_the_kernel_writes_by_itself_what_a_large_file_had_in_memory_for_long() -> None:
    limits: dict[str, Limits] = {"setting": {}, "of_volume": {"throughput": (1.0 * MIB, 0.0)}}
    assert expected("relocation", [100.0 * MIB], **limits) == (pytest.approx(130.0), "throughput")


def test_burst_credits_are_a_limit_where_there_are_none_left() -> None:
    full = VolumeSpec(name="a", type="st1", size_bytes=1024 * GIB)
    assert limits_of(full) == {"throughput": (250 * MIB, 250 * MIB)}
    assert limits_of(replace(full, credits=0))["credits"] == (40 * MIB, 0.0)
    assert limits_of(VolumeSpec(name="a", type="mounted", size_bytes=0)) == {}
    # however they came to be there: they grow before the work, too
    assert limits_of(replace(full, credits=0), 900 * MIB)["credits"] == (40 * MIB, 900 * MIB)
    assert limits_of(full, -5.0)["credits"] == (40 * MIB, 0.0)
    assert limits_of(VolumeSpec(name="a", type="gp2", size_bytes=100 * GIB), 64.0)["credits"] == (
        75 * MIB,
        16 * MIB,
    )


def test_credits_are_those_that_each_node_had_before_the_work(recorded: Session) -> None:
    begin = {"emulator.credits": 2.0 * 100 * MIB}
    fields = {"task": "replica", "round": 1, "requests": 1, "started_s": 1.0, "begin": begin, "end": begin}
    window = Event(at_s=2.0, kind="io", arm="gp3", fields=fields)
    node = recorded.plan.node.model_copy(update={"count": 2, "params": {SETTING: "-1"}})
    spec = VolumeSpec(name="gp3", type="st1", size_bytes=1024 * GIB, credits=0, read_latency=1e-3)
    arms = tuple(replace(arm, spec=replace(spec, name=arm.spec.name)) for arm in recorded.arms)
    plan = recorded.plan.model_copy(update={"node": node})
    table = recovery_table(replace(recorded, plan=plan, arms=arms, events=(recovery(), window)), {})
    assert table is not None
    # 40 MiB/s after 100 MiB: 50 of the first file come after that, and are forced after that, as those of the
    # second are of which the source can get 50 at once again, and the target 100
    took_s = 50 / 40 + 50 / 40 + (250 - 50) / 40 + (250 - 100) / 40
    assert table.rows[0].cells[3].facts == {"expected_s": pytest.approx(took_s, rel=0.005)}
    assert table.rows[0].cells[5].text == "volume credits"


def test_where_limits_let_all_pass_at_once_it_is_still_to_be_read(recorded: Session) -> None:
    node = recorded.plan.node.model_copy(update={"params": {SETTING: "-1"}})
    fields = {**recovery(seconds=0.0129).fields, "bytes": 3 * MIB, "files_bytes": [3 * MIB]}
    small = replace(recovery(), fields=fields)
    plan = recorded.plan.model_copy(update={"node": node})
    table = recovery_table(replace(recorded, plan=plan, events=(small,)), {})
    assert table is not None
    assert [cell.text for cell in table.rows[0].cells[3:6]] == ["12.9 ms", "100%", "read latency"]


def test_the_table_has_what_was_measured_and_what_held_it_back(recorded: Session) -> None:
    events = (recovery(round_=0, seconds=99.0), recovery(seconds=11.0), recovery(seconds=13.0))
    grown = {"node.processor_s": 12.0, "device.read_s": 6.0, "device.write_s": 6.0, f"{WAITED}iops": 3.0}
    profiles = {("replica", "gp3"): {1: Profile(requests=1, seconds=12.0, grown=grown)}}
    table = recovery_table(replace(recorded, events=events), profiles)
    (row,) = table.rows
    assert [row.item, *(cell.text for cell in row.cells)] == [
        *("replica on gp3", "400.0 MiB", "250.0 MiB", "12 s", "11.1 s", "108%", SETTING),
        f"{SETTING} 50%, volume IOPS 25%, 1.0 processors, 0.5 reads, 0.5 writes",
    ]
    assert recovery_table(recorded, {}).rows == ()
