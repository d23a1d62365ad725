"""The way in: a store and a communicator become an operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.linear_operator.entrance import Entrance
from cec_mpi.options.elastic import elastic_options, if_removed
from cec_mpi.options.session import SessionOptions, with_keywords
from cec_mpi.processes.ending import leave_now
from cec_mpi.processes.failing import let_rank_0_print, raised_together, shown_by_rank_0
from cec_mpi.processes.library import mpi_is_initialized
from cec_mpi.records.recorder import Recorder
from cec_mpi.session.gathering import gathered

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.linear_operator.coded_operator import CodedOperator
    from cec_mpi.session.session import Session

_KEYWORDS = {each.name for each in fields(SessionOptions)}


@with_keywords
def open_operator(
    store: str | os.PathLike[str],
    comm: MPI.Intracomm | None = None,
    *,
    recorder: Recorder | None = None,
    **options: Any,
) -> Entrance[CodedOperator]:
    """Open X of a store as a linear operator, served by machines.

    With a communicator this is collective: X is on rank 0, served by the other ranks in lockstep.
    With ``accept``, ``local`` or another elastic option, machines are processes without MPI, which
    may be late, lost, leave and join. Under a launcher every process comes here then, rank 0 gets
    X, and the others serve. Otherwise all machines are in this process.

    It opens in a ``with``, or with ``X = open_operator(...).start()``, as in a notebook.
    ``X.close()`` closes it, or the end of the ``with``, or the end of the program.

    Parameters
    ----------
    store : path
        A store that `cec_mpi.encode` made, visible to all ranks.
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine: N + 1 ranks. With None all machines are in
        this process, with the same results up to the last digits, unless an option says otherwise.
    recorder : Recorder, optional
        Receives a record of each step.
    **options

    Returns
    -------
    Entrance
        In the ``with``, a `CodedOperator` on rank 0: a `scipy.sparse.linalg.LinearOperator`.
        The other ranks serve inside the ``with`` line, and get None when rank 0 has left its
        block. Without the ``with``, whatever would be done with X raises `InputError`.

    Raises
    ------
    CecError
        The options do not fit the store or the number of ranks, a shard cannot be opened,
        the ranks serve another operator already, were started by the launcher of another
        MPI, or run different versions of this package.
    AttributeError, TypeError, ValueError
        On a machine, where X is None, what uses it in the block fails without ``if X is not
        None``: where nobody catches that, it is printed once, and the job ends.
    Exception
        However rank 0 leaves its block, all ranks leave it: whatever it raises there is
        raised on all ranks, and where nobody catches it printed by rank 0 alone.

    Warns
    -----
    SlowWarning
        More ranks or threads than cores, on rank 0.

    Notes
    -----
    Threads may share the operator: their products are made one after the other, in the
    order in which they come. A forked process, and one that it is pickled for, cannot.

    Examples
    --------
    All machines in one process; two of the three are enough:

    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> place = tempfile.TemporaryDirectory()
    >>> np.save(f"{place.name}/X.npy", np.diag([1.0, 2.0, 3.0, 4.0]))
    >>> store = cec_mpi.encode(f"{place.name}/X.npy", f"{place.name}/store", 3, 2)
    >>> with cec_mpi.open_operator(f"{place.name}/store", None) as X:
    ...     X.available = {1, 3}
    ...     (X @ np.ones(4)).round(6)
    array([1., 2., 3., 4.])
    >>> place.cleanup()
    """
    shown = f"open_operator({os.fspath(store)!r}, {'None' if comm is None else 'comm'})"

    @contextmanager
    def opened(close: Callable[[], None]) -> Iterator[CodedOperator | None]:
        known = {name: options[name] for name in options if name in _KEYWORDS}
        chosen = SessionOptions(**known)
        with _gathered(comm, chosen) as session:
            if session is None:
                yield None
                return
            for name in options:
                if name not in known:
                    raise InputError(
                        f"open_operator got an unexpected keyword argument {name!r}"
                        f"{if_removed(name)}"
                    )
            from cec_mpi.linear_operator.coded_operator import CodedOperator

            master = session.open(store, chosen, recorder or Recorder())
            yield CodedOperator(session, master, close)

    return Entrance(opened, shown, comm)


@contextmanager
def _gathered(comm: MPI.Intracomm | None, options: SessionOptions) -> Iterator[Session | None]:
    """The machines that the options ask for; None on one of them."""
    if not options.is_elastic:
        with gathered(comm, options=options) as session:
            yield session
        return
    if comm is not None:
        *names, last = (each.name for each in elastic_options())
        raise raised_together(
            comm,
            InputError(
                "a communicator means lockstep, and these options an elastic run, without MPI: "
                f"expected open_operator(store, accept=FILE), or none of {', '.join(names)} and "
                f"{last}"
            ),
        )
    from cec_mpi.session.elastic import elastic, launched, serve_launched

    launcher = launched()
    try:
        options.check_listening()
        if options.accept is None and options.listen is None and options.local is None:
            raise InputError(
                "an elastic operator needs machines: expected accept=FILE, listen='HOST:PORT' or "
                "local=N too"
            )
        if launcher is not None and options.accept is None and options.listen is None:
            raise InputError("local under a launcher: expected accept=FILE too")
        if launcher is not None and mpi_is_initialized():
            raise InputError(
                "an elastic operator under a launcher needs a program that has not started MPI "
                "(MPI_Finalize may hang after a loss): put `import mpi4py; mpi4py.rc.initialize = "
                "False` before `from mpi4py import MPI`, or do not import it"
            )
    except InputError as error:
        if launcher is None:
            raise
        let_rank_0_print(launcher)
        raise shown_by_rank_0(launcher.rank, error) from None
    with ExitStack() as kept:
        if options.accept is None:  # only machines of this computer need the file
            directory = kept.enter_context(TemporaryDirectory(prefix="cec_mpi-"))
            file = Path(directory) / "connection.json"
        else:
            file = Path(options.accept).absolute()
        if launcher is not None and launcher.rank:
            code = serve_launched(options, file)
            if code:
                leave_now(code)
            yield None
            return
        yield kept.enter_context(elastic(options, file))
