"""What fields of log lines become, whatever a log holds."""

import tracemalloc
from collections.abc import Callable

import pytest

from esrally_ebs.workload.queries.fields import client_of, number_of, took_ms_of


@pytest.mark.parametrize("parse", [client_of, number_of, lambda text: took_ms_of(text, 1)])
def test_long_texts_are_not_kept(parse: Callable[[str], object]) -> None:
    """A log may hold thousands of 16 MiB each; those that were met last were kept to look them up."""
    tracemalloc.start()
    try:
        for number in range(100):
            parse(f"{number}ms" + 100_000 * "x")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
