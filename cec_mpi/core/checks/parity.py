"""Parity: detecting wrong answers with one spare answer, and naming the wrong machine.

The answers of machines P at one row are ``a = G_P x`` with x = (X_1 w .. X_L w) at that row.
More than L of them are redundant: with C an orthonormal basis of the left null space of G_P,
``C a = 0``. In floating point C a is as large as rounding makes it, and an error E of machine
n adds E times the length of column n of C, the weight of n in P, which is from 0 to 1
(`sensitivity`). Units are those of `rounding`: all errors are relative to the scale S of a row.

The direction of C a tells whose error it is; equivalently, the others agree without the wrong
machine. Of L + 2 answers the rest agree without any two, so that L + 2 answers never name a
machine; of L + 3 they agree only without the wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.recombine import Verdict
from cec_mpi.core.accuracy.rounding import answer_error, gamma
from cec_mpi.errors import InputError
from cec_mpi.text import plural

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = 1024  # parities
_ROWS = 64  # that are looked at of each observation: those with the largest errors
_CLEAR = 1e-5  # of what the checks leave: more than rounding makes of a projection
_PARALLEL = 1e-8  # squares of sines below this are not told from 0


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
        """Return the residual of each row: ``norm(C a)``.

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
        """Return which rows fail the checks.

        Parameters
        ----------
        answers : (m, rows) ndarray of float
            Of the machines, in their order.
        scale : float or (rows,) array_like of float
            S, or a bound of it.
        least : float
            Largest ``norm(C a)`` from underflow.

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
    """Return the relative error of C a in float64, with that of C."""
    return float((count - recovery) ** 0.5) * float(gamma(4 * count, np.float64))


class Evidence:
    """The rows of an observation with the largest residuals, as evidence about pairs of machines.

    Parity sees ``C a = sum_n c_n E_n``, with c_n the column of C of machine n and E_n its error.

    Parameters
    ----------
    parity_of : callable
        The `Parity` of these machines.
    machines : tuple of int
        P, more than L.
    answers : (m, rows) ndarray of float
    scale : (rows,) ndarray of float
        S of each row.
    least : float
        See `Parity.inconsistent`.
    """

    def __init__(
        self,
        parity_of: Callable[[tuple[int, ...]], Parity],
        machines: tuple[int, ...],
        answers: NDArray[np.floating],
        scale: Floats,
        least: float,
    ) -> None:
        self._parity_of = parity_of
        self._machines = machines
        self._places = {n: k for k, n in enumerate(machines)}
        self._parity = parity_of(machines)
        values = np.asarray(answers, dtype=np.float64)
        finite = np.isfinite(values).all(axis=0)
        left = self._parity.residuals(np.where(finite, values, 0.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            excess = np.nan_to_num(left / (self._parity.tolerance * scale + least), nan=0.0)
        excess[~finite] = np.inf
        self._rows = np.argsort(excess, kind="stable")[::-1][:_ROWS]
        self._answers, self._scale, self._least = values[:, self._rows], scale[self._rows], least

    def excludes(self, pair: tuple[int, int]) -> bool:
        """Whether the others disagree without these two machines, so that a third is wrong."""
        gone = set(pair) & self._places.keys()
        kept = [k for k, n in enumerate(self._machines) if n not in gone]
        if len(kept) <= self._parity.recovery:
            return False
        if len(gone) == 2:
            first, second = (self._places[n] for n in gone)
            if self._clear[first, second]:
                return True
        rest = self._parity_of(tuple(self._machines[k] for k in kept))
        return bool(rest.inconsistent(self._answers[kept], self._scale, self._least).any())

    @cached_property
    def _clear(self) -> Bools:
        """Pairs without which the residual is far larger than rounding."""
        count = len(self._machines)
        clear = np.zeros((count, count), dtype=bool)
        usable = np.isfinite(self._answers).all(axis=0)
        left = self._parity.checks @ self._answers[:, usable]
        sizes = np.hypot.reduce(np.abs(left), axis=0, initial=0.0)
        usable_sizes = np.where(sizes > 0, sizes, 1.0)
        left = left / usable_sizes  # of unit length, so that squares are harmless
        columns = self._parity.checks
        products = columns.T @ columns
        along = columns.T @ left
        limits = 2 * (self._parity.tolerance * self._scale[usable] + self._least) / usable_sizes
        for i in range(count):
            if products[i, i] < _PARALLEL:
                continue
            share = products[i] / products[i, i]
            own = np.diag(products) - share * products[i]
            rest = along - share[:, None] * along[i]
            total = 1.0 - along[i] ** 2 / products[i, i]
            good = own > _PARALLEL * np.diag(products)
            taken = np.divide(rest**2, own[:, None], out=np.ones_like(rest), where=good[:, None])
            remains = np.sqrt(np.clip(total - taken, 0.0, None))
            clear[i] = good & (remains > limits + _CLEAR).any(axis=1)
        return clear | clear.T


@dataclass(frozen=True)
class Observation:
    """The answers of some machines to the same rows.

    Attributes
    ----------
    machines : tuple of int
        P, at least L machines.
    answers : (m, rows) ndarray of float
        In the order of the machines.
    scale : float or (rows,) ndarray of float
        S, or a bound of it.
    """

    machines: tuple[int, ...]
    answers: NDArray[np.floating]
    scale: float | Floats


class ParityChecker:
    """Parity checks of one code, each set of machines made ready once.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    dtype : dtype
        Of the shards.
    columns : int
        Of X, r.
    shard_errors : (N,) array_like of float, optional
        As in `answer_error`.

    Attributes
    ----------
    recovery : int
        L.

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])
    >>> checker = ParityChecker(generator, np.float64, columns=1)
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.inconsistent((1, 2, 3), answers[:3], 7.0)
    array([ True])
    >>> checker.locate([Observation((1, 2, 3, 4), answers[:4], 7.0)])
    Verdict(agree=False, wrong=(), candidates=(3,))
    >>> checker.locate([Observation((1, 2, 3, 4, 5), answers, 7.0)])
    Verdict(agree=False, wrong=(3,), candidates=(3,))
    """

    def __init__(
        self,
        generator: Floats,
        dtype: DTypeLike,
        columns: int,
        shard_errors: ArrayLike | None = None,
    ) -> None:
        self.recovery = generator.shape[1]
        self._generator = generator
        self._errors = answer_error(generator, dtype, dtype, columns, shard_errors)
        self._tiny = float(np.finfo(dtype).tiny) * (columns + 1)
        self.parity = lru_cache(_KEPT)(self._parity)

    def _parity(self, machines: tuple[int, ...]) -> Parity:
        return Parity(self._generator, machines, self._errors)

    def inconsistent(
        self,
        machines: Sequence[int],
        answers: NDArray[np.floating],
        scale: ArrayLike,
    ) -> Bools:
        """Return which rows fail the checks of these machines: see `Parity.inconsistent`.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L.
        answers : (m, rows) ndarray of float
        scale : float or (rows,) array_like of float

        Returns
        -------
        (rows,) ndarray of bool
        """
        least = self._least(len(machines))
        return self.parity(tuple(machines)).inconsistent(answers, scale, least)

    def _least(self, count: int) -> float:
        """Return the largest residual from underflow."""
        return self._tiny * float(count**0.5)

    def locate(self, observations: Sequence[Observation]) -> Verdict:
        """Name the wrong machine, if no two other machines can be wrong instead.

        Parameters
        ----------
        observations : sequence of Observation
            Blocks of a step, or of several steps: the same machine must explain them all.

        Returns
        -------
        Verdict
            The machine that is wrong. Nobody is named where no machine explains it, or several
            would, nor where two others may have done it. `candidates` are the machines that explain
            it alone.

        Notes
        -----
        A set of machines explains the observations if without it all checks of the rest are
        fulfilled. Rounding raises no alarm, so whoever is wrong is an explanation. Machine n is
        named if all explanations by one or by two machines have n among them: then it is wrong,
        whatever the errors are, as long as not more than two machines are.

        That takes L + 3 answers: without two of them one check is left, and it sees n, if n's
        error is one that any L + 1 machines see (`Sensitivity`). Of L + 2 answers any two may
        be wrong, since L always agree, and equal errors of two machines often look like an error
        of a third. In general m answers are code words of distance ``m - L + 1`` and errors of
        up to ``m - L - 1`` machines never look like an error of another one: one machine with
        L + 2 answers, two with L + 3, three with L + 4.
        """
        failing: dict[tuple[int, frozenset[int]], bool] = {}

        def fails(index: int, without: Collection[int]) -> bool:
            seen = observations[index]
            gone = frozenset(without) & frozenset(seen.machines)
            if (index, gone) not in failing:
                failing[index, gone] = self._fails(seen, gone)
            return failing[index, gone]

        everything = range(len(observations))
        present = self._present(observations)
        found = [n for n in present if not any(fails(index, (n,)) for index in everything)]
        alarmed = any(fails(index, ()) for index in everything)
        if not alarmed and len(found) == len(present):  # nobody is missed
            return Verdict(agree=True)
        if len(found) != 1:
            return Verdict(agree=False, candidates=tuple(found))
        certain = self._excludes_others(observations, found[0])
        return Verdict(False, tuple(found) if certain else (), tuple(found))

    def _present(self, observations: Sequence[Observation]) -> list[int]:
        """Return the machines that answered."""
        return sorted({n for seen in observations for n in seen.machines})

    def _excludes_others(self, observations: Sequence[Observation], named: int) -> bool:
        """Whether no two other machines can explain the observations."""
        more = [seen for seen in observations if len(seen.machines) > self.recovery]
        evidence = [self._evidence(seen) for seen in more]
        others = [n for n in self._present(observations) if n != named]
        return all(any(one.excludes(pair) for one in evidence) for pair in combinations(others, 2))

    def _evidence(self, seen: Observation) -> Evidence:
        answers = np.asarray(seen.answers)
        scale = np.broadcast_to(np.asarray(seen.scale, dtype=np.float64), answers.shape[1:])
        least = self._least(len(seen.machines))
        return Evidence(self.parity, seen.machines, answers, scale, least)

    def _fails(self, seen: Observation, without: Collection[int]) -> bool:
        """Whether the other machines disagree; L machines never do."""
        kept = [k for k, n in enumerate(seen.machines) if n not in without]
        if len(kept) <= self.recovery:
            return False
        machines = tuple(seen.machines[k] for k in kept)
        failed = self.inconsistent(machines, seen.answers[kept], seen.scale)
        return bool(failed.any())
