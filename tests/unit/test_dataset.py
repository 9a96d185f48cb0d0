"""What a built dataset must hold."""

from pathlib import Path

import pytest

from esrally_ebs import dataset
from esrally_ebs.errors import MeasurementError


def test_an_index_that_lost_a_document_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        MeasurementError, match=r"the index has 19,999 documents, documents-20000.json has 20,000"
    ):
        dataset.require_all(19_999, 20_000, Path("documents-20000.json"))


def test_an_index_with_all_documents_is_taken() -> None:
    dataset.require_all(20_000, 20_000, Path("documents-20000.json"))
