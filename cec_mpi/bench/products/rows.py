"""Rows in memory as a machine has them, and what the products of shards are measured with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.bench.benchmark import Benchmark, whole_numbers
from cec_mpi.bench.scratch import check_memory
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.store.dense import DenseShard


class Rows(DenseShard):
    """A shard whose rows are in memory."""

    path = Path(os.devnull)

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows, self.count = rows, len(rows)

    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """All in one."""
        return (self.rows[start:stop],)


@dataclass(frozen=True)
class ShardBenchmark(Benchmark):
    """Products of one shard.

    Attributes
    ----------
    columns : tuple of int
        Of X, for one shard each.
    dtype : {"float64", "float32"}
        Of the shard.
    megabytes : int
        Of the shard, in MiB.
    """

    columns: tuple[int, ...] = whole_numbers(
        (100, 600, 1_250, 2_500, 10_000), "--columns R", "of X, for one shard each"
    )
    dtype: str = option("float64", "--dtype", "of the shard", choices=["float64", "float32"])
    megabytes: int = option(
        64, "--megabytes M", "of the shard: more than caches hold", values.positive
    )

    def shard(self, rng: np.random.Generator, columns: int) -> NDArray[Any]:
        """Random rows of so many columns."""
        check_memory(f"--megabytes {self.megabytes}", 4 * (self.megabytes << 20))
        kind = np.dtype(self.dtype)
        rows = max(2, (self.megabytes << 20) // (columns * kind.itemsize))
        return rng.standard_normal((rows, columns), dtype=kind)


def cut(rows: int, number: int) -> list[tuple[int, int]]:
    """So many intervals of rows, one after the other."""
    cuts = np.linspace(0, rows, number + 1).astype(int).tolist()
    return [(a, b) for a, b in pairwise(cuts) if b > a]
