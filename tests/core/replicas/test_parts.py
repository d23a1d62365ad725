"""Parts and cells of the rows of a sparse X."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.parts import ROW_OVERHEAD, cut_parts
from cec_mpi.errors import InputError


def row_pointers(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@given(
    counts=st.lists(st.integers(0, 40) | st.just(5000), min_size=1, max_size=200),
    parts=st.integers(1, 50),
    cells=st.integers(1, 20),
)
def test_parts_partition_the_rows_at_about_equal_costs(counts, parts, cells):
    indptr = row_pointers(counts)
    cut = cut_parts(indptr, parts, cells)
    rows = cut.first_rows
    assert 1 <= cut.count <= min(parts, len(counts))
    for bounds in (cut.bounds, rows):
        assert (bounds[0], bounds[-1]) == (0, len(counts))
        assert (np.diff(bounds) > 0).all()
    assert np.array_equal(cut.entries_before, indptr[rows])
    costs = np.array(counts) + ROW_OVERHEAD
    np.testing.assert_allclose(cut.costs, np.add.reduceat(costs, cut.bounds[:-1]))
    # A part costs at most its share and half a row at each end.
    assert cut.costs.max() <= costs.sum() / min(parts, len(counts)) + costs.max() + 1e-6
    np.testing.assert_allclose(cut.cost(rows[:-1], rows[1:]), np.diff(cut.cost_before))


@pytest.mark.parametrize(
    ("counts", "parts", "expected"),
    [
        ([1] * 100 + [10_000] + [1] * 100, 8, [0, 100, 101, 201]),
        ([1000] + [0] * 49, 4, [0, 1, 50]),
        ([0] * 49 + [1000], 4, [0, 49, 50]),
    ],
)
def test_an_expensive_row_is_a_part(counts, parts, expected):
    assert cut_parts(row_pointers(counts), parts, 4).bounds.tolist() == expected


def test_pointers_may_be_a_memory_map_of_int32(tmp_path):
    indptr = row_pointers(np.full(1000, 4)).astype(np.int32)
    np.save(tmp_path / "indptr.npy", indptr)
    cut = cut_parts(np.load(tmp_path / "indptr.npy", mmap_mode="r"), 5, 3)
    assert np.array_equal(cut.bounds, cut_parts(indptr, 5, 3).bounds)
    assert cut.entries_before.dtype == np.int64


def test_a_matrix_without_rows_is_rejected():
    with pytest.raises(InputError, match="a matrix without rows"):
        cut_parts(np.array([0]), 3, 3)
