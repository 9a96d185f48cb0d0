"""Beyond one machine: load from two hosts, arms on two others; all are network namespaces of this machine.

    sudo .venv/bin/python benchmarks/far.py whole
    sudo .venv/bin/python benchmarks/far.py aa 10 --results far-aa.jsonl
    sudo .venv/bin/python benchmarks/far.py pairs 6 --results far-pairs.jsonl

*whole*: the plan ``smoke`` once with all on this machine, once with two load hosts and two data hosts, the
second of which has a Docker engine of its own. Must: the same record and the same report, but for what only
machines apart have. *aa*: as far away, on two like volumes, in six rounds or ``--rounds``. Must: none claims
a difference.

*pairs*: sessions of two like volumes on this machine, by turns with local load and with load from a
namespace, on one dataset. Each pair gives one ratio of p50, the geometric mean over tasks and arms, after the
median of the measured round trip is taken off; the result is the pairs' geometric mean with its 95 % interval
(Student's t). Must: within 2 %. Of the far ones also ``way_s``, what the coordination of a cold request takes
on its way. Must: 1 ms in the median.

Whatever ends ``aa`` or ``pairs``, the next call goes on from its file of results, up to as many sessions or
pairs as asked for. They need what the system tests of data hosts need: an SSH server, Docker, veth.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import data_hosts
import load_hosts
import numpy as np
from races import append, be_called, lines_of
from scipy import stats
from sessions_aa import CLAIMS, line_of, recorded, show

from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session

MAX_CHANGE, MAX_WAY_S = 0.02, 1e-3
# what a session has only where hosts are apart: kinds of events, checks, tables of the report
ONLY_FAR = {"clock", "hosts", "ways", "load_hosts"}
OF_CHANCE = ("events", "marks", "stages")  # tables whose rows are what happened to happen
ARM = '[[arm]]\nname = "{name}"\ntype = "{type}"\nsize = "20GiB"\n'
LIKE = (("left", "gp3"), ("right", "gp3"))
PAIR = """\
[dataset]
documents = 300_000
[race]
challenge = "search-only"
iterations = 4
warmup_iterations = 20
[design]
rounds = 12
"""
Line = dict[str, Any]


@contextmanager
def world(*, apart: bool) -> Iterator[tuple[Path, Sequence[data_hosts.DataHost]]]:
    """A folder for plans, with the daemons of load hosts and, for arms ``apart``, with data hosts."""
    with tempfile.TemporaryDirectory(prefix="ebs-far-") as folder:
        tmp = Path(folder)
        os.environ["ESRALLY_EBS_ACTORS"] = "sockets"
        if not apart:
            with load_hosts.daemons(os.environ, tmp):
                yield tmp, ()
            return
        with data_hosts.data_hosts(tmp, engines=True) as (hosts, ssh):
            os.environ["ESRALLY_EBS_SSH"] = ssh
            with load_hosts.daemons(os.environ, tmp):
                yield tmp, hosts


def smoke(arms: Sequence[tuple[str, str]], hosts: Sequence[data_hosts.DataHost]) -> str:
    """The plan ``smoke`` with these arms, each on the host of its number."""
    places = [f'host = "{host.name}"\n' for host in hosts] or [""] * len(arms)
    tables = [ARM.format(name=name, type=kind) + at for (name, kind), at in zip(arms, places, strict=True)]
    _, node, rest = plan_path("smoke").read_text().partition("[node]")
    tables += [node + rest, *(host.table for host in hosts)]
    return 'name = "far"\naccept = ["lateness"]\n' + "".join(tables)


def raced(folder: Path, plan: str, hosts: Sequence[str], **params: object) -> tuple[Session, float]:
    """A session of this plan with load from these hosts, and how long its command took (s)."""
    file, session = folder / "plan.toml", str(uuid.uuid4())
    file.write_text(plan)
    words = [f"--load-driver-hosts={','.join(hosts)}"] if hosts else []
    seconds = recorded(file, session, params, *words)
    return load_session(home() / "sessions" / session), seconds


def whole() -> bool:
    """Compares what is recorded and reported of two sessions."""
    arms = (("gp2", "gp2"), ("gp3", "gp3"))
    with world(apart=True) as (folder, hosts):
        here, _ = raced(folder, smoke(arms, ()), (), search_clients=2)
        far, seconds = raced(folder, smoke(arms, hosts), load_hosts.LOAD_HOSTS, search_clients=2)
    good = True
    for what, facts in facts_of(here).items():
        others = facts_of(far)[what]
        unlike = {key for key in facts.keys() | others.keys() if facts.get(key) != others.get(key)} - ONLY_FAR
        good &= not unlike
        values = {key: (facts.get(key), others.get(key)) for key in sorted(unlike)}
        print(f"{what}: {len(facts)} alike" if not unlike else f"{what}, here and far: {values}")
    print(f"the far session took {seconds:.0f} s")
    return good


def facts_of(session: Session) -> dict[str, Mapping[str, object]]:
    """What of a session does not depend on how fast it was."""
    document = json.loads((session.path / "report.json").read_text())
    samples = session.samples
    rows = Counter(
        f"{row['phase']} {row['arm']} {row['task']} round {row['round']}" for row in samples.to_pylist()
    )
    hits = {f"{row['arm']} {row['task']}": row["hits"] for row in samples.to_pylist()}
    telemetry = {f"{row['arm']} {row['metric']}": True for row in session.telemetry.to_pylist()}
    return {
        "files": {str(path.relative_to(session.path)): True for path in session.path.glob("*.*")},
        "columns of samples": {field.name: str(field.type) for field in samples.schema},
        "requests": dict(rows),
        "hits": hits,
        "coldness": {"all cold": max(row["resident_before"] or 0.0 for row in samples.to_pylist()) <= 0.01},
        "kinds of events": {event.kind: True for event in session.events},
        "telemetry": telemetry,
        "keys of the report": dict.fromkeys(document, True),
        "checks": {check["name"]: True for check in document["checks"]},
        "tables": {key: rows_of(key, rows) for key, rows in document["tables"].items()},
    }


def rows_of(table: str, rows: Mapping[str, object]) -> list[str]:
    """Those that two like sessions both have; the environment also describes each host."""
    return sorted(row for row in rows if table not in OF_CHANCE and not row.startswith("hosts "))


def aa(wanted: int, results: Path, rounds: int) -> bool:
    """Whether none of so many sessions far away claims a difference."""
    if len(lines_of(results)) < wanted:
        with world(apart=True) as (folder, hosts):
            while len(lines_of(results)) < wanted:
                params = {"search_clients": 2, "rounds": rounds}
                append(results, line_of(*raced(folder, smoke(LIKE, hosts), load_hosts.LOAD_HOSTS, **params)))
    lines = lines_of(results)
    show(lines)
    return not any(
        Verdict(text) in CLAIMS
        for line in lines
        for text in [*line["verdicts"].values(), *line["together"].values()]
    )


def pairs(wanted: int, results: Path) -> bool:
    """Whether load from a namespace leaves p50 as it is, and its coordination is quick."""
    if len(lines_of(results)) < wanted:
        plan = (
            'name = "far-pairs"\n' + "".join(ARM.format(name=name, type=kind) for name, kind in LIKE) + PAIR
        )
        with world(apart=False) as (folder, _):
            while (number := len(lines_of(results))) < wanted:
                sides = {"here": (), "far": load_hosts.LOAD_HOSTS[:1]}
                order = list(sides)[:: 1 if number % 2 else -1]  # who begins alternates
                append(results, {side: medians(raced(folder, plan, sides[side])[0]) for side in order})
    return judged(lines_of(results))


def medians(session: Session) -> Line:
    """p50 of each task on each arm (s), what is known of the ways, and what the requests took of the node."""
    rows = [row for row in session.samples.to_pylist() if row["phase"] == "measure"]
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(f"{row['task']} on {row['arm']}", []).append(row["service_time_s"])
    requests = [event.fields for event in session.events if event.kind == "io"]
    grown = {
        name: [fields["end"][name] - fields["begin"][name] for fields in requests]
        for name in ("emulator.reads", "node.processor_s")
    }
    trips = [2 * event.fields["uncertainty_s"] for event in session.events if event.kind == "clock"]
    return {
        "session": session.id,
        "p50_s": {key: float(np.median(values)) for key, values in times.items()},
        "requests": len(rows),
        "round_trip_s": float(np.median(trips)) if trips else 0.0,
        "way_s": [round(fields["way_s"], 6) for fields in requests if "way_s" in fields],
        **{name: float(np.mean(values)) for name, values in grown.items()},
    }


def judged(lines: Sequence[Line]) -> bool:
    """Prints each pair, the ratio over all of them, and the ways."""
    print(f"{'pair':5} {'here':>9} {'far':>9} {'round trip':>10} {'ratio':>7} reads a request, processor ms")
    logs = []
    for number, line in enumerate(lines, 1):
        here, far = line["here"], line["far"]
        trip_s = far["round_trip_s"]
        tasks = [math.log((far["p50_s"][key] - trip_s) / here["p50_s"][key]) for key in here["p50_s"]]
        logs.append(float(np.mean(tasks)))
        p50s = (1e3 * float(np.exp(np.mean(np.log(list(each["p50_s"].values()))))) for each in (here, far))
        used = (f"{each['emulator.reads']:.1f} {1e3 * each['node.processor_s']:.2f}" for each in (here, far))
        cells = " ".join(f"{ms:6.2f} ms" for ms in (*p50s, 1e3 * trip_s))
        print(f"{number:5} {cells} {math.exp(logs[-1]):7.4f} {', '.join(used)}")
    ways_s = [way_s for line in lines for way_s in line["far"]["way_s"]]
    median, p90, p99 = np.percentile(ways_s, (50, 90, 99))
    print(f"way of {len(ways_s)} requests: {1e3 * median:.2f} ms, p90 {1e3 * p90:.2f}, p99 {1e3 * p99:.2f}")
    mean = float(np.mean(logs))
    half = math.nan
    if len(logs) > 1:
        half = float(stats.t.ppf(0.975, len(logs) - 1) * np.std(logs, ddof=1) / math.sqrt(len(logs)))
    low, high = math.exp(mean - half), math.exp(mean + half)
    print(f"p50, far / here: {math.exp(mean):.4f} ({low:.4f} to {high:.4f}), must within {MAX_CHANGE:.0%}")
    return abs(math.exp(mean) - 1) <= MAX_CHANGE and float(median) <= MAX_WAY_S


def main() -> int:
    """Returns 1 when anything misses what it must reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("whole", "aa", "pairs"))
    parser.add_argument(
        "count", type=int, nargs="?", default=0, help="sessions or pairs in the file of results"
    )
    parser.add_argument("--results", type=Path, default=Path("far.jsonl"))
    # of fewer than six no verdict is given, so that none would be false
    parser.add_argument("--rounds", type=int, default=6, help="of a session of aa; smoke has 2")
    words = parser.parse_args()
    be_called("ebs-far")
    os.umask(0o022)
    if words.what == "whole":
        return int(not whole())
    if words.what == "aa":
        return int(not aa(words.count, words.results, words.rounds))
    return int(not pairs(words.count, words.results))


if __name__ == "__main__":
    sys.exit(main())
