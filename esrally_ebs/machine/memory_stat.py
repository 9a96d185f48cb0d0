"""``memory.stat`` of a cgroup, version 1 or 2: text in, what the group holds out (kernel: admin-guide)."""

from dataclasses import dataclass

from esrally_ebs.errors import FormatError

# Version 1 gives its own pages and, as total_*, those of the groups below it too; version 2 only the latter.
_V1 = ("total_cache", "total_rss", "total_mapped_file", "total_pgmajfault")
_V2 = ("file", "anon", "file_mapped", "pgmajfault")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCounters:
    """What a control group and those below it hold, by the names of version 1."""

    cache_bytes: int  # page cache, shared memory included
    rss_bytes: int  # anonymous memory: heap and stacks
    mapped_file_bytes: int  # the part of the cache that a process has mapped
    major_faults: int  # since the group was made


def parse_memory_stat(text: str, source: str) -> MemoryCounters:
    """The same four figures from either version.

    ``source`` names the text in messages. Raises FormatError when one of them is missing.
    """
    values: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.partition(" ")
        if not value.isdigit():
            raise FormatError(
                f"{source}:{number}: {line!r} is not a line of memory.stat; give a cgroup's file"
            )
        values[key] = int(value)
    for names in (_V1, _V2):
        if all(name in values for name in names):
            cache, rss, mapped, faults = (values[name] for name in names)
            return MemoryCounters(
                cache_bytes=cache, rss_bytes=rss, mapped_file_bytes=mapped, major_faults=faults
            )
    raise FormatError(
        f"{source}: has neither {', '.join(_V1)} (cgroup v1) nor {', '.join(_V2)} (v2); is it memory.stat?"
    )
