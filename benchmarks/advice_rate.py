"""What ``advise --rate`` predicts, against races in which queries come by chance.

    sudo .venv/bin/python benchmarks/advice_rate.py RESULTS [RATE...]

Queries of the track ``lookups`` beside this script are recorded one after the other on an io1 of 3,000 IOPS,
page caches left to themselves. Then at each rate, 15 and 25 a second unless others are named, three io1 are
raced by turns: of 1,000 IOPS, which serve some 33 such queries, of 1,500 and of 3,000. What is predicted for
them is a line of RESULTS before the first race; each race is one more; the next call goes on from there, at
the rates of the first. Printed for each are latencies, which count from when a query was due and hold what
the client does with it (2 ms of a Rally whose machine has nothing else to do), and service times, which do
not.
"""

import json
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from advice import TODAY, plan_file
from races import append, be_called, lines_of, race

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import PERCENTILES, Predictor
from esrally_ebs.advice.recording import recording_of, requests_of
from esrally_ebs.machine.resources import home
from esrally_ebs.model import VolumeSpec
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.volumes.virtual.replay import Load

LOOKUPS = Path(__file__).with_name("lookups")
ROUNDS, REQUESTS = (
    4,
    320,
)  # of an arm in a round: a bucket, which holds a second, empties as under a lasting load
CLIENTS = 16  # at a rate; more than have a request in flight
RATES = (15.0, 25.0)
ARMS = [
    replace(TODAY, name=f"io1-{iops}", type="io1", iops=iops, throughput_bytes_per_s=None)
    for iops in (1000, 1500, 3000)
]
RECORDED = ARMS[-1]


def raced(arms: Sequence[VolumeSpec], rate: float | None = None) -> str:
    """The id of a new session of these arms; without a rate with its trace, one query after the other."""
    clients = CLIENTS if rate else 1
    lines = [f"design = {{rounds = {ROUNDS}}}", 'cache = {mode = "steady"}', "baseline = []"]
    lines += ["dataset = {documents = 12000}", 'node = {params = {readahead = "4k"}}']
    lines += [f"trace = {str(rate is None).lower()}", 'accept = ["lateness"]']
    lines += [f"race = {{iterations = {REQUESTS // clients}, warmup_iterations = 150}}"]
    session = str(uuid.uuid4())
    with plan_file("advice-rate", lines, arms) as plan:
        at_rate = {"target_throughput": rate, "search_clients": clients} if rate else {}
        params = json.dumps({"plan": plan, **at_rate})
        race(f"--race-id={session}", f"--track-params={params}", track=LOOKUPS)
    return session


def predicted(name: str, rates: Sequence[float]) -> list[dict[str, Any]]:
    """By rate, cores and arm: latency and the ends of its interval (s), of each percentile.

    Of all processors of the node, and of half of them: two may be one core, which computes two queries at
    once more slowly.
    """
    session = load_session(find_session(home(), name))
    recording = recording_of(session, SessionFolder(session.path).read_trace(), RECORDED.name)
    predictor = Predictor(recording, thread_of(recording))
    print("self-check", {p: f"{error:+.2%}" for p, error in predictor.errors.items()})
    predictor.require_right()
    processors = min(int(node["processors"]) for node in session.environment["nodes"].values())
    return [
        {
            "rate": rate,
            "cores": cores,
            "arm": arm.name,
            "whole": [
                [one.value, one.low, one.high]
                for one in predictor.under(Load(rate, cores)).predict(arm).whole
            ],
        }
        for rate in rates
        for cores in (processors, processors // 2 or 1)
        for arm in ARMS
    ]


def table(recorded: Mapping[str, Any], races: Sequence[Mapping[str, Any]]) -> None:
    """A line a rate, number of cores, arm and percentile."""
    for line in races:
        session = load_session(find_session(home(), line["race"]))
        for made in recorded["predicted"]:
            if made["rate"] != line["rate"]:
                continue
            rows = requests_of(session, made["arm"])
            rows = rows.filter(rows["success"])
            print(f"{made['rate']:g}/s, {made['cores']} cores, {made['arm']}, {rows.num_rows} requests")
            for percentile, (value, low, high) in zip(PERCENTILES, made["whole"], strict=True):
                text = f"  p{percentile}: predicted {value * 1e3:.1f} ms"
                text += f" [{low * 1e3:.1f}, {high * 1e3:.1f}]" if None not in (low, high) else ""
                for name in ("latency_s", "service_time_s"):
                    was = float(np.percentile(rows[name].to_numpy(), percentile))
                    text += f", {name[:-2].replace('_', ' ')} {was * 1e3:.1f} ({value / was - 1:+.1%})"
                print(text)


def main() -> None:
    results, rates = Path(sys.argv[1]), [float(word) for word in sys.argv[2:]] or RATES
    be_called("ebs-advice-rate")
    os.umask(0o022)
    if not (done := lines_of(results)):
        session = raced([RECORDED])
        append(results, {"recorded": session, "rates": rates, "predicted": predicted(session, rates)})
    for rate in lines_of(results)[0]["rates"]:
        if rate not in [line.get("rate") for line in done]:
            append(results, {"rate": rate, "race": raced(ARMS, rate)})
    first, *others = lines_of(results)
    table(first, others)


if __name__ == "__main__":
    main()
