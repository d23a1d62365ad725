"""What dividing rows by powers of two before they are encoded gains, and what it costs.

    python scripts/benchmarks/bench_scaling.py [--rows 3000] [--columns 200] [--machines 6]
        [--recovery 3] [--megabytes 256] [--repeats 5] [--seed 0] [--directory DIR]

Rows of random numbers have sizes from 1e-6 to 1, in random order. X w is computed by each of 20
sets of L machines and compared with the same product in extended precision: by row, relative to
|X| |w| of the row, and by norm. Then a matrix of so many megabytes is encoded with scaling and
without, in turns, for short, middle and long rows: the median of the ratios of the seconds.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np

import cec_mpi

SETS = 20
SCALINGS = ("none", "rows")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", default=None, help="on the disk to measure")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-scaling-", dir=chosen.directory) as name:
        print(f"{'dtype':8} {'scaling':8} {'by row, worst':>14} {'median':>9} {'by norm':>9}")
        for dtype in ("float32", "float64"):
            for scaling in SCALINGS:
                errors = errors_of(Path(name), dtype, scaling, chosen)
                print(f"{dtype:8} {scaling:8} {errors[0]:14.1e} {errors[1]:9.1e} {errors[2]:9.1e}")
        print(f"\n{'dtype':8} {'columns':>8} {'seconds':>9} {'scaled':>9} {'ratio':>7}")
        for dtype in ("float32", "float64"):
            for columns in (10, 256, 10_000):
                without, scaled, ratio = seconds_of(Path(name), dtype, columns, chosen)
                print(f"{dtype:8} {columns:8} {without:9.3f} {scaled:9.3f} {ratio:7.3f}")
    return 0


def errors_of(
    directory: Path, dtype: str, scaling: str, chosen: argparse.Namespace
) -> tuple[float, float, float]:
    """Errors of X w: the worst and the median of all rows, and the worst by norm."""
    rng = np.random.default_rng(chosen.seed)
    sizes = 10.0 ** rng.uniform(-6, 0, (chosen.rows, 1))
    X = (rng.standard_normal((chosen.rows, chosen.columns)) * sizes).astype(dtype)
    w = rng.standard_normal(chosen.columns).astype(dtype).astype(np.float64)
    exact = X.astype(np.longdouble) @ w.astype(np.longdouble)
    largest = np.abs(X).astype(np.float64) @ np.abs(w)
    store = directory / "store"
    cec_mpi.encode(X, store, chosen.machines, chosen.recovery, scaling=scaling)
    sets = list(combinations(range(1, chosen.machines + 1), chosen.recovery))
    by_row, by_norm = [], []
    with cec_mpi.open_operator(store, None) as operator:
        for machines in random.Random(chosen.seed).sample(sets, min(SETS, len(sets))):
            operator.available = machines
            wrong = np.abs((operator @ w) - exact).astype(np.float64)
            by_row.append(wrong / largest)
            by_norm.append(float(np.linalg.norm(wrong) / np.linalg.norm(exact.astype(float))))
    shutil.rmtree(store)
    return float(np.max(by_row)), float(np.median(by_row)), max(by_norm)


def seconds_of(
    directory: Path, dtype: str, columns: int, chosen: argparse.Namespace
) -> tuple[float, float, float]:
    """Medians of the seconds that encode takes, without scaling and with, and of the ratios."""
    rows = max(1, (chosen.megabytes << 20) // (columns * np.dtype(dtype).itemsize))
    X = np.random.default_rng(chosen.seed).random((rows, columns), np.dtype(dtype))
    np.save(directory / "X.npy", X)
    del X
    taken: dict[str, list[float]] = {scaling: [] for scaling in SCALINGS}
    for turn in range(1 + chosen.repeats):
        for scaling in SCALINGS[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            cec_mpi.encode(
                directory / "X.npy",
                directory / "store",
                chosen.machines,
                chosen.recovery,
                scaling=scaling,
            )
            if turn:  # the first turn warms up
                taken[scaling].append(time.perf_counter() - begin)
            shutil.rmtree(directory / "store")
    ratios = [b / a for a, b in zip(taken["none"], taken["rows"], strict=True)]
    return median(taken["none"]), median(taken["rows"]), median(ratios)


if __name__ == "__main__":
    raise SystemExit(main())
