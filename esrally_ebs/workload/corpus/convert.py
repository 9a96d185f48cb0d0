"""GHCN-Daily files as NOAA publishes them -> a corpus file in random order, as Rally's ``noaa`` corpus is.

Sorting is left to sort(1), which needs no memory: first the rows by station and day, then the documents by a
hash of what they say, so that the same files give the same bytes.
"""

import gzip
import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from esrally_ebs.errors import PlanError
from esrally_ebs.machine.processes import run
from esrally_ebs.workload.corpus import ghcn
from esrally_ebs.workload.corpus.files import Corpus, adopt, disk_errors

_SORT_TIMEOUT_S: Final = 6 * 3600.0


def convert(
    by_year: Sequence[Path], directory: Path, *, stations: Path, countries: Path, states: Path
) -> Corpus:
    """Write ``documents-<count>.json`` with its offset table and stamp into ``directory``.

    ``by_year`` are ``<year>.csv`` or ``<year>.csv.gz``, the others NOAA's ``ghcnd-*.txt``. Takes up to three
    times the size of the rows on the disk of ``directory``. Raises PlanError for a file that is missing or
    not in NOAA's format, or when no row gives a document; SetupError when the disk is full.
    """
    known = ghcn.parse_stations(
        _lines(stations),
        countries=ghcn.parse_names(_lines(countries)),
        states=ghcn.parse_names(_lines(states)),
    )
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".convert-", dir=directory) as scratch:
            written = _documents(by_year, known, Path(scratch))
            if written.stat().st_size == 0:
                raise PlanError(
                    f"{by_year[0]}: no row belongs to a station of {stations}; take all files from one place"
                )
            return adopt(written, directory)


def _documents(by_year: Sequence[Path], known: Mapping[str, ghcn.Station], scratch: Path) -> Path:
    """All documents in random order, in a file in ``scratch``."""
    rows = _sorted([_plain(path, scratch) for path in by_year], scratch / "rows", "-t,", "-k1,2")
    keyed = scratch / "keyed"
    with rows.open(encoding="utf-8", errors="replace") as source, keyed.open("w") as target:
        parsed = (ghcn.parse_row(line) for line in source)
        target.writelines(_keyed(ghcn.documents(parsed, known)))
    rows.unlink()
    shuffled = _sorted([keyed], scratch / "shuffled")
    keyed.unlink()
    written = scratch / "documents.json"
    with shuffled.open() as source, written.open("w") as target:
        target.writelines(line.partition("\t")[2] for line in source)
    return written


def _keyed(documents: Iterable[str]) -> Iterator[str]:
    for document in documents:
        yield f"{hashlib.blake2b(document.encode(), digest_size=8).hexdigest()}\t{document}\n"


def _sorted(sources: Sequence[Path], target: Path, *keys: str) -> Path:
    run(
        ["sort", *keys, "-T", str(target.parent), "-o", str(target), "--", *map(str, sources)],
        timeout_s=_SORT_TIMEOUT_S,
        env={"LC_ALL": "C"},
    )
    return target


def _plain(path: Path, scratch: Path) -> Path:
    """The file itself, or what is in it, for sort(1) reads no gzip."""
    if path.suffix != ".gz":
        with _open(path):
            return path
    _open(path).close()
    plain = scratch / f"{len(list(scratch.iterdir()))}-{path.stem}"  # two may have one name
    try:
        with gzip.open(path) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise PlanError(f"{path}: cannot be read as gzip: {error}; fetch the file anew") from error
    return plain


def _lines(path: Path) -> Iterator[str]:
    with _open(path) as file:
        yield from file


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlanError(f"{path}: {os.strerror(error.errno or 0)}; name a file of GHCN-Daily") from error
