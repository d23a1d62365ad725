"""Threads for long NumPy computations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

PARALLEL_THRESHOLD = 1 << 19
"""Array size above which threads pay off: starting them takes about 0.1 ms."""


def run_in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Call functions concurrently, the first one in this thread; return when all have ended.

    The functions must spend their time in NumPy, which releases the GIL.

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
    with ThreadPoolExecutor(len(others)) as pool:  # waits for the threads on an interrupt, too
        running = [pool.submit(call) for call in others]
        first()
    for call in running:
        call.result()
