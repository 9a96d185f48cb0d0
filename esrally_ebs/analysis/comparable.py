"""Named checks of what must agree between arms before a difference can be attributed to the volume."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs.analysis.lateness import check_lateness
from esrally_ebs.analysis.profile import (
    Profile,
    Profiles,
    Window,
    arm_profiles,
    pooled,
    profiles_of,
    read_windows,
    with_counter,
)
from esrally_ebs.analysis.summary import is_measured, is_time
from esrally_ebs.model import Check, Kind, Severity, State
from esrally_ebs.store.encoding import baseline_of
from esrally_ebs.store.parts import UNREADABLE
from esrally_ebs.store.session import Session
from esrally_ebs.units import format_beside, format_bytes, format_seconds, format_share, number_of

# Settings of an attached volume that affect searches by themselves.
VOLUME_SETTINGS = ("filesystem", "readahead_bytes", "scheduler")
REACH = "reach"  # name of the check that a plan may accept
# Share of bytes read from the upper device; the rest may be holes in a loop device's file.
_LEAST_REACHED = 0.9
# Share of fio's median for single random reads; half of a disk's reads differ from the median by less.
_LEAST_OF_DIRECT = 0.5
# Least time of all reads, going by fio, that the kernel's read times in milliseconds can resolve.
_RESOLVED_S = 0.01
_PAGE_BYTES = 4096  # fewer bytes per request are the node's other activity
_SMALL_READ_BYTES = 16 * 1024  # a read of at most this size takes the device's latency and hardly more
NODE_SETTINGS = ("version", "build", "lucene", "jvm", "image", "heap_bytes", "settings")


def check_comparable(session: Session, *, cut: bool = False) -> list[Check]:
    """Checks in the order of their weight; checks that do not apply are left out.

    Files of samples, hits, documents beside writes, segments, versions, volume settings, numbers of requests,
    failed requests, times that are none, coldness, cold searches of several clients, what cold requests read,
    tasks that read nothing, and lateness of emulated volumes. Of a session that was ``cut``, the requests of
    the round in which it was do not count, nor hits and numbers of requests of a first round by itself, which
    may be a part of one.
    """
    # In a search for the knee each arm gets as many requests as it can take, so not the same queries of a
    # mix.
    seeks_knee = session.plan.design.knee is not None
    looked_at = ["task", "arm", "round", "iteration", "success", "hits", "resident_before", "client"]
    measured = session.samples.select(looked_at).filter(is_measured(session.samples))
    is_first = cut and pc.max(measured["round"]).as_py() == 1
    measured = _but(measured, cut_round(session) if cut else None)
    whole = _but(measured, 1 if is_first else None)
    windows = read_windows(session.events)[0]
    profiles = profiles_of(windows) if is_cold(session) else {}
    unread = _without_reads(profiles, measured)
    checks = [
        _samples(session),
        None if seeks_knee else _hits(whole),
        _documents(session),
        _segments(session),
        _agree(
            "versions",
            {arm: pick(node, NODE_SETTINGS) for arm, node in session.environment.get("nodes", {}).items()},
        ),
        _volumes(session),
        None if seeks_knee else _requests(whole, session.arm_names),
        _failed(measured, session.arm_names, seeks_knee=seeks_knee),
        _times(session.samples),
        _cold(session, measured),
        _clients(session, measured),
        _reach(session, windows, unread) if profiles else None,
        _unread(unread),
        check_lateness(session, windows),
    ]
    return [check for check in checks if check is not None]


def all_checks(session: Session) -> tuple[Check, ...]:
    """Checks made during the session, and those made from its record."""
    recorded = {check.name for check in session.checks}
    checks = check_comparable(session, cut=session.state is not State.COMPLETE)
    return (*session.checks, *(check for check in checks if check.name not in recorded))


def is_cold(session: Session) -> bool:
    """Whether the plan drops caches; every output states the mode."""
    return session.plan.cache.mode == "cold"


def _samples(session: Session) -> Check | None:
    """Reported only if files of samples were damaged or cut by a disk: nobody knows which rows they had."""
    unread = [text for text in session.warnings if text.startswith("samples/") and UNREADABLE in text]
    if not unread:
        return None
    mend = "see to the disk that changed it, or copy the session again"
    return Check(name="samples", ok=False, value=str(len(unread)), text="; ".join(unread), mend=mend)


def _hits(measured: pa.Table) -> Check | None:
    keys = ["task", "arm", "hits"]
    counted = measured.select(keys).filter(measured["success"])
    hits: dict[str, dict[str, set[int | None]]] = {}
    distinct = _grouped(counted, keys).aggregate([])
    for row in distinct.to_pylist():
        hits.setdefault(row["task"], {}).setdefault(row["arm"], set()).add(row["hits"])
    # No hits on any arm tell nothing; hits on some arms only are a difference.
    hits = {task: by_arm for task, by_arm in hits.items() if set().union(*by_arm.values()) != {None}}
    if not hits:
        return None
    for task, by_arm in hits.items():
        if len({frozenset(numbers) for numbers in by_arm.values()}) > 1:
            shared = set.intersection(*by_arm.values())
            listed = ", ".join(
                f"{arm} {sorted(numbers - shared, key=lambda number: (number is not None, number or 0))[:3]}"
                for arm, numbers in by_arm.items()
            )
            text = f"{task}: hit counts differ between arms ({listed}); they do not search the same documents"
            return Check(name="hits", ok=False, value=listed, text=text)
    return Check(
        name="hits",
        ok=True,
        value=number_of(len(hits), "task"),
        text="every task has the same hits on every arm",
    )


def _documents(session: Session) -> Check | None:
    """Whether all arms had the same documents whenever they were brought back; hits may grow between."""
    counts: dict[str | None, set[float]] = {}
    for event in session.events:
        if event.kind == "brought-back" and (count := event.number("documents")) is not None:
            counts.setdefault(event.arm, set()).add(count)
    distinct = set[float]().union(*counts.values())
    if not distinct:
        return None
    listed = ", ".join(f"{count:.0f}" for count in sorted(distinct))
    if len(distinct) > 1:
        several = [name for name, of_arm in counts.items() if len(of_arm) > 1] or [*counts]
        arms = " and ".join(str(name) for name in several)
        text = (
            f"documents differ between times that arms were brought back ({listed}); see the logs of the "
            f"nodes of {arms}"
        )
        return Check(name="documents", ok=False, value=listed, text=text)
    text = "arms had the same documents each time that they were brought back"
    return Check(name="documents", ok=True, value=listed, text=text)


def _segments(session: Session) -> Check | None:
    if any(check.name == "segments" for check in session.checks):  # made when the files were at hand
        return None
    if session.dataset.get("copied") is False:
        text = "segments differ: each arm indexed by itself"
        return Check(name="segments", ok=True, value="own index per arm", text=text)
    if session.dataset.get("hash"):
        value = str(session.dataset["hash"])[:12]
        return Check(
            name="segments", ok=True, value=value, text="every arm got a copy of the same segment files"
        )
    return None


def _agree(name: str, by_arm: Mapping[str, Mapping[str, Any]]) -> Check | None:
    if not by_arm:
        return None
    keys = dict.fromkeys(key for values in by_arm.values() for key in values)
    for key in keys:
        if len({str(values.get(key)) for values in by_arm.values()}) > 1:
            listed = ", ".join(f"{arm} {values.get(key)}" for arm, values in by_arm.items())
            return Check(name=name, ok=False, value=listed, text=f"{key} differs between arms: {listed}")
    first = next(iter(by_arm.values()))
    value = ", ".join(f"{key} {value}" for key, value in first.items())
    return Check(name=name, ok=True, value=value, text=f"{name} are the same on every arm")


def _volumes(session: Session) -> Check | None:
    accepted = {check.name for check in session.checks if check.accepted}
    keys = [key for key in VOLUME_SETTINGS if key.removesuffix("_bytes") not in accepted]
    settings = {arm.spec.name: pick({k: getattr(arm, k) for k in keys}, keys) for arm in session.arms}
    check, kinds = _agree("settings", settings), {arm.kind for arm in session.arms}
    if check is None or check.ok or len(kinds) == 1:
        return check
    # A network file system has no disk scheduler or readahead: that is part of what is compared.
    text = f"{check.text} (arms of different kinds)"
    return replace(check, ok=Kind.EFS in kinds, text=text, severity=Severity.WARN)


def pick(values: Mapping[str, Any], keys: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """The entries of ``values`` for ``keys`` that are there and not empty."""
    return {f"{prefix}{key}": values[key] for key in keys if values.get(key) not in (None, "")}


def cut_round(session: Session) -> int | None:
    """The round in which a session was cut off: tasks or arms have fewer requests than in the round before.

    None if it is the only round, since nothing shows what is missing, and for searches for the knee.
    """
    if session.state is State.COMPLETE or session.plan.design.knee is not None:
        return None
    measured = session.samples.filter(is_measured(session.samples))
    rows = _grouped(measured, ["round", "task", "arm"]).aggregate([([], "count_all")]).to_pylist()
    counts: dict[int, dict[tuple[str, str], int]] = {}
    for row in rows:
        counts.setdefault(row["round"], {})[row["task"], row["arm"]] = row["count_all"]
    last = max(counts, default=0)
    return last if last > 1 and counts[last] != counts.get(last - 1) else None


def whole_rounds(session: Session) -> Session:
    """The session without the round in which it was cut off."""
    if session.state is State.COMPLETE or session.plan.design.knee is not None:
        return session
    samples = _but(session.samples, cut_round(session))
    last = pc.max(samples["round"]).as_py()
    if not last:
        return session
    # events may exist of requests whose samples were lost with their worker
    events = tuple(event for event in session.events if (event.number("round") or 0) <= last)
    return replace(session, samples=samples, events=events)


def _but(samples: pa.Table, round_: int | None) -> pa.Table:
    """All requests except those of one round."""
    return samples if round_ is None else samples.filter(pc.not_equal(samples["round"], round_))


def _requests(measured: pa.Table, names: Iterable[str]) -> Check | None:
    counts: dict[str, dict[str, int]] = {}
    before_rounds = set()  # tasks of arms that index by themselves: an arm may need more requests, or time
    rows = _grouped(measured, ["task", "arm", "round"]).aggregate([([], "count_all")])
    for row in rows.to_pylist():
        by_arm = counts.setdefault(row["task"], {})
        by_arm[row["arm"]] = by_arm.get(row["arm"], 0) + row["count_all"]
        if not row["round"]:
            before_rounds.add(row["task"])
    if not counts:
        return None
    arms = {*names, *(arm for by_arm in counts.values() for arm in by_arm)}
    uneven = []
    for task, by_arm in counts.items():
        if len(by_arm) == len(arms) and len(set(by_arm.values())) == 1:
            continue
        listed = ", ".join(f"{arm} {by_arm.get(arm, 0)}" for arm in sorted(arms))
        if len(by_arm) == len(arms) and task in before_rounds:
            uneven.append(f"{task} ({listed})")
        else:
            return Check(
                name="requests", ok=False, value=listed, text=f"{task}: unequal numbers of requests: {listed}"
            )
    total = sum(number for by_arm in counts.values() for number in by_arm.values())
    text = "every arm got the same number of requests"
    text += f", but for what an arm does until it is done, or for a time: {_first(uneven)}" if uneven else ""
    return Check(name="requests", ok=True, value=str(total), text=text)


def _failed(measured: pa.Table, arms: Collection[str], *, seeks_knee: bool) -> Check | None:
    """Failed requests that differ between arms. Equal failures are ignored: a log has unanswerable queries.

    In a search for the knee arms have rates of their own, and each failed request counts as late.
    """
    if not measured.num_rows:
        return None
    failed = measured.filter(pc.invert(measured["success"])).select(["task", "arm", "round"]).to_pylist()
    if not failed:
        return Check(name="errors", ok=True, value="0", text="no measured request failed")
    where = sorted({(row["task"], row["arm"]) for row in failed})
    text = f"{len(failed)} of {measured.num_rows} measured requests failed"
    by_arm = [Counter((row["task"], row["round"]) for row in failed if row["arm"] == arm) for arm in arms]
    is_alike = len(by_arm) > 1 and all(counts == by_arm[0] for counts in by_arm)
    if is_alike and len(failed) < measured.num_rows and not seeks_knee:
        tasks = list(dict.fromkeys(task for task, _ in where))
        text += f" ({_first(tasks)}), as many on each arm: they are left out"
        return Check(name="errors", ok=False, value=str(len(failed)), text=text, severity=Severity.WARN)
    text += f" ({_first([f'{task} on {arm}' for task, arm in where])})"
    severity = Severity.WARN if seeks_knee else Severity.STOP
    text += ", which count as late" if seeks_knee else ""
    return Check(name="errors", ok=False, value=str(len(failed)), text=text, severity=severity)


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def _times(samples: pa.Table) -> Check | None:
    """Reported only if there are invalid times: whatever wrote them cannot be trusted with the others."""
    measured = pc.and_(is_measured(samples), samples["success"])
    has_latency = pc.fill_null(pc.is_finite(samples["latency_s"]), False)
    is_right = pc.and_(is_time(samples["service_time_s"]), has_latency)
    wrong = samples.filter(pc.and_(measured, pc.invert(is_right)))
    if not wrong.num_rows:
        return None
    tasks = sorted(set(wrong["task"].to_pylist()))
    text = (
        f"{number_of(wrong.num_rows, 'measured request')} without a latency, or a service time above 0"
        f" ({_first(tasks)})"
    )
    return Check(name="times", ok=False, value=str(wrong.num_rows), text=text)


def _cold(session: Session, measured: pa.Table) -> Check | None:
    """The first request after each drop must have found the index outside the page cache."""
    if not is_cold(session):
        return None
    firsts = measured.filter(pc.and_(pc.equal(measured["iteration"], 1), pc.greater(measured["round"], 0)))
    known = firsts["resident_before"].filter(pc.is_finite(firsts["resident_before"]))
    if not firsts.num_rows:
        return None
    if len(known) < firsts.num_rows:
        missing = firsts.num_rows - len(known)
        text = f"{missing} of {firsts.num_rows} cold requests have no residency; they may have been warm"
        return Check(name="cold", ok=False, value="unknown", text=text)
    worst = float(pc.max(known).as_py())
    bound = session.plan.cache.max_resident
    value = format_beside(worst, bound, least=2)
    text = (
        f"at most {value} of the index was in the page cache before a cold request"
        f" ({format_share(bound)} allowed)"
    )
    return Check(name="cold", ok=worst <= bound, value=value, text=text)


def _clients(session: Session, measured: pa.Table) -> Check | None:
    """Reported if several clients search cold at once: each evicts what the others are reading."""
    searches = measured.filter(pc.greater(measured["round"], 0))  # indexing evicts nothing
    rows = _grouped(searches, ["task", "client"]).aggregate([]).to_pylist()
    tasks = [task for task, clients in Counter(row["task"] for row in rows).items() if clients > 1]
    if not tasks or not is_cold(session):
        return None
    return Check(
        name="clients",
        ok=False,
        value=str(len(tasks)),
        text=f"{_first(tasks)}: asked cold by several clients, each of which evicts the index while others "
        "read it, so the longer a request takes, the more of it is read again",
        severity=Severity.WARN,
        mend="take one client for it, or cache:warm",
    )


def _reach(session: Session, windows: Sequence[Window], unread: Sequence[str]) -> Check | None:
    """Cold requests must read from the arm's device, from the lowest device below it, and no faster than
    reads that bypass the page cache.

    This needs no knowledge of the layers: bytes that a layer caches are missing below it, and reads from a
    cache that the kernel does not see are too fast.
    """
    direct = _direct_reads(session)
    reads, wrong = [], []
    observed = profiles_of(with_counter("device.read_bytes", windows))
    profiles = {key: by_round for key, by_round in observed.items() if key[0] not in unread}
    for arm, profile in arm_profiles(profiles, session.arm_names):
        if "device.read_bytes" in profile.grown:
            reads.append(_what_was_read(arm, profile))
            wrong += _cached(arm, profile, direct.get(arm))
    if not reads:
        return None
    value = "; ".join(reads)
    if not wrong:
        return Check(
            name=REACH, ok=True, value=value, text=f"cold requests were read from the devices: {value}"
        )
    return Check(
        name=REACH,
        ok=False,
        value=value,
        text=f"a cache answered cold requests, which {'; '.join(wrong)}",
        mend="take a volume without a cache of this machine, and one whose reads are counted (queue/iostats)",
        accepted=bool({REACH, "caches-below"} & set(session.plan.accept)),
    )


def _unread(tasks: Sequence[str]) -> Check | None:
    """Reported if no volume had anything to do with some tasks; else None."""
    if not tasks:
        return None
    listed = ", ".join(tasks)
    return Check(
        name="unread",
        ok=False,
        value=listed,
        text=f"{listed}: found nothing and read no page a request on any arm; this says nothing of volumes",
        severity=Severity.WARN,
        mend="search for what the index has",
    )


def _without_reads(profiles: Profiles, measured: pa.Table) -> list[str]:
    """Tasks with nothing to read: less than a page per request on every arm, and no hits.

    If a task had hits without reads, a cache may have answered.
    """
    without_hits = pc.fill_null(pc.equal(measured["hits"], 0), False)
    found = set(measured.filter(pc.invert(without_hits))["task"].to_pylist())
    idle = set(measured["task"].to_pylist()) - found
    for (task, _), by_round in profiles.items():
        read_bytes = pooled(by_round.values()).read_bytes
        if read_bytes is None or read_bytes >= _PAGE_BYTES:
            idle.discard(task)
    return [task for task in dict.fromkeys(task for task, _ in profiles) if task in idle]


def _what_was_read(arm: str, profile: Profile) -> str:
    text = f"{arm} {format_bytes(int(profile.grown['device.read_bytes']))}"
    reached = profile.grown.get("lowest.read_bytes")
    return text if reached is None else f"{text}, {format_bytes(int(reached))} at the last device below"


def _cached(arm: str, profile: Profile, direct_s: float | None) -> list[str]:
    """Signs that an arm's requests were answered from a cache; empty if there are none."""
    read, reached = profile.grown["device.read_bytes"], profile.grown.get("lowest.read_bytes")
    if not read or (reached is not None and reached < _LEAST_REACHED * read):
        return [f"read too little: {_what_was_read(arm, profile)}"]
    await_s, reads = profile.await_s, profile.reads
    if await_s is None or reads is None or direct_s is None or reads * direct_s < _RESOLVED_S:
        return []
    if await_s >= _LEAST_OF_DIRECT * direct_s:
        return []
    return [f"read too fast: {arm} {format_seconds(await_s)} a read, fio {format_seconds(direct_s)}"]


def _direct_reads(session: Session) -> dict[str, float]:
    """fio's median time (s) of small single random reads, by real arm; the fastest of several jobs.

    Emulated volumes are left out: ``lateness`` checks their times.
    """
    real = {arm.spec.name for arm in session.arms if arm.kind is not Kind.EMULATED}
    random = {job.name for job in session.plan.baseline if job.rw == "randread"}
    fastest: dict[str, float] = {}
    for row in baseline_of(session.baseline):
        alone = row.iodepth * row.numjobs == 1 and row.bs_bytes <= _SMALL_READ_BYTES
        if row.arm in real and row.job in random and row.op == "read" and alone:
            fastest[row.arm] = min(row.p50_s, fastest.get(row.arm, row.p50_s))
    return fastest


def _grouped(table: pa.Table, columns: list[str]) -> pa.TableGroupBy:
    """Group by columns; unifies the dictionaries of text columns over chunks, which grouping requires."""
    return table.select(columns).unify_dictionaries().group_by(columns)
