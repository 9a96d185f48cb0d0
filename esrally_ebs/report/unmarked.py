"""How verdicts change when marked rounds are left out. They stay in; the report says what hangs on them."""

from collections.abc import Iterable, Iterator, Sequence

from esrally_ebs.report.search import Findings
from esrally_ebs.stats import judge

Block = tuple[str, str, int]  # arm, task, round


def changes(findings: Findings, marked: Iterable[Block], arms: Sequence[str]) -> Iterator[str]:
    """A sentence per verdict that is another one without the marked rounds of its task, or one for all."""
    rounds: dict[str, set[int]] = {}
    for _, task, round_ in marked:
        rounds.setdefault(task, set()).add(round_)
    compared = [c for c in findings.comparisons if c.task in rounds and c.p_different is not None]
    if not compared:
        return
    blocks = {
        (task, arm): {r: times for r, times in by_round.items() if r not in rounds.get(task, ())}
        for (task, arm), by_round in findings.blocks.items()
    }
    left = judge(
        {key: by_round for key, by_round in blocks.items() if by_round},
        arms,
        margin=findings.margin,
        confidence=findings.confidence,
        intervals=False,
    )
    verdict_of = {(c.task, c.a, c.b): c.verdict for c in left.comparisons}
    changed = [
        f"{c.task}: without its {len(rounds[c.task])} marked rounds "
        f"{c.b} is {now} against {c.a}, not {c.verdict}"
        for c in compared
        if (now := verdict_of.get((c.task, c.a, c.b), "without a verdict")) != c.verdict
    ]
    yield from changed or ["without the marked rounds every verdict is the same"]
