"""Estimators fitted on stores, compared with those of scikit-learn on the same numbers."""

import pickle
import subprocess
import sys

import numpy as np
import pandas
import pytest
import scipy.sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.base import clone, is_regressor
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import validate_data

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.sklearn import CodedLogisticRegression, CodedPCA, CodedRidge, CodedTruncatedSVD

RNG = np.random.default_rng(0)
X = RNG.standard_normal((203, 7)) @ np.diag([3.0, 2.5, 2, 1.5, 1, 0.7, 0.5]) + np.arange(7)
Y = X @ np.arange(7.0) + RNG.standard_normal(203)
LABELS = np.where(Y.mean() < Y, "yes", "no")
SAMPLES = RNG.standard_normal((20, 7))
NAMES = [f"c{k}" for k in range(7)]
KINDS = [CodedRidge, CodedLogisticRegression, CodedPCA, CodedTruncatedSVD]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("X") / "store"
    cec_mpi.encode(X, path, 5, 3)
    return path


@pytest.fixture(scope="module")
def named_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("named") / "store"
    cec_mpi.encode(pandas.DataFrame(X, columns=NAMES), path, 4, 2)
    return path


@pytest.fixture(scope="module")
def fitted_models(named_store):
    """Fit a regressor, a classifier and a transformer."""
    classifier = CodedLogisticRegression(tol=1e-2)
    return (
        CodedRidge().fit(named_store, Y),
        classifier.fit(named_store, LABELS),
        CodedPCA(2).fit(named_store),
    )


# --- compared with scikit-learn ------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_ridge_agrees_with_scikit_learn(store, alpha, fit_intercept):
    model = CodedRidge(alpha, fit_intercept=fit_intercept, tol=1e-12).fit(store, Y)
    reference = Ridge(alpha, fit_intercept=fit_intercept).fit(X, Y)
    assert np.allclose(model.coef_, reference.coef_, rtol=0, atol=1e-9)
    assert np.isclose(model.intercept_, reference.intercept_, rtol=0, atol=1e-9)
    assert np.allclose(model.predict(SAMPLES), reference.predict(SAMPLES), rtol=0, atol=1e-9)
    assert np.isclose(model.score(X, Y), reference.score(X, Y))
    assert np.isclose(model.score(store, Y), reference.score(X, Y))
    assert model.coef_.shape == reference.coef_.shape
    assert model.n_iter_ > 1


@pytest.mark.parametrize("labels", [LABELS, LABELS == "yes", np.where(LABELS == "yes", 7, -1)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_logistic_regression_agrees_with_scikit_learn(store, labels, fit_intercept):
    model = CodedLogisticRegression(2, fit_intercept=fit_intercept, tol=1e-8).fit(store, labels)
    reference = LogisticRegression(C=2, fit_intercept=fit_intercept, tol=1e-10, max_iter=1000)
    reference.fit(X, labels)
    assert model.classes_.tolist() == reference.classes_.tolist()
    assert model.classes_.dtype == reference.classes_.dtype
    for name in ("coef_", "intercept_"):
        coefficients, expected = (np.asarray(getattr(m, name)) for m in (model, reference))
        assert np.allclose(coefficients, expected, rtol=0, atol=1e-4)
        assert coefficients.shape == (expected.shape if fit_intercept or name == "coef_" else (1,))
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        assert np.allclose(
            getattr(model, method)(SAMPLES), getattr(reference, method)(SAMPLES), atol=1e-3
        )
    assert model.predict(SAMPLES).tolist() == reference.predict(SAMPLES).tolist()
    assert model.score(X, labels) == model.score(store, labels) == reference.score(X, labels)
    assert model.n_iter_.shape == (1,)


def test_pca_agrees_with_scikit_learn(store):
    model, reference = CodedPCA(3, random_state=0).fit(store), PCA(3, svd_solver="full").fit(X)
    for name in ("components_", "explained_variance_", "singular_values_", "mean_"):
        assert np.allclose(getattr(model, name), getattr(reference, name), rtol=0, atol=1e-9), name
    assert (model.n_components_, model.n_samples_) == (3, 203)
    scores = model.transform(SAMPLES)
    assert np.allclose(scores, reference.transform(SAMPLES), rtol=0, atol=1e-9)
    assert np.allclose(
        model.inverse_transform(scores), reference.inverse_transform(scores), rtol=0, atol=1e-9
    )
    transformed = CodedPCA(3, random_state=0).fit_transform(store)
    assert np.allclose(transformed, reference.transform(X), rtol=0, atol=1e-9)


def test_truncated_svd_agrees_with_scikit_learn(store):
    reference = TruncatedSVD(3, algorithm="arpack", random_state=0)
    expected = reference.fit_transform(X)
    model = CodedTruncatedSVD(3, random_state=0).fit(store)
    for name in ("components_", "singular_values_", "explained_variance_"):
        assert np.allclose(getattr(model, name), getattr(reference, name), rtol=0, atol=1e-8), name
    assert np.allclose(model.transform(X), expected, rtol=0, atol=1e-8)
    assert np.allclose(model.transform(scipy.sparse.csr_array(X)), expected, rtol=0, atol=1e-8)
    assert np.allclose(
        model.inverse_transform(expected), reference.inverse_transform(expected), rtol=0, atol=1e-8
    )


def test_x_may_be_any_open_operator(store):
    expected = Ridge().fit(X, Y)
    with cec_mpi.open_operator(store) as operator:
        operator.available = {1, 3, 4}
        model = CodedRidge(tol=1e-12).fit(operator, Y)
        assert np.allclose(model.predict(operator), expected.predict(X), atol=1e-9)
        assert operator.available == (1, 3, 4)
    model = CodedRidge(tol=1e-12).fit(aslinearoperator(X), Y)
    assert np.allclose(model.coef_, expected.coef_, rtol=0, atol=1e-9)
    assert not hasattr(model, "feature_names_in_")


def test_targets_may_be_a_file(store, tmp_path):
    np.save(tmp_path / "y.npy", Y)
    np.save(tmp_path / "labels.npy", LABELS == "yes")
    model, reference = CodedRidge().fit(store, tmp_path / "y.npy"), Ridge().fit(X, Y)
    assert np.allclose(model.coef_, reference.coef_)
    weights = np.arange(203.0)
    score = model.score(store, tmp_path / "y.npy", weights)
    assert score == pytest.approx(reference.score(X, Y, weights))
    model = CodedLogisticRegression(tol=1e-2)
    assert model.fit(store, str(tmp_path / "labels.npy")).classes_.tolist() == [0, 1]
    labels = np.array([np.str_(LABELS[0]), *LABELS[1:].tolist()], dtype=object)
    assert model.fit(store, labels).classes_.tolist() == ["no", "yes"]


# --- conventions --------------------------------------------------------------------------


def test_column_names_are_feature_names(store, named_store):
    model = CodedRidge().fit(named_store, Y)
    assert (model.feature_names_in_.tolist(), model.n_features_in_) == (NAMES, 7)
    frame = pandas.DataFrame(SAMPLES, columns=NAMES)
    assert np.allclose(model.predict(frame), Ridge().fit(X, Y).predict(SAMPLES))
    assert np.allclose(model.predict(store), model.predict(named_store))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"c3": "other"}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(SAMPLES)
    assert not hasattr(model.fit(store, Y), "feature_names_in_")
    assert np.allclose(model.predict(named_store), model.predict(store))


def test_columns_of_a_frame_are_selected_by_name(named_store, fitted_models):
    frame = pandas.DataFrame(SAMPLES, columns=NAMES, index=range(100, 120))
    for model, call in zip(fitted_models, ("predict", "predict_proba", "transform"), strict=True):
        expected = getattr(model, call)(frame)
        assert np.allclose(getattr(model, call)(frame[NAMES[::-1]]), expected)
        assert np.allclose(getattr(model, call)(frame.assign(more=1)[["more", *NAMES]]), expected)
    model = clone(model).set_output(transform="pandas").fit(named_store)
    reordered = model.transform(frame[NAMES[::-1]])
    assert np.allclose(reordered, expected)
    assert reordered.columns.tolist() == ["codedpca0", "codedpca1"]
    assert reordered.index.tolist() == list(range(100, 120))
    assert model.fit_transform(named_store).shape == (203, 2)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (NAMES[::-1], r"expected c0, .* in this order, found a store with c6, c5"),
        (["x", *NAMES[1:]], r"found a store without c0 and with x, unseen at fit time"),
        ([*NAMES, "c7"], r"found a store with c7, unseen at fit time"),
        (NAMES[:6], r"found a store without c6"),
    ],
)
def test_a_store_with_different_columns_is_refused(fitted_models, tmp_path, names, message):
    ridge, classifier, pca = fitted_models
    frame = pandas.DataFrame(RNG.standard_normal((203, len(names))), columns=names)
    cec_mpi.encode(frame, tmp_path / "other", 4, 2)
    for call in (
        ridge.predict,
        classifier.predict,
        pca.transform,
        lambda store: ridge.score(store, Y),
        lambda store: classifier.score(store, LABELS),
    ):
        with pytest.raises(InputError, match=f"feature names should match .*{message}"):
            call(tmp_path / "other")
    assert np.isfinite(CodedRidge().fit(tmp_path / "other", Y).predict(frame)).all()


def test_masked_entries_are_refused(store):
    masked = np.ma.array(Y, mask=np.arange(203) == 5)
    ridge, classifier, pca = CodedRidge(), CodedLogisticRegression(), CodedPCA(2)
    for call in (
        lambda: ridge.fit(store, masked),
        lambda: classifier.fit(store, np.ma.array(LABELS, mask=masked.mask)),
        lambda: ridge.fit(store, Y).score(store, masked),
        lambda: ridge.score(store, Y, sample_weight=np.ma.array(np.ones(203), mask=masked.mask)),
        lambda: classifier.fit(store, LABELS).score(store, np.ma.array(LABELS, mask=masked.mask)),
    ):
        with pytest.raises(InputError, match="is masked at entry 5"):
            call()
    rows = np.ma.array(SAMPLES, mask=np.arange(7) + np.zeros((20, 1)) == 5)
    pca.fit(store)
    for call, samples in [
        (ridge.predict, rows),
        (classifier.predict_proba, rows),
        (pca.transform, rows),
        (pca.inverse_transform, rows[:, 4:6]),
    ]:
        with pytest.raises(InputError, match="X is masked at row 0, column"):
            call(samples)


class Communicator:
    """A communicator that cannot be copied or pickled."""

    def __reduce__(self):
        raise ValueError("cannot serialize")


@pytest.mark.parametrize("kind", KINDS)
def test_clones_share_the_communicator_and_pickles_have_none(kind):
    comm = Communicator()
    model = kind(comm=comm)
    assert clone(model).comm is comm
    assert repr(model).startswith(f"{kind.__name__}(comm=")
    assert pickle.loads(pickle.dumps(model)).get_params() == {**model.get_params(), "comm": None}


# --- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("array", [X, None, pandas.DataFrame(X)])
def test_an_array_is_refused(kind, array):
    message = r"X has type \w+, expected an open operator or the path of a store \(created by"
    with pytest.raises(InputError, match=message):
        kind().fit(array, LABELS)


LOGISTIC = CodedLogisticRegression()


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (CodedRidge(), None, "CodedRidge requires y to be passed, but the target y is None"),
        (CodedRidge(), Y[:-1], r"y has shape \(202,\), expected \(203,\)"),
        (CodedRidge(), np.where(Y > 3, np.nan, Y), "y has the missing value nan at index"),
        (CodedRidge(), X, "y should be a 1d array"),
        (CodedRidge(-1), Y, "alpha -1: expected a finite number of at least 0"),
        (CodedRidge(max_iter=0), Y, "max_iter 0: expected a whole number"),
        (LOGISTIC, Y, "Unknown label type: continuous"),
        (LOGISTIC, [None, *LABELS[1:]], "y has the missing value None at index 0"),
        (
            LOGISTIC,
            pandas.Series(LABELS, dtype="string").where(Y < 3),
            "y has the missing value <NA> at index",
        ),
        (
            LOGISTIC,
            [1, *LABELS[1:].tolist()],
            "types int, str: expected only text, or only numbers",
        ),
        (LOGISTIC, np.arange(203) % 3, "Only binary .* multiclass, 3 classes"),
        (LOGISTIC, np.ones(203), "y has one class .1.0., expected two"),
        (CodedPCA(8), None, "n_components 8: expected 1 to 7"),
        (CodedTruncatedSVD(0), None, "n_components 0: expected a whole number of at least 1"),
    ],
)
def test_bad_targets_and_parameters_are_refused(store, model, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(store, y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_samples_of_wrong_width_are_refused(store, tmp_path):
    model = CodedRidge().fit(store, Y)
    cec_mpi.encode(X[:, :5], tmp_path / "narrow", 3, 2)
    with pytest.raises(InputError, match="has 5 columns, but CodedRidge is expecting 7 features"):
        model.predict(tmp_path / "narrow")
    with pytest.raises(ValueError, match="X has 5 features, but CodedRidge is expecting 7"):
        model.predict(X[:, :5])
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(np.full((1, 7), np.nan))


@pytest.mark.parametrize("kind", [CodedRidge, CodedLogisticRegression])
def test_a_model_that_has_not_converged_causes_a_warning(store, kind):
    with pytest.warns(ConvergenceWarning, match=r"Coded\w+ did not converge with max_iter 1"):
        assert kind(max_iter=1, tol=1e-12).fit(store, Y.mean() < Y).coef_.any()


def test_without_scikit_learn_the_extra_is_named():
    program = "import sys; sys.modules['sklearn'] = None; import cec_mpi.sklearn"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: cec_mpi.sklearn needs scikit-learn: pip install 'cec_mpi[sklearn]'"
    )


# --- scikit-learn's own checks ------------------------------------------------------------

NOT_RUN = {"check_array_api_input"}  # arrays of other libraries are not supported


class ArrayMixin:
    """A mixin that passes an array to ``fit`` as an operator."""

    def fit(self, X, y=None):
        if self.__sklearn_tags__().target_tags.required:
            numeric = is_regressor(self)
            X, y = validate_data(self, X, y, dtype=float, ensure_min_samples=2, y_numeric=numeric)
        else:
            X = validate_data(self, X, dtype=float, ensure_min_samples=2, ensure_min_features=2)
        operator = aslinearoperator(X)
        operator.column_names = getattr(self, "feature_names_in_", ())
        return super().fit(operator, y)


class RidgeOnArrays(ArrayMixin, CodedRidge):
    pass


class LogisticOnArrays(ArrayMixin, CodedLogisticRegression):
    pass


class PCAOnArrays(ArrayMixin, CodedPCA):
    pass


class SVDOnArrays(ArrayMixin, CodedTruncatedSVD):
    pass


def all_checks():
    for model in (
        RidgeOnArrays(),
        LogisticOnArrays(),
        PCAOnArrays(n_components=1),
        SVDOnArrays(n_components=1),
    ):
        for estimator, check in estimator_checks_generator(model):
            name = check.func.__name__ if hasattr(check, "func") else check.__name__
            if name not in NOT_RUN:
                yield pytest.param(estimator, check, id=f"{type(model).__name__}-{name}")


@pytest.mark.filterwarnings("ignore")  # checks pass bad input
@pytest.mark.parametrize(("estimator", "check"), list(all_checks()))
def test_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [CodedTruncatedSVD, CodedPCA])
def test_variances_beyond_float64_are_refused(kind):
    samples = np.random.default_rng(3).standard_normal((50, 6))
    expected = kind(2, random_state=0).fit(aslinearoperator(samples))
    found = kind(2, random_state=0).fit(aslinearoperator(2.0**400 * samples))
    assert np.array_equal(found.explained_variance_, expected.explained_variance_ * 2.0**800)
    for scale in (2.0**-960, 2.0**960):
        with pytest.raises(InputError, match=r"variance is about .* for float64: X is about"):
            kind(2, random_state=0).fit(aslinearoperator(scale * samples))
