"""Replacement of lost workers and tasks, limited in case they can never start."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cec_mpi.errors import InputError
from cec_mpi.runtime.options.option import as_int
from cec_mpi.text.terminal import print_note

START_WINDOW = 600.0  # seconds in which starts are counted
_STARTS_PER_ITEM = 5  # of a worker or task, within `START_WINDOW`
_POLL_SECONDS = 0.5


class StartLimit:
    """Limits the number of starts within 10 minutes.

    Parameters
    ----------
    max_starts : int
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> seconds = iter([0, 10, 20, 601])
    >>> limit = StartLimit(2, clock=lambda: next(seconds))
    >>> [limit.allow_start() for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(self, max_starts: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_starts, self._clock = max_starts, clock
        self._starts: deque[float] = deque()

    def allow_start(self) -> bool:
        """Count a start and return True, unless the limit is reached."""
        now = self._clock()
        while self._starts and self._starts[0] < now - START_WINDOW:
            self._starts.popleft()
        if len(self._starts) >= self._max_starts:
            return False
        self._starts.append(now)
        return True


def check_counts(**counts: int | None) -> None:
    """Raise `InputError` unless each count is a positive integer or None."""
    for name, count in counts.items():
        if count is not None and as_int(name, count) < 1:
            raise InputError(f"{name} {count}: expected at least 1")


@contextmanager
def replace_lost(
    noun: str, size: int, count_missing: Callable[[], int], start: Callable[[int], None]
) -> Iterator[None]:
    """Replace lost workers or tasks in a thread, until the ``with`` block ends.

    If more than ``5 * size`` starts are needed within 10 minutes, the thread prints a note and
    stops.

    Parameters
    ----------
    noun : str
        Plural noun for the note, such as ``workers``.
    size : int
        Number of workers or tasks to keep.
    count_missing : callable
        Returns the number of missing workers or tasks.
    start : callable
        Starts this number of workers or tasks.
    """
    limit, must_stop = StartLimit(_STARTS_PER_ITEM * size), threading.Event()

    def replace() -> None:
        while not must_stop.wait(_POLL_SECONDS):
            missing = count_missing()
            allowed = sum(limit.allow_start() for _ in range(missing))
            if allowed:
                start(allowed)
            if allowed < missing:
                print_note(
                    f"{_STARTS_PER_ITEM * size} {noun} were started within {START_WINDOW:g} s to "
                    f"keep {size}: no more are started"
                )
                return

    thread = threading.Thread(target=replace, daemon=True)
    thread.start()
    try:
        yield
    finally:
        must_stop.set()
        thread.join()
