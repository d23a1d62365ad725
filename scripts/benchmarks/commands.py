"""Commands, compared with the least work that they must do.

    python scripts/benchmarks/commands.py help
    python scripts/benchmarks/commands.py run [--machines 6] [--rows 600] [--columns 600]
    python scripts/benchmarks/commands.py store --rows 1000000 --columns 256 [--directory DIR]

- help: CPU seconds of `--version` and `--help`, over a program that imports NumPy.
- run: a run of one step under mpirun, in seconds and CPU seconds, over a program that imports NumPy
  and calls Barrier; and the memory of its largest process.
- store: `encode` of X in the page cache over writing as many bytes, over the products of the code
  alone, and over the slower of these; `verify` over reading the same files, from the page cache and
  from the disk; `repair` of one shard over reading L shards from the page cache and writing one.
  The time of verify with a store of few rows is subtracted from verify and repair. Writing and
  reading use one thread, or one for each core if that is faster. Also the peak memory of encode.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from operator import add, sub
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
import measure
from measure import Figure, ratio, time_in_turns

BARE = "import numpy; from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"
CHUNK = 1 << 20
# VmHWM, because the peak memory from wait() includes that of the parent before exec.
PROGRAM = """
import sys, time
import cec_mpi.store
from cec_mpi.cli import main
begin = time.perf_counter()
code = main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print("took", time.perf_counter() - begin, 1024 * int(peak))
sys.exit(code)
"""


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the selected part."""
    parts = {"help": help_figures, "run": run_figures, "store": store_figures}
    return parts[options.part](options, directory)


def measure_command(arguments: Sequence[object], ranks: int = 0) -> tuple[float, int]:
    """Return seconds of a command after the start of Python, and bytes of its largest process."""
    printed = measure.run([sys.executable, "-c", PROGRAM, *arguments], ranks)
    fields = [line.split()[1:] for line in printed.splitlines() if line.startswith("took ")]
    return float(fields[-1][0]), max(int(peak) for _, peak in fields)


def cpu_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def help_figures(options: Any, directory: Path) -> list[Figure]:
    arguments = ["--version", "--help"]
    arguments += [f"{name} --help" for name in ("run", "encode", "simulate", "info")]
    programs = {"numpy": ["-c", "import numpy"]}
    programs |= {words: ["-m", "cec_mpi", *words.split()] for words in arguments}

    def time_program(program: list[str]) -> float:
        before = cpu_seconds()
        measure.run([sys.executable, *program])
        return cpu_seconds() - before

    candidates = {name: partial(time_program, words) for name, words in programs.items()}
    times = time_in_turns(candidates, options.turns)
    return [ratio(times, words, "numpy", f"cec-mpi {words}", "import numpy") for words in arguments]


def run_figures(options: Any, directory: Path) -> list[Figure]:
    sizes = options.rows, options.columns, options.machines, options.recovery
    store = measure.make_store(directory, *sizes, options.seed)
    np.save(directory / "W.npy", np.ones((1, options.columns)))
    arguments = ["run", store, "--out", directory / "out", f"vectors={directory / 'W.npy'}"]
    ranks, peaks = options.machines + 1, []
    programs = {
        "bare": lambda: measure.run([sys.executable, "-c", BARE], ranks),
        "run": lambda: peaks.append(
            measure_command([*arguments, "--overwrite", "--quiet"], ranks)[1]
        ),
    }
    cpu: measure.Times = {name: [] for name in programs}

    def time_program(name: str) -> float:
        before = cpu_seconds()
        seconds = time_call(programs[name])
        cpu[name].append(cpu_seconds() - before)
        return seconds

    candidates = {name: partial(time_program, name) for name in programs}
    times = time_in_turns(candidates, options.turns)
    cpu = {name: seconds[1:] for name, seconds in cpu.items()}  # the first turn is not counted
    return [
        ratio(times, "run", "bare", "a run, seconds", "a bare program"),
        ratio(cpu, "run", "bare", "a run, CPU seconds", "a bare program"),
        *(measure.figure(name, seconds, "s") for name, seconds in times.items()),
        measure.figure("memory of the largest process of a run", peaks, "bytes"),
    ]


def store_figures(options: Any, directory: Path) -> list[Figure]:
    X, store = directory / "X.npy", directory / "store"
    measure.write_matrix(X, options.rows, options.columns, np.float32, options.seed)
    arguments = ["encode", X, store, f"--machines={options.machines}"]
    arguments += [f"--recovery={options.recovery}", "-q"]
    peaks: list[int] = []

    def encode() -> float:
        shutil.rmtree(store, ignore_errors=True)
        read_file(X)
        seconds, peak = measure_command(arguments)
        peaks.append(peak)
        return seconds

    def verify(path: Path = store) -> float:
        return measure_command(["verify", path])[0]

    def repair() -> float:
        files[-1].unlink()
        return measure_command(["repair", store])[0]

    encode()
    small = measure.make_store(directory, 60, 60, options.machines, options.recovery)
    files = sorted(store.glob("shard-*"))
    size = files[0].stat().st_size
    written = [directory / file.name for file in files]
    candidates = {
        "encode": encode,
        "writing": lambda: time_fastest(lambda path: write_file(path, size), written),
        "products": lambda: time_products(options),
        "start": lambda: verify(small),
        "reading": lambda: time_fastest(read_file, files),
        "verify": verify,
        "reading from the disk": lambda: time_fastest(
            read_file, files, lambda: drop_from_cache(files)
        ),
        "verify from the disk": lambda: drop_from_cache(files) or verify(),
        "reading L": lambda: time_fastest(read_file, files[: options.recovery]),
        "writing one": lambda: time_fastest(lambda path: write_file(path, size), written[:1]),
        "repair": repair,
    }
    times = time_in_turns(candidates, options.turns)
    times["slower"] = list(map(max, times["writing"], times["products"]))
    times["one shard"] = list(map(add, times["reading L"], times["writing one"]))
    for name in "verify", "verify from the disk", "repair":
        times[name] = list(map(sub, times[name], times["start"]))
    total = size * len(files)
    return [
        ratio(times, "encode", "slower", over="the slower of writing and products"),
        ratio(times, "encode", "writing", over="writing as many bytes"),
        ratio(times, "encode", "products", over="its products alone"),
        ratio(times, "verify", "reading", over="reading the same files in the page cache"),
        ratio(times, "verify from the disk", "reading from the disk", "verify", "reading the disk"),
        ratio(times, "repair", "one shard", over="reading L shards and writing one"),
        *(
            measure.figure(
                name, [total / seconds for seconds in times[name]], "bytes/s", speed=True
            )
            for name in ("encode", "writing", "verify", "reading")
        ),
        measure.figure("memory of encode", peaks, "bytes"),
    ]


def time_call(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def time_fastest(
    process: Callable[[Path], object], paths: Sequence[Path], before: Callable[[], object] = int
) -> float:
    """Return the seconds to process files, by one thread or by one for each core."""

    def time_threads(threads: int) -> float:
        before()
        with ThreadPoolExecutor(threads) as pool:
            return time_call(lambda: list(pool.map(process, paths)))

    return min(time_threads(threads) for threads in {1, len(os.sched_getaffinity(0))})


def write_file(path: Path, size: int) -> None:
    """Write a file of incompressible random bytes, and remove it."""
    data = np.random.default_rng(0).bytes(CHUNK)
    with path.open("wb", buffering=0) as file:
        for offset in range(0, size, CHUNK):
            file.write(data[: size - offset])
        os.fsync(file.fileno())
    path.unlink()


def read_file(path: Path) -> None:
    buffer = bytearray(CHUNK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def drop_from_cache(paths: Sequence[Path]) -> None:
    """Remove files from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def time_products(options: Any) -> float:
    """Return the seconds of the products of all shards, on all cores, in cache-sized blocks."""
    code = cec_mpi.make_code(options.machines, options.recovery, dtype="float32")
    generator = code.generator.astype(np.float32)
    block = CHUNK // (4 * (options.machines + options.recovery))
    parts = np.ones((options.recovery, block), np.float32)
    count = -(-options.rows * options.columns // (options.recovery * block))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return time_call(lambda: list(pool.map(lambda _: generator @ parts, range(count))))


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["help", "run", "store"])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options, turns=3)
