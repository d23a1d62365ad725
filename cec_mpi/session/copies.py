"""Each machine's shard copied to the node that it runs on."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.errors import CecError, InputError
from cec_mpi.processes.meeting import meet
from cec_mpi.processes.together import as_cec_error, on_master
from cec_mpi.session.stores import check_ranks
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.reader import open_store
from cec_mpi.store.staging import stage_shard

if TYPE_CHECKING:
    from mpi4py import MPI

Staged = list[tuple[str, int, int]]
"""Host, machine and bytes copied (0: the copy was there)."""


def stage_together(
    comm: MPI.Intracomm, store: str, pattern: str, machines: tuple[int, ...] | None
) -> Staged:
    """Collective: copy the shard of each rank's machine to the rank's node.

    Raises
    ------
    CecError
        On all ranks alike.
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
        try:
            copied = stage_shard(Path(store), manifest, machine, pattern)
        except (CecError, OSError) as error:
            problem = as_cec_error(error)
    found = comm.allgather((socket.gethostname(), machine, copied, problem))[1:]
    for host, number, _, failed in found:
        if failed is not None:
            raise type(failed)(f"machine {number} on {host}: {failed}")
    return [(host, number, size) for host, number, size, _ in found]


def stage_here(store: str, pattern: str, machines: tuple[int, ...] | None) -> Staged:
    """Copy the shards of all machines to this node."""
    manifest = open_store(store).manifest
    host = socket.gethostname()
    return [
        (host, machine, stage_shard(Path(store), manifest, machine, pattern))
        for machine in _checked(manifest, machines)
    ]


def _checked(manifest: Manifest, machines: tuple[int, ...] | None) -> list[int]:
    total = manifest.code.machines
    chosen = list(machines or range(1, total + 1))
    if chosen[-1] > total:
        raise InputError(f"machine {chosen[-1]}: the store has machines 1..{total}")
    return chosen
