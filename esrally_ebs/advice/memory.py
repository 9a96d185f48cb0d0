"""Memory instead of a faster volume: which reads a page cache of a given size would have answered."""

from collections import OrderedDict

import numpy as np

from esrally_ebs.advice.recording import Recording
from esrally_ebs.units import KIB
from esrally_ebs.volumes.virtual.replay import Column, Thread

_PAGE = 16 * KIB  # what is looked up at once: the kernel's own pages are a quarter of it


def footprint_bytes(recording: Recording) -> int:
    """Of all that requests read, each place once."""
    return _PAGE * len({page for pages in _pages(recording) for page in pages})


def in_memory(recording: Recording, cache_bytes: int) -> Column:
    """By I/O whether all of it is in a cache of so many bytes, of what was used last, that is never dropped.

    The cache is empty when the recording begins. A write puts its place into the cache, and reaches the
    volume in any case.
    """
    cache: OrderedDict[int, None] = OrderedDict()
    most = cache_bytes // _PAGE
    hits = np.zeros(len(recording.ios["at_s"]), bool)
    for io, pages in enumerate(_pages(recording)):
        hits[io] = all(page in cache for page in pages)
        for page in pages:
            cache[page] = None
            cache.move_to_end(page)
        while len(cache) > most:
            cache.popitem(last=False)
    hits[recording.ios["write"] == 1] = False
    return hits


def with_memory(recording: Recording, thread: Thread, cache_bytes: int) -> Thread:
    """The requests with such a cache: what is in it takes the volume no time."""
    requests = np.repeat(np.arange(recording.requests), np.diff(recording.first))
    places = (np.arange(len(requests)) + requests)[in_memory(recording, cache_bytes)]
    path_s = thread.path_s.copy()
    path_s[places] = np.inf
    return thread._replace(path_s=path_s)


def _pages(recording: Recording) -> list[range]:
    begin = recording.ios["offset"] // _PAGE
    end = -(-(recording.ios["offset"] + recording.ios["bytes"]) // _PAGE)
    return [range(first, last) for first, last in zip(begin.tolist(), end.tolist(), strict=True)]
