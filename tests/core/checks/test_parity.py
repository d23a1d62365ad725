"""Parity: rounding never raises an alarm, errors that are large enough always do."""

from fractions import Fraction
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.accuracy.rounding import answer_error_bound, encoding_error_bound
from cec_mpi.core.checks.parity import Comparison, ParityChecker, answer_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.code import mds
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.errors import InputError

make_code = cache(mds.make_code)  # most tests have the same few codes
SIZES = [(6, 3), (14, 7), (12, 8)]
SMALL = [(3, 1), (4, 2), (5, 3), (6, 3), (7, 5), (9, 4)]


def answered(code, X, w):
    """What all machines answer to w, in the dtype of X; X has shape (L, rows, r)."""
    return np.stack([shard @ w for shard in encoded(code, X)])


def encoded(code, X):
    """The shards of all machines."""
    shards = np.empty((code.machines, *X.shape[1:]), X.dtype)
    code.encode(X, shards)
    return shards


def made(machines, recovery, family, dtype, seed, rows=40, columns=30):
    """A code, the answers of all its machines, and S for each row."""
    rng = np.random.default_rng(seed)
    code = make_code(machines, recovery, family, seed=seed, dtype=dtype)
    X = rng.standard_normal((recovery, rows, columns)).astype(dtype)
    w = rng.standard_normal(columns).astype(dtype)
    scale = np.abs(X).max(axis=0).astype(float) @ np.abs(w).astype(float)
    return code, answered(code, X, w).astype(float), scale


def checker_of(code, dtype, columns=30, shard_errors=None):
    return answer_checker(code.generator, dtype, columns, shard_errors)


def indices(machines):
    return np.array(machines) - 1


# --- checks and weights -------------------------------------------------------------------


def detectable(checker, machines):
    """The error of each of L + 1 machines from which on their check sees it, relative to S."""
    (check,), (tolerance,) = checker.checks(machines)
    return 2 * tolerance / np.maximum(np.abs(check), 1e-300)


def test_the_check_of_a_sum():
    generator = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]])
    (check,), _ = ParityChecker(generator, np.zeros(3)).checks((1, 2, 3))
    expected = np.array([3, 4, -1]) / np.sqrt(26)
    assert np.allclose(check * np.sign(check[0]), expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("machines", "recovery"), SMALL)
def test_checks_are_unit_vectors_that_right_answers_are_orthogonal_to(machines, recovery, family):
    code = make_code(machines, recovery, family)
    checker = ParityChecker(code.generator, np.ones(machines))
    for count in range(recovery + 1, machines + 1):
        for chosen in combinations(range(1, machines + 1), count):
            checks, tolerances = checker.checks(chosen)
            assert checks.shape == (count - recovery, count)
            assert np.allclose(np.linalg.norm(checks, axis=1), 1)
            assert np.abs(checks @ code.generator[indices(chosen)]).max() < 1e-13
            assert np.linalg.matrix_rank(checks) == count - recovery
            assert (np.count_nonzero(checks, axis=1) <= recovery + 1).all()
            assert np.allclose(tolerances, np.sqrt(recovery + 1))


@pytest.mark.parametrize(
    "machines", [(1, 2, 3), (1, 2, 3, 3), (2, 1, 3, 4), (0, 1, 2, 3), (1, 2, 3, 7), ()]
)
def test_more_than_l_different_machines_are_compared(machines):
    checker = checker_of(make_code(6, 3), "float64")
    with pytest.raises(InputError, match="expected more than 3 machines from 1 to 6, ascending"):
        checker.has_disagreement(machines, np.zeros((len(machines), 2)), 1.0)


@given(
    size=st.sampled_from(SMALL),
    family=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from(["float32", "float64"]),
    columns=st.sampled_from([1, 2, 30, 200]),
    seed=st.integers(0, 1000),
)
def test_no_answer_is_farther_off_than_its_bound(size, family, dtype, columns, seed):
    code, answers, scale = made(*size, family, dtype, seed, rows=2, columns=columns)
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((size[1], 2, columns)).astype(dtype)
    w = rng.standard_normal(columns).astype(dtype)
    X, w, generator = (
        np.vectorize(Fraction, otypes=[object])(each.astype(float))
        for each in (X, w, code.generator)
    )
    exact = (generator @ (X @ w)).astype(float)
    errors = answer_error_bound(code.generator, dtype, dtype, columns)
    assert (np.abs(answers - exact) <= errors[:, None] * scale).all()


# --- false alarms -------------------------------------------------------------------------


def kinds_of_data(recovery, rows, columns, rng):
    """X as it may be: signed, positive, constant, of all sizes, sparse, partly zero."""
    shape = (recovery, rows, columns)
    normal = rng.standard_normal(shape)
    yield normal
    yield rng.random(shape)
    yield np.full(shape, 0.1)
    yield normal * np.exp(3 * rng.standard_normal((recovery, rows, 1)))
    yield normal * (rng.random(shape) < 0.05)
    padded = normal.copy()
    padded[-1, rows // 2 :] = 0
    yield padded


@pytest.mark.parametrize(("machines", "recovery"), SIZES)
@pytest.mark.parametrize(
    ("family", "dtype"), [(None, "float32"), (None, "float64"), ("gaussian", "float32")]
)
def test_none_of_ten_thousand_clean_rows_is_an_alarm(machines, recovery, family, dtype):
    rng = np.random.default_rng(0)
    rows, columns, steps = 500, 100, 3
    code = make_code(machines, recovery, family, seed=0, dtype=dtype)
    checker = checker_of(code, dtype, columns)
    for X in kinds_of_data(recovery, rows, columns, rng):
        shards = encoded(code, X.astype(dtype))
        largest = np.abs(X.astype(dtype)).max(axis=(0, 1)).astype(float)
        for step in range(steps):
            w = rng.standard_normal(columns) if step % 2 else rng.random(columns)
            answers = np.stack([shard @ w.astype(dtype) for shard in shards])
            count = recovery + 1 + step % (machines - recovery)
            chosen = np.sort(rng.choice(machines, count, replace=False)) + 1
            scale = largest @ np.abs(w.astype(dtype)).astype(float)
            assert not checker.has_disagreement(chosen.tolist(), answers[chosen - 1], scale)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("machines", "recovery"), [(3, 1), *SIZES])
def test_a_step_of_one_clean_row_is_no_alarm(machines, recovery, dtype):
    """One number can be small by chance, and is no scale then."""
    code, answers, scale = made(machines, recovery, None, dtype, 0, rows=300)
    checker = checker_of(code, dtype)
    everybody = range(1, machines + 1)
    for row in range(300):
        one = answers[:, row : row + 1]
        assert not checker.has_disagreement(everybody, one, scale[row : row + 1])


@given(
    size=st.sampled_from(SMALL),
    family=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from(["float32", "float64"]),
    factor=st.sampled_from([0.0, 1e-300, 1e-37, 1e-18, 1.0, 1e18, 1e30, 1e250]),
    seed=st.integers(0, 1000),
)
def test_rounding_alone_agrees(size, family, dtype, factor, seed):
    machines, recovery = size
    rng = np.random.default_rng(seed)
    factor = min(factor, 1e30) if dtype == "float32" else factor
    code = make_code(machines, recovery, family, seed=seed, dtype=dtype)
    X = (factor * rng.standard_normal((recovery, 20, 30))).astype(dtype)
    w = rng.standard_normal(30).astype(dtype)
    scale = np.abs(X).max(axis=0).astype(float) @ np.abs(w).astype(float)
    everybody = range(1, machines + 1)
    assert checker_of(code, dtype).identify_faulty(everybody, answered(code, X, w), scale).agree


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("closeness", [1e-2, 1e-4, 1e-6, 0.0])
def test_a_first_product_that_cancels_raises_no_alarm(dtype, closeness):
    """X w is next to nothing, and its rounding errors are not."""
    rng = np.random.default_rng(0)
    code = make_code(6, 3, dtype=dtype)
    X = (1 + closeness * rng.standard_normal((3, 50, 400))).astype(dtype)
    mixed = rng.standard_normal(400)
    for w in (np.tile([1.0, -1.0], 200), mixed - mixed.mean()):
        sent = w.astype(dtype)
        answers = answered(code, X, sent)
        scale = np.abs(X).max(axis=(0, 1)).astype(float) @ np.abs(sent).astype(float)
        checker = checker_of(code, dtype, 400)
        assert not checker.has_disagreement(range(1, 7), answers, scale)
        assert checker.identify_faulty(range(1, 7), answers, scale).agree


# --- errors that are seen -----------------------------------------------------------------


@given(
    size=st.sampled_from([(4, 1), (6, 3), (7, 4), (9, 4), (12, 8)]),
    family=st.sampled_from(["fourier", "orthonormal", "gaussian"]),
    dtype=st.sampled_from(["float32", "float64"]),
    factor=st.sampled_from([1.001, 3.0, 1e3, 1e9]),
    seed=st.integers(0, 30),
    data=st.data(),
)
def test_an_error_above_the_detectable_size_is_seen_and_named(
    size, family, dtype, factor, seed, data
):
    machines, recovery = size
    code, answers, scale = made(machines, recovery, family, dtype, seed)
    checker = checker_of(code, dtype)
    chosen = sorted(data.draw(st.permutations(range(1, machines + 1)))[: recovery + 3])
    wrong = data.draw(st.sampled_from(chosen))
    row = data.draw(st.integers(0, answers.shape[1] - 1))
    fewer = [some for some in combinations(chosen, recovery + 1) if wrong in some]
    sizes = [scale[row] * detectable(checker, some)[some.index(wrong)] for some in fewer]
    if not np.isfinite(sizes).all():
        return  # nobody promised anything
    answers[wrong - 1, row] += max(sizes) * factor * data.draw(st.sampled_from([-1, 1]))
    for some in fewer:
        assert checker.has_disagreement(some, answers[indices(some)], scale)
        others = answers[indices(some)][:, np.arange(answers.shape[1]) != row]
        assert not checker.has_disagreement(some, others, np.delete(scale, row))
    assert checker.identify_faulty(chosen, answers[indices(chosen)], scale).faulty == (wrong,)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("machines", "recovery"), [(4, 2), (6, 3), (7, 5)])
def test_sensitivity_is_that_of_the_worst_set_of_machines(machines, recovery, dtype):
    checker = checker_of(make_code(machines, recovery, dtype=dtype), dtype)
    found = measure_sensitivity(checker, machines)
    sets = list(combinations(range(1, machines + 1), recovery + 1))
    assert (found.measured, found.complete) == (len(sets), True)
    assert found.error == pytest.approx(max(detectable(checker, some).max() for some in sets))
    assert found.error == pytest.approx(detectable(checker, found.machines).max())


def test_of_l_machines_no_error_is_seen():
    found = measure_sensitivity(checker_of(make_code(3, 3), "float64"), 3)
    assert (found.error, found.machines, found.measured) == (np.inf, (), 0)


def test_where_sets_are_many_a_repeatable_sample_is_measured():
    code = make_code(24, 3, "gaussian")
    checker, worst = checker_of(code, "float64", 10), code.conditioning.worst_machines
    found = measure_sensitivity(checker, 24, worst)
    assert (found.measured, found.complete) == (2000 + 21, False)
    assert found == measure_sensitivity(checker, 24, worst)
    known = [tuple(sorted((*worst, n))) for n in range(1, 25) if n not in worst]
    assert found.error >= max(detectable(checker, some).max() for some in known)


# --- who is wrong -------------------------------------------------------------------------


@pytest.mark.parametrize("huge", [1e6, 1e30, 1e300, 1.7e308, -1.7e308, np.nan, np.inf, -np.inf])
def test_a_huge_error_is_seen_and_named(huge):
    code, answers, scale = made(6, 3, "fourier", "float64", 0)
    answers[2, 7] += huge
    checker = checker_of(code, "float64")
    assert checker.has_disagreement((1, 2, 3, 4), answers[:4], scale)
    assert checker.has_disagreement((1, 2, 3, 4), answers[:4, 7:8], scale[7:8])
    assert not checker.has_disagreement((1, 2, 4, 5), answers[[0, 1, 3, 4]], scale)
    assert checker.identify_faulty(range(1, 7), answers, scale).faulty == (3,)
    answers[2] = huge
    assert checker.identify_faulty(range(1, 7), answers, scale).faulty == (3,)


def test_two_machines_that_are_wrong_in_different_rows_are_both_named():
    code, answers, scale = made(6, 3, "fourier", "float64", 0)
    answers[1, 3] += 1.0
    answers[4, 9] -= 0.5
    verdict = checker_of(code, "float64").identify_faulty(range(1, 7), answers, scale)
    assert verdict == Comparison(agree=False, faulty=(2, 5), candidates=((2, 5),))


def test_of_many_machines_some_are_compared_first():
    machines = 60
    code = make_code(machines, 5, "orthonormal")
    answers = code.generator @ np.random.default_rng(0).standard_normal((5, 10))
    answers[41, 3] += 1.0
    everybody = range(1, machines + 1)
    assert checker_of(code, "float64").identify_faulty(everybody, answers, 10.0).faulty == (42,)


def test_an_error_that_is_detected_and_not_located_names_nobody():
    """Machines 1 and 2 are nearly the same: what they leave open, 3 and 4 alone say."""
    code = MDSCode([[1, 0], [1, 1e-13], [1, 1], [1, -1], [2, 1], [1, 3.0]])
    answers = code.generator @ np.random.default_rng(0).standard_normal((2, 10))
    answers[2] += 1e-2
    for count in (4, 5):
        some = tuple(range(1, count + 1))
        verdict = checker_of(code, "float64", 1).identify_faulty(some, answers[:count], 10.0)
        assert not verdict.agree
        assert verdict.faulty == ()


@given(
    size=st.sampled_from([(3, 1), (5, 3), (6, 3), (9, 4), (12, 8)]),
    family=st.sampled_from(sorted(FAMILIES)),
    dtype=st.sampled_from(["float32", "float64"]),
    magnitudes=st.lists(st.floats(-18, 30), min_size=1, max_size=2),
    more=st.integers(1, 4),
    rows=st.sampled_from([1, 40]),
    everywhere=st.booleans(),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_of_one_or_two_wrong_machines_no_error_makes_an_innocent_one_be_named(
    size, family, dtype, magnitudes, more, rows, everywhere, seed, data
):
    machines, recovery = size
    code, answers, scale = made(machines, recovery, family, dtype, seed % 30, rows=rows)
    rng = np.random.default_rng([seed, 1])  # a Gaussian code is made of default_rng(seed)
    chosen = data.draw(st.permutations(range(1, machines + 1)))[: recovery + more]
    guilty = chosen[: len(magnitudes)]
    where = slice(None) if everywhere else slice(1)
    for n, magnitude in zip(guilty, magnitudes, strict=True):
        answers[n - 1, where] += (10**magnitude * rng.standard_normal(rows) * scale)[where]
    some = sorted(chosen)
    verdict = checker_of(code, dtype).identify_faulty(some, answers[indices(some)], scale)
    assert set(verdict.faulty) <= set(guilty)
    if len(guilty) == 1:
        assert verdict.agree or tuple(guilty) in verdict.candidates


def test_two_that_look_like_a_third_differ_from_it_with_three_to_spare():
    code, answers, scale = made(6, 3, "fourier", "float64", 0)
    checker = checker_of(code, "float64")
    checks, _ = checker.checks((1, 2, 3, 4, 5))
    error = np.linalg.solve(checks[:, :2], checks[:, 2])  # of machines 1 and 2 as one of 3
    answers[:2] += error[:, None]
    five = checker.identify_faulty(range(1, 6), answers[:5], scale)
    assert five == Comparison(agree=False, faulty=(), candidates=((3,),))
    six = checker.identify_faulty(range(1, 7), answers, scale)
    assert not six.agree
    assert six.faulty == ()
    assert (1, 2) in six.candidates


def alike(rng, answers, guilty, innocent, checks):
    """Errors of several machines that a naive check takes for those of another one."""
    count = len(guilty)
    row = int(rng.integers(answers.shape[1]))
    bit = np.uint64(1) << np.uint64(rng.integers(30, 62))
    flipped = (answers[guilty, row].view(np.uint64) ^ bit).view(np.float64)
    shape = rng.standard_normal(answers.shape[1])
    towards = np.linalg.lstsq(checks[:, guilty], checks[:, innocent])[0]
    one_row = np.arange(answers.shape[1]) == row
    return {
        "equal": one_row * np.full((count, 1), rng.standard_normal()),
        "the same bit": one_row * (flipped - answers[guilty, row])[:, None],
        "equal in all rows": np.tile(shape, (count, 1)),
        "proportional": np.outer(rng.integers(1, 4, count), shape),
        "independent": one_row * 10.0 ** rng.uniform(-6, 6, (count, 1)),
        "the worst": np.outer(towards, one_row),
    }


@pytest.mark.parametrize("size", [(4, 1), (6, 3), (6, 4), (7, 3), (10, 5)])
@pytest.mark.parametrize("family", ["fourier", "orthonormal"])
def test_of_two_wrong_machines_with_common_errors_no_innocent_one_is_named(size, family):
    machines, recovery = size
    code = make_code(machines, recovery, family)
    checker, rng = checker_of(code, "float64"), np.random.default_rng(0)
    for spare in range(2, machines - recovery + 1):
        for some in combinations(range(1, machines + 1), recovery + spare):
            answers = code.generator[indices(some)] @ rng.standard_normal((recovery, 4))
            for count in (1, 2):
                mixed = rng.permutation(len(some))
                guilty, innocent = mixed[:count], mixed[count]
                errors = alike(rng, answers, guilty, innocent, checker.checks(some)[0])
                for kind, error in errors.items():
                    wrong = answers.copy()
                    wrong[guilty] += error
                    named = checker.identify_faulty(some, wrong, 10.0).faulty
                    assert set(named) <= {some[k] for k in guilty}, (kind, some, named)
                    if spare > 2 and kind == "equal in all rows" and count == 1:
                        assert len(named) == 1


def test_with_two_to_spare_nobody_is_named_and_who_it_can_be_is_known():
    code, answers, scale = made(5, 3, "fourier", "float64", 0)
    checker = checker_of(code, "float64")
    answers[1] += 1e3 * scale
    five = checker.identify_faulty(range(1, 6), answers, scale)
    assert five == Comparison(agree=False, faulty=(), candidates=((2,),))
    four = checker.identify_faulty(range(1, 5), answers[:4], scale)
    assert four == Comparison(agree=False, faulty=(), candidates=((1,), (2,), (3,), (4,)))
    answers[3] += 1e2 * scale
    assert checker.identify_faulty(range(1, 6), answers, scale) == Comparison(agree=False)


@pytest.mark.parametrize("family", ["orthonormal", "gaussian"])
def test_what_explains_a_disagreement_is_what_brute_force_finds(family):
    """Machines explain it if no L + 1 of the others disagree."""
    code, answers, scale = made(7, 4, family, "float64", 3)
    rng = np.random.default_rng(0)
    checker, everybody = checker_of(code, "float64"), tuple(range(1, 8))

    def agree(machines, wrong):
        return not any(
            checker.has_disagreement(some, wrong[indices(some)], scale)
            for some in combinations(machines, 5)
        )

    for exponent in np.arange(-15, 12, 0.5):
        wrong = answers.copy()
        for n in rng.choice(7, rng.integers(1, 3), replace=False):
            wrong[n, 5] += 10.0**exponent * rng.standard_normal()
        verdict = checker.identify_faulty(everybody, wrong, scale)
        assert verdict.agree == (not checker.has_disagreement(everybody, wrong, scale))
        if verdict.agree:
            continue
        found = []
        for size in (1, 2):
            found = found or [
                gone
                for gone in combinations(everybody, size)
                if agree([n for n in everybody if n not in gone], wrong)
            ]
        assert verdict.candidates == tuple(found)


def test_shards_that_were_repaired_are_allowed_their_error():
    code, answers, scale = made(6, 3, "fourier", "float64", 0)
    answers[2] += 1e-9 * scale
    errors = encoding_error_bound(code.generator, "float64")
    everybody = range(1, 7)
    assert checker_of(code, "float64").has_disagreement(everybody, answers, scale)
    errors[2] = 1e-9
    assert not checker_of(code, "float64", 30, errors).has_disagreement(everybody, answers, scale)
