"""Parity checks: rounding errors pass, and larger errors identify the faulty machine."""

from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.rounding import answer_error_bound, encoding_error_bound
from cec_mpi.core.checks.parity import Comparison, ParityChecker, make_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.code import mds
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import InputError

make_code = cache(mds.make_code)
SIZES = [(3, 1), (4, 2), (5, 3), (6, 3), (7, 5), (9, 4)]
DTYPES = ["float32", "float64"]
FAMILY = st.sampled_from(sorted(FAMILIES))


class Product:
    """The product of a coded X and w: answers of all machines, and S of each row."""

    def __init__(self, code, X, w):
        shards = np.empty((code.machines, *X.shape[1:]), X.dtype)
        code.encode(X, shards)
        self.answers = np.stack([shard @ w for shard in shards]).astype(float)
        self.scale = np.abs(X).max(axis=0).astype(float) @ np.abs(w).astype(float)
        self.checker = make_checker(code.generator, X.dtype, len(w))
        self.machines = range(1, code.machines + 1)

    def identify(self, machines=None):
        machines = sorted(machines or self.machines)
        return self.checker.identify_faulty(machines, self.answers[indices(machines)], self.scale)

    def has_disagreement(self, machines=None, rows=slice(None)):
        machines = sorted(machines or self.machines)
        answers = self.answers[indices(machines)][:, rows]
        return self.checker.has_disagreement(machines, answers, self.scale[rows])


def random_product(
    machines=6, recovery=3, family="fourier", dtype="float64", seed=0, rows=40, columns=30
):
    """Return the product of a random X and w."""
    rng = np.random.default_rng([seed, 1])  # a Gaussian code is drawn from default_rng(seed)
    code = make_code(machines, recovery, family, seed=seed, dtype=dtype)
    X = rng.standard_normal((recovery, rows, columns)).astype(dtype)
    return Product(code, X, rng.standard_normal(columns).astype(dtype))


def indices(machines):
    return np.array(machines) - 1


def detectable_errors(checker, machines):
    """Return the errors of L + 1 machines above which their check fails, relative to S."""
    (check,), (tolerance,) = checker.checks(machines)
    return 2 * tolerance / np.maximum(np.abs(check), 1e-300)


# --- checks -------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("machines", "recovery"), SIZES)
def test_checks_are_unit_vectors_orthogonal_to_the_generator(machines, recovery, family):
    code = make_code(machines, recovery, family)
    checker = ParityChecker(code.generator, np.ones(machines))
    for count in range(recovery + 1, machines + 1):
        for subset in combinations(range(1, machines + 1), count):
            checks, tolerances = checker.checks(subset)
            assert checks.shape == (count - recovery, count)
            assert np.allclose(np.linalg.norm(checks, axis=1), 1)
            assert np.abs(checks @ code.generator[indices(subset)]).max() < 1e-13
            assert np.linalg.matrix_rank(checks) == count - recovery
            assert (np.count_nonzero(checks, axis=1) <= recovery + 1).all()
            assert np.allclose(tolerances, np.sqrt(recovery + 1))


@pytest.mark.parametrize(
    "machines", [(1, 2, 3), (1, 2, 3, 3), (2, 1, 3, 4), (0, 1, 2, 3), (1, 2, 3, 7), ()]
)
def test_fewer_than_l_plus_1_different_machines_are_rejected(machines):
    checker = make_checker(make_code(6, 3).generator, "float64", 30)
    with pytest.raises(InputError, match="expected more than 3 machines from 1 to 6, ascending"):
        checker.has_disagreement(machines, np.zeros((len(machines), 2)), 1.0)


# --- rounding errors ----------------------------------------------------------------------


@given(
    size=st.sampled_from(SIZES),
    family=FAMILY,
    dtype=st.sampled_from(DTYPES),
    columns=st.sampled_from([1, 2, 30, 200]),
    seed=st.integers(0, 1000),
)
def test_errors_of_answers_are_within_their_bounds(size, family, dtype, columns, seed):
    rng = np.random.default_rng([seed, 1])
    code = make_code(*size, family, seed=seed, dtype=dtype)
    X = rng.standard_normal((size[1], 2, columns)).astype(dtype)
    w = rng.standard_normal(columns).astype(dtype)
    product = Product(code, X, w)
    exact_X, exact_w, exact_generator = (
        np.vectorize(Fraction, otypes=[object])(array.astype(float))
        for array in (X, w, code.generator)
    )
    exact = (exact_generator @ (exact_X @ exact_w)).astype(float)
    bounds = answer_error_bound(code.generator, dtype, columns)
    assert (np.abs(product.answers - exact) <= bounds[:, None] * product.scale).all()


@given(
    size=st.sampled_from([*SIZES, (14, 7), (12, 8)]),
    family=FAMILY,
    dtype=st.sampled_from(DTYPES),
    factor=st.sampled_from([0.0, 1e-300, 1e-37, 1e-18, 1.0, 1e18, 1e30, 1e250]),
    rows=st.sampled_from([1, 500]),
    distribution=st.sampled_from(["normal", "constant", "nearly constant", "scaled", "sparse"]),
    cancels=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_rounding_errors_pass(size, family, dtype, factor, rows, distribution, cancels, seed):
    rng = np.random.default_rng([seed, 1])
    factor = min(factor, 1e30) if dtype == "float32" else factor
    code = make_code(*size, family, seed=seed, dtype=dtype)
    normal = rng.standard_normal((size[1], rows, 100))
    X = (
        factor
        * {
            "normal": normal,
            "constant": np.full(normal.shape, 0.1),
            "nearly constant": 1 + 1e-6 * normal,
            "scaled": normal * np.exp(3 * rng.standard_normal((size[1], rows, 1))),
            "sparse": normal * (rng.random(normal.shape) < 0.05),
        }[distribution]
    )
    w = rng.standard_normal(100)
    product = Product(code, X.astype(dtype), (w - cancels * w.mean()).astype(dtype))
    assert product.identify().agree


def test_the_error_of_repaired_shards_is_tolerated():
    product, generator = random_product(), make_code(6, 3, "fourier").generator
    product.answers[2] += 1e-9 * product.scale
    assert product.has_disagreement()
    errors = encoding_error_bound(generator, "float64")
    errors[2] = 1e-9
    product.checker = make_checker(generator, "float64", 30, errors)
    assert not product.has_disagreement()


# --- detection ----------------------------------------------------------------------------


@given(
    size=st.sampled_from([(4, 1), (6, 3), (7, 4), (9, 4), (12, 8)]),
    family=FAMILY,
    dtype=st.sampled_from(DTYPES),
    factor=st.sampled_from([-1.001, 1.001, 3.0, -1e3, 1e9]),
    seed=st.integers(0, 30),
    data=st.data(),
)
def test_an_error_above_the_detectable_size_is_identified(size, family, dtype, factor, seed, data):
    machines, recovery = size
    product = random_product(machines, recovery, family, dtype, seed)
    participants = sorted(data.draw(st.permutations(product.machines))[: recovery + 3])
    faulty, row = data.draw(st.sampled_from(participants)), data.draw(st.integers(0, 39))
    subsets = [subset for subset in combinations(participants, recovery + 1) if faulty in subset]
    errors = [
        detectable_errors(product.checker, subset)[subset.index(faulty)] for subset in subsets
    ]
    if not np.isfinite(errors).all():
        return
    product.answers[faulty - 1, row] += max(errors) * product.scale[row] * factor
    for subset in subsets:
        assert product.has_disagreement(subset)
        assert not product.has_disagreement(subset, np.arange(40) != row)
    assert product.identify(participants).faulty == (faulty,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("machines", "recovery"), [(4, 2), (6, 3), (7, 5)])
def test_sensitivity_is_that_of_the_least_sensitive_set(machines, recovery, dtype):
    checker = make_checker(make_code(machines, recovery, dtype=dtype).generator, dtype, 30)
    sensitivity = measure_sensitivity(checker, machines)
    sets = list(combinations(range(1, machines + 1), recovery + 1))
    errors = [detectable_errors(checker, machines).max() for machines in sets]
    assert (sensitivity.measured, sensitivity.complete) == (len(sets), True)
    assert sensitivity.error == pytest.approx(max(errors))
    assert sensitivity.error == errors[sets.index(sensitivity.machines)]
    empty = measure_sensitivity(make_checker(make_code(3, 3).generator, dtype, 30), 3)
    assert (empty.error, empty.machines, empty.measured) == (np.inf, (), 0)


def test_a_repeatable_sample_of_many_sets_is_measured():
    code = make_code(24, 3, "gaussian")
    checker = make_checker(code.generator, "float64", 10)
    worst_set = code.conditioning.worst_machines
    sensitivity = measure_sensitivity(checker, 24, worst_set)
    assert (sensitivity.measured, sensitivity.complete) == (2000 + 21, False)
    assert sensitivity == measure_sensitivity(checker, 24, worst_set)
    included_sets = [tuple(sorted((*worst_set, n))) for n in range(1, 25) if n not in worst_set]
    assert sensitivity.error >= max(detectable_errors(checker, n).max() for n in included_sets)


# --- identification -----------------------------------------------------------------------


@pytest.mark.parametrize("error", [1e6, 1e300, 1.7e308, -1.7e308, np.nan, np.inf, -np.inf])
def test_a_huge_error_is_identified(error):
    product = random_product()
    product.answers[2, 7] += error
    assert product.has_disagreement((1, 2, 3, 4))
    assert product.has_disagreement((1, 2, 3, 4), slice(7, 8))
    assert not product.has_disagreement((1, 2, 4, 5))
    assert product.identify().faulty == (3,)
    product.answers[2] = error
    assert product.identify().faulty == (3,)


def test_two_machines_with_errors_in_different_rows_are_identified():
    product = random_product()
    product.answers[1, 3] += 1.0
    product.answers[4, 9] -= 0.5
    assert product.identify() == Comparison(agree=False, faulty=(2, 5), candidates=((2, 5),))


def test_many_machines_are_compared_in_groups():
    product = random_product(60, 5, "orthonormal")
    product.answers[41, 3] += 1.0
    assert product.identify().faulty == (42,)


@pytest.mark.parametrize("count", [4, 5])
def test_a_machine_without_influence_on_other_checks_is_not_identified(count):
    """Machines 1 and 2 have nearly equal rows, so only machines 3 and 4 determine one dimension."""
    code = MDSCode([[1, 0], [1, 1e-13], [1, 1], [1, -1], [2, 1], [1, 3.0]])
    answers = code.generator[:count] @ np.random.default_rng(0).standard_normal((2, 10))
    answers[2] += 1e-2
    checker = make_checker(code.generator, "float64", 1)
    comparison = checker.identify_faulty(range(1, count + 1), answers, 10.0)
    assert (comparison.agree, comparison.faulty) == (False, ())


@given(
    size=st.sampled_from([(3, 1), (5, 3), (6, 3), (9, 4), (12, 8)]),
    family=FAMILY,
    dtype=st.sampled_from(DTYPES),
    magnitudes=st.lists(st.floats(-18, 30), min_size=1, max_size=2),
    redundancy=st.integers(1, 4),
    rows=st.sampled_from([1, 40]),
    pattern=st.sampled_from(["one row", "independent", "proportional", "equal"]),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_no_correct_machine_is_identified_if_one_or_two_are_faulty(
    size, family, dtype, magnitudes, redundancy, rows, pattern, seed, data
):
    machines, recovery = size
    product = random_product(machines, recovery, family, dtype, seed % 30, rows=rows)
    rng = np.random.default_rng(seed)
    participants = data.draw(st.permutations(product.machines))[: recovery + redundancy]
    faulty = participants[: len(magnitudes)]
    errors = rng.standard_normal((len(faulty), rows)) * product.scale
    if pattern == "one row":
        errors[:, 1:] = 0
    elif pattern in ("proportional", "equal"):
        errors[:] = errors[0]
    factors = magnitudes[:1] if pattern == "equal" else magnitudes
    product.answers[indices(faulty)] += errors * 10.0 ** np.array(factors)[:, None]
    comparison = product.identify(participants)
    assert set(comparison.faulty) <= set(faulty)
    if len(faulty) == 1:
        assert comparison.agree or tuple(faulty) in comparison.candidates


def test_errors_of_two_machines_that_mimic_a_third_need_l_plus_3_answers():
    product = random_product()
    checks, _ = product.checker.checks((1, 2, 3, 4, 5))
    product.answers[:2] += np.linalg.solve(checks[:, :2], checks[:, 2])[:, None]
    comparison = product.identify(range(1, 6))
    assert comparison == Comparison(agree=False, faulty=(), candidates=((3,),))
    comparison = product.identify()
    assert (comparison.agree, comparison.faulty) == (False, ())
    assert (1, 2) in comparison.candidates


def test_fewer_than_l_plus_3_answers_identify_no_machine():
    product = random_product(5)
    product.answers[1] += 1e3 * product.scale
    assert product.identify() == Comparison(agree=False, candidates=((2,),))
    assert product.identify(range(1, 5)) == Comparison(False, (), ((1,), (2,), (3,), (4,)))
    product.answers[3] += 1e2 * product.scale
    assert product.identify() == Comparison(agree=False)


@pytest.mark.parametrize("family", ["orthonormal", "gaussian"])
def test_candidates_are_those_of_brute_force(family):
    """Machines explain a disagreement if no L + 1 of the other machines disagree."""
    product, rng = random_product(7, 4, family, seed=3), np.random.default_rng(0)
    correct_answers = product.answers

    def can_explain(candidates):
        remaining = [n for n in product.machines if n not in candidates]
        return not any(map(product.has_disagreement, combinations(remaining, 5)))

    for exponent in np.arange(-15, 12, 0.5):
        product.answers = correct_answers.copy()
        for n in rng.choice(7, rng.integers(1, 3), replace=False):
            product.answers[n, 5] += 10.0**exponent * rng.standard_normal()
        comparison = product.identify()
        assert comparison.agree == (not product.has_disagreement())
        singles, pairs = (
            tuple(filter(can_explain, combinations(product.machines, size))) for size in (1, 2)
        )
        assert comparison.candidates == (() if comparison.agree else singles or pairs)
