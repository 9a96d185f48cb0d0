"""Signals that end this process, later."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP act after the block.

    Blocking them in this thread is not enough: another one, such as numpy's, gets them, and Python acts here.
    """
    if threading.current_thread() is not threading.main_thread():  # where none acts
        yield
        return
    came: list[int] = []
    before = {}
    try:
        for blocked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(blocked)):
                before[blocked] = signal.signal(blocked, lambda number, _: came.append(number))
        yield
    finally:
        for blocked, handler in before.items():
            signal.signal(blocked, handler)
        for number in came:
            signal.raise_signal(number)
