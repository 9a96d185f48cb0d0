"""Why arms differ: what queries read, what fio predicts, rounds with an event on one arm only."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from esrally_ebs.analysis.comparable import is_cold
from esrally_ebs.analysis.compare import Comparison, Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.marks import MATTERS, Block, Cause
from esrally_ebs.analysis.profile import (
    Profile,
    Profiles,
    arm_profiles,
    block_profiles,
    pooled,
    profiles_of,
    read_windows,
    singles,
    tasks_beside_writes,
    unlimited,
)
from esrally_ebs.analysis.reasons import (
    Explanation,
    FioPrediction,
    fio_read_times,
    own_parts,
    predict,
    sentence,
    why,
)
from esrally_ebs.model import STEAL_TO_WARN_OF
from esrally_ebs.report.cells import arm_columns, arm_names, arm_rows, time_difference_cell
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value, milliseconds, quantity, titled
from esrally_ebs.store.session import Session
from esrally_ebs.units import KIB, MIB, format_seconds, format_share, number_of

Marked = Mapping[Block, tuple[Cause, ...]]
Pools = Mapping[tuple[str, str], Profile]  # over all rounds, by task and arm
_WHERE_KNOWN = ("processors stolen", "later than its model")  # shown only if some arm has a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """What the record shows about why arms differ."""

    arms: tuple[str, ...]
    profiles: Profiles
    timed: Profiles  # without searches beside writes that limits held back
    own: Profiles  # of observed requests, without others that overlapped; not of searches beside writes
    singles: Mapping[tuple[str, str], Sequence[Profile]]  # the same, one profile per request
    broken: int  # unusable observations
    expected: Mapping[tuple[str, str, str], FioPrediction]  # by task, a, b
    marked: Marked
    without_marked: Findings


def explain(session: Session, findings: Findings, marked: Marked) -> Explained:
    """Profiles, fio's predictions, and how marked blocks change the verdicts."""
    windows, broken = read_windows(session.events)
    # with dropped caches, every request is observed
    parts = windows if is_cold(session) else own_parts(windows, session.samples)
    # counters include the work of writes beside a search; it grows with the search's time
    beside = tasks_beside_writes(session.events)
    parts = [part for part in parts if part.task not in beside]
    own, profiles = profiles_of(parts), block_profiles(session)
    fio = fio_read_times(session)
    expected = {}
    for c in findings.comparisons:
        value = predict(
            own.get((c.task, c.a), {}),
            own.get((c.task, c.b), {}),
            fio.get(c.a, {}),
            fio.get(c.b, {}),
            confidence=findings.confidence,
        )
        if value is not None:
            expected[c.task, c.a, c.b] = value
    return Explained(
        arms=session.arm_names,
        profiles=profiles,
        timed=unlimited(profiles, beside),
        own=own,
        singles=singles(parts),
        broken=broken,
        expected=expected,
        marked=marked,
        without_marked=without_marked(findings, marked),
    )


SharedReason = tuple[tuple[str, ...], tuple[Explanation, ...]]  # tasks, and each one's reason


def shared_reasons(session: Session, findings: Findings, explained: Explained) -> list[SharedReason]:
    """Explanations of proven differences, grouped by reason; those of most tasks first."""
    names = arm_names(session)
    groups: dict[tuple[str, str, str, str], list[tuple[str, Explanation]]] = {}
    for c in findings.comparisons:
        if c.verdict not in (Verdict.FASTER, Verdict.SLOWER):
            continue
        for reason in why(
            names[c.a],
            names[c.b],
            explained.singles.get((c.task, c.a), ()),
            explained.singles.get((c.task, c.b), ()),
            explained.expected.get((c.task, c.a, c.b)),
            c.percentiles[0].difference_s,
        ):
            groups.setdefault(reason.subject, []).append((c.task, reason))
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [(tuple(task for task, _ in group), tuple(reason for _, reason in group)) for group in ordered]


def reasons(findings: Findings, shared: Sequence[SharedReason]) -> tuple[str, ...]:
    """A sentence for each shared reason, with its tasks."""
    total = len(findings.tasks)
    sentences = []
    for tasks, group in shared:
        where = f" on all {total} tasks" if len(tasks) == total else f" on {len(tasks)} of {total} tasks"
        where = "" if total == 1 else f", on {tasks[0]}" if len(tasks) == 1 else f",{where}"
        sentences.append(f"{sentence(group)}{where}.")
    return tuple(sentences)


def warnings(findings: Findings, explained: Explained) -> Iterator[str]:
    """Causes that could not be determined, and verdicts that depend on marked rounds."""
    if explained.broken:
        yield (
            f"{explained.broken} observed requests are left out of the I/O per query: their record is "
            "broken, or the device's counters began anew"
        )
    yield from load_warnings(explained.profiles)
    yield from changes(findings, explained.without_marked, explained.marked)


def tables(findings: Findings, explained: Explained) -> tuple[Table | None, ...]:
    pools = {key: pooled(by_round.values()) for key, by_round in explained.own.items()}
    return (
        _reads(explained, pools),
        _processors(explained, pools),
        _expectations(findings, explained),
        marks_table(findings, explained.without_marked, explained.marked, explained.arms),
        load_table(explained),
    )


def _reads(explained: Explained, pools: Pools) -> Table:
    titles = ["reads", "await", "depth"]
    if any(profile.longest_wait[1] > MATTERS for profile in pools.values()):
        titles.append("held back")
    notes = [
        "From the device's counters right before and right after each observed request. Await is the mean "
        "time of a read at the device, limiters included."
    ]
    if explained.profiles.keys() > pools.keys():
        notes.append("Not of searches beside writes, whose I/O the counters have, too.")
    if not explained.marked:
        notes.append("No round had an event (limiter, garbage collection, fault, residency) on one arm only.")
    return Table(
        key="io",
        title="What a query reads",
        item_title="task",
        columns=arm_columns(explained.arms, titles),
        rows=arm_rows(pools, explained.arms, lambda profile: _read_cells(profile)[: len(titles)]),
        notes=tuple(notes),
    )


def _read_cells(profile: Profile) -> tuple[Cell, ...]:
    depth = profile.depth
    limit, share = profile.longest_wait
    return (
        _reads_cell(profile),
        _await_cell(profile),
        quantity("queue_depth", depth, f"{depth or 0.0:.2f}"),
        Cell(text=f"{share:.0%} {limit}", facts={}) if share > MATTERS else NOTHING,
    )


def _processors(explained: Explained, pools: Pools) -> Table | None:
    if all(profile.processor_s is None for profile in pools.values()):
        return None
    # else a window is shorter than its requests together, so their waits cannot be derived from it
    one_by_one = {
        key for key, windows in explained.singles.items() if all(one.requests == 1 for one in windows)
    }
    return Table(
        key="processors",
        title="Where a query's time goes",
        item_title="task",
        columns=arm_columns(explained.arms, ("processors", "the rest")),
        rows=arm_rows(
            {key: (profile, key in one_by_one) for key, profile in pools.items()},
            explained.arms,
            lambda observed: _processor_cells(*observed),
        ),
        notes=(
            "Means of observed requests. Processors: what all threads of the node used meanwhile, added up, "
            "so it may be more than the request took; the rest is waiting, for the volume above all (unknown "
            "where requests of several clients overlapped).",
        ),
    )


def _processor_cells(profile: Profile, one_by_one: bool) -> tuple[Cell, Cell]:
    used_s = profile.processor_s
    if used_s is None:
        return NOTHING, NOTHING
    rest_s = max(0.0, profile.seconds / profile.requests - used_s) if one_by_one else None
    return milliseconds("processor_s_per_query", used_s), milliseconds("rest_s_per_query", rest_s)


def _reads_cell(profile: Profile) -> Cell:
    reads, size = profile.reads, profile.io_bytes
    if reads is None:
        return NOTHING
    facts: dict[str, Value] = {
        "observed_requests": profile.requests,
        "reads_per_query": reads,
        "read_bytes_per_query": profile.read_bytes,
        "read_bytes_mean": size,
        "writes_per_query": profile.per_request("device.writes"),
        "written_bytes_per_query": profile.per_request("device.written_bytes"),
    }
    return Cell(text=f"{reads:.1f}" + (f" x {size / KIB:.0f} KiB" if size else ""), facts=facts)


def _await_cell(profile: Profile) -> Cell:
    """A read's time, with the limiters' part in it."""
    await_s, spent = profile.await_s, profile.credits_spent
    facts: dict[str, Value] = {"read_await_s": await_s}
    for limit, waited in profile.waited_s.items():
        facts[f"{_word(limit)}_waited_s_per_query"] = waited / profile.requests
    for limit, exceeded in profile.exceeded_s.items():
        facts[f"{_word(limit)}_exceeded_s_per_query"] = exceeded / profile.requests
    facts |= {f"{_word(limit)}_share": share for limit, share in profile.held_back.items()}
    if spent is not None:
        facts["credits_spent_per_query"] = spent / profile.requests
    return Cell(text="-" if await_s is None else format_seconds(await_s), facts=facts)


def _word(limit: str) -> str:
    return limit.replace(".", "_").replace(" ", "_")


def _expectations(findings: Findings, explained: Explained) -> Table | None:
    if not explained.expected:
        return None
    pairs = findings.pairs
    of = {(c.task, c.a, c.b): c for c in findings.comparisons}
    columns = []
    for a, b in pairs:
        subject, before = f"{b} against {a}", "" if len(pairs) == 1 else f"{b} against {a}, "
        for title in ("a read alone in fio", "expected", "measured"):
            columns.append(Column(title=f"{before}{title}", subject=subject))
    rows = []
    for task in findings.tasks:
        cells = [
            cell
            for a, b in pairs
            for cell in _expected_cells(explained.expected.get((task, a, b)), of.get((task, a, b)))
        ]
        rows.append(Row(item=task, cells=tuple(cells)))
    return Table(
        key="expected",
        title="Difference predicted from fio",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            "Expected: reads per query times what a read of that size takes alone in fio (a line through the "
            "plan's random reads at queue depth 1, means), divided by the reads in flight.",
            "Its interval has the spread of reads over rounds and the difference between fio's runs at start "
            f"and end [{format_share(findings.confidence)}, less sure with two runs]; none where fio ran "
            "once. Measured: the 50th percentile.",
        ),
    )


def _expected_cells(expected: FioPrediction | None, comparison: Comparison | None) -> tuple[Cell, ...]:
    measured = NOTHING
    if comparison is not None:
        measured = time_difference_cell("measured", comparison.percentiles[0].difference_s)
    if expected is None:
        return NOTHING, NOTHING, measured
    alone = Cell(
        text=f"{expected.per_read_s * 1e3:+z.2f} ms x {expected.reads:.1f}",
        facts={"per_read_s": expected.per_read_s, "overlap": expected.overlap},
    )
    return alone, time_difference_cell("expected", expected.difference_s), measured


def load_warnings(profiles: Profiles) -> Iterator[str]:
    """Warns if the machine was not the session's own while requests were measured."""
    every = [profile for by_round in profiles.values() for profile in by_round.values()]
    stolen = pooled(every).stolen if every else None
    if stolen is not None and stolen > STEAL_TO_WARN_OF:
        yield (
            f"the host kept {stolen:.0%} of the processor time that this machine asked for (steal): service "
            "times hold waits that no volume caused, and emulated volumes do not keep theirs; measure on a "
            "machine whose processors are its own"
        )


def load_table(explained: Explained) -> Table:
    """Device activity while an arm's requests ran, over all tasks."""
    late = {arm: own.late for arm, own in arm_profiles(explained.timed, explained.arms)}
    rows = [
        (arm, _cells(own, late.get(arm))) for arm, own in arm_profiles(explained.profiles, explained.arms)
    ]
    known = {title for _, cells in rows for title, cell in cells.items() if cell != NOTHING}
    every = dict.fromkeys(title for _, cells in rows for title in cells)
    titles = [title for title in every if title in known or title not in _WHERE_KNOWN]
    return Table(
        key="load",
        title="Device during measured requests",
        item_title="arm",
        columns=titled(*titles),
        rows=tuple(Row(item=arm, cells=tuple(cells[title] for title in titles)) for arm, cells in rows),
        notes=(
            "Waits add up all I/Os that the limiters held. Credits (operations, of HDD types bytes) are net.",
        ),
    )


def _cells(profile: Profile, late: float | None) -> dict[str, Cell]:
    """An arm's cells by their columns' titles."""
    per_s = {
        name: profile.grown[f"device.{name}"] / profile.seconds
        for name in ("reads", "read_bytes")
        if f"device.{name}" in profile.grown
    }
    waited = sum(profile.waited_s.values()) if profile.waited_s else None
    reads, size = per_s.get("reads"), per_s.get("read_bytes")
    spent, stolen = profile.credits_spent, profile.stolen
    return {
        "queue depth": quantity("queue_depth_mean", profile.depth, f"{profile.depth or 0.0:.2f}"),
        "read await": quantity("read_await_s_mean", profile.await_s, format_seconds(profile.await_s or 0.0)),
        "reads/s": quantity("reads_per_s_mean", reads, f"{reads or 0.0:.0f}"),
        "read": quantity("read_bytes_per_s_mean", size, f"{(size or 0.0) / MIB:.1f} MiB/s"),
        "waited in limiters": quantity("waited_s", waited, format_seconds(waited or 0.0)),
        "credits spent": quantity("credits_spent", spent, f"{round(spent or 0.0):,}"),
        "processors stolen": quantity("stolen_share", stolen, f"{stolen or 0.0:.1%}"),
        "later than its model": quantity("late_share", late, f"{late or 0.0:+z.0%}"),
    }


def without_marked(findings: Findings, marked: Iterable[Block]) -> Findings:
    """The findings without each task's marked rounds."""
    rounds = _rounds(marked)
    return findings.without(rounds) if rounds and not findings.is_refused else findings


def _rounds(marked: Iterable[Block]) -> dict[str, set[int]]:
    """Marked rounds by task."""
    rounds: dict[str, set[int]] = {}
    for _, task, round_ in marked:
        rounds.setdefault(task, set()).add(round_)
    return rounds


def changes(findings: Findings, without: Findings, marked: Iterable[Block]) -> Iterator[str]:
    """A sentence per verdict that changes without the marked rounds of its task, or one if none does."""
    rounds = _rounds(marked)
    compared = [c for c in findings.comparisons if c.task in rounds and c.p_different is not None]
    if not compared:
        return
    verdict_of = {(c.task, c.a, c.b): c.verdict for c in without.comparisons}
    changed = [
        f"{c.task}: without its {number_of(len(rounds[c.task]), 'marked round')} "
        f"{c.b} is {now} against {c.a}, not {c.verdict}"
        for c in compared
        if (now := verdict_of.get((c.task, c.a, c.b), "without a verdict")) != c.verdict
    ]
    yield from changed or ["without the marked rounds the verdict of every task is the same"]
    # if a task has no round left, "all tasks" would no longer mean all
    now_of = {(o.a, o.b, o.tasks): o.verdict for o in without.overall}
    for o in findings.overall:
        if (now := now_of.get((o.a, o.b, o.tasks), o.verdict)) != o.verdict:
            yield (
                f"all tasks together: without the rounds that are marked on any of them {o.b} is {now} "
                f"against {o.a}, not {o.verdict}"
            )


def marks_table(findings: Findings, without: Findings, marked: Marked, arms: Sequence[str]) -> Table:
    """Each task with marked rounds: events by arm, and the verdict with and without these rounds."""
    columns = list(titled(*arms, left=True))
    for a, b in findings.pairs:
        title = f"{b} is" if len(findings.pairs) == 1 else f"{b} against {a} is"
        columns += [Column(title=t, subject=f"{b} against {a}", left=True) for t in (title, "without them")]
    rows = []
    for task in dict.fromkeys(task for _, task, _ in marked):
        cells = [_mark(findings, marked, arm, task) for arm in arms]
        for a, b in findings.pairs:
            compared = _verdict("verdict", findings, task, a, b)
            left = _verdict("verdict_without_marked", without, task, a, b)
            cells += [compared or NOTHING, left or (_NO_ROUND if compared else NOTHING)]
        rows.append(Row(item=task, cells=tuple(cells)))
    without_them = (
        ". The last column is the verdict without the marked rounds of each task, and how many are left then"
        if findings.pairs
        else ""
    )
    return Table(
        key="marks",
        title="Marked rounds: an event on one arm only",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(f"They count like all others{without_them}; each round's events stand in events.jsonl.",),
    )


_NO_ROUND = Cell(text="no round is left", facts={})


def _verdict(name: str, findings: Findings, task: str, a: str, b: str) -> Cell | None:
    for c in findings.comparisons:
        if (c.task, c.a, c.b) == (task, a, b):
            word = findings.word(c)
            left = number_of(c.rounds, "round")
            facts: dict[str, Value] = {name: word, f"{name}_rounds": c.rounds}
            return Cell(text=f"{word} ({left})", facts=facts)
    return None


def _mark(findings: Findings, marked: Marked, arm: str, task: str) -> Cell:
    """A task's events on an arm: each kind once, with its rounds."""
    shares_of: dict[str, dict[int, float]] = {}
    for (of, about, round_), own in marked.items():
        for cause in own if (of, about) == (arm, task) else ():
            shares_of.setdefault(cause.what, {})[round_] = cause.share or 0.0
    if not shares_of:
        return NOTHING
    texts = []
    for what, shares in shares_of.items():
        most = max(shares.values())
        share = f" (up to {most:.0%})" if most else ""
        rounds = _recorded(findings, arm, shares)
        texts.append(f"{what} in round{'' if len(shares) == 1 else 's'} {rounds}{share}")
    every = _recorded(findings, arm, {round_ for shares in shares_of.values() for round_ in shares})
    facts: dict[str, Value] = {"marked_rounds": every, "causes": ", ".join(shares_of)}
    return Cell(text="; ".join(texts), facts=facts)


def _recorded(findings: Findings, arm: str, rounds: Collection[int]) -> str:
    """Rounds as recorded; for a type, those of each of its volumes."""
    if findings.volumes == 1:
        return _ranges(rounds)
    of_volumes = [[part.index(round_) + 1 for round_ in rounds if round_ in part] for part in findings.starts]
    return ", ".join(f"{_ranges(own)} of {arm}-{at}" for at, own in enumerate(of_volumes, start=1) if own)


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges: ``1-3, 5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
