"""Whose turn it is: threads use the machines one at a time, in the order in which they come."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from cec_mpi.errors import InputError


class Turns:
    """Gives threads their turn, first come, first served; a ``with`` is one turn.

    Parameters
    ----------
    refusal : callable, optional
        Says why the thread that calls it may not have a turn at all; empty if it may.

    Examples
    --------
    >>> turns = Turns()
    >>> with turns:
    ...     turns.check()
    Traceback (most recent call last):
        ...
    cec_mpi.errors.InputError: this thread is in the middle of a step: ...
    """

    def __init__(self, refusal: Callable[[], str] = lambda: "") -> None:
        self._refusal = refusal
        self._process = os.getpid()
        self._last: _Ticket | None = None
        self._drawing = threading.RLock()  # a signal's handler may draw while its thread does

    def check(self) -> None:
        """Refuse a caller who may not have a turn, or who would wait for itself.

        Raises
        ------
        InputError
            In a process that was forked from the one that has the turns, in a thread that is
            refused, and in one that has its turn or waits for it: what a step calls, or a
            handler of signals.
        """
        if self.elsewhere:
            raise InputError(
                f"process {os.getpid()} was forked from process {self._process}, which alone the "
                "machines serve: use threads, or open_operator(store, None) in the new process"
            )
        if problem := self._refusal():
            raise InputError(problem)
        ticket = self._last
        while ticket is not None:
            if ticket.thread == threading.get_ident() and not ticket.over:
                raise InputError(
                    "this thread is in the middle of a step: what a step calls, as a function "
                    "for availability, a recorder or a handler of signals, cannot use its operator"
                )
            ticket = ticket.before

    @property
    def elsewhere(self) -> bool:
        """Whether this process was forked from the one that has the turns."""
        return os.getpid() != self._process

    def __enter__(self) -> None:
        self.check()
        ticket = _Ticket()
        try:
            with self._drawing:
                ticket.before, self._last = self._last, ticket
            while ticket.before is not None:
                with ticket.before.until_over:
                    pass
                # Where it was withdrawn, the one before it is waited for.
                ticket.before = ticket.before.before
        except BaseException:
            ticket.end()
            raise
        self._mine = ticket

    def __exit__(self, *_: object) -> None:
        self._mine.end()


class Turn:
    """One turn, which is over at once where there is nothing to be had any more.

    Parameters
    ----------
    turns : Turns
    check : callable
        Called when the turn has come; what it raises ends it.
    """

    __slots__ = ("_check", "_turns")

    def __init__(self, turns: Turns, check: Callable[[], None]) -> None:
        self._turns, self._check = turns, check

    def __enter__(self) -> None:
        self._turns.__enter__()
        try:
            self._check()
        except BaseException:
            self._turns.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self._turns.__exit__()


class _Ticket:
    """A place in the queue.

    Attributes
    ----------
    thread : int
        Whose it is.
    before : _Ticket or None
        The one that has to be over first; None once it is.
    over : bool
        Whether the turn is over, or was withdrawn.
    until_over : threading.Lock
        Can be had as soon as it is.
    """

    __slots__ = ("before", "over", "thread", "until_over")

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.before: _Ticket | None = None
        self.over = False
        self.until_over = threading.Lock()
        self.until_over.acquire()

    def end(self) -> None:
        """Let the next one have its turn."""
        self.over = True
        self.until_over.release()
