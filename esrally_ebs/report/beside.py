"""Tables of searches beside writes: with and without a merge or refresh beside them; how fast was written."""

from collections.abc import Iterator, Mapping, Sequence

from esrally_ebs.analysis.beside import Apart, Writes, searches_apart
from esrally_ebs.analysis.marks import MATTERS
from esrally_ebs.report.bottleneck import NAMES, limit_name
from esrally_ebs.report.cells import arm_columns, arm_rows
from esrally_ebs.report.model import NOTHING, Cell, Column, Row, Table, quantity
from esrally_ebs.store.session import Session
from esrally_ebs.units import MIB

_APART = (
    "By the node's counters of merges and refreshes, read once a second: a request had one beside it if "
    "there was one in a second that it touches. No verdict: which those are, the volume decides too."
)


def tables(
    session: Session, written: Mapping[tuple[str, str], Writes], arms: Sequence[str]
) -> Iterator[Table]:
    """Both; none of a session in which nothing was ``written`` beside searches."""
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
        columns=arm_columns(arms, ("documents/s", "p99", "written", "held back")),
        rows=arm_rows(written, arms, _writes_cells),
        notes=(
            "Bulk requests of the rounds, from when they were due. Written is what reached the device while "
            f"some of them ran.{_restores(session)}",
        ),
    )


def warnings(written: Mapping[tuple[str, str], Writes]) -> Iterator[str]:
    """What of the writes went wrong, and what of the searches cannot be said because of them."""
    for (task, arm), of in written.items():
        if of.failed:
            yield f"{task}: {of.failed:,} bulk requests failed on {arm}, so less was added there"
    if written:
        yield "hits change while documents are added, so those searches were not checked to have the same"


def _apart_cells(apart: Apart | None) -> tuple[Cell, ...]:
    if apart is None:
        return NOTHING, NOTHING, NOTHING
    return (
        Cell(text=f"{apart.requests:,}", facts={"requests": apart.requests}),
        *(
            Cell(text=f"{seconds * 1e3:.2f} ms", facts={metric: seconds})
            for metric, seconds in (("p50_s", apart.p50_s), ("p99_s", apart.p99_s))
        ),
    )


def _writes_cells(of: Writes | None) -> tuple[Cell, ...]:
    if of is None:
        return (NOTHING,) * 4
    profile = of.profile
    written = profile.grown.get("device.written_bytes") if profile and profile.seconds else None
    rate = written / profile.seconds if profile and written is not None else None
    limit, share = max(
        profile.held_back.items() if profile else (), key=lambda item: item[1], default=("", 0.0)
    )
    return (
        Cell(text=f"{of.documents_per_s:,.0f}", facts={"documents_per_s": of.documents_per_s}),
        Cell(text=f"{of.p99_s * 1e3:.1f} ms", facts={"p99_s": of.p99_s, "p50_s": of.p50_s}),
        quantity("written_bytes_per_s", rate, f"{(rate or 0.0) / MIB:,.1f} MiB/s"),
        Cell(
            text=f"{share:.0%} {NAMES.get(limit_name(limit), limit)}",
            facts={"limit": limit, "held_back": share},
        )
        if share > MATTERS
        else NOTHING,
    )


def _restores(session: Session) -> str:
    """How arms got the same bytes before each block."""
    seconds = [event.number("seconds") or 0.0 for event in session.events if event.kind == "brought-back"]
    if not seconds:
        return ""
    return (
        f" Before each block its arm got the dataset's files back, none of them in the page cache: "
        f"{len(seconds)} times, {min(seconds):.1f} to {max(seconds):.1f} s each."
    )
