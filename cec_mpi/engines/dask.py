"""Machines beside the workers of a cluster of dask.distributed."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

try:
    from distributed import Client, Worker, WorkerPlugin
except ImportError:
    raise ImportError(
        "cec_mpi.engines.dask needs dask.distributed: pip install 'cec_mpi[dask]'"
    ) from None

from cec_mpi.engines.machine_process import (
    Connection,
    check_join_options,
    read_connection,
    run_machines,
)
from cec_mpi.errors import InputError
from cec_mpi.runtime.options.option import as_int
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile

__all__ = ["machines", "pool"]


def machines(
    client: Client,
    connection: Connection,
    per_worker: int = 1,
    *,
    join: Mapping[str, Any] | None = None,
) -> ExitStack:
    """Start machines of a run beside the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    connection : path or str
        The connection file of the run, which workers need not see, or ``HOST:PORT`` with the key of
        the run in the environment variable CEC_MPI_KEY.
    per_worker, join
        As for `pool`.

    Returns
    -------
    contextlib.ExitStack
        The machines leave at the end of a ``with``, or when its method `close` is called.

    Raises
    ------
    InputError
        As for `pool`, or there is no such connection.
    """
    return pool(client, per_worker, join=join)(read_connection(connection))


def pool(
    client: Client, per_worker: int = 1, *, join: Mapping[str, Any] | None = None
) -> Callable[[ConnectionFile], ExitStack]:
    """Return an engine for `cec_mpi.open_operator`: machines beside the workers of a cluster.

    Each worker carries machines, also one that the cluster adds later, or that its nanny starts
    again. They leave when the worker is closed or retired, and end when it is killed. A machine
    whose process is killed is started again, at most 5 times in 10 minutes.

    Parameters
    ----------
    client : distributed.Client
        Its workers need this package, and the store at the same path.
    per_worker : int
        Largest number of machines of each worker, in one process.
    join : dict, optional
        Keywords of `cec_mpi.join`, such as ``{"memory": 64e9}``. By default machines have as many
        threads as their worker, and ``notice`` is ``"auto"``.

    Raises
    ------
    InputError
        The client is asynchronous, or an option is out of range.
    """
    if not isinstance(client, Client) or client.asynchronous:
        raise InputError(f"client {client!r}: expected a Client that is not asynchronous")
    if as_int("per_worker", per_worker) < 1:
        raise InputError(f"per_worker {per_worker}: expected at least 1")
    options = {"machines": per_worker, "notice": "auto", **check_join_options(join)}

    def start(connection: ConnectionFile) -> ExitStack:
        plugin, name = _Machines(connection, options), f"cec_mpi-{uuid.uuid4()}"
        with ExitStack() as kept:
            kept.callback(_unregister, client, name)
            _register(client, plugin, name)
            return kept.pop_all()

    return start


def _register(client: Client, plugin: WorkerPlugin, name: str) -> None:
    try:
        client.register_plugin(plugin, name)
    except OSError:  # a worker has ended meanwhile; the others have the plugin
        client.scheduler_info()  # raises if the scheduler is gone


def _unregister(client: Client, name: str) -> None:
    if client.status == "closed":
        return
    with suppress(OSError):  # a worker has ended meanwhile, or the scheduler with all workers
        client.unregister_worker_plugin(name)  # type: ignore[no-untyped-call]


class _Machines(WorkerPlugin):
    """Carries machines beside a worker: Dask sends it, with the keys, to each worker."""

    def __init__(self, connection: ConnectionFile, options: dict[str, Any]) -> None:
        self._connection, self._options = connection, options

    def setup(self, worker: Worker) -> None:
        """Start the process of the machines."""
        self._must_stop = threading.Event()
        options = {"threads": worker.state.nthreads, **self._options}
        given = self._connection, options, self._must_stop
        self._thread = threading.Thread(target=run_machines, args=given, daemon=True)
        self._thread.start()

    async def teardown(self, worker: Worker) -> None:
        """Make the machines leave."""
        self._must_stop.set()
        await asyncio.to_thread(self._thread.join)
