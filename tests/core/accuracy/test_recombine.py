"""Shards from shards: no error exceeds its bound."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.accuracy.rounding import encoding_error_bound
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InputError

SIZES = [(3, 2), (5, 3), (6, 3), (6, 1), (8, 6), (4, 4)]


def made(machines, recovery, family, dtype, seed, width=20):
    """A code, X and its shards as encode would compute them."""
    code = make_code(machines, recovery, family, seed=seed, dtype=dtype)
    X = (10 * np.random.default_rng(seed).standard_normal((recovery, width))).astype(dtype)
    shards = np.empty((machines, width), dtype)
    code.encode(X, shards)
    return code, X, shards


def exactly(rows, X):
    """A product in rational arithmetic, as floats."""
    rows, X = (np.vectorize(Fraction, otypes=[object])(each.astype(float)) for each in (rows, X))
    return (rows @ X).astype(float)


@given(
    size=st.sampled_from(SIZES),
    family=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_no_shard_and_no_part_is_farther_off_than_its_bound(size, family, dtype, seed, data):
    machines, recovery = size
    code, X, shards = made(machines, recovery, family, dtype, seed)
    basis = data.draw(st.sampled_from(list(combinations(range(1, machines + 1), recovery))))
    given_errors = encoding_error_bound(code.generator, dtype)
    largest = np.abs(X).max(axis=0)  # of the L entries at each place
    exact = exactly(code.generator, X)
    assert (np.abs(shards - exact) <= given_errors[:, None] * largest).all()
    rows = np.array(basis) - 1
    for targets, expected in ((code.generator, exact), (np.eye(recovery), X)):
        recombination = Recombination(code.generator, basis, targets)
        computed = (recombination.coefficients @ shards[rows].astype(float)).astype(dtype)
        bounds = recombination.error_bounds(given_errors[rows], dtype)
        assert (np.abs(computed - expected) <= bounds[:, None] * largest).all()
        assert (bounds <= 100 * np.finfo(dtype).eps * code.conditioning.worst * recovery**2).all()
    sizes = np.abs(shards[rows])
    assert (recombination.scale_bounds(sizes, np.empty_like(sizes)) >= largest * (1 - 1e-4)).all()


def test_a_shard_that_is_a_part_of_x_has_no_error():
    code = make_code(5, 3, systematic=True)
    errors = encoding_error_bound(code.generator, np.float32)
    assert errors[:3].tolist() == [0, 0, 0]
    assert (errors[3:] > 0).all()


def test_too_few_and_singular_rows_are_refused():
    with pytest.raises(InputError, match="2 machines: expected at least 3"):
        choose_machines(np.ones((5, 3)), [1, 2])
    with pytest.raises(InputError, match="singular"):
        Recombination(np.ones((3, 2)), (1, 2), np.eye(2))
    with pytest.raises(InputError, match="expected 2 from 1 to 3"):
        Recombination(np.ones((3, 2)), (1, 2, 3), np.eye(2))
