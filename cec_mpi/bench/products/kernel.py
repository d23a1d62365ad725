"""A machine's product with one vector, beside the best of NumPy's and a plain read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.bench.benchmark import whole_numbers
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.products.rows import Rows, ShardBenchmark, cut
from cec_mpi.bench.turns import fastest, in_turns, ratio
from cec_mpi.errors import InputError
from cec_mpi.processes.places import limit_threads

_SLABS = (256 << 10, 1 << 20, 4 << 20)  # bytes

Ways = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Kernel(ShardBenchmark):
    """X w and X'v of one shard.

    Attributes
    ----------
    intervals : tuple of int
        Of rows, of as many rows together as the shard has.
    """

    what = "kernel"
    title = (
        "a machine's product: its speed over the best of NumPy's routines, and over a plain read"
    )

    columns: tuple[int, ...] = whole_numbers(
        (4, 16, 60, 250, 1_000, 2_500, 20_000, 200_000), "--columns R", "of X, for one shard each"
    )
    intervals: tuple[int, ...] = whole_numbers(
        (1, 50), "--intervals F", "of rows, which are all of the shard"
    )

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        self.check_room()
        rows = max(self.shape(columns)[0] for columns in self.columns)
        if min(self.intervals) > rows:
            raise InputError(
                f"--intervals {min(self.intervals)}: expected at most {rows}, the rows of a shard"
            )
        with limit_threads(1):
            return list(self._figures())

    def _figures(self) -> Iterator[Figure]:
        rng = np.random.default_rng(self.seed)
        kind = np.dtype(self.dtype)
        for columns in dict.fromkeys(self.columns):
            X = self.shard(rng, columns)
            for arithmetic in dict.fromkeys((kind, np.dtype(np.float64))):
                w = rng.standard_normal(columns).astype(arithmetic)
                v = rng.standard_normal(len(X)).astype(arithmetic)
                for number in (each for each in dict.fromkeys(self.intervals) if each <= len(X)):
                    for name, given in ("X w", w), ("X'v", v):
                        words = [name, f"r = {columns}"]
                        words += [f"{number} intervals"] * (number > 1)
                        words += ["in double"] * (arithmetic != kind)
                        cuts = cut(len(X), number)
                        yield from self._beside(X, given, cuts, name != "X w", ", ".join(words))

    def _beside(
        self,
        X: NDArray[Any],
        given: NDArray[Any],
        cuts: list[tuple[int, int]],
        adjoint: bool,
        name: str,
    ) -> Iterator[Figure]:
        numpys = _numpys(X, given, cuts, adjoint)
        ways = {"ours": _ours(X, given, cuts, adjoint), "read": lambda: _read(X, cuts), **numpys}
        times = in_turns(ways, self.turns)
        best = fastest(times, numpys)
        peer = f"the best of NumPy: {best}"
        yield ratio(times, "ours", best, called=name, better="more", peer=peer)
        yield ratio(times, "ours", "read", called=name, better="more", peer="a plain read")
        rates = [X.nbytes / taken for taken in times["ours"]]
        yield Figure.of(name, rates, unit="bytes/s", better="more")


def _ours(
    X: NDArray[Any], given: NDArray[Any], cuts: list[tuple[int, int]], adjoint: bool
) -> Callable[[], object]:
    shard, (rows, columns) = Rows(X), X.shape
    if adjoint:
        U, sums = given.reshape(-1, 1), np.empty((columns, 1))
        return lambda: shard.multiply_transposed(U, cuts, sums)
    W, out = given.reshape(1, -1), np.empty((rows, 1), given.dtype)
    return lambda: shard.multiply(W, cuts, out)


def _numpys(
    X: NDArray[Any], given: NDArray[Any], cuts: list[tuple[int, int]], adjoint: bool
) -> Ways:
    """NumPy's, whose results are kept as ours are; rows of another dtype are converted in slabs."""
    converted, row = X.dtype != given.dtype, X.shape[1] * given.itemsize
    slabs = [None, *_SLABS] if not converted else list(_SLABS)
    routines = {"np.dot": np.dot, **({} if adjoint else {"np.vecdot": np.vecdot})}
    ways: Ways = {}
    for slab in slabs:
        if slab is not None and row > slab:
            continue
        for name, routine in routines.items():
            if slab is not None and name != "np.dot" and not converted:
                continue
            title = name if slab is None else f"{name}, slabs of {slab >> 10} KiB"
            height = len(X) if slab is None else slab // row
            ways[title] = _in_slabs(X, given, cuts, height, None if adjoint else routine)
    # Rows that are longer than a slab are converted one by one.
    return ways or {"np.dot, row by row": _in_slabs(X, given, cuts, 1, None if adjoint else np.dot)}


def _in_slabs(
    X: NDArray[Any],
    given: NDArray[Any],
    cuts: list[tuple[int, int]],
    height: int,
    routine: Any,
) -> Callable[[], object]:
    """A product of so many rows at a time; without a routine, the adjoint's."""
    columns, converted = X.shape[1], X.dtype != given.dtype
    out = np.empty(columns) if routine is None else np.empty(len(X), given.dtype)
    room = np.empty((height if converted else 0, columns), given.dtype)
    partial = np.empty(columns, given.dtype)

    def product() -> None:
        if routine is None:
            out.fill(0)
        for start, stop in cuts:
            for first in range(start, stop, height):
                some = X[first : min(stop, first + height)]
                if converted:
                    np.copyto(room[: len(some)], some)
                    some = room[: len(some)]
                if routine is None:
                    np.dot(given[first : first + len(some)], some, out=partial)
                    np.add(out, partial, out=out)
                else:
                    routine(some, given, out=out[first : first + len(some)])

    return product


def _read(X: NDArray[Any], cuts: list[tuple[int, int]]) -> None:
    for start, stop in cuts:
        X[start:stop].reshape(-1).max()
