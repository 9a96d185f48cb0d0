"""Verdicts of real sessions whose truth is known: of two identical volumes, and of one that reads slower.

    sudo .venv/bin/python benchmarks/sessions_aa.py aa 20 --results aa.jsonl
    sudo .venv/bin/python benchmarks/sessions_aa.py power 10 --results power.jsonl
    sudo .venv/bin/python benchmarks/sessions_aa.py power 10 --results three.jsonl --read-latency 1.04
         .venv/bin/python benchmarks/sessions_aa.py aa 0 --results aa.jsonl

Each session is one ``esrally race`` of the named plan. When it has ended, one line of JSON goes to the file
of results; whatever ends the benchmark, the next call goes on from there, up to as many sessions as asked
for. Then all sessions of that file are judged again, by this version's statistics, from their folders. With
``--read-latency`` the plan's last arm gets another factor.

Last it says how much more the ratios vary from session to session than their intervals allow for: what
differs between two nodes or volumes for a whole session is in no interval of that session.

The truth: of plan "aa" every "faster" or "slower" is false; of "power" the last arm is slower. Must reach: at
most 2 of 20 sessions of "aa" with any false verdict; at least 9 of 10 of "power" find that it is slower; a
difference of 3 % is never called equivalent at a margin of 2 %.
"""

import argparse
import json
import math
import os
import re
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from races import be_called, race
from scipy import stats

from esrally_ebs.analysis.compare import Comparison, Verdict, compare, judge
from esrally_ebs.analysis.rounds import Estimate
from esrally_ebs.analysis.summary import measured_blocks
from esrally_ebs.errors import EbsError
from esrally_ebs.machine.resources import home, plan_path
from esrally_ebs.store import load_session
from esrally_ebs.store.session import Session

CLAIMS = (Verdict.FASTER, Verdict.SLOWER)
Line = Mapping[str, Any]


def recorded(plan: Path, params: Mapping[str, Any]) -> tuple[str, float]:
    """One session; its id and how long the command took (s)."""
    session = str(uuid.uuid4())
    track_params = json.dumps({"plan": str(plan), **params})
    return session, race(f"--race-id={session}", f"--track-params={track_params}")


def judged(session: Session, margin: float | None = None) -> tuple[Comparison, ...]:
    """Its verdicts, at its plan's margin or another."""
    design = session.plan.design
    return compare(
        measured_blocks(session.samples),
        [arm.spec.name for arm in session.arms],
        margin=margin or design.margin,
        confidence=design.confidence,
    )


def line_of(session: Session, seconds: float) -> Line:
    """What one session gave."""
    return {
        "session": session.id,
        "seconds": round(seconds, 1),
        "read_latency": session.arms[-1].spec.read_latency,
        "verdicts": {c.task: c.verdict.value for c in judged(session)},
        "ratios": {c.task: round(c.percentiles[0].ratio.value, 4) for c in judged(session)},
    }


def lines_of(results: Path) -> list[Line]:
    """The sessions so far."""
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def show(lines: Sequence[Line]) -> None:
    """A row per session, then how many sessions claim a difference, by margin."""
    print(
        f"{'session':10} {'s':>5} {'rounds':>6} {'p50 ratios':>16} faster slower equiv. inconcl. eq. at 2 %"
    )
    claiming: dict[str, int] = {"faster or slower": 0, "slower": 0, "faster": 0, "equivalent at 2 %": 0}
    for line in lines:
        session = load_session(home() / "sessions" / line["session"])
        comparisons, strict = judged(session), judged(session, 0.02)
        verdicts = [c.verdict for c in comparisons]
        ratios = [c.percentiles[0].ratio.value for c in comparisons]
        equal = [c.verdict for c in strict].count(Verdict.EQUIVALENT)
        claiming["faster or slower"] += any(verdict in CLAIMS for verdict in verdicts)
        claiming["slower"] += Verdict.SLOWER in verdicts
        claiming["faster"] += Verdict.FASTER in verdicts
        claiming["equivalent at 2 %"] += bool(equal)
        counts = " ".join(f"{verdicts.count(verdict):7}" for verdict in Verdict)
        rounds = max((c.rounds for c in comparisons), default=0)
        print(
            f"{line['session'][:8]:10} {line['seconds']:5.0f} {rounds:6} "
            f"{min(ratios):7.3f} to {max(ratios):5.3f} {counts} {equal:14}"
        )
    for what, count in claiming.items():
        print(f"sessions with a task that is {what}: {count} of {len(lines)}")
    if len(lines) > 1:
        _show_spread([_ratios(load_session(home() / "sessions" / line["session"])) for line in lines])


def _ratios(session: Session) -> list[tuple[float, float]]:
    """Logarithm and its standard error: of the ratio over all tasks, then of each task's."""
    design = session.plan.design
    arms, confidence = [arm.spec.name for arm in session.arms], design.confidence
    judgement = judge(measured_blocks(session.samples), arms, margin=design.margin, confidence=confidence)
    ratios = [(one.ratio, one.rounds) for one in judgement.overall]
    ratios += [(one.percentiles[0].ratio, one.rounds) for one in judgement.comparisons]
    return [_with_error(ratio, rounds, confidence) for ratio, rounds in ratios]


def _with_error(ratio: Estimate, rounds: int, confidence: float) -> tuple[float, float]:
    if ratio.low is None or ratio.high is None:
        return math.log(ratio.value), math.nan
    critical = float(stats.t.ppf((1 + confidence) / 2, rounds - 1))
    return math.log(ratio.value), math.log(ratio.high / ratio.low) / 2 / critical


def _show_spread(sessions: Sequence[Sequence[tuple[float, float]]]) -> None:
    """The variance of a ratio over sessions against the mean one that its intervals stand for."""
    logs, errors = np.moveaxis(np.array(sessions), 2, 0)
    whole, *tasks = logs.var(axis=0, ddof=1) / (errors**2).mean(axis=0)
    print(f"variance between sessions / within: all tasks {whole:.1f}, a task {np.mean(tasks):.1f}")


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
    parser.add_argument("--set", action="append", default=[], metavar="PARAM=VALUE", help="a track parameter")
    words = parser.parse_args()
    be_called("ebs-sessions")
    os.umask(0o022)
    params = dict(text.split("=", 1) for text in words.set)
    wanted = words.sessions + (len(lines_of(words.results)) if words.more else 0)
    with tempfile.TemporaryDirectory(prefix="ebs-aa-") as folder:
        plan = _changed(plan_path(words.plan), words.read_latency, Path(folder))
        while len(lines_of(words.results)) < wanted:
            try:
                session, seconds = recorded(plan, params)
                line = line_of(load_session(home() / "sessions" / session), seconds)
            except (EbsError, RuntimeError) as error:
                raise SystemExit(str(error)) from error
            with words.results.open("a") as results:
                results.write(json.dumps(line) + "\n")
    show(lines_of(words.results))


if __name__ == "__main__":
    main()
