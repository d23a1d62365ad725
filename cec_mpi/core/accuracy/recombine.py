"""Shards from shards: coefficients, certified error bounds, and which shards are wrong.

With D the inverse of G_P, the L rows of G of the machines P, any row g of a generator has
``g X = (g D) (G_P X)``: L shards give every other shard, and with the rows of the identity
for g they give X. In floating point the shards and D are not exact, and the sum rounds;
`Recombination` bounds all three, so that the error of a rebuilt shard is known. A number of a shard
depends on L entries of X, one at the same place of each part, and all bounds are relative to the
largest of these. The bounds do not include underflow, which adds an absolute error of about the
smallest normal number of the dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import gamma, unit_roundoff
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_KEPT = 64  # recombinations
_MOST_SUSPECTS = 5_000  # sets of machines that are tried


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
            Error bounds of the shards of the basis; see `encoding_error`.
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

    @property
    def gain(self) -> float:
        """The largest sum of absolute coefficients of a target."""
        return float(np.abs(self.coefficients).sum(axis=1).max(initial=0.0))

    def scale(self, shards: Floats) -> Floats:
        """Bound the largest of the L entries of X at each place.

        Parameters
        ----------
        shards : (L, w) ndarray of float
            Numbers of the shards of the basis.

        Returns
        -------
        (w,) ndarray of float
        """
        entries = np.abs(self._inverse) @ np.abs(shards)
        largest: Floats = entries.max(axis=0)
        return largest


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
        self.basis = lru_cache(_KEPT)(self._basis)
        self.toward = lru_cache(_KEPT)(self._toward)
        self._named: tuple[int, ...] = ()  # machines that were wrong last

    def _basis(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        return choose_machines(self._generator, machines)

    def _toward(self, basis: tuple[int, ...], wanted: tuple[int, ...]) -> Recombination:
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

    def compare(
        self, shards: dict[int, NDArray[Any]], given: Floats, marks: Floats | None = None
    ) -> Verdict:
        """Compare the same rows of L + 1 or more shards.

        With L + 1 shards a disagreement can be detected; each two more shards can name one more
        wrong machine.

        Parameters
        ----------
        shards : dict of int to (w,) ndarray of float
            Numbers of the same rows, by machine.
        given : (N,) ndarray of float
            Error bounds of the shards of machines 1..N; see `encoding_error`.
        marks : (N,) ndarray of float, optional
            See `bases`.

        Returns
        -------
        Verdict

        Examples
        --------
        >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
        >>> shards = dict(enumerate(generator @ [[5.0], [7.0]], start=1))
        >>> recombiner = Recombiner(generator, np.float64)
        >>> recombiner.compare(shards, np.zeros(4))
        Verdict(agree=True, wrong=(), candidates=())
        >>> recombiner.compare(shards | {3: np.array([12.5])}, np.zeros(4))
        Verdict(agree=False, wrong=(3,), candidates=())
        """
        machines = tuple(sorted(shards))
        marks = np.zeros(len(self._generator)) if marks is None else marks
        if self._agree(machines, shards, given, marks):
            return Verdict(agree=True)
        most = (len(machines) - self._generator.shape[1]) // 2

        def explain(wrong: tuple[int, ...]) -> bool:
            rest = tuple(n for n in machines if n not in wrong)
            return self._agree(rest, shards, given, marks)

        before = self._named  # the wrong machines of before are the likeliest
        if 0 < len(before) <= most and set(before) <= set(machines) and explain(before):
            return Verdict(agree=False, wrong=before)
        for found in filter(None, suspects(machines, most, explain)):
            if len(found) > 1:
                break
            self._named = found[0]
            return Verdict(agree=False, wrong=found[0])
        return Verdict(agree=False)

    def _agree(
        self,
        machines: tuple[int, ...],
        shards: dict[int, NDArray[Any]],
        given: Floats,
        marks: Floats,
    ) -> bool:
        basis = self.bases(machines, marks, given)[0]
        others = tuple(n for n in machines if n not in basis)
        recombination = self.toward(basis, others)
        known = np.stack([shards[n] for n in basis]).astype(np.float64)
        if not np.isfinite(known).all():
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            scale = recombination.scale(known)
            expected = recombination.coefficients @ known
        if not (np.isfinite(scale).all() and np.isfinite(expected).all()):
            return False  # no finite X gives such shards
        errors = recombination.errors(given[np.asarray(basis) - 1], self._dtype)
        errors += given[np.asarray(others, dtype=int) - 1]
        least = float(np.finfo(self._dtype).tiny) * (1 + recombination.gain)
        return all(
            bool((np.abs(shards[n] - row) <= error * scale + least).all())
            for n, row, error in zip(others, expected, errors.tolist(), strict=True)
        )


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the same rows of more than L shards or answers.

    Attributes
    ----------
    agree : bool
        Whether all belong to the same X, within their precision.
    wrong : tuple of int
        Machines whose shards or answers are certainly wrong. Empty if all agree, or if the wrong
        machine is not known.
    candidates : tuple of int
        If answers disagree, each machine that explains it alone; empty if at least two machines are
        wrong.
    """

    agree: bool
    wrong: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()


def suspects(
    machines: Sequence[int], most: int, explain: Callable[[tuple[int, ...]], bool]
) -> Iterator[list[tuple[int, ...]]]:
    """Yield the sets of one machine, of two, .. up to `most`, that explain a disagreement.

    Parameters
    ----------
    machines : sequence of int
    most : int
    explain : callable
        Whether the others agree without these.

    Examples
    --------
    >>> list(suspects((1, 2, 3), 2, lambda wrong: 3 in wrong))
    [[(3,)], [(1, 3), (2, 3)]]
    """
    for size in range(1, most + 1):
        if comb(len(machines), size) > _MOST_SUSPECTS:
            return
        yield [wrong for wrong in combinations(machines, size) if explain(wrong)]
