"""Parity: L + 1 answers to a row show that one is wrong, and L + 3 show whose it is.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row.
More than L of them are redundant: with C an orthonormal basis of the left null space of G_P,
``C a = 0``. In floating point C a is as large as rounding makes it, and an error E of machine
n adds E times the length of column n of C, the weight of n in P, which is from 0 to 1
(`sensitivity`). Units are those of `rounding`: all errors are relative to the scale S of a row.

Some machines explain a disagreement if the others agree without them. Rounding never makes answers
disagree, so the machines that are wrong always explain it. Hence a machine is wrong if it alone
explains a row and no two others do, unless more than two are wrong. Of L + 2 answers any two
explain everything, since L always agree; that is why it takes L + 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error, gamma
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = 1024  # sets of machines
_ROWS = 16  # by which machines are named: those that disagree most
_MANY = 40  # answers, of which pairs are so many that fewer are compared first
_BATCH = 1_000_000  # numbers in one batch of explanations


class Verdict(NamedTuple):
    """The result of comparing answers to the same rows.

    Attributes
    ----------
    agree : bool
    wrong : tuple of int
        Machines that are certainly wrong, if not more than two are wrong in a row.
    candidates : tuple of tuple of int
        What explains the disagreement: one machine each or, if none does, two. Empty if more are
        wrong, or if two are and there are fewer than L + 3 answers.
    """

    agree: bool
    wrong: tuple[int, ...] = ()
    candidates: tuple[tuple[int, ...], ...] = ()


class ParityChecker:
    """Compares answers of more than L machines of a code.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    errors : (N,) ndarray of float
        Error bounds of the answers of machines 1..N, relative to S: see `answer_error`.
    least : float
        Error bound of an answer from underflow.

    Attributes
    ----------
    recovery : int
        L.

    Notes
    -----
    With e the errors of the answers, ``norm(C a) = norm(C e) <= norm(e)``, as the rows of C
    are orthonormal. That C is not exact and the product with it rounds adds terms of float64.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])
    >>> checker = ParityChecker(generator, answer_error(generator, "float64", "float64", 1))
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.disagree((1, 2, 3), answers[:3], scale=7.0)
    True
    >>> checker.find_wrong((1, 2, 3, 4), answers[:4], scale=7.0)
    Verdict(agree=False, wrong=(), candidates=((3,),))
    >>> checker.find_wrong((1, 2, 3, 4, 5), answers, scale=7.0)
    Verdict(agree=False, wrong=(3,), candidates=((3,),))
    """

    def __init__(self, generator: Floats, errors: ArrayLike, least: float = 0.0) -> None:
        self.recovery = generator.shape[1]
        self._generator = generator
        self._errors: Floats = np.asarray(errors, dtype=np.float64)
        self._least = least
        self.checks = lru_cache(_KEPT)(self._checks)

    def _checks(self, machines: tuple[int, ...]) -> Floats:
        """Return C of some machines, (m - L, m)."""
        count = len(machines)
        if (
            sorted(set(machines)) != list(machines)
            or count <= self.recovery
            or not 0 < machines[0] <= machines[-1] <= len(self._generator)
        ):
            raise InputError(
                f"answers of machines {list(machines)}: expected more than {self.recovery} "
                f"machines from 1 to {len(self._generator)}, ascending"
            )
        basis, _ = np.linalg.qr(self._generator[_indices(machines)], mode="complete")
        return np.ascontiguousarray(basis[:, self.recovery :].T)

    def tolerance(self, machines: Sequence[int]) -> float:
        """Return the most that rounding makes of ``norm(C a)``, relative to S."""
        places = _indices(machines)
        sizes = np.abs(self._generator[places]).sum(axis=1)
        computing = checking_error(len(places), self.recovery) * np.linalg.norm(sizes)
        return float(np.linalg.norm(self._errors[places]) + computing)

    def disagree(
        self, machines: Sequence[int], answers: NDArray[np.floating], scale: ArrayLike
    ) -> bool:
        """Whether the answers to some row are not those of one X.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L, ascending.
        answers : (m, numbers) ndarray of float
        scale : float or (numbers,) array_like of float
            S of each number, or a bound of it.

        Returns
        -------
        bool
            True also if an answer is NaN or infinite.
        """
        return bool((~(self._excess(tuple(machines), answers, scale) <= 1)).any())

    def _excess(
        self, machines: tuple[int, ...], answers: NDArray[np.floating], scale: ArrayLike
    ) -> Floats:
        """Return ``norm(C a)`` of each number over the most that rounding makes of it."""
        checks = self.checks(machines)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # hypot, since squares of what is no error would overflow from 1e154 on
            left: Floats = np.hypot.reduce(checks @ answers.astype(np.float64, copy=False), axis=0)
            limits = self._limits(self.tolerance(machines), scale, len(machines))
            excess = np.zeros_like(left)
            np.divide(left, limits, out=excess, where=left != 0)
        return excess

    def _limits(self, tolerance: ArrayLike, scale: ArrayLike, count: int) -> Floats:
        limits: Floats = np.multiply(tolerance, scale) + self._least * count**0.5
        return limits

    def find_wrong(
        self, machines: Sequence[int], answers: NDArray[np.floating], scale: ArrayLike
    ) -> Verdict:
        """Compare answers, and name the machines that are wrong.

        Parameters
        ----------
        machines, answers, scale
            As in `disagree`.

        Returns
        -------
        Verdict
            Nobody is named with fewer than L + 3 answers.

        Notes
        -----
        Any m answers are code words of distance ``m - L + 1``. So errors of up to ``m - L - 1``
        machines never look like an error of one other machine: of two with L + 3 answers, of three
        with L + 4.
        """
        machines, some = tuple(machines), self.recovery + 3
        excess = self._excess(machines, answers, scale)
        failing = np.flatnonzero(~(excess <= 1))
        if not failing.size:
            return Verdict(agree=True)
        rows = failing[np.argsort(-excess[failing], kind="stable")[:_ROWS]]
        values = np.nan_to_num(answers[:, rows].astype(np.float64), nan=np.finfo(np.float64).max)
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), excess.shape)[rows]
        count = len(machines)
        for first in [*range(0, count - some, some), count - some] if count > _MANY else []:
            group = slice(first, first + some)
            if self.disagree(machines[group], values[group], scales):
                verdict = self._explain(machines[group], values[group], scales)
                if verdict.wrong:
                    return verdict
        return self._explain(machines, values, scales)

    def _explain(self, machines: tuple[int, ...], values: Floats, scales: Floats) -> Verdict:
        """Name machines that alone explain a row which no two others explain."""
        single = list(combinations(machines, 1))
        alone = self._explains(machines, single, values, scales)
        candidates = _chosen(single, alone.all(axis=1))
        if len(machines) < self.recovery + 3:
            return Verdict(False, (), candidates)
        pairs = list(combinations(machines, 2))
        both = self._explains(machines, pairs, values, scales)
        wrong = set()
        for row in np.flatnonzero(alone.sum(axis=0) == 1):
            ((n,),) = _chosen(single, alone[:, row])
            if all(n in pair for pair in _chosen(pairs, both[:, row])):
                wrong.add(n)
        candidates = candidates or _chosen(pairs, both.all(axis=1))
        return Verdict(False, tuple(sorted(wrong)), candidates)

    def _explains(
        self,
        machines: tuple[int, ...],
        explanations: Sequence[tuple[int, ...]],
        values: Floats,
        scales: Floats,
    ) -> Bools:
        """Return whether the machines agree without those of an explanation, for each row.

        Their checks are the combinations of rows of C that are 0 at the machines left out.
        """
        checks = self.checks(machines)
        redundant, count = checks.shape
        found, size = [], max(1, _BATCH // (redundant * count))
        for first in range(0, len(explanations), size):
            batch = explanations[first : first + size]
            away = np.searchsorted(machines, batch)
            basis, _ = np.linalg.qr(checks.T[away].transpose(0, 2, 1), mode="complete")
            others = basis[:, :, away.shape[1] :].transpose(0, 2, 1) @ checks
            np.put_along_axis(others, away[:, np.newaxis, :], 0.0, axis=2)
            with np.errstate(over="ignore", invalid="ignore"):
                left = np.hypot.reduce(others @ values, axis=1)
            tolerances = [[self.tolerance([n for n in machines if n not in x])] for x in batch]
            found.append(left <= self._limits(np.array(tolerances), scales, count))
        return np.concatenate(found)


def answer_checker(
    generator: Floats, dtype: DTypeLike, columns: int, shard_errors: ArrayLike | None = None
) -> ParityChecker:
    """Return what compares answers of machines to w.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Arithmetic of machines.
    columns : int
        Of X, r.
    shard_errors : (N,) array_like of float, optional
        As in `answer_error`.
    """
    errors = answer_error(generator, dtype, dtype, columns, shard_errors)
    return ParityChecker(generator, errors, float(np.finfo(dtype).tiny) * (columns + 1))


def checking_error(count: int, recovery: int) -> float:
    """Return the relative error of C a in float64, with that of C."""
    return float((count - recovery) ** 0.5) * float(gamma(4 * count, np.float64))


def _chosen(explanations: Sequence[tuple[int, ...]], are: ArrayLike) -> tuple[tuple[int, ...], ...]:
    return tuple(explanations[k] for k in np.flatnonzero(are).tolist())


def _indices(machines: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(machines, dtype=np.int64) - 1
