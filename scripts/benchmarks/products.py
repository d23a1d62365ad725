"""Products of one machine on one core, and decoding on rank 0, compared with NumPy.

    python scripts/benchmarks/products.py vector [--dtype float64] [--columns 4 16 60 ...]
    python scripts/benchmarks/products.py block [--vectors 2 4 8 16 32]
    python scripts/benchmarks/products.py decoding

- vector: speed of X w and X'v of one shard, in one interval of rows or in 50, over the best of
  NumPy's routines and over a plain read of the same rows. A shard of float32 is also multiplied in
  float64 ("in double").
- block: time of X W and X'V over that with one vector, and over that of ``np.dot`` with one.
- decoding: speed of the decoder in a step of X w over ``np.copyto`` of as many bytes and over
  ``np.matmul`` of one matrix of all answers, both on one core, and its time for each number of the
  result, by L and number of blocks, on one core and on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import cec_mpi
import measure
from cec_mpi.records import Recorder
from measure import Figure, figure, make_timer, ratio, time_in_turns

SLABS = (256 << 10, 1 << 20, 4 << 20)  # bytes of rows in one call of NumPy
MAX_SPARES = 10  # machines in addition to L; at most L

Calls = dict[str, Callable[[], object]]


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the selected part."""
    with threadpool_limits(1):
        if options.part == "decoding":
            return list(decoding_figures(options, directory))
        part = {"vector": vector_figures, "block": block_figures}[options.part]
        return [
            result
            for columns in options.columns
            for result in part(options, make_shard(options, directory, columns))
        ]


def make_shard(options: Any, directory: Path, columns: int) -> Any:
    """Return the only shard of a store, loaded into memory."""
    rows = max(2, (options.megabytes << 20) // (columns * np.dtype(options.dtype).itemsize))
    encode_options = {"dtype": options.dtype, "code": "fourier"}
    store = measure.make_store(directory, rows, columns, 1, 1, options.seed, **encode_options)
    shard = cec_mpi.open_store(store).open_shard(1)
    shard.load([(0, rows)])
    return shard


def make_shard_product(
    shard: Any, k: int, adjoint: bool, intervals: Any, dtype: Any
) -> Callable[[], object]:
    rows, columns = shard.rows.shape
    operand = np.ones((rows, k) if adjoint else (k, columns), dtype)
    out = np.empty((columns, k)) if adjoint else np.empty((rows, k), dtype)
    multiply = shard.multiply_transposed if adjoint else shard.multiply
    return lambda: multiply(operand, intervals, out)


def vector_figures(options: Any, shard: Any) -> Iterator[Figure]:
    X = shard.rows
    for dtype in dict.fromkeys((X.dtype, np.dtype(np.float64))):
        for count in (1, 50):
            bounds = np.linspace(0, len(X), count + 1).astype(int).tolist()
            if len(X) < count:
                continue
            intervals = list(pairwise(bounds))
            for product, adjoint in ("X w", False), ("X'v", True):
                numpy_calls = make_numpy_products(X, adjoint, intervals, dtype)
                calls = {
                    "ours": make_shard_product(shard, 1, adjoint, intervals, dtype),
                    "read": lambda intervals=intervals: [
                        X[a:b].reshape(-1).max() for a, b in intervals
                    ],
                    **numpy_calls,
                }
                candidates = {name: make_timer(call) for name, call in calls.items()}
                times = time_in_turns(candidates, options.turns)
                best = min(numpy_calls, key=lambda name: float(np.median(times[name])))
                name = f"{product}, {X.shape[1]} columns" + f", {count} intervals" * (count > 1)
                name += ", in double" * (dtype != X.dtype)
                yield ratio(times, "ours", best, name, "the best of NumPy", speed=True)
                yield ratio(times, "ours", "read", name, "a plain read", speed=True)


def make_numpy_products(X: np.ndarray, adjoint: bool, intervals: Any, dtype: Any) -> Calls:
    """Return calls of NumPy's routines, which convert rows of another dtype slab by slab."""
    row_bytes = X.shape[1] * dtype.itemsize
    heights = {max(1, size // row_bytes) for size in SLABS}
    if X.dtype == dtype:
        heights.add(len(X))
    routines = (np.dot,) if adjoint or X.dtype != dtype else (np.dot, np.vecdot)
    return {
        f"{routine.__name__}, {height} rows": make_slab_product(
            X, adjoint, intervals, dtype, height, routine
        )
        for height in heights
        for routine in routines
    }


def make_slab_product(
    X: np.ndarray, adjoint: bool, intervals: Any, dtype: Any, height: int, routine: Any
) -> Callable[[], None]:
    """Return a function that multiplies `height` rows in each call of NumPy."""
    columns = X.shape[1]
    operand = np.ones(len(X) if adjoint else columns, dtype)
    out = np.empty(columns) if adjoint else np.empty(len(X), dtype)
    converted = np.empty((0 if X.dtype == dtype else height, columns), dtype)
    part = np.empty(columns, dtype)

    def product() -> None:
        if adjoint:
            out.fill(0)
        for start, stop in intervals:
            for first in range(start, stop, height):
                last = min(stop, first + height)
                slab = X[first:last]
                if len(converted):
                    np.copyto(converted[: len(slab)], slab)
                    slab = converted[: len(slab)]
                if adjoint:
                    np.add(out, np.dot(operand[first:last], slab, out=part), out=out)
                else:
                    routine(slab, operand, out=out[first:last])

    return product


def block_figures(options: Any, shard: Any) -> Iterator[Figure]:
    X = shard.rows
    all_rows = [(0, len(X))]
    for product, adjoint in ("X W", False), ("X'V", True):
        vector = np.ones(X.shape[0 if adjoint else 1], X.dtype)
        calls = {
            k: make_shard_product(shard, k, adjoint, all_rows, X.dtype)
            for k in (1, *options.vectors)
        }
        candidates = {str(k): make_timer(call) for k, call in calls.items()}
        dot = (vector, X) if adjoint else (X, vector)
        candidates["np.dot"] = make_timer(lambda dot=dot: np.dot(*dot))
        times = time_in_turns(candidates, options.turns)
        for k in options.vectors:
            name = f"{product}, {k} vectors, {X.shape[1]} columns"
            yield ratio(times, str(k), "1", name, "one vector")
            yield ratio(times, str(k), "np.dot", name, "np.dot with one vector")


def decoding_figures(options: Any, directory: Path) -> Iterator[Figure]:
    rng = np.random.default_rng(options.seed)
    for recovery in options.recovery:
        machines = recovery + min(recovery, MAX_SPARES)
        for rows in ((options.megabytes << 20) // 8, 8000 * recovery):
            rows -= rows % recovery
            store = measure.make_store(directory, rows, 1, machines, recovery, code="orthonormal")
            for kind, speeds in ("equal", [1.0] * machines), ("different", None):
                machine_speeds = tuple(speeds or rng.uniform(1, 4, machines).tolist())
                blocks: list[int] = []
                answers = np.ones((recovery, rows // recovery))
                out, square = np.empty_like(answers), rng.random((recovery, recovery))
                candidates = {
                    "np.copyto": make_timer(partial(np.copyto, out, answers)),
                    "np.matmul": make_timer(partial(np.matmul, square, answers, out=out)),
                    "one core": partial(
                        time_decoding, store, blocks, speeds=machine_speeds, threads=1
                    ),
                    "all cores": partial(time_decoding, store, blocks, speeds=machine_speeds),
                }
                times = time_in_turns(candidates, options.turns)
                case = f"L = {recovery}, {rows} rows, {kind} speeds, {blocks[0]} blocks"
                for name in ("one core", "all cores"):
                    for over in ("np.copyto", "np.matmul"):
                        yield ratio(times, name, over, f"{case}, {name}", speed=True)
                    nanoseconds = [1e9 * t / rows for t in times[name]]
                    yield figure(f"{case}, {name}", nanoseconds, "ns a number")


def time_decoding(store: Path, blocks: list[int], **options: Any) -> float:
    """Return the seconds of decoding, the least of five steps; append the number of blocks."""
    seconds: list[float] = []

    def add_record(record: Any) -> None:
        seconds.append(record.decode_seconds)
        blocks.append(len({bound for interval in record.assignment for bound in interval}) - 1)

    # One operator at a time, because the number of BLAS threads is a setting of the process.
    with cec_mpi.open_operator(store, None, recorder=Recorder(add_record), **options) as X:
        for _ in range(5):
            X.matvec(np.ones(1))
    return min(seconds)


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["vector", "block", "decoding"])
    columns = [4, 16, 60, 250, 1_000, 2_500, 20_000, 200_000]
    parser.add_argument("--columns", type=int, nargs="+", default=columns)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--megabytes", type=int, default=64, help="of the shard, or of answers")
    parser.add_argument("--vectors", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--recovery", type=int, nargs="+", default=[3, 10, 40, 100])


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options)
