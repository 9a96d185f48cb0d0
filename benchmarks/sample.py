"""Whether a tenth of an imported log, raced by itself, has the medians of the whole log's replay.

    sudo .venv/bin/python benchmarks/sample.py RESULTS [WARMUP [REQUESTS [DOCUMENTS]]]

A log of five templates over the index of ``noaa-ebs`` is imported and asked whole (``in-order``), cold, on
two volumes by turns. What requests took on the first is the log's then, which is imported again; 24 requests
of each template are asked by ``by-template``, in a race of their own. Both races begin after WARMUP requests
of each: a fresh node answers more slowly for its first thousands. Each race is a line of RESULTS; the next
call goes on from there. Must: for at least 90 % of templates (of each volume) medians within 5 % of the
whole replay's.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advice import TODAY, gp3, plan_file
from races import TRACK, append, be_called, lines_of, race

from esrally_ebs.analysis.summary import counted
from esrally_ebs.machine.resources import home
from esrally_ebs.store import find_session, load_session
from esrally_ebs.workload.queries import import_logs

INDEX = "weather-data-2016"
ROUNDS, ITERATIONS = 8, 3  # 24 requests of a template
WARMUP, REQUESTS, DOCUMENTS = 2_500, 1_200, 300_000
SHARE, WITHIN = 0.9, 0.05
COUNTRIES = ("US", "JA", "GM", "CA", "AS", "UK", "RS", "BR")
ARMS = [TODAY, replace(gp3(16_000, 1000), name="faster")]


def bodies(draw: random.Random) -> list[dict[str, Any]]:
    """A query of each template."""
    low = draw.randrange(-20, 20)
    days = {"range": {"TRANGE": {"gte": low, "lte": low + 10}}}
    country = {"term": {"station.country_code": draw.choice(COUNTRIES)}}
    others = {"terms": {"station.country_code": draw.sample(COUNTRIES, 3)}}
    both = {"bool": {"must": [country, days]}}
    either = {"bool": {"should": [country, days]}}
    return [{"query": query} for query in (days, country, both, either, others)]


def workload(folder: Path, requests: int, took_s: Sequence[float] = ()) -> Path:
    """The track of a log of so many requests, of every template alike; and of how long each took."""
    draw = random.Random(7)
    log, track = folder / f"{len(took_s)}.ndjson", folder / f"workload-{len(took_s)}"
    with log.open("w") as file:
        for number in range(requests):
            asked = bodies(draw)
            line = {"at": number / 20, "method": "POST", "path": f"/{INDEX}/_search"}
            took = {"took_ms": round(took_s[number] * 1e3, 3)} if took_s else {}
            file.write(json.dumps({**line, "body": asked[number % len(asked)], **took}) + "\n")
    import_logs([log], track)
    return track


def raced(track: Path, challenge: str, race_of_plan: Mapping[str, int], **params: object) -> str:
    """The id of a new session."""
    lines = [f"design = {{rounds = {ROUNDS}, nodes = 'one'}}", "baseline = []", 'accept = ["lateness"]']
    lines += [f"race = {{{', '.join(f'{name} = {value}' for name, value in race_of_plan.items())}}}"]
    session = str(uuid.uuid4())
    with plan_file("sample", lines, ARMS) as plan:
        text = json.dumps({"plan": plan, **params})
        race(f"--race-id={session}", f"--track-params={text}", f"--challenge={challenge}", track=track)
    return session


def answered(name: str) -> dict[str, list[tuple[str, float]]]:
    """By volume: the task of each request that was measured and how long it took (s), in their order."""
    samples = load_session(find_session(home(), name)).samples
    samples = samples.filter(counted(samples)).sort_by("started_s")
    of_arms: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for row in samples.select(["arm", "task", "service_time_s"]).to_pylist():
        of_arms[row["arm"]].append((row["task"], row["service_time_s"]))
    return of_arms


def medians(
    of_arms: Mapping[str, Sequence[tuple[str, float]]], templates: Sequence[str] = ()
) -> dict[tuple[str, str], tuple[float, int]]:
    """By volume and template: the median (s), and of how many.

    Of a whole log ``templates`` says which each request is of; else it is the task.
    """
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for arm, rows in of_arms.items():
        for (task, took_s), template in zip(rows, templates or [task for task, _ in rows], strict=True):
            times[arm, template or task].append(took_s)
    return {key: (statistics.median(of), len(of)) for key, of in times.items()}


def main() -> int:
    results = Path(sys.argv[1])
    given = [int(word) for word in sys.argv[2:]]
    warmup, requests, documents = [*given, *(WARMUP, REQUESTS, DOCUMENTS)[len(given) :]]
    be_called("ebs-sample")
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        track = workload(Path(folder), requests)
        lines = (track / "queries.ndjson").read_text().splitlines()
        templates = [json.loads(line)["template"] for line in lines]
        if not (done := lines_of(results)):
            once = {"iterations": 1, "warmup_iterations": 1}
            index = raced(TRACK, "search-only", once, documents=documents)
            append(results, {"index": str(load_session(find_session(home(), index)).dataset["path"])})
        data = {"data": f"{lines_of(results)[0]['index']}/elasticsearch"}
        if len(done) < 2:
            whole = raced(track, "in-order", {"warmup_iterations": warmup * len(set(templates))}, **data)
            append(results, {"whole": whole})
        whole = answered(lines_of(results)[1]["whole"])
        if len(done) < 3:
            timed = workload(Path(folder), requests, [took_s for _, took_s in whole[TODAY.name]])
            sizes = {"iterations": ITERATIONS, "warmup_iterations": warmup}
            append(results, {"sample": raced(timed, "by-template", sizes, **data), "warmup": warmup})
    sample = lines_of(results)[2]
    all_of, part_of = medians(whole, templates), medians(answered(sample["sample"]))
    off = {key: part_of[key][0] / all_of[key][0] - 1 for key in sorted(all_of)}
    for (arm, template), error in off.items():
        (value, count), (part, few) = all_of[arm, template], part_of[arm, template]
        times = f"{value * 1e3:.1f} ms of {count}, {part * 1e3:.1f} ms of {few}"
        print(f"{arm} {template}: {times}, {error:+.1%}")
    good = sum(abs(error) <= WITHIN for error in off.values())
    print(f"{good} of {len(off)} within {WITHIN:.0%}, after {sample['warmup']} requests of each")
    return 0 if good >= SHARE * len(off) else 1


if __name__ == "__main__":
    sys.exit(main())
