"""A long vector to ranks on several nodes, of which the master sends each number only once.

MPI's own Bcast may send all of it to one rank after the other. Here each machine gets a part from
the master, and passes it on to the other machines while the master sends the next parts. On one
node, where nothing is faster than that all copy from the same memory, it is a Bcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from cec_mpi.processes.waiting import wait_for
from cec_mpi.wire.collective.packets import broadcast
from cec_mpi.wire.orders import MASTER

_LEAST_PART = 1 << 13  # bytes
_MOST_ROUNDS = 16


def spread(comm: MPI.Intracomm, array: NDArray[Any], several_nodes: bool) -> None:
    """Collective: from the master to all.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    array : ndarray
        Contiguous, of the same size and dtype on all ranks; overwritten but on the master.
    several_nodes : bool
        The same on all ranks.
    """
    numbers, machines = array.reshape(-1), comm.size - 1
    rounds = min(_MOST_ROUNDS, numbers.nbytes // (machines * _LEAST_PART))
    if machines == 1 or not several_nodes or not rounds:
        broadcast(comm, array, array.nbytes)
        return
    cuts = cut(numbers.size, machines, rounds)
    if comm.rank == MASTER:
        nothing = [numbers[:0], (np.zeros_like(cuts[0][0]), np.zeros_like(cuts[0][0]))]
        scattered = [comm.Iscatterv([numbers, parts], nothing[0], root=MASTER) for parts in cuts]
        passed_on = [comm.Ialltoallv(nothing, nothing) for _ in cuts]
        wait_for([*scattered, *passed_on], array.nbytes)
        return
    mine = [np.empty(counts[comm.rank], numbers.dtype) for counts, _ in cuts]
    scattered = [comm.Iscatterv(None, part, root=MASTER) for part in mine]
    passed_on = []
    for came, part, (counts, starts) in zip(scattered, mine, cuts, strict=True):
        wait_for([came], array.nbytes)
        sent = np.full_like(counts, part.size)
        sent[MASTER] = 0
        passed_on.append(
            comm.Ialltoallv([part, (sent, np.zeros_like(sent))], [numbers, (counts, starts)])
        )
    wait_for(passed_on, array.nbytes)


def cut(size: int, machines: int, rounds: int) -> list[tuple[NDArray[np.intc], NDArray[np.intc]]]:
    """For each round how many numbers each rank gets from the master, and where they begin.

    Examples
    --------
    >>> [(counts.tolist(), starts.tolist()) for counts, starts in cut(11, 2, 2)]
    [([0, 3, 3], [0, 0, 3]), ([0, 2, 3], [6, 6, 8])]
    """
    bounds = np.linspace(0, size, rounds * machines + 1).round().astype(np.intc)
    found = []
    for first in range(0, rounds * machines, machines):
        edges = bounds[first : first + machines + 1]
        found.append((np.diff(edges, prepend=edges[:1]), np.concatenate((edges[:1], edges[:-1]))))
    return found
