"""Shards from shards: coefficients and certified error bounds.

With D the inverse of G_P, the L rows of G of the machines P, any row g of a generator has
``g X = (g D) (G_P X)``: L shards give every other shard, and with the rows of the identity
for g they give X. In floating point the shards and D are not exact, and the sum rounds;
`Recombination` bounds all three, so that the error of a rebuilt shard is known. A number of a shard
depends on L entries of X, one at the same place of each part, and all bounds are relative to the
largest of these. The bounds do not include underflow, which adds an absolute error of about the
smallest normal number of the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import gamma, unit_roundoff
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_KEPT = 64  # recombinations


class Recombination:
    """Rows of X or of shards as linear combinations of the shards of L machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    basis : (L,) sequence of int
        The L machines, numbered from 1.
    targets : (T, L) ndarray of float
        The row of G of each wanted shard; the identity for X.

    Attributes
    ----------
    basis : tuple of int
    coefficients : (T, L) ndarray of float
        Factors of the machines' rows.
    residual : (T,) ndarray of float
        Bound of ``norm1(targets - coefficients @ G_basis)``.

    Raises
    ------
    InputError
        There are not L machines, or their rows are singular.

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
            raise InputError(f"computing from machines {list(basis)}: expected {recovery} of them")
        matrix = generator[rows]
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise InputError(f"the rows of G of machines {list(basis)} are singular") from None
        self.basis = tuple(int(n) for n in basis)
        self._inverse: Floats = inverse
        coefficients = targets @ inverse
        coefficients += (targets - coefficients @ matrix) @ inverse  # a step of refinement
        self.coefficients: Floats = coefficients
        self._targets = np.abs(targets)
        self._matrix = np.abs(matrix)
        left = np.abs(targets - coefficients @ matrix)
        rounding = gamma(recovery + 1, np.float64) * (
            np.abs(coefficients) @ self._matrix + self._targets
        )
        self.residual: Floats = (left + rounding).sum(axis=1)

    def errors(self, given: Floats, dtype: DTypeLike) -> Floats:
        """Bound the error of the computed rows.

        Parameters
        ----------
        given : (L,) ndarray of float
            Error bounds of the shards of the basis; see `encoding_error_bound`.
        dtype : dtype
            Dtype of the results.

        Returns
        -------
        (T,) ndarray of float
            Relative to the largest entry of X at the same place.
        """
        sizes = self._matrix.sum(axis=1) + given
        weights = np.abs(self.coefficients)
        summing = gamma(len(self.basis) + 1, np.float64) * (weights @ sizes)
        exact = self.residual + weights @ given + summing
        rounding = unit_roundoff(dtype) * (self._targets.sum(axis=1) + exact)
        total: Floats = exact + rounding
        return total

    def scale(
        self, sizes: NDArray[np.floating], work: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """Bound the largest of the L entries of X at each place.

        Parameters
        ----------
        sizes : (L, w) ndarray of float
            Absolute values of the shards of the basis.
        work : (L, w) ndarray of float
            Scratch, which receives the result.

        Returns
        -------
        (w,) ndarray of float
            In the dtype of the sizes.
        """
        rounding = 1 + 2 * gamma(len(self.basis) + 2, sizes.dtype)
        weights = (np.abs(self._inverse) * rounding).astype(sizes.dtype)
        largest, *others = np.matmul(weights, sizes, out=work)
        for entries in others:
            np.maximum(largest, entries, out=largest)
        scale: NDArray[np.floating] = largest
        return scale


class Recombiner:
    """The recombinations of a code, each made once.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Dtype of the shards.
    """

    def __init__(self, generator: Floats, dtype: DTypeLike) -> None:
        self._generator = generator
        self._dtype = dtype
        self.basis = lru_cache(_KEPT)(self._choose_basis)
        self.toward = lru_cache(_KEPT)(self._make_recombination)

    def _choose_basis(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        return choose_machines(self._generator, machines)

    def _make_recombination(self, basis: tuple[int, ...], wanted: tuple[int, ...]) -> Recombination:
        targets = self._generator[np.asarray(wanted, dtype=int) - 1]
        return Recombination(self._generator, basis, targets)

    def bases(
        self, machines: tuple[int, ...], marks: Floats, given: Floats
    ) -> list[tuple[int, ...]]:
        """Return sets of L machines to compute from: originals first, best conditioned, most exact.

        Parameters
        ----------
        machines : tuple of int
            Ascending, at least L.
        marks : (N,) ndarray of float
            Error bounds of machines whose shards were rebuilt from others, 0 for the others. They
            add up with each generation, so originals come first.
        given : (N,) ndarray of float
            Error bounds of all shards; 0 for plain parts of X.
        """
        own = marks[np.asarray(machines) - 1]
        level = np.sort(own)[self._generator.shape[1] - 1]
        least = tuple(n for n, mark in zip(machines, own, strict=True) if mark <= level)
        recovery = self._generator.shape[1]
        exact = tuple(sorted(sorted(machines, key=lambda n: float(given[n - 1]))[:recovery]))
        return list(dict.fromkeys((self.basis(least), self.basis(machines), exact)))
