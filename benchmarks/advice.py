"""What ``advise`` predicts, against races of twelve settings beside the recorded volume.

    python benchmarks/advice.py go RESULTS PIECES [LOCK [ROUNDS [TRACK]]]  # so many pieces of the protocol
    python benchmarks/advice.py table RESULTS   # the errors of the predictions so far
    python benchmarks/advice.py problems RESULTS [COUNT]  # what would be advised, against these races
    python benchmarks/advice.py beside RACE...  # predicted from the recorded volume's part of each

The protocol's first piece is a session of gp3 3,000/125 with its trace, and predictions of all settings,
which go into its folder with their hash; each other piece races three settings at once, by turns on one node.
When a piece has ended, one line of JSON goes to the file of results; whatever ends the benchmark, the next
call goes on from there. Each piece waits for a lock that others of this machine take, too. ROUNDS and the
folder of TRACK, one of ``SIZES``, are those of the first piece; another track than noaa-ebs tells p50 alone,
without fio's replays.

A race has 4 rounds, 192 requests on each volume, which suffice for medians. Of a p99 they do not: in virtual
time, with computing that varies by a quarter, that alone varies by 7.0 % from race to race (sigma), and its
ratio to today's by 10.2 %, as much as was seen; of 640 requests by 4.2 and 5.8, of 1,280 by 3.0 and 4.2, of
1,920 by 2.2 and 3.2 % (``advice_problems.py noise``). So 27 ROUNDS, 1,296 requests, are to tell p99. No
number of them makes tau 0.95: seven settings have nearly the same p99.

A problem is a mix of two tasks or more and a bound, drawn by chance, from what the fastest setting keeps to a
quarter more than what today's does. The advice knows the recording; of the settings with a price a month that
were raced the cheapest whose requests of these tasks kept the bound is the right answer. Must: in 19 of 20
what is recommended keeps it, and costs at most 1.10 times the right answer.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from races import TRACK, append, be_called, in_turn, lines_of, race
from scipy.stats import kendalltau

from esrally_ebs.advice.advice import Option
from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import PERCENTILES, Predictor, by_turns
from esrally_ebs.advice.recording import Recording, recording_of
from esrally_ebs.catalog import cost
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import Bound, State, Volume, VolumeSpec
from esrally_ebs.session import manual
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.virtual.replay import Column, Thread, replay

TODAY = VolumeSpec(
    name="today", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=125 * MIB
)
SIZES = {  # by track: documents, iterations (48 requests a round), and what else its plan has
    "noaa-ebs": (200_000, 6, ""),
    "logs-ebs": (300_000, 8, ""),
    "lookups": (12_000, 48, 'node = {params = {readahead = "4k"}}'),
}
ROUNDS = 4  # of a race
# Of each task. After 10, the first 500 cold requests of a recording computed twice as long as the rest.
WARM_UPS = 600
APART = 0.04  # settings that are predicted nearer to one another no race of this size puts in order
FILE = "predictions.json"
Predictions = dict[str, dict[str, Any]]  # by setting


def gp3(iops: int, mib: int) -> VolumeSpec:
    return replace(TODAY, iops=iops, throughput_bytes_per_s=mib * MIB)


def of_type(type_: str, gib: int = 100, **more: object) -> VolumeSpec:
    plain = replace(TODAY, type=type_, size_bytes=gib * GIB, iops=None, throughput_bytes_per_s=None)
    return replace(plain, **more)  # type: ignore[arg-type]


SETTINGS = {
    "gp2-credits": of_type("gp2"),
    "gp2-empty": of_type("gp2", credits=0.0),
    "gp2-1tib": of_type("gp2", 1024),
    "gp3-3000-250": gp3(3000, 250),
    "gp3-6000-250": gp3(6000, 250),
    "gp3-16000-1000": gp3(16_000, 1000),
    "gp3-25000-1500": gp3(25_000, 1500),
    "io2-8000": of_type("io2", iops=8000),
    "io2-32000": of_type("io2", iops=32_000),
    "st1": of_type("st1", 500),
    "efs-elastic": of_type("efs", mode="elastic"),
    "instance-store": of_type("instance-store", iops=200_000),
}
NOT_ADVISED = ("gp2-credits", "efs-elastic", "instance-store")  # not for good, or without a price a month
# What is raced beside today's volume at once, by turns, all on one node.
GROUPS = [list(SETTINGS)[first : first + 3] for first in range(0, len(SETTINGS), 3)]
REPLAYED = 768  # requests that fio replays: 16 rounds, at the pace of the recording
BETWEEN_S = 1.0  # at most between two of them


def raced_as(name: str, arms: list[VolumeSpec], rounds: int, track: Path) -> str:
    """The id of a new session; also of one that its checks refuse, which is said.

    Of fewer arms more rounds, so that the node, which becomes faster meanwhile, serves as many requests.
    """
    documents, iterations, more = SIZES[track.name]
    rounds *= (1 + len(GROUPS[0])) // len(arms)
    lines = ["trace = true", f"dataset = {{documents = {documents}}}", more]
    of_race = f'challenge = "search-only", iterations = {iterations}, warmup_iterations = {WARM_UPS}'
    lines += [f"race = {{{of_race}}}"]
    lines += [f'design = {{rounds = {rounds}, nodes = "one"}}']
    session = str(uuid.uuid4())
    with plan_file(name, lines, arms) as plan:
        try:
            race(f"--race-id={session}", f"--track-params={json.dumps({'plan': plan})}", track=track)
        except RuntimeError:
            if load_session(find_session(home(), session)).state != State.COMPLETE:
                raise
            print(f"{session}: is refused by its checks")
    return session


@contextmanager
def plan_file(name: str, lines: list[str], arms: Iterable[VolumeSpec]) -> Iterator[str]:
    """The path of a plan of these lines and arms."""
    lines = [f'name = "{name}"', *lines]
    for spec in arms:
        lines += ["[[arm]]", f'name = "{spec.name}"', f'type = "{spec.type}"', f"size = {spec.size_bytes}"]
        lines += [f"iops = {spec.iops}"] if spec.iops else []
        lines += [f"throughput = {spec.throughput_bytes_per_s}"] if spec.throughput_bytes_per_s else []
        lines += [f'mode = "{spec.mode}"'] if spec.mode else []
        lines += [f"credits = {spec.credits:g}"]
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as plan:
        plan.write("\n".join(lines))
        plan.flush()
        yield plan.name


def fio_s(of: Recording, volume: Volume) -> dict[str, float]:
    """By task what fio takes to replay the reads of a request on an attached volume (s), in the middle."""
    request = np.repeat(np.arange(of.requests), np.diff(of.first))
    reads = (of.ios["write"] == 0) & (request < REPLAYED)
    request = request[reads]
    gaps_s = np.diff(of.ios["at_s"][reads], prepend=of.ios["at_s"][0])
    at_us = np.cumsum(1e6 * np.clip(gaps_s, 0.0, BETWEEN_S)).astype(np.int64)
    places = zip(at_us, of.ios["offset"][reads], of.ios["bytes"][reads], strict=True)
    disk = f"/dev/{volume.device}"
    lines = ["fio version 3 iolog", f"0 {disk} add", f"0 {disk} open"]
    lines += [f"{at} {disk} read {offset} {size}" for at, offset, size in places]
    with tempfile.TemporaryDirectory(prefix="advice-fio-") as folder:
        log = Path(folder) / "iolog"
        log.write_text("\n".join([*lines, f"{at_us[-1]} {disk} close", ""]))
        words = ["--name=replay", f"--read_iolog={log}", "--ioengine=psync", "--direct=1", "--readonly"]
        words += [f"--write_lat_log={folder}/replay", "--output=/dev/null"]
        subprocess.run(["fio", *words], check=True, cwd=folder)
        ended_ms, took_ns = np.loadtxt(f"{folder}/replay_lat.1.log", delimiter=",", usecols=(0, 1)).T
    first = np.flatnonzero(np.diff(request, prepend=-1))
    last = np.append(first[1:], len(request)) - 1
    taken_s = (ended_ms[last] - ended_ms[first]) / 1e3 + took_ns[first] / 1e9
    task = of.task[request[first]]
    return {str(one): float(np.median(taken_s[task == one])) for one in dict.fromkeys(task)}


def fio_longer(of: Recording, specs: Sequence[VolumeSpec]) -> dict[str, dict[str, float]]:
    """By setting and task what fio's replay of a request takes longer than on the recorded volume (s)."""
    with plan_file("advice-fio", [], [TODAY, *specs]) as plan:
        volumes = manual.up(plan)
        try:
            today_s, *there_s = (fio_s(of, volume) for volume in volumes)
        finally:
            manual.down(plan)
    return {
        spec.name: {task: one[task] - today_s[task] for task in today_s}
        for spec, one in zip(specs, there_s, strict=True)
    }


def waiting(of: Recording, thread: Thread, latency_s: np.ndarray) -> dict[str, float]:
    """By task the median time that requests do not compute (s), what the path to the volume takes included.

    The path is part of what is inferred as computing; it is calibrated for each volume and session anew.
    """
    computed_s = thread.compute_s.copy()
    waits = np.flatnonzero(np.diff(thread.first_needed))
    computed_s[waits] -= thread.path_s[thread.needed[thread.first_needed[waits + 1] - 1]]
    ends = np.append(0, np.flatnonzero(thread.size == 0) + 1)
    wait_s = latency_s - np.diff(np.append(0.0, np.cumsum(computed_s))[ends])
    return {str(task): float(np.median(wait_s[of.task == task])) for task in dict.fromkeys(of.task)}


def computing(of: Recording, thread: Thread) -> dict[str, float]:
    """By task the median time that requests compute (s), what the machine did besides included."""
    ends = np.append(0, np.flatnonzero(thread.size == 0) + 1)
    compute_s = np.diff(np.append(0.0, np.cumsum(thread.compute_s))[ends])
    return {str(task): float(np.median(compute_s[of.task == task])) for task in dict.fromkeys(of.task)}


def halves(of: Recording) -> list[float]:
    """By task: p50 of odd requests against even ones."""
    times = [of.latency_s[of.task == task] for task in dict.fromkeys(of.task)]
    return [float(np.median(each[::2]) / np.median(each[1::2])) - 1 for each in times]


def old_formula(of: Recording, spec: VolumeSpec) -> np.ndarray:
    """Each read's difference of median latency added up, by request: readahead counted as waited for."""
    here, there = model_for(of.spec).read, model_for(spec).read
    bytes_ = of.ios["bytes"] * (of.ios["write"] == 0)
    per_io_s = np.where(bytes_ > 0, there.line_s()[0] - here.line_s()[0], 0.0)
    per_io_s = per_io_s + bytes_ * (there.line_s()[1] - here.line_s()[1])
    sums = np.concatenate(([0.0], np.cumsum(per_io_s)))
    return of.latency_s + sums[of.first[1:]] - sums[of.first[:-1]]


def foreseen(of: Recording, beside: Mapping[str, Sequence[VolumeSpec]]) -> Predictions:
    """What settings would do to recorded requests, with which others take turns in the race to come.

    Raises MeasurementError where the self-check fails.
    """
    thread = thread_of(of)
    predictor = Predictor(of, thread)
    print("self-check", {p: f"{error:+.2%}" for p, error in predictor.errors.items()}, predictor.slope or "")
    predictor.require_right()
    settings = {TODAY.name: TODAY, **{name: SETTINGS[name] for name in beside}}
    written = {}
    for key, spec in settings.items():
        others = beside.get(key, ())
        paced = by_turns(of, thread, others) if others else thread
        made, old_s = predictor.predict(spec, beside=others), old_formula(of, spec)
        written[key] = {
            "p99_s": made.percentile(99).value,
            "p50_s": {task: times[0] for task, times in made.tasks.items()},
            "wait_s": waiting(of, thread, replay(paced, model_for(spec), credits=spec.credits).latency_s),
            "old_wait_s": waiting(of, thread, old_s),
            "binds": made.binds,
            "compute_s": computing(of, thread),
        }
    return written


def predict(name: str) -> str:
    """Write a session's predictions; their hash."""
    folder = SessionFolder(find_session(home(), name))
    beside = {
        one: [TODAY, *(SETTINGS[other] for other in names if other != one)]
        for names in GROUPS
        for one in names
    }
    text = json.dumps(foreseen(raced(name)[TODAY.name], beside), indent=1)
    folder.write_file(FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


def predictions(name: str, sha256: str) -> Predictions:
    """Those of a session, as they were written."""
    text = (find_session(home(), name) / FILE).read_text()
    if hashlib.sha256(text.encode()).hexdigest() != sha256:
        raise MeasurementError(f"predictions of {name}: were changed after they were written; begin anew")
    return json.loads(text)  # type: ignore[no-any-return]


def piece(done: Sequence[Mapping[str, Any]], rounds: int, track: Path) -> Mapping[str, Any]:
    """Do the next piece of the protocol; races have the rounds, and the track, that the first one says."""
    began = os.getloadavg()
    if not done:
        session = raced_as("advice-record", [TODAY], rounds, track)
        said = {"load": began, "rounds": rounds, "track": str(track)}
        return {"recorded": session, "sha256": predict(session), **said}
    specs = [replace(SETTINGS[name], name=name) for name in GROUPS[len(done) - 1]]
    track = Path(done[0].get("track", TRACK))
    session = raced_as("advice-race", [TODAY, *specs], done[0].get("rounds", ROUNDS), track)
    line: dict[str, Any] = {"race": session, "load": began}
    if track.name == TRACK.name:
        line["fio_s"] = fio_longer(raced(done[0]["recorded"])[TODAY.name], specs)
    return line


def go(
    results: Path, pieces: int, lock: str = os.devnull, rounds: str = str(ROUNDS), track: str = str(TRACK)
) -> None:
    """So many pieces more, as long as one is left: a recording with its predictions' hash, then races."""
    for _ in range(pieces):
        if len(done := lines_of(results)) > len(GROUPS):
            return
        with in_turn(Path(lock)):
            line = piece(done, int(rounds), Path(track).resolve())
        append(results, line)


def raced(name: str) -> dict[str, Recording]:
    """The requests of a session by arm."""
    session = load_session(find_session(home(), name))
    trace = SessionFolder(session.path).read_trace()
    return {arm.spec.name: recording_of(session, trace, arm.spec.name) for arm in session.arms}


def cells_of(
    made: Mapping[str, Any], base: Mapping[str, Any], of: Recording, today_p50: Mapping[str, float]
) -> dict[str, list[float]]:
    """By kind the errors of a setting's prediction, a task each; ``base``: today's volume's."""
    p50, thread = of.medians_s(), thread_of(of)
    wait_s, own_s = waiting(of, thread, of.latency_s), computing(of, thread)
    change = {task: p50[task] / today_p50[task] for task in p50}
    return {
        "p50": [made["p50_s"][t] / base["p50_s"][t] / change[t] - 1 for t in p50],
        "own computing": [(made["p50_s"][t] - base["compute_s"][t] + own_s[t]) / p50[t] - 1 for t in p50],
        "waiting": [made["wait_s"][t] / wait_s[t] - 1 for t in p50],
        "old formula": [made["old_wait_s"][t] / wait_s[t] - 1 for t in p50],
    }


def table(races: Sequence[Mapping[str, Any]], recorded: Mapping[str, Any] | None = None) -> None:
    """A line a setting, then what must be reached; predicted from the recording, or from each race."""
    errors, order = defaultdict[str, list[float]](list), []
    print(
        "setting          requests   p50 mean, worst   own computing   waiting   its old formula   fio"
        "   waits   p99 x today, raced"
    )
    for line in races:
        arms = raced(line["race"])
        today = arms.pop(TODAY.name)
        if recorded is None:
            of_today, expected = today, foreseen(today, dict.fromkeys(arms, ()))
        else:
            of_today = raced(recorded["recorded"])[TODAY.name]
            expected = predictions(recorded["recorded"], recorded["sha256"])
        recorded_s = waiting(of_today, thread_of(of_today), of_today.latency_s)
        base = expected[TODAY.name]
        today_p50 = today.medians_s()
        errors["halves"] += halves(today)
        for arm, of in arms.items():
            made = expected[arm]
            wait_s = waiting(of, thread_of(of), of.latency_s)
            cells = cells_of(made, base, of, today_p50)
            if "fio_s" in line:
                cells["fio"] = [(recorded_s[t] + line["fio_s"][arm][t]) / wait_s[t] - 1 for t in wait_s]
            for kind, values in cells.items():
                errors[kind] += values
            predicted = made["p99_s"] / base["p99_s"]
            actual = float(np.percentile(of.latency_s, 99) / np.percentile(today.latency_s, 99))
            errors["p99"].append(predicted / actual - 1)
            order.append((predicted, actual))
            mean = {kind: np.mean(np.abs(values)) for kind, values in cells.items()}
            worst = {kind: max(values, key=abs) for kind, values in cells.items()}
            print(
                f"{arm:16} {of.requests:8} "
                + "  ".join(f" {mean[kind]:6.1%} {worst[kind]:+7.1%}" for kind in mean)
                + f"   {1e3 * np.mean(list(wait_s.values())):6.1f} ms   {predicted:.2f}, {actual:.2f}"
            )
    for kind, values in errors.items():
        off, limit = np.abs(values), 0.10 if kind == "p99" else 0.05
        print(
            f"{kind}: {np.mean(off <= limit):.0%} of {len(off)} within {limit:.0%}, mean {off.mean():.1%},"
            f" worst {off.max():.1%}"
        )
    print_order(order)


def print_order(order: Sequence[tuple[float, float]]) -> None:
    """Whether settings are raced in the order of what was predicted; ``order``: p99 of both, by setting."""
    apart = [two for two in combinations(order, 2) if abs(np.log(two[0][0] / two[1][0])) > APART]
    right = sum((one[0] > other[0]) == (one[1] > other[1]) for one, other in apart)
    print(
        f"order of settings by p99: tau {kendalltau(*zip(*order, strict=True))[0]:.2f}; of {len(apart)} pairs"
        f" predicted over {APART:.0%} apart {right} were raced in that order"
    )


def drawn(number: int, arms: Mapping[str, Recording]) -> tuple[Column, Bound, dict[str, float]]:
    """A problem: its tasks, its bound, and by arm what its percentile was raced as (s)."""
    draw = np.random.default_rng([27, number])
    tasks = np.unique(arms[TODAY.name].task)
    tasks = draw.choice(tasks, size=draw.integers(2, len(tasks) + 1), replace=False)
    percentile = int(draw.choice(PERCENTILES))
    took_s = {
        name: float(np.percentile(of.latency_s[np.isin(of.task, tasks)], percentile))
        for name, of in arms.items()
    }
    ends_s = [min(took_s.values()), 1.25 * took_s[TODAY.name]]
    return tasks, Bound(percentile=percentile, seconds=float(np.exp(draw.uniform(*np.log(ends_s))))), took_s


def problems(races: Sequence[Mapping[str, Any]], recorded: Mapping[str, Any], count: int) -> None:
    """A line for each problem, then what must be reached.

    Of what is named to be raced first, the cheapest first, one is chosen that kept the bound in the races.
    """
    of = raced(recorded["recorded"])[TODAY.name]
    arms: dict[str, Recording] = {}  # today's volume is in every race: that of the first
    for line in races:
        arms = raced(line["race"]) | arms
    prices = cost.price_list()
    usd = {
        name: cost.monthly(SETTINGS.get(name, TODAY), "us-east-1", prices=prices).usd
        for name in arms
        if name not in NOT_ADVISED
    }
    names = sorted(usd, key=usd.__getitem__)
    arms = {name: arms[name] for name in names}
    kept, ratios = [], defaultdict[str, list[float]](list)
    for number in range(count):
        tasks, bound, took_s = drawn(number, arms)
        mix = of.part(np.isin(of.task, tasks))
        predictor = Predictor(mix, thread_of(mix))
        predictor.require_right()
        options = {
            name: Option(prediction=predictor.predict(SETTINGS.get(name, TODAY)), bound=bound)
            for name in names
        }
        keeping = [name for name in names if took_s[name] <= bound.seconds]
        best = next((name for name in names if options[name].keeps), None)
        first = next((name for name in keeping if name == best or options[name].may_keep), None)
        print(
            f"{number:3} {len(tasks)} tasks, {bound}: right {keeping[0]}, advised {best}, raced first {first}"
        )
        kept += [best in keeping] if best else []
        for kind, name in (("advised at once", best), ("raced first", first)):
            ratios[kind] += [usd[name] / usd[keeping[0]]] if name else []
    print(f"{sum(kept)} of {len(kept)} advised at once keep the bound")
    for kind, each in ratios.items():
        cheap = sum(ratio <= 1.10 for ratio in each)
        text = f"{kind}: {cheap} of {count} cost at most 1.10 times the right answer"
        print(f"{text}, {len(each)} at most {max(each):.2f} times")


def main() -> None:
    """Do what the first word says."""
    be_called("advice")
    match sys.argv[1:]:
        case ["go", results, pieces, *more] if pieces.isdecimal() and len(more) < 4:
            go(Path(results), int(pieces), *more)
        case ["table", results] if len(lines := lines_of(Path(results))) > 1:
            table(lines[1:], lines[0])
        case ["problems", results, *count] if len(lines := lines_of(Path(results))) > 1 and len(count) < 2:
            problems(lines[1:], lines[0], int(*count or ["20"]))
        case ["beside", *races] if races:
            table([{"race": one} for one in races])
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
