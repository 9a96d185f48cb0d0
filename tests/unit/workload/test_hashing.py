"""The parts that the corpus takes its chance from."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from esrally_ebs.workload.corpus.hashing import (
    DRAWS,
    HashDraws,
    Permutation,
    gamma_table,
    keyed,
    normal_table,
    quantile_table,
)


@settings(deadline=None, max_examples=50)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**62))
def test_a_permutation_visits_every_place_once(size: int, seed: int) -> None:
    visited = Permutation(size, seed)(np.arange(size, dtype=np.int64))
    assert sorted(visited.tolist()) == list(range(size))


def test_a_permutation_can_be_read_in_parts() -> None:
    permutation = Permutation(1000, 7)
    whole = permutation(np.arange(1000, dtype=np.int64))
    part = permutation(np.arange(300, 400, dtype=np.int64))
    assert part.tolist() == whole[300:400].tolist()


def test_draws_are_uniform_and_do_not_follow_each_other() -> None:
    draws = HashDraws(keyed(42, np.arange(100_000, dtype=np.int64)))
    columns = np.stack([draws.next() for _ in range(12)])
    # the mean of 100,000 draws has a standard error of 0.289 / 316 = 0.0009
    assert np.abs(columns.mean(axis=1) / DRAWS - 0.5).max() < 0.004
    correlation = np.corrcoef(columns) - np.eye(12)
    assert np.abs(correlation).max() < 0.015  # standard error 0.003


def test_the_normal_table_has_mean_zero_and_deviation_one() -> None:
    scores = normal_table() / 1000
    assert abs(scores.mean()) < 0.001
    assert abs(scores.std() - 1) < 0.002


def test_the_gamma_table_has_mean_one_and_its_deviation() -> None:
    values = gamma_table(7.5) / 1000
    assert abs(values.mean() - 1) < 0.002
    assert abs(values.std() - 7.5**-0.5) < 0.005


def test_quantiles_are_linear_between_their_points() -> None:
    # half the entries are 0; the rest rises from 0 to 100, each entry at the middle of its share
    assert quantile_table([[0, 0], [500, 0], [1000, 100]], 8).tolist() == [0, 0, 0, 0, 12, 37, 62, 87]
