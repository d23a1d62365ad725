"""Open an operator: in one process, with a communicator or with machines that join."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from cec_mpi.engines.engine import Engine, as_engine
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.runtime.options.elastic import elastic_options
from cec_mpi.runtime.options.option import rename_flags_in_errors, with_keywords
from cec_mpi.runtime.options.removed import removed_option_hint
from cec_mpi.runtime.options.session import GROUPS, SessionOptions
from cec_mpi.runtime.processes.ending import (
    exit_now,
    is_mpi_running,
    mark_shared_error,
    wait_for_rank_0,
)
from cec_mpi.runtime.processes.launcher import detect_rank, launcher_of_ranks
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.metrics import check_metrics
from cec_mpi.runtime.session.static import static_session
from cec_mpi.runtime.wire.sockets.connection_file import SCRATCH_PREFIX
from cec_mpi.store.cache import check_cache_location
from cec_mpi.store.files.paths import as_path, expand_host
from cec_mpi.store.reader import open_store
from cec_mpi.text import shorten

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.linear_operator.coded_operator import CodedOperator
    from cec_mpi.runtime.master.master import Master
    from cec_mpi.runtime.session.session import Session

_ERRORS_IF_X_IS_NONE = AttributeError, TypeError, ValueError  # raised by Python or NumPy


class _NotOpenError(InputError, AttributeError):
    """An attribute is used before the operator is open; `hasattr` returns False."""


class OperatorContext:
    """Context manager that `open_operator` returns if several processes call it.

    In its ``with`` statement rank 0 gets a `CodedOperator`. The other ranks serve it, and then get
    None. Any use other than ``with`` or `start`, such as a product, raises `InputError`.

    Parameters
    ----------
    lifetime : Lifetime
    make_operator : callable
        Returns the operator on rank 0.
    call : str
        Text of the call, for messages.
    comm : mpi4py.MPI.Intracomm or None
        Communicator of the call.
    """

    __array_ufunc__ = None  # NumPy defers binary operations to this class

    def __init__(
        self,
        lifetime: Lifetime,
        make_operator: Callable[[], CodedOperator],
        call: str,
        comm: MPI.Intracomm | None,
    ) -> None:
        self._lifetime, self._make_operator = lifetime, make_operator
        self._call, self._comm = call, comm
        self._is_used = self._is_machine = False

    def start(self) -> CodedOperator | None:
        """Open the operator without ``with``, until ``X.close()`` or the end of the program.

        Returns
        -------
        CodedOperator or None
            The operator on rank 0. The other ranks serve it in this call until rank 0 closes the
            operator or exits, and then get None.

        Raises
        ------
        CecError
            The operator cannot be opened; see `open_operator`.
        """
        if self._is_used:
            raise InputError(f"{self._call} was already opened: call open_operator again")
        if self._comm is not None:
            from cec_mpi.runtime.session.locks import thread_problem

            if problem := thread_problem():
                raise InputError(problem)
        self._is_used = True
        self._lifetime.start()
        self._is_machine = not self._lifetime.has_started
        if self._is_machine:
            self._lifetime.close()
            return None
        return self._make_operator()

    def __enter__(self) -> CodedOperator | None:
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_machine and isinstance(error, _ERRORS_IF_X_IS_NONE):
            rank = self._comm.rank if self._comm is not None else detect_rank()
            error.add_note(
                f"rank {rank} is a machine, where X is None: put all code that uses X under "
                "`if X is not None:`"
            )
        self._lifetime.close(error)

    def _raise_unopened(self, *_: Any, **__: Any) -> NoReturn:
        self._raise_unopened_as(InputError)

    def _raise_unopened_as(self, error_type: type[InputError]) -> NoReturn:
        raise error_type(
            f"{self._call} was used without with: expected `with {self._call} as X:`, and "
            "`if X is not None:` around the code that uses X"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python, SciPy and notebooks look these up
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        # If hasattr(X, "shape") were False, SciPy would only report "type not understood".
        self._raise_unopened_as(InputError if name == "shape" else _NotOpenError)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            self._raise_unopened()
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__")] + ["start"]

    def __repr__(self) -> str:
        if not self._is_used:
            return f"<{self._call}: not open yet (use with or .start())>"
        return f"<{self._call}: {'closed' if self._lifetime.closed else 'open'}>"

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{self._call} cannot be pickled or copied, because its machines serve only this "
            "process: call open_operator again"
        )

    __array__ = __call__ = __len__ = __iter__ = __getitem__ = __contains__ = _raise_unopened
    __matmul__ = __rmatmul__ = __mul__ = __rmul__ = __truediv__ = __pow__ = _raise_unopened
    __add__ = __radd__ = __sub__ = __rsub__ = __neg__ = _raise_unopened


_SESSION_KEYWORDS = {field.name for field in fields(SessionOptions)}


@with_keywords(*GROUPS, SessionOptions)
def open_operator(
    store: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    recorder: Recorder | None = None,
    engine: Any = None,
    **options: Any,
) -> CodedOperator | OperatorContext:
    """Open X of a store as a linear operator, served by machines.

    With a communicator the call is collective: rank 0 gets X, and the other ranks serve it in
    lockstep. With ``accept``, ``local`` or another elastic option, machines are processes without
    MPI, which may be late, be lost, leave and join. Under a launcher every process makes this call:
    rank 0 gets X, and the others serve it. Without a communicator or an elastic option all machines
    are in this process.

    The machines start with the first product, with ``X.start()`` or in a ``with`` statement; with
    ``accept`` or ``listen``, X listens for machines at once. They stop with ``X.close()``, at the
    end of the ``with`` statement or of the program, and when X is deleted. If several processes
    make the call, use a ``with`` statement or ``X = open_operator(...).start()``.

    Parameters
    ----------
    store : path
        A store created by `cec_mpi.encode`, visible to all ranks.
    comm : mpi4py.MPI.Intracomm or None
        N + 1 ranks: the master, and one for each machine. With None and without elastic options all
        machines are in this process; the results are the same up to rounding.
    recorder : Recorder, optional
        Receives a record of each step.
    engine : distributed.Client or callable, optional
        Starts machines that leave when X is closed: on the workers of a Dask client, or by
        `cec_mpi.engines.dask.pool` or `cec_mpi.engines.ray.pool`. Then X is elastic, and waits
        while too few machines are available.
    **options

    Returns
    -------
    CodedOperator or OperatorContext
        X as a `scipy.sparse.linalg.LinearOperator`. If several processes make the call, a context
        manager that returns X on rank 0. The other ranks serve X on entry, and get None when rank 0
        has left the ``with`` statement.

    Raises
    ------
    CecError
        The options do not fit the store or the number of ranks; a shard cannot be opened; or the
        ranks already serve another operator, were started by the launcher of another MPI, or run
        different versions of this package.
    AttributeError, TypeError, ValueError
        A machine, where X is None, uses X without ``if X is not None``. If the program does not
        catch the exception, it is printed once, and the job ends.
    Exception
        If rank 0 leaves the ``with`` statement with an exception, all ranks raise it. If the
        program does not catch it, rank 0 prints it.

    Warns
    -----
    SlowWarning
        On rank 0, if there are more ranks or threads than cores.

    Notes
    -----
    Threads may share the operator, which computes their products one after the other, in the order
    of the calls. A forked process cannot use it, and it cannot be pickled.

    Examples
    --------
    All three machines are in one process, and any two suffice:

    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> directory = tempfile.TemporaryDirectory()
    >>> np.save(f"{directory.name}/X.npy", np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> store = cec_mpi.encode(f"{directory.name}/X.npy", f"{directory.name}/store", 3, 2)
    >>> X = cec_mpi.open_operator(f"{directory.name}/store")
    >>> X.available = {1, 3}
    >>> (X @ np.ones(4)).round(6)
    array([1., 2., 3., 4.])
    >>> X.close()
    >>> directory.cleanup()
    """
    if comm is not None and not hasattr(comm, "Get_group"):
        error = InputError(
            f"comm {shorten(comm)}: expected a communicator of mpi4py, or local=N for N processes "
            "on this computer"
        )
        raise mark_shared_error(detect_rank(), error)
    keywords = "".join(f", {name}={shorten(value)}" for name, value in options.items())
    call = f"open_operator({str(store)!r}, {'None' if comm is None else 'comm'}{keywords})"

    session_keywords = {name: options[name] for name in options if name in _SESSION_KEYWORDS}
    session_options = SessionOptions(**session_keywords)
    if engine is not None:
        _check_single_process(comm)
        engine = as_engine(engine)
        if "device" in options and session_options.local is None:
            raise InputError(
                "device: this process starts no machines; expected join={'device': ...} in the "
                "call of cec_mpi.engines.dask.pool or cec_mpi.engines.ray.pool"
            )
        session_options = replace(session_options, elastic=True, wait=True)
    has_several_processes = comm is not None or (
        session_options.is_elastic and launcher_of_ranks() is not None
    )

    def check_keywords() -> None:
        for name in options:
            if name not in session_keywords:
                hint = removed_option_hint(name)
                raise InputError(f"open_operator got an unexpected keyword argument {name!r}{hint}")

    def connect() -> AbstractContextManager[Session | None]:
        if session_options.is_elastic:
            return _connect_elastic(comm, session_options, lifetime.check_open, engine)
        return static_session(comm, options=session_options)

    def open_on_machines(session: Session) -> Master:
        with rename_flags_in_errors(*GROUPS, SessionOptions):
            check_keywords()
            return session.open(store, session_options, recorder or Recorder())

    def make_operator() -> CodedOperator:
        from cec_mpi.linear_operator.coded_operator import CodedOperator

        path = expand_host(as_path(store))
        manifest = open_store(path).manifest
        with rename_flags_in_errors(*GROUPS, SessionOptions):
            session_options.validate(manifest)
            if session_options.cache is not None:
                check_cache_location(expand_host(session_options.cache), {"store": path})
            if session_options.metrics is not None:
                check_metrics(session_options.metrics)
        return CodedOperator(lifetime, manifest, store)

    lifetime = Lifetime(connect, open_on_machines)
    if has_several_processes:
        return OperatorContext(lifetime, make_operator, call, comm)
    check_keywords()
    if session_options.is_elastic:
        _check_machines(session_options, engine)
    X = make_operator()
    lifetime.close_when_collected(X)
    if session_options.accept is not None or session_options.listen is not None:
        lifetime.connect()
    return X


def _check_single_process(comm: MPI.Intracomm | None) -> None:
    """Raise if an operator with an engine has a communicator or a launcher."""
    launcher = launcher_of_ranks()
    if comm is None and launcher is None:
        return
    error = InputError(
        "engine: it starts all machines; expected one process without a communicator and without "
        "a launcher"
    )
    rank = comm.rank if comm is not None else detect_rank()
    raise mark_shared_error(rank, error)


def _check_machines(options: SessionOptions, engine: Engine | None) -> None:
    """Raise if an elastic operator has no machines, or MPI prevents them from joining."""
    options.check_listening()
    is_listening = options.accept is not None or options.listen is not None
    if not is_listening and options.local is None and engine is None:
        raise InputError(
            "an elastic operator needs machines: expected accept=FILE, listen='HOST:PORT', "
            "local=N or engine=CLIENT"
        )
    if launcher_of_ranks() is not None and is_mpi_running():
        raise InputError(
            "an elastic operator under a launcher needs a program that has not started MPI "
            "(MPI_Finalize may hang after a loss): put `import mpi4py; mpi4py.rc.initialize = "
            "False` before `from mpi4py import MPI`, or do not import it"
        )


@contextmanager
def _connect_elastic(
    comm: MPI.Intracomm | None,
    options: SessionOptions,
    check_cancelled: Callable[[], None],
    engine: Engine | None,
) -> Iterator[Session | None]:
    """Connect the machines of an elastic operator; yield its session, or None on a machine."""
    if comm is not None:
        *names, last = (field.name for field in elastic_options())
        raise mark_shared_error(
            comm.rank,
            InputError(
                "comm starts a lockstep run, and cannot be combined with options of elastic runs: "
                "expected open_operator(store, accept=FILE) without a communicator, or none of "
                f"{', '.join(names)} and {last}"
            ),
        )
    from cec_mpi.runtime.session.elastic import elastic_session, serve_launched_rank

    launcher = launcher_of_ranks()
    try:
        _check_machines(options, engine)
    except InputError as error:
        if launcher is None:
            raise
        wait_for_rank_0(launcher)
        raise mark_shared_error(launcher.rank, error) from None
    with ExitStack() as stack:
        if options.accept is None:  # only machines on this computer read the file
            directory = stack.enter_context(TemporaryDirectory(prefix=SCRATCH_PREFIX))
            connection_file = Path(directory) / "connection.json"
        else:
            connection_file = as_path(options.accept).absolute()
        if launcher is not None and launcher.rank:
            code = serve_launched_rank(options, connection_file)
            if code:
                exit_now(code)
            yield None
            return
        yield stack.enter_context(
            elastic_session(options, connection_file, check_cancelled, engine=engine)
        )
