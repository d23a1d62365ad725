"""Opening an operator: on a store, with a communicator or with machines that join."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from cec_mpi.errors import InputError
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.runtime.options.elastic import elastic_options
from cec_mpi.runtime.options.option import rename_flags_in_errors, with_keywords
from cec_mpi.runtime.options.removed import removed_option_hint
from cec_mpi.runtime.options.session import GROUPS, SessionOptions
from cec_mpi.runtime.processes.ending import (
    leave_now,
    mark_shared_error,
    mpi_is_running,
    wait_for_rank_0,
)
from cec_mpi.runtime.processes.launcher import launcher_of_ranks, rank_of_launcher
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.gathering import static_session
from cec_mpi.runtime.wire.sockets.connection_file import SCRATCH_PREFIX
from cec_mpi.store.cache import check_cache_location
from cec_mpi.store.files.paths import as_path, node_directory
from cec_mpi.store.reader import open_store as read_store
from cec_mpi.text import shorten

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.linear_operator.coded_operator import CodedOperator
    from cec_mpi.runtime.master.master import Master
    from cec_mpi.runtime.session.session import Session

_NONE_USE_ERRORS = AttributeError, TypeError, ValueError  # what uses None raises; NumPy the last


class _NotOpenError(InputError, AttributeError):
    """An attribute of an operator that is not open, so that `hasattr` is False."""


class OperatorContext:
    """The return value of `open_operator` if several processes call it: opens X in a ``with``.

    Rank 0 gets a `CodedOperator`, and the other ranks serve it and get None. Any other use, such as
    a product, raises `InputError`.

    Parameters
    ----------
    lifetime : Lifetime
    make_operator : callable
        Returns the operator on rank 0.
    call : str
        The call in words, for messages.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator of the call.
    """

    __array_ufunc__ = None  # so that NumPy calls the operators of this class

    def __init__(
        self,
        lifetime: Lifetime,
        make_operator: Callable[[], CodedOperator],
        call: str,
        comm: MPI.Intracomm | None = None,
    ) -> None:
        self._lifetime, self._make_operator = lifetime, make_operator
        self._call, self._comm = call, comm
        self._is_used = self._is_server = False

    def start(self) -> CodedOperator | None:
        """Open the operator without a ``with``, until ``X.close()`` or the end of the program.

        Returns
        -------
        CodedOperator or None
            The operator on rank 0. The other ranks serve inside this call until rank 0 closes the
            operator or ends, and get None.

        Raises
        ------
        CecError
            The operator cannot be opened; see `open_operator`.
        """
        if self._is_used:
            raise InputError(f"{self._call} was opened before: call it again for another operator")
        if self._comm is not None:
            from cec_mpi.runtime.session.turns import thread_problem

            if problem := thread_problem():
                raise InputError(problem)
        self._is_used = True
        self._lifetime.start()
        self._is_server = not self._lifetime.has_started
        if self._is_server:
            self._lifetime.close()
            return None
        return self._make_operator()

    def __enter__(self) -> CodedOperator | None:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_server and isinstance(error, _NONE_USE_ERRORS):
            rank = self._comm.rank if self._comm is not None else rank_of_launcher()
            error.add_note(
                f"rank {rank} is a machine, where X is None: put everything that uses X under "
                "`if X is not None:`"
            )
        self._lifetime.close(error)

    def _raise_unopened(self, *_: Any, **__: Any) -> NoReturn:
        self._raise_unopened_as(InputError)

    def _raise_unopened_as(self, kind: type[InputError]) -> NoReturn:
        raise kind(
            f"{self._call} was used without with: expected `with {self._call} as X:` and "
            "`if X is not None:` around what uses X"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python, SciPy and notebooks ask for these
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # SciPy would only say "type not understood" if hasattr(X, "shape") were False.
        self._raise_unopened_as(InputError if name == "shape" else _NotOpenError)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._raise_unopened()
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__")] + ["start"]

    def __repr__(self) -> str:
        if not self._is_used:
            return f"<{self._call}: opens in a with, or with .start()>"
        return f"<{self._call}: {'closed' if self._lifetime.closed else 'open'}>"

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{self._call} cannot be pickled or copied: its machines serve this process only; "
            "call it again for another operator"
        )

    __array__ = __call__ = __len__ = __iter__ = __getitem__ = __contains__ = _raise_unopened
    __matmul__ = __rmatmul__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _raise_unopened
    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = _raise_unopened


_KEYWORDS = {field.name for field in fields(SessionOptions)}


@with_keywords(*GROUPS, SessionOptions)
def open_operator(
    store: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    recorder: Recorder | None = None,
    **options: Any,
) -> CodedOperator | OperatorContext:
    """Open X of a store as a linear operator, served by machines.

    With a communicator the call is collective: rank 0 gets X, and the other ranks serve it in
    lockstep. With ``accept``, ``local`` or another elastic option, machines are processes without
    MPI, which may be late or lost, leave and join. Under a launcher every process makes this call:
    rank 0 gets X, and the others serve it. Without a communicator or an elastic option all machines
    are in this process.

    The machines start with the first product, with ``X.start()`` or in a ``with``; if X has a
    connection file, it listens for them at once. They leave with ``X.close()``, at the end of the
    ``with`` or of the program, and when X is deleted. If several processes make the call, X opens
    in a ``with``, or with ``X = open_operator(...).start()``.

    Parameters
    ----------
    store : path
        A store that `cec_mpi.encode` has made, visible to all ranks.
    comm : mpi4py.MPI.Intracomm or None
        N + 1 ranks: the master and one for each machine. With None and without elastic options all
        machines are in this process, and results are the same up to the last digits.
    recorder : Recorder, optional
        Receives a record of each step.
    **options

    Returns
    -------
    CodedOperator or OperatorContext
        X as a `scipy.sparse.linalg.LinearOperator`. If several processes make the call, a context
        that gives X on rank 0. The other ranks serve inside the ``with`` line, and get None when
        rank 0 has left its block.

    Raises
    ------
    CecError
        The options do not fit the store or the number of ranks, or a shard cannot be opened. Or
        the ranks serve another operator already, were started by the launcher of another MPI, or
        run different versions of this package.
    AttributeError, TypeError, ValueError
        A machine, where X is None, uses X in the block without ``if X is not None``. If the program
        does not catch the exception, it is printed once, and the job ends.
    Exception
        If rank 0 leaves its block with an exception, all ranks raise it. If the program does not
        catch it, rank 0 prints it.

    Warns
    -----
    SlowWarning
        More ranks or threads than cores, on rank 0.

    Notes
    -----
    Threads may share the operator: it makes their products one after the other, in the order of
    the calls. A forked process cannot use it, and it cannot be pickled.

    Examples
    --------
    All machines in one process; two of the three are enough:

    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> place = tempfile.TemporaryDirectory()
    >>> np.save(f"{place.name}/X.npy", np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> store = cec_mpi.encode(f"{place.name}/X.npy", f"{place.name}/store", 3, 2)
    >>> X = cec_mpi.open_operator(f"{place.name}/store")
    >>> X.available = {1, 3}
    >>> (X @ np.ones(4)).round(6)
    array([1., 2., 3., 4.])
    >>> X.close()
    >>> place.cleanup()
    """
    given = "".join(f", {name}={shorten(value)}" for name, value in options.items())
    call = f"open_operator({str(store)!r}, {'None' if comm is None else 'comm'}{given})"

    known = {name: options[name] for name in options if name in _KEYWORDS}
    chosen = SessionOptions(**known)
    several = comm is not None or (chosen.is_elastic and launcher_of_ranks() is not None)

    def check_keywords() -> None:
        for name in options:
            if name not in known:
                instead = removed_option_hint(name)
                raise InputError(
                    f"open_operator got an unexpected keyword argument {name!r}{instead}"
                )

    def gather() -> AbstractContextManager[Session | None]:
        if chosen.is_elastic:
            return _gather_elastic(comm, chosen, lifetime.check_open)
        return static_session(comm, options=chosen)

    def open_store(session: Session) -> Master:
        with rename_flags_in_errors(*GROUPS, SessionOptions):
            check_keywords()
            return session.open(store, chosen, recorder or Recorder())

    def make_operator() -> CodedOperator:
        from cec_mpi.linear_operator.coded_operator import CodedOperator

        found = read_store(node_directory(as_path(store)))
        with rename_flags_in_errors(*GROUPS, SessionOptions):
            chosen.checked(found.manifest)
            if chosen.cache is not None:
                check_cache_location(node_directory(chosen.cache), {"store": found.path})
        return CodedOperator(lifetime, found.manifest, store)

    lifetime = Lifetime(gather, open_store)
    if several:
        return OperatorContext(lifetime, make_operator, call, comm)
    check_keywords()
    if chosen.is_elastic:
        _check_machines(chosen)
    X = make_operator()
    lifetime.close_when_collected(X)
    if chosen.accept is not None or chosen.listen is not None:
        lifetime.gather()
    return X


def _check_machines(options: SessionOptions) -> None:
    """Raise if an elastic operator has no machines, or cannot have them here."""
    options.check_listening()
    listens = options.accept is not None or options.listen is not None
    if not listens and options.local is None:
        raise InputError(
            "an elastic operator needs machines: expected accept=FILE, listen='HOST:PORT' or "
            "local=N too"
        )
    if launcher_of_ranks() is not None and mpi_is_running():
        raise InputError(
            "an elastic operator under a launcher needs a program that has not started MPI "
            "(MPI_Finalize may hang after a loss): put `import mpi4py; mpi4py.rc.initialize = "
            "False` before `from mpi4py import MPI`, or do not import it"
        )


@contextmanager
def _gather_elastic(
    comm: MPI.Intracomm | None, options: SessionOptions, check_cancelled: Callable[[], None]
) -> Iterator[Session | None]:
    """Listen for machines, and start those of this computer; None on a machine."""
    if comm is not None:
        *names, last = (field.name for field in elastic_options())
        raise mark_shared_error(
            comm.rank,
            InputError(
                "a communicator makes a lockstep run, and these options make an elastic run, which "
                "needs no communicator: expected open_operator(store, accept=FILE), or none of "
                f"{', '.join(names)} and {last}"
            ),
        )
    from cec_mpi.runtime.session.elastic import elastic, serve_launched

    launcher = launcher_of_ranks()
    try:
        _check_machines(options)
    except InputError as error:
        if launcher is None:
            raise
        wait_for_rank_0(launcher)
        raise mark_shared_error(launcher.rank, error) from None
    with ExitStack() as kept:
        if options.accept is None:  # only machines of this computer need the file
            directory = kept.enter_context(TemporaryDirectory(prefix=SCRATCH_PREFIX))
            file = Path(directory) / "connection.json"
        else:
            file = as_path(options.accept).absolute()
        if launcher is not None and launcher.rank:
            code = serve_launched(options, file)
            if code:
                leave_now(code)
            yield None
            return
        yield kept.enter_context(elastic(options, file, check_cancelled=check_cancelled))
