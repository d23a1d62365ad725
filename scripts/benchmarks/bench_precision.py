"""What precision costs and gives: products, solvers, and a change of machines.

    python scripts/benchmarks/bench_precision.py [--megabytes 100] [--size 300] [--seed 0]

First: products of one machine with float32 rows in float64 (double) and in float32 (shard), and
with float64 rows; alternating, so that they compare: the median time of each, one BLAS thread.
Their error is relative to sum |x_j| |w_j|, against sums of exact products (math.fsum).

Then: SciPy's solvers on float32 stores of one code and two sets of machines, beside SciPy's own
operator of the float32 matrix: products that were made, and the relative residual in extended
precision, against the matrix that the set decodes to.

Last: by how much two sets differ, relative to the norm of X, and the residual of a solution
with rtol=1e-13 after one change of the set.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse.linalg as sl
from numpy.typing import NDArray

import cec_mpi
from cec_mpi.core.accuracy.rounding import unit_roundoff
from cec_mpi.processes.places import limit_threads

ROUNDS = 5
RTOL = 1e-10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="of a float32 shard")
    parser.add_argument("--size", type=int, default=300, help="of matrices for solvers")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(chosen.seed)
    with limit_threads(1), tempfile.TemporaryDirectory(prefix="cec-bench-") as directory:
        for columns in (200, 2_000, 100_000):
            products(Path(directory), chosen.megabytes, columns, rng)
        solvers(Path(directory), chosen.size, rng)
        changes(Path(directory), chosen.size, rng)


def products(directory: Path, megabytes: int, columns: int, rng: np.random.Generator) -> None:
    rows = max(1, megabytes * 1_000_000 // (4 * columns))
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    shards = {}
    for dtype in ("float32", "float64"):
        path = directory / f"{dtype}-{columns}"
        cec_mpi.encode(X, path, 1, 1, dtype=dtype, code="fourier")
        shards[dtype] = cec_mpi.open_store(path).open_shard(1)
        shards[dtype].load([(0, rows)])
    X = shards["float32"].rows
    ways = {
        "double": (shards["float32"], np.float64),
        "shard": (shards["float32"], np.float32),
        "float64 store": (shards["float64"], np.float64),
    }
    print(f"\nA shard of {rows} x {columns}: {X.nbytes / 1e6:.0f} MB of float32")
    print(f"{'product':10}" + "".join(f"{way:>22}" for way in ways))
    for name, k, adjoint in (("X w", 1, False), ("X W, k=8", 8, False), ("X' v", 1, True)):
        given = rng.standard_normal((rows, k) if adjoint else (k, columns))
        times: dict[str, list[float]] = {way: [] for way in ways}
        errors = {}
        for _ in range(ROUNDS):
            for way, (shard, dtype) in ways.items():
                sent = given.astype(dtype)
                out = np.empty((columns, k)) if adjoint else np.empty((rows, k), dtype)
                multiply = shard.multiply_transposed if adjoint else shard.multiply
                begin = time.perf_counter()
                multiply(sent, [(0, rows)], out)
                times[way].append(time.perf_counter() - begin)
                errors[way] = error_of(shard.rows, given, out, adjoint)
        cells = [f"{1e3 * np.median(times[way]):.1f} ms, {errors[way]:.0e}" for way in ways]
        print(f"{name:10}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def error_of(X: NDArray[Any], given: NDArray[Any], out: NDArray[Any], adjoint: bool) -> float:
    """The largest error of twenty entries, relative to the sizes of their terms."""
    found = []
    for i in np.linspace(0, len(out) - 1, 20).astype(int).tolist():
        row = X[:, i] if adjoint else X[i]
        vector = given[:, 0] if adjoint else given[0]
        terms = row.astype(np.longdouble) * vector  # exact: 24 and 53 bits fit nearly
        exact = math.fsum(terms.astype(np.float64).tolist())
        exact += float((terms - terms.astype(np.float64)).sum())
        found.append(abs(float(out[i, 0]) - exact) / float(np.abs(terms).sum()))
    return max(found)


def matrices(size: int, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Symmetric positive definite with a condition number of 1000, and well conditioned."""
    Q = np.linalg.qr(rng.standard_normal((size, size)))[0]
    spd = Q * np.geomspace(1, 1e3, size) @ Q.T
    general = 2.3 * size**0.5 * np.eye(size) + rng.standard_normal((size, size))
    return ((spd + spd.T) / 2).astype(np.float32), general.astype(np.float32)


def solvers(directory: Path, size: int, rng: np.random.Generator) -> None:
    spd, general = matrices(size, rng)
    b = rng.standard_normal(size)
    print(f"\nSolvers, {size} x {size}, rtol={RTOL:g}: products made, residual; * not converged")
    names = ["cg", "minres", "gmres", "lgmres", "gcrotmk", "bicgstab", "lsmr", "lobpcg"]
    print(f"{'':30}" + "".join(f"{name:>15}" for name in names))
    own = [sl.aslinearoperator(X) for X in (spd, general)]
    print(f"{'SciPy, float32 X':30}" + row(own, [spd, general], b), flush=True)
    for code, machines in (("fourier", {2, 4, 6}), ("cauchy", {1, 2, 3})):
        stores = [directory / f"{code}-{name}" for name in ("spd", "general")]
        for X, path in zip((spd, general), stores, strict=True):
            cec_mpi.encode(X, path, 6, 3, code=code)
        for precision in ("double", "shard"):
            with opened(stores, machines, precision) as operators:
                rows = np.array(sorted(machines)) - 1
                G = cec_mpi.open_store(stores[0]).manifest.code.generator[rows]
                label = f"{precision}, {code}, condition {np.linalg.cond(G):.0f}"
                decoded = [A @ np.eye(size) for A in operators]
                print(f"{label:30}" + row(operators, decoded, b), flush=True)


class opened:
    """Operators of two stores, in one process, whose machines do not change."""

    def __init__(self, stores: list[Path], machines: set[int], precision: str) -> None:
        fixed: dict[str, Any] = {"speeds": (1,) * 6, "availability": machines}
        self._entrance = cec_mpi.open_operator(stores[0], None, precision=precision, **fixed)
        self._other = stores[1]

    def __enter__(self) -> list[Any]:
        A = self._entrance.__enter__()
        self._further = A.open(self._other, speeds=(1,) * 6)
        return [A, self._further.__enter__()]

    def __exit__(self, *error: Any) -> None:
        self._further.__exit__(*error)
        self._entrance.__exit__(*error)


def row(operators: list[Any], matrices: list[NDArray[Any]], b: NDArray[Any]) -> str:
    cells = []
    for solve, which in runs(b):
        A, asked = counted(operators[which])
        converged, residual = solve(A, matrices[which].astype(np.longdouble))
        cells.append(f"{len(asked)}{'' if converged else '*'}, {residual:.0e}")
    return "".join(f"{cell:>15}" for cell in cells)


def runs(b: NDArray[Any]) -> Iterator[tuple[Callable[[Any, Any], tuple[bool, float]], int]]:
    """Each solver, and which of the two matrices it gets."""

    def residual(matrix: NDArray[Any], x: NDArray[Any]) -> float:
        return float(np.linalg.norm((matrix @ x - b).astype(float)) / np.linalg.norm(b))

    def linear(solver: Any, most: int) -> Callable[[Any, Any], tuple[bool, float]]:
        def solve(A: Any, matrix: NDArray[Any]) -> tuple[bool, float]:
            x, info = solver(A, b, rtol=RTOL, maxiter=most)
            return info == 0, residual(matrix, x)

        return solve

    def lsmr(A: Any, matrix: NDArray[Any]) -> tuple[bool, float]:
        found = sl.lsmr(A, b, atol=RTOL, btol=RTOL, maxiter=2000)
        return found[1] in (1, 2, 4, 5), residual(matrix, found[0])

    def lobpcg(A: Any, matrix: NDArray[Any]) -> tuple[bool, float]:
        start = np.random.default_rng(0).standard_normal((len(b), 3))
        values, vectors = sl.lobpcg(A, start, tol=1e-4, maxiter=300, largest=True)
        left = float(np.abs((matrix @ vectors - vectors * values).astype(float)).max())
        return left < 1e-3, left / float(values.max())

    for solver, which, most in (
        (sl.cg, 0, 2000),
        (sl.minres, 0, 2000),
        (sl.gmres, 1, 20),
        (sl.lgmres, 1, 20),
        (sl.gcrotmk, 1, 20),
        (sl.bicgstab, 1, 500),
    ):
        yield linear(solver, most), which
    yield lsmr, 1
    yield lobpcg, 0


def counted(operator: Any) -> tuple[sl.LinearOperator, list[int]]:
    asked: list[int] = []

    def noting(product: Any) -> Any:
        return lambda x: asked.append(1) or product(x)

    products = {name: noting(getattr(operator, name)) for name in ("matvec", "rmatvec", "matmat")}
    return sl.LinearOperator(operator.shape, dtype=np.float64, **products), asked


def changes(directory: Path, size: int, rng: np.random.Generator) -> None:
    spd, _ = matrices(size, rng)
    b = rng.standard_normal(size)
    print("\nEight random sets of a float32 store: median and largest")
    print(f"{'code':24}{'condition':>11}{'eps x it':>11}{'sets differ':>20}{'residual after':>20}")
    for machines, recovery, code in (
        (6, 3, "fourier"),
        (10, 5, "fourier"),
        (10, 5, "cauchy"),
        (20, 16, "fourier"),
        (40, 20, "orthonormal"),
    ):
        path = directory / f"sets-{machines}-{code}"
        cec_mpi.encode(spd, path, machines, recovery, code=code)
        median = cec_mpi.open_store(path).manifest.code.conditioning.median
        with cec_mpi.open_operator(path, None, speeds=(1,) * machines) as A:
            decoded = []
            for _ in range(8):
                A.available = set((rng.permutation(machines)[:recovery] + 1).tolist())
                decoded.append(A @ np.eye(size))
        x, _ = sl.cg(sl.aslinearoperator(decoded[0]), b, rtol=1e-13, maxiter=2000)
        norm = np.linalg.norm(spd, 2)
        apart = [np.linalg.norm(p - q, 2) / norm for p, q in combinations(decoded, 2)]
        after = [np.linalg.norm(each @ x - b) / np.linalg.norm(b) for each in decoded[1:]]
        cells = [f"{np.median(found):.1e}, {max(found):.1e}" for found in (apart, after)]
        print(
            f"{f'{code} {machines}, {recovery}':24}{median:11.1f}"
            f"{2 * unit_roundoff(np.float32) * median:11.1e}{cells[0]:>20}{cells[1]:>20}",
            flush=True,
        )


if __name__ == "__main__":
    main()
