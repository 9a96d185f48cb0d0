"""Runs a study's jobs on emulated devices: as sessions of ``esrally-ebs run``, read from their folders.

Long jobs are shortened: to ``CUT_S`` on files of ``CUT_BYTES``, from empty buckets, so that saved tokens
count for no more than in the whole job; a burst to a hundredth of its credits and rests.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from esrally_ebs.machine.procfs import DISKSTATS, DiskCounters, parse_diskstats
from esrally_ebs.model import Event
from esrally_ebs.plan import BaselineJob, Plan
from esrally_ebs.session.runs import measure_plan
from esrally_ebs.store import load_session
from esrally_ebs.store.context import Arm, Context
from esrally_ebs.studies.runs import PREWARM, LoadPhase, Run, run_of
from esrally_ebs.units import GIB, MIB
from esrally_ebs.volumes.emulated.control import change

CUT_S = 20.0
CUT_BYTES = GIB
_TIMED_FILE = 128 * MIB  # for jobs that repeat their file until time is up: laid out in a second
BURST_SCALE = 100  # divides a burst's credits and rests
_BURST_MORE_S = 10.0  # beyond its scaled time, to show the baseline after a burst
_BURST_FILE = 16 * MIB  # laying it out costs 64 credits
_DISK_EVERY_S = 0.25

Say = Callable[[str], None]


@dataclass(slots=True)
class DeviceRunner:
    """Emulated devices of this machine."""

    repeats: int = 1
    say: Say = print
    virtual: bool = field(default=False, init=False)
    scale: int = field(default=BURST_SCALE, init=False)
    sessions: list[str] = field(default_factory=list, init=False)
    cut: str = field(default="", init=False)  # description of what was shortened

    @property
    def how(self) -> str:
        sessions = ", ".join(self.sessions)
        runs = f"{self.repeats} runs" if self.repeats > 1 else "one run"
        return f"measured with fio on emulated devices, {runs} of a job (session {sessions}){self.cut}"

    def jobs(self, plan: Plan, reads: Mapping[str, float]) -> list[Run]:
        """See VirtualRunner; fio itself draws a mix's directions here."""
        del reads
        short, drained = _cut(plan)
        if drained:
            names = ", ".join(sorted(drained))
            self.cut = f"; cut to {CUT_S:g} s, from empty buckets: {names}"

        def prepare(arm: Arm, job: BaselineJob) -> None:
            if job.name in drained and arm.volume.control is not None:
                # the arm's instance is otherwise idle, and in the whole job a second of its tokens would be
                # negligible
                change(arm.volume.control, drain=True, drain_instance=True)

        runs: list[Run] = []
        for _ in range(self.repeats):
            folder, _ = measure_plan(short, self.say, prepare=prepare)
            self.sessions.append(folder.name)
            runs += _recorded(folder, short)
        return runs

    def phases(self, plan: Plan) -> list[LoadPhase]:
        """See VirtualRunner; nothing is prewarmed, as blocks of emulated devices are all equally fast."""
        self.cut = f"; credits, rests and seconds are {BURST_SCALE} times fewer, and scaled back"
        jobs = [job for job in plan.baseline if job.name != PREWARM]
        rests = {job.name: job.rest / BURST_SCALE for job in jobs}
        arm = replace(plan.arm[0], credits=plan.arm[0].credits / BURST_SCALE)
        short = plan.model_copy(update={"arm": (arm,), "baseline": tuple(_burst_job(job) for job in jobs)})

        def prepare(arm: Arm, job: BaselineJob) -> None:
            assert arm.volume.control is not None
            time.sleep(rests[job.name])
            change(arm.volume.control, drain=True, drain_instance=True)
            if job.name == jobs[0].name:
                change(arm.volume.control, credits=short.arm[0].credits)

        watch = DiskWatch()
        folder, _ = measure_plan(short, self.say, prepare=prepare, beside=watch.watching)
        self.sessions.append(folder.name)
        events = [event for event in load_session(folder).events if event.kind == "baseline"]
        began = events[0].fields["began_at"]
        return [watch.phase(event, round(event.fields["began_at"] - began)) for event in events]


class DiskWatch:
    """Samples the first arm's device in ``/proc/diskstats`` four times a second."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, DiskCounters]] = []
        self._stop = threading.Event()

    @contextmanager
    def watching(self, context: Context) -> Iterator[None]:
        device = context.arms[0].volume.device
        assert device is not None
        thread = threading.Thread(target=self._watch, args=(device,), name="ebs-disk-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self, device: str) -> None:
        while not self._stop.wait(_DISK_EVERY_S):
            counters = parse_diskstats(DISKSTATS.read_text(), str(DISKSTATS))[device]
            self._samples.append((time.time(), counters))

    def phase(self, event: Event, start_s: int) -> LoadPhase:
        """A job's seconds: counters at whole seconds after its begin, interpolated between samples."""
        began_at, ended_at = event.fields["began_at"], event.at_s
        marks = [self._at(began_at + i) for i in range(int(ended_at - began_at) + 1)]
        seconds = [
            (round(done - before), spent - until) for (before, until), (done, spent) in pairwise(marks)
        ]
        return LoadPhase(name=event.fields["job"], start_s=start_s, seconds=seconds)

    def _at(self, moment: float) -> tuple[float, float]:
        """I/Os done and their total seconds, at this time."""
        later = next((i for i, (at, _) in enumerate(self._samples) if at >= moment), len(self._samples) - 1)
        (t0, a), (t1, b) = self._samples[max(0, later - 1)], self._samples[later]
        share = min(1.0, max(0.0, (moment - t0) / (t1 - t0))) if t1 > t0 else 0.0
        done = [c.reads + c.writes for c in (a, b)]
        spent = [c.read_s + c.write_s for c in (a, b)]
        return done[0] + share * (done[1] - done[0]), spent[0] + share * (spent[1] - spent[0])


def _cut(plan: Plan) -> tuple[Plan, frozenset[str]]:
    """The plan with long jobs shortened, and the names of these."""
    drained = frozenset(job.name for job in plan.baseline if _is_long(job))
    return plan.model_copy(update={"baseline": tuple(map(_shortened, plan.baseline))}), drained


def _shortened(job: BaselineJob) -> BaselineJob:
    if _is_long(job) and job.runtime is None:  # repeats a smaller file
        return job.model_copy(update={"size": CUT_BYTES, "runtime": CUT_S})
    if job.runtime is None:
        return job
    return job.model_copy(update={"size": min(job.size, _TIMED_FILE), "runtime": min(job.runtime, CUT_S)})


def _is_long(job: BaselineJob) -> bool:
    return job.size > CUT_BYTES if job.runtime is None else job.runtime > CUT_S


def _burst_job(job: BaselineJob) -> BaselineJob:
    runtime = (job.runtime or 0.0) / BURST_SCALE + _BURST_MORE_S
    return job.model_copy(update={"runtime": runtime, "rest": 0.0, "size": _BURST_FILE})


def _recorded(folder: Path, plan: Plan) -> Iterator[Run]:
    """Runs of a session, from fio's output and the recorded waits for limits."""
    waits = {
        (event.arm, event.fields["job"]): event.fields["waited_s"]
        for event in load_session(folder).events
        if event.kind == "baseline" and event.fields["round"] == 0
    }
    for arm in plan.arm:
        for job in plan.baseline:
            text = (folder / "baseline" / f"0-{arm.name}-{job.name}.json").read_text()
            yield run_of(text, arm.name, job, waited_s=waits[arm.name, job.name])
