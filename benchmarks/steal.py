"""What the host kept of this machine's processors while a benchmark ran: with much of it, no figure holds."""

from collections.abc import Iterator
from contextlib import contextmanager

from esrally_ebs.machine.procfs import processor_counters


@contextmanager
def steal_reported() -> Iterator[None]:
    """Print the share when the block ends."""
    before = processor_counters()
    yield
    after = processor_counters()
    stolen, busy = after.stolen_s - before.stolen_s, after.busy_s - before.busy_s
    print(f"the host kept {stolen / max(stolen + busy, 1e-9):.1%} of the processor time asked for (steal)")
