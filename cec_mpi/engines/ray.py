"""Machines in Ray tasks; Ray restarts lost tasks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

from cec_mpi.engines.machine_process import (
    FINAL_CODES,
    ConnectionSource,
    check_join_options,
    read_connection,
    run_machines,
)
from cec_mpi.engines.replacement import check_counts, replace_lost
from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.connection_file import ConnectionFile

__all__ = ["machines", "pool"]

_CANCEL_SECONDS = 10.0  # for tasks to end, before their processes are killed


def machines(
    tasks: int,
    connection: ConnectionSource,
    per_task: int = 1,
    *,
    keep: int | None = None,
    join: Mapping[str, Any] | None = None,
    **options: Any,
) -> ExitStack:
    """Start machines of a run as Ray tasks.

    Parameters
    ----------
    tasks : int
        Number of tasks, each with at most `per_task` machines.
    connection : path or str
        The connection file of the run (not needed on the nodes), or ``HOST:PORT`` with the key of
        the run in the environment variable CEC_MPI_KEY.
    per_task, keep, join, **options
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
    return pool(tasks, per_task, keep=keep, join=join, **options)(read_connection(connection))


def pool(
    tasks: int,
    per_task: int = 1,
    *,
    keep: int | None = None,
    join: Mapping[str, Any] | None = None,
    **options: Any,
) -> Callable[[ConnectionFile], ExitStack]:
    """Return an engine for `cec_mpi.open_operator` with machines in Ray tasks.

    If the process or the node of a task dies, Ray restarts the task, without limit. If the child
    process that runs the machines is killed, the task restarts it: at most 5 starts in 10 minutes.

    Parameters
    ----------
    tasks : int
        Number of tasks. Their nodes need this package, and the store at the same path.
    per_task : int
        Maximum number of machines in each task, in one process.
    keep : int, optional
        Number of machines to keep. Ray then restarts no tasks; tasks that end, even after a notice
        of preemption, are replaced, at most ``5 * ceil(keep / per_task)`` times in 10 minutes.
    join : dict, optional
        Keywords of `cec_mpi.join`, such as ``{"memory": 64e9}``. By default machines have as many
        threads as the task has CPUs, and ``notice`` is ``"auto"``.
    **options
        Options of `ray.remote` for tasks, such as ``num_cpus``, ``resources`` and
        ``scheduling_strategy``.

    Raises
    ------
    InputError
        Ray is not installed or was not started, or an option is out of range.
    """
    ray = _load_ray()
    check_counts(keep=keep, tasks=tasks, per_task=per_task)
    if keep is not None and keep > tasks * per_task:
        raise InputError(
            f"keep {keep}: expected at most {tasks * per_task}, the machines of all tasks"
        )
    if not ray.is_initialized():
        raise InputError("machines in tasks of Ray need a cluster: call ray.init() first")
    defaults = {"name": "cec_mpi machine", "max_retries": -1 if keep is None else 0}
    join_options = check_join_options(join)
    try:
        threads = max(1, int(options.get("num_cpus") or 1))
        task = ray.remote(**{**defaults, **options})(_serve)
    except (TypeError, ValueError) as error:
        raise InputError(f"options of Ray: {error}") from None
    machine_options = {"machines": per_task, "threads": threads, "notice": "auto", **join_options}

    def start(connection: ConnectionFile) -> ExitStack:
        with ExitStack() as stack:
            refs: list[Any] = []
            stack.callback(_cancel, refs)
            # Pass the keys, in `connection`, as arguments: Ray may write `ray.put` objects to disk.
            refs.extend(task.remote(connection, machine_options) for _ in range(tasks))
            if keep is not None:
                start_task = partial(task.remote, connection, machine_options)
                size = math.ceil(keep / per_task)
                stack.enter_context(_keep_tasks(refs, size, start_task))
            return stack.pop_all()

    return start


def _keep_tasks(
    refs: list[Any], size: int, start_task: Callable[[], Any]
) -> AbstractContextManager[None]:
    """Replace tasks that have ended, unless a restart cannot help (`FINAL_CODES`)."""
    ray = _load_ray()
    tasks_to_keep = size

    def count_missing() -> int:
        nonlocal tasks_to_keep
        if not ray.is_initialized():  # `ray.wait` would initialise it
            return 0
        ended, refs[:] = ray.wait(refs, num_returns=len(refs), timeout=0) if refs else ([], [])
        for ref in ended:
            try:
                tasks_to_keep -= ray.get(ref) in FINAL_CODES
            except ray.exceptions.RayError:  # its process or node has died
                continue
        return max(0, tasks_to_keep - len(refs))

    def start(missing: int) -> None:
        refs.extend(start_task() for _ in range(missing))

    return replace_lost("tasks", size, count_missing, start)


def _load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError("cec_mpi.engines.ray needs Ray: pip install 'cec_mpi[ray]'") from None
    return ray


def _serve(connection: ConnectionFile, options: dict[str, Any]) -> int:
    return run_machines(connection, options, threading.Event())


def _cancel(refs: Sequence[Any]) -> None:
    """Cancel tasks; kill those that have not ended after `_CANCEL_SECONDS`."""
    ray = _load_ray()
    for force in (False, True):
        if not refs or not ray.is_initialized():  # Ray has ended them
            return
        for ref in refs:
            ray.cancel(ref, force=force)
        _, refs = ray.wait(refs, num_returns=len(refs), timeout=_CANCEL_SECONDS)
