"""What ``advise`` predicts, against races of twelve settings beside the recorded volume.

    python benchmarks/advice.py record                # a session of gp3 3,000/125 with its trace
    python benchmarks/advice.py predict SESSION       # predictions of all settings, and their hash, into it
    python benchmarks/advice.py race NAME...          # these settings and the recorded volume in one session
    python benchmarks/advice.py table SESSION RACE... # the errors of predictions that were made before
    python benchmarks/advice.py beside RACE...        # predicted from the recorded volume's part of each race

Needs root. What else the machine does changes from session to session by more than a prediction may be off,
so each race has the recorded volume, too, and changes against it are compared: predicted against raced.
"Waiting" is the part of a request that is not computing, which other work leaves alone. "Own computing": p50
with the raced requests' computing in place of the recorded ones'. "Halves": the recorded volume's p50 of odd
requests against even ones, which no prediction can beat. "Old formula": every read costs the difference of
the volumes' median latencies. "fio": a request takes longer by what fio's replay of its reads does
(read_iolog with psync, in virtual time). Must reach (issue 17): at least 90 % of p50 cells within 5 %, none
beyond 12 %; p99 of all requests within 10 % on 10 of 12 settings; Kendall's tau 0.95; waiting off by at most
half of what the old formula and fio are.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from races import be_called
from scipy.stats import kendalltau

from esrally_ebs.advice.dependencies import thread_of
from esrally_ebs.advice.prediction import Predictor, by_turns
from esrally_ebs.advice.recording import Recording, recording_of
from esrally_ebs.catalog.volume_types import model_for
from esrally_ebs.errors import MeasurementError
from esrally_ebs.machine.resources import home
from esrally_ebs.model import VolumeSpec
from esrally_ebs.session.runs import run_plan
from esrally_ebs.store import SessionFolder, find_session, load_session
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.virtual.replay import Thread, replay

TODAY = VolumeSpec(
    name="today", type="gp3", size_bytes=100 * GIB, iops=3000, throughput_bytes_per_s=125 * MIB
)
RECORD = (200_000, 8, 8)  # documents, iterations, rounds
RACE = (200_000, 6, 4)
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
# Each beside today's volume; predictions are made for their pace.
RACES = [list(SETTINGS)[first : first + 3] for first in range(0, len(SETTINGS), 3)]


def run(name: str, arms: list[VolumeSpec], size: tuple[int, int, int], trace: str = "true") -> None:
    """One session; Rally prints its id."""
    documents, iterations, rounds = size
    lines = [f"trace = {trace}", f"dataset = {{documents = {documents}}}"]
    lines += [f'race = {{challenge = "search-only", iterations = {iterations}, warmup_iterations = 15}}']
    lines += [f'design = {{rounds = {rounds}, nodes = "one"}}']
    with plan_file(name, lines, arms) as plan:
        if code := run_plan(plan, {}, say=print):
            sys.exit(code)


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


def fio_s(of: Recording, thread: Thread, spec: VolumeSpec) -> dict[str, float]:
    """By task what a request takes when fio replays its I/Os (s), in virtual time.

    Each is issued after the gap that was before it, and when the one before is done, as ``psync`` does.
    """
    events, ends = len(thread.size), np.flatnonzero(thread.size == 0)
    begins = np.append(0, ends[:-1] + 1)
    at_s = np.empty(events)
    at_s[thread.size > 0], at_s[ends] = of.ios["at_s"], of.began_s + of.latency_s
    gaps_s = np.diff(at_s, prepend=0.0)
    gaps_s[begins] = at_s[begins] - of.began_s
    in_turn = thread._replace(
        path_s=np.zeros(events),
        compute_s=gaps_s,
        first_needed=np.append(0, np.arange(events)),  # the event before
        needed=np.arange(events - 1),
        after_s=np.zeros(events - 1),
    )
    taken_s = replay(in_turn, model_for(spec), credits=spec.credits).latency_s
    return {str(task): float(np.median(taken_s[of.task == task])) for task in dict.fromkeys(of.task)}


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


def predict(name: str) -> None:
    """Write the predictions and note their hash."""
    folder = SessionFolder(find_session(home(), name))
    beside = {
        one: [TODAY, *(SETTINGS[other] for other in race if other != one)] for race in RACES for one in race
    }
    text = json.dumps(foreseen(raced(name)[TODAY.name], beside), indent=1)
    folder.write_file(FILE, text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    folder.note("predictions", sha256=digest)
    print(f"{FILE} of {folder.path.name}: sha256 {digest}")


def predictions(name: str, race: str) -> Predictions:
    """Those of a session, if they are older than the race and as they were written."""
    folder = SessionFolder(find_session(home(), name))
    text = (folder.path / FILE).read_text()
    noted = [event for event in folder.events() if event.kind == "predictions"][-1]
    if hashlib.sha256(text.encode()).hexdigest() != noted.fields["sha256"]:
        raise MeasurementError(f"{folder.path / FILE}: was changed after it was written; predict again")
    if noted.at_s > load_session(find_session(home(), race)).started_at:
        raise MeasurementError(f"race {race} is older than the predictions of {name}; race again")
    return json.loads(text)  # type: ignore[no-any-return]


def raced(name: str) -> dict[str, Recording]:
    """The requests of a session by arm."""
    session = load_session(find_session(home(), name))
    trace = SessionFolder(session.path).read_trace()
    return {arm.spec.name: recording_of(session, trace, arm.spec.name) for arm in session.arms}


def table(races: list[str], name: str | None = None) -> None:
    """A line a setting, then what must be reached; predictions are those of the session, or of each race."""
    errors: dict[str, list[float]] = {
        "p50": [],
        "own computing": [],
        "waiting": [],
        "old formula": [],
        "fio": [],
        "halves": [],
    }
    errors["p99"] = []
    order = []
    print(
        "setting          requests   p50 mean, worst   own computing   waiting   its old formula   fio"
        "   waits   p99 x today, raced"
    )
    for race in races:
        arms = raced(race)
        today = arms.pop(TODAY.name)
        expected = foreseen(today, dict.fromkeys(arms, ())) if name is None else predictions(name, race)
        recorded = today if name is None else raced(name)[TODAY.name]
        recorded_s = waiting(recorded, thread_of(recorded), recorded.latency_s)
        today_s = fio_s(recorded, thread_of(recorded), TODAY)
        base = expected[TODAY.name]
        today_p50 = today.medians_s()
        errors["halves"] += halves(today)
        for arm, of in arms.items():
            made, p50, thread = expected[arm], of.medians_s(), thread_of(of)
            replayed_s = fio_s(recorded, thread_of(recorded), SETTINGS[arm])
            wait_s, own_s = waiting(of, thread, of.latency_s), computing(of, thread)
            change = {task: p50[task] / today_p50[task] for task in p50}
            cells = {
                "p50": [made["p50_s"][t] / base["p50_s"][t] / change[t] - 1 for t in p50],
                "own computing": [
                    (made["p50_s"][t] - base["compute_s"][t] + own_s[t]) / p50[t] - 1 for t in p50
                ],
                "waiting": [made["wait_s"][t] / wait_s[t] - 1 for t in p50],
                "old formula": [made["old_wait_s"][t] / wait_s[t] - 1 for t in p50],
                "fio": [(recorded_s[t] + replayed_s[t] - today_s[t]) / wait_s[t] - 1 for t in p50],
            }
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
    print(f"order of settings by p99: tau {kendalltau(*zip(*order, strict=True))[0]:.2f}")


def main() -> None:
    """Do what the first word says."""
    be_called("advice")
    match sys.argv[1:]:
        case ["record"]:
            run("advice-record", [TODAY], RECORD, trace='"perturb"')
        case ["predict", session]:
            predict(session)
        case ["race", *names] if names and SETTINGS.keys() >= set(names):
            run("advice-race", [TODAY, *(replace(SETTINGS[n], name=n) for n in names)], RACE)
        case ["table", session, *races] if races:
            table(races, session)
        case ["beside", *races] if races:
            table(races)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
