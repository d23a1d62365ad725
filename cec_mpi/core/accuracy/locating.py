"""Naming the machine that is wrong: two answers to spare do it, in one block or in several.

Without the wrong machine, and only then, the parity checks of the rest agree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.parity import Parity
from cec_mpi.core.accuracy.rounding import answer_error
from cec_mpi.core.accuracy.verdict import Verdict, suspects

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = 1024  # parities


@dataclass(frozen=True)
class Observation:
    """The answers of some machines to the same rows.

    Attributes
    ----------
    machines : tuple of int
        P, at least L machines.
    answers : (m, rows) ndarray of float
        In the order of the machines.
    scale : float or (rows,) ndarray of float, optional
        S, or a bound of it.
    floor : float
        What S is at least, where it is estimated.
    """

    machines: tuple[int, ...]
    answers: NDArray[np.floating]
    scale: float | Floats | None = None
    floor: float = 0.0


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

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> checker = ParityChecker(generator, np.float64, columns=1)
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.inconsistent((1, 2, 3), answers[:3])
    array([ True])
    >>> checker.locate([Observation((1, 2, 3, 4), answers)])
    Verdict(agree=False, wrong=(3,))
    """

    def __init__(
        self,
        generator: Floats,
        dtype: DTypeLike,
        columns: int,
        shard_errors: ArrayLike | None = None,
    ) -> None:
        self._generator = generator
        self._errors = answer_error(generator, dtype, dtype, columns, shard_errors)
        self._tiny = float(np.finfo(dtype).tiny) * (columns + 1)
        self.parity = lru_cache(_KEPT)(self._parity)

    def allow(self, errors: ArrayLike) -> None:
        """Expect these errors of answers from now on, (N,): see `answer_error`."""
        self._errors = np.asarray(errors, dtype=np.float64)
        self.parity.cache_clear()

    def _parity(self, machines: tuple[int, ...]) -> Parity:
        return Parity(self._generator, machines, self._errors)

    def inconsistent(
        self,
        machines: Sequence[int],
        answers: NDArray[np.floating],
        scale: ArrayLike | None = None,
        floor: float = 0.0,
    ) -> Bools:
        """Which rows fail the checks of these machines: see `Parity.inconsistent`.

        Parameters
        ----------
        machines : (m,) sequence of int
            More than L.
        answers : (m, rows) ndarray of float
        scale : float or (rows,) array_like of float, optional
        floor : float

        Returns
        -------
        (rows,) ndarray of bool
        """
        least = self._tiny * len(machines) ** 0.5
        return self.parity(tuple(machines)).inconsistent(answers, scale, floor, least)

    def locate(self, observations: Sequence[Observation], most: int = 1) -> Verdict:
        """Name the machine without which all observations are consistent.

        Parameters
        ----------
        observations : sequence of Observation
            Blocks of a step, or of several steps: the same machine must explain them all.
        most : int
            How many machines may be wrong at once.

        Returns
        -------
        Verdict
            Nobody is named where no machine explains it or several would, nor where the
            failing observations have fewer than 2 answers to spare for each wrong machine.

        Notes
        -----
        Two observations of L + 1 machines each that fail may have one machine in common, but
        two others may as well be wrong, one in each. So they can clear machines, not name
        one. An error that any L + 1 machines detect (`Sensitivity`) is named by any L + 2:
        without another machine these are L + 1 with the wrong one among them, and fail.
        """
        failing: dict[tuple[int, frozenset[int]], bool] = {}

        def fails(index: int, without: Collection[int]) -> bool:
            seen = observations[index]
            gone = frozenset(without) & frozenset(seen.machines)
            if (index, gone) not in failing:
                failing[index, gone] = self._fails(seen, gone)
            return failing[index, gone]

        everything = range(len(observations))
        present = sorted({n for seen in observations for n in seen.machines})
        alarmed = any(fails(index, ()) for index in everything)

        def explain(wrong: tuple[int, ...]) -> bool:
            return not any(fails(index, wrong) for index in everything)

        for found in suspects(present, most, explain):
            if not alarmed and len(found) == len(present):  # nobody is missed
                return Verdict(agree=True)
            alarmed = True
            if found:
                named = len(found) == 1 and self._witnessed(observations, found[0])
                return Verdict(agree=False, wrong=found[0] if named else ())
        return Verdict(agree=not alarmed)

    def _fails(self, seen: Observation, without: Collection[int]) -> bool:
        """Whether the rest of the machines disagree; L cannot."""
        kept = [k for k, n in enumerate(seen.machines) if n not in without]
        if len(kept) <= self._generator.shape[1]:
            return False
        machines = tuple(seen.machines[k] for k in kept)
        failed = self.inconsistent(machines, seen.answers[kept], seen.scale, seen.floor)
        return bool(failed.any())

    def _witnessed(self, observations: Sequence[Observation], wrong: tuple[int, ...]) -> bool:
        """Whether each is among the machines of an observation that can name as many."""
        enough = self._generator.shape[1] + 2 * len(wrong)
        witnesses = [set(seen.machines) for seen in observations if len(seen.machines) >= enough]
        return all(any(n in machines for machines in witnesses) for n in wrong)
