"""Lists gathered by compiled code are those that Python's own lists give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_telemetry_lake.udfs.kernels.ragged import Ragged, gathered

COUNTS, BOUNDS = pa.list_(pa.int64()), pa.list_(pa.float64())
INT64S = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.lists(INT64S, max_size=5), max_size=8), st.data())
def test_gathered_lists_are_those_of_the_chosen_rows(lists: list[list[int]], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(-1, len(lists) - 1), max_size=20))
    chosen = gathered((Ragged.of(pa.array(lists, COUNTS)), np.array(rows, np.int64)))
    valid = np.array(rows, np.int64) >= 0
    assert chosen.to_arrow(COUNTS, valid).to_pylist() == [lists[row] if row >= 0 else None for row in rows]
    assert chosen.to_arrow(COUNTS).to_pylist() == [lists[row] if row >= 0 else [] for row in rows]


@given(st.lists(st.tuples(st.booleans(), st.lists(st.floats(), max_size=5)), max_size=12))
def test_a_row_has_the_list_of_the_part_that_has_one(rows: list[tuple[bool, list[float]]]) -> None:
    parts = [pa.array([items if which is side else None for which, items in rows], BOUNDS) for side in (True, False)]
    every = np.arange(len(rows))
    joined = gathered(*((Ragged.of(part), every) for part in parts))
    assert joined.items.tobytes() == np.array([item for _, items in rows for item in items], np.float64).tobytes()
    assert np.diff(joined.first).tolist() == [len(items) for _, items in rows]


def test_lists_of_a_slice_keep_their_items() -> None:
    lists = pa.array([[1, 2], [3], None, [4, 5, 6]], COUNTS).slice(1)
    ragged = Ragged.of(lists)
    assert ragged.to_arrow(COUNTS).to_pylist() == [[3], [], [4, 5, 6]]
    assert gathered((ragged, np.array([2, 0]))).to_arrow(COUNTS).to_pylist() == [[4, 5, 6], [3]]


def test_lists_that_are_all_chosen_in_their_order_are_not_copied() -> None:
    ragged = Ragged.of(pa.array([[9], [1, 2], None, [3], [4, 5]], COUNTS).slice(1))
    lists = [[1, 2], [], [3], [4, 5]]
    for rows, is_shared in (
        ([0, 1, 2, 3], True),
        ([-1, 0, -1, 2, 3, -1], True),  # the one that isn't chosen has no items
        ([0, 2, 1, 3], False),
        ([3, 2, 1, 0], False),
        ([0, 3], False),
        ([0, 0, 2], False),  # as many items as all have
    ):
        chosen = gathered((ragged, np.array(rows)))
        assert chosen.to_arrow(COUNTS).to_pylist() == [lists[row] if row >= 0 else [] for row in rows]
        assert np.shares_memory(chosen.items, ragged.items) is is_shared


def test_a_count_above_int64_is_negative() -> None:
    lists = pa.array([[(1 << 64) - 1, 1 << 63, 7]], pa.list_(pa.uint64()))
    assert Ragged.of(lists).items.tolist() == [-1, -(1 << 63), 7]
