"""Verdicts of real sessions whose truth is known: of two identical volumes, and of one that reads slower.

    sudo .venv/bin/python benchmarks/sessions_aa.py aa 20 --results aa.jsonl
    sudo .venv/bin/python benchmarks/sessions_aa.py aa 20 --results busy.jsonl --busy
    sudo .venv/bin/python benchmarks/sessions_aa.py power 10 --results power.jsonl
    sudo .venv/bin/python benchmarks/sessions_aa.py power 10 --results three.jsonl --read-latency 1.04
    sudo .venv/bin/python benchmarks/sessions_aa.py benchmarks/five_arms.toml 10 --results five.jsonl
    sudo .venv/bin/python benchmarks/sessions_aa.py benchmarks/five_like_arms.toml 20 --results like.jsonl
         .venv/bin/python benchmarks/sessions_aa.py aa 0 --results aa.jsonl [--swapped 4]

Each session is one ``esrally race`` of the named plan. When it has ended, one line of JSON goes to the file
of results; whatever ends the benchmark, the next call goes on from there, up to as many sessions as asked
for. Sessions of that file whose folders are still there are judged again, by this version's statistics. With
``--read-latency`` the plan's last arm gets another factor; with ``--busy`` a process works all the time on
one processor; with ``--lock`` each race waits for a lock that others of this machine take, too.

Last it says how much more the ratios vary from session to session than their intervals allow for. With
``--swapped`` it says the same of these sessions with the two arms of half of their rounds, by chance, called
each other's name, so many times: then nothing of a session as a whole is in their ratios, and what is left
is how right the intervals are.

The truth: of plan "aa" and of five like arms every "faster" or "slower" is false; of "power" the last arm is
slower; of five arms io2 is faster and st1 slower. Must reach: at most 3 of 100 sessions of "aa" with any
false verdict, and ratios that vary at most 1.05 times as much between sessions as they allow for; all of
"power" find 7 of 8 tasks slower, 9 of 10 that all tasks together differ where reads take 1.04 times as long
(by some 3 %, which is within the margin of 5 %, too); all of five arms decide 7 of 8 tasks of io2 and st1; at
most 1 of 20 of five like arms has a false verdict, and at most 2 of 20 of "aa" beside a busy process, unless
the session is refused for that.
"""

import argparse
import json
import math
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from races import Line, be_called, lines_of, race, record_sessions
from scipy import stats

from esrally_ebs.analysis.compare import Claim, Judgement, Verdict, judge
from esrally_ebs.analysis.profile import calibration_errors
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import measured_blocks
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session

CLAIMS = (Verdict.FASTER, Verdict.SLOWER)


def recorded(plan: Path, session: str, params: Mapping[str, Any], *words: str) -> float:
    """Make one session; how long the command took (s)."""
    track_params = json.dumps({"plan": str(plan), **params})
    return race(f"--race-id={session}", f"--track-params={track_params}", *words)


def judged(session: Session, margin: float | None = None) -> Judgement:
    """Its verdicts, at its plan's margin or another."""
    design = session.plan.design
    return judge(
        measured_blocks(session.samples),
        [arm.spec.name for arm in session.arms],
        margin=margin or design.margin,
        confidence=design.confidence,
        off=calibration_errors(session.events),
    )


def line_of(session: Session, seconds: float) -> Line:
    """What one session gave; ratios are logarithms with their standard errors, the first over all tasks."""
    arms, confidence = [arm.spec.name for arm in session.arms], session.plan.design.confidence
    judgement = judged(session)
    ratios = [(one.ratio, one.rounds) for one in judgement.overall]
    ratios += [(one.percentiles[0].ratio, one.rounds) for one in judgement.comparisons]
    return {
        "session": session.id,
        "seconds": round(seconds, 1),
        "read_latency": session.arms[-1].spec.read_latency,
        "rounds": max((one.rounds for one in judgement.comparisons), default=0),
        "verdicts": {_what(one, one.task, arms): one.verdict.value for one in judgement.comparisons},
        "together": {_what(one, "all tasks", arms): one.verdict.value for one in judgement.overall},
        # equivalent, too, says nothing against that
        "together_differ": sum(
            one.p_different is not None and one.p_different <= 1 - confidence for one in judgement.overall
        ),
        # what of that all rounds share, over all tasks
        "off": [one.off for one in judgement.overall],
        "equivalent_at_2": [one.verdict for one in judged(session, 0.02).comparisons].count(
            Verdict.EQUIVALENT
        ),
        "log_ratios": [_with_error(ratio, rounds, confidence) for ratio, rounds in ratios],
    }


def _what(claim: Claim, task: str, arms: Sequence[str]) -> str:
    """What a claim is about, with its arm where there are several."""
    return task if len(arms) == 2 else f"{claim.b}: {task}"


def judged_anew(line: Line) -> Line:
    """A session's line by this version, where its folder is still there."""
    folder = home() / "sessions" / line["session"]
    return line_of(load_session(folder), line["seconds"]) if "seconds" in line and folder.exists() else line


def with_arms_swapped(session: Session, draw: np.random.Generator) -> Session:
    """A session of two arms with each other's names in half of its rounds, by chance."""
    samples = session.samples
    a, b = (arm.spec.name for arm in session.arms)
    rounds = pc.unique(samples["round"])
    swapped = rounds.filter(pa.array(draw.random(len(rounds)) < 0.5))
    named = samples["arm"].cast(pa.string())
    other = pc.if_else(pc.equal(named, a), b, a)
    names = pc.if_else(pc.is_in(samples["round"], value_set=swapped), other, named)
    place = samples.schema.get_field_index("arm")
    return replace(session, samples=samples.set_column(place, "arm", names.cast(samples["arm"].type)))


def show(lines: Sequence[Line]) -> None:
    """A row per session, then how many sessions claim a difference, by margin."""
    print(
        f"{'session':10} {'s':>5} {'rounds':>6} {'p50 ratios':>16} faster slower equiv. inconcl. eq. at 2 %"
        " all tasks"
    )
    judged_ones = [line for line in lines if "failed" not in line]
    claiming = dict.fromkeys(("faster or slower", "slower", "faster", "equivalent at 2 %"), 0)
    together = dict.fromkeys(Verdict, 0)
    for line in judged_ones:
        verdicts = [Verdict(text) for text in line["verdicts"].values()]
        whole = [Verdict(text) for text in line["together"].values()]
        ratios = [math.exp(value) for value, _ in line["log_ratios"][len(whole) :]]
        claiming["faster or slower"] += any(verdict in CLAIMS for verdict in (*verdicts, *whole))
        claiming["slower"] += Verdict.SLOWER in verdicts
        claiming["faster"] += Verdict.FASTER in verdicts
        claiming["equivalent at 2 %"] += bool(line["equivalent_at_2"])
        for verdict in whole:
            together[verdict] += 1
        counts = " ".join(f"{verdicts.count(verdict):7}" for verdict in Verdict)
        print(
            f"{line['session'][:8]:10} {line['seconds']:5.0f} {line['rounds']:6} "
            f"{min(ratios):7.3f} to {max(ratios):5.3f} {counts} {line['equivalent_at_2']:14} "
            + ", ".join(whole)
        )
    print("sessions with a task, or all of them, faster or slower: ", end="")
    print(f"{claiming.pop('faster or slower')} of {len(judged_ones)}")
    for what, count in claiming.items():
        print(f"sessions with a task that is {what}: {count} of {len(judged_ones)}")
    print("all tasks together:", ", ".join(f"{count} {verdict}" for verdict, count in together.items()))
    differ = sum(bool(line.get("together_differ")) for line in judged_ones)
    print(f"sessions in which all tasks together are shown to differ, if within the margin: {differ}")
    for what, found in sorted(_by_arm(judged_ones).items()):
        print(f"tasks of {what} decided in a session, at least: {min(found)}")
    print(f"refused or failed: {len(lines) - len(judged_ones)}")
    if len(judged_ones) > 1 and all(len(line["together"]) == 1 for line in judged_ones):
        _show_spread([line["log_ratios"] for line in judged_ones])


def _by_arm(lines: Sequence[Line]) -> dict[str, list[int]]:
    """How many tasks each session calls faster or slower, by arm; empty where there are but two."""
    counts: dict[str, list[int]] = {}
    for line in lines:
        of_line = Counter[str]()
        for what, verdict in line["verdicts"].items():
            arm, colon, _ = what.partition(": ")
            of_line[arm] += bool(colon) and Verdict(verdict) in CLAIMS
        for arm, count in of_line.items() if any(": " in what for what in line["verdicts"]) else ():
            counts.setdefault(arm, []).append(count)
    return counts


def _with_error(ratio: Estimate, rounds: int, confidence: float) -> tuple[float, float]:
    """The logarithm of a ratio, and its standard error."""
    if ratio.low is None or ratio.high is None:
        return math.log(ratio.value), math.nan
    critical = float(stats.t.ppf((1 + confidence) / 2, rounds - 1))
    return math.log(ratio.value), math.log(ratio.high / ratio.low) / 2 / critical


def _show_spread(sessions: Sequence[Sequence[tuple[float, float]]]) -> None:
    """The variance of a ratio over sessions against the mean one that its intervals stand for."""
    logs, errors = np.moveaxis(np.array(sessions), 2, 0)
    variances, within = logs.var(axis=0, ddof=1), (errors**2).mean(axis=0)
    whole, *tasks = variances / within
    deviation, *_ = np.sqrt(variances)
    of_tasks = within[1:].sum() / len(tasks) ** 2  # of their mean, as if nothing were common to them
    print(f"standard deviation of the ratio over all tasks between sessions: {deviation:.2%}")
    print(
        "standard deviations between sessions / within:"
        f" all tasks {math.sqrt(whole):.2f} (by the tasks' own {math.sqrt(variances[0] / of_tasks):.2f}),"
        f" a task {math.sqrt(np.mean(tasks)):.2f}"
    )


@contextmanager
def beside(busy: bool) -> Iterator[None]:
    """With a process that works all the time, or without."""
    worker = subprocess.Popen(["sh", "-c", "while :; do :; done"]) if busy else None
    try:
        yield
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()


def _changed(plan: Path, read_latency: float | None, folder: Path) -> Path:
    if read_latency is None:
        return plan
    text, count = re.subn(r"(?m)^read_latency = .*$", f"read_latency = {read_latency}", plan.read_text())
    if count != 1:
        raise SystemExit(f"{plan}: has no read_latency to change")
    changed = folder / plan.name
    changed.write_text(text)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("plan", help="aa, power, or the path of a plan")
    parser.add_argument("sessions", type=int, help="how many there shall be in the file of results")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--more", action="store_true", help="so many more, whatever the file holds")
    parser.add_argument("--read-latency", type=float)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--swapped", type=int, default=0, metavar="TIMES")
    parser.add_argument("--lock", type=Path, default=Path(os.devnull))
    parser.add_argument("--set", action="append", default=[], metavar="PARAM=VALUE", help="a track parameter")
    words = parser.parse_args()
    be_called("ebs-sessions")
    os.umask(0o022)
    params: dict[str, Any] = dict(text.split("=", 1) for text in words.set)
    wanted = words.sessions + (len(lines_of(words.results)) if words.more else 0)
    with tempfile.TemporaryDirectory(prefix="ebs-aa-") as folder, beside(words.busy):
        plan = _changed(plan_path(words.plan), words.read_latency, Path(folder))

        def one(session: str) -> Line:
            # as of ``esrally-ebs run --sessions``: an order of requests of its own
            params["set"] = {"design.seed": 1 + len(lines_of(words.results))}
            seconds = recorded(plan, session, params)
            return line_of(load_session(home() / "sessions" / session), seconds)

        record_sessions(words.results, wanted, one, lock=words.lock, endure=words.busy)
    show([judged_anew(line) for line in lines_of(words.results)])
    if words.swapped:
        draw, ratios = np.random.default_rng(1), []
        for folder in (home() / "sessions" / line["session"] for line in lines_of(words.results)):
            session = load_session(folder)
            swapped = (with_arms_swapped(session, draw) for _ in range(words.swapped))
            ratios += [line_of(one, 0.0)["log_ratios"] for one in swapped]
        print(f"with the arms of half of their rounds swapped by chance, {words.swapped} times each:")
        _show_spread(ratios)


if __name__ == "__main__":
    main()
