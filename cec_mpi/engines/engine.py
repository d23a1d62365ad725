"""Engines, which start machines of an elastic run on other computers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile
from cec_mpi.text import shorten

Engine = Callable[[ConnectionFile], AbstractContextManager[Any]]
"""Starts machines that join a run; they leave at the end of the context."""


def as_engine(engine: Any) -> Engine:
    """Convert a Dask client to an engine; return an engine unchanged.

    Raises
    ------
    InputError
        `engine` is neither.
    """
    if callable(engine) and not isinstance(engine, type):
        return cast(Engine, engine)
    if type(engine).__module__.partition(".")[0] != "distributed":
        raise InputError(
            f"engine {shorten(engine)}: expected a Client of dask.distributed, or a pool of "
            "cec_mpi.engines.dask or cec_mpi.engines.ray"
        )
    from cec_mpi.engines.dask import pool

    return pool(engine)
