"""Logistic regression with two classes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from cec_mpi.errors import InputError
from cec_mpi.sklearn.base import CodedEstimator, ScoreMixin, check_targets
from cec_mpi.tasks.common.options import read_vector
from cec_mpi.tasks.logistic import logistic


class CodedLogisticRegression(ScoreMixin, ClassifierMixin, CodedEstimator):  # type: ignore[misc]
    """Logistic regression with two classes, like `sklearn.linear_model.LogisticRegression`.

    Parameters
    ----------
    C : float
        Weight of the loss relative to the penalty, above 0.
    fit_intercept : bool
        Whether to fit an intercept, which is not penalised.
    max_iter : int
        Maximum number of iterations of L-BFGS.
    tol : float
        Iterations stop when all derivatives of the objective, divided by ``C q``, are below `tol`,
        or when the objective no longer decreases; see `cec_mpi.tasks.logistic`.
    comm : mpi4py.MPI.Intracomm, optional
        See `CodedRidge`.

    Attributes
    ----------
    classes_ : (2,) ndarray
        Labels in ascending order.
    coef_ : (1, r) ndarray
        Coefficients of the log odds of the second class.
    intercept_ : (1,) ndarray
    n_iter_ : (1,) ndarray of int
    n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Column names, if the store has them. Columns of a DataFrame are then selected by name, and
        another store with column names must have the same names in the same order.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-4,
        comm: Any = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.comm = comm

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> CodedLogisticRegression:
        """Fit the model (collective if `comm` is set and X is a path).

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples with r features, or an open operator.
        y : (q,) array_like or path of an .npy file
            Labels of two classes, as numbers or text. With `comm`, only those of rank 0 are used.

        Returns
        -------
        CodedLogisticRegression
            This estimator.

        Raises
        ------
        CecError
            X or y cannot be used, or a parameter is out of range. With `comm`, all ranks raise it.

        Warns
        -----
        ConvergenceWarning
            The solver did not converge in `max_iter` iterations.
        ScaleWarning, ToleranceWarning
            See `cec_mpi.tasks.logistic`.
        """

        def compute(operator: Any) -> dict[str, Any]:
            labels = check_targets(self, y)
            _check_label_types(y)
            if isinstance(labels, str | os.PathLike):
                labels = read_vector("y", labels, operator.shape[0])
            check_classification_targets(labels)
            classes, indices = np.unique(labels, return_inverse=True)
            if len(classes) > 2:
                raise InputError(
                    "Only binary classification is supported. The type of the target is "
                    f"multiclass, {len(classes)} classes: expected two"
                )
            if len(classes) < 2:
                raise InputError(f"y has one class ({classes[0]}), expected two")
            results = self._run_linear_task(logistic, operator, y=indices, C=self.C)
            return {
                "classes_": classes,
                "coef_": results["result"][None, :],
                "intercept_": np.array([results["intercept"]]),
                "n_iter_": np.array([results["iterations"]]),
            }

        return self._fit(X, compute)  # type: ignore[no-any-return]

    def decision_function(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Return ``X coef_ + intercept_``, which is positive for the second class.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n,) ndarray
        """
        return self._decision_values(X)

    def predict(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Return the more probable class of each sample.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n,) ndarray
            Labels from `classes_`.
        """
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(np.intp)]  # type: ignore[no-any-return]

    def predict_proba(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Return the probability of each class.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, 2) ndarray
        """
        values = self.decision_function(X)
        return np.column_stack((expit(-values), expit(values)))

    def predict_log_proba(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Return the logarithm of the probability of each class.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, 2) ndarray
        """
        values = self.decision_function(X)
        return np.column_stack((log_expit(-values), log_expit(values)))


def _check_label_types(labels: Any) -> None:
    """Raise if labels mix text with other types, because NumPy would convert all to text."""
    dtype = getattr(labels, "dtype", np.dtype(object))
    if isinstance(labels, str | os.PathLike) or not pd.api.types.is_object_dtype(dtype):
        return
    if len({isinstance(label, str) for label in labels}) > 1:
        types = sorted({type(label).__name__ for label in labels})
        raise InputError(
            f"y has labels of the types {', '.join(types)}: expected only text, or only numbers"
        )
