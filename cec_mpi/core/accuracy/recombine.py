"""Shards computed from other shards, with certified error bounds.

Let G_P be the L rows of G that belong to the machines P, and D the inverse of G_P. Any row g of a
generator satisfies ``g X = (g D) (G_P X)``, so L shards determine every other shard; with the rows
of the identity for g they determine X. In floating point the shards and D are inexact, and the sum
rounds. `Recombination` bounds all three errors, and so the error of a rebuilt shard. An entry of a
shard combines L entries of X, at the same position in each part. All bounds are relative to the
largest of these. They exclude underflow, which adds an absolute error of about the smallest normal
number of the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import gamma, unit_roundoff
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_CACHE_SIZE = 64


class Recombination:
    """Rows of X or of shards as linear combinations of the shards of L machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    basis : (L,) sequence of int
        The L machines, numbered from 1.
    targets : (T, L) ndarray of float
        The row of G of each target shard, or the identity for X.

    Attributes
    ----------
    basis : tuple of int
    coefficients : (T, L) ndarray of float
        Weights of the shards of `basis`.
    residual : (T,) ndarray of float
        Bound on ``norm1(targets - coefficients @ G_basis)``.

    Raises
    ------
    InputError
        The basis is not L machines from 1 to N, or their rows are singular.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> Recombination(generator, (1, 3), generator[[1]]).coefficients
    array([[-1.,  1.]])
    """

    def __init__(self, generator: Floats, basis: Sequence[int], targets: Floats) -> None:
        rows = np.asarray(basis, dtype=int) - 1
        recovery = generator.shape[1]
        if rows.shape != (recovery,) or rows.min() < 0 or rows.max() >= len(generator):
            raise InputError(
                f"basis of machines {list(basis)}: expected {recovery} machines, numbered 1 to "
                f"{len(generator)}"
            )
        matrix = generator[rows]
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise InputError(f"the rows of G of machines {list(basis)} are singular") from None
        self.basis = tuple(int(n) for n in basis)
        self._inverse: Floats = inverse
        coefficients = targets @ inverse
        coefficients += (targets - coefficients @ matrix) @ inverse  # iterative refinement
        self.coefficients: Floats = coefficients
        self._abs_targets = np.abs(targets)
        self._abs_matrix = np.abs(matrix)
        residual = np.abs(targets - coefficients @ matrix)
        rounding_error = gamma(recovery + 1, np.float64) * (
            np.abs(coefficients) @ self._abs_matrix + self._abs_targets
        )
        self.residual: Floats = (residual + rounding_error).sum(axis=1)

    def error_bounds(self, shard_errors: Floats, dtype: DTypeLike) -> Floats:
        """Return error bounds for the targets.

        Parameters
        ----------
        shard_errors : (L,) ndarray of float
            Error bounds for the shards of the basis; see `encoding_error_bound`.
        dtype : dtype
            Dtype of the targets.

        Returns
        -------
        (T,) ndarray of float
            Relative to the largest of the L entries of X that are combined.
        """
        magnitudes = self._abs_matrix.sum(axis=1) + shard_errors
        abs_coefficients = np.abs(self.coefficients)
        summation = gamma(len(self.basis) + 1, np.float64) * (abs_coefficients @ magnitudes)
        error_before_rounding = self.residual + abs_coefficients @ shard_errors + summation
        rounding = unit_roundoff(dtype) * (self._abs_targets.sum(axis=1) + error_before_rounding)
        total: Floats = error_before_rounding + rounding
        return total

    def entry_bounds(
        self, magnitudes: NDArray[np.floating], scratch: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """Return an upper bound on the largest of the L entries of X at each position.

        Parameters
        ----------
        magnitudes : (L, w) ndarray of float
            Absolute values of the shards of the basis.
        scratch : (L, w) ndarray of float
            Overwritten; its first row is the result.

        Returns
        -------
        (w,) ndarray
            In the dtype of `magnitudes`.
        """
        growth = 1 + 2 * gamma(len(self.basis) + 2, magnitudes.dtype)
        abs_inverse = (np.abs(self._inverse) * growth).astype(magnitudes.dtype)
        largest, *rest = np.matmul(abs_inverse, magnitudes, out=scratch)
        for entries in rest:
            np.maximum(largest, entries, out=largest)
        scale: NDArray[np.floating] = largest
        return scale


class RecombinationCache:
    """A cache of the recombinations of a code.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    """

    def __init__(self, generator: Floats) -> None:
        self._generator = generator
        self.choose_basis = lru_cache(_CACHE_SIZE)(partial(choose_machines, generator))
        self.recombination = lru_cache(_CACHE_SIZE)(self._make_recombination)

    def _make_recombination(
        self, basis: tuple[int, ...], machines: tuple[int, ...]
    ) -> Recombination:
        targets = self._generator[np.asarray(machines, dtype=int) - 1]
        return Recombination(self._generator, basis, targets)

    def candidate_bases(
        self, machines: tuple[int, ...], rebuild_errors: Floats, shard_errors: Floats
    ) -> list[tuple[int, ...]]:
        """Return the least rebuilt, a well-conditioned and the most accurate basis.

        Equal bases are listed once.

        Parameters
        ----------
        machines : tuple of int
            Ascending, at least L.
        rebuild_errors : (N,) ndarray of float
            Error bounds for rebuilt shards, which grow with each rebuild; 0 for original shards.
        shard_errors : (N,) ndarray of float
            Error bounds for all shards, rebuilt or not; 0 for uncoded parts of X.
        """
        recovery = self._generator.shape[1]
        limit = sorted(rebuild_errors[n - 1] for n in machines)[recovery - 1]
        least_rebuilt = tuple(n for n in machines if rebuild_errors[n - 1] <= limit)
        by_error = sorted(machines, key=lambda n: float(shard_errors[n - 1]))
        most_accurate = tuple(sorted(by_error[:recovery]))
        bases = self.choose_basis(least_rebuilt), self.choose_basis(machines), most_accurate
        return list(dict.fromkeys(bases))
