"""For tests of what is replaced in Rally: it is as it was after each."""

from collections.abc import Iterator

import pytest

from esrally_ebs.rally import patches


@pytest.fixture
def rally() -> Iterator[None]:
    """Rally as it was, after the test."""
    before = [(patch, getattr(patch.owner, patch.name, None)) for patch in patches.TABLE]
    yield
    for patch, thing in before:
        if thing is not None:
            setattr(patch.owner, patch.name, thing)
        elif hasattr(patch.owner, patch.name):
            delattr(patch.owner, patch.name)
