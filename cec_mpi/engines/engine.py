"""What starts machines of an elastic run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile
from cec_mpi.text import shorten

Engine = Callable[[ConnectionFile], AbstractContextManager[Any]]
"""Starts machines of the run at these addresses, which leave at the end of the context."""


def as_engine(given: Any) -> Engine:
    """Return the engine that a client of Dask stands for, or the engine itself.

    Raises
    ------
    InputError
        It is neither.
    """
    if callable(given) and not isinstance(given, type):
        engine: Engine = given
        return engine
    if type(given).__module__.partition(".")[0] != "distributed":
        raise InputError(
            f"engine {shorten(given)}: expected a Client of dask.distributed, or a pool of "
            "cec_mpi.engines.dask or cec_mpi.engines.ray"
        )
    from cec_mpi.engines.dask import pool

    return pool(given)
