"""Ridge regression."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin

from cec_mpi.sklearn.base import CodedEstimator, ScoreMixin, check_targets
from cec_mpi.tasks.ridge import ridge


class CodedRidge(ScoreMixin, RegressorMixin, CodedEstimator):  # type: ignore[misc]
    """Ridge regression, like `sklearn.linear_model.Ridge`, computed by `cec_mpi.tasks.ridge`.

    Parameters
    ----------
    alpha : float
        Weight of the penalty, at least 0.
    fit_intercept : bool
        Whether to fit an intercept, which is not penalised.
    max_iter : int
        Maximum number of iterations of conjugate gradients.
    tol : float
        Iterations stop when the norm of the residual of the normal equations is at most `tol` times
        that of their right-hand side.
    comm : mpi4py.MPI.Intracomm, optional
        Communicator of the master and the machines. All ranks call `fit` with the path of a store,
        and the attributes are set on all ranks. By default all machines are in this process. Clones
        share the communicator; pickled estimators have none.

    Attributes
    ----------
    coef_ : (r,) ndarray
    intercept_ : float
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Column names, if the store has them. Columns of a DataFrame are then selected by name, and
        another store with column names must have the same names in the same order.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> from cec_mpi.sklearn import CodedRidge
    >>> X = np.array([[1.0], [2.0], [3.0]])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     store = cec_mpi.encode(X, f"{directory}/store", 3, 2)
    ...     model = CodedRidge(alpha=2).fit(f"{directory}/store", [3, 5, 7])
    >>> model.coef_.round(6), model.predict([[4.0]]).round(6)
    (array([1.]), array([7.]))
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-8,
        comm: Any = None,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.comm = comm

    def fit(self, X: Any, y: Any) -> CodedRidge:
        """Fit the model (collective if `comm` is set and X is a path).

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples with r features, or an open operator.
        y : (q,) array_like or path of an .npy file
            Targets. With `comm`, only those of rank 0 are used.

        Returns
        -------
        CodedRidge
            This estimator.

        Raises
        ------
        CecError
            X or y cannot be used, or a parameter is out of range. With `comm`, all ranks raise it.

        Warns
        -----
        ConvergenceWarning
            `tol` was not reached in `max_iter` iterations.
        ScaleWarning, ToleranceWarning
            See `cec_mpi.tasks.ridge`.
        """

        def compute(operator: Any) -> dict[str, Any]:
            targets = check_targets(self, y)
            results = self._run_linear_task(ridge, operator, y=targets, alpha=self.alpha)
            return {
                "coef_": results["result"],
                "intercept_": float(results["intercept"]),
                "n_iter_": int(results["iterations"]),
            }

        return self._fit(X, compute)  # type: ignore[no-any-return]

    def predict(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Predict the targets of samples.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n,) ndarray
        """
        return self._decision_values(X)
