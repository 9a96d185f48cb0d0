"""Why arms differ, as tables and sentences: what queries read, what fio lets expect of it, marked rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from esrally_ebs import causes
from esrally_ebs.causes import Block, Cause, Expected, Measured, Profile, Profiles
from esrally_ebs.report.cells import arm_columns, arm_rows
from esrally_ebs.report.load import load_table, load_warnings
from esrally_ebs.report.marks import changes, marks_table, without_marked
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value, quantity
from esrally_ebs.report.search import Findings
from esrally_ebs.report.verdict import arm_names
from esrally_ebs.stats import Comparison, Verdict
from esrally_ebs.store.session import Session
from esrally_ebs.units import KIB, format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """All that the record says of causes."""

    arms: tuple[str, ...]
    profiles: Profiles
    singles: Mapping[tuple[str, str], Sequence[Profile]]  # by task and arm: one after the other
    broken: int  # observations that are no use
    expected: Mapping[tuple[str, str, str], Expected]  # by task, a, b
    marked: Mapping[Block, tuple[Cause, ...]]
    without_marked: Findings


def explain(session: Session, findings: Findings) -> Explained:
    """Profiles, expectations and marks of a session."""
    windows, broken = causes.windows(session.events)
    profiles = causes.profiles(windows)
    fio = causes.fio_reads(session)
    expected = {}
    for c in findings.comparisons:
        found = causes.expected(
            profiles.get((c.task, c.a), {}),
            profiles.get((c.task, c.b), {}),
            fio.get(c.a, {}),
            fio.get(c.b, {}),
            confidence=findings.confidence,
        )
        if found is not None:
            expected[c.task, c.a, c.b] = found
    arms = tuple(arm.spec.name for arm in session.arms)
    marked = causes.marked_blocks(session)
    return Explained(
        arms=arms,
        profiles=profiles,
        singles=causes.singles(windows),
        broken=broken,
        expected=expected,
        marked=marked,
        without_marked=without_marked(findings, marked, arms),
    )


def reasons(session: Session, findings: Findings, explained: Explained) -> tuple[str, ...]:
    """One sentence for each task and pair of arms whose difference is proven and explained."""
    names = arm_names(session)
    sentences = []
    for c in findings.comparisons:
        difference = c.percentiles[0].difference_s
        measured = Measured(
            value=difference.value,
            low=difference.low,
            high=difference.high,
            is_proven=c.verdict in (Verdict.FASTER, Verdict.SLOWER),
        )
        said = causes.why(
            names[c.a],
            names[c.b],
            explained.singles.get((c.task, c.a), ()),
            explained.singles.get((c.task, c.b), ()),
            explained.expected.get((c.task, c.a, c.b)),
            measured,
        )
        if said:
            sentences.append(f"{c.task}: {said}.")
    return tuple(sentences)


def warnings(findings: Findings, explained: Explained) -> Iterator[str]:
    """What of the causes could not be found out, and which verdicts hang on marked rounds."""
    if explained.broken:
        yield (
            f"{explained.broken} observed requests are left out of the I/O per query: their record is "
            "broken, or the device's counters began anew"
        )
    yield from load_warnings(explained.profiles, explained.arms)
    yield from changes(findings, explained.without_marked, explained.marked)


def tables(findings: Findings, explained: Explained) -> list[Table]:
    """All tables of causes for which the session has data."""
    made = (
        _reads(explained),
        _expectations(findings, explained),
        marks_table(findings, explained.without_marked, explained.marked, explained.arms),
        load_table(explained.profiles, explained.arms),
    )
    return [table for table in made if table is not None]


def _reads(explained: Explained) -> Table | None:
    if not explained.profiles:
        return None
    pools = {key: causes.pooled(by_round.values()) for key, by_round in explained.profiles.items()}
    titles = ["reads", "await", "depth"]
    if any(_longest_wait(profile)[1] > causes.MATTERS for profile in pools.values()):
        titles.append("held back")
    notes = [
        "From the device's counters right before and right after each observed request. Await is the mean "
        "time of a read at the device, limiters included."
    ]
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


def _read_cells(profile: Profile | None) -> tuple[Cell, ...]:
    if profile is None:
        return NOTHING, NOTHING, NOTHING, NOTHING
    depth = profile.depth
    limit, share = _longest_wait(profile)
    return (
        _reads_cell(profile),
        _await_cell(profile),
        quantity("queue_depth", depth, f"{depth or 0.0:.2f}"),
        Cell(text=f"{share:.0%} {limit}", facts={}) if share > causes.MATTERS else NOTHING,
    )


def _longest_wait(profile: Profile) -> tuple[str, float]:
    return max(profile.held_back.items(), key=lambda item: item[1], default=("", 0.0))


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
    """The time of a read, with all that is known of the limiters' part in it."""
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
        title="Difference that fio lets expect",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            "Expected: reads per query times what a read of that size takes alone in fio (a line through the "
            "plan's random reads at queue depth 1, means), divided by the reads in flight.",
            "Its interval has the spread of reads over rounds and the difference between fio's runs at start "
            f"and end [{findings.confidence:.0%}]; none where fio ran once. Measured: the 50th percentile.",
        ),
    )


def _expected_cells(expected: Expected | None, comparison: Comparison | None) -> tuple[Cell, ...]:
    measured = NOTHING
    if comparison is not None:
        found = comparison.percentiles[0].difference_s
        measured = _interval("measured", found.value, found.low, found.high)
    if expected is None:
        return NOTHING, NOTHING, measured
    alone = Cell(
        text=f"{expected.per_read_s * 1e3:+.2f} ms x {expected.reads:.1f}",
        facts={"per_read_s": expected.per_read_s, "overlap": expected.overlap},
    )
    return alone, _interval("expected", expected.value, expected.low, expected.high), measured


def _interval(name: str, value: float, low: float | None, high: float | None) -> Cell:
    text = f"{value * 1e3:+.2f} ms"
    if low is not None and high is not None:
        text += f" [{low * 1e3:+.2f}, {high * 1e3:+.2f}]"
    return Cell(text=text, facts={f"{name}_s": value, f"{name}_low_s": low, f"{name}_high_s": high})
