"""How far a race is: a line at each stage where there is no terminal, which Rally's own progress needs."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from esrally_ebs.model import Block, Phase, Work


def line_writer(is_quiet: bool) -> Callable[[str], None]:
    """What writes a line to stdout unless that is a terminal; a reader that has gone is no error."""

    def write(text: str) -> None:
        if not is_quiet and not sys.stdout.isatty():
            with suppress(OSError):
                sys.stdout.write(f"[INFO] {text}\n")
                sys.stdout.flush()

    return write


class StageLines:
    """In Rally's driver: says when the race comes to another stage, and how many tasks are left."""

    def __init__(
        self, rounds: int, *, write: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._rounds = rounds
        self._write = write
        self._now = now
        self._began_s = now()
        self._stage = ""

    def begins(self, block: Block, left: int) -> None:
        """A task of this block is next; ``left`` tasks are to come, this one included."""
        stage = self._stage_of(block)
        if stage != self._stage:
            self._stage = stage
            minutes, seconds = divmod(round(self._now() - self._began_s), 60)
            self._write(f"{stage}: {left} tasks left, {minutes} min {seconds:02} s so far")

    def _stage_of(self, block: Block) -> str:
        if block.work is Work.FIO:
            return "fio again" if block.round else "fio"
        if block.work is Work.START:
            return f"start {block.start} of the nodes"
        if block.work is Work.INDEXING and block.phase is Phase.MEASURE:
            return "indexing"
        return f"round {block.round} of {self._rounds}" if block.round else "warm-up"
