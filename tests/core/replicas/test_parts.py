"""How rows of a sparse X are cut into parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.replicas.parts import ROW_OVERHEAD, cut_parts
from cec_mpi.errors import InputError


def indptr_of(counts):
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


@given(
    counts=st.lists(st.integers(0, 40) | st.just(5000), min_size=1, max_size=200),
    parts=st.integers(1, 50),
    cells=st.integers(1, 20),
)
def test_parts_follow_each_other_and_have_all_rows(counts, parts, cells):
    indptr = indptr_of(counts)
    cut = cut_parts(indptr, parts, cells)
    assert 1 <= cut.count <= min(parts, len(counts))
    assert (cut.bounds[0], cut.bounds[-1]) == (0, len(counts))
    assert (np.diff(cut.bounds) > 0).all()
    assert (cut.rows[0], cut.rows[-1]) == (0, len(counts))
    assert (np.diff(cut.rows) > 0).all()
    assert np.array_equal(cut.entries, indptr[cut.rows])
    costs = np.array(counts) + ROW_OVERHEAD
    expected = [costs[a:b].sum() for a, b in zip(cut.bounds[:-1], cut.bounds[1:], strict=True)]
    np.testing.assert_allclose(cut.costs, expected)
    # A part costs no more than its share and half a row at each end.
    assert cut.costs.max() <= costs.sum() / min(parts, len(counts)) + costs.max() + 1e-6
    np.testing.assert_allclose(cut.cost(cut.rows[:-1], cut.rows[1:]), np.diff(cut.cost_before))


def test_a_heavy_row_is_a_part_of_its_own():
    counts = [1] * 100 + [10_000] + [1] * 100
    cut = cut_parts(indptr_of(counts), 8, 4)
    at = int(np.searchsorted(cut.bounds, 100))
    assert cut.bounds[at : at + 2].tolist() == [100, 101]
    assert cut.count == 3  # fewer than requested


@pytest.mark.parametrize("heavy", [0, 49])
def test_a_heavy_row_at_an_end(heavy):
    counts = [0] * 50
    counts[heavy] = 1000
    cut = cut_parts(indptr_of(counts), 4, 4)
    assert cut.bounds.tolist() == ([0, 1, 50] if heavy == 0 else [0, 49, 50])


def test_pointers_of_32_bits_that_are_mapped(tmp_path):
    indptr = indptr_of(np.full(1000, 4)).astype(np.int32)
    np.save(tmp_path / "indptr.npy", indptr)
    mapped = np.load(tmp_path / "indptr.npy", mmap_mode="r")
    assert np.array_equal(cut_parts(mapped, 5, 3).bounds, cut_parts(indptr, 5, 3).bounds)
    assert cut_parts(mapped, 5, 3).entries.dtype == np.int64


def test_no_rows():
    with pytest.raises(InputError, match="a matrix without rows"):
        cut_parts(np.array([0]), 3, 3)
