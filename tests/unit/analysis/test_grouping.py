"""Rows grouped by a few columns: each row in one group, in order, whatever chunks the table came in."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from esrally_ebs.analysis.summary import rows_by

ROWS = st.lists(st.tuples(st.sampled_from(["q", "b", "z"]), st.integers(0, 3)), max_size=40)
COLUMN = pa.dictionary(pa.int32(), pa.string())


def table(rows: list[tuple[str, int]], cut: int) -> pa.Table:
    """Two chunks, each with a dictionary of its own."""
    parts = [rows[:cut], rows[cut:]]
    texts = [pa.array([text for text, _ in part]).cast(pa.string()).dictionary_encode() for part in parts]
    numbers = [pa.array([number for _, number in part], pa.int32()) for part in parts]
    return pa.table({"text": pa.chunked_array(texts, COLUMN), "number": pa.chunked_array(numbers)})


@given(ROWS, st.integers(0, 40))
def test_every_row_is_in_the_group_of_its_values_and_rows_keep_their_order(
    rows: list[tuple[str, int]], cut: int
) -> None:
    groups = rows_by(table(rows, cut), ["text", "number"])
    assert sorted(int(row) for _, group in groups for row in group) == list(range(len(rows)))
    for key, group in groups:
        assert {rows[row] for row in group} == {key}
        assert list(group) == sorted(group)


def test_texts_rank_by_their_first_appearance_and_numbers_by_their_size() -> None:
    rows = [("z", 2), ("b", 1), ("z", 1), ("b", 0)]
    keys = [key for key, _ in rows_by(table(rows, 2), ["text", "number"])]
    assert keys == [("z", 1), ("z", 2), ("b", 0), ("b", 1)]


def test_many_groups_are_told_apart() -> None:
    count = 40_000  # more than 16 bits hold
    made = pa.table({"number": pa.array(range(count)), "same": pa.array([0] * count)})
    assert [key for key, _ in rows_by(made, ["number", "same"])] == [(n, 0) for n in range(count)]
