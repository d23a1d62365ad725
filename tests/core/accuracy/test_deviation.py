"""Two figures for each step: the bound always holds, the estimate nearly always, and closely."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.deviation import (
    Largest,
    TermSizes,
    amplification,
    answer_errors,
    largest_of_all,
    of_product,
    of_transposed_product,
    part_errors,
    stand_in_errors,
)
from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.accuracy.rounding import is_exact
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code

WIDE = np.longdouble


class Kind(NamedTuple):
    """Of a store, and in which dtype its steps compute."""

    dtype: str
    arithmetic: str


KINDS = [Kind("float32", "float64"), Kind("float32", "float32"), Kind("float64", "float64")]


class Stored:
    """A code, X as it is given, and its shards."""

    def __init__(self, code, kind, X):
        self.code, self.kind, self.X = code, kind, X
        self.recovery = code.recovery
        parts = X.reshape(self.recovery, -1, X.shape[1]).astype(kind.dtype)
        self.shards = np.empty((code.machines, *parts.shape[1:]), kind.dtype)
        code.encode(parts, self.shards)
        kept = parts.reshape(X.shape).astype(np.float64)
        typical = np.sqrt((kept**2).mean(axis=0))
        self.sizes = TermSizes(np.abs(kept).max(axis=0), typical, kind.arithmetic)

    def product(self, machines, W):
        """X W of W of shape (r, k), the true largest error of it, and both figures."""
        arithmetic, decoder = self.kind.arithmetic, Decoder(self.code.generator, machines)
        columns = W.shape[1]
        answers = np.stack([self.shards[n - 1].astype(arithmetic) @ W for n in machines])
        values = answers.reshape(self.recovery, -1).astype(np.float64)
        decoded = np.empty_like(values)
        decoder.decode(values, decoded)
        y = decoded.reshape(-1, columns)
        errors = self.errors(len(W))
        found = amplification(self.code.generator, errors, [decoder], [machines])
        figures = of_product(found, errors, self.sizes, self.sizes.of(W), largest_of(y), len(y))
        return y, wrong(y, self.X.astype(WIDE) @ W.astype(WIDE)), figures

    def transposed_product(self, machines, V):
        """X' V, likewise."""
        arithmetic, decoder = self.kind.arithmetic, Decoder(self.code.generator, machines)
        rows, columns = self.shards.shape[1], V.shape[1]
        coded = np.empty((self.recovery, rows * columns))
        decoder.decode_transposed(V.reshape(self.recovery, -1), coded)
        coded = coded.astype(arithmetic).reshape(self.recovery, rows, columns)
        result = np.zeros((self.X.shape[1], columns))
        for machine, u in zip(machines, coded, strict=True):
            result += self.shards[machine - 1].astype(arithmetic).T @ u
        errors = self.errors(rows + self.code.machines + 1)
        found = amplification(self.code.generator, errors, [decoder], [machines])
        of = self.sizes.of_transposed
        figures = of_transposed_product(
            found,
            part_errors(errors, machines),
            errors,
            of(V),
            of(coded.reshape(-1, columns)),
            largest_of(result),
            len(result),
        )
        return result, wrong(result, self.X.astype(WIDE).T @ V.astype(WIDE)), figures

    def errors(self, terms):
        rounded = not is_exact(self.X.dtype, self.kind.dtype)
        return answer_errors(self.code.generator, *self.kind, terms, rounded=rounded)


def largest_of(numbers, exponent=0):
    sizes = np.abs(numbers).max(axis=0)
    return Largest(sizes.tolist(), sizes.tolist(), [exponent] * len(sizes))


def wrong(result, exact):
    """The error of the worst column over its largest entry."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((np.abs(result - exact).max(axis=0) / np.abs(result).max(axis=0)).max())


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def chosen(code, seed):
    rng = np.random.default_rng(seed)
    return (np.sort(rng.choice(code.machines, code.recovery, replace=False)) + 1).tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_error_is_below_the_bound_and_mostly_below_the_estimate(family, kind):
    ratios = []
    for seed in range(12):
        machines, recovery = [(3, 1), (6, 3), (12, 8)][seed % 3]
        code = make_code(
            machines, recovery, family, systematic=seed % 2 == 0, seed=seed, dtype=kind.dtype
        )
        stored = Stored(code, kind, normal(seed, recovery * 10, 40 * (1 + seed)))
        W = normal(seed + 1, 40 * (1 + seed), 3).astype(kind.arithmetic)
        V = normal(seed + 2, recovery * 10, 2).astype(kind.arithmetic)
        basis = chosen(code, seed)
        for _, error, figures in (
            stored.product(basis, W),
            stored.transposed_product(basis, V),
        ):
            assert 0 < error <= figures.bound
            assert figures.estimate <= figures.bound
            ratios.append(figures.estimate / error)
    assert min(ratios) > 1
    assert np.median(ratios) < 40


@given(
    size=st.sampled_from([(3, 1), (4, 2), (6, 3), (9, 6), (10, 10)]),
    family=st.sampled_from(sorted(FAMILIES)),
    kind=st.sampled_from(KINDS),
    cancelled=st.booleans(),
    kept=st.booleans(),
    columns=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_no_roundings_are_above_the_bound(size, family, kind, cancelled, kept, columns, seed):
    rng = np.random.default_rng(seed)
    code = make_code(*size, family, seed=seed, dtype=kind.dtype)
    X = rng.standard_normal((size[1] * 4, 16)) * 10.0 ** rng.uniform(-8, 8, (1, 16))
    W = rng.standard_normal((16, columns)).astype(kind.arithmetic)
    V = rng.standard_normal((len(X), columns)).astype(kind.arithmetic)
    if cancelled:
        X = np.abs(X) + np.repeat(rng.random((len(X), 8)), 2, axis=1)
        W = np.tile([[1.0], [-1.0]], (8, columns)).astype(kind.arithmetic)
    if kept:  # all its digits
        X = X.astype(kind.dtype)
    stored, basis = Stored(code, kind, X), chosen(code, seed)
    for _, error, figures in (stored.product(basis, W), stored.transposed_product(basis, V)):
        assert error <= figures.bound < np.inf


def test_rounding_X_counts_only_where_X_was_rounded():
    code = make_code(3, 2, "fourier", systematic=True, dtype="float32")
    kind = Kind("float32", "float64")
    X, w = normal(0, 20, 200), normal(1, 200, 1)
    _, error, figures = Stored(code, kind, X).product([1, 2], w)
    assert 1e-9 < error < figures.bound
    _, error, figures = Stored(code, kind, X.astype("float32")).product([1, 2], w)
    assert error < figures.estimate < 1e-13
    assert figures.bound < 1e-12


def test_nothing_is_lost_without_a_word():
    """Not even where products underflow, or the scale of X is at the end of its dtype."""
    code, kind = make_code(4, 2, dtype="float32"), Kind("float32", "float32")
    for scale in (1e-30, 1e30):
        stored = Stored(code, kind, normal(0, 8, 5) * scale)
        _, error, figures = stored.product([1, 3], np.full((5, 1), 1 / scale, "float32"))
        assert error <= figures.bound < 1e-4
    stored = Stored(code, kind, normal(0, 8, 5) * 1e-25)
    _, error, figures = stored.product([1, 3], np.full((5, 1), 1e-19, "float32"))
    assert 0.01 < error <= figures.bound < np.inf


def test_a_bound_is_zero_only_where_w_is():
    stored = Stored(make_code(3, 2), KINDS[2], np.eye(4))
    _, _, figures = stored.product([1, 2], np.array([[1.0, 0.0], [0, 0], [0, 0], [0, 0]]))
    assert 0 < figures.estimate <= figures.bound < 1e-14
    assert stored.product([1, 2], np.zeros((4, 2)))[2] == (0.0, 0.0)
    plain = make_code(3, 2, systematic=True)
    y, _, figures = Stored(plain, KINDS[2], np.ones((4, 2))).product(
        [1, 2], np.array([[1.0], [-1]])
    )
    assert not y.any()
    assert figures.bound == np.inf


def test_each_column_of_a_block_has_its_own_scale():
    stored = Stored(make_code(4, 2), KINDS[2], normal(0, 8, 30))
    W = normal(1, 30, 2)
    alone = [stored.product([2, 4], W[:, [k]])[2] for k in (0, 1)]
    together = stored.product([2, 4], W * [1.0, 1e16])[2]
    assert together.bound == pytest.approx(max(one.bound for one in alone), rel=1e-6)
    assert together.estimate == pytest.approx(max(one.estimate for one in alone), rel=0.1)


def test_a_shard_that_was_rebuilt_is_less_exact():
    code = make_code(4, 2)
    errors = np.array([0.0, 0.0, 1e-9, 0.0])
    plain = answer_errors(code.generator, "float64", "float64", 10)
    rebuilt = answer_errors(code.generator, "float64", "float64", 10, np.maximum(errors, 1e-16))
    assert rebuilt.worst[2] > 1e-9 > plain.worst[2]
    assert rebuilt.stored[2] >= 1e-9
    assert part_errors(rebuilt, (1, 3)).worst > 1e-9
    assert part_errors(rebuilt, (1, 2)).worst < 1e-12


@pytest.mark.parametrize(
    ("size", "others", "conditions"),
    [
        *((6, 3, conditions) for conditions in [(1e2, 1e2), (1e2, 1e11), (1e14, 1e2), (1e2, 1e18)]),
        (128, 65, (1e2, 1e14)),  # more than are looked at together
    ],
)
def test_blocks_come_to_the_same_together_as_one_by_one(conditions, size, others):
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((size, size)) for _ in range(others)]
    for condition in conditions:
        left, right = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
        matrices.append(left * np.logspace(0, -np.log10(condition), size) @ right)
    generator = np.concatenate(matrices)
    sets = np.arange(1, len(generator) + 1).reshape(-1, size)
    errors = answer_errors(generator, "float32", "float64", 9)
    decoders = [Decoder(generator, machines) for machines in sets]
    each = [
        amplification(generator, errors, [one], [machines])
        for one, machines in zip(decoders, sets, strict=True)
    ]
    together = amplification(generator, errors, decoders, sets)
    assert np.allclose(together, largest_of_all(each), rtol=1e-12, atol=0)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e11, 1e14])
def test_decoding_makes_no_more_of_errors_than_it_is_said_to(condition):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((12, 12)))[0] for _ in range(2))
    matrix = left * np.logspace(0, -np.log10(condition), 12) @ right
    decoder, exact = Decoder(matrix, range(1, 13)), inverted(matrix)
    errors = answer_errors(matrix, "float64", "float64", 9)
    found = amplification(matrix, errors, [decoder], [range(1, 13)])
    growth, worst = np.abs(exact).sum(axis=1).max(), (np.abs(exact) @ errors.worst).max()
    assert growth <= found.growth * (1 + 1e-12)
    assert worst <= found.worst * (1 + 1e-12)
    if condition < 1e14:
        assert found.growth < 1.5 * growth
        assert found.worst < 1.5 * worst
    a, decoded, u = rng.standard_normal((12, 4)), np.empty((12, 4)), np.empty((12, 4))
    decoder.decode(a.copy(), decoded)
    true = exact.astype(WIDE) @ a
    lost = 1e-13 * np.abs(exact).max()  # of the exact inverse, when it was made float64
    assert (np.abs(decoded - true) <= found.decoding * np.abs(decoded).max(axis=0) + lost).all()
    decoder.decode_transposed(a, u)
    left_over = np.abs(matrix.T.astype(WIDE) @ u - a).sum(axis=0)
    assert (left_over <= found.decoding * np.abs(a).sum(axis=0)).all()


def test_of_a_matrix_that_is_all_but_singular_nothing_is_certain():
    matrix = np.random.default_rng(0).standard_normal((8, 8))
    matrix[7] = matrix[:7].sum(axis=0)
    errors = answer_errors(matrix, "float64", "float64", 9)
    found = amplification(matrix, errors, [Decoder(matrix, range(1, 9))], [range(1, 9)])
    assert found.worst == found.growth == found.decoding == np.inf


def test_a_part_that_others_made_has_their_errors():
    code = make_code(6, 3, "gaussian")
    errors = answer_errors(code.generator, "float64", "float64", 10)
    parts = [part_errors(errors, (n,)) for n in (1, 2, 4)]
    made = Recombination(code.generator, (1, 2, 4), code.generator[[2]])
    weights, found = made.coefficients[0], stand_in_errors(made, parts)
    least = sum(abs(c) * part.worst for c, part in zip(weights, parts, strict=True))
    assert least <= found.worst <= 3 * least
    assert found.stored >= max(abs(weights)) * min(part.stored for part in parts)


def inverted(matrix):
    """The inverse, by exact fractions."""
    from fractions import Fraction

    count = len(matrix)
    rows = [
        [Fraction(x) for x in row] + [Fraction(int(k == i)) for k in range(count)]
        for i, row in enumerate(matrix.tolist())
    ]
    for column in range(count):
        pivot = max(range(column, count), key=lambda row: abs(rows[row][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        first = rows[column]
        rows[column] = first = [x / first[column] for x in first]
        for k in range(count):
            if k != column:
                factor = rows[k][column]
                rows[k] = [x - factor * y for x, y in zip(rows[k], first, strict=True)]
    return np.array([[float(x) for x in row[count:]] for row in rows])


@pytest.mark.parametrize("count", [40, 128, 300, 2048])
@pytest.mark.parametrize("transposed", [False, True])
def test_partial_sums_that_cancel_later_are_seen(count, transposed):
    sizes = TermSizes(np.full(count, 2.0), np.full(count, 2.0), "float64")
    of = sizes.of_transposed if transposed else sizes.of
    ones, alternating = np.ones(count), np.resize([1.0, -1.0], count)
    halves = np.where(np.arange(count) < count // 2, 1.0, -1.0)
    block = of(np.column_stack((ones, alternating, halves, 0 * ones)))
    assert [each.terms for each in block] == [count, count, count, 0]
    partial = np.array([each.partial for each in block])
    assert partial[[0, 3]] == pytest.approx(0)
    looked_at = count if count < 128 else count - count % 128
    assert (partial[1:3] >= 0.75 * 2 * looked_at).all()


def test_numbers_that_are_zero_round_nothing():
    code = make_code(6, 3, "gaussian")
    stored = Stored(code, Kind("float64", "float64"), normal(0, 30, 4000))
    one, all_of_them = np.zeros((4000, 1)), np.full((4000, 1), 1.0)
    one[7] = 1
    _, error, few = stored.product((1, 4, 6), one)
    assert error < few.estimate
    assert few.estimate < 0.3 * stored.product((1, 4, 6), all_of_them)[2].estimate


@pytest.mark.parametrize("exponent", [-1000, -1060, -1073, -1080, -1100])
def test_what_float64_has_no_digits_for_is_no_more_exact_than_that(exponent):
    stored, w = Stored(make_code(3, 2), KINDS[2], normal(0, 4, 3)), normal(1, 3, 1)
    y, _, plain = stored.product([1, 3], w)
    errors = stored.errors(3)
    found = amplification(stored.code.generator, errors, [stored.code.decoder((1, 3))], [(1, 3)])
    figures = of_product(
        found, errors, stored.sizes, stored.sizes.of(w), largest_of(y, exponent), len(y)
    )
    held = np.ldexp(y, exponent)
    if not held.any():
        assert figures == (np.inf, np.inf)
        return
    lost = np.abs(np.ldexp(held.astype(WIDE), -exponent) - y).max() / np.abs(y).max()
    assert lost <= figures.estimate <= figures.bound
    assert plain.bound <= figures.bound < 1.1 * (plain.bound + 2.0 ** (-1073 - exponent))


def test_what_w_loses_by_underflow_beside_large_columns_is_bounded():
    lost = TermSizes([1e30, 1e-20], [1e30, 1e-20], "float32").lost
    assert 1e30 * 2.0**-150 <= lost < 1e30 * 2.0**-149
