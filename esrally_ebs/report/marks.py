"""The rounds that something befell on one arm only, and how verdicts change without them.

They stay in; the report says what hangs on them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from esrally_ebs.causes import Block, Cause
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, Value
from esrally_ebs.report.search import Findings

Marked = Mapping[Block, tuple[Cause, ...]]


def without_marked(findings: Findings, marked: Iterable[Block], arms: Sequence[str]) -> Findings:
    """The verdicts as they were without each task's marked rounds."""
    rounds = _rounds(marked)
    return findings.without(rounds, arms) if rounds and not findings.is_refused else findings


def _rounds(marked: Iterable[Block]) -> dict[str, set[int]]:
    """By task."""
    rounds: dict[str, set[int]] = {}
    for _, task, round_ in marked:
        rounds.setdefault(task, set()).add(round_)
    return rounds


def changes(findings: Findings, without: Findings, marked: Iterable[Block]) -> Iterator[str]:
    """A sentence per verdict that is another one without the marked rounds of its task, or one for all."""
    rounds = _rounds(marked)
    compared = [c for c in findings.comparisons if c.task in rounds and c.p_different is not None]
    if not compared:
        return
    verdict_of = {(c.task, c.a, c.b): c.verdict for c in without.comparisons}
    changed = [
        f"{c.task}: without its {len(rounds[c.task])} marked rounds "
        f"{c.b} is {now} against {c.a}, not {c.verdict}"
        for c in compared
        if (now := verdict_of.get((c.task, c.a, c.b), "without a verdict")) != c.verdict
    ]
    yield from changed or ["without the marked rounds every verdict is the same"]


def marks_table(findings: Findings, without: Findings, marked: Marked, arms: Sequence[str]) -> Table | None:
    """Each task with marked rounds: what befell which arm, and the verdict with and without them."""
    if not marked:
        return None
    columns = [Column(title=arm, subject=arm, left=True) for arm in arms]
    for a, b in findings.pairs:
        title = f"{b} is" if len(findings.pairs) == 1 else f"{b} against {a} is"
        columns += [Column(title=t, subject=f"{b} against {a}", left=True) for t in (title, "without them")]
    rows = []
    for task in dict.fromkeys(task for _, task, _ in marked):
        cells = [_mark(marked, arm, task) for arm in arms]
        for a, b in findings.pairs:
            cells.append(_verdict("verdict", findings, task, a, b))
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


def _verdict(name: str, findings: Findings, task: str, a: str, b: str) -> Cell:
    for c in findings.comparisons:
        if (c.task, c.a, c.b) == (task, a, b):
            word = findings.word(c)
            left = f"{c.rounds} round{'' if c.rounds == 1 else 's'}"
            facts: dict[str, Value] = {name: word, f"{name}_rounds": c.rounds}
            return Cell(text=f"{word} ({left})", facts=facts)
    return Cell(text="no round is left", facts={})


def _mark(marked: Marked, arm: str, task: str) -> Cell:
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
