"""What a session says once everything is measured: stage times, whether arms may be compared, the reports."""

import time
from collections.abc import Iterable

from esrally_ebs import report
from esrally_ebs.model import Event, Phase, Sample, State
from esrally_ebs.stats import check_comparable
from esrally_ebs.store import SessionFolder, load_session
from esrally_ebs.store.encoding import samples_of


def conclude(folder: SessionFolder) -> tuple[str, str]:
    """Check, finish and report; returns the report as text, and why arms cannot be compared, if so."""
    folder.compact()
    recorded = load_session(folder.path)
    for name, seconds in spans(samples_of(recorded.samples)):
        folder.event(Event(at_s=time.time(), kind="stage", fields={"name": name, "seconds": seconds}))
    checks = check_comparable(recorded)
    for check in checks:
        folder.add_check(check)
    broken = "; ".join(f"{check.name}: {check.text}" for check in checks if not check.ok)
    folder.finish(State.FAILED if broken else State.COMPLETE, reason=broken)
    built = report.build(load_session(folder.path))
    texts = {form: render(built) for form, render in report.RENDERERS.items()}
    for form, text in texts.items():
        folder.write_file(f"report.{report.SUFFIX[form]}", text)
    return texts["text"], broken


def spans(samples: Iterable[Sample]) -> list[tuple[str, float]]:
    """Seconds from first to last request of indexing, warm-up and rounds, as far as they took place."""
    starts: dict[str, list[float]] = {}
    for sample in samples:
        starts.setdefault(_part(sample), []).append(sample.started_s)
    return [
        (part, max(starts[part]) - min(starts[part]))
        for part in ("indexing", "warm-up", "rounds")
        if part in starts
    ]


def _part(sample: Sample) -> str:
    if sample.phase is Phase.WARMUP:
        return "warm-up"
    return "rounds" if sample.round else "indexing"
