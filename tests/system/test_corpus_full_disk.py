"""A disk without room for the corpus is noticed before or while writing, and nothing stays behind."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mounted import in_memory

from esrally_ebs.errors import SetupError
from esrally_ebs.workload.corpus import generate

pytestmark = [pytest.mark.system, pytest.mark.beside]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with in_memory(tmp_path / "disk", "size=20m") as mount:
        yield mount


def test_too_little_space_is_said_before_anything_is_written(small_disk: Path) -> None:
    with pytest.raises(SetupError, match=r"1000000 documents need 274\.7 MiB, 20\.0 MiB are free; make room"):
        generate(small_disk / "documents.json", documents=1_000_000)
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_disk_that_fills_up_meanwhile_keeps_nothing_partial(small_disk: Path, workers: int) -> None:
    other = small_disk / "other"

    def fill(_documents: int) -> None:
        other.write_bytes(bytes(6_000_000))

    # 60,000 documents are 17.2 MB: they fit at first, and no longer when another file takes 6 MB
    with pytest.raises(SetupError, match="No space left on device; make room or choose fewer documents"):
        generate(small_disk / "documents.json", documents=60_000, workers=workers, progress=fill)
    assert list(small_disk.iterdir()) == [other]
