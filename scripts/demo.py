"""Run the four steps of the paper's Section III with the heterogeneous and the cyclic scheme.

Encodes a matrix for six machines with speeds 2, 2, 3, 3, 4, 4, any three of which suffice.
Multiplies it by vectors while machines are preempted, with both assignments, and compares every
result with NumPy. The speeds are emulated: machines sleep to be as slow as their speed, so that one
computer behaves like a network of six.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from cec_mpi.core.plan.load import makespan
from cec_mpi.runtime.availability.models import PAPER_AVAILABLE
from cec_mpi.runtime.records.recorder import read_steps
from helpers.mpi_at_hand import mpirun

SPEEDS = (2, 2, 3, 3, 4, 4)
RECOVERY = 3
FIRST_STEP_SECONDS = 0.1  # computation in the first heterogeneous step, with the random matrix
TIME_LIMIT = 900  # seconds for each command


def relative_errors(result: np.ndarray, X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return the relative error (2-norm) of each row of `result`, compared with NumPy's ``X w``."""
    expected = X @ W.T
    errors: np.ndarray = np.linalg.norm(result.T - expected, axis=0)
    return errors / np.linalg.norm(expected, axis=0)


def run_cec_mpi(*arguments: object, ranks: int = 0) -> None:
    """Run a command of cec_mpi, under mpirun if `ranks` is given; exit if it fails."""
    launcher = [mpirun(), "-n", str(ranks)] if ranks else []
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "cec_mpi", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=TIME_LIMIT,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.returncode)


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="cec-demo-") as temporary:
        directory = Path(arguments.keep or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        return demonstrate(arguments, directory)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--matrix", metavar="X.npy", help="use this matrix instead of a random one")
    parser.add_argument(
        "--rows", type=int, default=12_000, help="rows of the matrix (default 12000)"
    )
    parser.add_argument(
        "--columns", type=int, default=1_000, help="columns of the matrix (default 1000)"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="repetitions of each step; the table shows medians (default 5)",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep the matrix, store and records in DIR")
    arguments = parser.parse_args()
    if min(arguments.rows, arguments.columns, arguments.repeats) < 1:
        parser.error("--rows, --columns and --repeats: expected at least 1")
    return arguments


def demonstrate(arguments: argparse.Namespace, directory: Path) -> int:
    if arguments.matrix:
        matrix = Path(arguments.matrix)
    else:
        matrix = directory / "X.npy"
        rng = np.random.default_rng(0)
        np.save(matrix, rng.standard_normal((arguments.rows, arguments.columns)))
    store = directory / "store"
    sizes = ("--machines", len(SPEEDS), "--recovery", RECOVERY)
    run_cec_mpi("encode", matrix, store, *sizes)

    X = np.load(matrix, mmap_mode="r")
    ticks = [step for step in PAPER_AVAILABLE for _ in range(arguments.repeats)]
    W = np.random.default_rng(1).standard_normal((len(ticks), X.shape[1]))
    np.save(directory / "W.npy", W)
    availability = directory / "availability.json"
    availability.write_text(json.dumps({"available": ticks}))

    base = None
    if not arguments.matrix:
        per_shard = -(-len(X) // RECOVERY)
        base = per_shard / (sum(SPEEDS) / RECOVERY * FIRST_STEP_SECONDS)
    runs = {}
    for scheme in ("heterogeneous", "cyclic"):
        out = directory / scheme
        options = ["--emulate-base", repr(base)] if base else []
        run_cec_mpi(
            *("run", store, "--out", out, "--overwrite", "matvec"),
            *(f"vectors={directory / 'W.npy'}", "--availability", availability),
            *("--speeds", join_numbers(SPEEDS), "--emulate-speeds", join_numbers(SPEEDS)),
            *("--scheme", scheme, *options),
            ranks=len(SPEEDS) + 1,
        )
        header, steps = read_steps(out / "steps.jsonl")
        base = header["emulation"]["base"]  # so that the cyclic run has the same speeds
        errors = relative_errors(np.load(out / "result.npy", mmap_mode="r"), X, W).tolist()
        runs[scheme] = [
            summarize(part, errors[first : first + arguments.repeats], base)
            for first in range(0, len(ticks), arguments.repeats)
            for part in [steps[first : first + arguments.repeats]]
        ]
    print_table(runs["heterogeneous"], runs["cyclic"], X.shape, arguments.repeats)
    worst = max(part["error"] for run in runs.values() for part in run)
    limit = 1e-10 if header["dtype"] == "float64" else 1e-3
    if worst > limit:
        print(f"WRONG: the largest relative error is {worst:.1e}, expected at most {limit:.0e}")
        return 1
    return 0


def join_numbers(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def summarize(steps: list[dict], errors: list[float], base: float) -> dict:
    rows = steps[0]["rows"]
    used = [n for n, count in enumerate(rows) if count]
    optimum = makespan([rows[n] for n in used], [SPEEDS[n] for n in used]) / base
    return {
        "available": steps[0]["available"],
        "rows": rows,
        "predicted": optimum,
        "measured": median(step["measured_makespan"] for step in steps),
        "error": max(errors),
    }


def print_table(
    heterogeneous: list[dict], cyclic: list[dict], shape: tuple[int, int], repeats: int
) -> None:
    print()
    speeds = join_numbers(SPEEDS)
    print(f"X is {shape[0]} x {shape[1]}; speeds {speeds}; any {RECOVERY} machines suffice")
    print(f"makespan in ms, median of {repeats} steps; speed-up: cyclic over heterogeneous")
    print()
    print(
        f"{'step':4}  {'available':11}  {'rows by machine':29}  {'predicted':>9}  "
        f"{'measured':>8}  {'cyclic':>6}  {'speed-up':>8}  {'error':>7}"
    )
    for number, (step, other) in enumerate(zip(heterogeneous, cyclic, strict=True), start=1):
        available = " ".join(map(str, step["available"]))
        rows = " ".join(str(count) if count else "-" for count in step["rows"])
        print(
            f"{number:4}  {available:11}  {rows:29}  {1e3 * step['predicted']:9.2f}  "
            f"{1e3 * step['measured']:8.2f}  {1e3 * other['measured']:6.2f}  "
            f"{other['measured'] / step['measured']:8.3f}  "
            f"{max(step['error'], other['error']):7.1e}"
        )


if __name__ == "__main__":
    sys.exit(main())
