"""A session that changes a volume in place, measuring before, during and after the change.

The plan's fio jobs run in passes over the arm; each pass is an event with the phase that AWS reported when it
began and when it ended, so that a pass that saw two phases is known as one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median

from esrally_ebs.aws import modify
from esrally_ebs.aws.clients import Api
from esrally_ebs.aws.provision.goal import RunOwner
from esrally_ebs.errors import PlanError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Clock
from esrally_ebs.model import BaselineRow, Event, Kind, Volume
from esrally_ebs.units import format_seconds

BEFORE, AFTER = "before", "after"
Record = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Everything needed to make and measure one change of one arm."""

    api: Api
    volume: str
    owner: RunOwner | None  # owner of resources that are made here
    arm: str
    change: modify.VolumeChange
    passes: int  # before the change, and again after it
    measure: Callable[[int], None]  # runs all jobs once, as the round of that number
    record: Record
    clock: Clock = SYSTEM_CLOCK

    def run(self) -> None:
        """Measure; change; measure until the change is complete; measure again.

        Raises PlanError or SetupError before changing anything if the change is not allowed.
        """
        now, ours = modify.settings_of(self.api, self.volume, self.owner)
        if not ours:
            raise PlanError(
                f"{self.volume}: this pack has not made it, so no plan changes it; 'esrally-ebs volumes"
                f" modify {self.volume} --not-ours' does"
            )
        target = modify.target_of(now, self.change)
        last = modify.progress_of(self.api, self.volume)
        for warning in modify.check_free(self.volume, last, at_s=self.clock.epoch()):
            self._note("warning", text=warning)
        self._note("settings", before=now.text, after=target.text)
        rounds = count()  # reports take the highest for the end of the session
        for _ in range(self.passes):
            self._pass(next(rounds), BEFORE, lambda: BEFORE)
        since = modify.begin(self.api, self.volume, now, target)
        self._note("asked")
        modify.follow(
            self.api,
            self.volume,
            clock=self.clock,
            each=lambda progress: self._during(rounds, progress, since),
            since=since,
        )
        for _ in range(self.passes):
            self._pass(next(rounds), AFTER, lambda: AFTER)

    def _during(
        self, rounds: Iterator[int], progress: modify.ModificationProgress, since: float | None
    ) -> None:
        self._note("progress", state=progress.state, percent=progress.percent)
        if progress.state in modify.UNDER_WAY:
            self._pass(next(rounds), progress.state, lambda: self._state(since))

    def _pass(self, round_: int, phase: str, phase_then: Callable[[], str]) -> None:
        self.measure(round_)
        self._note("pass", round=round_, phase=phase, phase_at_end=phase_then())

    def _state(self, since: float | None) -> str:
        return modify.progress_since(self.api, self.volume, since, clock=self.clock).state

    def _note(self, what: str, **fields: object) -> None:
        event = {"what": what, "volume": self.volume, **fields}
        self.record(Event(at_s=self.clock.epoch(), kind="modification", arm=self.arm, fields=event))


def volume_of(volume: Volume) -> str:
    """The single EBS volume of an arm. Raises PlanError for anything else: it cannot be changed in place."""
    ids = [word for word in volume.identity.split() if word.startswith("vol-")]
    if volume.kind is not Kind.EBS or len(ids) != 1:
        raise PlanError(
            f"arm {volume.spec.name}: it is {volume.kind}, {len(ids)} EBS volumes; only an arm on one EBS"
            " volume is changed in place"
        )
    return ids[0]


def phases(events: Sequence[Event]) -> Mapping[int, str]:
    """The phase of each round; ``modifying to optimizing`` for a pass that spans both."""
    passes = [
        event.fields for event in events if event.kind == "modification" and event.fields["what"] == "pass"
    ]
    return {
        fields["round"]: fields["phase"]
        if fields["phase"] == fields["phase_at_end"]
        else f"{fields['phase']} to {fields['phase_at_end']}"
        for fields in passes
    }


def summary(events: Sequence[Event], rows: Sequence[BaselineRow]) -> str:
    """One line per job, direction and phase: medians over passes, and the worst pass's p99."""
    of_round = phases(events)
    order = dict.fromkeys(of_round.values())
    lines = [f"{'job':28} {'phase':26} {'passes':>6} {'IOPS':>9} {'p50':>9} {'p99':>9} {'worst p99':>9}"]
    for job, op in dict.fromkeys((row.job, row.op) for row in rows):
        for phase in order:
            of_phase = [r for r in rows if (r.job, r.op) == (job, op) and of_round.get(r.round) == phase]
            if of_phase:
                lines.append(_line(f"{job} ({op})", phase, of_phase))
    return "\n".join(lines)


def _line(job: str, phase: str, rows: Sequence[BaselineRow]) -> str:
    iops = median(row.iops for row in rows)
    p50, p99 = median(row.p50_s for row in rows), median(row.p99_s for row in rows)
    times = [format_seconds(seconds) for seconds in (p50, p99, max(row.p99_s for row in rows))]
    return f"{job:28} {phase:26} {len(rows):>6} {iops:>9.0f} {times[0]:>9} {times[1]:>9} {times[2]:>9}"
