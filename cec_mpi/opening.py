"""The way in: a store and a communicator become an operator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.records import Recorder
from cec_mpi.runtime.gathering import gathered
from cec_mpi.runtime.options import SessionOptions

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.operator import CodedOperator

__all__ = ["open_operator"]


@contextmanager
def open_operator(
    store: str | os.PathLike[str],
    comm: MPI.Intracomm | None,
    *,
    recorder: Recorder | None = None,
    **options: Any,
) -> Iterator[CodedOperator | None]:
    """Collective: X of a store as a linear operator on rank 0, served by the other ranks.

    Parameters
    ----------
    store : path
        A store that `cec_mpi.encode` made, visible to all ranks.
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine: N + 1 ranks. With None all machines are in
        this process, with the same results up to the last digits.
    recorder : Recorder, optional
        Receives a record of each step.
    **options
        The attributes of `SessionOptions`, among them ``availability`` and ``speeds``.

    Yields
    ------
    CodedOperator or None
        On rank 0 a `scipy.sparse.linalg.LinearOperator`. The other ranks serve inside the
        ``with`` line, and get None when rank 0 has left its block.

    Raises
    ------
    CecError
        The options do not fit the store or the number of ranks, a shard cannot be opened,
        the ranks serve another operator already, were started by the launcher of another
        MPI, or run different versions of this package.
    Exception
        However rank 0 leaves its block, all ranks leave it: whatever it raises there is
        raised on all ranks, and where nobody catches it printed by rank 0 alone.

    Warns
    -----
    SlowWarning
        More ranks or threads than cores, on rank 0.

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
    with gathered(comm, options=options) as session:
        if session is None:
            yield None
            return
        from cec_mpi.operator import CodedOperator

        master = session.open(store, _session_options(options), recorder or Recorder())
        yield CodedOperator(session, master)


def _session_options(options: dict[str, Any]) -> SessionOptions:
    try:
        return SessionOptions(**options)
    except TypeError as error:
        raise InputError(str(error).replace("SessionOptions.__init__()", "open_operator")) from None
