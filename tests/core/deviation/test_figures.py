"""Two figures for each step: the bound always holds, the estimate nearly always, and closely."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cec_mpi.core.accuracy.rounding import is_exact
from cec_mpi.core.code import decoder as decoder_module
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code
from cec_mpi.core.deviation import amplifier as amplifier_module
from cec_mpi.core.deviation.amplification import (
    answer_errors,
    largest,
    stand_in_errors,
    transposed_errors,
)
from cec_mpi.core.deviation.amplifier import Amplifier
from cec_mpi.core.deviation.decoding import decoding_errors
from cec_mpi.core.deviation.figures import (
    Deviation,
    fits,
    of_product,
    of_subnormals,
    of_transposed_product,
)
from cec_mpi.core.deviation.lengths import TermSizes, largest_of

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
        self.sizes = TermSizes(np.abs(kept).max(axis=0), np.sqrt((kept**2).mean(axis=0)))

    def product(self, machines, W):
        """X W of W of shape (r, k), the true largest error of it, and both figures."""
        arithmetic, decoder = self.kind.arithmetic, Decoder(self.code.generator, machines)
        columns = W.shape[1]
        answers = np.stack([self.shards[n - 1].astype(arithmetic) @ W for n in machines])
        values = answers.reshape(self.recovery, -1)[list(decoder.order)].astype(np.float64)
        decoded = np.empty_like(values)
        decoder.decode(values, decoded)
        y = decoded.reshape(-1, columns)
        size = largest_of(y)
        errors = self.errors(len(W))
        found = Amplifier(self.code.generator, errors).of(decoder, tuple(machines))
        figures = of_product(found, errors, self.sizes, self.sizes.of(W), size, size, len(y))
        return y, wrong(y, self.X.astype(WIDE) @ W.astype(WIDE)), figures

    def transposed_product(self, machines, V):
        """X' V, likewise."""
        arithmetic, decoder = self.kind.arithmetic, Decoder(self.code.generator, machines)
        rows, columns = self.shards.shape[1], V.shape[1]
        coded = np.empty((self.recovery, rows * columns))
        decoder.decode_transposed(V.reshape(self.recovery, -1), coded)
        coded = coded.astype(arithmetic).reshape(self.recovery, rows, columns)
        result = np.zeros((self.X.shape[1], columns))
        for which, u in zip(decoder.order, coded, strict=True):
            result += self.shards[machines[which] - 1].astype(arithmetic).T @ u
        errors = self.errors(rows + self.code.machines)
        found = Amplifier(self.code.generator, errors).of(decoder, tuple(machines))
        of = self.sizes.of_transposed
        figures = of_transposed_product(
            found,
            transposed_errors(errors, machines),
            errors,
            self.sizes,
            of(V),
            of(coded.reshape(-1, columns)),
            largest_of(result),
            len(result),
        )
        return result, wrong(result, self.X.astype(WIDE).T @ V.astype(WIDE)), figures

    def errors(self, terms):
        rounded = not is_exact(self.X.dtype, self.kind.dtype)
        return answer_errors(self.code.generator, *self.kind, terms, rounded=rounded)


def only(errors):
    """Of one decoder, from a tuple of those of several."""
    return type(errors)(*(each[0] for each in errors))


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
@settings(max_examples=60, deadline=None)
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
    assert transposed_errors(rebuilt, (1, 3)).worst > 1e-9
    assert transposed_errors(rebuilt, (1, 2)).worst < 1e-12


def test_a_plan_is_as_good_as_its_worst_block():
    code = make_code(5, 3, "gaussian")
    amplifier = Amplifier(code.generator, answer_errors(code.generator, "float64", "float64", 9))
    sets = [(1, 2, 3), (2, 3, 4), (1, 4, 5)]
    each = [amplifier.of(code.decoder(machines), machines) for machines in sets]
    assert largest(each).worst == max(one.worst for one in each)
    assert largest(each).stored == max(one.stored for one in each)


@pytest.mark.parametrize("conditions", [(1e2, 1e2), (1e2, 1e11), (1e14, 1e2), (1e2, 1e18)])
@pytest.mark.parametrize("at_once", [1, 2, 1 << 20])
def test_blocks_come_to_the_same_together_as_one_by_one(conditions, at_once, monkeypatch):
    monkeypatch.setattr(amplifier_module, "_AT_ONCE", at_once * 36)
    monkeypatch.setattr(decoder_module, "_AT_ONCE", at_once * 36)
    rng = np.random.default_rng(0)
    matrices = [rng.standard_normal((6, 6)) for _ in range(3)]
    for condition in conditions:
        left, right = (np.linalg.qr(rng.standard_normal((6, 6)))[0] for _ in range(2))
        matrices.append(left * np.logspace(0, -np.log10(condition), 6) @ right)
    generator, sets = np.concatenate(matrices), np.arange(1, 31).reshape(5, 6)
    errors = answer_errors(generator, "float32", "float64", 9)
    decoders = Decoder.of_sets(generator, sets)
    alone = [Decoder(generator, machines) for machines in sets.tolist()]
    assert [each.condition for each in decoders] == [each.condition for each in alone]
    assert [each.order for each in decoders] == [each.order for each in alone]
    for one, other in zip(decoders, alone, strict=True):
        assert np.array_equal(one.inverse(), other.inverse())
    each = map(Amplifier(generator, errors).of, alone, map(tuple, sets.tolist()))
    together = Amplifier(generator, errors).of_blocks(decoders, sets)
    assert np.allclose(together, largest(each), rtol=1e-12, atol=0)


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e11, 1e14])
def test_an_inverse_is_not_larger_than_it_is_said_to_be(condition):
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((12, 12)))[0] for _ in range(2))
    matrix = left * np.logspace(0, -np.log10(condition), 12) @ right
    decoder = Decoder(matrix, range(1, 13))
    matrix = matrix[list(decoder.order)]
    found, exact = only(decoding_errors([decoder], matrix[np.newaxis])), inverted(matrix)
    assert (np.abs(exact) <= found.sizes * (1 + 1e-12)).all()
    assert found.sizes.max() < 1.5 * np.abs(exact).max()
    a, decoded, u = rng.standard_normal((12, 4)), np.empty((12, 4)), np.empty((12, 4))
    decoder.decode(a.copy(), decoded)
    true = exact.astype(WIDE) @ a
    lost = 1e-13 * np.abs(exact).max()  # of the exact inverse, when it was made float64
    assert (np.abs(decoded - true) <= found.decoding * np.abs(decoded).max(axis=0) + lost).all()
    decoder.decode_transposed(a, u)
    left_over = np.abs(matrix.T.astype(WIDE) @ u - a).sum(axis=0)
    allowed = found.given * np.abs(a).sum(axis=0) + found.coded * np.abs(u).sum(axis=0)
    assert (left_over <= allowed).all()


def test_a_matrix_that_is_all_but_singular_has_an_inverse_of_any_size():
    matrix = np.random.default_rng(0).standard_normal((8, 8))
    matrix[7] = matrix[:7].sum(axis=0)
    decoder = Decoder(matrix, range(1, 9))
    found = decoding_errors([decoder], matrix[np.newaxis, list(decoder.order)])
    assert found.sizes.max() == np.inf


def test_a_part_that_others_made_has_their_errors():
    code = make_code(6, 3, "gaussian")
    errors = answer_errors(code.generator, "float64", "float64", 10)
    parts = [transposed_errors(errors, (n,)) for n in (1, 2, 4)]
    weights = code.stand_in_weights(3, (1, 2, 4))
    found = stand_in_errors(code.generator, 3, (1, 2, 4), weights, parts)
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
    sizes = TermSizes(np.full(count, 2.0), np.full(count, 2.0))
    of = sizes.of_transposed if transposed else sizes.of
    ones, scale = np.ones(count), 2.0**sizes.exponent
    alternating = np.resize([1.0, -1.0], count)
    halves = np.where(np.arange(count) < count // 2, 1.0, -1.0)
    block = of(np.column_stack((ones, alternating, halves, 0 * ones)))
    assert block.terms.tolist() == [count, count, count, 0]
    for column, values in enumerate((ones, alternating, halves)):
        alone = of(values[:, None])
        assert alone.partial == pytest.approx(block.partial[column])
        assert alone.terms == count
    assert block.partial[0] == block.partial[3] == 0
    looked_at = count if count < 128 else count - count % 128
    least = np.array([0.75, 0.75]) * 2 * looked_at
    assert (block.partial[1:3] * scale >= least).all()


def test_numbers_that_are_zero_round_nothing():
    code = make_code(6, 3, "gaussian")
    stored = Stored(code, Kind("float64", "float64"), normal(0, 30, 4000))
    one, all_of_them = np.zeros((4000, 1)), np.full((4000, 1), 1.0)
    one[7] = 1
    _, error, few = stored.product((1, 4, 6), one)
    assert error < few.estimate
    of = [stored.sizes.of(w).terms for w in (one, all_of_them)]
    assert of == [1, 4000]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0), st.integers(-2200, 2200)), min_size=1, max_size=4))
def test_what_is_too_large_for_float64_is_known_from_the_largest_numbers(columns):
    largest, exponents = (np.array(each) for each in zip(*columns, strict=True))
    with np.errstate(over="ignore"):
        fit = np.isfinite(np.ldexp(largest, exponents))
    assert fits(largest, exponents) == fit.all()
    for k, each in enumerate(largest.tolist()):
        assert fits(each, exponents[k : k + 1]) == fit[k]


@settings(deadline=None)
@given(st.floats(0, 1e300), st.integers(-2200, 900))
def test_one_column_has_the_figures_of_a_block_of_it(largest, exponent):
    found, exponents = Deviation(1e-12, 1e-13), np.array([exponent])
    of_one = of_subnormals(found, largest, exponents)
    assert of_one == of_subnormals(found, np.array([largest]), exponents)
