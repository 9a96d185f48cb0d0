"""The corpus file: same bytes for everyone, complete or not there, and what Rally needs beside it."""

import fcntl
import hashlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from esrally_ebs.errors import PlanError, SetupError
from esrally_ebs.machine.processes import SYSTEM_CLOCK, Process
from esrally_ebs.workload.corpus import ensure, files, generate

THREE_CHUNKS = 100_001  # chunks are 50,000 documents
# Changes only together with FORMAT in esrally_ebs/workload/corpus/files.py.
FIRST_THOUSAND_SHA256 = "0c686775237fe9a21c46b1cbfd6e153103f8eee0bb56dbd4c9137e15791f0bd1"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Watched:
    """A corpus, what was told while it was written, and how its workers were called."""

    path: Path
    progress: list[int]
    titles: set[str]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Three chunks, written by two workers."""
    watched = Watched(tmp_path_factory.mktemp("by-two") / "documents.json", [], set())

    def look(documents: int) -> None:
        watched.progress.append(documents)
        # one chunk each: when the first is written, both have started, and both wait for the parent
        if documents == 50_000:
            pids = [child.pid for child in multiprocessing.active_children()]
            watched.titles.update(Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0") for pid in pids)

    generate(watched.path, documents=THREE_CHUNKS, workers=2, progress=look)
    return watched


def test_the_bytes_do_not_depend_on_the_number_of_workers(by_two: Watched, tmp_path: Path) -> None:
    others = [
        generate(tmp_path / f"{workers}.json", documents=THREE_CHUNKS, workers=workers) for workers in (1, 3)
    ]
    assert {sha256(corpus.path) for corpus in others} == {sha256(by_two.path)}


def test_the_bytes_of_a_seed_are_pinned(tmp_path: Path) -> None:
    corpus = generate(tmp_path / "documents.json", documents=1000, seed=42)
    assert sha256(corpus.path) == FIRST_THOUSAND_SHA256


def test_another_seed_gives_other_documents(tmp_path: Path) -> None:
    first = generate(tmp_path / "1.json", documents=100, seed=1)
    second = generate(tmp_path / "2.json", documents=100, seed=2)
    assert set(first.path.read_text().splitlines()).isdisjoint(second.path.read_text().splitlines())


@pytest.mark.parametrize("documents", [1, 7, 50_000, 50_001])
def test_there_are_exactly_as_many_documents_as_asked_for(tmp_path: Path, documents: int) -> None:
    corpus = generate(tmp_path / "documents.json", documents=documents)
    text = corpus.path.read_bytes()
    assert (text.count(b"\n"), len(text)) == (documents, corpus.bytes)


def test_a_small_corpus_is_the_beginning_of_a_larger_one(tmp_path: Path) -> None:
    small = generate(tmp_path / "small.json", documents=10)
    large = generate(tmp_path / "large.json", documents=1000)
    assert large.path.read_bytes().startswith(small.path.read_bytes())


def test_rally_finds_the_offset_after_every_50000th_line(by_two: Watched) -> None:
    lines = by_two.path.read_bytes().splitlines(keepends=True)
    expected = [f"{line};{sum(map(len, lines[:line]))}" for line in (50_000, 100_000)]
    table = by_two.path.with_name("documents.json.offset")
    assert table.read_text().splitlines() == expected
    # Rally builds the table again when it is older than the documents
    assert table.stat().st_mtime >= by_two.path.stat().st_mtime


def test_progress_ends_with_all_documents(by_two: Watched) -> None:
    assert by_two.progress == [50_000, 100_000, 100_001]


def test_a_complete_corpus_is_used_again(tmp_path: Path) -> None:
    made = ensure(tmp_path, documents=100)
    inode = made.path.stat().st_ino
    assert ensure(tmp_path, documents=100) == made
    assert made.path.stat().st_ino == inode


def test_a_corpus_of_another_seed_is_made_again(tmp_path: Path) -> None:
    first = sha256(ensure(tmp_path, documents=100, seed=1).path)
    assert sha256(ensure(tmp_path, documents=100, seed=2).path) != first


@pytest.mark.parametrize("suffix", ["", ".stamp", ".offset"])
def test_a_damaged_corpus_is_made_again(tmp_path: Path, suffix: str) -> None:
    made = ensure(tmp_path, documents=100)
    whole = sha256(made.path)
    damaged = made.path.with_name(made.path.name + suffix)
    if suffix == ".offset":
        damaged.unlink()
    else:
        damaged.write_bytes(damaged.read_bytes()[:-5])
    assert sha256(ensure(tmp_path, documents=100).path) == whole


def test_an_old_corpus_stays_when_its_replacement_fails(tmp_path: Path) -> None:
    made = ensure(tmp_path, documents=100, seed=1)
    before = sha256(made.path)
    with files_no_larger_than(1000), pytest.raises(SetupError):
        ensure(tmp_path, documents=100, seed=2)
    assert sha256(made.path) == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_file_that_cannot_grow_is_one_line_and_leaves_nothing(tmp_path: Path, workers: int) -> None:
    with (
        files_no_larger_than(1_000_000),
        pytest.raises(SetupError, match=r"documents\.json: cannot write .+; \w") as e,
    ):
        generate(tmp_path / "documents.json", documents=THREE_CHUNKS, workers=workers)
    assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_the_workers_and_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_documents: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path / "documents.json", documents=THREE_CHUNKS, workers=2, progress=interrupt)
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []


def test_a_killed_worker_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    def kill(_documents: int) -> None:
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(SetupError, match=r"was killed; \w"):
        generate(tmp_path / "documents.json", documents=THREE_CHUNKS, workers=2, progress=kill)
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []


def test_workers_end_quietly_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import multiprocessing, os, signal, sys, pathlib\n"
        "from esrally_ebs.workload.corpus import generate\n"
        "def die(_documents):\n"
        "    print(*[child.pid for child in multiprocessing.active_children()], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"generate(pathlib.Path(sys.argv[1]), documents={THREE_CHUNKS}, workers=2, progress=die)\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "documents.json")]
    # returns only when the workers, which inherited stdout, have closed it: they are exiting or have ended
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    workers = [int(pid) for pid in ended.stdout.split()]
    assert len(workers) == 2
    assert SYSTEM_CLOCK.wait_until(lambda: not any(map(Process.of, workers)), limit_s=5, poll_s=0.01)


def test_what_a_killed_generation_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".documents.json.partial").write_bytes(bytes(1_000_000))
    corpus = generate(tmp_path / "documents.json", documents=10)
    assert corpus.path.stat().st_size == corpus.bytes
    assert not (tmp_path / ".documents.json.partial").exists()


def test_workers_do_not_look_like_a_rally_process(by_two: Watched) -> None:
    assert by_two.titles == {"ebs-corpus"}


def test_two_generations_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "documents.json"
    with path.with_name(".documents.json.partial").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(SetupError, match="another process is writing it"):
            generate(path, documents=10)


def test_what_another_process_begins_once_a_file_is_in_place_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "documents.json", tmp_path / ".documents.json.partial"
    monkeypatch.setattr(files, "_write_whole", lambda *_: others.touch())
    generate(path, documents=10)
    assert others.exists()


@pytest.mark.parametrize("documents", [0, -1, 40_000_000])
def test_an_impossible_number_of_documents_is_refused(tmp_path: Path, documents: int) -> None:
    with pytest.raises(PlanError, match="choose between 1 and 33716376"):
        generate(tmp_path / "documents.json", documents=documents)


def test_what_is_no_file_is_never_replaced_by_one(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    for name in ("null", "folder"):
        with pytest.raises(PlanError, match=rf"{name}: is no file; name one"):
            generate(tmp_path / name, documents=1)
    assert (tmp_path / "null").is_char_device()


def test_no_link_that_somebody_has_put_there_is_written_through(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.write_text("years of work")
    (tmp_path / ".corpus.json.partial").symlink_to(thesis)
    with pytest.raises(
        SetupError, match=r"corpus\.json: cannot write the corpus: Too many levels of symbolic"
    ):
        generate(tmp_path / "corpus.json", documents=10)
    assert thesis.read_text() == "years of work"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's file")
def test_a_corpus_is_written_into_no_file_of_another_user(tmp_path: Path) -> None:
    theirs = tmp_path / ".corpus.json.partial"
    theirs.touch()
    os.chown(theirs, 65534, 65534)
    with pytest.raises(SetupError, match=r"\.corpus\.json\.partial: belongs to another user"):
        generate(tmp_path / "corpus.json", documents=10)


def test_the_stamp_does_not_name_the_directory(tmp_path: Path) -> None:
    made = ensure(tmp_path, documents=10)
    stamp = json.loads((tmp_path / "documents-10.json.stamp").read_text())
    kind = {"seed": 42, "format": 1, "source": "synthetic"}
    assert stamp == {"path": made.path.name, "documents": 10, "bytes": made.bytes, **kind}


@contextmanager
def files_no_larger_than(limit_bytes: int) -> Iterator[None]:
    """Stands in for a full disk: writing further fails with EFBIG, in forked workers too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
