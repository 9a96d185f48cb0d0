"""Tables of searches beside writes (with and without a merge or refresh meanwhile), and the writes' rates."""

import math
from collections.abc import Iterator, Mapping, Sequence

from esrally_ebs.analysis.beside import Apart, RateComparison, Writes, searches_apart
from esrally_ebs.analysis.compare import Verdict
from esrally_ebs.analysis.findings import Findings
from esrally_ebs.analysis.marks import MATTERS
from esrally_ebs.report.bottleneck import MIN_WAITING, NAMES, limit_name
from esrally_ebs.report.cells import (
    arm_columns,
    arm_names,
    arm_rows,
    pair_columns,
    percent_change,
    ratio_cell,
    verdict_facts,
)
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, milliseconds, quantity
from esrally_ebs.report.search import observed
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB, format_share, number_of

Written = Mapping[tuple[str, str], Writes]  # by bulk task and arm
_RATES = (
    "Documents per second while searches were measured; Student's t is of {}. Verdicts hold for all of the "
    "table together at {} (Holm); an interval is for its task alone."
)
_APART = (
    "By the node's counters of merges and refreshes, read once a second: a request had one beside it if "
    "there was one in a second from when it was due to its answer. Of fewer than 100, p99 lies between the "
    "two slowest. No verdict: which those are, the volume decides too."
)


def tables(session: Session, written: Written, arms: Sequence[str]) -> Iterator[Table]:
    """Tables of searches and of writes; none if nothing was ``written`` beside searches."""
    if not written:
        return
    apart = searches_apart(session)
    if apart:
        yield Table(
            key="apart",
            title="Searches apart by what ran beside them",
            item_title="task",
            columns=(
                Column(title="beside", subject="", left=True),
                *arm_columns(arms, ("requests", "p50", "p99")),
            ),
            rows=tuple(
                Row(
                    item=task,
                    cells=(
                        Cell(text=what, facts={"beside": what}),
                        *(cell for arm in arms for cell in _apart_cells(by_arm.get(arm))),
                    ),
                )
                for (task, what), by_arm in apart.items()
            ),
            notes=(_APART,),
        )
    yield Table(
        key="writes",
        title="Writes beside searches",
        item_title="task",
        columns=arm_columns(arms, ("p99", "written", "held back")),
        rows=arm_rows(written, arms, _writes_cells),
        notes=(
            "Bulk requests of the rounds, from when they were due. Written is what reached the device while "
            f"searches were measured, as far as bulk requests were observed.{_restores(session)}",
        ),
    )


def rates_table(
    written: Written, rates: Sequence[RateComparison], findings: Findings, arms: Sequence[str]
) -> Table:
    """Documents per second of each arm, and compared with the first; no row where none were added."""
    pairs = list(dict.fromkeys((each.a, each.b) for each in rates))
    columns = [Column(title=f"{arm} documents/s", subject=arm) for arm in arms]
    columns += pair_columns(pairs, findings.confidence)
    by_pair = {(each.task, each.a, each.b): each for each in rates}
    rows = [
        Row(
            item=task,
            cells=(
                *(_rate_cell(written.get((task, arm))) for arm in arms),
                *(cell for pair in pairs for cell in _compared_cells(by_pair.get((task, *pair)), findings)),
            ),
        )
        for task in dict.fromkeys(task for task, _ in written)
    ]
    return Table(
        key="indexing",
        title="Indexing beside searches",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(_RATES.format(observed(findings), format_share(findings.confidence)),)
        if rates and not findings.is_refused
        else (),
    )


def details(
    session: Session, written: Written, rates: Sequence[RateComparison], findings: Findings
) -> Iterator[str]:
    """A sentence per bulk task and pair of arms, with what held the slower one back; none where refused."""
    names = arm_names(session)
    for each in () if findings.is_refused else rates:
        a, b = names[each.a], names[each.b]
        if not math.isfinite(each.ratio.value):
            what = f"{b} is not compared with {a} ({each.task})"
            yield f"Indexing: {what}: in a round one of them added nothing."
            continue
        change = f"{percent_change(each.ratio)} documents/s ({each.task})"
        if each.verdict is Verdict.INCONCLUSIVE:
            yield f"Indexing: inconclusive whether {b} differs from {a}: {change}."
        elif each.verdict is Verdict.EQUIVALENT:
            yield f"Indexing: {b} is as fast as {a} within {findings.margin * 100:.3g} %: {change}."
        else:
            slower = each.a if each.verdict is Verdict.FASTER else each.b
            limit, share = _held_back(written[each.task, slower])
            cause = f"; {NAMES.get(limit, limit)} held {names[slower]} back" if share >= MIN_WAITING else ""
            yield f"Indexing: {b} is {each.verdict} than {a}: {change}{cause}."


def next_step(rates: Sequence[RateComparison]) -> str:
    """What to do if searches had unequal writes beside them; else empty."""
    unequal = [each.task for each in rates if each.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    if not unequal:
        return ""
    return (
        f"to compare searches beside equal writes, give {', '.join(dict.fromkeys(unequal))} a "
        "target-throughput that all arms hold; what would index faster is said above."
    )


def warnings(written: Written, rates: Sequence[RateComparison]) -> Iterator[str]:
    """Problems of the writes, and what they leave unknown about the searches."""
    for (task, arm), of in written.items():
        if of.failed:
            yield f"{task}: {number_of(of.failed, 'bulk request')} failed on {arm}, so less was added there"
    for each in rates:
        if each.verdict in (Verdict.FASTER, Verdict.SLOWER):
            more = each.b if each.verdict is Verdict.FASTER else each.a
            yield f"{each.task}: more documents were added on {more}, which slows the searches beside them"
    if written:
        yield "hits change while documents are added, so those searches were not checked to have the same"


def _rate_cell(of: Writes | None) -> Cell:
    if of is None:
        return NOTHING
    return Cell(text=f"{of.documents_per_s:,.0f}", facts={"documents_per_s": of.documents_per_s})


def _compared_cells(of: RateComparison | None, findings: Findings) -> tuple[Cell, Cell]:
    if of is None or not math.isfinite(of.ratio.value):
        return NOTHING, NOTHING
    word = "not comparable" if findings.is_refused else of.verdict.value
    return ratio_cell(of.ratio), Cell(text=word, facts=verdict_facts(word, of))


def _held_back(of: Writes) -> tuple[str, float]:
    """The limit with the largest share of the I/Os' time waiting, and the share."""
    limit, share = of.profile.longest_wait if of.profile else ("", 0.0)
    return limit_name(limit), share


def _apart_cells(apart: Apart | None) -> tuple[Cell, ...]:
    if apart is None:
        return NOTHING, NOTHING, NOTHING
    return (
        Cell(text=f"{apart.requests:,}", facts={"requests": apart.requests}),
        milliseconds("p50_s", apart.p50_s),
        milliseconds("p99_s", apart.p99_s),
    )


def _writes_cells(of: Writes) -> tuple[Cell, ...]:
    profile = of.profile
    written = profile.grown.get("device.written_bytes") if profile and profile.seconds else None
    rate = written / profile.seconds if profile and written is not None else None
    limit, share = _held_back(of)
    return (
        Cell(text=f"{of.p99_s * 1e3:.1f} ms", facts={"p99_s": of.p99_s, "p50_s": of.p50_s}),
        quantity("written_bytes_per_s", rate, f"{(rate or 0.0) / MIB:,.1f} MiB/s"),
        Cell(text=f"{share:.0%} {NAMES.get(limit, limit)}", facts={"limit": limit, "held_back": share})
        if share > MATTERS
        else NOTHING,
    )


def _restores(session: Session) -> str:
    """How arms were brought back to the same bytes before each block."""
    seconds = [event.number("seconds") or 0.0 for event in session.events if event.kind == "brought-back"]
    if not seconds:
        return ""
    return (
        f" Before each block its arm got the dataset's files back, none of them in the page cache: "
        f"{number_of(len(seconds), 'time')}, {min(seconds):.1f} to {max(seconds):.1f} s each."
    )
