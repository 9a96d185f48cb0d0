"""Keeps processors from sleeping while I/O goes on, so that it takes no longer to wake them."""

import contextlib
import os
from pathlib import Path


class Wakefulness:
    """Keeps the processors out of sleep states while I/O is going on.

    Waking up a sleeping (virtual) processor takes 20 to 50 us, several times per I/O, but nothing while
    other work keeps it awake: a volume's latency would depend on what else runs. The kernel drops the
    request by itself when this process ends. Source: Documentation/power/pm_qos_interface.
    """

    _DEVICE = Path("/dev/cpu_dma_latency")

    def __init__(self) -> None:
        """Asleep; and for ever so where the kernel has no such device."""
        self.descriptor: int | None = None

    def hold(self) -> None:
        """Ask for a wake-up latency of 0 us."""
        with contextlib.suppress(OSError):
            self.descriptor = os.open(self._DEVICE, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self.descriptor, (0).to_bytes(4, "little"))

    def drop(self) -> None:
        """Let the processors sleep again."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
