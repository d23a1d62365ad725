"""Options of a session that its machines need."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.store.shard import Holding, Precision, Verify


@dataclass(frozen=True)
class MachineOptions:
    """How a machine opens its shards, and which faults it emulates.

    Attributes
    ----------
    shards : {"mmap", "ram"}
    verify : {"first-read", "never"}
    precision : {"double", "shard"}
    staged : str
        Directory of copies of shards on each node, with ``{host}`` for the node's name; empty if
        there are none.
    measured : bool
        Whether machines measure their speed for an emulation.
    inject : str
        Faults (see `read_faults`).
    seed : int
        Seed of random faults.
    threads : int
        BLAS threads of each machine that joins; 0 stands for its number of cores.
    """

    shards: Holding = "mmap"
    verify: Verify = "first-read"
    precision: Precision = "double"
    staged: str = ""
    measured: bool = False
    inject: str = ""
    seed: int = 0
    threads: int = 0
