"""Work in independent pieces, and its runner in one process.

Encoding, verification, repair and decoding of a store are each a `Work`: any thread of any process
may process its pieces, in any order. A `Runner` processes all of them. This module has the runner
of a single process; `wire.collective.shared_work` has the runner of several ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from cec_mpi.errors import InputError
from cec_mpi.store.limits import count_processors

ProgressCallback = Callable[[int, int], None]
"""Called with the number of processed bytes and the total."""

T = TypeVar("T")

_OVERHEAD_BYTES = 160 << 20  # memory of libraries, thread stacks and page tables
_MAX_THREADS = 64
_MAX_ARRAY_BYTES = 32 << 20


class Work(Protocol):
    """Work on a store: a dataclass that `processes.packing.pack_fields` can send.

    Attributes
    ----------
    pieces : list
        Pieces, in the order of their data on disk.
    threads : int
        Maximum number of threads for which the memory of a process suffices.
    """

    threads: int
    pieces: list[Any]

    def size(self, piece: Any) -> int:
        """Return the number of bytes read and written for a piece."""

    def process(self, piece: Any) -> Any:
        """Process one piece, and return a small result of a type that `unpack` supports."""

    def flush(self) -> None:
        """Sync the changes of this process to disk."""


class Runner(Protocol):
    """Runs a `Work` in processes and threads.

    Attributes
    ----------
    threads : int
        Number of threads of each process.
    processes : int
    on_progress : callable or None
        Called with the progress.
    """

    threads: int
    processes: int
    on_progress: ProgressCallback | None

    def run(self, work: Work) -> list[Any]:
        """Process all pieces, and return their results in any order."""


class LocalRunner:
    """A runner with the threads of this process.

    Parameters
    ----------
    on_progress : callable, optional
        Called with the progress.
    threads : int, optional
        Number of threads. By default one more than the processors, because one waits for the disk,
        but at most 64.
    """

    processes = 1

    def __init__(
        self, on_progress: ProgressCallback | None = None, threads: int | None = None
    ) -> None:
        self.threads = threads or min(_MAX_THREADS, count_processors() + 1)
        self.on_progress = on_progress

    def run(self, work: Work) -> list[Any]:
        """See `Runner.run`."""
        total = sum(work.size(piece) for piece in work.pieces)
        results, bytes_done = [], 0
        for piece, result in process_pieces(work, work.pieces, min(self.threads, work.threads)):
            results.append(result)
            bytes_done += work.size(piece)
            if self.on_progress is not None:
                self.on_progress(bytes_done, total)
        work.flush()
        return results


def process_pieces(work: Work, pieces: Sequence[T], threads: int) -> Iterator[tuple[T, Any]]:
    """Process pieces in threads; when a piece is done, yield it with its result.

    BLAS calls use one thread, because the bits of a product depend on the number of threads.
    """
    remaining = iter(pieces)
    running: dict[Future[Any], T] = {}
    pool = ThreadPoolExecutor(threads)
    try:
        with threadpool_limits(1):
            while True:
                for piece in islice(remaining, threads - len(running)):
                    running[pool.submit(work.process, piece)] = piece
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def fit_memory(
    memory: int,
    max_threads: int,
    array_count: int,
    thread_bytes: int,
    min_bytes: int,
    useful_bytes: int = 0,
    process_bytes: int = 0,
) -> tuple[int, int]:
    """Return the number of threads for which the memory suffices, and the size of their arrays.

    Parameters
    ----------
    memory : int
        Bytes that a process may use in addition to the interpreter.
    max_threads : int
    array_count : int
        Number of arrays of a thread.
    thread_bytes : int
        Bytes that a thread uses in addition to these arrays.
    min_bytes : int
        Minimum size of each array.
    useful_bytes : int
        Size above which larger arrays are not faster. By default the minimum.
    process_bytes : int
        Bytes that the process uses in addition to its threads.

    Returns
    -------
    threads, array_bytes : int

    Raises
    ------
    InputError
        The memory does not suffice for one thread.
    """
    min_thread_bytes = thread_bytes + array_count * min_bytes
    shared_bytes = _OVERHEAD_BYTES + process_bytes
    threads = min(max_threads, (memory - shared_bytes) // min_thread_bytes)
    if threads < 1:
        needed = -(-(shared_bytes + min_thread_bytes) >> 20)
        raise InputError(f"memory {memory >> 20}M is too small, expected at least {needed + 1}M")
    array_bytes = ((memory - shared_bytes) // threads - thread_bytes) // array_count
    return threads, max(min_bytes, min(array_bytes, _MAX_ARRAY_BYTES, useful_bytes))
