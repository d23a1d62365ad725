"""Copying the shards of each machine to its node."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.errors import CecError, InputError
from cec_mpi.processes.failing import as_cec_error
from cec_mpi.processes.together import meet, on_master
from cec_mpi.processes.waiting import Patience, wait_for
from cec_mpi.session.session import check_ranks
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.staging import stage_shard
from cec_mpi.store.work import Watch

if TYPE_CHECKING:
    from mpi4py import MPI

_MASTER = 0
_DONE = 1  # tag: bytes of its shard that a rank has copied; None when it is done
_SECONDS_BETWEEN = 0.2  # two messages of a rank

Staged = list[tuple[str, int, int]]
"""Host, machine and bytes copied (0 if the copy existed)."""


def stage_together(
    comm: MPI.Intracomm,
    store: str,
    pattern: str,
    machines: tuple[int, ...] | None,
    watch: Watch | None = None,
) -> Staged:
    """Collective: copy the shards of each rank's machine to the rank's node.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    store, pattern : str
        The store, and the directory on each node.
    machines : tuple of int or None
        Only these.
    watch : callable, optional
        Called with the progress, on rank 0.

    Raises
    ------
    CecError
        On all ranks.
    """

    def prepare() -> tuple[Manifest, list[int]]:
        manifest = open_store(store).manifest
        chosen = _checked(manifest, machines)
        check_ranks(comm.size, tuple(chosen), manifest.code.machines)
        return manifest, chosen

    manifest, chosen = on_master(comm, prepare)
    meet(comm)
    copied, problem = 0, None
    machine = chosen[comm.rank - 1] if comm.rank else 0
    if machine:
        sent: list[MPI.Request] = []
        due = 0.0

        def tell(done: int) -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + _SECONDS_BETWEEN
                sent.append(comm.isend(done, _MASTER, _DONE))

        try:
            copied = stage_shard(Path(store), manifest, machine, pattern, tell)
        except (CecError, OSError) as error:
            problem = as_cec_error(error)
        sent.append(comm.isend(None, _MASTER, _DONE))
        wait_for(sent)
    else:
        _follow(comm, [manifest.shard_bytes] * len(chosen), watch)
    found = comm.allgather((socket.gethostname(), machine, copied, problem))[1:]
    for host, number, _, failed in found:
        if failed is not None:
            raise type(failed)(f"machine {number} on {host}: {failed}")
    return [(host, number, size) for host, number, size, _ in found]


def _follow(comm: MPI.Intracomm, sizes: list[int], watch: Watch | None) -> None:
    """Receive the progress of all other ranks until each has finished."""
    from mpi4py import MPI

    done = dict.fromkeys(range(1, comm.size), 0)
    working = set(done)
    patience = Patience()
    while working:
        status = MPI.Status()
        message = comm.improbe(tag=_DONE, status=status)
        if message is None:
            patience.pause()
            continue
        patience = Patience()
        rank, found = status.Get_source(), message.recv()
        if found is None:
            working.discard(rank)
            found = sizes[rank - 1]
        done[rank] = found
        if watch is not None:
            watch(sum(done.values()), sum(sizes))


def stage_here(
    store: str,
    pattern: str,
    machines: tuple[int, ...] | None,
    watch: Watch | None = None,
) -> Staged:
    """Copy the shards of all machines to this node; the options are those of `stage_together`."""
    manifest = open_store(store).manifest
    host = socket.gethostname()
    chosen = _checked(manifest, machines)
    total, before = len(chosen) * manifest.shard_bytes, 0
    staged = []
    for machine in chosen:

        def tell(done: int, before: int = before) -> None:
            if watch is not None:
                watch(before + done, total)

        staged.append((host, machine, stage_shard(Path(store), manifest, machine, pattern, tell)))
        before += manifest.shard_bytes
    return staged


def _checked(manifest: Manifest, machines: tuple[int, ...] | None) -> list[int]:
    total = manifest.code.machines
    chosen = list(machines or range(1, total + 1))
    if chosen[-1] > total:
        raise InputError(f"machine {chosen[-1]}: expected machines from 1 to {total}")
    return chosen
