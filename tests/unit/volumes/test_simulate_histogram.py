"""The bins that latencies of virtual time are counted in: as fine as fio's, and without gaps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.volumes.virtual.state import BINS, bin_of, middle_ns


@given(nanoseconds=st.floats(1, 17e9))
def test_the_middle_of_a_bin_is_within_a_percent_of_what_falls_into_it(nanoseconds: float) -> None:
    number = bin_of(nanoseconds)  # the last bin ends at 17.2 s, as fio's does
    assert 0 <= number < BINS
    assert middle_ns(number) == pytest.approx(nanoseconds, rel=1 / 127, abs=1)


def test_bins_follow_one_another_without_gaps() -> None:
    values = np.concatenate([np.arange(1, 2000, 0.5), np.geomspace(2000, 1e9, 20_000)])
    assert all(0 <= later - earlier <= 1 for earlier, later in pairwise(bin_of(value) for value in values))
