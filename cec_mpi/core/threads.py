"""Long numerical work on several cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

PARALLEL_THRESHOLD = 1 << 19
"""Numbers from which on work on them takes longer than starting threads, which takes 0.1 ms."""


def run_in_threads(calls: Sequence[Callable[[], None]]) -> None:
    """Call functions at the same time, the first one in this thread; return when all have ended.

    The functions must spend their time in NumPy, which releases the interpreter's lock.

    Examples
    --------
    >>> found = []
    >>> run_in_threads([lambda: found.append(1), lambda: found.append(2)])
    >>> sorted(found)
    [1, 2]
    """
    first, *others = calls
    if not others:
        first()
        return
    with ThreadPoolExecutor(len(others)) as pool:  # also an interrupt waits for their ends
        running = [pool.submit(call) for call in others]
        first()
    for call in running:
        call.result()
