"""How close the error figures of steps are to the true errors.

    python scripts/campaigns/error_figures.py [--seed I] [--decodes 100000] [--seconds 600]

Each case is a store with a code of some family, systematic or not, of X of some kind. Vectors of
several kinds are multiplied by several sets of L machines, the worst that is known among them, and
by more machines, whose rows are decoded from several sets; one by one, or as a block; or as an
adjoint. Each result is compared with a product in long doubles. Prints how often each figure was
below the error, and its quotient to the error. A step without any error counts among the decodes,
and in no quotient. Fails when a bound is too small.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cec_mpi
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.errors import CecError
from cec_mpi.records import Recorder, StepRecord

SIZES = [(3, 1), (4, 2), (6, 3), (8, 5), (12, 8), (20, 10), (30, 15), (40, 20)]
CODES = ["auto", *sorted(FAMILIES)]
MOST_ENTRIES = 200_000  # of X, where its rows are long: two rows for each machine at least
SETS, VECTORS_OF_CASE, COLUMNS_OF_BLOCK = 8, 64, 4
WIDE = np.longdouble


def normal(rng, rows, columns):
    return rng.standard_normal((rows, columns))


MATRICES = {
    "normal": normal,
    "uniform": lambda rng, q, r: rng.random((q, r)),
    "signs": lambda rng, q, r: rng.choice([-1.0, 1.0], (q, r)),
    "binary": lambda rng, q, r: (rng.random((q, r)) < 0.3) * 1.0,
    "counts": lambda rng, q, r: rng.poisson(3, (q, r)) * 1.0,
    "cauchy": lambda rng, q, r: rng.standard_cauchy((q, r)),
    "lognormal": lambda rng, q, r: np.exp(3 * rng.standard_normal((q, r))),
    "sparse 1 %": lambda rng, q, r: normal(rng, q, r) * (rng.random((q, r)) < 0.01),
    "rows": lambda rng, q, r: normal(rng, q, r) * 10.0 ** rng.uniform(-6, 0, (q, 1)),
    "columns": lambda rng, q, r: normal(rng, q, r) * 10.0 ** rng.uniform(-8, 8, (1, r)),
    "one row": lambda rng, q, r: (
        normal(rng, q, r) * np.where(np.arange(q) == q // 2, 1, 1e-6)[:, None]
    ),
    "constant rows": lambda rng, q, r: np.full((q, r), 0.1) * rng.random((q, 1)),
    "low rank": lambda rng, q, r: normal(rng, q, 2) @ normal(rng, 2, r),
    "hilbert": lambda rng, q, r: 1.0 / (np.arange(q)[:, None] + np.arange(r) + 1),
}
NARROW = {"signs": "int8", "counts": "uint8"}  # which hold them exactly
VECTORS = {
    "normal": lambda rng, X: rng.standard_normal(X.shape[1]),
    "ones": lambda rng, X: np.ones(X.shape[1]),
    "unit": lambda rng, X: np.eye(X.shape[1])[rng.integers(X.shape[1])],
    "alternating": lambda rng, X: np.resize([1.0, -1.0], X.shape[1]),
    "wide": lambda rng, X: normal(rng, 1, X.shape[1])[0] * 10.0 ** rng.uniform(-9, 9, X.shape[1]),
    "null": lambda rng, X: null(rng, X),
}


def null(rng, X):
    """A vector whose X w is far smaller than its terms, as far as it can be."""
    rows = X[: min(len(X), X.shape[1] - 1, 40)]
    sizes = np.abs(rows).max(axis=0, initial=0.0)
    sizes[sizes == 0] = 1.0
    scaled = rng.random(X.shape[1])
    scaled -= np.linalg.lstsq(rows / sizes, rows @ (scaled / sizes), rcond=1e-12)[0]
    return scaled / sizes


class Seen(NamedTuple):
    """One step."""

    product: str
    kind: str
    vector: str
    types: str
    error: float
    bound: float
    estimate: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decodes", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600, help="after which no case begins")
    arguments = parser.parse_args()
    rng, end = np.random.default_rng(arguments.seed), time.monotonic() + arguments.seconds
    found: list[Seen] = []
    while len(found) < arguments.decodes and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="cec-mpi-errors-") as name:
            found += case(rng, Path(name) / "store")
    print(f"{len(found)} decodes, seed {arguments.seed}")
    report(found)
    return int(any(seen.bound < seen.error for seen in found))


def case(rng: np.random.Generator, store: Path) -> Iterator[Seen]:
    """Steps with one X, each vector on each set of machines."""
    machines, recovery = SIZES[rng.integers(len(SIZES))]
    dtype, precision = [("float32", "double"), ("float32", "shard"), ("float64", "double")][
        rng.integers(3)
    ]
    product = ["X w", "X W", "X' v"][rng.choice(3, p=[0.6, 0.15, 0.25])]
    columns = int(10 ** rng.uniform(0.5, 4))
    rows = recovery * max(2, min(int(rng.integers(2, 40)), MOST_ENTRIES // (recovery * columns)))
    if product == "X' v":
        rows, columns = recovery * max(2, columns // recovery), int(rng.integers(2, 40))
    kind = list(MATRICES)[rng.integers(len(MATRICES))]
    X = MATRICES[kind](rng, rows, columns)
    if rng.random() < 0.5:
        X = X.astype(NARROW.get(kind, dtype))
    options: dict[str, Any] = {
        "code": CODES[rng.integers(len(CODES))],
        "systematic": bool(rng.random() < 0.3),
        "scaling": ("rows", "none")[rng.integers(2)],
        "dtype": dtype,
    }
    try:
        cec_mpi.encode(X, store, machines, recovery, **options)
    except CecError:  # no such code with this dtype
        return
    worst = cec_mpi.open_store(store).manifest.code.conditioning.worst_machines
    records: list[StepRecord] = []
    recorder = Recorder(records.append)
    given: dict[str, Any] = {"speeds": rng.uniform(1, 4, machines).tolist()}
    with cec_mpi.open_operator(
        store, None, recorder=recorder, precision=precision, threads=1, **given
    ) as operator:
        for names, W in vectors(rng, X, product, dtype if precision == "shard" else "float64"):
            exact = (X.T if product == "X' v" else X).astype(WIDE) @ W.astype(WIDE)
            for number in range(SETS):
                count = recovery if number % 4 else int(rng.integers(recovery, machines + 1))
                some = rng.choice(machines, count, replace=False) + 1
                operator.available = set(worst if number % 2 else some.tolist())
                result = operator.rmatmat(W) if product == "X' v" else operator.matmat(W)
                sizes = np.abs(result).max(axis=0)
                if not sizes.all():
                    continue
                error = float((np.abs(result - exact).max(axis=0) / sizes).max())
                if np.isfinite(error) and records[-1].error_bound is not None:
                    figures = records[-1].error_bound, records[-1].error_estimate
                    yield Seen(product, kind, names, f"{dtype}, {precision}", error, *figures)


def vectors(rng: np.random.Generator, X: Any, product: str, dtype: str) -> Iterator[tuple]:
    """Columns to multiply with, and of which kind: numbers that this dtype holds."""
    together = COLUMNS_OF_BLOCK if product == "X W" else 1
    of = (X.T if product == "X' v" else X).astype(np.float64)
    for _ in range(VECTORS_OF_CASE // together):
        kind = list(VECTORS)[rng.integers(len(VECTORS))]
        some = np.stack([VECTORS[kind](rng, of) for _ in range(together)], axis=1)
        largest = np.abs(some).max()
        if np.isfinite(some).all() and largest:
            yield kind, (some / largest).astype(dtype).astype(np.float64)


def report(found: list[Seen]) -> None:
    """Tables over all decodes, and by what they are of."""
    print(
        "| | decodes | estimate below, of 1,000 | estimate / error: median | 95 % | bound below "
        "| bound / error: median |"
    )
    print("|---|" + "---|" * 6)
    for field in ("", "product", "types", "vector", "kind"):
        groups: dict[str, list[Seen]] = defaultdict(list)
        for seen in found:
            groups[f"{field}: {getattr(seen, field)}" if field else "all"].append(seen)
        for name in sorted(groups):
            print(line(name, groups[name]))


def line(name: str, found: list[Seen]) -> str:
    """One line of the table."""
    some = np.array([seen[4:] for seen in found])
    error, bound, estimate = some[some[:, 0] > 0].T
    if not error.size:
        return f"| {name} | {len(found)} |" + " |" * 5
    figures = [
        len(found),
        f"{1e3 * (estimate < error).sum() / len(found):.2f}",
        f"{np.median(estimate / error):.1f}",
        f"{np.quantile(estimate / error, 0.95):.0f}",
        int((bound < error).sum()),
        f"{np.median(bound / error):.0f}",
    ]
    return f"| {name} | " + " | ".join(map(str, figures)) + " |"


if __name__ == "__main__":
    sys.exit(main())
