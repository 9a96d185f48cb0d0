"""Imports query logs into a directory with a Rally track, in bounded memory.

Reads the logs once, or twice if lines of slow logs are not in order of time.
"""

import hashlib
import heapq
import os
import secrets
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from esrally_ebs.errors import FormatError, PlanError, SetupError
from esrally_ebs.machine.signals import interrupts_later
from esrally_ebs.model import TimedRequest
from esrally_ebs.units import number_of
from esrally_ebs.workload.queries.formats import FORMATS, Format
from esrally_ebs.workload.queries.logs import BEGINNING_BYTES, NOT_READ, Log, next_step
from esrally_ebs.workload.queries.output import ImportSummary, write_track
from esrally_ebs.workload.queries.prepare import AUTO, Options, Preparer, ReplayedRequest, why_no_index
from esrally_ebs.workload.queries.replay import MAX_TASKS, QUERIES
from esrally_ebs.workload.queries.rest import is_header
from esrally_ebs.workload.queries.search import LoggedSearch, Part, Reason
from esrally_ebs.workload.queries.shards import Joiner, OutOfOrderError, ended_us

RUN_BYTES: Final = 24 << 20
_READ_BYTES: Final = 128 << 10
_TIME_DIGITS: Final = 18
_PREFIX: Final = _TIME_DIGITS + 12  # time and position in the log
_LINES_TO_LOOK_AT: Final = 2_000  # a container's log begins with messages of the starting node
_NAMES_TO_SHOW: Final = 5
_MAX_PATH: Final = 200  # characters
_Used = TypeVar("_Used")


class Ordering:
    """Sorts ``(microseconds, line)`` by time, even more than fit into memory.

    Sorts runs of RUN_BYTES; each run goes to a temporary file in ``folder``, without a name, so that it
    disappears with the process; finally merges the runs. Lines of the same microsecond keep their order.
    """

    def __init__(self, folder: Path | None, *, run_bytes: int = RUN_BYTES) -> None:
        self.count = 0
        self._run: list[bytes] = []
        self._size = 0
        self._run_bytes = run_bytes
        self._ends = [0]
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()

    def close(self) -> None:
        self._file.close()

    def add(self, at_us: int, line: bytes) -> None:
        """Add a line, with its line end; ``at_us`` is at least 0 and has at most 18 digits."""
        row = b"%018d%012d%b" % (at_us, self.count, line)
        self.count += 1
        self._run.append(row)
        self._size += len(row)
        if self._size >= self._run_bytes:
            self._spill()

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """All times and lines in order; call it only once."""
        self._spill()  # the last run, too: as many orderings as logs wait for one another
        runs = [self._read(start, end) for start, end in zip(self._ends, self._ends[1:], strict=False)]
        for row in heapq.merge(*runs):
            yield int(row[:_TIME_DIGITS]), row[_PREFIX:]

    def _spill(self) -> None:
        self._run.sort()
        self._file.writelines(self._run)
        self._file.flush()
        self._ends.append(self._file.tell())
        self._run.clear()
        self._size = 0

    def _read(self, start: int, end: int) -> Iterator[bytes]:
        pending = b""
        while start < end:
            chunk = os.pread(self._file.fileno(), min(_READ_BYTES, end - start), start)
            start += len(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"


def import_logs(logs: Sequence[Path], output: Path, options: Options | None = None) -> ImportSummary:
    """Write the workload of ``logs`` to the new directory ``output``.

    Only reads the logs. Raises PlanError for an unusable log, directory or option, FormatError if there is no
    request to race, SetupError if the disk fails; then ``output`` does not exist.
    """
    options = options or Options()
    if options.format != AUTO and options.format not in FORMATS:
        raise PlanError(f"--format {options.format}: choose {AUTO}, {', '.join(FORMATS)}")
    if options.index is not None and (reason := why_no_index(options.index.split(","), signs="_+-")):
        raise PlanError(f"--index {options.index}: {reason}; name an index, an alias or a data stream")
    with ExitStack() as stack:
        opened = _open_all(logs, stack)
        format_ = _format_of(opened, options.format)
        folder = stack.enter_context(_new_directory(output))

        def ordered(reading: _Reading) -> Ordering:
            ordering = stack.enter_context(closing(Ordering(folder)))
            try:
                reading.into(ordering)
            except OutOfOrderError:
                ordering.close()  # frees disk space for the next one
                raise
            return ordering

        reading, ordering = _read(opened, format_, options, ordered, folder)
        return _write(folder, output, reading, ordering)


def require_known_format(logs: Sequence[Path]) -> None:
    """Raise FormatError for a log of unknown format; an empty log may become any."""
    with ExitStack() as stack:
        begun = [log for log in _open_all(logs, stack) if log.beginning != b""]
        if begun:
            _format_of(begun, AUTO)


def timed_requests(logs: Sequence[Path]) -> tuple[list[TimedRequest], list[str]]:
    """Searches with a logged duration, by their begins, and notes about them.

    Raises PlanError or FormatError like import_logs, and for logs without durations.
    """
    with ExitStack() as stack:
        opened = _open_all(logs, stack)

        def of(reading: _Reading) -> list[TimedRequest]:
            return [
                TimedRequest(search.at_us / 1e6, search.took_ms / 1e3, request.template, search.hits)
                for search, request in reading.requests()
                if search.took_ms is not None and reading.format.has_arrivals
            ]

        reading, timed = _read(opened, _format_of(opened, AUTO), Options(), of)
        if not timed:
            kind = ": ".join(filter(None, (reading.format.title, reading.format.lacks)))
            raise FormatError(
                f"{logs[0]}: no search with a time and a duration ({kind}); give a slow log with thresholds"
                " of 0ms, or a query log"
            )
        return sorted(timed, key=lambda one: one.began_s), reading.notes()


def _read(
    logs: Sequence[Log],
    format_: Format,
    options: Options,
    use: Callable[["_Reading"], _Used],
    folder: Path | None = None,
) -> tuple["_Reading", _Used]:
    """``use`` applied to a reading of the logs; again with a sorted one if times are out of order."""
    reading = _Reading(logs, format_, options)
    try:
        return reading, use(reading)
    except OutOfOrderError:
        for log in logs:
            log.rewind()
    reading = _Reading(logs, format_, options, is_to_sort=True, folder=folder)
    return reading, use(reading)


class _Reading:
    """One pass over the logs: counts what is left out, and yields requests."""

    def __init__(
        self,
        logs: Sequence[Log],
        format_: Format,
        options: Options,
        *,
        is_to_sort: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.logs = logs
        self.is_to_sort = is_to_sort
        self.folder = folder  # for temporary files
        self.format = format_
        self.options = options
        self.excluded: Counter[Reason] = Counter()
        self.first: dict[Reason, str] = {}
        self.joiner = Joiner()
        self.preparer = Preparer(options, written_us=max(log.written_us for log in logs))
        self.zoned: set[bool] = set()  # whether times have time zones

    def into(self, ordering: Ordering) -> None:
        """Read everything. Raises FormatError or PlanError if there is nothing to race."""
        for _, request in self.requests():
            ordering.add(request.at_us, request.fields)
        if not ordering.count:
            raise self._nothing()

    def requests(self) -> Iterator[tuple[LoggedSearch, ReplayedRequest]]:
        """Each search with the request that it becomes; others are counted."""
        streams = [self._sorted(log) if self.is_to_sort else self._searches(log) for log in self.logs]
        # shards of one request may be in several nodes' logs
        by_time = heapq.merge(*streams, key=ended_us) if len(streams) > 1 else streams[0]
        for search in self.joiner.requests(by_time):
            request = self.preparer.request(search)
            if isinstance(request, Reason):
                self._leave_out(request)
            else:
                yield search, request

    @property
    def lines(self) -> int:
        return sum(log.line for log in self.logs)

    def notes(self) -> list[str]:
        """Notes about the result."""
        notes = [self.format.lacks] if self.format.lacks else []
        if False in self.zoned:
            notes.append("its times name no time zone and were read as UTC")
        if self.options.hash_literals:
            notes.append("hashed literals find nothing in documents that are not hashed the same way")
        if self.joiner.lacking:
            notes.append(
                f"of {self.joiner.lacking:,} of its {self.joiner.lines - self.joiner.joined:,} requests it "
                "lacks shards: faster than its threshold, skipped, or of nodes whose logs were not named"
            )
        if differ := self.joiner.clocks_differ():
            notes.append(differ)
        templates = self.preparer.templates.ranked()
        if len(templates) > MAX_TASKS:
            rest = sum(template.count for template in templates[MAX_TASKS:])
            share = rest / sum(template.count for template in templates)
            notes.append(
                f"the default challenge has the {MAX_TASKS} most frequent of {len(templates):,} templates; "
                f"the others are {share:.1%} of the requests"
            )
        return notes

    def _searches(self, log: Log) -> Iterator[LoggedSearch]:
        for entry in self.format.parse(log.lines()):
            if isinstance(entry, LoggedSearch):
                if entry.zoned not in self.zoned:
                    self._note_zone(entry, log)
                yield entry
            else:
                self._leave_out(entry.reason, log)

    def _sorted(self, log: Log) -> Iterator[LoggedSearch]:
        """A log's searches in order of their ends, wherever they are in the file."""
        with closing(Ordering(self.folder)) as ordering:
            for search in self._searches(log):
                # orjson writes a named tuple only as a plain one
                line = orjson.dumps(search, default=tuple, option=orjson.OPT_APPEND_NEWLINE)
                ordering.add(ended_us(search), line)
            for _, row in ordering.rows():
                search = LoggedSearch(*orjson.loads(row))
                params = tuple((name, value) for name, value in search.params)
                yield search._replace(params=params, part=search.part and Part(*search.part))

    def _note_zone(self, search: LoggedSearch, log: Log) -> None:
        self.zoned.add(search.zoned)
        if len(self.zoned) > 1:
            raise FormatError(
                f"{log.path}:{log.line}: some times name a time zone and some do not, so their order is not "
                "known; import the logs that name one and those that do not by themselves"
            )

    def _leave_out(self, reason: Reason, log: Log | None = None) -> None:
        self.excluded[reason] += 1
        if log is None and len(self.logs) == 1 and not self.joiner.lines:
            log = self.logs[0]  # no line was read since
        if log is not None and reason not in self.first:
            name = log.path.name.encode(errors="backslashreplace").decode()  # a file's name may be any bytes
            self.first[reason] = f"{name}:{log.line}"

    def _nothing(self) -> FormatError | PlanError:
        """The error for logs without any request."""
        where = str(self.logs[0].path) + (f" and {len(self.logs) - 1} more" if len(self.logs) > 1 else "")
        if self.options.index is not None and self.excluded[Reason.OTHER_INDEX]:
            names = [name for name in self.preparer.indices if name][:_NAMES_TO_SHOW]
            return PlanError(
                f"--index {self.options.index}: no search of {where} reaches it; it has {', '.join(names)}"
            )
        if self.options.index is None and self.excluded[Reason.NO_INDEX]:
            return PlanError(f"{where}: does not say which index is searched; say it with --index NAME")
        reasons = "; ".join(f"{reason}: {count:,}" for reason, count in self.excluded.most_common(3))
        return FormatError(
            f"{where}: no request to race in {number_of(self.lines, 'line')} read as {self.format.name} "
            f"({reasons or 'no entries'}); name another --format or log"
        )


def _write(folder: Path, output: Path, reading: _Reading, ordering: Ordering) -> ImportSummary:
    first_us = last_us = -1
    with (folder / QUERIES).open("wb") as file:
        for at_us, fields in ordering.rows():
            first_us = at_us if first_us < 0 else first_us
            last_us = at_us
            file.write(b'{"at":%.6f,%b' % ((at_us - first_us) / 1e6, fields))
    with (folder / QUERIES).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    summary = ImportSummary(
        output=output,
        format=reading.format.title,
        lines=reading.lines,
        requests=ordering.count,
        joined=reading.joiner.joined,
        seconds=(last_us - first_us) / 1e6,
        templates=len(reading.preparer.templates.ranked()),
        excluded={str(reason): count for reason, count in reading.excluded.items()},
        first={str(reason): place for reason, place in reading.first.items()},
        changed=dict(reading.preparer.changed),
        notes=reading.notes(),
        has_arrivals=reading.format.has_arrivals,
        digest=digest,
    )
    names = (name for name in reading.preparer.needed if name[0] not in "_-" and not set("*?") & set(name))
    write_track(folder, summary, reading.preparer.templates, sorted(names))  # without patterns
    return summary


def _open_all(paths: Sequence[Path], stack: ExitStack) -> list[Log]:
    """The logs, which the stack closes. Raises PlanError for a repeated one, as its searches would repeat."""
    logs: list[Log] = []
    for path in paths:
        log = stack.enter_context(closing(Log(path)))
        log.require_lines()
        for other in logs:
            shorter, longer = sorted((log.beginning or b"", other.beginning or b""), key=len)
            if not shorter or not longer.startswith(shorter):
                continue
            # also an earlier copy of one that grew; but files of _msearch, without times, may begin alike
            is_same = longer == shorter and (len(longer) < BEGINNING_BYTES or log.size == other.size)
            if is_same or not is_header(shorter.partition(b"\n")[0]):
                raise PlanError(f"{path}: begins as {other.path} does; name one of them, the longer")
        logs.append(log)
    return logs


def _format_of(logs: Sequence[Log], name: str) -> Format:
    begun = [log for log in logs if log.beginning != b""]  # today's file of rotated ones may be empty
    if not begun:
        raise FormatError(f"{logs[0].path}: is empty; name a log with searches")
    detected = {log: FORMATS[name] if name != AUTO else _detected(log) for log in begun}
    formats = {log.path: format_ for log, format_ in detected.items() if format_}
    if not formats:
        raise FormatError(
            f"{begun[0].path}: nothing in its first {number_of(begun[0].line, 'line')} is of a known format, "
            f"of which 'esrally-ebs workload import --format' takes one by name: {', '.join(FORMATS)}"
        )
    for log in begun:  # lines of an unknown one among others are counted, as are those within a log
        log.rewind()
    (first, format_), *others = formats.items()
    for path, other in others:
        if other.parse is not format_.parse:
            raise PlanError(
                f"{path}: is of the format {other.name}, {first} of {format_.name}; import them by themselves"
            )
    return format_


def _detected(log: Log) -> Format | None:
    """The format of the first line that only one format can have; None if there is no such line.

    Headers of an _msearch need not name an index: the first line may be one where no line shows a format.
    Raises FormatError, which says how to convert it, for a log within something else.
    """
    hint = ""
    begins_with_header = False
    for line, _ in zip(log.lines(), range(_LINES_TO_LOOK_AT), strict=False):
        for format_ in FORMATS.values():
            if format_.matches(line):
                return format_
        begins_with_header |= log.line == 1 and is_header(line)
        hint = hint or _hint(line)
    if begins_with_header:
        return FORMATS["msearch"]
    if hint:
        raise FormatError(f"{log.path}: is {hint}")
    return None


def _hint(line: bytes) -> str:
    """What a line of an unreadable format is, and what to do about it; "" if that is not known."""
    with suppress(orjson.JSONDecodeError):
        if way := _way_in(orjson.loads(line)):
            return f"a log within other JSON; take it out: jq {way}"
    return next((what for pattern, what in NOT_READ if pattern.match(line)), "")


def _way_in(node: Any, path: str = "") -> str:  # noqa: ANN401 - what JSON can hold
    """Arguments of jq that take a log's lines out of JSON around them; "" if there are none in it."""
    is_object = isinstance(node, dict)
    text = node.encode() if isinstance(node, str) else orjson.dumps(node) if is_object and path else b""
    if text and any(format_.has_arrivals and format_.matches(text) for format_ in FORMATS.values()):
        option = "-c" if is_object else "-rj" if text.endswith(b"\n") else "-r"
        return f"{option} {shlex.quote(path or '.')}"
    parts = node.items() if is_object else enumerate(node) if isinstance(node, list) else ()
    for key, part in parts if len(path) < _MAX_PATH else ():
        if is_object:
            is_plain = str(key).isidentifier() and str(key).isascii()  # which jq takes without quotes
            step = f"{path}.{key if is_plain else orjson.dumps(key).decode()}"
        else:  # a text within a table has its place
            step = f"{path or '.'}[{key if path.endswith(']') and isinstance(part, str) else ''}]"
        if way := _way_in(part, step):
            return way
    return ""


@contextmanager
def _new_directory(output: Path) -> Iterator[Path]:
    """A directory beside ``output``: it becomes ``output`` if the block succeeds, else it is removed."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise PlanError(f"--output {output}: is no directory; name a new one")
    try:
        if output.exists() and any(output.iterdir()):
            raise PlanError(f"--output {output}: is not empty; name a new directory")
        if output.is_dir() and (output.samefile(".") or output.resolve().is_mount()):
            raise PlanError(f"--output {output}: is the working directory, or a mount; name a new one in it")
        parents = [parent for parent in output.parents if not parent.exists()]
        output.parent.mkdir(parents=True, exist_ok=True)
        # named first, so that no signal in between can leave it behind
        folder = output.parent / f".{output.name}-{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
            yield folder
            os.rename(folder, output)  # noqa: PTH104 - takes the place of an empty directory
        finally:
            with interrupts_later():  # a closing terminal sends two
                shutil.rmtree(folder, ignore_errors=True)
                for parent in parents if not output.exists() else ():
                    with suppress(OSError):  # something else is in it by now
                        parent.rmdir()
    except OSError as error:
        hint = next_step(error, "name a directory with room that may be written to")
        raise SetupError(
            f"--output {output}: cannot be written: {error.strerror or error}; {hint}"
        ) from error
