"""The record of an attached volume that was cut: one line that says where, and no guess."""

from pathlib import Path

import pytest

from esrally_ebs.errors import SetupError
from esrally_ebs.volumes.record import RECORD_NAME, Record, read_record, write_record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = Record(
        backend="directory",
        name="a",
        type="directory",
        created=(tmp_path / "x" / "y",),
    )
    write_record(tmp_path / "a", record)

    assert read_record(tmp_path / "a") == record
    assert read_record(tmp_path / "b") is None


def test_a_record_that_was_cut_is_named(tmp_path: Path) -> None:
    (tmp_path / RECORD_NAME).write_text('{"backend": "emul')

    with pytest.raises(SetupError, match=r"volume\.json: cut, or not ours; look at what is mounted there"):
        read_record(tmp_path)
