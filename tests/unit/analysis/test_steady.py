"""When misses are steady."""

from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.analysis.steady import WINDOWS, MissRate

WINDOW = 50
MIB = 1024**2


def after(reads: list[float]) -> MissRate:
    """Windows that read so much, one after the other."""
    misses, counter = MissRate(WINDOW, 7.0), 7.0
    for read in reads:
        for request in range(1, WINDOW + 1):
            misses.requests += 1
            assert misses.ends_window == (request == WINDOW)
        counter += read
        misses.add(counter)
    return misses


def test_a_cache_that_fills_is_steady_once_windows_read_alike() -> None:
    reads = [40 * MIB, 20 * MIB, 11 * MIB, 10 * MIB, 10 * MIB]
    assert [after(reads[:count]).is_steady for count in range(6)] == [False] * 5 + [True]
    assert after(reads).windows == reads


def test_what_is_all_in_memory_is_steady_whatever_a_page_more_or_less() -> None:
    assert after([0, 4096, 0]).is_steady
    assert not after([0, 4096 * WINDOW, 0]).is_steady


@given(st.lists(st.floats(0, 1e12), max_size=8))
def test_fewer_windows_than_that_never_are_and_the_last_ones_decide(reads: list[float]) -> None:
    assert not after(reads[: WINDOWS - 1]).is_steady
    assert after([*reads, *[5.0 * MIB] * WINDOWS]).is_steady
