"""Between the parts of X and the answers of machines: decoding and its transpose, by block."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.step import panels

Floats = NDArray[np.float64]


class Codec:
    """Turns the coded numbers of a step into uncoded ones, and back for the adjoint.

    Coded numbers stand machine after machine (`Assignment.positions`), uncoded ones as
    the L parts of X below each other; both with one number per row and column.

    Parameters
    ----------
    plan : Plan
        Each row on exactly L machines.
    code : MDSCode
    columns : int
        Vectors that are multiplied at once, k.
    work : (L * R * k,) ndarray of float64
        Scratch, which several codecs may share.

    Attributes
    ----------
    condition : float
        The largest condition number of a block's decoder.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> from cec_mpi.core.plan.planner import plan_step
    >>> code, plan = make_code(3, 2), plan_step((1, 2, 3), (1, 1, 2), 2, 4)
    >>> codec = Codec(plan, code, 1, np.empty(8))
    >>> parts, coded = np.empty((2, 4)), np.empty(8)
    >>> codec.decode(np.ones(8), parts)
    >>> codec.coefficients(parts, coded)
    >>> coded.shape
    (8,)
    """

    def __init__(self, plan: Plan, code: MDSCode, columns: int, work: Floats) -> None:
        assignment = plan.assignment
        decoders = plan.decoders(code)
        self.condition = max(decoder.condition for decoder in decoders)
        most = panels.width(code.recovery)
        self._blocks = []
        for start, stop, positions, decoder in zip(
            assignment.starts.tolist(),
            assignment.stops.tolist(),
            assignment.positions.tolist(),
            decoders,
            strict=True,
        ):
            begin, end = start * columns, stop * columns
            for first in range(begin, end, most):
                places = [p * columns + first - begin for p in positions]
                last = min(first + most, end)
                self._blocks.append(_Block(decoder, first, last, places, work))

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        """From the answers of a step to the rows of X_1 W .. X_L W.

        Parameters
        ----------
        answers : (L * R * k,) ndarray
        parts : (L, R * k) ndarray of float64
            Overwritten.
        """
        for block in self._blocks:
            block.decode(answers, parts)

    def coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        """From V to what each machine multiplies its rows with in X' V: the transposed decoder.

        With ``u = inv(G_P') v`` on each block, the sum of ``shard_n[rows]' u_n`` over
        machines and blocks is X' V: nothing is left to be decoded.

        Parameters
        ----------
        parts : (L, R * k) ndarray of float64
            V, cut as X is.
        coded : (L * R * k,) ndarray
            Overwritten.
        """
        for block in self._blocks:
            block.coefficients(parts, coded)


class _Block:
    """A block, or some of a long one: its decoder, and where its numbers stand."""

    __slots__ = ("_along", "_decoder", "_first", "_sources", "_strides", "_work")

    def __init__(
        self, decoder: Decoder, start: int, stop: int, places: list[int], work: Floats
    ) -> None:
        size = stop - start
        self._decoder = decoder
        self._along = slice(start, stop)
        self._sources = [slice(p, p + size) for p in (places[k] for k in decoder.order)]
        self._work = work[: len(places) * size].reshape(len(places), size)
        # Machines whose numbers are equally far apart: these are the rows of a matrix as they are.
        apart = {q - p for p, q in pairwise(places)} or {size}
        self._strides: tuple[int, int] | None = None
        self._first = places[0] * work.itemsize
        if decoder.factors is None and len(apart) == 1:
            self._strides = apart.pop() * work.itemsize, work.itemsize

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        values = self._rows_of(answers)
        if values is None:
            values = self._work
            for row, source in zip(values, self._sources, strict=True):
                row[:] = answers[source]
        self._decoder.decode(values, parts[:, self._along])

    def coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        values = self._rows_of(coded)
        if values is not None:
            self._decoder.decode_transposed(parts[:, self._along], values)
            return
        self._decoder.decode_transposed(parts[:, self._along], self._work)
        for row, source in zip(self._work, self._sources, strict=True):
            coded[source] = row

    def _rows_of(self, numbers: NDArray[Any]) -> Floats | None:
        """These numbers of the machines as a matrix, if they are the rows of one."""
        if self._strides is None or numbers.dtype != np.float64 or not numbers.flags.c_contiguous:
            return None
        return np.ndarray(self._work.shape, np.float64, numbers, self._first, self._strides)
