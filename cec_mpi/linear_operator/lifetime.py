"""Lifetime of the machines of an operator, from its first use."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.ending import exit_code_of, this_process

if TYPE_CHECKING:
    from cec_mpi.runtime.master.master import Master
    from cec_mpi.runtime.session.session import Session

_STARTING_MESSAGE = "this operator is still starting its machines, and cannot be used yet"
_CLOSED_MESSAGE = "this operator is closed: its machines have left"


class Lifetime:
    """Starts the machines of an operator on first use, and stops them once.

    They stop when `close` is called, when the operator is garbage-collected, and at the end of the
    program. A forked process does not stop the machines.

    Parameters
    ----------
    connect : callable
        Returns a context manager that connects the machines and yields their session, or None on a
        machine.
    open_store : callable
        Makes the machines of a session open the store, and returns the master.

    Attributes
    ----------
    closed : bool
        Whether the operator is closed, or is being closed.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Session | None]],
        open_store: Callable[[Session], Master],
    ) -> None:
        self.closed = False
        self._connect, self._open_store = connect, open_store
        self._session: Session | None = None
        self._master: Master | None = None
        self._exit_stack: ExitStack | None = None  # set while the machines are connected
        self._owner_pid = os.getpid()
        self._lock = threading.RLock()  # held during starts and shutdown
        self._is_starting = False

    @property
    def has_started(self) -> bool:
        """Whether the machines have ever opened the store."""
        return self._master is not None

    @property
    def session(self) -> Session:
        """The session; starts the machines if they have not started."""
        if self._master is None:
            self.start()
        assert self._session is not None
        return self._session

    @property
    def master(self) -> Master:
        """The master; starts the machines if they have not started."""
        if self._master is None:
            self.start()
        assert self._master is not None
        return self._master

    def check_open(self) -> None:
        """Raise `InputError` if the operator is closed."""
        if self.closed:
            raise InputError(_CLOSED_MESSAGE)

    def connect(self) -> Session | None:
        """Connect the machines without opening the store; return None on a machine."""
        with self._lock:
            self.check_open()
            if self._exit_stack is None:
                self._owner_pid = os.getpid()
                with ExitStack() as stack:
                    self._session = stack.enter_context(self._connect())
                    self._exit_stack = stack.pop_all()
                _close_at_exit(self)
            return self._session

    def start(self) -> None:
        """Connect the machines and make them open the store; do nothing if they have started.

        If this fails or is interrupted, the machines stop, and the next call tries again.
        """
        self.check_open()
        with self._lock:
            if self._is_starting:  # in this thread, because the lock is reentrant
                raise InputError(_STARTING_MESSAGE)
            self._is_starting = True
            try:
                session = self.connect()
                if self._master is None and session is not None:
                    self._master = self._open_store(session)
                    _close_at_exit(self)
            except BaseException as error:
                self._shut_down(error)
                raise
            finally:
                self._is_starting = False

    def close(self, error: BaseException | None = None) -> None:
        """Stop the machines.

        Parameters
        ----------
        error : BaseException, optional
            The exception that ends the operator; machines raise it as well.

        Raises
        ------
        InputError
            The machines are starting in this thread.
        """
        self.closed = True  # cancels a start in another thread
        if os.getpid() != self._owner_pid:  # a fork may have copied a lock that stays locked
            self._shut_down(error)
            return
        with self._lock:
            if self._is_starting:
                raise InputError(_STARTING_MESSAGE)
            self._shut_down(error)

    def close_when_collected(self, operator: object) -> None:
        """Close this lifetime when the operator is garbage-collected, without blocking."""
        weakref.finalize(operator, self._close_from_finalizer).atexit = False

    def _close_from_finalizer(self) -> None:
        if self._exit_stack is None:
            self.closed = True
        elif self._session is not None and self._session.has_processes:
            _thread.start_new_thread(self.close, ())  # without the locks of `threading`
        else:
            self.close()

    def _shut_down(self, error: BaseException | None) -> None:
        stack, self._exit_stack = self._exit_stack, None
        if stack is None:
            return
        if os.getpid() != self._owner_pid:
            this_process.keep_alive.append(stack)
            if isinstance(error, SystemExit):
                this_process.exit_code = exit_code_of(error)
            return
        try:
            traceback = None if error is None else error.__traceback__
            stack.__exit__(None if error is None else type(error), error, traceback)
        finally:
            _open_lifetimes.discard(self)


_open_lifetimes: set[Lifetime] = set()  # with connected machines


def _close_at_exit(lifetime: Lifetime) -> None:
    """Close a lifetime at exit, before MPI and ZeroMQ: the last registered handler runs first."""
    _open_lifetimes.add(lifetime)
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    """Close all open lifetimes, with the uncaught exception of the program, if any."""
    error = getattr(sys, "last_value", None)
    for lifetime in list(_open_lifetimes):
        try:
            lifetime.close(error)
        except BaseException as close_error:
            if close_error is not error:
                raise
