"""A fast version of `core.paper.decode` for all blocks of a plan, and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.threads import PARALLEL_THRESHOLD, run_in_threads

Floats = NDArray[np.float64]

_MAX_SHORT_BLOCK = 512  # numbers of each machine, up to which blocks are copied in groups
_MIN_PANEL = 8192  # numbers of each machine
_MAX_PANEL_WORK = 10**6  # multiplications up to which OpenBLAS does not copy its arguments


class Codec:
    """Decodes the answers of a step, and computes the coefficients of the adjoint.

    Coded numbers are in the order of machines (`Assignment.positions`), uncoded numbers in the
    order of the L parts of X.

    Parameters
    ----------
    plan : Plan
        Each row is on exactly L machines.
    code : MDSCode
    columns : int
        Number of vectors, k.
    work : list of ndarray of float64
        Scratch of each thread (`make_scratch`); several codecs may share it.

    Attributes
    ----------
    condition : float
        The largest condition number of a block's decoder.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> from cec_mpi.core.plan.planner import plan_step
    >>> code, plan = make_code(3, 2), plan_step((1, 2, 3), (1, 1, 2), 2, 4)
    >>> codec = Codec(plan, code, 1, make_scratch(2, 4, 1))
    >>> parts, coded = np.empty((2, 4)), np.empty(8)
    >>> codec.decode(np.ones(8), parts)
    >>> codec.coefficients(parts, coded)
    >>> coded.shape
    (8,)
    """

    def __init__(self, plan: Plan, code: MDSCode, columns: int, work: Sequence[Floats]) -> None:
        assignment = plan.assignment
        decoders = plan.decoders(code)
        self.condition = max(decoder.condition for decoder in decoders)
        most, numbers = panel_width(code.recovery), int(assignment.stops.max()) * columns
        threads = len(work) if code.recovery * numbers >= PARALLEL_THRESHOLD else 1
        self._blocks: list[list[_Block | _ShortBlocks]] = [[] for _ in range(threads)]
        short: list[_ShortBlock] = []
        for start, stop, positions, decoder in zip(
            assignment.starts.tolist(),
            assignment.stops.tolist(),
            assignment.positions.tolist(),
            decoders,
            strict=True,
        ):
            begin, end = start * columns, stop * columns
            width = min(most, -(-numbers // threads))
            for first in range(begin, end, width):
                places = [p * columns + first - begin for p in positions]
                last = min(first + width, end)
                thread = first * threads // numbers
                apart = {q - p for p, q in pairwise(places)}
                if last - first > _MAX_SHORT_BLOCK or len(apart) < 2:
                    block = _Block(decoder, first, last, places, work[thread])
                    self._blocks[thread].append(block)
                    continue
                if short and last - short[0].start > most:
                    self._add_short_blocks(short, numbers, work)
                    short = []
                short.append(_ShortBlock(decoder, first, last, places))
        if short:
            self._add_short_blocks(short, numbers, work)

    def _add_short_blocks(
        self, short: list[_ShortBlock], numbers: int, work: Sequence[Floats]
    ) -> None:
        thread = short[0].start * len(self._blocks) // numbers
        self._blocks[thread].append(_ShortBlocks(short, work[thread]))

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        """Decode the answers of a step to the rows of X_1 W .. X_L W.

        Parameters
        ----------
        answers : (L * R * k,) ndarray
        parts : (L, R * k) ndarray of float64
            Overwritten.
        """

        def decode(blocks: Sequence[_Block | _ShortBlocks]) -> None:
            with np.errstate(invalid="ignore", over="ignore"):  # the result is checked
                for block in blocks:
                    block.decode(answers, parts)

        run_in_threads([partial(decode, blocks) for blocks in self._blocks])

    def coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        """Compute the coefficients of all machines for X' V, with the transposed decoder.

        With ``u = inv(G_P') v`` on each block, the sum of ``shard_n[rows]' u_n`` over machines and
        blocks is X' V.

        Parameters
        ----------
        parts : (L, R * k) ndarray of float64
            V, divided into parts like X.
        coded : (L * R * k,) ndarray
            Overwritten.
        """

        def compute(blocks: Sequence[_Block | _ShortBlocks]) -> None:
            for block in blocks:
                block.coefficients(parts, coded)

        run_in_threads([partial(compute, blocks) for blocks in self._blocks])


class _ShortBlock(NamedTuple):
    """A short block: its decoder, and the positions of its coded numbers."""

    decoder: Decoder
    start: int
    stop: int
    places: list[int]


class _ShortBlocks:
    """A group of short blocks, whose numbers are copied in one call because that is faster."""

    def __init__(self, blocks: list[_ShortBlock], work: Floats) -> None:
        recovery, sizes = len(blocks[0].places), [b.stop - b.start for b in blocks]
        self._work = work[: sum(sizes) * recovery]
        rows, begin = self._work.reshape(recovery, -1), 0
        self._blocks = []
        for size, block in zip(sizes, blocks, strict=True):
            values = rows[:, begin : begin + size]
            self._blocks.append((block.decoder, slice(block.start, block.stop), values))
            begin += size
        # Positions and counts of the coded numbers, in the order of the scratch.
        self._places = np.array([b.places for b in blocks], dtype=np.int64).T.reshape(-1)
        self._sizes = np.tile(np.array(sizes, dtype=np.int64), recovery)
        self._answers: NDArray[Any] = np.empty(0)
        self._found: list[NDArray[Any]] = []
        self._runs: list[tuple[slice, list[Floats]]] = []

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        if answers is not self._answers:  # nearly every step has the same array
            ends = self._places + self._sizes
            both = zip(self._places.tolist(), ends.tolist(), strict=True)
            self._found = [answers[place:end] for place, end in both]
            self._answers = answers
        np.concatenate(self._found, out=self._work)
        for decoder, along, values in self._blocks:
            decoder.decode(values, parts[:, along])

    def coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        for decoder, along, values in self._blocks:
            decoder.decode_transposed(parts[:, along], values)
        for place, rows in self._runs or self._order_runs():
            np.concatenate(rows, out=coded[place], casting="same_kind")

    def _order_runs(self) -> list[tuple[slice, list[Floats]]]:
        """Return the scratch rows in the order of the coded numbers, in contiguous runs."""
        order = self._places.argsort()
        places, sizes = self._places[order], self._sizes[order]
        begins = (self._sizes.cumsum() - self._sizes)[order]
        runs = []
        cuts = [0, *(np.flatnonzero(places[1:] != places[:-1] + sizes[:-1]) + 1).tolist()]
        for first, last in pairwise([*cuts, len(order)]):
            both = zip(begins[first:last].tolist(), sizes[first:last].tolist(), strict=True)
            rows = [self._work[begin : begin + size] for begin, size in both]
            begin = int(places[first])
            runs.append((slice(begin, begin + sum(row.size for row in rows)), rows))
        self._runs = runs
        return runs


class _Block:
    """A block or a piece of a long block: its decoder, and the positions of its coded numbers."""

    __slots__ = ("_along", "_decoder", "_first", "_sources", "_strides", "_work")

    def __init__(
        self, decoder: Decoder, start: int, stop: int, places: list[int], work: Floats
    ) -> None:
        size = stop - start
        self._decoder = decoder
        self._along = slice(start, stop)
        self._sources = [slice(place, place + size) for place in places]
        self._work = work[: len(places) * size].reshape(len(places), size)
        # If the positions of the machines are equidistant, a strided view needs no copy.
        apart = {q - p for p, q in pairwise(places)} or {size}
        self._strides: tuple[int, int] | None = None
        self._first = places[0] * work.itemsize
        if len(apart) == 1:
            self._strides = apart.pop() * work.itemsize, work.itemsize

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        values = self._strided_view(answers)
        if values is None:
            values = self._work
            for row, source in zip(values, self._sources, strict=True):
                row[:] = answers[source]
        self._decoder.decode(values, parts[:, self._along])

    def coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        values = self._strided_view(coded)
        if values is not None:
            self._decoder.decode_transposed(parts[:, self._along], values)
            return
        self._decoder.decode_transposed(parts[:, self._along], self._work)
        for row, source in zip(self._work, self._sources, strict=True):
            coded[source] = row

    def _strided_view(self, numbers: NDArray[Any]) -> Floats | None:
        """Return the numbers of the machines as a strided matrix, if that is possible."""
        if self._strides is None or numbers.dtype != np.float64 or not numbers.flags.c_contiguous:
            return None
        return np.ndarray(self._work.shape, np.float64, numbers, self._first, self._strides)


def panel_width(recovery: int) -> int:
    """Return how many numbers of each machine are decoded at a time.

    Parameters
    ----------
    recovery : int
        L.

    Examples
    --------
    >>> panel_width(3), panel_width(40)
    (111111, 8192)
    """
    return max(_MIN_PANEL, (_MAX_PANEL_WORK - 1) // recovery**2)


def make_scratch(recovery: int, numbers: int, threads: int) -> list[Floats]:
    """Return the scratch of each thread for decoding `numbers` numbers of each of L machines."""
    size = recovery * min(numbers, panel_width(recovery))
    return [np.empty(size) for _ in range(threads)]


def decode_in_panels(
    decoder: Decoder,
    answers: Sequence[NDArray[np.floating]],
    out: NDArray[np.float64],
    work: Sequence[Floats],
) -> None:
    """Decode L answers in panels that fit in the scratch.

    Parameters
    ----------
    decoder : Decoder
    answers : L of (m,) ndarray of float
        In the order of the machines.
    out : (L, m) ndarray of float64
    work : list of ndarray of float64
        Scratch of each thread, see `make_scratch`.
    """
    recovery, numbers = out.shape
    threads = len(work) if out.size >= PARALLEL_THRESHOLD else 1
    width = min(panel_width(recovery), -(-numbers // threads))

    def decode(thread: int) -> None:
        for first in range(thread * width, numbers, threads * width):
            last = min(numbers, first + width)
            panel = work[thread][: recovery * (last - first)].reshape(recovery, last - first)
            for row, answer in zip(panel, answers, strict=True):
                row[:] = answer[first:last]
            decoder.decode(panel, out[:, first:last])

    run_in_threads([partial(decode, thread) for thread in range(threads)])
