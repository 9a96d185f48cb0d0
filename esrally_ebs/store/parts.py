"""Growing tables: parts in Parquet, written every second and merged into one file at the end.

A merged file lists the parts that it replaces in its metadata. Readers skip these, so a crash between merging
and deleting neither repeats nor loses rows.

A file has the CRC-32 of all its bytes in its metadata: a flipped bit on disk makes it unreadable instead of
changing values. Parquet's own checksums only cover pages, and some flips elsewhere make pyarrow end the
process.
"""

import json
import os
import re
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esrally_ebs.errors import FormatError
from esrally_ebs.model import Sample, TelemetryPoint
from esrally_ebs.store.encoding import (
    MAX_IO_BYTES,
    MAX_TIME,
    MAY_BE_MISSING,
    SAMPLES,
    TELEMETRY,
    parse_json,
    to_table,
)
from esrally_ebs.store.files import locked, make_directory, open_file, replacing

FLUSH_EVERY_S = 1.0
TELEMETRY_FLUSH_EVERY_S = 2.0  # each flush takes a processor 3 ms; rows grow by one per second
_NICENESS = 10
SCHEMAS = {"samples": SAMPLES, "telemetry": TELEMETRY}
_REPLACES = b"esrally_ebs.replaces"
_CRC = b"esrally_ebs.crc32"
_NO_CRC = b"00000000"  # placeholder while the checksum is computed
_CRC_FIELD = re.compile(re.escape(_CRC) + rb"\x18\x08([0-9a-f]{8})")  # key and value in Thrift's encoding
_MAX_FOOTER_BYTES = 2**24
_ROWS_PER_GROUP = 128 * 1024
_PART_NAME = re.compile(r"(part|merged)-[^/]*\.parquet")
UNREADABLE = "not readable as Parquet"
# Errors for truncated or damaged files and missing columns; ArrowInvalid is a ValueError.
BROKEN = (pa.ArrowException, FormatError, OSError, ValueError, TypeError, LookupError)
# Allowed ranges, from the first value up to below the second: times, which clocks and axes are made of, and
# sizes, by which machine code counts.
_RANGES = {**dict.fromkeys(("started_s", "at_s", "done_s"), (0, MAX_TIME)), "bytes": (1, MAX_IO_BYTES)}
# A compression that tables of measurements never reach, but files made to fill the memory do.
_MAX_BYTES = 2**40
_MAX_ROWS_PER_BYTE, _MAX_COMPRESSION = 1, 200
_ALWAYS_ALLOWED = 2**24  # rows or bytes that are harmless

Growing = Sample | TelemetryPoint


class PartWriter:
    """Writes rows in its own thread: at once, or some time after the last write.

    Any number of writers and processes may share a folder. After a failed write (full disk) rows stay in
    memory, and the next call raises SetupError.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        *,
        row: Callable[[Any], Growing] = lambda row: row,
        flush_every_s: float = FLUSH_EVERY_S,
    ) -> None:
        """``row`` converts added objects to rows, in the writer's thread: adding is nearly free."""
        self._folder = folder
        self._schema = schema
        self._row = row
        self._flush_every_s = flush_every_s
        self._added: list[Any] = []
        self._taking = threading.Lock()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._some = threading.Event()  # set for rows to write, or the end
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def add(self, added: Iterable[Any]) -> None:
        """Add rows, or objects for ``row``; readable by others after at most ``flush_every_s``."""
        with self._taking:
            self._added.extend(added)
            self._some.set()
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._flush_often, name="ebs-parts", daemon=True)
                self._thread.start()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Write all rows added so far."""
        with self._writing:
            with self._taking:
                added, self._added = self._added, []
            if not added:
                return
            try:
                # Names sort by time; the pid and a random suffix separate writers.
                name = f"part-{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex[:6]}.parquet"
                write_table(self._folder / name, to_table(map(self._row, added), self._schema))
            except BaseException:
                with self._taking:
                    self._added = added + self._added
                raise

    def close(self) -> None:
        """Flush, and end the thread; rows added later need a manual flush."""
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
        # this thread's priority; not machine.processes.give_way, as analysis uses this module without a
        # machine
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
        while self._some.wait() and not self._closing.is_set():
            self._some.clear()
            try:
                self.flush()
            except Exception as error:  # noqa: BLE001 - a thread has no caller: the next add() raises it
                self._failure = error
                self._some.set()
            self._closing.wait(self._flush_every_s)


def write_table(path: Path, table: pa.Table) -> None:
    """Write one Parquet file atomically."""
    with _new_file(path, table.schema) as writer:
        writer.write_table(table)


@contextmanager
def _new_file(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """A ParquetWriter whose file appears, with checksum and synced, if the block succeeds."""
    sealed = schema.with_metadata({**(schema.metadata or {}), _CRC: _NO_CRC})
    with replacing(path, sync=True) as file:
        with pq.ParquetWriter(file, sealed, compression="zstd", write_page_checksum=True) as writer:
            yield writer
        place = _place_of_crc(file)
        assert place is not None
        crc = _crc32(file, place)
        file.seek(place)
        file.write(b"%08x" % crc)


def _place_of_crc(file: BinaryIO) -> int | None:
    """Offset of the file's own checksum; None in files of earlier releases."""
    start = max(0, file.seek(0, os.SEEK_END) - _MAX_FOOTER_BYTES)
    file.seek(start)
    places = [match.start(1) for match in _CRC_FIELD.finditer(file.read())]
    return start + places[-1] if places else None


def _crc32(file: BinaryIO, place: int) -> int:
    """CRC-32 of all bytes except the checksum at ``place``."""
    file.seek(0)
    crc, left = 0, place
    while left and (chunk := file.read(min(left, 2**20))):
        crc, left = zlib.crc32(chunk, crc), left - len(chunk)
    crc = zlib.crc32(_NO_CRC, crc)
    file.seek(place + len(_NO_CRC))
    while chunk := file.read(2**20):
        crc = zlib.crc32(chunk, crc)
    return crc


def _check_crc(file: BinaryIO, path: Path) -> None:
    place = _place_of_crc(file)
    if place is not None:
        crc = _crc32(file, place)
        file.seek(place)
        if file.read(len(_NO_CRC)) != b"%08x" % crc:
            raise FormatError(f"{path}: its checksum is wrong; has the disk lost something?")
    file.seek(0)


def compact(folder: Path, schema: pa.Schema) -> None:
    """Merge a folder's parts into one file; safe against readers, other writers and crashes.

    Unreadable parts stay as they are. Uses memory for about ``_ROWS_PER_GROUP`` rows, whatever their number.
    """
    make_directory(folder)
    with locked(folder):
        # Finish an earlier merge first: a merged file may only go after the parts that it replaces.
        _remove_replaced(folder)
        parts = [part for part in _live_parts(folder)[0] if _is_whole(part, schema)]
        if len(parts) > 1:
            replaces = {_REPLACES: json.dumps([part.name for part in parts]).encode()}
            target = folder / f"merged-{time.time_ns():020d}-{uuid.uuid4().hex[:6]}.parquet"
            with _new_file(target, schema.with_metadata(replaces)) as writer:
                for table in _batches(parts, schema):
                    writer.write_table(table)
            _remove_replaced(folder)


def _remove_replaced(folder: Path) -> None:
    for name in _live_parts(folder)[1]:
        (folder / name).unlink(missing_ok=True)


def _is_whole(part: Path, schema: pa.Schema) -> bool:
    try:
        with ExitStack() as files:
            for _ in _groups(_open_parquet(files, part), schema):
                pass
    except BROKEN:
        return False
    return True


def _batches(parts: Iterable[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    for part in parts:
        with ExitStack() as files:
            for table in _groups(_open_parquet(files, part), schema):
                pending.append(table)
                if sum(table.num_rows for table in pending) >= _ROWS_PER_GROUP:
                    yield pa.concat_tables(pending).unify_dictionaries()
                    pending = []
    if pending:
        yield pa.concat_tables(pending).unify_dictionaries()


def _groups(file: Any, schema: pa.Schema) -> Iterator[pa.Table]:  # noqa: ANN401 - a ParquetFile
    """A file's row groups, checked; one empty group if it has none."""
    for group in range(file.num_row_groups):
        yield _checked(file.read_row_group(group, use_threads=False), schema)
    yield _checked(file.schema_arrow.empty_table(), schema)


def read_parts(
    folder: Path, schema: pa.Schema, columns: list[str] | None = None
) -> tuple[pa.Table, tuple[str, ...]]:
    """All rows of a folder in the order written, and a warning for each unreadable file."""
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    if not folder.is_dir():
        return wanted.empty_table(), ()
    tables, broken = [wanted.empty_table()], []
    # Blocks merges, which delete what they have read. Opens one file at a time: a killed or running session
    # has more files than a process may open.
    with locked(folder, shared=True):
        for part in _live_parts(folder)[0]:
            try:
                tables.append(read_file(part, wanted))
            except BROKEN:
                broken.append(f"{folder.name}/{part.name}: {UNREADABLE}; its rows are left out")
    return pa.concat_tables(tables).unify_dictionaries(), tuple(broken)


def _open_parquet(files: ExitStack, path: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """A ParquetFile that ``files`` closes. Raises one of BROKEN, also if it would fill the memory.

    Read it without Arrow's threads. One of them may free the last of Python's buffers after the read, and if
    Python ends meanwhile, it aborts the process.
    """
    source = files.enter_context(open_file(path, _MAX_BYTES))
    _check_crc(source, path)
    size = os.fstat(source.fileno()).st_size
    file = files.enter_context(pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True))
    metadata = file.metadata
    uncompressed = sum(
        metadata.row_group(group).column(column).total_uncompressed_size
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    if (
        metadata.num_rows > _ALWAYS_ALLOWED + size * _MAX_ROWS_PER_BYTE
        or uncompressed > _ALWAYS_ALLOWED + size * _MAX_COMPRESSION
    ):
        raise FormatError(f"{path}: {metadata.num_rows:,} rows in {size:,} bytes are no measurements")
    return file


def read_file(path: Path, wanted: pa.Schema) -> pa.Table:
    """The wanted columns of a file. Raises one of BROKEN."""
    with ExitStack() as files:
        return _checked(_open_parquet(files, path).read(columns=wanted.names, use_threads=False), wanted)


def _checked(table: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The table with exactly the wanted columns. Raises ValueError for impossible values."""
    table = table.cast(wanted)
    table.validate(full=True)
    for name in wanted.names:
        column = table[name]
        if column.null_count and name not in MAY_BE_MISSING:
            raise ValueError(f"{name}: a value is missing")
        if name in _RANGES:
            least, beyond = _RANGES[name]
            within = pc.and_(pc.greater_equal(column, least), pc.less(column, beyond))
            if not pc.all(within, min_count=0).as_py():
                raise ValueError(f"{name}: a value is out of range")
    return table


def _live_parts(folder: Path) -> tuple[list[Path], list[str]]:
    """Valid files in order, and the names of parts that a merged file replaces."""
    merged = sorted(folder.glob("merged-*.parquet"))
    replaced = {name for path in merged for name in _replaced_by(path)}
    # A merged file comes first: its rows were written before any remaining part.
    everything = merged + sorted(folder.glob("part-*.parquet"))
    return [path for path in everything if path.name not in replaced], sorted(replaced)


def _replaced_by(merged: Path) -> list[str]:
    """Parts listed in a merged file; as folders may be foreign, only valid names count."""
    try:
        with ExitStack() as files:
            names = parse_json(
                (_open_parquet(files, merged).schema_arrow.metadata or {}).get(_REPLACES, b"[]")
            )
            return [name for name in names if _PART_NAME.fullmatch(name)]
    except BROKEN:
        return []
