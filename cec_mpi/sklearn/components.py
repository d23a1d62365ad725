"""Principal components, and the leading singular vectors, of the rows of X."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted

from cec_mpi.errors import InputError
from cec_mpi.sklearn.fitting import CodedEstimator
from cec_mpi.tasks.common.options import whole
from cec_mpi.tasks.common.units import in_units, normalised
from cec_mpi.tasks.pca import pca
from cec_mpi.tasks.svd import svd


class _Components(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CodedEstimator):  # type: ignore[misc]
    """Samples as sums of few rows, `components_`."""

    components_: NDArray[Any]
    mean_: NDArray[Any]

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

    def _options(self, operator: Any) -> dict[str, Any]:
        """Of the tasks, which have other names for them."""
        rows, columns = operator.shape
        most = min(rows, columns) - 1
        if whole("n_components", self.n_components, 1) > most:
            raise InputError(
                f"n_components {self.n_components}: expected from 1 to {most}, one less than the "
                f"smaller side of a {rows} x {columns} matrix"
            )
        if self.max_iter is not None:
            whole("max_iter", self.max_iter, 1)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return {
            "k": self.n_components,
            "tol": self.tol,
            "iterations": self.max_iter,
            "seed": int(seed),
        }

    def _projected(self, X: ArrayLike | Any) -> NDArray[Any]:
        check_is_fitted(self)
        return self._times(X, self.components_.T)

    def _combined(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        samples: NDArray[Any] = check_array(X) @ self.components_
        return samples


class CodedPCA(_Components):
    """As scikit-learn's ``PCA``, fitted on a store by `cec_mpi.tasks.pca`.

    Parameters
    ----------
    n_components : int
        From 1 to ``min(q, r) - 1``.
    tol : float
        Relative accuracy of the singular values; 0 is the best.
    max_iter : int, optional
        The most iterations, of two products each; by default ``100 * min(q, r)``.
    random_state : int, RandomState or None
        Of the first vector.
    comm : mpi4py.MPI.Intracomm, optional
        As of `CodedRidge`.

    Attributes
    ----------
    components_ : (k, r) ndarray
        That of the largest variance first; in each the entry of largest absolute value is
        positive.
    explained_variance_, singular_values_ : (k,) ndarray
        Their share of the variance of X is not known: it would take all components.
    mean_ : (r,) ndarray
    n_components_ : int
        k: less than `n_components` where some have not converged.
    n_iter_ : int
    n_samples_, n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Only where the store has names of columns.
    """

    def fit(self, X: Any, y: Any = None) -> CodedPCA:
        """Find the components. Collective where there is a communicator and X is a path.

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples of r features, or an operator that is open.
        y : None
            Not used.

        Returns
        -------
        CodedPCA
            Itself.

        Raises
        ------
        CecError
            X cannot be used, or a parameter is out of range; with a communicator on all ranks.

        Warns
        -----
        ConvergenceWarning
            Fewer components than wanted have converged.
        """

        def work(operator: Any) -> dict[str, Any]:
            found = pca(operator, **self._options(operator))
            self._warn_unless(found["converged"])
            return {
                "components_": found["result"],
                "explained_variance_": found["explained_variance"],
                "singular_values_": found["singular_values"],
                "mean_": found["mean"],
                "n_components_": len(found["result"]),
                "n_iter_": found["iterations"],
                "n_samples_": operator.shape[0],
            }

        return self._fit(X, work)  # type: ignore[no-any-return]

    def transform(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Samples by their components.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, k) ndarray
        """
        found = self._projected(X)
        found -= self.mean_ @ self.components_.T
        return found

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Samples from their components.

        Parameters
        ----------
        X : (n, k) array_like

        Returns
        -------
        (n, r) ndarray
        """
        found = self._combined(X)
        found += self.mean_
        return found


class CodedTruncatedSVD(_Components):
    """As scikit-learn's ``TruncatedSVD``, fitted on a store by `cec_mpi.tasks.svd`.

    Parameters
    ----------
    n_components : int
        From 1 to ``min(q, r) - 1``.
    tol, max_iter, random_state, comm
        As of `CodedPCA`.

    Attributes
    ----------
    components_ : (k, r) ndarray
        Right singular vectors, that of the largest singular value first; in each the entry of
        largest absolute value is positive. Fewer where some have not converged.
    singular_values_, explained_variance_ : (k,) ndarray
        The variance is that of the columns of ``transform(X)``.
    n_iter_, n_features_in_ : int
    feature_names_in_ : (r,) ndarray of str
        Only where the store has names of columns.
    """

    def fit(self, X: Any, y: Any = None) -> CodedTruncatedSVD:
        """Find the vectors. Collective where there is a communicator and X is a path.

        Parameters
        ----------
        X : path or LinearOperator
            A store of q samples of r features, or an operator that is open.
        y : None
            Not used.

        Returns
        -------
        CodedTruncatedSVD
            Itself.

        Raises
        ------
        CecError
            As `CodedPCA.fit`.

        Warns
        -----
        ConvergenceWarning
            Fewer vectors than wanted have converged.
        """

        def work(operator: Any) -> dict[str, Any]:
            found = svd(operator, **self._options(operator))
            self._warn_unless(found["converged"])
            values, exponent = normalised(found["result"])
            variances = (found["u"] * values).var(axis=0)
            return {
                "components_": found["vt"],
                "singular_values_": found["result"],
                "n_iter_": found["iterations"],
                "explained_variance_": in_units(
                    "the largest variance", variances, 2 * exponent, {"X": exponent}
                ),
            }

        return self._fit(X, work)  # type: ignore[no-any-return]

    def transform(self, X: ArrayLike | Any) -> NDArray[Any]:
        """Samples by their singular vectors.

        Parameters
        ----------
        X : (n, r) array_like, or as in `fit`

        Returns
        -------
        (n, k) ndarray
        """
        return self._projected(X)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Samples from their singular vectors.

        Parameters
        ----------
        X : (n, k) array_like

        Returns
        -------
        (n, r) ndarray
        """
        return self._combined(X)
