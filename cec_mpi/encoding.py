"""The way in for X: encoded by one process, or by all ranks of a communicator together."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from cec_mpi import store as stores
from cec_mpi.errors import CecError, InputError
from cec_mpi.store.sources import ArraySource, open_array, shared
from cec_mpi.store.work import MEMORY, Runner

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.store import Manifest


def encode(
    source: Any,
    store: str | os.PathLike[str],
    machines: int,
    recovery: int,
    *,
    code: str = "auto",
    systematic: bool = False,
    seed: int = 0,
    dtype: str | None = None,
    scaling: str | None = None,
    shape: tuple[int, int] | None = None,
    input_dtype: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    columns: Sequence[str | int] | None = None,
    drop: Sequence[str | int] | None = None,
    target: Mapping[str | int, str | os.PathLike[str]] | None = None,
    memory: int = MEMORY,
    resume: bool = False,
    runner: Runner | None = None,
    comm: MPI.Intracomm | None = None,
) -> Manifest:
    """Encode a matrix into a new store. Collective, if there is a communicator.

    Parameters
    ----------
    source : path or array
        X, two-dimensional and real: a file or directory in a format of
        `cec_mpi.store.sources.open_source`, or whatever has a shape, a dtype and rows by slices:
        an ndarray or memmap, a dataset of h5py, an array of Zarr, Dask (computed chunk by
        chunk) or xarray, a DataFrame of pandas, a sparse matrix of SciPy (its shards are
        dense). The store keeps the names of columns if all of them are text.
    store : path
        The directory to make. Until all is on disk it says that it is incomplete.
    machines, recovery : int
        N shards, any L of which give X back.
    code : str
        A code family or ``"auto"``; see `cec_mpi.core.code.mds.make_code`.
    systematic : bool
        The first L shards are plain rows of X.
    seed : int
        For the random code families.
    dtype : {"float32", "float64"}, optional
        Of the shards; by default float32 for floats of 32 bits and less, else float64.
    scaling : {"rows", "none"}, optional
        Whether each row is divided by the power of two that brings its largest entry to [1/2, 1)
        before it is encoded, so that small rows lose nothing to large ones. It is multiplied
        again, exactly, in products and in what is decoded. By default ``"rows"``, and with
        `systematic` ``"none"``, since the first shards are rows of X then as they are.
    shape : (int, int), optional
        The source is raw binary of this shape.
    input_dtype : str, optional
        Of raw binary, by default `dtype`.
    header : bool, optional
        Of a text table: whether its first row has the names of its columns. By default it
        has when none of its cells is a number; a row of both is refused.
    delimiter : str, optional
        Of a text table: one character, or ``"tab"``, ``"semicolon"``, ``"space"`` (any white
        space). By default a comma, in ``.tsv`` a tab.
    columns, drop : sequence of str or int, optional
        Of a text table: the columns that are X, in this order (by default all), and those that
        are not. By their names, or as in a spreadsheet by their numbers from 1.
    target : mapping of str or int to path, optional
        Of a text table: columns that are not X, and the ``.npy`` files that they go to, as y
        of the tasks `ridge` and `logistic`. The files appear with the store.
    memory : int
        Bytes that each process may take above the bare interpreter, and above an array that is
        in memory.
    resume : bool
        Go on where an interrupted encode with the same arguments stopped, if there is one;
        when it came to its end, nothing is left to do. With an array nothing says whether it
        is the same as then: an interrupted encode is done anew, and a complete store refused.
    runner : Runner, optional
        Who does the work; by default the threads of this process. The bytes of the store
        do not depend on it.
    comm : mpi4py.MPI.Intracomm, optional
        In the place of a runner: all ranks call this and share the work; files, and `store`,
        have to be visible to all. Each has its own X, and their shapes and dtypes have to
        agree; that their numbers do is not checked: each row is that of one rank.

    Returns
    -------
    Manifest

    Raises
    ------
    InputError
        The source is not such a matrix or holds NaN or infinity, the store exists, the
        code would lose all digits, or there is no room. Of a store that an array was to
        become nothing is left then. All ranks raise it.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import cec_mpi
    >>> place = tempfile.TemporaryDirectory()
    >>> made = cec_mpi.encode(np.eye(4, 3), f"{place.name}/store", 3, 2)
    >>> made.rows, made.columns, made.dtype
    (4, 3, 'float64')
    >>> place.cleanup()
    """
    options: dict[str, Any] = {
        "code": code,
        "systematic": systematic,
        "seed": seed,
        "dtype": dtype,
        "scaling": scaling,
        "shape": shape,
        "input_dtype": input_dtype,
        "header": header,
        "delimiter": delimiter,
        "columns": columns,
        "drop": drop,
        "target": target,
        "memory": memory,
        "resume": resume,
    }
    if comm is None:
        return stores.encode(source, store, machines, recovery, runner=runner, **options)
    if runner is not None:
        raise InputError("encode got a runner and a communicator: expected one of them")
    from cec_mpi.processes.shared_work import run_shared
    from cec_mpi.processes.together import check_start, on_master

    check_start(comm)
    with ExitStack() as stack:
        source = _agreed(comm, source, memory, recovery)
        if isinstance(source, ArraySource):
            stack.enter_context(shared(source))
        done: list[Manifest | CecError] = []

        def body(runner: Runner) -> int:
            try:
                done.append(
                    stores.encode(source, store, machines, recovery, runner=runner, **options)
                )
            except CecError as error:
                done.append(error)
            return 0

        run_shared(comm, body)

    def outcome() -> Manifest:
        if isinstance(done[0], CecError):
            raise done[0]
        return done[0]

    return on_master(comm, outcome)


def _agreed(comm: MPI.Intracomm, source: Any, memory: int, recovery: int) -> Any:
    """Collective: X of this rank, which has to be like that of rank 0."""
    from cec_mpi.processes.failing import as_cec_error, raised_together

    problem: CecError | None = None
    found, key = "", secrets.token_hex(8)
    try:
        if isinstance(source, str | os.PathLike):
            found = os.fspath(source)
        else:
            source = open_array(source, memory, recovery)
            shape = " x ".join(map(str, source.shape))
            found = f"an array of {shape} {source.dtype.newbyteorder('=')}"
    except Exception as caught:
        problem = as_cec_error(caught)
    everyones = comm.allgather((found, problem, key))
    expected, _, key = everyones[0]
    for rank, (each, error, _) in enumerate(everyones):
        if error is not None:
            raise raised_together(comm, InputError(f"{error} (on rank {rank})"))
        if each != expected:
            problem = InputError(
                f"rank {rank} is to encode {each}, rank 0 {expected}: expected the same X on all "
                "ranks"
            )
            raise raised_together(comm, problem)
    return source.under(key) if isinstance(source, ArraySource) else source
