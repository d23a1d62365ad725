"""Errors of decodes, compared with their estimate: product error times cancellation.

    python scripts/campaigns/error_figures.py [--seed I] [--decodes 3000] [--seconds 600]

Each case is a store of a random X of float32 or float64, with a code of a random family, systematic
or not, and up to 60 machines. Several sets of machines multiply vectors: random sets, the worst
known one, and sets of more than L machines. For a quarter of the vectors, terms cancel almost
completely. Results are compared with products in long doubles. Prints how often the error exceeds
the estimate, the estimate over the error, and the errors by condition number. Fails if the error
exceeds the estimate in more than one of 1,000 decodes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cec_mpi
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.errors import CecError, ScaleWarning
from cec_mpi.records import Recorder, StepRecord

SIZES = [(3, 1), (4, 2), (6, 3), (8, 5), (12, 8), (20, 10), (24, 16), (30, 15), (40, 20), (60, 30)]
CODES = sorted(FAMILIES)
MATRICES = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
    "lognormal": lambda rng, shape: np.exp(2 * rng.standard_normal(shape)),
    "columns": lambda rng, shape: (
        rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, (1, shape[1]))
    ),
    "rows": lambda rng, shape: (
        rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, (shape[0], 1))
    ),
}
TYPES = ["float32, double", "float32, shard", "float64, double"]  # dtype and precision
MAX_ENTRIES = 100_000  # of X
SETS, VECTORS = 5, 4
MAX_EXCEEDED = 1e-3  # fraction of decodes whose error may exceed the estimate


class Decode(NamedTuple):
    """One decode: its kind, condition number, and errors relative to the magnitude of the terms."""

    code: str
    product: str
    types: str
    matrix: str
    vector: str
    condition: float
    error: float
    estimate: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decodes", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=600, help="start no case after this time")
    arguments = parser.parse_args()
    rng, end = np.random.default_rng(arguments.seed), time.monotonic() + arguments.seconds
    decodes: list[Decode] = []
    while len(decodes) < arguments.decodes and time.monotonic() < end:
        with tempfile.TemporaryDirectory(prefix="cec-mpi-errors-") as name:
            decodes += random_decodes(rng, Path(name) / "store")
    print(f"{len(decodes)} decodes, seed {arguments.seed}")
    print_tables(decodes)
    exceeded = sum(decode.error > decode.estimate for decode in decodes)
    return int(exceeded > MAX_EXCEEDED * len(decodes))


def random_decodes(rng: np.random.Generator, store: Path) -> Iterator[Decode]:
    """Yield the decodes with one X, of each vector with each set of machines."""
    machines, recovery = SIZES[rng.integers(len(SIZES))]
    types = TYPES[rng.choice(len(TYPES), p=[0.25, 0.25, 0.5])]
    dtype, precision = types.split(", ")
    adjoint = bool(rng.random() < 0.3)
    terms = int(10 ** rng.uniform(0.7, 3.5))  # of each sum
    sums = recovery * max(1, min(40, MAX_ENTRIES // (recovery * terms)))
    shape = (recovery * -(-terms // recovery), sums) if adjoint else (sums, terms)
    kind = list(MATRICES)[rng.integers(len(MATRICES))]
    X = MATRICES[kind](rng, shape)
    code = CODES[rng.integers(len(CODES))]
    options: dict[str, Any] = {
        "code": code,
        "systematic": bool(rng.random() < 0.3),
        "scaling": ("rows", "none")[int(rng.integers(2))] if kind != "rows" else "rows",
        "dtype": dtype,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScaleWarning)
        try:
            cec_mpi.encode(X, store, machines, recovery, **options)
        except CecError:  # no code with these options
            return
        worst = cec_mpi.open_store(store).manifest.code.conditioning.worst_machines
        records: list[StepRecord] = []
        open_options: dict[str, Any] = {"precision": precision, "threads": 1}
        open_options["speeds"] = rng.uniform(1, 4, machines).tolist()
        recorder = Recorder(on_step=records.append)
        with cec_mpi.open_operator(store, None, recorder=recorder, **open_options) as operator:
            for _ in range(VECTORS):
                matrix = X.T if adjoint else X
                name, w = random_vector(
                    rng, matrix, "float32" if precision == "shard" else "float64"
                )
                exact = matrix.astype(np.longdouble) @ w.astype(np.longdouble)
                for number in range(SETS):
                    count = recovery if number else int(rng.integers(recovery, machines + 1))
                    random_machines = (rng.choice(machines, count, replace=False) + 1).tolist()
                    operator.available = set(worst if number == 1 else random_machines)
                    result = operator.rmatvec(w) if adjoint else operator.matvec(w)
                    last = records[-1]
                    if not (last.cancellation and last.condition_number):
                        continue
                    error = np.abs(result - exact).max() / np.abs(result).max() / last.cancellation
                    yield Decode(
                        code,
                        "X' v" if adjoint else "X w",
                        types,
                        kind,
                        name,
                        last.condition_number,
                        float(error),
                        operator.product_error,
                    )


def random_vector(rng: np.random.Generator, X: Any, dtype: str) -> tuple[str, Any]:
    """Return the kind of a vector, and the vector in this dtype; terms of one in four cancel."""
    if rng.random() < 0.25:
        rows = X[: min(len(X), X.shape[1] - 1, 40)]
        sizes = np.abs(rows).max(axis=0, initial=0.0)
        sizes[sizes == 0] = 1.0
        scaled = rng.standard_normal(X.shape[1])
        scaled -= np.linalg.lstsq(rows / sizes, rows @ (scaled / sizes), rcond=1e-12)[0]
        name, w = "null", scaled / sizes
    else:
        name, w = "normal", rng.standard_normal(X.shape[1])
    return name, (w / np.abs(w).max()).astype(dtype).astype(np.float64)


def print_tables(decodes: list[Decode]) -> None:
    """Print the ratios of all decodes and of groups, and the errors by condition number."""
    print("| | decodes | per 1,000: above estimate | estimate over error: median | 95 % | least |")
    print("|---|" + "---|" * 5)
    print(format_row("all", decodes))
    for field in ("product", "types", "matrix", "vector", "code"):
        groups: dict[str, list[Decode]] = defaultdict(list)
        for decode in decodes:
            groups[getattr(decode, field)].append(decode)
        for name in sorted(groups):
            print(format_row(f"{field}: {name}", groups[name]))
    print("\n| condition | float32: median, largest | float64: median, largest |")
    print("|---|---|---|")
    decades = np.array([np.log10(decode.condition) for decode in decodes]).astype(int)
    for decade in np.unique(decades):
        cells = []
        for dtype in ("float32", "float64"):
            errors = [
                decode.error
                for decode, decode_decade in zip(decodes, decades, strict=True)
                if decode_decade == decade and decode.types.startswith(dtype)
            ]
            cells.append(f"{np.median(errors):.1e} {max(errors):.1e}" if errors else "")
        print(f"| 1e{decade} | {' | '.join(cells)} |")


def format_row(name: str, decodes: list[Decode]) -> str:
    """Return a row of the table of decodes."""
    error = np.array([decode.error for decode in decodes])
    estimate = np.array([decode.estimate for decode in decodes])
    ratios = estimate[error > 0] / error[error > 0]
    if not ratios.size:
        return f"| {name} | {len(decodes)} |" + " |" * 4
    figures = [
        len(decodes),
        f"{1e3 * (error > estimate).mean():.2f}",
        f"{np.median(ratios):.0f}",
        f"{np.quantile(ratios, 0.95):.0f}",
        f"{ratios.min():.2g}",
    ]
    return f"| {name} | " + " | ".join(map(str, figures)) + " |"


if __name__ == "__main__":
    sys.exit(main())
