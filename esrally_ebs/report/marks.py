"""The rounds that something befell on one arm only, and what the verdict is without them."""

from collections.abc import Iterable, Mapping, Sequence

from esrally_ebs.causes import Block, Cause
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value
from esrally_ebs.report.search import Findings
from esrally_ebs.stats import Comparison, compare


def marks_table(
    findings: Findings, marked: Mapping[Block, tuple[Cause, ...]], arms: Sequence[str]
) -> Table | None:
    """Each task with marked rounds: what befell which arm, and the verdict with and without them."""
    if not marked:
        return None
    without = _unmarked(findings, marked, arms)
    pairs = list(dict.fromkeys((c.a, c.b) for c in findings.comparisons))
    columns = [Column(title=arm, subject=arm, left=True) for arm in arms]
    for a, b in pairs:
        title = f"{b} is" if len(pairs) == 1 else f"{b} against {a} is"
        columns += [Column(title=t, subject=f"{b} against {a}", left=True) for t in (title, "without them")]
    rows = []
    for task in dict.fromkeys(task for _, task, _ in marked):
        cells = [_mark(marked, arm, task) for arm in arms]
        for a, b in pairs:
            cells.append(_verdict("verdict", findings.comparisons, task, a, b))
            cells.append(_verdict("verdict_without_marked", without, task, a, b))
        rows.append(Row(item=task, cells=tuple(cells)))
    return Table(
        key="marks",
        title="Marked rounds: an event on one arm only",
        item_title="task",
        columns=tuple(columns),
        rows=tuple(rows),
        notes=(
            "They count like all others. The last column is the verdict without the marked rounds of each "
            "task, and how many are left then; each round's events stand in events.jsonl.",
        ),
    )


def _verdict(name: str, comparisons: Sequence[Comparison], task: str, a: str, b: str) -> Cell:
    for c in comparisons:
        if (c.task, c.a, c.b) == (task, a, b):
            left = f"{c.rounds} round{'' if c.rounds == 1 else 's'}"
            facts: dict[str, Value] = {name: c.verdict.value, f"{name}_rounds": c.rounds}
            return Cell(text=f"{c.verdict.value} ({left})", facts=facts)
    return Cell(text="no round is left", facts={})


def _mark(marked: Mapping[Block, tuple[Cause, ...]], arm: str, task: str) -> Cell:
    """What befell the rounds of a task on an arm: each kind of event once, with its rounds."""
    found: dict[str, dict[int, float]] = {}
    for (of, about, round_), own in marked.items():
        for cause in own if (of, about) == (arm, task) else ():
            found.setdefault(cause.what, {})[round_] = cause.share or 0.0
    if not found:
        return NOTHING
    texts = []
    for what, shares in found.items():
        most = max(shares.values())
        share = f" (up to {most:.0%})" if most else ""
        texts.append(f"{what} in round{'' if len(shares) == 1 else 's'} {_ranges(shares)}{share}")
    rounds = sorted({round_ for shares in found.values() for round_ in shares})
    facts: dict[str, Value] = {"marked_rounds": _ranges(rounds), "causes": ", ".join(found)}
    return Cell(text="; ".join(texts), facts=facts)


def _ranges(numbers: Iterable[int]) -> str:
    """``1-3, 5``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _unmarked(
    findings: Findings, marked: Mapping[Block, tuple[Cause, ...]], arms: Sequence[str]
) -> tuple[Comparison, ...]:
    """The comparisons as they were without each task's marked rounds."""
    out = {(task, round_) for _, task, round_ in marked}
    kept = {
        (task, arm): {r: times for r, times in by_round.items() if (task, r) not in out}
        for (task, arm), by_round in findings.blocks.items()
    }
    blocks = {key: by_round for key, by_round in kept.items() if by_round}
    return compare(blocks, arms, margin=findings.margin, confidence=findings.confidence)
