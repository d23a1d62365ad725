"""Many steps with machines that come and go at random, every result compared with NumPy's.

    python scripts/benchmarks/elastic_check.py [--rows 100003] [--columns 512] [--machines 9]
        [--recovery 4] [--steps 200] [--probability 0.6] [--seeds 3] [--seed 0] [--elastic]

Encodes a random matrix, then for each seed multiplies it by other vectors under mpirun with
other machines preempted, in lockstep or, with ``--elastic``, over sockets. Fails if a relative
error exceeds 1e-10 or a step is lost.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from cec_mpi.records.recorder import read_steps
from helpers.checks import cec_mpi, relative_errors

LIMIT = 1e-10


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_003)
    parser.add_argument("--columns", type=int, default=512)
    parser.add_argument("--machines", type=int, default=9)
    parser.add_argument("--recovery", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--probability", type=float, default=0.6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--elastic", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-check-") as temporary:
        directory = Path(temporary)
        X = np.random.default_rng(chosen.seed).standard_normal((chosen.rows, chosen.columns))
        np.save(directory / "X.npy", X)
        cec_mpi(
            *("encode", directory / "X.npy", directory / "store"),
            *("--machines", chosen.machines, "--recovery", chosen.recovery),
        )
        seeds = range(chosen.seed, chosen.seed + chosen.seeds)
        worst = max(check(chosen, directory, X, seed) for seed in seeds)
    print(f"largest relative error {worst:.1e} (limit {LIMIT:.0e})")
    return int(worst > LIMIT)


def check(chosen: argparse.Namespace, directory: Path, X: np.ndarray, seed: int) -> float:
    W = np.random.default_rng((seed, 1)).standard_normal((chosen.steps, chosen.columns))
    np.save(directory / "W.npy", W)
    out = directory / f"seed-{seed}"
    cec_mpi(
        *("run", directory / "store", "--out", out, "--vectors", directory / "W.npy"),
        *("--available-probability", chosen.probability, "--wait", "--seed", seed),
        *(["--elastic"] if chosen.elastic else []),
        ranks=chosen.machines + 1,
        quiet=True,
    )
    _, steps = read_steps(out / "steps.jsonl")
    result = np.load(out / "result.npy", mmap_mode="r")
    if len(steps) != chosen.steps or result.shape != (chosen.steps, chosen.rows):
        raise SystemExit(f"seed {seed}: {len(steps)} steps and a result of {result.shape}")
    errors = relative_errors(result, X, W)
    print(
        f"seed {seed}: {len(steps)} steps, {len({tuple(s['available']) for s in steps})} sets of "
        f"machines, {sum(s['waited_ticks'] for s in steps)} ticks waited for, "
        f"largest relative error {errors.max():.1e}",
        flush=True,
    )
    return float(errors.max())


if __name__ == "__main__":
    sys.exit(main())
