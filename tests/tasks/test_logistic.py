"""Logistic regression against scikit-learn."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator
from sklearn.linear_model import LogisticRegression

from cec_mpi.errors import InputError, ScaleWarning
from cec_mpi.tasks import logistic

RNG = np.random.default_rng(17)


def problem(rows, columns, classes=(0, 1)):
    """Samples, and classes that follow from them up to chance."""
    samples = RNG.standard_normal((rows, columns)) * np.geomspace(1, 5, columns)
    chance = RNG.logistic(size=rows) + 0.5
    y = np.where(samples @ RNG.standard_normal(columns) + chance > 0, classes[1], classes[0])
    y[:2] = classes
    return samples, y


@pytest.mark.parametrize("shape", [(100, 5), (20, 60), (30, 1)])
@pytest.mark.parametrize("C", [0.01, 1, 100])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_as_scikit_learn_finds_them(shape, C, fit_intercept):
    samples, y = problem(*shape)
    expected = LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-10, max_iter=10_000)
    expected.fit(samples, y)
    found = logistic(
        aslinearoperator(samples),
        y=y,
        C=C,
        fit_intercept=fit_intercept,
        tol=1e-10,
        iterations=10_000,
    )
    assert found["converged"] is True
    assert np.allclose(found["result"], expected.coef_[0], rtol=1e-4, atol=1e-5)
    assert found["intercept"] == pytest.approx(np.ravel(expected.intercept_)[0], abs=1e-4)


@pytest.mark.parametrize("classes", [(0, 1), (-1, 1), (2, 7.5), (False, True)])
def test_any_two_numbers_are_classes(classes):
    samples, y = problem(50, 4, classes)
    found = logistic(aslinearoperator(samples), y=y)
    same = logistic(aslinearoperator(samples), y=y == classes[1])
    assert found["classes"].tolist() == list(classes)
    assert np.array_equal(found["result"], same["result"])
    assert found["intercept"] == same["intercept"]


def test_each_evaluation_is_one_product_with_each_of_both(counted):
    samples, y = problem(100, 30)
    operator = counted(samples)
    found = logistic(operator, y=y, C=100, tol=1e-8)
    assert found["converged"]
    evaluations = (operator.products - 2) // 2
    assert [name for name, _ in operator.calls] == ["X", "X'"] * (evaluations + 1)
    assert operator.calls[1][1].shape == (100, 8)  # the scales of the columns
    points = {w.tobytes() for name, w in operator.calls if name == "X"}
    assert len(points) == evaluations + 1


SCALES = {
    "a small column": ([1, 1e-4, 1, 1], 0, True),
    "a large column": ([1, 1, 1e4, 1], 0, False),
    "a large mean": ([1, 1, 1, 1], [0, 0, 0, 1e4], True),
    "all but one": ([1e5, 1e5, 1e5, 1], 0, False),
}


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_columns_of_very_different_scale_are_warned_of(scales, dtype):
    factors, means, fit_intercept = SCALES[scales]
    samples, y = problem(300, 4)
    samples = (samples * factors + means).astype(dtype)
    with pytest.warns(ScaleWarning, match=r"^logistic: column \d of X .*standard deviation 1"):
        logistic(aslinearoperator(samples), y=y, iterations=5, fit_intercept=fit_intercept)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("constant", [None, 0.0, 1.0, 1e3])
def test_columns_that_are_alike_are_not_warned_of(constant, fit_intercept):
    samples, y = problem(300, 6)
    samples *= np.geomspace(1, 10, 6)
    if constant is not None:
        samples[:, 2] = constant if fit_intercept or not constant else 1.0
    logistic(aslinearoperator(samples), y=y, iterations=5, fit_intercept=fit_intercept)


def test_a_run_that_goes_on_looks_at_no_scales(counted, memory, state_after):
    samples, y = problem(100, 5)
    samples[:, 1] *= 1e6
    with pytest.warns(ScaleWarning):
        state = state_after(2, logistic, aslinearoperator(samples), y=y)
    operator = counted(samples)
    logistic(operator, y=y, iterations=3, checkpoint=memory(state))
    assert operator.calls[0][0] == "X"


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("part", [0.5, 1.0])
def test_going_on_from_the_last_iterate(part, fit_intercept, counted, memory, state_after):
    samples, y = problem(200, 30)
    options = {"y": y, "C": 100, "tol": 1e-7, "fit_intercept": fit_intercept}
    unbroken, operator, rest = memory(), counted(samples), counted(samples)
    expected = logistic(operator, checkpoint=unbroken, **options)
    number = int(part * len(unbroken.saves))
    state = state_after(number, logistic, aslinearoperator(samples), **options)
    assert state["iterations"] == number
    short = logistic(aslinearoperator(samples), iterations=3, **options)
    assert (short["converged"], short["iterations"]) == (False, 3)
    found = logistic(rest, checkpoint=memory(state), **options)
    assert found["converged"] is True
    assert rest.products < operator.products
    assert np.allclose(found["result"], expected["result"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1, 1, 1]}, "y has 1 different value, expected two classes"),
        ({"y": [1, 2, 3]}, "y has 3 different values, expected two classes"),
        ({"y": [1, 2]}, r"y has shape \(2,\), expected \(3,\)"),
        ({"C": 0}, "C 0: expected a finite number above 0"),
        ({"fit_intercept": 1}, "fit_intercept 1: expected True or False"),
        ({"tol": 0}, "tol 0"),
        ({"iterations": 0}, "iterations 0"),
    ],
)
def test_logistic_refuses_what_it_cannot_do(options, message, counted):
    operator = counted(np.eye(3))
    with pytest.raises(InputError, match=message):
        logistic(operator, **{"y": [0, 1, 1], **options})
    assert operator.products == 0


def test_a_checkpoint_without_intercept_is_refused(memory):
    state = {"x": np.zeros(3), "iterations": np.array(1)}
    with pytest.raises(InputError, match=r"does not fit.*expected.*x of shape \(4,\)"):
        logistic(aslinearoperator(np.eye(3)), y=[0, 1, 1], checkpoint=memory(state))
