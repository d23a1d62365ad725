"""The answers of an elastic step: storage, comparison, and decoding from any L machines."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.parity import Comparison, ParityChecker
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.assignment import Intervals
from cec_mpi.core.step.codec import decode_in_panels

Floats = NDArray[np.float64]

_MAX_CACHED_ENTRIES = 1 << 24  # entries of all cached decoders (128 MiB)
_MAX_CACHED_CHOICES = 4096


class RowAnswers:
    """The answers of machines to rows of their shards.

    Parameters
    ----------
    decoders : DecoderCache
    columns : int
        Number of columns of W, k.
    parts : (L, R * k) ndarray of float64
        Receives the rows of X_1 W .. X_L W.
    scratch : list of ndarray of float64
        One array for each thread (`make_scratch`).
    checker : ParityChecker, optional
        Needed to compare answers.
    scale : (k,) ndarray of float, optional
        Bound on the sum of absolute values of the terms of an answer, for each column; needed by
        the checker.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> from cec_mpi.core.step.codec import make_scratch
    >>> code, parts = make_code(3, 2), np.empty((2, 4))
    >>> answers = RowAnswers(DecoderCache(code), 1, parts, make_scratch(2, 4, 1))
    >>> coded = code.generator @ [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
    >>> answers.add(3, ((0, 4),), coded[2])
    >>> answers.add(1, ((0, 1), (2, 4)), coded[0, [0, 2, 3]])
    >>> answers.decode(2, 4, (1, 3))
    >>> parts[:, 2:].round(6)
    array([[3., 4.],
           [7., 8.]])
    """

    def __init__(
        self,
        decoders: DecoderCache,
        columns: int,
        parts: Floats,
        scratch: Sequence[Floats],
        checker: ParityChecker | None = None,
        scale: Floats | None = None,
    ) -> None:
        self._decoders, self._columns = decoders, columns
        self._parts, self._scratch = parts, scratch
        self._checker, self._scale = checker, scale
        self._answers: dict[int, list[tuple[int, int, NDArray[Any]]]] = {}

    def add(self, machine: int, intervals: Intervals, values: NDArray[np.floating]) -> None:
        """Add an answer.

        Parameters
        ----------
        machine : int
        intervals : tuple of (int, int)
            The answered rows ``start <= row < stop``.
        values : (number of rows * k,) ndarray
            In row-major order. Not copied: it must not change before all rows are decoded.
        """
        begin, answers = 0, self._answers.setdefault(machine, [])
        for start, stop in intervals:
            end = begin + (stop - start) * self._columns
            answers.append((start, stop, values[begin:end]))
            begin = end

    def decode(self, start: int, stop: int, machines: tuple[int, ...]) -> None:
        """Decode rows ``start <= row < stop`` from the answers of L machines (ascending)."""
        answers = [self._answer_values(machine, start, stop) for machine in machines]
        out = self._parts[:, start * self._columns : stop * self._columns]
        decode_in_panels(self._decoders.get(machines), answers, out, self._scratch)

    def has_disagreement(self, start: int, stop: int, machines: tuple[int, ...]) -> bool:
        """Return whether the answers of these machines (more than L, ascending) disagree."""
        assert self._checker is not None
        return self._checker.has_disagreement(
            machines, *self._answers_and_scale(start, stop, machines)
        )

    def identify_faulty(self, start: int, stop: int, machines: tuple[int, ...]) -> Comparison:
        """Compare the answers of these machines (ascending), and identify the faulty ones."""
        assert self._checker is not None
        return self._checker.identify_faulty(
            machines, *self._answers_and_scale(start, stop, machines)
        )

    def _answers_and_scale(
        self, start: int, stop: int, machines: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Return the answers, (m, size), and the scale of each of their columns, (size,)."""
        assert self._scale is not None
        answers = np.array(
            [self._answer_values(n, start, stop) for n in machines], dtype=np.float64
        )
        return answers, np.tile(self._scale, stop - start)

    def _answer_values(self, machine: int, start: int, stop: int) -> NDArray[Any]:
        """Return these rows of a machine's last answer that includes all of them."""
        k = self._columns
        for begin, end, values in reversed(self._answers[machine]):
            if begin <= start and stop <= end:
                rows: NDArray[Any] = values[(start - begin) * k : (stop - begin) * k]
                return rows
        raise KeyError(f"machine {machine} has not answered rows {start}..{stop - 1}")


class DecoderCache:
    """A cache of the decoders of a code.

    Parameters
    ----------
    code : MDSCode

    Examples
    --------
    >>> import numpy as np
    >>> decoders = DecoderCache(MDSCode(np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])))
    >>> decoders.choose_machines((1, 2, 3)), round(decoders.get((1, 3)).condition)
    ((1, 3), 1)
    """

    def __init__(self, code: MDSCode) -> None:
        size = max(16, _MAX_CACHED_ENTRIES // code.recovery**2)
        self.get = lru_cache(size)(code.make_decoder)  # takes L machines, ascending
        choose = partial(choose_machines, code.generator)
        self.choose_machines = lru_cache(_MAX_CACHED_CHOICES)(choose)  # takes at least L machines

    def condition(self, machines: tuple[int, ...]) -> float:
        """Return the condition number of the decoder of L machines."""
        return self.get(machines).condition
