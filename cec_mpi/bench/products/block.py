"""A machine's products with several vectors at once, beside those with one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.bench.benchmark import whole_numbers
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.products.rows import Rows, ShardBenchmark
from cec_mpi.bench.scratch import check_memory
from cec_mpi.bench.turns import in_turns, ratio
from cec_mpi.processes.places import limit_threads


@dataclass(frozen=True)
class Block(ShardBenchmark):
    """X W of one shard.

    Attributes
    ----------
    vectors : tuple of int
        Columns of W.
    """

    what = "block"
    title = "a machine's product with several vectors: over that with one, and np.dot with one"
    adjoint: ClassVar[bool] = False

    vectors: tuple[int, ...] = whole_numbers(
        (2, 4, 8, 16, 32), "--vectors K", "that are multiplied at once"
    )

    def measure(self) -> list[Figure]:
        """As `Benchmark.measure`."""
        self.check_room()
        most = max(self.vectors)
        numbers = max(sum(self.shape(columns)) for columns in self.columns)
        check_memory(f"--vectors {most}", 2 * 8 * most * numbers)
        with limit_threads(1):
            return list(self._figures())

    def _figures(self) -> Iterator[Figure]:
        rng = np.random.default_rng(self.seed)
        product = "X'V" if self.adjoint else "X W"
        several = [each for each in dict.fromkeys(self.vectors) if each > 1]
        for columns in dict.fromkeys(self.columns):
            X = self.shard(rng, columns)
            ways = {str(k): self._ours(rng, X, k) for k in (1, *several)}
            times = in_turns(ways | {"np.dot": self._dot(X)}, self.turns)
            for k in several:
                name = f"{product}, {k} vectors, r = {columns}"
                yield ratio(times, str(k), "1", called=name, peer="one vector")
                yield ratio(times, str(k), "np.dot", called=name, peer="np.dot with one vector")
            rates = [X.nbytes / taken for taken in times["1"]]
            name = f"{product}, 1 vector, r = {columns}"
            yield Figure.of(name, rates, unit="bytes/s", better="more")

    def _ours(self, rng: np.random.Generator, X: NDArray[Any], k: int) -> Callable[[], object]:
        shard, (rows, columns) = Rows(X), X.shape
        every = [(0, rows)]
        if self.adjoint:
            U, sums = rng.standard_normal((rows, k)).astype(X.dtype), np.empty((columns, k))
            return lambda: shard.multiply_transposed(U, every, sums)
        W, out = rng.standard_normal((k, columns)).astype(X.dtype), np.empty((rows, k), X.dtype)
        return lambda: shard.multiply(W, every, out)

    def _dot(self, X: NDArray[Any]) -> Callable[[], object]:
        vector = np.ones(X.shape[0 if self.adjoint else 1], X.dtype)
        out = np.empty(X.shape[1 if self.adjoint else 0], X.dtype)
        if self.adjoint:
            return lambda: np.dot(vector, X, out=out)
        return lambda: np.dot(X, vector, out=out)


@dataclass(frozen=True)
class Adjoint(Block):
    """X'V of one shard."""

    what = "adjoint"
    title = "a machine's adjoint of several vectors: over that of one, and np.dot with one"
    adjoint = True
