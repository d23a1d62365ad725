"""Base class of the estimators, whose X is a store or an operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.runtime.processes.packing import broadcast
from cec_mpi.store.files.npy import open_npy
from cec_mpi.store.files.paths import as_path
from cec_mpi.tasks.common.options import check_integer
from cec_mpi.text import truncate, warn_caller

_MAX_LISTED = 5  # column names in a message


class ScoreMixin:
    """Mixin whose `score` also reads targets from a file.

    It must precede scikit-learn's ``ClassifierMixin`` or ``RegressorMixin``, which define the
    metric.
    """

    def score(self, X: ArrayLike | Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, or R^2 of a regressor.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`
        y : (n,) array_like or path of an .npy file
        sample_weight : (n,) array_like, optional
        """
        y = check_targets(self, y)
        if isinstance(y, str | os.PathLike):
            y = np.asarray(open_npy(as_path(y)))
        weights = reject_masked("sample_weight", sample_weight)
        return super().score(X, y, weights)  # type: ignore[misc, no-any-return]


class CodedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of the estimators. Copies and pickles have no `comm`; clones share it."""

    comm: Any

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "comm": None}

    def __sklearn_clone__(self) -> Any:
        copy = type(self).__new__(type(self))
        copy.__dict__ |= {**self.__dict__, "comm": None}
        clone = super(CodedEstimator, copy).__sklearn_clone__()
        clone.comm = self.comm
        return clone

    def _fit(self, X: Any, compute: Callable[[Any], dict[str, Any]]) -> Any:
        """Call `compute` with X as an operator; set its results as attributes on all ranks."""

        def compute_attributes(operator: Any) -> dict[str, Any]:
            results = {"n_features_in_": operator.shape[1], **compute(operator)}
            if names := getattr(operator, "column_names", ()):
                results["feature_names_in_"] = np.array(names, dtype=object)
            return results

        results = self._call_on_master(X, compute_attributes)
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        for name, value in results.items():
            setattr(self, name, value)
        return self

    def _multiply(self, X: Any, W: NDArray[Any]) -> NDArray[Any]:
        """Return ``X W`` for an array, a DataFrame (columns are selected by name) or a store."""
        feature_names = list(getattr(self, "feature_names_in_", ()))
        if not is_store_or_operator(X):
            if not hasattr(X, "columns"):
                X = reject_masked("X", X)
            elif feature_names and set(feature_names).issubset(X.columns):
                X = X[feature_names]
            X = validate_data(self, X, accept_sparse=("csr", "csc"), reset=False)
            return np.asarray(X @ W)

        def multiply(operator: Any) -> dict[str, Any]:
            names = list(getattr(operator, "column_names", ()))
            if feature_names and names and names != feature_names:
                raise InputError(_mismatch_message(names, feature_names))
            if operator.shape[1] != self.n_features_in_:
                raise InputError(
                    f"the store has {operator.shape[1]} columns, but {type(self).__name__} is "
                    f"expecting {self.n_features_in_} features as input"
                )
            return {"product": np.asarray(operator.matmat(W))}

        product: NDArray[Any] = self._call_on_master(X, multiply)["product"]
        return product

    def _decision_values(self, X: Any) -> NDArray[Any]:
        """Return ``X coef_ + intercept_``, of shape (n,)."""
        check_is_fitted(self)
        values: NDArray[Any] = self._multiply(X, np.reshape(self.coef_, (-1, 1)))[:, 0]
        values += self.intercept_
        return values

    def _call_on_master(self, X: Any, compute: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Call `compute` on rank 0 with X as an operator; return its results on all ranks."""
        results: dict[str, Any] = {}
        with _open_operator(X, self.comm) as operator:
            if operator is not None:
                results = compute(operator)
        if self.comm is None or isinstance(X, LinearOperator):
            return results
        arrays = {name: np.asarray(value) for name, value in results.items()}
        dtypes = broadcast(
            self.comm, {name: array.dtype.str for name, array in arrays.items()}, dict[str, str]
        )
        encodable_arrays = {  # text of fixed width instead of Python objects
            name: np.array(array.tolist()) if array.dtype.hasobject else array
            for name, array in arrays.items()
        }
        arrays = broadcast(self.comm, encodable_arrays, dict[str, NDArray[Any]])
        arrays = {name: array.astype(dtypes[name], copy=False) for name, array in arrays.items()}
        return {name: array if array.ndim else array.item() for name, array in arrays.items()}

    def _run_task(self, task: Callable[..., Any], operator: Any, **options: Any) -> Any:
        """Return the results of a task, and warn if it has not converged."""
        results = task(operator, tol=self.tol, **options)
        if not results["converged"]:
            warn_caller(
                f"{type(self).__name__} did not converge with max_iter {self.max_iter}: increase "
                "it",
                ConvergenceWarning,
            )
        return results

    def _run_linear_task(self, task: Callable[..., Any], operator: Any, **options: Any) -> Any:
        """Run a task that fits coefficients and an intercept; return its results."""
        iterations = check_integer("max_iter", self.max_iter, 1)
        options |= {"fit_intercept": self.fit_intercept, "iterations": iterations}
        return self._run_task(task, operator, **options)


def _mismatch_message(names: list[str], feature_names: list[str]) -> str:
    """Return an error message about the column names of a store."""
    unseen = [name for name in names if name not in set(feature_names)]
    missing = [feature for feature in feature_names if feature not in set(names)]
    problems = [f"without {truncate(missing, _MAX_LISTED)}"] * bool(missing)
    problems += [f"with {truncate(unseen, _MAX_LISTED)}, unseen at fit time"] * bool(unseen)
    return (
        "The feature names should match those that were passed during fit: expected "
        f"{truncate(feature_names, _MAX_LISTED)} in this order, found a store "
        f"{' and '.join(problems) or f'with {truncate(names, _MAX_LISTED)}'}"
    )


def is_store_or_operator(X: Any) -> bool:
    """Return whether X is a path or an operator."""
    return isinstance(X, str | os.PathLike | LinearOperator)


def check_targets(estimator: Any, y: Any) -> Any:
    """Return y as a 1-D array, or the path of a file unchanged."""
    if y is None:
        raise InputError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    if isinstance(y, str | os.PathLike):
        return y
    y = reject_masked("y", y)
    missing = np.flatnonzero(pd.isna(y))
    if missing.size:
        value = np.asarray(y, dtype=object).ravel()[missing[0]]
        raise InputError(
            f"y has the missing value {value} at index {missing[0]}: remove such samples"
        )
    return column_or_1d(y, warn=True)


@contextmanager
def _open_operator(X: Any, comm: Any) -> Iterator[Any]:
    if isinstance(X, LinearOperator):
        yield X
    elif is_store_or_operator(X):
        with open_operator(X, comm) as operator:
            yield operator
    else:
        raise InputError(
            f"X has type {type(X).__name__}, expected an open operator or the path of a store "
            "(created by cec_mpi.encode(X, path, machines, recovery))"
        )
