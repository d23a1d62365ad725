"""Parity: wrong answers seen with one answer to spare.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row.
More than L of them are redundant: with C an orthonormal basis of the left null space of G_P,
``C a = 0``. In floating point C a is as large as rounding makes it, and an error E of machine
n adds E times the length of column n of C, the weight of n in P, which is from 0 to 1
(`sensitivity`). Whose error it is tells the direction of C a, or what is the same: without
the wrong machine, and only then, the rest agree (`locating`).

Units are those of `rounding`: all errors are relative to the scale S of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.rounding import gamma
from cec_mpi.errors import InputError
from cec_mpi.text import plural

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Parity:
    """The parity checks of one set of machines.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    machines : (m,) sequence of int
        P: more than L different machines, numbered from 1.
    errors : (N,) ndarray of float
        Of the answers of machines 1..N, relative to S: see `answer_error`.

    Attributes
    ----------
    machines : tuple of int
    recovery : int
        L.
    checks : (m - L, m) ndarray of float
        C: orthonormal rows with ``C G_P = 0``.
    tolerance : float
        The most that rounding makes of ``norm(C a)``, relative to S.

    Raises
    ------
    InputError
        There are not more than L different machines of the code.

    Notes
    -----
    With e the errors of the answers, ``norm(C a) = norm(C e) <= norm(e)``, as the rows of C
    are orthonormal. That C is not exact and the product with it rounds adds terms of float64.

    Examples
    --------
    >>> parity = Parity(np.array([[1.0], [1.0], [1.0]]), (1, 2, 3), np.zeros(3))
    >>> parity.checks.shape, np.linalg.norm(parity.checks, axis=0).round(3).tolist()
    ((2, 3), [0.816, 0.816, 0.816])
    """

    def __init__(self, generator: Floats, machines: Sequence[int], errors: Floats) -> None:
        rows = np.asarray(machines, dtype=int) - 1
        recovery = generator.shape[1]
        count = len(rows)
        if (
            len(set(rows.tolist())) != count
            or count <= recovery
            or rows.min() < 0
            or rows.max() >= len(generator)
        ):
            raise InputError(
                f"parity of machines {list(machines)}: expected more than {recovery} different "
                f"machines from 1 to {len(generator)}"
            )
        matrix = generator[rows]
        basis, _ = np.linalg.qr(matrix, mode="complete")
        self.machines = tuple(int(n) for n in machines)
        self.recovery = recovery
        self.checks: Floats = np.ascontiguousarray(basis[:, recovery:].T)
        sizes = np.abs(matrix).sum(axis=1)
        self.tolerance = float(
            np.linalg.norm(errors[rows]) + checking_error(count, recovery) * np.linalg.norm(sizes)
        )

    def residuals(self, answers: Floats) -> Floats:
        """What the checks leave of each row: ``norm(C a)``.

        Parameters
        ----------
        answers : (m, rows) ndarray of float

        Returns
        -------
        (rows,) ndarray of float
        """
        with np.errstate(over="ignore", invalid="ignore"):
            # hypot, since squares of what is no error would overflow from 1e154 on
            left: Floats = np.hypot.reduce(np.abs(self.checks @ answers), axis=0)
        return left

    def inconsistent(
        self, answers: NDArray[np.floating], scale: ArrayLike, least: float = 0.0
    ) -> Bools:
        """Which rows fail the checks.

        Parameters
        ----------
        answers : (m, rows) ndarray of float
            Of the machines, in their order.
        scale : float or (rows,) array_like of float
            S, or a bound of it.
        least : float
            What underflow can make of ``norm(C a)``.

        Returns
        -------
        (rows,) ndarray of bool
            True where ``norm(C a) > tolerance * S + least``, and where an answer is NaN or
            infinite.

        Examples
        --------
        >>> from cec_mpi.core.accuracy.rounding import answer_error
        >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> errors = answer_error(generator, "float64", "float64", 1)
        >>> parity = Parity(generator, (1, 2, 3), errors)
        >>> answers = generator @ [[5.0, 5.0, 5.0], [7.0, 7.0, 7.0]]
        >>> answers[2] += [0, 1e-9, np.nan]
        >>> parity.inconsistent(answers, scale=7.0)
        array([False,  True,  True])
        """
        values = np.asarray(answers, dtype=np.float64)
        if values.ndim != 2 or len(values) != len(self.machines):
            raise InputError(
                f"answers of shape {values.shape}: expected a row for each of "
                f"{plural(len(self.machines), 'machine')}"
            )
        limits = self.tolerance * np.asarray(scale, dtype=np.float64) + least
        # not finite where an answer is not
        return np.asarray(~(self.residuals(values) <= limits), dtype=bool)


def checking_error(count: int, recovery: int) -> float:
    """Relative error of C a in float64, and of C itself."""
    return float((count - recovery) ** 0.5) * float(gamma(4 * count, np.float64))
