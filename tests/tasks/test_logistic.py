"""Logistic regression against scikit-learn."""

import warnings

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator
from sklearn.linear_model import LogisticRegression

from cec_mpi.errors import ScaleWarning
from cec_mpi.tasks import logistic
from helpers.operators import CountingOperator

RNG = np.random.default_rng(17)


def make_problem(rows, columns, classes=(0, 1)):
    """Return samples, and classes that depend on them and on chance."""
    samples = RNG.standard_normal((rows, columns)) * np.geomspace(1, 5, columns)
    chance = RNG.logistic(size=rows) + 0.5
    y = np.where(samples @ RNG.standard_normal(columns) + chance > 0, classes[1], classes[0])
    y[:2] = classes
    return samples, y


@pytest.mark.parametrize("shape", [(100, 5), (20, 60), (30, 1)])
@pytest.mark.parametrize("C", [0.01, 100])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_are_those_of_scikit_learn(shape, C, fit_intercept):
    samples, y = make_problem(*shape)
    options = {"C": C, "fit_intercept": fit_intercept, "tol": 1e-10}
    expected = LogisticRegression(max_iter=10_000, **options).fit(samples, y)
    found = logistic(aslinearoperator(samples), y=y, iterations=10_000, **options)
    assert found["converged"] is True
    assert np.allclose(found["result"], expected.coef_[0], rtol=1e-4, atol=1e-5)
    assert found["intercept"] == pytest.approx(np.ravel(expected.intercept_)[0], abs=1e-4)


@pytest.mark.parametrize("classes", [(-1, 1), (2, 7.5), (False, True)])
def test_any_two_numbers_are_classes(classes):
    samples, y = make_problem(50, 4, classes)
    found = logistic(aslinearoperator(samples), y=y)
    expected = logistic(aslinearoperator(samples), y=(y == classes[1]) * 1)
    assert found["classes"].tolist() == list(classes)
    assert np.array_equal(found["result"], expected["result"])
    assert found["intercept"] == expected["intercept"]


def test_an_evaluation_is_one_product_with_x_and_one_with_its_transpose():
    samples, y = make_problem(100, 30)
    operator = CountingOperator(samples)
    assert logistic(operator, y=y, C=100, tol=1e-8)["converged"]
    evaluations = (operator.products - 2) // 2
    assert [name for name, _ in operator.calls] == ["X", "X'"] * (evaluations + 1)
    assert operator.calls[1][1].shape == (100, 8)  # measures the scales of columns
    points = {w.tobytes() for name, w in operator.calls if name == "X"}
    assert len(points) == evaluations + 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("factors", "means", "fit_intercept"),
    [
        ([1, 1e-4, 1, 1], 0, True),
        ([1, 1, 1e4, 1], 0, False),
        ([1, 1, 1, 1], [0, 0, 0, 1e4], True),
        ([1e5, 1e5, 1e5, 1], 0, False),
    ],
)
def test_columns_of_very_different_scale_cause_a_warning(factors, means, fit_intercept, dtype):
    samples, y = make_problem(300, 4)
    samples = (samples * factors + means).astype(dtype)
    with pytest.warns(ScaleWarning, match=r"^logistic: column \d of X .*standard deviation 1"):
        logistic(aslinearoperator(samples), y=y, iterations=5, fit_intercept=fit_intercept)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("constant", [None, 0.0, 1.0, 1e3])
def test_columns_of_similar_scale_and_constants_cause_no_warning(constant, fit_intercept):
    samples, y = make_problem(300, 6)
    samples *= np.geomspace(1, 10, 6)
    if constant is not None:
        samples[:, 2] = constant if fit_intercept or not constant else 1.0
    with warnings.catch_warnings(action="error"):
        logistic(aslinearoperator(samples), y=y, iterations=5, fit_intercept=fit_intercept)
