"""How fast a store is made and read, beside what the machine can do at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cec_mpi.bench.benchmark import Benchmark
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.scratch import check_room, random_matrix, scratch
from cec_mpi.bench.turns import Times, ratio, told_in_turns
from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InputError
from cec_mpi.files.durable import write_at
from cec_mpi.files.replacing import sync
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.launcher import without_launcher
from cec_mpi.store.format.grid import make_grid
from cec_mpi.store.format.manifest import rows_per_shard
from cec_mpi.store.reader import open_store
from cec_mpi.store.work import MEMORY, do_pieces

_CHUNK = 1 << 20
_LIMIT = 3600.0  # seconds that one measured command may take
# The kernel's own figure of this process: what wait() tells includes the parent's, by fork.
_PEAK = "next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1]"
_PROGRAM = f"""
import sys, time
import cec_mpi.store
from cec_mpi.cli import main
begin = time.perf_counter()
code = main(sys.argv[1:])
print(time.perf_counter() - begin, {_PEAK})
sys.exit(code)
"""


@dataclass(frozen=True)
class _Store(Benchmark):
    """What a store is measured with.

    Attributes
    ----------
    directory : path
        On the disk to measure.
    rows, columns : int
        Shape (q, r) of a random X.
    machines, recovery : int
    dtype : {"float32", "float64"}
    memory : int
        Bytes that the measured process may take.
    """

    turns: int = option(3, "--turns K", "how often; the median counts", values.positive)
    directory: str = option(".", "--directory DIR", "on the disk to measure")
    rows: int = option(1_000_000, "--rows Q", "of X", values.positive)
    columns: int = option(256, "--columns R", "of X", values.positive)
    machines: int = option(6, "--machines N", "shards to make", values.positive)
    recovery: int = option(3, "--recovery L", "any L of them give X back", values.positive)
    dtype: str = option(
        "float32", "--dtype", "of X and of the shards", choices=["float32", "float64"]
    )
    memory: int = option(
        MEMORY,
        "--memory SIZE",
        "the most that each process takes above a bare Python (default: 512M)",
        values.size,
    )

    @property
    def rows_per_shard(self) -> int:
        """R."""
        return rows_per_shard(self.rows, self.recovery)

    def make_matrix(self, directory: Path) -> None:
        """Write X there, if there is room for what is made of it, too."""
        size = self.rows * self.columns * np.dtype(self.dtype).itemsize
        check_room(directory, size + 2 * self.machines * size / self.recovery)
        random_matrix(directory / "X.npy", self.rows, self.columns, self.dtype, self.seed)

    def encode(self, directory: Path) -> tuple[float, int]:
        """Seconds that encoding X of this directory takes, and bytes at its peak."""
        sizes = (f"--machines={self.machines}", f"--recovery={self.recovery}")
        options = (*sizes, f"--memory={self.memory}", f"--dtype={self.dtype}")
        return _measured(_command("encode", directory / "X.npy", directory / "store", *options))


@dataclass(frozen=True)
class Encode(_Store):
    """Encode beside writing as many bytes, and beside its matrix product alone."""

    what = "encode"
    title = "encode a matrix: over writing the shards, and over the products of the code alone"

    def measure(self) -> list[Figure]:
        """Take all figures: times without that to start Python, memory above a bare one."""
        with scratch(self.directory) as directory:
            self.make_matrix(directory)
            per_shard = self.rows_per_shard * self.columns * np.dtype(self.dtype).itemsize
            bare = _measured([sys.executable, "-c", f"print(0, {_PEAK})"])[1]
            peaks = []

            def encode() -> float:
                taken, peak = self.encode(directory)
                peaks.append(peak - bare)
                shutil.rmtree(directory / "store")
                return taken

            write = partial(_write_files, directory, self.machines, per_shard)
            ways = {
                "encode": encode,
                "write": lambda: _fastest(write),
                "product": self._product_seconds,
            }
            times = told_in_turns(ways, self.turns, uncounted=0)
        total = self.machines * per_shard
        times["slower"] = [max(pair) for pair in zip(times["write"], times["product"], strict=True)]
        peers = {"write": "writing as many bytes", "product": "its products alone"}
        return [
            ratio(times, "encode", "slower", peer="the slower of both"),
            *(ratio(times, "encode", name, peer=peer) for name, peer in peers.items()),
            *_rates(times, ("encode", "write", "product"), total),
            Figure.of("memory above a bare Python", peaks, unit="bytes"),
        ]

    def _product_seconds(self) -> float:
        """Seconds of the products of all shards by all cores, in the blocks that a store has."""
        kind = np.dtype(self.dtype)
        together = self.machines + self.recovery
        grid = make_grid(self.rows_per_shard, self.columns, kind.itemsize, together)
        block = grid.block_rows * grid.block_columns
        generator = make_code(self.machines, self.recovery, dtype=kind).generator.astype(kind)
        work = _Products(generator, block, grid.count)
        begin = time.perf_counter()
        for _ in do_pieces(work, work.pieces, len(os.sched_getaffinity(0))):
            pass
        taken = time.perf_counter() - begin
        return taken * self.rows_per_shard * self.columns / (block * grid.count)


@dataclass(frozen=True)
class Verify(_Store):
    """Verify beside reading the same files, neither from the page cache."""

    what = "verify"
    title = "verify a store: over reading the same files, neither from the page cache"

    def measure(self) -> list[Figure]:
        """Take all figures: times without that to start Python."""
        with scratch(self.directory) as directory:
            self.make_matrix(directory)
            self.encode(directory)
            store = directory / "store"
            files = [store / shard.file for shard in open_store(store).manifest.shards]
            total = sum(path.stat().st_size for path in files)

            def read(threads: int) -> float:
                _forget(files)
                return _seconds_by(threads, _read, files)

            def verify() -> float:
                _forget(files)
                return _measured(_command("verify", store))[0]

            ways = {"read": lambda: _fastest(read), "verify": verify}
            times = told_in_turns(ways, self.turns, uncounted=0)
        return [
            ratio(times, "verify", "read", peer="reading the same files"),
            *_rates(times, ("verify", "read"), total),
        ]


def _rates(times: Times, names: tuple[str, ...], total: int) -> list[Figure]:
    """Bytes of shards per second."""
    return [
        Figure.of(name, [total / each for each in times[name]], unit="bytes/s", better="more")
        for name in names
    ]


def _command(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", _PROGRAM, name, *map(str, arguments)]


def _measured(command: list[str]) -> tuple[float, int]:
    """Seconds and peak memory in bytes of a command that must succeed."""
    # A rank's children are no ranks.
    alone = without_launcher(os.environ)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT, check=False, env=alone
    )
    if done.returncode:
        raise InputError(done.stderr.strip().removeprefix("cec-mpi: error: "))
    taken, kilobytes = done.stdout.split()[-2:]
    return float(taken), 1024 * int(kilobytes)


def _fastest(measure: Callable[[int], float]) -> float:
    """Seconds with one thread or with one for each core: disks differ in what they like."""
    return min(measure(threads) for threads in {1, len(os.sched_getaffinity(0))})


def _seconds_by(threads: int, do: Callable[[Path], None], paths: list[Path]) -> float:
    """Seconds to do something with each file, so many at once."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(do, paths))
    return time.perf_counter() - begin


def _write_files(directory: Path, machines: int, size: int, threads: int) -> float:
    """Seconds to write and sync as many files, of random bytes that nothing can compress."""
    data = np.random.default_rng(0).bytes(_CHUNK)
    paths = [directory / f"written-{n}" for n in range(machines)]

    def write(path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for place in range(0, size, _CHUNK):
            write_at(descriptor, data[: size - place], place)
        os.fsync(descriptor)
        os.close(descriptor)

    taken = _seconds_by(threads, write, paths)
    begin = time.perf_counter()
    sync(directory)
    taken += time.perf_counter() - begin
    for path in paths:
        path.unlink()
    return taken


class _Products:
    """The products of an encode, and nothing else."""

    threads = 1 << 10

    def __init__(self, generator: np.ndarray, block: int, count: int) -> None:
        self.pieces = range(count)
        self._generator = generator
        self._parts = np.ones((generator.shape[1], block), generator.dtype)

    def size(self, piece: int) -> int:
        return 0

    def do(self, piece: int) -> None:
        self._generator @ self._parts

    def flush(self) -> None:
        pass


def _forget(paths: list[Path]) -> None:
    """Let the page cache forget files that are on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _read(path: Path) -> None:
    buffer = bytearray(_CHUNK)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
