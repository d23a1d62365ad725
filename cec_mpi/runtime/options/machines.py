"""Options of a session that the master sends to machines."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.store.shard import CPU, Holding, Precision, Verification


@dataclass(frozen=True)
class MachineOptions:
    """Options for shards, faults and threads of a machine.

    Attributes
    ----------
    shards : {"mmap", "ram"}
    verify : {"first-read", "never"}
    precision : {"double", "shard"}
    cache : str
        Directory for a copy of the shard on the machine's computer; ``{host}`` stands for the host
        name. If empty, the machine reads the store itself.
    cache_limit : int or None
        Maximum size of all copies in this directory, in bytes.
    measures_speed : bool
        Whether machines measure their speed, for the emulation of slower machines.
    inject : str
        Faults (see `parse_faults`).
    seed : int
        Seed of random faults.
    threads : int
        BLAS threads of each host; 0 means its share of the cores of its node.
    device : tuple of str
        Device of each machine, or one for all.
    """

    shards: Holding = "mmap"
    verify: Verification = "first-read"
    precision: Precision = "double"
    cache: str = ""
    cache_limit: int | None = None
    measures_speed: bool = False
    inject: str = ""
    seed: int = 0
    threads: int = 0
    device: tuple[str, ...] = (CPU,)

    def device_of(self, machine: int) -> str:
        """Return the device of a machine, as in the option."""
        return self.device[(machine - 1) % len(self.device)]
