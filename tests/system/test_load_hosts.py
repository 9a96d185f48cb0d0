"""A race whose load comes from two hosts, which are network namespaces with a clock of their own."""

from collections import Counter
from collections.abc import Iterator

import load_hosts
import pytest
from quick_node import NODE_TABLE
from rally_command import Homes
from small_race import PLAN, TASKS, Raced, raced

pytestmark = [pytest.mark.system, pytest.mark.long]

HOSTS = ",".join(load_hosts.LOAD_HOSTS)


@pytest.fixture(scope="module")
def elsewhere(own: Homes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Homes whose races may be driven by the daemons of three hosts."""
    plan = PLAN.partition("[[baseline]]")[0].replace("20_000", "2_000") + NODE_TABLE
    (own.rally / "hosts.toml").write_text(plan.replace('nodes = "per-arm"', 'nodes = "auto"'))
    with (
        pytest.MonkeyPatch.context() as patched,
        load_hosts.daemons(own.variables, tmp_path_factory.mktemp("hosts")),
    ):
        patched.setenv("ESRALLY_EBS_ACTORS", "sockets")
        yield own


def requests(race: Raced) -> list[dict[str, object]]:
    return [dict(event.fields) for event in race.session.events if event.kind == "io"]


def test_load_from_elsewhere_is_cold_observed_and_in_the_coordinators_time(elsewhere: Homes) -> None:
    cold = raced(
        *(elsewhere, f"--include-tasks={TASKS[0]}", f"--load-driver-hosts={HOSTS}"),
        **{"plan": "hosts.toml", "rounds": 2, "iterations": 3, "warmup_iterations": 2},
    )
    assert (cold.session.state, cold.session.plan.design.nodes) == ("complete", "one")
    assert Counter(row["arm"] for row in cold.measured) == {"gp2": 6, "gp3": 6}
    assert max(row["resident_before"] for row in cold.measured) <= 0.01
    drops = [event for event in cold.session.events if event.kind == "drop"]
    assert len(drops) == len(requests(cold)) == 12
    assert {fields["load_host"] for fields in requests(cold)} == {load_hosts.LOAD_HOSTS[0]}
    assert all(0 < fields["way_s"] < 1 for fields in requests(cold))
    # its counter is a day ahead, yet every request lies within what was observed of it
    for row, fields in zip(cold.measured, requests(cold), strict=True):
        assert row["started_s"] == pytest.approx(fields["started_s"], abs=0.1)
        assert row["started_s"] >= fields["started_s"] - 0.001
    clocks = [event for event in cold.session.events if event.kind == "clock"]
    assert clocks
    for clock in clocks:  # it has the coordinator's own time of day
        assert abs(clock.fields["offset_s"]) <= clock.fields["uncertainty_s"] < 0.05
    for suffix in ("txt", "md", "csv", "json", "html"):
        assert load_hosts.LOAD_HOSTS[0] in cold.report(suffix), suffix


def test_two_hosts_share_the_clients_of_a_warm_search(elsewhere: Homes) -> None:
    warm = raced(
        *(elsewhere, f"--include-tasks={TASKS[0]}", f"--load-driver-hosts={HOSTS}"),
        **{"plan": "hosts.toml", "cache": "warm", "rounds": 1, "iterations": 20, "search_clients": 2},
    )
    assert warm.session.plan.design.nodes == "per-arm"
    assert Counter((row["arm"], row["client"]) for row in warm.measured) == {
        (arm, client): 20 for arm in ("gp2", "gp3") for client in (0, 1)
    }
    assert {fields["load_host"] for fields in requests(warm)} == set(load_hosts.LOAD_HOSTS)
