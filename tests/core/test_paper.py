"""The paper in exact fractions, and the fast versions of its functions."""

from fractions import Fraction
from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cec_mpi
from cec_mpi.core import paper
from cec_mpi.core.plan.blocks import assign_blocks
from cec_mpi.core.plan.load import fractional_load, whole_row_load
from cec_mpi.errors import InfeasibleError, InputError


@st.composite
def speeds(draw, max_machines=12):
    """Draw speeds of available machines, with ties, and L."""
    machines = draw(st.sets(st.integers(1, 30), min_size=1, max_size=max_machines))
    speed = st.integers(1, 6) | st.fractions(min_value=Fraction(1, 1000), max_value=1000)
    return {n: draw(speed) for n in sorted(machines)}, draw(st.integers(1, len(machines)))


@given(speeds())
def test_the_load_is_optimal(case):
    s, L = case
    mu, c, k = paper.optimal_load(s, L)
    assert sum(mu.values()) == sum(min(1, c * speed) for speed in s.values()) == L
    assert all(0 < load <= 1 for load in mu.values())
    assert paper.computation_time(mu, s) == c
    if len(s) > L:  # c* is the largest c_k, and k* the largest k with c_k = c*
        sums = {k: sum(sorted(s.values())[:k]) for k in range(len(s) - L + 1, len(s) + 1)}
        assert (c, k) == max((Fraction(k + L - len(s)) / sums[k], k) for k in sums)


@given(speeds())
def test_blocks_meet_the_loads_with_l_machines_per_row(case):
    s, L = case
    remaining = dict(paper.optimal_load(s, L).mu)
    blocks = paper.algorithm_1(remaining, L)
    for block in blocks:
        assert (block.m, block.total) == (remaining, sum(remaining.values()))
        assert len(set(block.P)) == L
        assert block.alpha > 0
        for n in block.P:
            remaining[n] -= block.alpha
    assert not any(remaining.values())
    assert len(blocks) <= len(s)
    assert sum(block.alpha for block in blocks) == 1


@given(speeds(max_machines=6), st.lists(st.integers(-9, 9), min_size=2, max_size=2))
def test_a_step_is_exact(case, w):
    s, L = case
    blocks = paper.algorithm_1(paper.optimal_load(s, L).mu, L)
    rows = lcm(*(Fraction(block.alpha).denominator for block in blocks))
    if rows <= 500:
        X = np.random.default_rng(0).integers(-9, 10, (L * rows, 2))
        vandermonde = [[Fraction(n) ** power for power in range(L)] for n in range(1, max(s) + 1)]
        assert paper.multiply(vandermonde, X, w, s).tolist() == (X @ w).tolist()


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        ("algorithm_1", ({1: 3, 2: 1}, 2), InputError, r"\['3', '1'\] cannot be met with each row"),
        ("algorithm_1", ({1: -1, 2: 3}, 1), InputError, "expected values from 0 to 1"),
        ("algorithm_1", ({1: 0.5, 2: 0.5}, 1), InputError, "floats are rounded"),
        ("algorithm_1", ({1: 3}, 2), InfeasibleError, "1 machine available: each row needs 2"),
        ("algorithm_1", ({1: 3}, 0), InputError, "L = 0: expected at least 1"),
        ("optimal_load", ({1: 2, 2: 0}, 1), InputError, "expected positive numbers"),
        ("coded_shards", ([[1, 0], [0, 1]], [[1]] * 5), InputError, "5 rows: expected a multiple"),
        ("solve", ([[1, 2], [2, 4]], [[1], [2]]), InputError, "singular"),
    ],
)
def test_invalid_arguments_are_rejected(function, arguments, error, message):
    with pytest.raises(error, match=message):
        getattr(paper, function)(*arguments)


def test_a_block_of_fractional_rows_is_rejected():
    with pytest.raises(InputError, match=r"a block of 1/2 of 3 rows: expected whole rows"):
        paper.row_sets(paper.algorithm_1({1: Fraction(1, 2), 2: Fraction(1, 2)}, 1), 3)


# --- fast versions ------------------------------------------------------------------------


@given(speeds(max_machines=30))
def test_fractional_load_equals_optimal_load(case):
    s, L = case
    mu, c, k = paper.optimal_load(s, L)
    load = fractional_load([Fraction(speed) for speed in s.values()], L)
    assert (list(load.mu), load.c_star, load.k_star) == (list(mu.values()), c, k)
    load = fractional_load([float(speed) for speed in s.values()], L)
    assert load.c_star == pytest.approx(float(c), rel=1e-12)
    assert load.mu == pytest.approx([float(fraction) for fraction in mu.values()], rel=1e-12)


@given(speeds(max_machines=30), st.integers(1, 2000), st.sampled_from([1, 2**42, 2**70]))
def test_assign_blocks_equals_algorithm_1(case, rows, scale):
    """Loads may exceed 62 bits."""
    s, L = case
    loads = whole_row_load([float(speed) for speed in s.values()], L, rows)
    loads = [load * scale for load in loads.tolist()]
    sizes, members = assign_blocks(np.array(loads, dtype=object), L)
    blocks = paper.algorithm_1(dict(enumerate(loads)), L)
    assert sizes == [block.alpha for block in blocks]
    assert members.tolist() == [list(block.P) for block in blocks]


@pytest.mark.parametrize(("machines", "recovery"), [(3, 1), (6, 3), (7, 7)])
def test_encode_and_decoders_compute_the_shards_and_products_of_the_paper(
    machines, recovery, tmp_path
):
    rng = np.random.default_rng(machines)
    X = rng.integers(-99, 100, (8 * recovery, 5)).astype(float)
    manifest = cec_mpi.encode(X, tmp_path / "store", machines, recovery, scaling="none")
    G = np.vectorize(Fraction, otypes=[object])(manifest.code.generator)
    files = [np.load(tmp_path / "store" / shard.file) for shard in manifest.shards]
    shards = paper.coded_shards(G, X.astype(int)).astype(float)
    np.testing.assert_allclose(files, shards, rtol=1e-13, atol=1e-12)
    subset = tuple(range(machines - recovery + 1, machines + 1))
    answers = rng.integers(-9, 10, (recovery, 4))
    V = {n: dict(enumerate(row)) for n, row in zip(subset, answers.tolist(), strict=True)}
    y = paper.decode(G, [range(4)], [subset], V).reshape(recovery, 4).astype(float)
    decoded = np.empty((recovery, 4))
    manifest.code.make_decoder(subset).decode(answers.astype(float), decoded)
    np.testing.assert_allclose(decoded, y, rtol=1e-9, atol=1e-9)
