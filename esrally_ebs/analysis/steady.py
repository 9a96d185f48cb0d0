"""When a page cache is in balance with the load: by the bytes that the volume reads, in windows of requests.

With ``cache.mode = "steady"`` nothing is dropped, and the page cache is what the node's memory limit leaves.
The requests of the warm-up are repeated until misses are steady: until the bytes that the volume read in each
of ``WINDOWS`` windows in a row differ by no more than a tenth of their mean. Pure.
"""

from collections.abc import Sequence

WINDOWS = 3
MAX_WINDOWS = 20  # then it is given up, and said
_TOLERANCE = 0.1
_PAGE_BYTES = 4096  # less than a page per request is nothing


class MissRate:
    """What a volume reads for one block of requests."""

    def __init__(self, window: int, read_bytes: float) -> None:
        """``window`` in requests; ``read_bytes`` is the volume's counter at the beginning."""
        self._window = window
        self._last = read_bytes
        self.requests = 0
        self.windows: list[float] = []  # bytes each

    @property
    def ends_window(self) -> bool:
        """Whether the last request was a window's last, so that the counter must be read."""
        return self.requests > 0 and self.requests % self._window == 0

    def add(self, read_bytes: float) -> None:
        """The counter at the end of a window."""
        self.windows.append(read_bytes - self._last)
        self._last = read_bytes

    @property
    def is_steady(self) -> bool:
        """Whether the last windows read alike, or next to nothing."""
        return len(self.windows) >= WINDOWS and _are_alike(
            self.windows[-WINDOWS:], self._window * _PAGE_BYTES
        )

    @property
    def is_over(self) -> bool:
        """Whether misses are steady, or are given up."""
        return self.is_steady or len(self.windows) >= MAX_WINDOWS


def _are_alike(windows: Sequence[float], nothing: float) -> bool:
    mean = sum(windows) / len(windows)
    return max(windows) < nothing or all(abs(each - mean) <= _TOLERANCE * mean for each in windows)
