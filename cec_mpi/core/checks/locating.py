"""Naming the machine that is wrong, and nobody where two others may be.

Without the wrong machine the parity checks of the rest agree. They do so without any two of
L + 2, too; of L + 3 answers only without the one, so that L + 2 never name a machine. Where
machines have several shards, it is the answers of all of them that may be wrong, and that have to
be enough to do without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error
from cec_mpi.core.accuracy.verdict import Verdict
from cec_mpi.core.checks.evidence import Evidence, pairs_besides
from cec_mpi.core.checks.holders import Holders, Shards
from cec_mpi.core.checks.parity import Parity

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = 1024  # parities


@dataclass(frozen=True)
class Observation:
    """The answers of some machines to the same rows.

    Attributes
    ----------
    machines : tuple of int
        P, at least L machines, or shards where machines have several.
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
    mates : callable, optional
        As in `Holders`.

    Attributes
    ----------
    holders : Holders

    Examples
    --------
    >>> generator = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0], [1.0, 2.0]])
    >>> checker = ParityChecker(generator, np.float64, columns=1)
    >>> answers = generator @ [[5.0], [7.0]]
    >>> answers[2] += 0.5
    >>> checker.inconsistent((1, 2, 3), answers[:3], 7.0)
    array([ True])
    >>> checker.locate([Observation((1, 2, 3, 4), answers[:4], 7.0)])
    Verdict(agree=False, wrong=(), candidates=((3,),))
    >>> checker.locate([Observation((1, 2, 3, 4, 5), answers, 7.0)])
    Verdict(agree=False, wrong=(3,), candidates=((3,),))
    """

    def __init__(
        self,
        generator: Floats,
        dtype: DTypeLike,
        columns: int,
        shard_errors: ArrayLike | None = None,
        mates: Callable[[int], Shards] | None = None,
    ) -> None:
        self.holders = Holders(generator.shape[1], mates)
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
        scale: ArrayLike,
    ) -> Bools:
        """Which rows fail the checks of these machines: see `Parity.inconsistent`.

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
        """What underflow can make of the checks of so many answers."""
        return self._tiny * float(count**0.5)

    def locate(self, observations: Sequence[Observation]) -> Verdict:
        """Name the machine that is wrong, if it is certain that no two others are.

        Parameters
        ----------
        observations : sequence of Observation
            Blocks of a step, or of several steps: the same machine must explain them all.

        Returns
        -------
        Verdict
            The machine that is wrong, as all of its shards. Nobody is named where no machine
            explains it, or several would, nor where two others may have done it. `candidates`
            are the machines that explain it alone.

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
        found = [mine for mine in present if not any(fails(index, mine) for index in everything)]
        alarmed = any(fails(index, ()) for index in everything)
        if not alarmed and len(found) == len(present):  # nobody is missed
            return Verdict(agree=True)
        if len(found) != 1:
            return Verdict(agree=False, candidates=tuple(found))
        certain = self._excludes_others(observations, found[0])
        return Verdict(False, found[0] if certain else (), (found[0],))

    def _present(self, observations: Sequence[Observation]) -> list[Shards]:
        """The machines that answered, each as all of its shards."""
        return self.holders.of({n for seen in observations for n in seen.machines})

    def _excludes_others(self, observations: Sequence[Observation], named: Shards) -> bool:
        """Whether no two others can have done it."""
        recovery = self._generator.shape[1]
        more = [seen for seen in observations if len(seen.machines) > recovery]
        evidence = [self._evidence(seen) for seen in more]
        return all(
            any(one.excludes(pair) for one in evidence)
            for pair in pairs_besides(named, self._present(observations))
        )

    def _evidence(self, seen: Observation) -> Evidence:
        answers = np.asarray(seen.answers)
        scale = np.broadcast_to(np.asarray(seen.scale, dtype=np.float64), answers.shape[1:])
        least = self._least(len(seen.machines))
        return Evidence(self.parity, seen.machines, answers, scale, least)

    def _fails(self, seen: Observation, without: Collection[int]) -> bool:
        """Whether the rest of the machines disagree; L cannot."""
        kept = [k for k, n in enumerate(seen.machines) if n not in without]
        if len(kept) <= self._generator.shape[1]:
            return False
        machines = tuple(seen.machines[k] for k in kept)
        failed = self.inconsistent(machines, seen.answers[kept], seen.scale)
        return bool(failed.any())
