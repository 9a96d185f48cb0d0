"""What an I/O counts as: the operations and bytes that its limits charge it with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """How an I/O is counted.

    SSD types count one operation per started ``max_io_bytes`` and the bytes as they are. HDD types charge a
    whole ``max_io_bytes`` for any I/O unless it continues the last one and is larger than
    ``merge_over_bytes``. EFS counts ``least_bytes`` at least.
    """

    max_io_bytes: int
    merge_over_bytes: int | None = None
    least_bytes: int = 0

    @property
    def merges_over(self) -> int:
        """``merge_over_bytes`` for what is compiled: -1 for SSD types."""
        return -1 if self.merge_over_bytes is None else self.merge_over_bytes


def charged_bytes(size: int, continues: bool, max_io_bytes: int, merge_over_bytes: int) -> int:
    """The bytes that an I/O costs; a negative ``merge_over_bytes`` stands for SSD types."""
    if merge_over_bytes < 0 or (continues and size > merge_over_bytes):
        return size
    return operations_of(size, max_io_bytes) * max_io_bytes


def operations_of(size: int, max_io_bytes: int) -> int:
    """The operations that an I/O costs."""
    return -(-size // max_io_bytes) or 1
