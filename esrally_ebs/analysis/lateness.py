"""Checks whether emulated volumes kept their models' times while something was measured."""

from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.knee import steps_of
from esrally_ebs.analysis.profile import (
    FIO,
    Profiles,
    Window,
    arm_profiles,
    profiles_of,
    read_windows,
    tasks_beside_writes,
    unlimited,
    whole_blocks,
    with_counter,
)
from esrally_ebs.analysis.summary import counted
from esrally_ebs.model import Check
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_beside

LATENESS: Final = "lateness"
# Emulated volumes beside their nodes are up to 11 % late on a quiet machine (analysis/marks.py).
_MAX_LATE: Final = 0.15
_NOTICED: Final = 0.01  # share of requests' time: I/Os late by less, added up, delay none by more


def check_lateness(session: Session, windows: Sequence[Window]) -> Check | None:
    """Emulated volumes must have kept their models' times; on an overloaded machine none does.

    Counts what is compared: requests, or fio jobs if there are none. For jobs, and searches beside writes,
    many I/Os may be in flight; then I/Os whose time a limit alone decides are not counted.
    """
    beside = tasks_beside_writes(session.events)
    requests = _of_requests(
        session, whole_blocks(with_counter("emulator.reads", windows), beside, session.samples)
    )
    profiles = unlimited(requests, beside) if requests else _unlimited_jobs(session)
    late, noticed = {}, {}
    for arm, profile in arm_profiles(profiles, session.arm_names):
        if (share := profile.late) is not None:
            late[arm] = share
            seconds = _seconds(session, profiles, arm, beside)
            if share > _MAX_LATE and (profile.late_s or 0.0) > _NOTICED * seconds:
                noticed[arm] = share
    if not late:
        return None
    value = ", ".join(f"{arm} {share:+z.0%}" for arm, share in late.items())
    if not noticed:
        text = f"emulated volumes kept the times of their models ({_MAX_LATE:.0%} longer allowed)"
        if max(late.values()) > _MAX_LATE:
            text = f"emulated volumes were late by less than {_NOTICED:.0%} of the requests' time"
        return Check(name=LATENESS, ok=True, value=value, text=text)
    named = ", ".join(f"{format_beside(share, _MAX_LATE)} on {arm}" for arm, share in noticed.items())
    return Check(
        name=LATENESS,
        ok=False,
        value=value,
        text=f"emulated volumes took longer than their models ({named}; {_MAX_LATE:.0%} allowed), so times "
        "are not those of such volumes: this machine was too busy",
        mend="end what else runs on this machine",
        accepted=LATENESS in session.plan.accept,
    )


def _of_requests(session: Session, windows: Sequence[Window]) -> Profiles:
    """Profiles of all requests, except (search for the knee) steps that ran away and overload the machine."""
    profiles = profiles_of(windows)
    if session.plan.design.knee is None:
        return profiles
    steps = steps_of(session)
    return {
        (task, arm): {
            round_: profile
            for round_, profile in by_round.items()
            if round_ not in steps[arm] or not steps[arm][round_].ran_away
        }
        for (task, arm), by_round in profiles.items()
        if arm in steps
    }


def _unlimited_jobs(session: Session) -> Profiles:
    jobs = profiles_of(with_counter("emulator.reads", read_windows(session.events, FIO)[0]))
    return unlimited(jobs, {task for task, _ in jobs})


def _seconds(session: Session, profiles: Profiles, arm: str, beside: Collection[str]) -> float:
    """Seconds that an arm's requests ran; their service times for ``beside``, whose blocks have pauses."""
    tasks = [task for task, of in profiles if of == arm]
    times = session.samples.select(["task", "arm", "service_time_s"]).filter(counted(session.samples))
    paused = pa.array([task for task in tasks if task in beside], pa.string())
    own = times.filter(pc.and_(pc.equal(times["arm"], arm), pc.is_in(times["task"], paused)))
    seconds: list[float] = own["service_time_s"].to_pylist()
    for task in tasks:
        if task not in beside:
            seconds += [profile.seconds for profile in profiles[task, arm].values()]
    return sum(seconds)
