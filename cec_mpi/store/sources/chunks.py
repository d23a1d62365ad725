"""Dask arrays: computed chunk by chunk, and each chunk once where memory is enough for that."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.store.sources.arrays import ArraySource, name_of, shape_and_dtype
from cec_mpi.store.sources.base import fill

_BESIDE = 192 << 20  # bytes that encoding takes anyway


class Chunks:
    """Chunks that were computed, the last used ones, for several threads.

    Parameters
    ----------
    room : int
        Bytes that those take which are kept and those that are being computed, if there are
        more than one.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept: OrderedDict[Any, tuple[int, NDArray[Any]]] = OrderedDict()
        self._computed: dict[Any, int] = {}  # just now: bytes by key
        self._changed = threading.Condition()

    def get(self, key: Any, size: int, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A chunk, computed unless it is kept; one thread computes it for all."""
        with self._changed:
            while True:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key][1]
                if key not in self._computed and self._made_room(size):
                    break
                self._changed.wait()
            self._computed[key] = size
        try:
            chunk = compute()
            with self._changed:
                self._kept[key] = (size, chunk)
            return chunk
        finally:
            with self._changed:
                del self._computed[key]
                self._changed.notify_all()

    def _made_room(self, size: int) -> bool:
        computed = sum(self._computed.values())
        while self._kept and computed + size + sum(n for n, _ in self._kept.values()) > self._room:
            self._kept.popitem(last=False)
        return not computed or computed + size <= self._room


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkedSource(ArraySource):
    """A Dask array.

    Attributes
    ----------
    downs, acrosses : tuple of int
        Where chunks begin, from row 0 and column 0, and at last the end of all.
    """

    downs: tuple[int, ...] = field(repr=False)
    acrosses: tuple[int, ...] = field(repr=False)
    chunks: Chunks = field(repr=False)
    copies: ClassVar[int] = 1

    def _read(self, start: int, stop: int, left: int, right: int, out: NDArray[Any]) -> None:
        for i, top, bottom in _overlapping(self.downs, start, stop):
            for j, first, last in _overlapping(self.acrosses, left, right):
                row, column = self.downs[i], self.acrosses[j]
                chunk = self._chunk(i, j)
                fill(
                    out[top - start : bottom - start, first - left : last - left],
                    chunk[top - row : bottom - row, first - column : last - column],
                )

    def _chunk(self, i: int, j: int) -> NDArray[Any]:
        shape = (self.downs[i + 1] - self.downs[i], self.acrosses[j + 1] - self.acrosses[j])

        def compute() -> NDArray[Any]:
            values = self.array.blocks[i, j].compute(**_scheduler())
            return self.checked(values, self.downs[i], self.acrosses[j], shape)

        return self.chunks.get((i, j), math.prod(shape) * self.dtype.itemsize, compute)


def chunked_source(
    array: Any, memory: int, recovery: int, column_names: tuple[str, ...] = ()
) -> ChunkedSource:
    """A Dask array.

    Parameters
    ----------
    array : dask.array.Array
    memory : int
        Bytes that this process may take: chunks get up to half of what is left of them.
    recovery : int
        L: X is read at L places, each from its beginning to its end.
    column_names : tuple of str

    Raises
    ------
    InputError
        It is no matrix, or nobody knows how many rows its chunks have.
    """
    name = name_of(array)
    if any(math.isnan(size) for sizes in array.chunks for size in sizes):
        raise InputError(
            f"{name} has chunks of unknown size, shape {array.shape}: "
            "X.compute_chunk_sizes() finds them"
        )
    shape, dtype = shape_and_dtype(array)
    if len(shape) != 2:
        raise InputError(f"{name} has shape {shape}: expected (q, r), both at least 1")
    downs, acrosses = (tuple(accumulate(sizes, initial=0)) for sizes in array.chunks)
    height, width = (max(b - a for a, b in pairwise(ends)) for ends in (downs, acrosses))
    size = math.prod(shape) * dtype.itemsize
    # At each place a row of chunks, one more where it goes on to the next, and one to come.
    wanted = min(size, (recovery + 2) * height * shape[1] * dtype.itemsize)
    room = max(min(wanted, (memory - _BESIDE) // 2), height * width * dtype.itemsize)
    warning = ""
    if room < wanted:
        warning = (
            f"{name} has chunks of {height} x {width}: each is computed more than once, but only "
            f"once with memory {_BESIDE + 2 * wanted >> 20}M or with smaller chunks"
        )
    return ChunkedSource(
        array=array,
        name=name,
        shape=shape,
        dtype=dtype,
        column_names=column_names,
        warning=warning,
        held=room,
        downs=downs,
        acrosses=acrosses,
        chunks=Chunks(room),
    )


def _overlapping(ends: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Chunks that hold a stretch: their number, and where it begins and ends in each."""
    first = int(np.searchsorted(ends, start, side="right")) - 1
    for number in range(first, len(ends) - 1):
        begin, end = max(start, ends[number]), min(stop, ends[number + 1])
        if ends[number] >= stop:
            return
        if begin < end:
            yield number, begin, end


def _scheduler() -> dict[str, str]:
    """One thread computes a chunk, unless the user has chosen how Dask computes."""
    from dask import base

    chosen = base.get_scheduler()  # type: ignore[no-untyped-call]
    return {} if chosen else {"scheduler": "synchronous"}
