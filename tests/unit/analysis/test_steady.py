"""When misses are steady."""

from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.analysis.steady import WINDOWS, MissRate

WINDOW = 50
MIB = 1024**2


def after(reads: list[float], room: float = 0.0) -> MissRate:
    """Windows that read so much, one after the other, into a page cache with so much room."""
    misses, counter, cached = MissRate(WINDOW, 7.0, 9.0), 7.0, 9.0
    for read in reads:
        for request in range(1, WINDOW + 1):
            misses.requests += 1
            assert misses.ends_window == (request == WINDOW)
        counter += read
        cached = min(cached + read, 9.0 + room)
        misses.add(counter, cached)
    return misses


def test_a_cache_that_fills_is_steady_once_windows_read_alike() -> None:
    reads = [40 * MIB, 20 * MIB, 11 * MIB, 10 * MIB, 10 * MIB]
    assert [after(reads[:count]).is_steady for count in range(6)] == [False] * 5 + [True]
    assert after(reads).windows == reads


def test_a_cache_that_fills_reads_alike_and_is_not_steady_before_it_is_full() -> None:
    """Nearly every page is missed while there are few: 8 windows of 40 MiB have room."""
    made = [after([40 * MIB] * count, room=8 * 40 * MIB) for count in range(12)]
    assert [each.is_steady for each in made] == [False] * 10 + [True] * 2  # two of three gave up as much
    assert made[8].is_filling
    assert not made[10].is_filling


@given(st.integers(WINDOWS, 12), st.floats(1, 1e3))
def test_no_cache_with_room_for_all_that_it_reads_is_steady(count: int, size: float) -> None:
    assert not after([size * MIB] * count, room=1e15).is_steady


def test_what_is_all_in_memory_is_steady_whatever_a_page_more_or_less() -> None:
    assert after([0, 4096, 0]).is_steady
    assert not after([0, 4096 * WINDOW, 0]).is_steady


@given(st.lists(st.floats(0, 1e12), max_size=8))
def test_fewer_windows_than_that_never_are_and_the_last_ones_decide(reads: list[float]) -> None:
    assert not after(reads[: WINDOWS - 1]).is_steady
    assert after([*reads, *[5.0 * MIB] * WINDOWS]).is_steady
