"""Locks for threads that use the machines: one at a time, and only threads that may call MPI."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.ending import this_process

P = ParamSpec("P")
T = TypeVar("T")


class FairLock:
    """A lock that threads acquire in the order of their calls.

    Parameters
    ----------
    find_problem : callable, optional
        Returns why the calling thread may not use the machines; empty if it may.

    Examples
    --------
    >>> lock = FairLock()
    >>> lock.run(lock.check)
    Traceback (most recent call last):
        ...
    cec_mpi.errors.InputError: this thread is in the middle of a step: ...
    """

    def __init__(self, find_problem: Callable[[], str] = lambda: "") -> None:
        self._find_problem = find_problem
        self._process = os.getpid()
        self._queue: deque[_Ticket] = deque()

    def check(self) -> None:
        """Raise if the calling thread may not use the machines, or would wait for itself.

        Raises
        ------
        InputError
            The process was forked from the lock's creator, the thread may not use the machines, or
            it holds the lock or waits for it (in a callback of a step or a signal handler).
        """
        if self.is_forked:
            raise InputError(
                f"process {os.getpid()} was forked from process {self._process}, which the "
                "machines serve: use threads, or open_operator(store, None) in the new process"
            )
        if problem := self._find_problem():
            raise InputError(problem)
        thread = threading.get_ident()
        for ticket in self._queue.copy():
            if ticket.thread == thread and not ticket.is_over:
                raise InputError(
                    "this thread is in the middle of a step: code that a step calls (an "
                    "availability, a recorder, a signal handler) cannot use the operator"
                )

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one that created the lock."""
        return os.getpid() != self._process

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Acquire the lock, call a function, and return its result.

        KeyboardInterrupt may be raised at any moment; the lock is released.

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
            # The nearest earlier call ends after all before it, unless its thread was interrupted.
            for other in reversed(earlier):
                if not other.is_over:
                    with other.lock:
                        pass
            while self._queue[0] is not ticket:
                self._queue.popleft()
            return function(*args, **kwargs)
        finally:
            # Python runs signal handlers at the start and return of functions and at the end of
            # loop iterations, so none runs before the release. A context manager would have a gap.
            ticket.is_over = True
            ticket.lock.release()


class _Ticket:
    """A place in the queue.

    Attributes
    ----------
    thread : int
        Identifier of its thread.
    is_over : bool
        Whether the call has returned or was interrupted.
    lock : threading.Lock
        Released when the call is over. Only the next ticket waits for it. An interrupt may leave it
        locked, but only after `is_over` is set.
    """

    __slots__ = ("is_over", "lock", "thread")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.is_over = False
        self.lock = threading.Lock()
        self.lock.acquire()


def mpi_lock() -> FairLock:
    """Return a lock for threads that call MPI, one for all sessions if these must be serialized."""
    from mpi4py import MPI

    return (
        _shared_lock() if MPI.Query_thread() == MPI.THREAD_SERIALIZED else FairLock(thread_problem)
    )


@cache
def _shared_lock() -> FairLock:
    return FairLock(thread_problem)


def thread_problem() -> str:
    """Return why this thread may not call MPI; empty if it may."""
    if this_process.is_forked:
        return (
            "this process was forked from one that uses MPI, and cannot use MPI itself: use "
            "open_operator(store, None) here, which has all machines in this process"
        )
    from mpi4py import MPI

    if not MPI.Is_initialized():  # the caller will initialise it
        return ""
    level = MPI.Query_thread()
    if level >= MPI.THREAD_SERIALIZED or MPI.Is_thread_main():
        return ""
    names = {MPI.THREAD_SINGLE: "MPI_THREAD_SINGLE", MPI.THREAD_FUNNELED: "MPI_THREAD_FUNNELED"}
    return (
        f"MPI was started with {names.get(level, level)}, so that only its main thread may use the "
        "operator: do not set mpi4py.rc.thread_level, or call from the main thread"
    )
