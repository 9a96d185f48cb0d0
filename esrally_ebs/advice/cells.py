"""Settings, prices and times as text and tables, for reports of advice and of usage."""

from collections.abc import Iterable, Sequence

from esrally_ebs.model import VolumeSpec
from esrally_ebs.report.model import Cell, Row, Table, quantity, titled
from esrally_ebs.units import GIB, MIB


def setting_text(spec: VolumeSpec) -> str:
    """A setting in AWS's words: ``gp3 100 GiB, 3,000 IOPS, 125 MiB/s``; per volume if striped."""
    volumes = f"{spec.stripes} x " if spec.stripes > 1 else ""
    parts = [f"{volumes}{spec.type} {spec.size_bytes / GIB:g} GiB"]
    if spec.iops:
        parts.append(f"{spec.iops:,} IOPS")
    if spec.throughput_bytes_per_s:
        parts.append(f"{spec.throughput_bytes_per_s / MIB:g} MiB/s")
    return ", ".join(parts)


def usd_text(usd: float, *, sign: bool = False) -> str:
    """``+1,234.00 USD``; no plus unless ``sign``."""
    return f"{usd:{'+' if sign else ''}z,.2f} USD"


def ms_text(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def hours_text(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h"


def time_cell(seconds: float) -> Cell:
    return quantity("s", seconds, ms_text(seconds))


def share_cell(share: float | None) -> Cell:
    return quantity("share", share, f"{share or 0.0:.0%}")


def error_cell(share: float) -> Cell:
    return quantity("share", share, f"{share:+z.1%}")


def cell_table(
    key: str, title: str, titles: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], *notes: str
) -> Table:
    """A table of cells; each row begins with its item."""
    made = tuple(Row(item=item, cells=tuple(cells)) for item, cells in rows)
    columns = titled(*titles[1:])
    return Table(key=key, title=title, item_title=titles[0], columns=columns, rows=made, notes=notes)
