"""Threads for long NumPy computations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

PARALLEL_THRESHOLD = 1 << 19
"""Array size above which threads pay off: starting them takes about 0.1 ms."""

_lock = threading.Lock()  # of the number of BLAS threads, which is one of the process


def run_in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Call functions concurrently, the first one in this thread; return when all have ended.

    The functions must spend their time in NumPy, which releases the GIL. Each has one BLAS thread:
    threads of BLAS would wait for those of others.

    Examples
    --------
    >>> results = []
    >>> run_in_threads([lambda: results.append(1), lambda: results.append(2)])
    >>> sorted(results)
    [1, 2]
    """
    first, *others = calls
    if not others:
        first()
        return
    # The pool waits for its threads on an interrupt, too.
    with _lock, _blas().limit(limits=1), ThreadPoolExecutor(len(others)) as pool:
        running = [pool.submit(call) for call in others]
        first()
    for call in running:
        call.result()


@cache
def _blas() -> Any:
    """Return the control of the BLAS of NumPy."""
    from threadpoolctl import ThreadpoolController  # takes as long as ten small steps

    return ThreadpoolController().select(user_api="blas")
