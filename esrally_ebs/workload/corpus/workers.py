"""Lets several processes write one file: each writes its own chunks at offsets that it is told.

A worker renders a chunk, reports its length, is told its offset, and writes it there; no document passes
through a pipe. From a renderer and an open file to the end of each chunk.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Final, Protocol, cast

from esrally_ebs.errors import SetupError
from esrally_ebs.machine.processes import be_called

CHUNK: Final = 50_000  # documents; the step of Rally's offset table
_END_TIMEOUT_S: Final = 5.0

Ends = list[tuple[int, int]]  # (documents, bytes) up to each chunk's end
Progress = Callable[[int], None]


class Renderer(Protocol):
    capacity: int  # most documents
    bytes_per_document: int  # approximately

    def lines(self, start: int, stop: int) -> bytes:
        """Documents ``start`` (a multiple of CHUNK) to ``stop - 1``, one per line."""


def write_chunks(renderer: Renderer, file: int, documents: int, workers: int, progress: Progress) -> Ends:
    """Write all chunks to the open ``file``. Raises OSError if it cannot, SetupError if a worker dies."""
    with _started(renderer, file, documents, min(workers, -(-documents // CHUNK))) as connections:
        try:
            return _direct(connections, documents, progress)
        except (EOFError, ConnectionError) as error:
            raise SetupError(
                "corpus: a writing process was killed; free some memory and try again"
            ) from error


def _direct(connections: list[Connection], documents: int, progress: Progress) -> Ends:
    """Give each chunk its offset, in order; worker ``w`` of ``n`` renders chunks ``w, w + n, ...``."""
    ends: Ends = []
    offset = 0
    for chunk, start in enumerate(range(0, documents, CHUNK)):
        stop = min(start + CHUNK, documents)
        connection = connections[chunk % len(connections)]
        length = _answer(connection)
        connection.send(offset)
        offset += length
        ends.append((stop, offset))
        progress(stop)
    for connection in connections:
        _answer(connection)  # the last chunk has been written
    return ends


def _answer(connection: Connection) -> int:
    """A worker's answer: its next chunk's length. Raises OSError if it could not write the previous one."""
    answer = connection.recv()
    if isinstance(answer, OSError):
        raise answer
    return cast(int, answer)


@contextmanager
def _started(renderer: Renderer, file: int, documents: int, workers: int) -> Iterator[list[Connection]]:
    # forked: a new process would take seconds to rebuild the renderer's tables
    context = multiprocessing.get_context("fork")
    processes: list[ForkProcess] = []
    connections: list[Connection] = []
    try:
        for number in range(workers):
            ours, theirs = context.Pipe()
            arguments = (renderer, file, documents, number, workers, theirs, [*connections, ours])
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        yield connections
    finally:
        for connection in connections:
            connection.close()
        for process in processes:
            process.terminate()
            process.join(_END_TIMEOUT_S)


def _work(
    renderer: Renderer,
    file: int,
    documents: int,
    number: int,
    workers: int,
    connection: Connection,
    parents: list[Connection],
) -> None:
    be_called("ebs-corpus")
    for ending in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in parents:
        other.close()  # else this process would not notice the parent's end
    try:
        for start in range(number * CHUNK, documents, workers * CHUNK):
            text = renderer.lines(start, min(start + CHUNK, documents))
            connection.send(len(text))
            _write_at(file, text, connection.recv())
        connection.send(0)
    except (EOFError, ConnectionError):
        return  # the parent is gone
    except OSError as error:
        with suppress(ConnectionError):
            connection.send(error)


def _write_at(file: int, text: bytes, offset: int) -> None:
    left = memoryview(text)
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written
