"""Real races of one small plan, and what the tests of their sessions look at."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from quick_node import NODE_TABLE
from rally_command import Ended, Homes, homes

from esrally_ebs.store import Session, find_session, load_session

ARMS = ("gp2", "gp3")
TASKS = ("range_field_big_range", "range_field_conjunction_small_range_big_term_query")
ROUNDS, ITERATIONS, WARMUPS = 4, 3, 6
JOBS = {"short": (0, 1), "once": (0,)}  # job -> the times at which it runs: 0 the start, 1 the end
PLAN = f"""\
name = "test-race"
accept = ["lateness"]  # beside other work, on few processors
[[arm]]
name = "gp2"
type = "gp2"
size = "2GiB"
[[arm]]
name = "gp3"
type = "gp3"
size = "2GiB"
[dataset]
documents = 20_000
[race]
iterations = {ITERATIONS}
warmup_iterations = {WARMUPS}
[design]
nodes = "per-arm"
rounds = {ROUNDS}
[[baseline]]
name = "short"
rw = "randread"
bs = "16k"
size = "4m"
runtime = "1s"
repeat = true
[[baseline]]
name = "once"
rw = "readwrite"
bs = "16k"
size = "4m"
"""

# without baselines, and with nodes that start quickly
SHORT = PLAN.partition("[[baseline]]")[0] + NODE_TABLE


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Homes]:
    """Homes that all races of this plan share, so that the dataset is built once."""
    with homes(tmp_path_factory.mktemp("race")) as made:
        (made.rally / "plan.toml").write_text(PLAN)
        (made.rally / "short.toml").write_text(SHORT)
        yield made


@dataclass(frozen=True)
class Raced:
    """A race that has ended, and its session."""

    ended: Ended
    session: Session
    measured: list[dict[str, Any]]  # samples after the warm-up, in the order of their starts
    warming: list[dict[str, Any]]

    def report(self, suffix: str) -> str:
        return (self.session.path / f"report.{suffix}").read_text()


def raced(own: Homes, *flags: str, plan: str = "short.toml", **params: object) -> Raced:
    """Race with these track parameters; the race must succeed."""
    track_params = ",".join(f"{name}:{value}" for name, value in {"plan": own.rally / plan, **params}.items())
    ended = own.race(f"--track-params={track_params}", *flags)
    assert ended.exit_code == 0, ended.output
    session = load_session(find_session(own.pack, "latest"))
    rows = sorted(session.samples.to_pylist(), key=lambda row: float(row["started_s"]))
    return Raced(
        ended=ended,
        session=session,
        measured=[row for row in rows if row["phase"] == "measure"],
        warming=[row for row in rows if row["phase"] == "warmup"],
    )


@pytest.fixture(scope="session")
def race(own: Homes) -> Raced:
    """The race that most tests look at."""
    return raced(own, f"--include-tasks={','.join(TASKS)}", plan="plan.toml")


def telemetry(race: Raced) -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    """Telemetry by arm and metric, in the order of time."""
    rows = defaultdict(list)
    for row in sorted(race.session.telemetry.to_pylist(), key=lambda row: float(row["at_s"])):
        rows[row["arm"], row["metric"]].append(row)
    return rows
