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
def speeds(draw, most=12):
    """Speeds of available machines, some of which are equal, and L."""
    machines = draw(st.lists(st.integers(1, 30), min_size=1, max_size=most, unique=True))
    speed = st.one_of(st.integers(1, 6), st.fractions(min_value=Fraction(1, 1000), max_value=1000))
    return {n: draw(speed) for n in sorted(machines)}, draw(st.integers(1, len(machines)))


def largest_level(s, L):
    """c* and k* by the clean statement of Theorem 1: the last of the largest c_k."""
    ascending = sorted(s.values())
    first = len(s) - L + 1
    levels = {k: Fraction(k + L - len(s)) / sum(ascending[:k]) for k in range(first, len(s) + 1)}
    return max((c, k) for k, c in levels.items())


@given(speeds())
def test_the_load_has_the_least_time(case):
    s, L = case
    mu, c, k = paper.optimal_load(s, L)
    assert sum(mu.values()) == L
    assert all(0 < part <= 1 for part in mu.values())
    assert paper.computation_time(mu, s) == c
    assert sum(min(1, c * speed) for speed in s.values()) == L
    if len(s) > L:
        assert (c, k) == largest_level(s, L)


@given(speeds())
def test_blocks_meet_the_loads_with_l_machines_for_each_row(case):
    s, L = case
    mu = paper.optimal_load(s, L).mu
    left = dict(mu)
    blocks = paper.algorithm_1(mu, L)
    for block in blocks:
        assert (block.m, block.total) == (left, sum(left.values()))
        assert len(set(block.P)) == L
        assert block.alpha > 0
        for n in block.P:
            left[n] -= block.alpha
    assert not any(left.values())
    assert len(blocks) <= len(s)
    assert sum(block.alpha for block in blocks) == 1


def generators(machines, recovery):
    """A Vandermonde matrix, any rows of which are independent."""
    return [[Fraction(n) ** power for power in range(recovery)] for n in range(1, machines + 1)]


@given(speeds(most=6), st.data())
def test_a_step_computes_x_w_exactly(case, data):
    s, L = case
    blocks = paper.algorithm_1(paper.optimal_load(s, L).mu, L)
    rows = lcm(*(Fraction(block.alpha).denominator for block in blocks))
    if rows > 500:
        return
    numbers = st.integers(-9, 9)
    w = data.draw(st.lists(numbers, min_size=2, max_size=2))
    X = np.random.default_rng(0).integers(-9, 10, (L * rows, 2))
    y = paper.multiply(generators(max(s), L), X, w, s)
    assert y.tolist() == (X @ w).tolist()


@pytest.mark.parametrize(
    ("loads", "L", "kind", "message"),
    [
        ({1: 3, 2: 1}, 2, InputError, r"\['3', '1'\] cannot be met with each row on 2 machines"),
        ({1: -1, 2: 3}, 1, InputError, "from 0 to 1"),
        ({1: 0.5, 2: 0.5}, 1, InputError, "floats leave residues"),
        ({1: 3}, 2, InfeasibleError, "1 machines available: each row needs 2"),
        ({1: 3}, 0, InputError, "L = 0: expected at least 1"),
    ],
)
def test_loads_that_cannot_be_met_are_refused(loads, L, kind, message):
    with pytest.raises(kind, match=message):
        paper.algorithm_1(loads, L)


def test_what_the_paper_leaves_out_is_refused():
    with pytest.raises(InputError, match="expected positive numbers"):
        paper.optimal_load({1: 2, 2: 0}, 1)
    with pytest.raises(InputError, match=r"a block of 1/2 of 3 rows: expected whole rows"):
        paper.row_sets(paper.algorithm_1({1: Fraction(1, 2), 2: Fraction(1, 2)}, 1), 3)
    with pytest.raises(InputError, match="X has 5 rows: expected a multiple of L = 2"):
        paper.coded_shards([[1, 0], [0, 1]], [[1]] * 5)
    with pytest.raises(InputError, match="singular"):
        paper.solve([[1, 2], [2, 4]], [[1], [2]])


# --- fast versions ------------------------------------------------------------------------


@given(speeds(most=30))
def test_fractional_load_is_optimal_load(case):
    s, L = case
    mu, c, k = paper.optimal_load(s, L)
    found = fractional_load([Fraction(speed) for speed in s.values()], L)
    assert (list(found.mu), found.c_star, found.k_star) == (list(mu.values()), c, k)
    floats = fractional_load([float(speed) for speed in s.values()], L)
    assert floats.c_star == pytest.approx(float(c), rel=1e-12)
    assert floats.mu == pytest.approx([float(part) for part in mu.values()], rel=1e-12)


@given(speeds(most=30), st.integers(1, 2000), st.sampled_from([1, 2**42, 2**70]))
def test_assign_blocks_is_algorithm_1(case, rows, scale):
    """Also for numbers of more than 62 bits."""
    s, L = case
    loads = whole_row_load([float(speed) for speed in s.values()], L, rows)
    loads = [load * scale for load in loads.tolist()]
    sizes, members = assign_blocks(np.array(loads, dtype=object), L)
    found = paper.algorithm_1(dict(enumerate(loads)), L)
    assert sizes == [block.alpha for block in found]
    assert members.tolist() == [list(block.P) for block in found]


@pytest.mark.parametrize(("machines", "recovery"), [(3, 1), (4, 2), (6, 3), (7, 7)])
def test_stores_have_the_shards_of_the_paper_and_codes_decode_as_it_does(
    machines, recovery, tmp_path
):
    X = np.random.default_rng(machines).integers(-99, 100, (8 * recovery, 5)).astype(float)
    manifest = cec_mpi.encode(X, tmp_path / "store", machines, recovery, scaling="none")
    G = manifest.code.generator
    exact = [[Fraction(float(each)) for each in row] for row in G]
    shards = paper.coded_shards(exact, X.astype(int))
    files = [np.load(tmp_path / "store" / shard.file) for shard in manifest.shards]
    np.testing.assert_allclose(files, shards.astype(float), rtol=1e-13, atol=1e-12)
    chosen = tuple(range(machines - recovery + 1, machines + 1))
    answers = np.random.default_rng(1).integers(-9, 10, (recovery, 4)).tolist()
    V = {n: dict(enumerate(row)) for n, row in zip(chosen, answers, strict=True)}
    y = paper.decode(exact, [range(4)], [chosen], V).reshape(recovery, 4)
    decoder = manifest.code.make_decoder(np.array(chosen))
    decoded = np.empty((recovery, 4))
    decoder.decode(np.array(answers, float), decoded)
    np.testing.assert_allclose(decoded, y.astype(float), rtol=1e-9, atol=1e-9)
