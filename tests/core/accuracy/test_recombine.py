"""Shards computed from other shards: no error exceeds its bound."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.accuracy.rounding import encoding_error_bound
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InputError


@given(
    size=st.sampled_from([(3, 2), (5, 3), (6, 3), (6, 1), (8, 6), (4, 4)]),
    family=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_errors_of_shards_and_parts_are_within_their_bounds(size, family, dtype, seed, data):
    machines, recovery = size
    code = make_code(machines, recovery, family, seed=seed, dtype=dtype)
    X = (10 * np.random.default_rng(seed).standard_normal((recovery, 20))).astype(dtype)
    shards, scale = np.empty((machines, 20), dtype), np.abs(X).max(axis=0)
    code.encode(X, shards)
    encoding_errors = encoding_error_bound(code.generator, dtype)
    exact_G, exact_X = (
        np.vectorize(Fraction, otypes=[object])(array.astype(float))
        for array in (code.generator, X)
    )
    exact_shards = (exact_G @ exact_X).astype(float)
    assert (np.abs(shards - exact_shards) <= encoding_errors[:, None] * scale).all()
    basis = data.draw(st.sampled_from(list(combinations(range(1, machines + 1), recovery))))
    rows = np.array(basis) - 1
    for targets, exact in ((code.generator, exact_shards), (np.eye(recovery), X)):
        recombination = Recombination(code.generator, basis, targets)
        computed = (recombination.coefficients @ shards[rows].astype(float)).astype(dtype)
        bounds = recombination.error_bounds(encoding_errors[rows], dtype)
        assert (np.abs(computed - exact) <= bounds[:, None] * scale).all()
        assert (bounds <= 100 * np.finfo(dtype).eps * code.conditioning.worst * recovery**2).all()
    sizes = np.abs(shards[rows])
    assert (recombination.entry_bounds(sizes, np.empty_like(sizes)) >= scale * (1 - 1e-4)).all()


def test_an_uncoded_shard_has_no_error():
    errors = encoding_error_bound(make_code(5, 3, systematic=True).generator, np.float32)
    assert errors[:3].tolist() == [0, 0, 0]
    assert (errors[3:] > 0).all()


@pytest.mark.parametrize(
    ("basis", "message"),
    [((1, 2), "singular"), ((1, 2, 3), "expected 2 machines, numbered 1 to 3")],
)
def test_a_basis_without_l_independent_rows_is_rejected(basis, message):
    with pytest.raises(InputError, match=message):
        Recombination(np.ones((3, 2)), basis, np.eye(2))
