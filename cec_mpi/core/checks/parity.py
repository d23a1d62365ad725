"""Parity: L + 1 answers to a row show that one is wrong, and L + 3 show whose it is.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row. Any
L + 1 of them are redundant: with c the unit vector for which ``c' G_P = 0``, their check,
``c' a = 0``. In floating point c' a is as large as rounding makes it, and an error E of machine n
adds E times its weight, the size of entry n of c. Units are those of `rounding`: all errors are
relative to the scale S of a row. Answers agree if no L + 1 of them fail their check.

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
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_CACHE_SIZE = 1024  # sets of machines
_MAX_ROWS_COMPARED = 16  # by which machines are named: those that disagree most


class Comparison(NamedTuple):
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
    With e the errors of the answers, ``|c' a| = |c' e| <= norm(e)``. That c is not exact and the
    product with it rounds adds terms of float64.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])
    >>> checker = ParityChecker(generator, answer_error(generator, "float64", "float64", 1))
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.disagree((1, 2, 3), answers[:3], scale=7.0)
    True
    >>> checker.find_wrong((1, 2, 3, 4), answers[:4], scale=7.0)
    Comparison(agree=False, wrong=(), candidates=((3,),))
    >>> checker.find_wrong((1, 2, 3, 4, 5), answers, scale=7.0)
    Comparison(agree=False, wrong=(3,), candidates=((3,),))
    """

    def __init__(self, generator: Floats, errors: ArrayLike, least: float = 0.0) -> None:
        self.recovery = generator.shape[1]
        self._generator = generator
        self._errors: Floats = np.asarray(errors, dtype=np.float64)
        self._least = least
        self._sizes = np.abs(generator).sum(axis=1)
        self.checks = lru_cache(_CACHE_SIZE)(self._checks)

    def _checks(self, machines: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Return checks that answers pass if they agree, and what rounding makes of them.

        Parameters
        ----------
        machines : tuple of int
            More than L, ascending.

        Returns
        -------
        checks : (m - L, m) ndarray of float
            Checks of L well-conditioned machines and each other one, which are 0 at the rest.
        tolerances : (m - L, 1) ndarray of float
            Relative to S.
        """
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
        first = choose_machines(self._generator, machines)
        others = [n for n in machines if n not in first]
        places = np.searchsorted(machines, [sorted((*first, n)) for n in others])
        matrices = self._generator[_indices(machines)][places]
        checks = np.zeros((len(places), count))
        np.put_along_axis(checks, places, _orthogonal_completion(matrices)[:, :, -1], axis=1)
        return self._scaled(machines, checks)

    def _scaled(self, machines: tuple[int, ...], checks: Floats) -> tuple[Floats, Floats]:
        checks = checks / np.linalg.norm(checks, axis=1, keepdims=True)
        counted = checks != 0
        errors = np.where(counted, self._errors[_indices(machines)], 0.0)
        sizes = np.where(counted, self._sizes[_indices(machines)], 0.0)
        computing = gamma(4 * (self.recovery + 1), np.float64) * np.linalg.norm(sizes, axis=1)
        return checks, (np.linalg.norm(errors, axis=1) + computing)[:, np.newaxis]

    def disagree(
        self,
        machines: Sequence[int],
        answers: NDArray[np.floating],
        scale: ArrayLike,
        work: Floats | None = None,
    ) -> bool:
        """Whether the answers to some row are not those of one X.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L, ascending.
        answers : (m, numbers) ndarray of float
        scale : float or (numbers,) array_like of float
            S of each number, or a bound of it.
        work : (2, m - L, numbers) ndarray of float, optional
            Scratch.

        Returns
        -------
        bool
            True also if an answer is NaN or infinite.
        """
        checks, tolerances = self.checks(tuple(machines))
        left, limits = np.empty((2, len(checks), answers.shape[1])) if work is None else work
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(checks, answers.astype(np.float64, copy=False), out=left)
            np.multiply(tolerances, scale, out=limits)
            limits += self._least
            agree = (np.abs(left, out=left) <= limits).all() and left.max(initial=0) < np.inf
        return not agree

    def _worst_ratio(
        self, machines: tuple[int, ...], answers: NDArray[np.floating], scale: ArrayLike
    ) -> Floats:
        """Return what checks give over the most that rounding makes of them, for each number."""
        checks, tolerances = self.checks(machines)
        excess = self._ratios(checks, tolerances, answers.astype(np.float64, copy=False), scale)
        worst: Floats = excess.max(axis=0)
        return worst

    def _ratios(
        self, checks: Floats, tolerances: Floats, answers: Floats, scale: ArrayLike
    ) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            left = np.abs(checks @ answers)
            limits = tolerances * np.asarray(scale, dtype=np.float64) + self._least
            ratios = np.zeros_like(left)
            np.divide(left, limits, out=ratios, where=left != 0)
        return ratios

    def find_wrong(
        self, machines: Sequence[int], answers: NDArray[np.floating], scale: ArrayLike
    ) -> Comparison:
        """Compare answers, and name the machines that are wrong.

        Parameters
        ----------
        machines, answers, scale
            As in `disagree`.

        Returns
        -------
        Comparison
            Nobody is named with fewer than L + 3 answers. Of more, L + 3 are compared at a time.

        Notes
        -----
        Any L + 3 answers are code words of distance 4. So errors of two machines never look like an
        error of one other machine.
        """
        everybody, some = tuple(machines), self.recovery + 3
        excess = self._worst_ratio(everybody, answers, scale)
        if (excess <= 1).all():
            return Comparison(agree=True)
        rows = np.argsort(-np.nan_to_num(excess, nan=np.inf), kind="stable")[:_MAX_ROWS_COMPARED]
        values = np.nan_to_num(answers[:, rows].astype(np.float64), nan=np.finfo(np.float64).max)
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), excess.shape)[rows]
        verdict = Comparison(agree=False)
        for first in range(max(1, len(everybody) - some + 1)):
            group = slice(first, first + some)
            found = self._explain(everybody[group], values[group], scales)
            if found.wrong:
                return found
            verdict = verdict if verdict.candidates else found
        return verdict

    def _explain(self, machines: tuple[int, ...], values: Floats, scales: Floats) -> Comparison:
        """Name machines of up to L + 3 that alone explain a row which no two others explain."""
        spare = len(machines) - self.recovery - 1
        missing = list(combinations(machines, spare))
        checks, tolerances = self._checks_excluding(machines, missing)
        passed = self._ratios(checks, tolerances, values, scales) <= 1
        alone = [passed[[n in some for some in missing]].all(axis=0) for n in machines]
        if passed.all():
            return Comparison(agree=True)
        candidates = tuple((n,) for n, row in zip(machines, alone, strict=True) if row.all())
        if spare < 2:
            return Comparison(False, (), candidates)
        wrong = {
            n
            for n, explains in zip(machines, alone, strict=True)
            if (explains & ~passed[[n not in some for some in missing]].any(axis=0)).any()
        }
        if not candidates:
            candidates = tuple(some for some, row in zip(missing, passed, strict=True) if row.all())
        return Comparison(False, tuple(sorted(wrong)), candidates)

    def _checks_excluding(
        self, machines: tuple[int, ...], missing: list[tuple[int, ...]]
    ) -> tuple[Floats, Floats]:
        """Return the checks of L + 1 machines each, without those that are missing.

        They are the combinations of checks of all that are 0 at the missing ones.
        """
        matrix = self._generator[_indices(machines)]
        checks = _orthogonal_completion(matrix)[:, self.recovery :].T
        if len(checks) > 1:
            away = np.searchsorted(machines, missing)
            basis = _orthogonal_completion(checks.T[away].transpose(0, 2, 1))
            checks = basis[:, :, -1] @ checks
            np.put_along_axis(checks, away, 0.0, axis=1)
        return self._scaled(machines, checks)


def _orthogonal_completion(matrices: Floats) -> Floats:
    """Return an orthogonal matrix whose last columns are orthogonal to those of a matrix."""
    basis: Floats = np.linalg.qr(matrices, mode="complete")[0]
    return basis


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


def _indices(machines: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(machines, dtype=np.int64) - 1
