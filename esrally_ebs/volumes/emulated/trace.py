"""Reads the I/Os that an emulated volume's daemon kept, as a table for the session's record."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from esrally_ebs.store.encoding import TRACE
from esrally_ebs.volumes.emulated import control
from esrally_ebs.volumes.emulated.daemon.trace import HEAD

_RECORD = np.dtype(  # as in daemon/trace.py
    [
        *[(name, "<f8") for name in ("at_s", "done_s")],
        *[(name, "<f4") for name in ("queue_s", "path_s")],
        ("offset", "<u8"),
        *[(name, "<u4") for name in ("bytes", "write")],
    ]
)


def take_trace(socket: Path, arm: str) -> tuple[pa.Table, int]:
    """I/Os that a volume kept, in order of arrival, and the number of older ones that were overwritten.

    Raises SetupError if its daemon keeps none or does not answer.
    """
    tables, lost = [], 0
    for path in control.save_trace(socket):
        data = path.read_bytes()
        count, epoch_s = HEAD.unpack_from(data)
        ios = np.frombuffer(data, _RECORD, offset=HEAD.size)
        lost += count - len(ios)
        columns: dict[str, Any] = {name: ios[name] for name in ("offset", "bytes", "queue_s", "path_s")}
        columns |= {name: ios[name] + epoch_s for name in ("at_s", "done_s")}
        columns["op"] = np.where(ios["write"], "write", "read")
        names = {"arm": [arm] * len(ios), "device": [path.parent.name] * len(ios)}
        unknown = dict.fromkeys(set(TRACE.names) - {*names, *columns}, pa.nulls(len(ios)))
        tables.append(pa.table({**names, **columns, **unknown}).select(TRACE.names).cast(TRACE))
    return pa.concat_tables(tables).sort_by("at_s"), lost
