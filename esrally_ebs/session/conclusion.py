"""What a session says once everything is measured: stage times, whether arms may be compared, the reports."""

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
    """Seconds from first to last request of indexing, warm-up and rounds, as far as they took place."""
    measured = pc.equal(samples["phase"].cast(pa.string()), Phase.MEASURE.value)
    in_rounds = pc.greater(samples["round"], 0)
    parts = {
        "indexing": pc.and_not(measured, in_rounds),
        "warm-up": pc.invert(pc.or_(measured, in_rounds)),
        "rounds": in_rounds,
    }
    seconds = []
    for name, mask in parts.items():
        ends = pc.min_max(samples["started_s"].filter(mask)).as_py()
        if ends["min"] is not None:
            seconds.append((name, ends["max"] - ends["min"]))
    return seconds


def _record_marks(folder: SessionFolder, recorded: Session) -> None:
    """What befell one arm of a round only, for whoever reads the session without this package."""
    for (arm, task, round_), causes in marked_blocks(recorded).items():
        folder.note("marked", arm=arm, task=task, round=round_, causes=causes)
