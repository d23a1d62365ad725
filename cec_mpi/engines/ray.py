"""Machines in tasks of Ray, which starts them again when they are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

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

_CANCEL_SECONDS = 10.0  # for tasks to end, before their processes are killed


def machines(
    n: int,
    connection: Connection,
    per_task: int = 1,
    *,
    join: Mapping[str, Any] | None = None,
    **options: Any,
) -> ExitStack:
    """Start machines of a run as tasks of Ray.

    Parameters
    ----------
    n : int
    connection : path or str
        The connection file of the run, which nodes need not see, or ``HOST:PORT`` with the key of
        the run in the environment variable CEC_MPI_KEY.
    per_task, join, **options
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
    return pool(n, per_task, join=join, **options)(read_connection(connection))


def pool(
    n: int, per_task: int = 1, *, join: Mapping[str, Any] | None = None, **options: Any
) -> Callable[[ConnectionFile], ExitStack]:
    """Return an engine for `cec_mpi.open_operator`: machines in tasks of Ray.

    If the process or the node of a task dies, Ray starts the task again, without limit. A machine
    whose process is killed is started again in its task, at most 5 times in 10 minutes.

    Parameters
    ----------
    n : int
        Number of tasks. Their nodes need this package, and the store at the same path.
    per_task : int
        Largest number of machines of each task, in one process.
    join : dict, optional
        Keywords of `cec_mpi.join`, such as ``{"memory": 64e9}``. By default machines have as many
        threads as the task has CPUs, and ``notice`` is ``"auto"``.
    **options
        Those of `ray.remote` for tasks, such as ``num_cpus``, ``resources`` and
        ``scheduling_strategy``.

    Raises
    ------
    InputError
        Ray is not installed or was not started, or an option is out of range.
    """
    ray = _load_ray()
    for name, number in (("n", n), ("per_task", per_task)):
        if as_int(name, number) < 1:
            raise InputError(f"{name} {number}: expected at least 1")
    if not ray.is_initialized():
        raise InputError("machines in tasks of Ray need a cluster: expected ray.init() before")
    threads = max(1, int(options.get("num_cpus") or 1))
    given = {"machines": per_task, "threads": threads, "notice": "auto", **check_join_options(join)}
    try:
        task = ray.remote(**{"name": "cec_mpi machine", "max_retries": -1, **options})(_serve)
    except (TypeError, ValueError) as error:
        raise InputError(f"options of Ray: {error}") from None

    def start(connection: ConnectionFile) -> ExitStack:
        with ExitStack() as kept:
            tasks: list[Any] = []
            kept.callback(_cancel, tasks)
            # The keys go to a worker within the message that starts the task: Ray might write an
            # object that `ray.put` makes to a disk.
            tasks.extend(task.remote(connection, given) for _ in range(n))
            return kept.pop_all()

    return start


def _load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("this needs Ray: pip install 'cec_mpi[ray]'") from None
    return ray


def _serve(connection: ConnectionFile, options: dict[str, Any]) -> int:
    return run_machines(connection, options, threading.Event())


def _cancel(tasks: Sequence[Any]) -> None:
    """Make tasks end: their machines leave first."""
    ray = _load_ray()
    if not ray.is_initialized():  # Ray has ended them
        return
    for force in (False, True):
        for task in tasks:
            ray.cancel(task, force=force)
        _, tasks = ray.wait(tasks, num_returns=len(tasks), timeout=_CANCEL_SECONDS)
        if not tasks:
            return
