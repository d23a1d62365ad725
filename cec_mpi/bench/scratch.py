"""Throwaway directories, which go when a signal ends their process too, and random stores."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import numpy as np
import psutil

from cec_mpi.errors import InputError
from cec_mpi.files.npy import npy_header
from cec_mpi.files.saving import storing
from cec_mpi.processes.together import on_master

if TYPE_CHECKING:
    from mpi4py import MPI

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PIECE = 32 << 20  # bytes of a matrix that are made at a time


@contextmanager
def scratch(directory: str | os.PathLike[str] = "") -> Iterator[Path]:
    """A directory that goes with everything in it.

    Parameters
    ----------
    directory : path
        Where it is made; by default where temporary files are.

    Raises
    ------
    InputError
        That is no directory, or nothing can be made there.
    """
    if directory and not Path(directory).is_dir():
        raise InputError(f"{directory} is not a directory")
    try:
        made = Path(tempfile.mkdtemp(prefix="cec-mpi-bench-", dir=directory or None))
    except OSError as error:
        where = directory or tempfile.gettempdir()
        raise InputError(f"nothing can be made in {where}: {error.strerror}") from None
    try:
        with _removing_first(made):
            yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def scratch_of_ranks(comm: MPI.Intracomm, directory: str = "") -> Iterator[Path]:
    """Collective: a directory that rank 0 makes, and removes when all ranks have left it.

    Raises
    ------
    InputError
        As `scratch`, on all ranks.
    """
    with ExitStack() as stack:
        yield on_master(comm, lambda: stack.enter_context(scratch(directory)))
        comm.Barrier()


@contextmanager
def _removing_first(made: Path) -> Iterator[None]:
    """Signals that end this process at once remove this first.

    Where a signal raises, as in a command of one process, the directory goes as ever.
    """

    def remove(number: int, _: FrameType | None) -> None:
        shutil.rmtree(made, ignore_errors=True)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    ending = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ending = []  # Python lets no other one handle signals
    for number in ending:
        signal.signal(number, remove)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def check_room(directory: Path, size: float) -> None:
    """Refuse to begin what the disk has no room for: it would be full before that shows.

    Parameters
    ----------
    directory : Path
    size : float
        Bytes.

    Raises
    ------
    InputError
        Says how much room there is.
    """
    free = shutil.disk_usage(directory).free
    if size > free:
        raise InputError(f"{directory} has room for {free} bytes: expected {size:.0f}")


def check_memory(option: str, size: float) -> None:
    """Refuse arrays of more bytes than half of the memory that is free.

    Raises
    ------
    InputError
        Names the option.
    """
    free = psutil.virtual_memory().available
    if size > free / 2:
        raise InputError(
            f"{option}: expected at most half of the {free >> 20} MiB of memory that are free"
        )


def random_matrix(path: Path, rows: int, columns: int, dtype: str, seed: int) -> None:
    """Write X of numbers from 0 to 1, some rows at a time.

    Raises
    ------
    InputError
        It cannot be written, as on a disk that is full.
    """
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    step = max(1, _PIECE // (8 * columns))
    with storing(path), path.open("xb") as file:
        file.write(npy_header((rows, columns), kind))
        for start in range(0, rows, step):
            file.write(rng.random((min(step, rows - start), columns)).astype(kind).data)


def random_store(
    directory: Path,
    rows: int,
    columns: int,
    machines: int,
    recovery: int,
    dtype: str = "float64",
    seed: int = 0,
) -> Path:
    """A store of a random X, whose own file, ``X.npy``, stays beside it.

    Parameters
    ----------
    directory : Path
        Where both are made, if there is room.
    rows, columns : int
        Shape (q, r) of X.
    machines, recovery : int
        N and L.
    dtype : {"float32", "float64"}
        Of X and of the shards.
    seed : int
    """
    from cec_mpi.encoding import encode

    size = rows * columns * np.dtype(dtype).itemsize
    check_room(directory, size + machines * size / recovery)
    random_matrix(directory / "X.npy", rows, columns, dtype, seed)
    encode(directory / "X.npy", directory / "store", machines, recovery, dtype=dtype)
    return directory / "store"
