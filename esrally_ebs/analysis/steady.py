"""When a page cache is in balance with the load: by the bytes that the volume reads, in windows of requests.

With ``cache.mode = "steady"`` nothing is dropped between requests, and the page cache is what the node's
memory limit leaves. The requests of the warm-up are repeated until misses are steady: until the bytes that
the volume read in each of ``WINDOWS`` windows in a row differ by no more than a tenth of their mean. A cache
that is still filling reads alike, too: at first nearly every page is missed, and will not be later. It shows
in what the cache has, which then grows by all that is read, while a full one gives up as much. Pure.
"""

from collections.abc import Sequence

WINDOWS = 3
MAX_WINDOWS = 20  # then it gives up, and the session says so
_TOLERANCE = 0.1
_FILLING = 0.5  # share of bytes read: a cache that grew by more is still filling
_PAGE_BYTES = 4096  # less than a page per request counts as nothing


class MissRate:
    """Bytes that a volume reads during one block, by windows of requests."""

    def __init__(self, window: int, read_bytes: float, cached_bytes: float = 0.0) -> None:
        """``window`` in requests; the volume's bytes read and the page cache's bytes at the beginning."""
        self._window = window
        self._last = read_bytes
        self._cached = [cached_bytes]  # bytes at the beginning and at each window's end
        self.requests = 0
        self.windows: list[float] = []  # bytes read in each

    @property
    def ends_window(self) -> bool:
        """Whether the last request ended a window, so that the counter must be read."""
        return self.requests > 0 and self.requests % self._window == 0

    def add(self, read_bytes: float, cached_bytes: float = 0.0) -> None:
        """Add a window: bytes read and bytes in the page cache at its end."""
        self._cached.append(cached_bytes)
        self.windows.append(read_bytes - self._last)
        self._last = read_bytes

    @property
    def is_steady(self) -> bool:
        """Whether the last windows read alike from a full cache, or read next to nothing."""
        last = self.windows[-WINDOWS:]
        if len(last) < WINDOWS:
            return False
        return max(last) < self._window * _PAGE_BYTES or (_are_alike(last) and not self.is_filling)

    @property
    def is_filling(self) -> bool:
        """Whether the cache kept most of what the last windows read, so it had room."""
        read_bytes = sum(self.windows[-WINDOWS:])
        return self._cached[-1] - self._cached[-WINDOWS - 1 :][0] > _FILLING * read_bytes

    @property
    def is_over(self) -> bool:
        """Whether misses are steady or the wait was given up."""
        return self.is_steady or len(self.windows) >= MAX_WINDOWS


def _are_alike(windows: Sequence[float]) -> bool:
    mean = sum(windows) / len(windows)
    return all(abs(each - mean) <= _TOLERANCE * mean for each in windows)
