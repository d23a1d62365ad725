"""Turns of threads, which use the machines one at a time in the order of their calls.

MPI may allow only some threads of a process to call it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.ending import is_forked

P = ParamSpec("P")
T = TypeVar("T")


class FairLock:
    """Gives threads their turns, first come, first served.

    Parameters
    ----------
    thread_problem : callable, optional
        Returns why the calling thread may not have a turn; empty if it may.

    Examples
    --------
    >>> turns = FairLock()
    >>> turns.run(turns.check)
    Traceback (most recent call last):
        ...
    cec_mpi.errors.InputError: this thread is in the middle of a step: ...
    """

    def __init__(self, thread_problem: Callable[[], str] = lambda: "") -> None:
        self._refusal = thread_problem
        self._process = os.getpid()
        self._queue: deque[_Ticket] = deque()

    def check(self) -> None:
        """Raise if the calling thread may not have a turn, or would wait for itself.

        Raises
        ------
        InputError
            The process was forked from the one that has the turns, or the thread is refused, has
            its turn already, or waits for it: in what a step calls, or in a signal handler.
        """
        if self.is_forked:
            raise InputError(
                f"process {os.getpid()} was forked from process {self._process}, which the "
                "machines serve: use threads, or open_operator(store, None) in the new process"
            )
        if problem := self._refusal():
            raise InputError(problem)
        thread = threading.get_ident()
        for ticket in self._queue.copy():
            if ticket.thread == thread and not ticket.over:
                raise InputError(
                    "this thread is in the middle of a step: what a step calls (an availability, a "
                    "recorder, a signal handler) cannot use the operator"
                )

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that has the turns."""
        return os.getpid() != self._process

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Wait for a turn, and call a function in it; returns its result.

        An interrupt at any moment ends or withdraws the turn.

        Raises
        ------
        InputError
            See `check`.
        """
        self.check()
        ticket = _Ticket()
        try:
            self._queue.append(ticket)
            earlier = list(self._queue.copy())
            del earlier[earlier.index(ticket) :]
            # The last ticket first: if it was withdrawn, those before it must be waited for.
            for before in reversed(earlier):
                if not before.over:
                    with before.turn_lock:
                        pass
            while self._queue[0] is not ticket:
                self._queue.popleft()
            return work(*args, **kwargs)
        finally:
            # Python runs handlers of signals when a function begins or has returned, and when
            # a loop goes back: not before the release. A context manager would have a gap.
            ticket.over = True
            ticket.turn_lock.release()


class _Ticket:
    """A place in the queue.

    Attributes
    ----------
    thread : int
        The thread of the ticket.
    over : bool
        Whether the turn is over or was withdrawn.
    turn_lock : threading.Lock
        Released when the turn is over. Only the next ticket waits for it; an interrupt may leave it
        locked, but not before the turn is over.
    """

    __slots__ = ("over", "thread", "turn_lock")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.over = False
        self.turn_lock = threading.Lock()
        self.turn_lock.acquire()


def mpi_lock() -> FairLock:
    """Return a lock for the threads that may call MPI; all sessions share it if MPI needs that."""
    from mpi4py import MPI

    return (
        _shared_lock() if MPI.Query_thread() == MPI.THREAD_SERIALIZED else FairLock(thread_problem)
    )


@cache
def _shared_lock() -> FairLock:
    return FairLock(thread_problem)


def thread_problem() -> str:
    """Return why this thread may not call MPI; empty if it may."""
    if is_forked():
        return (
            "this process was forked from one that uses MPI, and cannot use MPI itself: use "
            "open_operator(store, None) here, which has all machines in this process"
        )
    from mpi4py import MPI

    if not MPI.Is_initialized():  # the caller starts it
        return ""
    level = MPI.Query_thread()
    if level >= MPI.THREAD_SERIALIZED or MPI.Is_thread_main():
        return ""
    names = {MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE", MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED"}
    return (
        f"MPI was started with {names.get(level, level)}, so that only its main thread may use the "
        "operator: do not set mpi4py.rc.thread_level, or call from the main thread"
    )
