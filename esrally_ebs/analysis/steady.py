"""When a page cache is in balance with the load: by the bytes that the volume reads, in windows of requests.

With ``cache.mode = "steady"`` nothing is dropped between requests, and the page cache is what the node's
memory limit leaves. The requests of the warm-up are repeated until misses are steady: until the bytes that
the volume read in each of ``WINDOWS`` windows in a row differ by no more than a tenth of their mean. A cache
that is still filling reads alike, too: at first nearly every page is missed, and will not be later. It shows
in what the cache has, which then grows by all that is read, while a full one gives up as much. Pure.
"""

from collections.abc import Sequence

WINDOWS = 3
MAX_WINDOWS = 20  # then it is given up, and said
_TOLERANCE = 0.1
_FILLING = 0.5  # of what was read: if the cache grew by more, it gives up less than it takes in
_PAGE_BYTES = 4096  # less than a page per request is nothing


class MissRate:
    """What a volume reads for one block of requests."""

    def __init__(self, window: int, read_bytes: float, cached_bytes: float = 0.0) -> None:
        """``window`` in requests; the volume's counter at the beginning, and what the page cache has."""
        self._window = window
        self._last = read_bytes
        self._cached = [cached_bytes]  # at the beginning, and at the end of each window
        self.requests = 0
        self.windows: list[float] = []  # bytes each

    @property
    def ends_window(self) -> bool:
        """Whether the last request was a window's last, so that the counter must be read."""
        return self.requests > 0 and self.requests % self._window == 0

    def add(self, read_bytes: float, cached_bytes: float = 0.0) -> None:
        """The counter at the end of a window, and what the page cache has."""
        self._cached.append(cached_bytes)
        self.windows.append(read_bytes - self._last)
        self._last = read_bytes

    @property
    def is_steady(self) -> bool:
        """Whether the last windows read alike, from a cache that is full; or next to nothing."""
        last = self.windows[-WINDOWS:]
        if len(last) < WINDOWS:
            return False
        return max(last) < self._window * _PAGE_BYTES or (_are_alike(last) and not self.is_filling)

    @property
    def is_filling(self) -> bool:
        """Whether most of what the last windows read stayed in the cache, which so had room for it."""
        read_bytes = sum(self.windows[-WINDOWS:])
        return self._cached[-1] - self._cached[-WINDOWS - 1 :][0] > _FILLING * read_bytes

    @property
    def is_over(self) -> bool:
        """Whether misses are steady, or are given up."""
        return self.is_steady or len(self.windows) >= MAX_WINDOWS


def _are_alike(windows: Sequence[float]) -> bool:
    mean = sum(windows) / len(windows)
    return all(abs(each - mean) <= _TOLERANCE * mean for each in windows)
