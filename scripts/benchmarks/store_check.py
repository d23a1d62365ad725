"""A large store put to the test: rate and memory, flipped bits, lost shards.

    python scripts/benchmarks/store_check.py [--rows 1000000] [--columns 1000] [--machines 6]
        [--recovery 3] [--flips 200] [--seed 0] [--directory DIR]

Encodes a random float32 matrix (4 GB by default) beside what the disk and the processor can
do; flips random single bits of the shards, one at a time, and has each found by `verify`
with the right shard and rows; deletes N - L shards, repairs, decodes and compares with X.
Ends with code 1 when a bit was not found or X did not come back within its bound.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from cec_mpi.bench.store import Encode, Verify
from cec_mpi.store import open_store
from helpers.checks import TIME_LIMIT, cec_mpi

ROWS_AT_A_TIME = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3, help="of the measurements")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", default=None, help="on the disk to measure")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-store-", dir=chosen.directory) as name:
        directory = Path(name)
        settings = {
            "turns": chosen.repeats,
            "seed": chosen.seed,
            "directory": str(directory),
            "rows": chosen.rows,
            "columns": chosen.columns,
            "machines": chosen.machines,
            "recovery": chosen.recovery,
        }
        for bench in (Encode(**settings), Verify(**settings)):
            print(bench.result().table(), flush=True)
        X, store = directory / "X.npy", directory / "store"
        make_matrix(X, chosen.rows, chosen.columns, chosen.seed)
        cec_mpi(
            *("encode", X, store, "--machines", chosen.machines, "--recovery", chosen.recovery),
            quiet=True,
        )
        found = sum(
            flip_is_found(store, random.Random(f"{chosen.seed} {k}")) for k in range(chosen.flips)
        )
        print(f"flipped bits found, with shard and rows: {found} of {chosen.flips}", flush=True)
        good = comes_back(X, store, random.Random(chosen.seed))
    return int(found < chosen.flips or not good)


def make_matrix(path: Path, rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, columns))
    for start in range(0, rows, ROWS_AT_A_TIME):
        block = matrix[start : start + ROWS_AT_A_TIME]
        block[:] = rng.standard_normal(block.shape, dtype=np.float32)
    matrix.flush()


def flip_is_found(store: Path, rng: random.Random) -> bool:
    manifest = open_store(store).manifest
    file = store / rng.choice(manifest.shards).file
    place = rng.randrange(manifest.shard_bytes)
    mask = 1 << rng.randrange(8)
    flip(file, place, mask)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cec_mpi", "verify", str(store)],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    finally:
        flip(file, place, mask)
    bad = [line for line in done.stdout.splitlines() if not line.endswith(": good")]
    if done.returncode != 5 or len(bad) != 1 or not bad[0].startswith(f"{file.name}: "):
        return False
    if place < len(manifest.header):
        return "its header differs" in bad[0]
    row = (place - len(manifest.header)) // (manifest.columns * manifest.itemsize)
    rows = re.search(r"rows (\d+)\.\.(\d+) differ", bad[0])
    return rows is not None and int(rows[1]) <= row <= int(rows[2])


def flip(file: Path, place: int, mask: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ mask]))


def comes_back(X: Path, store: Path, rng: random.Random) -> bool:
    manifest = open_store(store).manifest
    spare = manifest.code.machines - manifest.code.recovery
    for shard in rng.sample(manifest.shards, spare):
        (store / shard.file).unlink()
    for command in (
        ("repair", store),
        ("verify", store),
        ("decode", store, store.parent / "Y.npy"),
    ):
        begin = time.perf_counter()
        cec_mpi(*command)
        print(f"{command[0]}: {time.perf_counter() - begin:.1f} s", flush=True)
    ours, theirs = (np.load(path, mmap_mode="r") for path in (X, store.parent / "Y.npy"))
    worst = largest = 0.0
    for start in range(0, len(ours), ROWS_AT_A_TIME):
        rows = ours[start : start + ROWS_AT_A_TIME].astype(float)
        worst = max(worst, float(np.abs(rows - theirs[start : start + ROWS_AT_A_TIME]).max()))
        largest = max(largest, float(np.abs(rows).max()))
    print(f"decoded: largest error {worst / largest:.1e} of the largest entry of X")
    bound = max(
        rows.error_bound for shard in open_store(store).manifest.shards for rows in shard.rebuilt
    )
    return ours.shape == theirs.shape and worst <= 10 * bound * largest


if __name__ == "__main__":
    raise SystemExit(main())
