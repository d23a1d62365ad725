"""What the machines of a session are told of its options, and no more."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.store.shard import Holding, Precision, Verify


@dataclass(frozen=True)
class MachineOptions:
    """How a machine opens its shard of a store, and what goes wrong on order.

    Attributes
    ----------
    shards : {"mmap", "ram"}
    verify : {"first-read", "never"}
    precision : {"double", "shard"}
    staged : str
        Where copies of the shards are on each node, with ``{host}`` for its name; empty: nowhere.
    mends : bool
        Whether a machine computes rows of its shard that it cannot read from other shards.
    measured : bool
        Whether machines measure how fast they are, for an emulation.
    inject : str
        Faults (see `read_faults`).
    seed : int
        For random faults.
    threads : int
        BLAS threads of each machine that joins; 0 for as many as it has cores.
    """

    shards: Holding = "mmap"
    verify: Verify = "first-read"
    precision: Precision = "double"
    staged: str = ""
    mends: bool = False
    measured: bool = False
    inject: str = ""
    seed: int = 0
    threads: int = 0
