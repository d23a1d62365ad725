"""A fast version of `core.paper.decode` for all blocks of a plan, and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.threads import PARALLEL_THRESHOLD, run_in_threads

Floats = NDArray[np.float64]

_MAX_SHORT_BLOCK = 2048  # values of each machine; shorter blocks are copied in groups
_MIN_PANEL = 8192  # values of each machine
_MAX_PANEL_WORK = 10**6  # multiplications up to which OpenBLAS does not copy its arguments


class Codec:
    """Decodes the answers of a step, and computes the coefficients of the adjoint.

    Coded values are in the order of `Assignment.positions`, decoded values in the order of the L
    parts of X.

    Parameters
    ----------
    plan : Plan
        Each row is on exactly L machines.
    code : MDSCode
    columns : int
        Number of vectors, k.
    scratch : list of ndarray of float64
        One array for each thread (`make_scratch`); several codecs may share it.

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
    >>> codec.compute_coefficients(parts, coded)
    >>> coded.shape
    (8,)
    """

    def __init__(self, plan: Plan, code: MDSCode, columns: int, scratch: Sequence[Floats]) -> None:
        assignment = plan.assignment
        decoders = plan.decoders(code)
        self.condition = max(decoder.condition for decoder in decoders)
        shard_size = int(assignment.stops.max()) * columns
        threads = len(scratch) if code.recovery * shard_size >= PARALLEL_THRESHOLD else 1
        max_width = panel_width(code.recovery)
        width = min(max_width, -(-shard_size // threads))
        self._blocks: list[list[_Block | _BlockGroup]] = [[] for _ in range(threads)]
        group: list[_ShortBlock] = []
        blocks = zip(
            (assignment.starts * columns).tolist(),
            (assignment.stops * columns).tolist(),
            (assignment.positions * columns).tolist(),
            decoders,
            strict=True,
        )
        for start, stop, positions, decoder in sorted(blocks, key=itemgetter(0)):
            for first in range(start, stop, width):
                last = min(first + width, stop)
                offsets = [position + first - start for position in positions]
                if last - first > _MAX_SHORT_BLOCK or _common_stride(offsets) is not None:
                    thread = first * threads // shard_size
                    block = _Block(decoder, first, last, offsets, scratch[thread])
                    self._blocks[thread].append(block)
                    continue
                if group and last - group[0].start > max_width:
                    self._add_group(group, shard_size, scratch)
                    group = []
                group.append(_ShortBlock(decoder, first, last, offsets))
        if group:
            self._add_group(group, shard_size, scratch)

    def _add_group(
        self, group: list[_ShortBlock], shard_size: int, scratch: Sequence[Floats]
    ) -> None:
        thread = group[0].start * len(self._blocks) // shard_size
        self._blocks[thread].append(_BlockGroup(group, scratch[thread]))

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        """Compute the rows of X_1 W .. X_L W from the answers of a step.

        Parameters
        ----------
        answers : (L * R * k,) ndarray
        parts : (L, R * k) ndarray of float64
            Overwritten.
        """

        def decode(blocks: Sequence[_Block | _BlockGroup]) -> None:
            with np.errstate(invalid="ignore", over="ignore"):  # the result is checked
                for block in blocks:
                    block.decode(answers, parts)

        run_in_threads([partial(decode, blocks) for blocks in self._blocks])

    def compute_coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
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

        def compute(blocks: Sequence[_Block | _BlockGroup]) -> None:
            for block in blocks:
                block.compute_coefficients(parts, coded)

        run_in_threads([partial(compute, blocks) for blocks in self._blocks])


class _ShortBlock(NamedTuple):
    """A short block: its decoder, its slice of the parts, and its offsets in the coded array."""

    decoder: Decoder
    start: int
    stop: int
    offsets: list[int]


class _BlockGroup:
    """A group of short blocks; copying their coded values in one call is faster."""

    def __init__(self, blocks: list[_ShortBlock], scratch: Floats) -> None:
        recovery, sizes = len(blocks[0].offsets), [b.stop - b.start for b in blocks]
        self._scratch = scratch[: sum(sizes) * recovery]
        rows, first = self._scratch.reshape(recovery, -1), 0
        self._blocks = []
        for size, block in zip(sizes, blocks, strict=True):
            values = rows[:, first : first + size]
            self._blocks.append((block.decoder, slice(block.start, block.stop), values))
            first += size
        # Offsets and sizes in the coded array, in the order of the scratch.
        self._offsets = np.array([b.offsets for b in blocks], dtype=np.int64).T.reshape(-1)
        self._sizes = np.tile(np.array(sizes, dtype=np.int64), recovery)
        self._answers: NDArray[Any] = np.empty(0)
        self._answer_slices: list[NDArray[Any]] = []
        self._runs: list[tuple[slice, list[Floats]]] = []

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        if answers is not self._answers:  # nearly every step has the same array
            bounds = zip(self._offsets.tolist(), self._sizes.tolist(), strict=True)
            self._answer_slices = [answers[offset : offset + size] for offset, size in bounds]
            self._answers = answers
        np.concatenate(self._answer_slices, out=self._scratch)
        for decoder, entries, values in self._blocks:
            decoder.decode(values, parts[:, entries])

    def compute_coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        for decoder, entries, values in self._blocks:
            decoder.decode_transposed(parts[:, entries], values)
        for run, pieces in self._runs or self._find_runs():
            np.concatenate(pieces, out=coded[run], casting="same_kind")

    def _find_runs(self) -> list[tuple[slice, list[Floats]]]:
        """Return contiguous slices of the coded array, each with its pieces of the scratch."""
        order = self._offsets.argsort()
        offsets, sizes = self._offsets[order], self._sizes[order]
        stops = offsets + sizes
        scratch_stops = self._sizes.cumsum()[order]
        scratch_starts = scratch_stops - sizes
        pieces = [
            self._scratch[start:stop]
            for start, stop in zip(scratch_starts.tolist(), scratch_stops.tolist(), strict=True)
        ]
        cuts = [0, *(np.flatnonzero(offsets[1:] != stops[:-1]) + 1).tolist(), len(order)]
        self._runs = [
            (slice(int(offsets[first]), int(stops[last - 1])), pieces[first:last])
            for first, last in pairwise(cuts)
        ]
        return self._runs


class _Block:
    """A block or a piece of a long block: its decoder, and its offsets in the coded array."""

    __slots__ = ("_coded_slices", "_decoder", "_entries", "_offset", "_scratch", "_strides")

    def __init__(
        self, decoder: Decoder, start: int, stop: int, offsets: list[int], scratch: Floats
    ) -> None:
        size = stop - start
        self._decoder = decoder
        self._entries = slice(start, stop)
        self._coded_slices = [slice(offset, offset + size) for offset in offsets]
        self._scratch = scratch[: len(offsets) * size].reshape(len(offsets), size)
        # If the offsets are equidistant, a strided view needs no copy.
        stride = _common_stride(offsets)
        self._offset = offsets[0] * scratch.itemsize
        self._strides = None if stride is None else (stride * scratch.itemsize, scratch.itemsize)

    def decode(self, answers: NDArray[Any], parts: Floats) -> None:
        values = self._strided_view(answers)
        if values is None:
            values = self._scratch
            for row, coded_slice in zip(values, self._coded_slices, strict=True):
                row[:] = answers[coded_slice]
        self._decoder.decode(values, parts[:, self._entries])

    def compute_coefficients(self, parts: Floats, coded: NDArray[Any]) -> None:
        values = self._strided_view(coded)
        if values is not None:
            self._decoder.decode_transposed(parts[:, self._entries], values)
            return
        self._decoder.decode_transposed(parts[:, self._entries], self._scratch)
        for row, coded_slice in zip(self._scratch, self._coded_slices, strict=True):
            coded[coded_slice] = row

    def _strided_view(self, coded: NDArray[Any]) -> Floats | None:
        """Return the block's coded values as a strided matrix, if that is possible."""
        if self._strides is None or coded.dtype != np.float64 or not coded.flags.c_contiguous:
            return None
        return np.ndarray(self._scratch.shape, np.float64, coded, self._offset, self._strides)


def _common_stride(offsets: list[int]) -> int | None:
    """Return the distance between consecutive offsets, or None if distances differ."""
    distances = {q - p for p, q in pairwise(offsets)} or {1}
    return distances.pop() if len(distances) == 1 else None


def panel_width(recovery: int) -> int:
    """Return how many values of each machine are decoded at a time.

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


def make_scratch(recovery: int, shard_size: int, threads: int) -> list[Floats]:
    """Return one array for each thread, to decode `shard_size` values of each of L machines."""
    size = recovery * min(shard_size, panel_width(recovery))
    return [np.empty(size) for _ in range(threads)]


def decode_in_panels(
    decoder: Decoder,
    answers: Sequence[NDArray[np.floating]],
    out: NDArray[np.float64],
    scratch: Sequence[Floats],
) -> None:
    """Decode L answers in panels that fit in the scratch.

    Parameters
    ----------
    decoder : Decoder
    answers : L of (m,) ndarray of float
        In the order of the machines.
    out : (L, m) ndarray of float64
    scratch : list of ndarray of float64
        One array for each thread, see `make_scratch`.
    """
    recovery, size = out.shape
    threads = len(scratch) if out.size >= PARALLEL_THRESHOLD else 1
    width = min(panel_width(recovery), -(-size // threads))

    def decode(thread: int) -> None:
        for start in range(thread * width, size, threads * width):
            stop = min(size, start + width)
            panel = scratch[thread][: recovery * (stop - start)].reshape(recovery, stop - start)
            for row, answer in zip(panel, answers, strict=True):
                row[:] = answer[start:stop]
            decoder.decode(panel, out[:, start:stop])

    run_in_threads([partial(decode, thread) for thread in range(threads)])
