"""Lists of independent pieces of work, and how one process does its share of them.

What takes long on a store (encode, verify, repair, ...) is a `Work`: pieces that any
thread of any process may do, in any order. A `Runner` does them all; this module has the
one for a single process, `processes.shared_work` the one that shares them out over ranks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from cec_mpi.errors import InputError

Watch = Callable[[int, int], None]
"""Told of progress: bytes done, and bytes in all."""

T = TypeVar("T")

MEMORY = 512 << 20
"""Bytes that a process takes at its peak, unless told otherwise."""

_OVERHEAD_BYTES = 160 << 20  # what libraries, threads and page tables take beside our buffers
_MOST_THREADS = 64
_MOST_PIECE_BYTES = 32 << 20


class Work(Protocol):
    """Pieces of work on a store; can be pickled before the first is done.

    Attributes
    ----------
    pieces : sequence
    threads : int
        The most threads of a process that its memory is enough for.
    """

    threads: int

    @property
    def pieces(self) -> Sequence[Any]:
        """The pieces, in the order of the disk."""

    def size(self, piece: Any) -> int:
        """Bytes read and written for a piece."""

    def do(self, piece: Any) -> Any:
        """Do one piece; returns what was found, small and picklable. Called by threads."""

    def flush(self) -> None:
        """Have on the disk what this process has written."""


class PerThread(threading.local):
    """What each thread keeps from piece to piece; a pickled work leaves it behind."""

    def __reduce__(self) -> tuple[type[PerThread], tuple[()]]:
        return PerThread, ()


class Runner(Protocol):
    """Does a work, by as many processes and threads as it has.

    Attributes
    ----------
    threads : int
        Of each process.
    processes : int
    """

    threads: int
    processes: int

    def run(self, work: Work) -> list[Any]:
        """Do all pieces; returns what was found, in any order."""


class LocalRunner:
    """A runner of this process.

    Parameters
    ----------
    watch : callable, optional
        Told of progress.
    threads : int, optional
        By default one more than the process has cores: one of them waits for the disk.
    """

    processes = 1

    def __init__(self, watch: Watch | None = None, threads: int | None = None) -> None:
        self.threads = threads or min(_MOST_THREADS, len(os.sched_getaffinity(0)) + 1)
        self._watch = watch

    def run(self, work: Work) -> list[Any]:
        """Do all pieces."""
        total = sum(work.size(piece) for piece in work.pieces)
        found, done = [], 0
        for piece, result in do_pieces(work, work.pieces, min(self.threads, work.threads)):
            found.append(result)
            done += work.size(piece)
            if self._watch is not None:
                self._watch(done, total)
        work.flush()
        return found


def do_pieces(work: Work, pieces: Sequence[T], threads: int) -> Iterator[tuple[T, Any]]:
    """Do pieces by threads; yields each with what was found as it is done.

    Each thread makes its BLAS calls alone: the bits of a product depend on how many
    threads share it.
    """
    rest = iter(pieces)
    running: dict[Future[Any], T] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        with threadpool_limits(1):
            while True:
                for piece in islice(rest, threads - len(running)):
                    running[pool.submit(work.do, piece)] = piece
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def fit_memory(
    memory: int, threads: int, arrays: int, fixed: int, least: int, share: int, held: int = 0
) -> tuple[int, int]:
    """How many threads work at a time, and how many bytes of each array are in a piece.

    Parameters
    ----------
    memory : int
        Bytes above the bare interpreter that a process may take at its peak.
    threads : int
        The most threads.
    arrays : int
        Arrays that are in memory for a piece.
    fixed : int
        Bytes that a thread takes whatever the piece is.
    least : int
        Bytes of each array that a piece cannot go below.
    share : int
        Bytes of each array that are a fair share of one thread.
    held : int
        Bytes that the process takes however many threads it has.

    Returns
    -------
    threads, piece_bytes : int

    Raises
    ------
    InputError
        The memory is not enough for one thread.
    """
    each = fixed + arrays * least
    memory_left = memory - _OVERHEAD_BYTES - held
    threads = min(threads, memory_left // each)
    if threads < 1:
        needed = -(-(_OVERHEAD_BYTES + held + each) >> 20)
        raise InputError(f"memory {memory >> 20}M: this needs at least {needed + 1}M")
    most = min(_MOST_PIECE_BYTES, (memory_left // threads - fixed) // arrays)
    return threads, max(least, min(most, share))
