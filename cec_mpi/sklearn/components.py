"""Principal components and truncated SVD."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InputError
from cec_mpi.sklearn.base import CodedEstimator
from cec_mpi.tasks.common.options import check_integer
from cec_mpi.tasks.common.scaling import normalise_vector, rescale
from cec_mpi.tasks.pca import pca
from cec_mpi.tasks.svd import svd


class _Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CodedEstimator):  # type: ignore[misc]
    """Base class of estimators that project samples onto `components_`."""

    components_: NDArray[Any]

    def __init__(
        self,
        n_components: int = 2,
        *,
        tol: float = 0.0,
        max_iter: int | None = None,
        random_state: Any = None,
        comm: Any = None,
    ) -> None:
        self.n_components = n_components
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state
        self.comm = comm

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _task_options(self, operator: Any) -> dict[str, Any]:
        """Return the parameters as options of the tasks."""
        rows, columns = operator.shape
        limit = min(rows, columns)
        if check_integer("n_components", self.n_components, 1) > limit:
            raise InputError(
                f"n_components {self.n_components}: expected 1 to {limit} for a {rows} x {columns} "
                "matrix"
            )
        if self.max_iter is not None:
            check_integer("max_iter", self.max_iter, 1)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return {
            "k": self.n_components,
            "iterations": self.max_iter,
            "seed": int(seed),
        }

    def _project(self, X: ArrayLike | Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._multiply(X, self.components_.T)

    def _inverse_project(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        samples: NDArray[Any] = check_array(reject_masked("X", X)) @ self.components_
        return samples


class CodedPCA(_Components):
    """Principal components, like `sklearn.decomposition.PCA`, computed by `cec_mpi.tasks.pca`.

    Parameters
    ----------
    n_components : int
        Number of components, from 1 to ``min(q, r)``.
    tol : float
        Relative accuracy of the singular values; 0 means the best that rounding permits.
    max_iter : int, optional
        Maximum number of iterations, each of two products. By default ``100 * min(q, r)``.
    random_state : int, RandomState or None
        Seed of the first vector.
    comm : mpi4py.MPI.Intracomm, optional
        See `CodedRidge`.

    Attributes
    ----------
    components_ : (k, r) ndarray
        Components in order of decreasing variance. The entry of largest absolute value of each
        component is positive.
    explained_variance_, singular_values_ : (k,) ndarray
        Variance of the projections onto each component, and singular values. The explained variance
        ratio is not computed, because it needs all components.
    mean_ : (r,) ndarray
    n_components_ : int
        Number of components k, less than `n_components` if some have not converged.
    n_iter_ : int
    n_samples_, n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Column names, if the store has them. Columns of a DataFrame are then selected by name, and
        another store with column names must have the same names in the same order.
    """

    mean_: NDArray[Any]

    def fit(self, X: Any, y: Any = None) -> CodedPCA:
        """Compute the components (collective if `comm` is set and X is a path).

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples with r features, or an open operator.
        y : None
            Ignored.

        Returns
        -------
        CodedPCA
            This estimator.

        Raises
        ------
        CecError
            X cannot be used, or a parameter is out of range. With `comm`, all ranks raise it.

        Warns
        -----
        ConvergenceWarning
            Fewer than `n_components` have converged.
        """

        def compute(operator: Any) -> dict[str, Any]:
            results = self._run_task(pca, operator, **self._task_options(operator))
            return {
                "components_": results["result"],
                "explained_variance_": results["explained_variance"],
                "singular_values_": results["singular_values"],
                "mean_": results["mean"],
                "n_components_": len(results["result"]),
                "n_iter_": results["iterations"],
                "n_samples_": operator.shape[0],
            }

        return self._fit(X, compute)  # type: ignore[no-any-return]

    def transform(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Project samples onto the components.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, k) ndarray
        """
        projections = self._project(X)
        projections -= self.mean_ @ self.components_.T
        return projections

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Transform projections back to samples.

        Parameters
        ----------
        X : (n, k) array_like

        Returns
        -------
        (n, r) ndarray
        """
        samples = self._inverse_project(X)
        samples += self.mean_
        return samples


class CodedTruncatedSVD(_Components):
    """Truncated SVD, like `sklearn.decomposition.TruncatedSVD`, computed by `cec_mpi.tasks.svd`.

    Parameters
    ----------
    n_components : int
        Number of components, from 1 to ``min(q, r)``.
    tol, max_iter, random_state, comm
        See `CodedPCA`.

    Attributes
    ----------
    components_ : (k, r) ndarray
        Right singular vectors in order of decreasing singular values. The entry of largest
        absolute value of each vector is positive. k is less than `n_components` if some vectors
        have not converged.
    singular_values_, explained_variance_ : (k,) ndarray
        Singular values, and the variances of the columns of ``transform(X)``.
    n_iter_, n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Column names, if the store has them. Columns of a DataFrame are then selected by name, and
        another store with column names must have the same names in the same order.
    """

    def fit(self, X: Any, y: Any = None) -> CodedTruncatedSVD:
        """Compute the singular vectors (collective if `comm` is set and X is a path).

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples with r features, or an open operator.
        y : None
            Ignored.

        Returns
        -------
        CodedTruncatedSVD
            This estimator.

        Raises
        ------
        CecError
            See `CodedPCA.fit`.

        Warns
        -----
        ConvergenceWarning
            Fewer than `n_components` have converged.
        """

        def compute(operator: Any) -> dict[str, Any]:
            results = self._run_task(svd, operator, **self._task_options(operator))
            values, exponent = normalise_vector(results["result"])
            variances = (results["u"] * values).var(axis=0)
            return {
                "components_": results["vt"],
                "singular_values_": results["result"],
                "n_iter_": results["iterations"],
                "explained_variance_": rescale(
                    "the largest variance", variances, 2 * exponent, {"X": exponent}
                ),
            }

        return self._fit(X, compute)  # type: ignore[no-any-return]

    def transform(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Project samples onto the singular vectors.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, k) ndarray
        """
        return self._project(X)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Transform projections back to samples.

        Parameters
        ----------
        X : (n, k) array_like

        Returns
        -------
        (n, r) ndarray
        """
        return self._inverse_project(X)
