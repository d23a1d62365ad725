"""A machine's products, and decoding, beside the best that NumPy does with the same numbers.

    python scripts/benchmarks/bench_products.py [products] [blocks] [decode]
        [--megabytes 64] [--rounds 7] [--seed 0]

All that stands in a line was taken alternating in one run, with one BLAS thread: the shortest time
of several, so that what else runs on the computer disturbs least.

products  X w and X' v of one shard, by shape, dtype and intervals of rows: bytes of the shard per
          second; as a multiple of the fastest of np.dot, np.vecdot and np.dot on slabs (more is
          better), which one that was; and as a share of what a plain read (np.max) of the same
          rows reaches. Rows of float32 with vectors of float64 ("double") beside the fastest of
          these after slabs are converted.
blocks    X W and X' V by columns of W: as a multiple of the time of one column, and of np.dot
          with one column.
decode    What L machines answered, to rows of X_1 W .. X_L W, and back for the adjoint: the speed
          over that of np.copyto of as many bytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.mds import make_code
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.codec import Codec
from cec_mpi.processes.launch.places import limit_threads
from cec_mpi.store.dense import DenseShard

COLUMNS = (4, 16, 60, 250, 1_000, 2_500, 20_000, 200_000)
BLOCK_COLUMNS = (100, 600, 1_250, 2_500, 10_000)
VECTORS = (2, 4, 8, 16, 32)
SLABS = (256 << 10, 1 << 20, 4 << 20)  # bytes
CODES = ((6, 3, "heterogeneous"), (6, 3, "equal"), (20, 10, "heterogeneous"), (50, 40, "equal"))

Ways = dict[str, Callable[[], object]]


class Rows(DenseShard):
    """Rows in memory."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows, self.count = rows, len(rows)

    def pieces(self, start: int, stop: int) -> Iterable[NDArray[Any]]:
        """All in one."""
        return (self.rows[start:stop],)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", default=["products", "blocks", "decode"])
    parser.add_argument("--megabytes", type=int, default=64, help="of a shard: more than caches")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng = np.random.default_rng(chosen.seed)
    with limit_threads(1):
        for dtype in (np.float64, np.float32):
            if "products" in chosen.what:
                products(rng, np.dtype(dtype), chosen)
            if "blocks" in chosen.what:
                blocks(rng, np.dtype(dtype), chosen)
        if "decode" in chosen.what:
            decode(rng, chosen)


def timed(ways: Ways, rounds: int, repeats: int = 1) -> dict[str, float]:
    """The shortest time of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            for _ in range(repeats):
                way()
            times[name].append((time.perf_counter() - begin) / repeats)
    return {name: min(found) for name, found in times.items()}


def intervals_of(rows: int, number: int) -> list[tuple[int, int]]:
    cuts = np.linspace(0, rows, number + 1).astype(int).tolist()
    return [(a, b) for a, b in pairwise(cuts) if b > a]


def made(rng: np.random.Generator, dtype: np.dtype[Any], columns: int, size: int) -> NDArray[Any]:
    rows = max(2, size // (columns * dtype.itemsize))
    return rng.standard_normal((rows, columns), dtype=dtype)  # type: ignore[arg-type]


def products(rng: np.random.Generator, dtype: np.dtype[Any], chosen: argparse.Namespace) -> None:
    print(f"\nProducts, shards of {chosen.megabytes} MiB of {dtype}")
    print(
        f"{'rows':>9} {'columns':>8} {'intervals':>9}  {'product':16} {'GB/s':>5} {'of best':>7} "
        f"{'best':12} {'of read':>7}"
    )
    for columns in COLUMNS:
        X = made(rng, dtype, columns, chosen.megabytes << 20)
        for arithmetic in {dtype, np.dtype(np.float64)}:
            w = rng.standard_normal(columns).astype(arithmetic)
            v = rng.standard_normal(len(X)).astype(arithmetic)
            for number in (1, 50):
                if number > len(X):
                    continue
                cuts = intervals_of(len(X), number)
                for adjoint in (False, True):
                    given = v if adjoint else w
                    found = timed(ways_of(X, given, cuts, adjoint), chosen.rounds)
                    ours, read = found.pop("ours"), found.pop("read")
                    best = min(found, key=lambda name: found[name])
                    name = "X' v" if adjoint else "X w"
                    name += " in double" if arithmetic != dtype else ""
                    print(
                        f"{len(X):9} {columns:8} {number:9}  {name:16} "
                        f"{X.nbytes / ours / 1e9:5.1f} "
                        f"{found[best] / ours:7.2f} {best:12} {read / ours:7.2f}",
                        flush=True,
                    )


def ways_of(
    X: NDArray[Any], given: NDArray[Any], cuts: list[tuple[int, int]], adjoint: bool
) -> Ways:
    """Ours, a plain read, and NumPy's, whose results are kept as ours are."""
    shard, converted = Rows(X), X.dtype != given.dtype
    rows, columns = X.shape
    out = np.empty((columns, 1)) if adjoint else np.empty((rows, 1), given.dtype)
    room = np.empty(max(SLABS) // given.itemsize + columns, given.dtype)
    partial = np.empty(columns, given.dtype)

    def numpys(routine: Any, slab: int | None) -> Callable[[], object]:
        def product() -> None:
            height = rows if slab is None else max(1, slab // (columns * given.itemsize))
            if adjoint:
                out.fill(0)
            for start, stop in cuts:
                for first in range(start, stop, height):
                    some = X[first : min(stop, first + height)]
                    if converted:
                        into = room[: some.size].reshape(some.shape)
                        np.copyto(into, some)
                        some = into
                    if adjoint:
                        np.dot(given[first : first + len(some)], some, out=partial)
                        out[:, 0] += partial
                    else:
                        routine(some, given, out=out[first : first + len(some), 0])

        return product

    W = given.reshape(-1, 1) if adjoint else given.reshape(1, -1)
    multiply = shard.multiply_transposed if adjoint else shard.multiply
    ways: Ways = {"ours": lambda: multiply(W, cuts, out), "read": lambda: reading(X, cuts)}
    if not converted:
        ways["dot"] = numpys(np.dot, None)
        if not adjoint:
            ways["vecdot"] = numpys(np.vecdot, None)
    for slab in SLABS:
        if columns * given.itemsize <= slab:
            ways[f"dot, {slab >> 10} K"] = numpys(np.dot, slab)
            if converted and not adjoint:
                ways[f"vecdot, {slab >> 10} K"] = numpys(np.vecdot, slab)
    return ways


def reading(X: NDArray[Any], cuts: list[tuple[int, int]]) -> None:
    for start, stop in cuts:
        X[start:stop].reshape(-1).max()


def blocks(rng: np.random.Generator, dtype: np.dtype[Any], chosen: argparse.Namespace) -> None:
    print(f"\nBlocks of {dtype}, {chosen.megabytes} MiB: times of one column, of np.dot with one")
    cells = "".join(f"{f'{k} columns':>14}" for k in VECTORS)
    print(f"{'rows':>9} {'columns':>8}  {'product':8}{'one GB/s':>9}{cells}")
    for columns in BLOCK_COLUMNS:
        X = made(rng, dtype, columns, chosen.megabytes << 20)
        shard, every = Rows(X), [(0, len(X))]
        for adjoint in (False, True):
            ways = {str(k): block_of(rng, shard, k, adjoint, every) for k in (1, *VECTORS)}
            found = timed(ways | {"dot": dot_of(rng, X, adjoint)}, chosen.rounds)
            one, dot = found["1"], found["dot"]
            ratios = (f"{found[str(k)] / one:.2f}, {found[str(k)] / dot:.2f}" for k in VECTORS)
            cells = "".join(f"{ratio:>14}" for ratio in ratios)
            name = "X' V" if adjoint else "X W"
            speed = X.nbytes / one / 1e9
            print(f"{len(X):9} {columns:8}  {name:8}{speed:9.1f}{cells}", flush=True)


def dot_of(rng: np.random.Generator, X: NDArray[Any], adjoint: bool) -> Callable[[], object]:
    vector = rng.standard_normal(len(X) if adjoint else X.shape[1]).astype(X.dtype)
    return (lambda: np.dot(vector, X)) if adjoint else (lambda: np.dot(X, vector))


def block_of(
    rng: np.random.Generator, shard: Rows, k: int, adjoint: bool, cuts: list[tuple[int, int]]
) -> Callable[[], object]:
    rows, columns = shard.rows.shape
    if adjoint:
        U, sums = rng.standard_normal((rows, k)).astype(shard.rows.dtype), np.empty((columns, k))
        return lambda: shard.multiply_transposed(U, cuts, sums)
    W = rng.standard_normal((k, columns)).astype(shard.rows.dtype)
    out = np.empty((rows, k), shard.rows.dtype)
    return lambda: shard.multiply(W, cuts, out)


def decode(rng: np.random.Generator, chosen: argparse.Namespace) -> None:
    print("\nDecoding over np.copyto: answers of float64, of float32, and coefficients of X' V")
    print("   N    L speeds             rows blocks    X W    f32   X' V")
    for machines, recovery, kind in CODES:
        speeds = np.ones(machines) if kind == "equal" else rng.uniform(1, 4, machines)
        for rows in ((chosen.megabytes << 20) // (8 * recovery), 8_000):
            plan = plan_step(range(1, machines + 1), speeds.tolist(), recovery, rows)
            codec = Codec(plan, make_code(machines, recovery), 1, np.empty(recovery * rows))
            found = timed(decoding(rng, codec, recovery, rows), chosen.rounds, 1 + 10**5 // rows)
            shares = (found["copy"] / found[n] for n in ("decode", "single", "coefficients"))
            print(
                f"{machines:4} {recovery:4} {kind:14} {rows:8} {len(plan.assignment.starts):6} "
                + " ".join(f"{share:6.2f}" for share in shares),
                flush=True,
            )


def decoding(rng: np.random.Generator, codec: Codec, recovery: int, rows: int) -> Ways:
    answers, parts = rng.standard_normal(recovery * rows), np.empty((recovery, rows))
    single, other = answers.astype(np.float32), np.empty_like(answers)
    return {
        "copy": lambda: np.copyto(other, answers),
        "decode": lambda: codec.decode(answers, parts),
        "single": lambda: codec.decode(single, parts),
        "coefficients": lambda: codec.coefficients(parts, other),
    }


if __name__ == "__main__":
    main()
