"""Estimators that all ranks fit collectively on a store."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from cec_mpi import open_operator
from cec_mpi.errors import InputError
from cec_mpi.sklearn import CodedLogisticRegression, CodedRidge


@pytest.fixture
def y(X):
    return X @ np.arange(X.shape[1]) + np.random.default_rng(1).standard_normal(len(X))


def test_all_ranks_have_the_fitted_model(comm, store, X, y):
    model = CodedRidge(tol=1e-12, comm=comm).fit(store, y if comm.rank == 0 else None)
    assert np.allclose(model.coef_, Ridge().fit(X, y).coef_, rtol=0, atol=1e-8)
    assert np.allclose(model.predict(store), Ridge().fit(X, y).predict(X), rtol=0, atol=1e-8)
    predictions = model.predict(X[: 1 + comm.rank])  # each rank has its own array
    assert predictions.shape == (1 + comm.rank,)
    assert len({tuple(coefficients) for coefficients in comm.allgather(model.coef_)}) == 1


def test_labels_may_be_text(comm, store, X, y):
    labels = np.where(y > 0, "up", "down")
    model = CodedLogisticRegression(comm=comm).fit(store, labels)
    expected = LogisticRegression(max_iter=1000).fit(X, labels)
    assert model.predict(X).tolist() == expected.predict(X).tolist()


def test_an_open_operator_is_fitted_on_rank_0(comm, store, X, y):
    with open_operator(store, comm) as operator:
        if operator is not None:
            model = CodedRidge(comm=comm).fit(operator, y)
            assert np.allclose(model.coef_, Ridge().fit(X, y).coef_, rtol=0, atol=1e-5)


def test_an_error_of_fit_is_raised_on_all_ranks(comm, store, y):
    model = CodedRidge(comm=comm)
    with pytest.raises(InputError, match=r"y has shape \(1,\), expected"):
        model.fit(store, y[:1])
    assert not hasattr(model, "coef_")
    with pytest.raises(InputError, match="requires y to be passed"):
        model.fit(store, None)
