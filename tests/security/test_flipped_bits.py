"""A bit that changed in a file of the run directory: nothing that is not ours goes, and one line says so."""

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from esrally_ebs.aws.instance import Place
from esrally_ebs.aws.provision.goal import Goal
from esrally_ebs.aws.provision.journal import Journal, JournalEntry
from esrally_ebs.cli import main
from esrally_ebs.errors import EbsError
from esrally_ebs.model import BY_HAND
from esrally_ebs.session import clean
from esrally_ebs.store import running
from esrally_ebs.volumes.emulated import release
from esrally_ebs.volumes.record import Record, read_record, write_record

GOAL = Goal(
    session="s",
    arm="gp2",
    run="r",
    owner="i-0a1:boot:/run/esrally-ebs",
    place=Place(instance="i-0a1", zone="eu-west-1a", region="eu-west-1"),
    sort="ebs",
    type="gp2",
    size_gib=10,
    point=Path("/run/esrally-ebs/s/gp2/mnt"),
)


def flipped(data: bytes) -> Iterator[bytes]:
    """The data with a bit of each byte changed: one that makes digits of digits, or one that does not."""
    for place in range(len(data)):
        for bit in (0, 5):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def attempt(read: Callable[[], object]) -> tuple[object, str]:
    """What is read, and why it is not."""
    try:
        return read(), ""
    except EbsError as error:
        return None, str(error)


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_session_that_runs_is_never_taken_for_a_killed_one(run: Path, by_hand: bool) -> None:
    owner = running.begin("s") / "owner"
    if by_hand:
        running.hand_over("s")
    refused = 0
    for data in flipped(owner.read_bytes()):
        owner.write_bytes(data)
        for _, problems in clean.clean():
            assert re.fullmatch(rf"{owner}: not as it was written; .*", *problems)
            refused += 1
        assert owner.read_bytes() == data
    assert refused > 2 * len(BY_HAND)


def test_clean_goes_on_behind_an_owner_that_changed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for session in ("a", "b"):
        (running.begin(session) / "owner").write_text("1 0" if session == "b" else "1 ?")
    assert main(["clean"]) == 3
    printed = capsys.readouterr()
    assert (len(printed.err.splitlines()), (run / "a").exists(), (run / "b").exists()) == (1, True, False)
    (run / "a" / "owner").write_text("0 0\n")  # as the line says
    assert main(["clean"]) == 0
    assert not run.exists() or os.listdir(run) == []  # noqa: PTH208 - marks as well


@pytest.mark.parametrize("backend", ["emulated", "directory", "mounted"])
def test_a_record_names_what_it_named_or_is_refused(tmp_path: Path, backend: str) -> None:
    """The images of arms are gp2.img and gp3.img: one bit apart."""
    record = Record(
        backend=backend, name="gp2", type="gp2", created=(Path("/dev/shm/esrally-ebs/s/gp2.img"),)
    )
    write_record(tmp_path / "gp2", record)
    file = tmp_path / "gp2" / "volume.json"
    refused = 0
    for data in flipped(file.read_bytes()):
        file.write_bytes(data)
        actual, problem = attempt(partial(read_record, file.parent))
        assert actual == record or problem.startswith(f"{file}: cut, or not ours; ")
        refused += bool(problem)
    assert refused > 2 * len(str(record.created[0]))


def test_a_journal_names_what_it_named_or_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path, sync=lambda _: None)
    journal.begin(GOAL, 1.0)
    for state in ("intent", "done"):
        journal.append(JournalEntry(key="create/0", state=state, at_s=2.0, fields={"VolumeId": "vol-0a1"}))
    history = journal.read()
    refused = 0
    for data in flipped(journal.path.read_bytes()):
        journal.path.write_bytes(data)
        actual, problem = attempt(journal.read)
        assert actual == history or (problem.startswith(f"{journal.path}: ") and "\n" not in problem)
        refused += bool(problem)
    assert refused > 0


def test_only_the_loop_device_that_was_noted_is_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {f"loop{number}": 16 + number for number in range(8)}
    monkeypatch.setattr(release, "_loops", lambda: [(name, Path("/elsewhere")) for name in numbers])
    monkeypatch.setattr(release, "_sequence_number", lambda name: numbers[name])
    release.note_loops(tmp_path, ["loop1"])
    file = tmp_path / "loops.json"
    for data in (*flipped(file.read_bytes()), b'["loop1"]', b"1"):
        file.write_bytes(data)
        assert set(release._loops_of(tmp_path)) <= {"loop1"}
