"""What a session says once everything is measured: stage times, whether arms may be compared, the reports."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esrally_ebs import report
from esrally_ebs.analysis.comparable import check_comparable
from esrally_ebs.analysis.marks import marked_blocks
from esrally_ebs.model import Phase, State
from esrally_ebs.store import Session, SessionFolder, load_session


def conclude(folder: SessionFolder) -> tuple[str, str]:
    """Check, finish and report; returns the report as text, and why arms cannot be compared, if so."""
    folder.compact()
    recorded = load_session(folder.path)
    for name, seconds in spans(recorded.samples):
        folder.note("stage", name=name, seconds=seconds)
    _record_marks(folder, recorded)
    checks = check_comparable(recorded)
    for check in checks:
        folder.add_check(check)
    broken = "; ".join(f"{check.name}: {check.text}" for check in checks if check.forbids)
    folder.finish(State.FAILED if broken else State.COMPLETE, reason=broken)
    built = report.build(load_session(folder.path))
    texts = {form: render(built) for form, render in report.RENDERERS.items()}
    for form, text in texts.items():
        folder.write_file(f"report.{report.SUFFIX[form]}", text)
    return texts["text"], broken


def spans(samples: pa.Table) -> list[tuple[str, float]]:
    """Seconds from first to last request of indexing, warm-up and rounds, as far as they took place.

    Each time that they did: nodes that are started anew are warmed up between rounds.
    """
    measured = pc.equal(samples["phase"].cast(pa.string()), Phase.MEASURE.value).to_numpy()
    in_rounds = samples["round"].to_numpy() > 0
    names = ("indexing", "warm-up", "rounds")
    kinds = np.where(in_rounds, 2, np.where(measured, 0, 1))
    started = samples["started_s"].to_numpy()
    order = np.argsort(started, kind="stable")
    seconds: dict[str, float] = {}
    for stretch in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        if len(stretch):
            name = names[kinds[stretch[0]]]
            seconds[name] = seconds.get(name, 0.0) + float(started[stretch[-1]] - started[stretch[0]])
    return [(name, seconds[name]) for name in names if name in seconds]


def _record_marks(folder: SessionFolder, recorded: Session) -> None:
    """Events that hit one arm of a round only, for readers of the session who lack this package."""
    for (arm, task, round_), causes in marked_blocks(recorded).items():
        folder.note("marked", arm=arm, task=task, round=round_, causes=causes)
