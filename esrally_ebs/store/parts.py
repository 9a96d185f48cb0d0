"""Growing tables: parts of Parquet written every second, merged into one file at the end.

A merged file names, in its own metadata, the parts it stands for. A reader leaves those out, so a crash
between the merge and the deletion of the parts shows no row twice and none less.
"""

import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from esrally_ebs.model import Sample, TelemetryPoint
from esrally_ebs.store.encoding import SAMPLES, TELEMETRY, to_table
from esrally_ebs.store.files import locked, replacing

FLUSH_EVERY_S = 1.0
_TELEMETRY_FLUSH_EVERY_S = 2.0  # each takes a processor for 3 ms, and a row more comes every second
_NICENESS = 10
SCHEMAS = {"samples": SAMPLES, "telemetry": TELEMETRY}
_REPLACES = b"esrally_ebs.replaces"
_ROWS_PER_GROUP = 128 * 1024
UNREADABLE = "not readable as Parquet"
# Of a file that was cut, whose data is damaged, or that lacks columns; ArrowInvalid is a ValueError.
_BROKEN = (pa.ArrowException, OSError, ValueError)

Growing = Sample | TelemetryPoint


def as_it_is(row: Growing) -> Growing:
    """What a writer makes of rows."""
    return row


class PartWriter:
    """Takes rows and puts them on disk from a thread of its own: at once, or a while after the last time.

    Any number of writers, in any number of processes, may serve one folder. A failed write (a full disk)
    keeps its rows in memory and is raised by the next call, as SetupError.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        *,
        row: Callable[[Any], Growing] = as_it_is,
        flush_every_s: float = FLUSH_EVERY_S,
    ) -> None:
        """``row`` makes a row of what is added, in the writer's thread: adding costs next to nothing."""
        self._folder = folder
        self._schema = schema
        self._row = row
        self._flush_every_s = flush_every_s
        self._added: list[Any] = []
        self._taking = threading.Lock()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._some = threading.Event()  # rows to write, or the end
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def add(self, added: Iterable[Any]) -> None:
        """Take rows, or what ``row`` makes them of; readable by others ``flush_every_s`` later at most."""
        with self._taking:
            self._added.extend(added)
            self._some.set()
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._flush_often, name="ebs-parts", daemon=True)
                self._thread.start()
        self._raise_failure()

    def flush(self) -> None:
        """Put all rows taken so far on disk now."""
        with self._writing:
            with self._taking:
                added, self._added = self._added, []
            if not added:
                return
            try:
                _write_part(self._folder, to_table(map(self._row, added), self._schema))
            except BaseException:
                with self._taking:
                    self._added = added + self._added
                raise

    def close(self) -> None:
        """Flush, and end the thread; rows added later must be flushed by hand."""
        self._closing.set()
        self._some.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _flush_often(self) -> None:
        # this thread alone: the processors belong to requests and nodes first
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while self._some.wait() and not self._closing.is_set():
            self._some.clear()
            try:
                self.flush()
            except Exception as error:  # noqa: BLE001 - a thread has no caller: the next add() raises it
                self._failure = error
                self._some.set()
            self._closing.wait(self._flush_every_s)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _write_part(folder: Path, table: pa.Table) -> None:
    # Sorted by name is sorted by time; the process and a random end keep writers apart.
    name = f"part-{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:6]}.parquet"
    write_table(folder / name, table)


def write_table(path: Path, table: pa.Table) -> None:
    """Write one Parquet file atomically."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def compact(folder: Path, schema: pa.Schema) -> None:
    """Merge all parts of a folder into one file; safe beside readers, other writers and a crash.

    Parts that cannot be read stay as they are. Memory stays at about ``_ROWS_PER_GROUP`` rows, whatever
    their number.
    """
    with locked(folder):
        # First what an earlier merge left: a merged file may go only after the parts that it stands for.
        _remove_replaced(folder)
        parts = [part for part in _live_parts(folder)[0] if _is_whole(part, schema)]
        if len(parts) > 1:
            replaces = {_REPLACES: json.dumps([part.name for part in parts]).encode()}
            target = folder / f"merged-{time.time_ns():020d}-{uuid.uuid4().hex[:6]}.parquet"
            _merge(parts, target, schema.with_metadata(replaces))
            _remove_replaced(folder)


def _remove_replaced(folder: Path) -> None:
    for name in _live_parts(folder)[1]:
        (folder / name).unlink(missing_ok=True)


def _merge(parts: Iterable[Path], target: Path, schema: pa.Schema) -> None:
    with replacing(target) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for table in _batches(parts, schema):
            writer.write_table(table)


def _is_whole(part: Path, schema: pa.Schema) -> bool:
    try:
        with pq.ParquetFile(part) as source:
            for group in range(source.num_row_groups):
                source.read_row_group(group).cast(schema)
            source.schema_arrow.empty_table().cast(schema)  # of a file without rows, too
    except _BROKEN:
        return False
    return True


def _batches(parts: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for part in parts:
        with pq.ParquetFile(part) as source:
            for group in range(source.num_row_groups):
                held.append(source.read_row_group(group).cast(schema))
                if sum(table.num_rows for table in held) >= _ROWS_PER_GROUP:
                    yield pa.concat_tables(held).unify_dictionaries()
                    held = []
    if held:
        yield pa.concat_tables(held).unify_dictionaries()


def read_parts(
    folder: Path, schema: pa.Schema, columns: list[str] | None = None
) -> tuple[pa.Table, tuple[str, ...]]:
    """All rows of a folder, in the order written, and a warning for each file that cannot be read."""
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    if not folder.is_dir():
        return wanted.empty_table(), ()
    with ExitStack() as files:
        with locked(folder, shared=True):  # opened files stay readable when a merge deletes them
            parts, _ = _live_parts(folder)
            opened = [_open(files, part) for part in parts]
        tables = [_read(file, wanted) for file in opened]
    broken = tuple(
        f"{part.parent.name}/{part.name}: {UNREADABLE}; its rows are left out"
        for part, table in zip(parts, tables, strict=True)
        if table is None
    )
    whole = [table for table in tables if table is not None]
    return pa.concat_tables([wanted.empty_table(), *whole]).unify_dictionaries(), broken


def _open(files: ExitStack, path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types; ParquetFile or None
    try:
        return files.enter_context(pq.ParquetFile(path))
    except _BROKEN:
        return None


def _read(file: Any, wanted: pa.Schema) -> pa.Table | None:  # noqa: ANN401 - as above
    if file is None:
        return None
    try:
        return file.read(columns=wanted.names).cast(wanted)
    except _BROKEN:
        return None


def _live_parts(folder: Path) -> tuple[list[Path], list[str]]:
    """The files that count, in order, and the names of those that a merged file stands for."""
    merged = sorted(folder.glob("merged-*.parquet"))
    replaced = {name for path in merged for name in _replaced_by(path)}
    # A merged file comes first: what it holds was written before any part that is still there.
    everything = merged + sorted(folder.glob("part-*.parquet"))
    return [path for path in everything if path.name not in replaced], sorted(replaced)


def _replaced_by(merged: Path) -> list[str]:
    try:
        metadata = pq.read_schema(merged).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return []
    try:
        names: list[str] = json.loads(metadata.get(_REPLACES, b"[]"))
    except ValueError:
        return []
    return names


def writer_for(folder: Path, kind: str, row: Callable[[Any], Growing] = as_it_is) -> PartWriter:
    """A writer for ``samples`` or ``telemetry``; ``row`` as in PartWriter."""
    folder.mkdir(parents=True, exist_ok=True)
    flush_every_s = _TELEMETRY_FLUSH_EVERY_S if kind == "telemetry" else FLUSH_EVERY_S
    return PartWriter(folder, SCHEMAS[kind], row=row, flush_every_s=flush_every_s)
