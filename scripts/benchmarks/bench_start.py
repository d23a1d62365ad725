"""A run of one step beside a program that only imports NumPy and makes a Barrier.

    python scripts/benchmarks/bench_start.py [--ranks 7] [--times 5] [--against DIRECTORY]

Both are started by mpirun, in turn; times are of the whole command, on the clock and in CPU seconds
of all its processes. With the directory of another copy of this project its run is started in turn,
too. Each is started once before, so that compiled modules are there.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2]
BARE = "import numpy; from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=7)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--against", type=Path)
    chosen = parser.parse_args()
    mpirun = ["mpirun", "-n", str(chosen.ranks), sys.executable]
    with tempfile.TemporaryDirectory(prefix="cec-bench-") as name:
        directory = Path(name)
        np.save(directory / "X.npy", np.random.default_rng(0).random((600, 600)))
        np.save(directory / "W.npy", np.ones((1, 600)))
        machines = f"--machines {chosen.ranks - 1} --recovery {chosen.ranks // 2}"
        encode = f"encode X.npy store {machines} --quiet"
        start([sys.executable, "-m", "cec_mpi", *encode.split()], HERE, directory)
        words = "run store --out out --vectors W.npy --overwrite --quiet"
        run = ["-m", "cec_mpi", *words.split()]
        commands = {"bare": ([*mpirun, "-c", BARE], HERE), "run": ([*mpirun, *run], HERE)}
        if chosen.against:
            commands["against"] = [*mpirun, *run], chosen.against.resolve()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for turn in range(chosen.times + 1):
            for name, (command, code) in commands.items():
                taken = start(command, code, directory)
                times[name] += [taken] if turn else []
    bare = np.median(times["bare"], axis=0)
    print(f"{chosen.ranks} ranks   seconds  CPU seconds  over bare: seconds  CPU seconds")
    for name, taken in times.items():
        found = np.median(taken, axis=0)
        shares = "{:18.2f}  {:11.2f}".format(*(found / bare))
        print("{:9} {:7.2f}  {:11.2f}".format(name, *found), shares)


def start(command: list[str], code: Path, directory: Path) -> tuple[float, float]:
    """Seconds, and CPU seconds, of a command with this copy of the project."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(code)}
    environment |= {
        "PYTHONPYCACHEPREFIX": str(directory / "compiled"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    subprocess.run(command, check=True, cwd=directory, env=environment, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


if __name__ == "__main__":
    main()
