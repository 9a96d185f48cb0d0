"""What device and processors did while measured requests ran: profiles in, a table and warnings out."""

from collections.abc import Iterator, Sequence

from esrally_ebs.causes import Profile, Profiles, pooled
from esrally_ebs.formats.proc_stat import STEAL_TO_WARN_OF
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, quantity
from esrally_ebs.units import MIB, format_seconds

# Emulated volumes are up to 11 % late beside their own nodes on a quiet machine (causes/marks.py).
_LATE_TO_WARN_OF = 0.15
_TITLES = (
    "queue depth",
    "read await",
    "reads/s",
    "read",
    "waited in limiters",
    "credits spent",
    "processors stolen",
    "later than its model",
)
_WHERE_KNOWN = ("processors stolen", "later than its model")  # no column where no arm has it


def load_warnings(profiles: Profiles, arms: Sequence[str]) -> Iterator[str]:
    """That the machine was not its own, or too busy to emulate, while requests were measured."""
    every = [profile for by_round in profiles.values() for profile in by_round.values()]
    stolen = pooled(every).stolen if every else None
    if stolen is not None and stolen > STEAL_TO_WARN_OF:
        yield (
            f"the host kept {stolen:.0%} of the processor time that this machine asked for (steal): service "
            "times hold waits that no volume caused, and emulated volumes do not keep theirs; measure on a "
            "machine whose processors are its own"
        )
    late = [(arm, own.late) for arm, own in _by_arm(profiles, arms)]
    told = [f"{share:.0%} on {arm}" for arm, share in late if share is not None and share > _LATE_TO_WARN_OF]
    if told:
        yield (
            f"emulated volumes took longer than their models ({', '.join(told)}): the machine was too busy "
            "to emulate them, and times are not those of such volumes; measure again with nothing else "
            "running"
        )


def load_table(profiles: Profiles, arms: Sequence[str]) -> Table | None:
    """What the device did while an arm's requests ran, all tasks together."""
    rows = [(arm, dict(zip(_TITLES, _cells(own), strict=True))) for arm, own in _by_arm(profiles, arms)]
    if not rows:
        return None
    titles = [
        title
        for title in _TITLES
        if title not in _WHERE_KNOWN or any(cells[title] != NOTHING for _, cells in rows)
    ]
    return Table(
        key="load",
        title="Device during measured requests",
        item_title="arm",
        columns=tuple(Column(title=title, subject=title) for title in titles),
        rows=tuple(Row(item=arm, cells=tuple(cells[title] for title in titles)) for arm, cells in rows),
        notes=(
            "Waits add up all I/Os that the limiters held. Credits (operations, of HDD types bytes) are net.",
        ),
    )


def _by_arm(profiles: Profiles, arms: Sequence[str]) -> Iterator[tuple[str, Profile]]:
    """Each arm that was observed, with all its tasks and rounds as one."""
    for arm in arms:
        own = [p for (_, of), by_round in profiles.items() if of == arm for p in by_round.values()]
        if own:
            yield arm, pooled(own)


def _cells(profile: Profile) -> tuple[Cell, ...]:
    """In the order of _TITLES."""
    per_s = {
        name: profile.grown[f"device.{name}"] / profile.seconds
        for name in ("reads", "read_bytes")
        if f"device.{name}" in profile.grown
    }
    waited = sum(profile.waited_s.values()) if profile.waited_s else None
    reads, size = per_s.get("reads"), per_s.get("read_bytes")
    spent, stolen, late = profile.credits_spent, profile.stolen, profile.late
    return (
        quantity("queue_depth_mean", profile.depth, f"{profile.depth or 0.0:.2f}"),
        quantity("read_await_s_mean", profile.await_s, format_seconds(profile.await_s or 0.0)),
        quantity("reads_per_s_mean", reads, f"{reads or 0.0:.0f}"),
        quantity("read_bytes_per_s_mean", size, f"{(size or 0.0) / MIB:.1f} MiB/s"),
        quantity("waited_s", waited, format_seconds(waited or 0.0)),
        quantity("credits_spent", spent, f"{spent or 0.0:,.0f}"),
        quantity("stolen_share", stolen, f"{stolen or 0.0:.1%}"),
        quantity("late_share", late, f"{late or 0.0:+.0%}"),
    )
