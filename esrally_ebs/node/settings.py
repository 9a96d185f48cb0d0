"""A node's settings: from Rally cars to the variables of ``compose/node.yml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from esrally_ebs.errors import PlanError
from esrally_ebs.units import MIB

# Memory of a node's cgroup beside the heap: the JVM's metaspace, code cache, stacks, direct buffers and
# collector, the launcher JVM, the kernel's share. Measured; see cars/v1/node/config.ini.
OVERHEAD_BYTES = 300 * MIB

STORE_TYPES = ("hybridfs", "mmapfs", "niofs")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One node's limits and settings; the same on every arm of a session."""

    heap_bytes: int
    memory_bytes: int  # limit of the container, including heap, overhead and page cache
    cpus: float  # 0 = no limit
    store_type: str = "hybridfs"
    java_opts: str = ""
    readahead_bytes: int | None = None  # of the arm's device; None = the kernel's default
    es_settings: Mapping[str, str] = field(default_factory=dict)
    keeps_port: bool = False  # after a restart
    also_at: str = ""  # an address besides 127.0.0.1 where it answers, on the same port
    # for an arm with nodes on several machines, by name: where others reach each, "10.0.0.2:9300"
    apart: Mapping[str, str] = field(default_factory=dict)


def page_cache_bytes(settings: NodeSettings) -> int:
    """Page cache that the memory limit leaves; storage matters only for datasets larger than that."""
    return max(0, settings.memory_bytes - settings.heap_bytes - OVERHEAD_BYTES)


def of_all_arms(settings: NodeSettings, arms: int) -> NodeSettings:
    """Settings of one node for so many arms: one heap, and page cache for each arm's index."""
    more = (arms - 1) * page_cache_bytes(settings)
    return replace(settings, memory_bytes=settings.memory_bytes + more)


def compose_variables(settings: NodeSettings) -> dict[str, str]:
    return {
        "ES_HEAP": f"{settings.heap_bytes}",
        "ES_MEMORY": f"{settings.memory_bytes}b",
        "ES_CPUS": f"{settings.cpus:g}",
        "ES_STORE_TYPE": settings.store_type,
        "ES_EXTRA_OPTS": settings.java_opts,
    }


def environment_file(es_settings: Mapping[str, str]) -> str:
    """Elasticsearch settings as a Compose ``env_file``; within single quotes only the quote is special.

    Raises PlanError for a backslash that would escape a quote, and for invalid names.
    """
    return "".join(f"{name}='{_escaped(name, value)}'\n" for name, value in sorted(es_settings.items()))


def _escaped(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.*\[\]-]+", name, re.ASCII):
        raise PlanError(f"car variable {name!r}: is no name of a setting; write for example node.attr.rack")
    if "\\'" in value or value.endswith("\\"):
        raise PlanError(
            f"car variable {name}: a backslash at its end, or before a quote; Compose takes neither"
        )
    return value.replace("'", "\\'")
