"""Rows of a table of samples, written out in a test as what differs from a plain measured request."""

import pyarrow as pa

from esrally_ebs.model import Phase
from esrally_ebs.store.encoding import SAMPLES


def row(**changes: object) -> dict[str, object]:
    """A successful request of task ``t`` on arm ``a`` in round 1, right after a drop."""
    plain: dict[str, object] = dict.fromkeys(SAMPLES.names, 0)
    texts = {"session": "s", "arm": "a", "task": "t", "operation": "t", "phase": Phase.MEASURE.value}
    rest = {
        "round": 1,
        "iteration": 1,
        "service_time_s": 0.03,
        "success": True,
        "hits": 5,
        "resident_before": 0.0,
    }
    return {**plain, **texts, **rest, **changes}


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SAMPLES)
