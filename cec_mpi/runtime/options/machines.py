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
    cache : str
        Directory for a copy of the shard on the disk of the machine's computer, with ``{host}`` for
        its name; empty to read the store itself.
    cache_limit : int or None
        Size of all copies in this directory, in bytes.
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
    cache: str = ""
    cache_limit: int | None = None
    measured: bool = False
    inject: str = ""
    seed: int = 0
    threads: int = 0
