"""What stands before an operator: it opens in a ``with``, or by hand, and can do nothing else."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from cec_mpi.errors import InputError
from cec_mpi.processes.ending import (
    ALL_TURNS,
    leave_forks_without_mpi,
    note_exit_status,
    takes_the_word,
)
from cec_mpi.processes.failing import raised_apart, shown_by_rank_0
from cec_mpi.processes.launcher import rank_of_launcher

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")  # an operator

_OF_NONE = AttributeError, TypeError, ValueError  # what uses None raises; NumPy the last
_left_behind: list[Any] = []  # by forked processes: nothing of it may end there


class Entrance(Generic[T]):
    """What `open_operator` and ``X.open`` give: an operator for a ``with``.

    Without the ``with``, whatever would be done with an operator raises `InputError`.

    Parameters
    ----------
    opening : callable
        Gets what closes the operator, and gives the context in which it is open; None there
        on a machine.
    call : str
        How it was called, for people.
    comm : mpi4py.MPI.Intracomm, optional
        Of the ranks that made the call.
    """

    __array_ufunc__ = None  # NumPy leaves products with it to it

    def __init__(
        self,
        opening: Callable[[Callable[[], None]], AbstractContextManager[T | None]],
        call: str,
        comm: MPI.Intracomm | None = None,
    ) -> None:
        self._opening: Callable[[Callable[[], None]], Any] | None = opening
        self._context: AbstractContextManager[T | None] | None = None
        self._call = call
        self._comm = comm
        self._process = 0
        self._serves = False

    def start(self) -> T | None:
        """Open the operator without a ``with``, as in a notebook, until ``X.close()``.

        Returns
        -------
        operator or None
            As in the ``with``: the other ranks serve in here until rank 0 closes it, or ends.

        Raises
        ------
        CecError
            As `open_operator`.
        """
        X = self._open()
        if X is None:
            self._leave(None)
        elif self._comm is not None:
            atexit.register(self._close_at_exit)
        return X

    def __enter__(self) -> T | None:
        return self._open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._serves and isinstance(error, _OF_NONE):
            self._say_what_none_is(error)
        return self._leave(error)

    def _say_what_none_is(self, error: Exception) -> None:
        """Have an error on a machine printed once, with what most often brings it about."""
        rank = self._comm.rank if self._comm is not None else rank_of_launcher()
        error.add_note(
            f"rank {rank} is a machine, on which X is None: expected all that uses X below "
            "`if X is not None:`"
        )
        if self._comm is not None:
            raised_apart(rank - 1, error)
            return
        speaks = takes_the_word(rank)
        if speaks:  # and has the word until the others have had their turn
            atexit.register(time.sleep, ALL_TURNS)
        shown_by_rank_0(not speaks, error)

    def _close(self) -> None:
        atexit.unregister(self._close_at_exit)
        self._leave(None)

    def _open(self) -> T | None:
        if self._opening is None:
            self._refuse(f"{self._call} was opened before: call it again for another operator")
        if self._comm is not None:
            from cec_mpi.session.callers import refusal

            if problem := refusal():
                self._refuse(problem)
        opening, self._opening = self._opening, None
        self._process = os.getpid()
        context = opening(self._close)
        X: T | None = context.__enter__()
        self._context, self._serves = context, X is None
        if self._comm is not None:
            leave_forks_without_mpi()
        return X

    def _leave(self, error: BaseException | None) -> bool | None:
        context, self._context = self._context, None
        if context is None:
            return None
        if os.getpid() != self._process:
            _left_behind.append(context)
            if isinstance(error, SystemExit):
                note_exit_status(error.code)
            return None
        if error is None:
            return context.__exit__(None, None, None)
        return context.__exit__(type(error), error, error.__traceback__)

    def _close_at_exit(self) -> None:
        """Let the machines go, with what nobody caught on rank 0."""
        error = getattr(sys, "last_value", None)
        try:
            self._leave(error)
        except BaseException as raised:
            if raised is not error:
                raise

    def _refuse(self, text: str) -> NoReturn:
        error = InputError(text)
        raise error if self._comm is None else raised_apart(self._comm.rank, error)

    def _use(self, *_: Any, **__: Any) -> NoReturn:
        call = self._call
        at_first = "" if self._comm is None else " and `if X is not None:`"
        self._refuse(
            f"{call} was used without with: expected `with {call} as X:`{at_first} around what "
            f"uses X, or `X = {call}.start()`, as in a notebook, and `X.close()` in the end"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for by Python, SciPy and notebooks, to see what it is
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._use()

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._use()
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__")] + ["start"]

    def __repr__(self) -> str:
        if self._opening is not None:
            return f"<{self._call}: opens in a with, or with .start()>"
        return f"<{self._call}: {'closed' if self._context is None else 'open'}>"

    def __reduce__(self) -> NoReturn:
        self._refuse(
            f"{self._call} cannot be pickled or copied: its machines serve this process alone; "
            "call it again for another operator"
        )

    __array__ = __call__ = __len__ = __iter__ = __getitem__ = __contains__ = _use
    __matmul__ = __rmatmul__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = _use
