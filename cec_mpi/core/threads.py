"""Threads for long NumPy computations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

PARALLEL_THRESHOLD = 1 << 19
"""Minimum array size for threads, because starting them takes about 0.1 ms."""

_blas_lock = threading.Lock()  # the number of BLAS threads is a setting of the process


def run_in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Call functions concurrently, the first one in this thread; return when all have ended.

    The functions must spend their time in NumPy, which releases the GIL. Each of several
    calls uses a single BLAS thread, because their BLAS threads would wait for each other.

    Examples
    --------
    >>> results = []
    >>> run_in_threads([lambda: results.append(1), lambda: results.append(2)])
    >>> sorted(results)
    [1, 2]
    """
    first, *rest = calls
    if not rest:
        first()
        return
    # Even after an interrupt the pool waits for its threads.
    with _blas_lock, _blas_controller().limit(limits=1), ThreadPoolExecutor(len(rest)) as pool:
        futures = [pool.submit(call) for call in rest]
        first()
    for future in futures:
        future.result()


@cache
def _blas_controller() -> Any:
    """Return the controller of NumPy's BLAS."""
    from threadpoolctl import ThreadpoolController  # its import takes as long as ten small steps

    return ThreadpoolController().select(user_api="blas")
