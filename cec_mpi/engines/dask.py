"""Machines on the workers of a cluster of dask.distributed."""

from __future__ import annotations

import asyncio
import math
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Any

try:
    from distributed import Client, Status, Worker, WorkerPlugin
except ImportError:
    raise ImportError(
        "cec_mpi.engines.dask needs dask.distributed: pip install 'cec_mpi[dask]'"
    ) from None

from cec_mpi.engines.machine_process import (
    ConnectionSource,
    check_join_options,
    read_connection,
    run_machines,
)
from cec_mpi.engines.replacement import check_counts, replace_lost
from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile
from cec_mpi.text.terminal import print_note

__all__ = ["machines", "pool"]

_SCALE_SECONDS = 60.0  # for a cluster to request workers after a call of `scale`


def machines(
    client: Client,
    connection: ConnectionSource,
    per_worker: int = 1,
    *,
    keep: int | None = None,
    join: Mapping[str, Any] | None = None,
) -> ExitStack:
    """Start machines of a run on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
    connection : path or str
        The connection file of the run (not needed by the workers), or ``HOST:PORT`` with the key of
        the run in the environment variable CEC_MPI_KEY.
    per_worker, keep, join
        As for `pool`.

    Returns
    -------
    contextlib.ExitStack
        The machines leave at the end of a ``with`` block, or when its method `close` is called.

    Raises
    ------
    InputError
        As for `pool`, or the connection is invalid.
    """
    return pool(client, per_worker, keep=keep, join=join)(read_connection(connection))


def pool(
    client: Client,
    per_worker: int = 1,
    *,
    keep: int | None = None,
    join: Mapping[str, Any] | None = None,
) -> Callable[[ConnectionFile], ExitStack]:
    """Return an engine for `cec_mpi.open_operator` with machines on the workers of a cluster.

    Workers that the cluster adds or restarts also get machines. Machines leave when their worker is
    closed or retired, and end when it is killed. If the child process that runs the
    machines is killed, it is restarted: at most 5 starts in 10 minutes.

    Parameters
    ----------
    client : distributed.Client
        Its workers need this package, and the store at the same path.
    per_worker : int
        Maximum number of machines on each worker, in one process.
    keep : int, optional
        Number of machines to keep. Lost workers are replaced by scaling the cluster of the client,
        at most 5 times for each worker in 10 minutes. An adaptive cluster has a `minimum` instead.
    join : dict, optional
        Keywords of `cec_mpi.join`, such as ``{"memory": 64e9}``. By default machines have as many
        threads as their worker, and ``notice`` is ``"auto"``.

    Raises
    ------
    InputError
        The client is asynchronous or closed, an option is out of range, or the client has no
        cluster to scale.
    """
    if not isinstance(client, Client) or client.asynchronous:
        raise InputError(f"client {client!r}: expected a Client that is not asynchronous")
    if client.status != "running":
        raise InputError(f"client {client!r} is {client.status}: expected a connected client")
    check_counts(keep=keep, per_worker=per_worker)
    if keep is not None and not hasattr(client.cluster, "requested"):
        raise InputError(f"keep {keep}: expected Client(cluster) with a cluster that can be scaled")
    options = {"machines": per_worker, "notice": "auto", **check_join_options(join)}

    def start(connection: ConnectionFile) -> ExitStack:
        plugin, name = _MachinePlugin(connection, options), f"cec_mpi-{uuid.uuid4()}"
        with ExitStack() as stack:
            stack.callback(_unregister, client, name)
            _register(client, plugin, name)
            if keep is not None:
                stack.enter_context(_keep_workers(client.cluster, math.ceil(keep / per_worker)))
            return stack.pop_all()

    return start


def _register(client: Client, plugin: WorkerPlugin, name: str) -> None:
    try:
        client.register_plugin(plugin, name)
    except OSError:  # a worker has ended; all other workers have the plugin
        client.scheduler_info()  # raises if the scheduler is gone


def _unregister(client: Client, name: str) -> None:
    if client.status == "closed":
        return
    # A worker or the scheduler may have ended, or workers may have been restarted.
    with suppress(OSError, KeyError):
        client.unregister_worker_plugin(name)  # type: ignore[no-untyped-call]


def _keep_workers(cluster: Any, size: int) -> AbstractContextManager[None]:
    """Scale a cluster up when it has lost workers."""
    next_check = 0.0  # until then, the cluster may still be requesting workers

    def count_missing() -> int:
        nonlocal next_check
        if cluster.status is not Status.running:
            return 0
        missing = max(0, size - len(cluster.requested))
        next_check = next_check if missing else 0.0
        return missing if time.monotonic() >= next_check else 0

    def start(missing: int) -> None:
        nonlocal next_check
        next_check = time.monotonic() + _SCALE_SECONDS
        cluster.scale(len(cluster.requested) + missing)

    return replace_lost("workers", size, count_missing, start)


class _MachinePlugin(WorkerPlugin):
    """Runs machines on a worker; Dask sends it, with the keys of the run, to each worker."""

    def __init__(self, connection: ConnectionFile, options: dict[str, Any]) -> None:
        self._connection, self._options = connection, options

    def setup(self, worker: Worker) -> None:
        """Start the process of the machines."""
        self._must_stop = threading.Event()
        options = {"threads": worker.state.nthreads, **self._options}

        def report(reason: str) -> None:
            print_note(reason)
            worker.log_event("warn", f"{worker.address}: {reason}")  # all clients show it

        arguments = self._connection, options, self._must_stop, report
        self._thread = threading.Thread(target=run_machines, args=arguments, daemon=True)
        self._thread.start()

    async def teardown(self, worker: Worker) -> None:
        """Make the machines leave."""
        self._must_stop.set()
        await asyncio.to_thread(self._thread.join)
