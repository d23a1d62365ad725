"""How fast a store is made and read, beside what the machine can do at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InputError
from cec_mpi.files.durable import write_at
from cec_mpi.files.replacing import sync
from cec_mpi.processes.launch.launchers import without_launcher
from cec_mpi.store.format.grid import make_grid
from cec_mpi.store.format.manifest import rows_per_shard
from cec_mpi.store.reader import open_store
from cec_mpi.store.work import do_pieces

Figures = dict[str, float]

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
class Bench:
    """What is measured with.

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
    repeats : int
    seed : int
    """

    directory: str | os.PathLike[str]
    rows: int
    columns: int
    machines: int
    recovery: int
    dtype: str
    memory: int
    repeats: int
    seed: int

    def encode(self) -> Figures:
        """Measure encode beside writing as many bytes, and beside its matrix product alone.

        Returns
        -------
        dict of str to float
            Rates in bytes of shards per second, medians over the repeats, the three
            measured in turns and without the time to start Python; `encode_over_slower`
            is the median of the ratios within a repeat. `peak_bytes` is what the encoding
            process took above a bare interpreter.
        """
        rates: dict[str, list[float]] = {"encode": [], "write": [], "product": []}
        ratios, peaks = [], []
        with self._scratch() as scratch:
            self._write_matrix(scratch / "X.npy")
            per_shard = self._rows_per_shard * self.columns * np.dtype(self.dtype).itemsize
            total = self.machines * per_shard
            bare = _measured([sys.executable, "-c", f"print(0, {_PEAK})"])[1]
            for _ in range(self.repeats):
                seconds, peak = self._encode(scratch)
                shutil.rmtree(scratch / "store")
                rates["encode"].append(total / seconds)
                rates["write"].append(total / _write_files(scratch, self.machines, per_shard))
                rates["product"].append(self._product_rate())
                ratios.append(rates["encode"][-1] / min(rates["write"][-1], rates["product"][-1]))
                peaks.append(peak - bare)
        figures = _figures(total, rates)
        return figures | {"encode_over_slower": median(ratios), "peak_bytes": float(max(peaks))}

    def verify(self) -> Figures:
        """Measure verify beside reading the same files, neither from the page cache.

        Returns
        -------
        dict of str to float
            Rates in bytes per second, medians over the repeats, the two measured in turns
            and without the time to start Python; `verify_over_read` is the median of the
            ratios within a repeat.
        """
        rates: dict[str, list[float]] = {"verify": [], "read": []}
        with self._scratch() as scratch:
            self._write_matrix(scratch / "X.npy")
            self._encode(scratch)
            store = scratch / "store"
            files = [store / shard.file for shard in open_store(store).manifest.shards]
            total = sum(path.stat().st_size for path in files)
            for _ in range(self.repeats):
                _forget(files)
                begin = time.perf_counter()
                for path in files:
                    _read(path)
                rates["read"].append(total / (time.perf_counter() - begin))
                _forget(files)
                rates["verify"].append(total / _measured(_command("verify", store))[0])
        ratios = [a / b for a, b in zip(rates["verify"], rates["read"], strict=True)]
        return _figures(total, rates) | {"verify_over_read": median(ratios)}

    @property
    def _rows_per_shard(self) -> int:
        return rows_per_shard(self.rows, self.recovery)

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """A directory that goes with everything in it."""
        if not Path(self.directory).is_dir():
            raise InputError(f"{self.directory} is not a directory")
        with tempfile.TemporaryDirectory(prefix="cec-mpi-bench-", dir=self.directory) as name:
            yield Path(name)

    def _write_matrix(self, path: Path) -> None:
        rng = np.random.default_rng(self.seed)
        shape = (self.rows, self.columns)
        matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(self.dtype), shape=shape)
        step = max(1, (32 << 20) // (8 * self.columns))
        for start in range(0, self.rows, step):
            block = matrix[start : start + step]
            block[:] = rng.random(block.shape)
        matrix.flush()

    def _encode(self, scratch: Path) -> tuple[float, int]:
        sizes = (f"--machines={self.machines}", f"--recovery={self.recovery}")
        options = (*sizes, f"--memory={self.memory}", f"--dtype={self.dtype}")
        return _measured(_command("encode", scratch / "X.npy", scratch / "store", *options))

    def _product_rate(self) -> float:
        """Bytes of shards per second by all cores, in the blocks that a store has."""
        kind = np.dtype(self.dtype)
        together = self.machines + self.recovery
        grid = make_grid(self._rows_per_shard, self.columns, kind.itemsize, together)
        block = grid.block_rows * grid.block_columns
        generator = make_code(self.machines, self.recovery, dtype=kind).generator.astype(kind)
        work = _Products(generator, block, grid.count)
        begin = time.perf_counter()
        for _ in do_pieces(work, work.pieces, len(os.sched_getaffinity(0))):
            pass
        seconds = time.perf_counter() - begin
        return self.machines * block * grid.count * kind.itemsize / seconds


def _figures(total: int, rates: dict[str, list[float]]) -> Figures:
    medians = {f"{name}_bytes_per_second": median(values) for name, values in rates.items()}
    return {"shard_bytes": float(total), **medians}


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
    seconds, kilobytes = done.stdout.split()[-2:]
    return float(seconds), 1024 * int(kilobytes)


def _write_files(directory: Path, machines: int, size: int) -> float:
    """Seconds to write and sync as many files, of random bytes that nothing can compress."""
    data = np.random.default_rng(0).bytes(_CHUNK)
    paths = [directory / f"written-{n}" for n in range(machines)]
    begin = time.perf_counter()
    for path in paths:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        for place in range(0, size, _CHUNK):
            write_at(descriptor, data[: size - place], place)
        os.fsync(descriptor)
        os.close(descriptor)
    sync(directory)
    seconds = time.perf_counter() - begin
    for path in paths:
        path.unlink()
    return seconds


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
