"""Logistic regression with two classes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from cec_mpi.errors import InputError
from cec_mpi.sklearn.fitting import CodedEstimator, targets
from cec_mpi.tasks.common.options import vector, whole
from cec_mpi.tasks.logistic import logistic


class CodedLogisticRegression(ClassifierMixin, CodedEstimator):  # type: ignore[misc]
    """As scikit-learn's ``LogisticRegression`` for two classes, by `cec_mpi.tasks.logistic`.

    Parameters
    ----------
    C : float
        The weight of the loss against the penalty, above 0.
    fit_intercept : bool
        Whether there is a constant; it is not penalised.
    max_iter : int
        The most iterations of L-BFGS.
    tol : float
        Converged when no derivative of the objective, divided by ``C q``, is larger.
    comm : mpi4py.MPI.Intracomm, optional
        As of `CodedRidge`.

    Attributes
    ----------
    classes_ : (2,) ndarray
        The labels, in their order.
    coef_ : (1, r) ndarray
        The larger ``coef_ x + intercept_``, the more probable is the second class.
    intercept_ : (1,) ndarray
    n_iter_ : (1,) ndarray of int
    n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Only where the store has names of columns.
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
        """Fit the model. Collective where there is a communicator and X is a path.

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples of r features, or an operator that is open.
        y : (q,) array_like or path of an .npy file
            Labels of two classes, numbers or text; on other ranks than 0 of a communicator they
            do not count.

        Returns
        -------
        CodedLogisticRegression
            Itself.

        Raises
        ------
        CecError
            X or y cannot be used, or a parameter is out of range; with a communicator on all
            ranks.

        Warns
        -----
        ConvergenceWarning
            After `max_iter` iterations `tol` was not met.
        ScaleWarning
            As `cec_mpi.tasks.logistic`.
        """

        def work(operator: Any) -> dict[str, Any]:
            labels = targets(self, y)
            if isinstance(labels, str | os.PathLike):
                labels = vector("y", labels, operator.shape[0])
            check_classification_targets(labels)
            classes, numbers = np.unique(labels, return_inverse=True)
            if len(classes) > 2:
                raise InputError(
                    "Only binary classification is supported. The type of the target is "
                    f"multiclass, {len(classes)} classes: expected two"
                )
            if len(classes) < 2:
                raise InputError(f"y has one class, {classes[0]}: expected two")
            found = logistic(
                operator,
                y=numbers,
                C=self.C,
                fit_intercept=self.fit_intercept,
                tol=self.tol,
                iterations=whole("max_iter", self.max_iter, 1),
            )
            self._warn_unless(found["converged"])
            return {
                "classes_": classes,
                "coef_": found["result"][None, :],
                "intercept_": np.array([found["intercept"]]),
                "n_iter_": np.array([found["iterations"]]),
            }

        return self._fit(X, work)  # type: ignore[no-any-return]

    def decision_function(self, X: ArrayLike | Any) -> NDArray[Any]:
        """How much the model is for the second class.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n,) ndarray
            Above 0 for the second class.
        """
        return self._linear(X)

    def predict(self, X: ArrayLike | Any) -> NDArray[Any]:
        """The more probable class of each sample.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n,) ndarray
            Of labels as in `classes_`.
        """
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(np.intp)]  # type: ignore[no-any-return]

    def predict_proba(self, X: ArrayLike | Any) -> NDArray[Any]:
        """The probability of each class.

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
        """The logarithm of the probability of each class.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, 2) ndarray
        """
        values = self.decision_function(X)
        return np.column_stack((log_expit(-values), log_expit(values)))
