"""What a built dataset must hold, and a record of one that cannot be read."""

from pathlib import Path

import pytest

from esrally_ebs import dataset
from esrally_ebs.errors import MeasurementError, SetupError


def test_an_index_that_lost_a_document_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        MeasurementError, match=r"the index has 19,999 documents, documents-20000.json has 20,000"
    ):
        dataset.require_all(19_999, 20_000, Path("documents-20000.json"))


def test_an_index_with_all_documents_is_taken() -> None:
    dataset.require_all(20_000, 20_000, Path("documents-20000.json"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"segments": 3}', '{"segments": [], "colour": 1}'])
def test_a_record_that_was_damaged_says_what_to_remove(tmp_path: Path, text: str) -> None:
    path = tmp_path / "datasets" / "key"
    path.mkdir(parents=True)
    (path / "dataset.json").write_text(text)
    with pytest.raises(SetupError, match=rf"dataset.json: not the record of a built index; remove {path}"):
        dataset.ensure(
            tmp_path,
            "key",
            documents=lambda: Path("none"),
            index_body={},
            start=lambda volume: pytest.fail(str(volume)),
            session="s",
            say=print,
        )
