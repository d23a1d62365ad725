"""Machines that are asked for again, within a limit: a broken image is not started forever."""

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
_STARTS_OF_EACH = 5  # of workers or tasks that are kept, within `START_WINDOW`
_POLL_SECONDS = 0.5


class StartLimit:
    """Counts starts, and allows a number of them within 10 minutes.

    Parameters
    ----------
    most : int
    clock : callable
        Returns seconds.

    Examples
    --------
    >>> seconds = iter([0, 10, 20, 601])
    >>> limit = StartLimit(2, clock=lambda: next(seconds))
    >>> [limit.allow_start() for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._starts: deque[float] = deque()

    def allow_start(self) -> bool:
        """Count one more start if it is allowed; returns whether it is."""
        now = self._clock()
        while self._starts and self._starts[0] < now - START_WINDOW:
            self._starts.popleft()
        if len(self._starts) >= self._most:
            return False
        self._starts.append(now)
        return True


def check_at_least_1(keep: int | None, **numbers: int) -> None:
    """Raise `InputError` if one is not a whole number of at least 1; `keep` may be None."""
    for name, number in (numbers if keep is None else {**numbers, "keep": keep}).items():
        if as_int(name, number) < 1:
            raise InputError(f"{name} {number}: expected at least 1")


@contextmanager
def keep_started(
    what: str, size: int, count_missing: Callable[[], int], start: Callable[[int], None]
) -> Iterator[None]:
    """Start what is missing, in a thread, until the end of a ``with``.

    If more than 5 starts of each are needed within 10 minutes, a note says so, and nothing is
    started any more.

    Parameters
    ----------
    what : str
        Plural of what is started, for the note.
    size : int
        How many of them should be there.
    count_missing : callable
        Returns how many are missing.
    start : callable
        Starts that many.
    """
    limit, must_stop = StartLimit(_STARTS_OF_EACH * size), threading.Event()

    def keep() -> None:
        while not must_stop.wait(_POLL_SECONDS):
            missing = count_missing()
            allowed = sum(limit.allow_start() for _ in range(missing))
            if allowed:
                start(allowed)
            if allowed < missing:
                print_note(
                    f"{_STARTS_OF_EACH * size} {what} were started within {START_WINDOW:g} s to "
                    f"keep {size}: no more are started"
                )
                return

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        must_stop.set()
        thread.join()
