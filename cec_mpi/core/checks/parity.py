"""Parity checks: L + 1 answers for a row detect a faulty machine, and L + 3 identify it.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row. Any
L + 1 of them are redundant: their check is the unit vector c with ``c' G_P = 0``, for which
``c' a = 0``. In floating point c' a is of the order of the rounding errors, and an error E of
machine n adds E times its weight, the absolute value of entry n of c. As in `rounding`, all errors
are relative to the scale S of a row. Answers agree if every L + 1 of them pass their check.

A set of machines explains a disagreement if the other answers agree. Rounding never makes answers
disagree, so the set of faulty machines always explains it. Hence, if at most two machines are
faulty, a machine that alone explains a row is faulty unless two other machines explain it, too.
With L + 2 answers any two machines explain every disagreement, because L answers always agree; so
L + 3 answers are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error_bound, gamma
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

_CACHE_SIZE = 1024  # sets of machines
_MAX_ROWS_COMPARED = 16  # the rows with the largest disagreements


class Comparison(NamedTuple):
    """The result of a comparison of answers for the same rows.

    Attributes
    ----------
    agree : bool
    faulty : tuple of int
        Machines that are certainly faulty, unless more than two are faulty in the same row.
    candidates : tuple of tuple of int
        Single machines that explain the disagreement or, if no machine does, pairs. Empty if more
        machines are faulty, or if two are and there are fewer than L + 3 answers.
    """

    agree: bool
    faulty: tuple[int, ...] = ()
    candidates: tuple[tuple[int, ...], ...] = ()


class ParityChecker:
    """Checks answers of more than L machines of a code against each other.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    errors : (N,) ndarray of float
        Error bounds for the answers of machines 1..N, relative to S: see `answer_error_bound`.
    underflow_bound : float
        Bound on the error of an answer from underflow.

    Attributes
    ----------
    recovery : int
        L.

    Notes
    -----
    Let e be the errors of the answers. Then ``|c' a| = |c' e| <= norm(e)``. Rounding of c and of
    the product c' a adds terms in the precision of float64.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])
    >>> checker = ParityChecker(generator, answer_error_bound(generator, "float64", 1))
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.has_disagreement((1, 2, 3), answers[:3], scale=7.0)
    True
    >>> checker.identify_faulty((1, 2, 3, 4), answers[:4], scale=7.0)
    Comparison(agree=False, faulty=(), candidates=((3,),))
    >>> checker.identify_faulty((1, 2, 3, 4, 5), answers, scale=7.0)
    Comparison(agree=False, faulty=(3,), candidates=((3,),))
    """

    def __init__(self, generator: Floats, errors: ArrayLike, underflow_bound: float = 0.0) -> None:
        self.recovery = generator.shape[1]
        self._generator = generator
        self._errors: Floats = np.asarray(errors, dtype=np.float64)
        self._underflow_bound = underflow_bound
        self._row_norms = np.abs(generator).sum(axis=1)
        self.checks = lru_cache(_CACHE_SIZE)(self._checks)

    def _checks(self, machines: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Return parity checks and their tolerances for rounding errors.

        Parameters
        ----------
        machines : tuple of int
            More than L, ascending.

        Returns
        -------
        checks : (m - L, m) ndarray of float
            Each checks one machine against L whose rows of G are well-conditioned; the rest is 0.
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
        basis = choose_machines(self._generator, machines)
        redundant = [n for n in machines if n not in basis]
        columns = np.searchsorted(machines, [sorted((*basis, n)) for n in redundant])
        matrices = self._generator[_rows_of(machines)][columns]
        checks = np.zeros((len(columns), count))
        np.put_along_axis(checks, columns, _orthogonal_completion(matrices)[:, :, -1], axis=1)
        return self._normalise_checks(machines, checks)

    def _normalise_checks(self, machines: tuple[int, ...], checks: Floats) -> tuple[Floats, Floats]:
        """Return the checks scaled to unit norm, and their tolerances relative to S."""
        checks = checks / np.linalg.norm(checks, axis=1, keepdims=True)
        is_checked = checks != 0
        errors = np.where(is_checked, self._errors[_rows_of(machines)], 0.0)
        norms = np.where(is_checked, self._row_norms[_rows_of(machines)], 0.0)
        rounding = gamma(4 * (self.recovery + 1), np.float64) * np.linalg.norm(norms, axis=1)
        return checks, (np.linalg.norm(errors, axis=1) + rounding)[:, np.newaxis]

    def has_disagreement(
        self,
        machines: Sequence[int],
        answers: NDArray[np.floating],
        scale: ArrayLike,
        scratch: Floats | None = None,
    ) -> bool:
        """Return whether no x is consistent with all answers.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L, ascending.
        answers : (m, size) ndarray of float
        scale : float or (size,) array_like of float
            S of each column of `answers`, or an upper bound. Each column has the answers for a row
            of X w.
        scratch : (2, m - L, size) ndarray of float, optional
            Overwritten.

        Returns
        -------
        bool
            True also if an answer is NaN or infinite.
        """
        checks, tolerances = self.checks(tuple(machines))
        if scratch is None:
            scratch = np.empty((2, len(checks), answers.shape[1]))
        residuals, limits = scratch
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(checks, answers.astype(np.float64, copy=False), out=residuals)
            np.multiply(tolerances, scale, out=limits)
            limits += self._underflow_bound
            np.abs(residuals, out=residuals)
            agree = (residuals <= limits).all() and residuals.max(initial=0) < np.inf
        return not agree

    def _ratios(
        self, checks: Floats, tolerances: Floats, answers: Floats, scale: ArrayLike
    ) -> Floats:
        """Return the ratios of residuals to their tolerances."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            residuals = np.abs(checks @ answers)
            limits = tolerances * np.asarray(scale, dtype=np.float64) + self._underflow_bound
            ratios = np.zeros_like(residuals)
            np.divide(residuals, limits, out=ratios, where=residuals != 0)
        return ratios

    def identify_faulty(
        self, machines: Sequence[int], answers: NDArray[np.floating], scale: ArrayLike
    ) -> Comparison:
        """Compare answers, and identify the faulty machines.

        Parameters
        ----------
        machines, answers, scale
            See `has_disagreement`.

        Returns
        -------
        Comparison
            With fewer than L + 3 answers no machine is identified. More answers are compared in
            groups of L + 3.

        Notes
        -----
        Any L + 3 answers form a code of distance 4. So errors of two machines never look like an
        error of a third machine.
        """
        all_machines, group_size = tuple(machines), self.recovery + 3
        values = answers.astype(np.float64, copy=False)
        ratios = self._ratios(*self.checks(all_machines), values, scale).max(axis=0)
        if (ratios <= 1).all():
            return Comparison(agree=True)
        rows = np.argsort(-np.nan_to_num(ratios, nan=np.inf), kind="stable")[:_MAX_ROWS_COMPARED]
        values = np.nan_to_num(values[:, rows], nan=np.finfo(np.float64).max)
        scales = np.broadcast_to(np.asarray(scale, dtype=np.float64), ratios.shape)[rows]
        verdict = Comparison(agree=False)
        for first in range(max(1, len(all_machines) - group_size + 1)):
            group = slice(first, first + group_size)
            comparison = self._compare(all_machines[group], values[group], scales)
            if comparison.faulty:
                return comparison
            verdict = verdict if verdict.candidates else comparison
        return verdict

    def _compare(self, machines: tuple[int, ...], values: Floats, scales: Floats) -> Comparison:
        """Compare the answers of at most L + 3 machines, and identify the faulty ones."""
        excluded_count = len(machines) - self.recovery - 1
        excluded = list(combinations(machines, excluded_count))
        checks, tolerances = self._checks_excluding(machines, excluded)
        passed_rows = self._ratios(checks, tolerances, values, scales) <= 1
        explained_rows = [
            passed_rows[[n in group for group in excluded]].all(axis=0) for n in machines
        ]
        if passed_rows.all():
            return Comparison(agree=True)
        candidates = tuple(
            (n,) for n, rows in zip(machines, explained_rows, strict=True) if rows.all()
        )
        if excluded_count < 2:
            return Comparison(False, (), candidates)
        faulty = {  # n explains a row that no pair without n explains
            n
            for n, rows in zip(machines, explained_rows, strict=True)
            if (rows & ~passed_rows[[n not in group for group in excluded]].any(axis=0)).any()
        }
        if not candidates:
            candidates = tuple(
                group for group, rows in zip(excluded, passed_rows, strict=True) if rows.all()
            )
        return Comparison(False, tuple(sorted(faulty)), candidates)

    def _checks_excluding(
        self, machines: tuple[int, ...], excluded: list[tuple[int, ...]]
    ) -> tuple[Floats, Floats]:
        """Return a check of the remaining L + 1 machines for each excluded group.

        It is the linear combination of the checks that is 0 at the excluded machines.
        """
        matrix = self._generator[_rows_of(machines)]
        checks = _orthogonal_completion(matrix)[:, self.recovery :].T
        if len(checks) > 1:
            columns = np.searchsorted(machines, excluded)
            basis = _orthogonal_completion(checks.T[columns].transpose(0, 2, 1))
            checks = basis[:, :, -1] @ checks
            np.put_along_axis(checks, columns, 0.0, axis=1)
        return self._normalise_checks(machines, checks)


def _orthogonal_completion(matrices: Floats) -> Floats:
    """Return orthogonal matrices whose last columns are orthogonal to the columns of `matrices`."""
    basis: Floats = np.linalg.qr(matrices, mode="complete")[0]
    return basis


def make_checker(
    generator: Floats, dtype: DTypeLike, columns: int, shard_errors: ArrayLike | None = None
) -> ParityChecker:
    """Return a checker of the answers of all machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        See `answer_error_bound`.
    columns : int
        Columns of X, r.
    shard_errors : (N,) array_like of float, optional
        See `answer_error_bound`.
    """
    errors = answer_error_bound(generator, dtype, columns, shard_errors)
    return ParityChecker(generator, errors, float(np.finfo(dtype).tiny) * (columns + 1))


def _rows_of(machines: Sequence[int]) -> NDArray[np.int64]:
    return np.asarray(machines, dtype=np.int64) - 1
