"""The synthetic corpus on disk: written by several processes; complete or absent.

From a path, a number of documents and a seed to the file, Rally's table of line offsets beside it
(``<file>.offset``) and a stamp (``<file>.stamp``) that describes the file's contents.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.units import format_bytes
from esrally_ebs.workload.corpus.logs import LogRenderer
from esrally_ebs.workload.corpus.vectors import VectorRenderer
from esrally_ebs.workload.corpus.weather import WeatherRenderer
from esrally_ebs.workload.corpus.workers import CHUNK, Ends, Progress, Renderer, write_chunks

FORMAT: Final = 1  # to be raised whenever a seed's bytes change
SYNTHETIC: Final = "synthetic"
CONVERTED: Final = "ghcn-daily"
RENDERERS: Final[Mapping[str, Callable[[int], Renderer]]] = {
    "weather": WeatherRenderer,
    "logs": LogRenderer,
    "uploads": partial(LogRenderer, body=96_000),
    "vectors": VectorRenderer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    path: Path
    documents: int
    bytes: int
    seed: int
    format: int = FORMAT
    source: str = SYNTHETIC


def generate(
    path: Path,
    *,
    documents: int,
    seed: int = 42,
    kind: str = "weather",
    workers: int | None = None,
    progress: Progress = lambda documents: None,
) -> Corpus:
    """Write ``documents`` documents; the same seed gives the same bytes for any number of ``workers``.

    ``workers`` defaults to this process's CPUs; ``progress`` gets the number of documents written so far.
    Raises PlanError for an impossible number, SetupError if the disk is full or another process writes the
    same file. Then, and after an interrupt, nothing partial remains.
    """
    renderer = RENDERERS[kind](seed)
    if not 1 <= documents <= renderer.capacity:
        raise PlanError(f"documents {documents}: choose between 1 and {renderer.capacity}")
    count = workers if workers is not None else len(os.sched_getaffinity(0))
    if count < 1:
        raise PlanError(f"workers {count}: must be at least 1")
    _check_space(path, documents, renderer.bytes_per_document)
    with _partial(path) as (partial, file):
        with disk_errors(path):
            ends = write_chunks(renderer, file, documents, count, progress)
        corpus = Corpus(path=path, documents=documents, bytes=ends[-1][1], seed=seed)
        _put(partial, corpus, ends)
    return corpus


def ensure(directory: Path, *, documents: int, seed: int = 42, kind: str = "weather") -> Corpus:
    """``documents-<documents>.json`` in ``directory``: an existing complete one, or a new one.

    One made by ``convert`` is used whatever the seed. Raises as ``generate``.
    """
    path = directory / f"documents-{documents}.json"
    wanted = {"documents": documents, "seed": seed, "format": FORMAT}
    corpus = _stamped(path)
    if corpus is not None and (corpus.source == CONVERTED or wanted.items() <= asdict(corpus).items()):
        return corpus
    return generate(path, documents=documents, seed=seed, kind=kind)


def adopt(written: Path, directory: Path) -> Corpus:
    """Move a file of converted documents to its place in ``directory``, with offset table and stamp."""
    ends: Ends = []
    size = documents = 0
    with written.open("rb") as lines:
        for documents, line in enumerate(lines, start=1):
            size += len(line)
            if documents % CHUNK == 0:
                ends.append((documents, size))
    path = directory / f"documents-{documents}.json"
    corpus = Corpus(path=path, documents=documents, bytes=size, seed=0, source=CONVERTED)
    _put(written, corpus, ends)
    return corpus


def _put(written: Path, corpus: Corpus, ends: Ends) -> None:
    """Move a written file to its place, with offset table and stamp; the stamp marks it complete."""
    offsets, stamp = _offset_path(corpus.path), _stamp_path(corpus.path)
    for stale in (stamp, offsets):
        stale.unlink(missing_ok=True)
    written.replace(corpus.path)
    # Rally reads "line;offset after that line" for every 50,000th line
    rows = [f"{line};{offset}\n" for line, offset in ends if line % CHUNK == 0]
    with disk_errors(corpus.path):
        _write_whole(offsets, "".join(rows))
        _write_whole(stamp, json.dumps({**asdict(corpus), "path": corpus.path.name}) + "\n")


def _stamped(path: Path) -> Corpus | None:
    """The corpus that the stamp describes; None if the file has changed since."""
    try:
        stamp = json.loads(_stamp_path(path).read_text())
        corpus = Corpus(**{**stamp, "path": path})
        complete = path.stat().st_size == corpus.bytes and _offset_path(path).exists()
    except (OSError, ValueError, TypeError):
        return None
    return corpus if complete else None


def _check_space(path: Path, documents: int, bytes_each: int) -> None:
    with disk_errors(path):
        if path.exists() and not path.is_file():  # a directory; or a device, which a file would replace
            raise PlanError(f"{path}: is no file; name one that is not there yet, or may be written over")
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    needed = documents * bytes_each
    if free < needed:
        raise SetupError(
            f"{path}: {documents} documents need {format_bytes(needed)}, {format_bytes(free)} are free; "
            "make room or choose fewer documents"
        )


@contextmanager
def _partial(path: Path) -> Iterator[tuple[Path, int]]:
    """An empty file beside ``path`` that nobody else writes; removed afterwards unless renamed."""
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(path):
        # in somebody else's directory it may be a link to a file of ours, or a file that stays theirs
        file = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise SetupError(f"{partial}: belongs to another user; choose another directory")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(f"{path}: another process is writing it; wait for it to end") from error
        # overwrite what a killed process left; its lock is gone
        os.ftruncate(file, 0)
        try:
            yield partial, file
        finally:
            # renamed; or now the file of another process that writes it anew
            with suppress(FileNotFoundError):
                if os.path.samestat(partial.lstat(), os.fstat(file)):
                    partial.unlink()
    finally:
        os.close(file)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError in the block into a SetupError that names ``path`` and the next step."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        step = "make room or choose fewer documents" if full else "choose another directory"
        raise SetupError(f"{path}: cannot write the corpus: {error.strerror or error}; {step}") from error


def _offset_path(path: Path) -> Path:
    return path.with_name(path.name + ".offset")


def _write_whole(path: Path, text: str) -> None:
    with _partial(path) as (partial, file):
        with open(file, "w", closefd=False) as whole:
            whole.write(text)
        partial.replace(path)


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".stamp")
