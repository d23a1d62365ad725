"""Products of dense shards in float32 and float64, with NumPy and on devices."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from cec_mpi import encode, open_store
from cec_mpi.store.dense import DenseShard
from cec_mpi.store.devices import choose_device, find_accelerators

RNG = np.random.default_rng(5)


class MemoryShard(DenseShard):
    """A shard in memory, in pieces of 40 rows."""

    def __init__(self, rows):
        self.rows, self.row_count = rows, len(rows)

    def pieces(self, start, stop):
        for first in range(start, stop, 40):
            yield self.rows[first : min(first + 40, stop)]


DEVICES = ["array_api_strict:cpu", "jax:cpu", *map(str, find_accelerators())]


@pytest.fixture(params=["numpy", *DEVICES])
def make_shard(request, tmp_path):
    """Return a function that encodes rows, and returns their shard and its rows."""

    def make(rows):
        if request.param == "numpy":
            return MemoryShard(rows), rows
        encode(rows, tmp_path / "store", 2, 1, dtype=rows.dtype.name)
        store = open_store(tmp_path / "store")
        shard = store.open_shard(1, device=choose_device(request.param, 1))
        shard.load([(0, len(rows))])
        return shard, np.asarray(store.shard(1))

    return make


CASES = [
    *((shape, "f4", "f8") for shape in [(1, 1), (1, 300), (130, 7)]),
    *((shape, "f4", "f8") for shape in [(2, 150_001), (130, 9000)]),  # several slabs
    ((900, 70), "f4", "f4"),
    ((900, 70), "f8", "f8"),
]


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize(("shape", "stored", "arithmetic"), CASES)
def test_products_are_as_accurate_as_their_arithmetic(make_shard, shape, stored, arithmetic, k):
    shard, rows = make_shard(RNG.standard_normal(shape).astype(stored))
    count, width = shape
    intervals = [(0, count // 3), (count // 2, count)]
    used = np.concatenate([rows[a:b] for a, b in intervals]).astype(np.float64)
    W, U = (RNG.standard_normal(size).astype(arithmetic) for size in ((k, width), (len(used), k)))
    forward, adjoint = np.empty((len(used), k), arithmetic), np.empty((width, k))
    for _ in range(2):
        shard.multiply(W, intervals, forward)
        shard.multiply_transposed(U, intervals, adjoint)
    for found, expected, length in (forward, used @ W.T, width), (adjoint, used.T @ U, count):
        ulps = 1000 if stored == arithmetic else 45 * max(length, 9)
        np.testing.assert_allclose(found, expected, rtol=0, atol=ulps * np.finfo(arithmetic).eps)


@pytest.mark.parametrize(("stored", "arithmetic"), [("f4", "f8"), ("f8", "f8"), ("f4", "f4")])
@pytest.mark.parametrize("columns", [10, 300])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_later_products_allocate_no_memory(k, columns, stored, arithmetic):
    shard = MemoryShard(RNG.standard_normal((4000, columns)).astype(stored))
    W = RNG.standard_normal((k, columns)).astype(arithmetic)
    U = RNG.standard_normal((4000, k)).astype(arithmetic)
    forward, adjoint = np.empty((4000, k), arithmetic), np.empty((columns, k))

    def multiply_both_ways():
        shard.multiply(W, [(0, 4000)], forward)
        shard.multiply_transposed(U, [(0, 4000)], adjoint)

    multiply_both_ways()
    tracemalloc.start()
    try:
        multiply_both_ways()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        multiply_both_ways()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # NumPy uses buffers if it adds float32 to float64, and before 2.3 also in other sums.
    uses_buffers = arithmetic == "f4" or np.lib.NumpyVersion(np.__version__) < "2.3.0"
    assert peak - before < 20_000 + 8 * np.getbufsize() * uses_buffers


@pytest.mark.parametrize("make_shard", DEVICES, indirect=True)
def test_long_sums_of_float32_are_accurate(make_shard):
    """A sum of ones in float32 would stop at 2**24."""
    count = 9 << 21
    shard, rows = make_shard(np.ones((count, 1), np.float32))
    out = np.empty((1, 1))
    shard.multiply_transposed(np.ones((count, 1), np.float32), [(0, count)], out)
    np.testing.assert_allclose(out, count * float(rows[0, 0]), rtol=1e-2)
