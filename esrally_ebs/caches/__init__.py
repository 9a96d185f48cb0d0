"""The page cache under a node: evict an index from it, and measure what is left.

Called before each measured block: ``make_cold`` for a node, ``evict`` and ``residency`` for a directory.
"""

from esrally_ebs.caches.eviction import Drop, Eviction, Step, evict, make_cold
from esrally_ebs.caches.residency import Residency, residency, residency_by_mincore

__all__ = ["Drop", "Eviction", "Residency", "Step", "evict", "make_cold", "residency", "residency_by_mincore"]
