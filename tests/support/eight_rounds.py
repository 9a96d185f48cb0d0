"""Sessions of eight rounds whose arms differ by factors that a test says, and their reports."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from golden_session import START, arm, make, sample

from esrally_ebs import report
from esrally_ebs.model import Sample, State, Volume
from esrally_ebs.report import Report
from esrally_ebs.store import SessionFolder, load_session

ROUNDS = range(1, 9)


def rows(
    scales: Mapping[str, float], tasks: tuple[str, ...] = ("q", "r"), noise: float = 0.001
) -> list[Sample]:
    """Eight rounds of five requests a task, 30 ms times each arm's scale."""
    return [
        sample(
            name, round_, task, START + round_, 0.03 * scale * (1 + noise * ((place + 3 * round_) % 7 - 3))
        )
        for place, (name, scale) in enumerate(scales.items())
        for task in tasks
        for round_ in ROUNDS
        for _ in range(5)
    ]


def built(
    home: Path,
    samples: list[Sample],
    arms: list[Volume] | None = None,
    *,
    state: State = State.COMPLETE,
    **plan: Any,  # noqa: ANN401 - tables of a plan
) -> Report:
    """The report of a session that ended so."""
    path = make(home, samples, arms=arms, **plan)
    if state is not State.RUNNING:
        SessionFolder(path).finish(state, ended_at=START + 600)
    return report.build(load_session(path))


def named(name: str, **spec: Any) -> Volume:  # noqa: ANN401
    """A gp3 of another name."""
    return replace(arm("gp3"), spec=replace(arm("gp3").spec, name=name, **spec))


THREE = [named("gp2"), named("gp3"), named("big")]
