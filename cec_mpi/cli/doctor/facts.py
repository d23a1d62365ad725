"""Facts that doctor collects from all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

from cec_mpi.runtime.processes.launcher import Launcher, LossPolicy
from cec_mpi.runtime.processes.resources import ProcessInfo
from cec_mpi.runtime.processes.start import Library
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.text import format_bytes


@dataclass(frozen=True)
class ShardCheck:
    """Result of checking the shard of a machine on its node.

    Attributes
    ----------
    machine : int
    host : str
        Name of the node.
    path : str
        File that the machine would read.
    problem : str
        Problem with the file; empty if its size and header are valid.
    only_on_master : bool
        Whether the file is missing on the node of the machine, but exists on the node of rank 0.
    """

    machine: int
    host: str
    path: str
    problem: str = ""
    only_on_master: bool = False


@dataclass(frozen=True)
class DeviceFact:
    """A GPU or another device, as seen by a rank.

    Attributes
    ----------
    name : str
        Name of the device, as an argument of ``--device``.
    model : str
    free, total : int
        Bytes of memory.
    """

    name: str
    model: str
    free: int
    total: int

    def __str__(self) -> str:
        sizes = f"{format_bytes(self.free)} of {format_bytes(self.total)} free"
        return f"{self.name} ({', '.join(filter(None, (self.model, sizes)))})"


@dataclass(frozen=True)
class Facts:
    """Facts about all ranks.

    Attributes
    ----------
    launcher : Launcher or None
    library : Library
        MPI library of rank 0.
    mpirun : str
        Path and version of mpirun on PATH.
    srun : tuple of str or None
        Types that ``srun --mpi=list`` prints; None without Slurm.
    versions : list of dict of str to str
        Versions on each rank.
    processes : list of ProcessInfo
        Node and resources of each rank.
    threads : list of int
        BLAS threads of each rank.
    store : str
        Name of the store; empty without a store.
    manifest : Manifest or None
    shard_checks : list of ShardCheck
    srun_problem : str
        Reason why Slurm cannot load the plugin that the library needs, although srun lists it.
    loss_policy : LossPolicy or None
        Whether the launcher keeps the job running when a process is killed.
    devices : list of list of DeviceFact
        Devices of each rank in addition to the CPU.
    """

    launcher: Launcher | None
    library: Library
    mpirun: str
    srun: tuple[str, ...] | None
    versions: list[dict[str, str]]
    processes: list[ProcessInfo]
    threads: list[int]
    store: str = ""
    manifest: Manifest | None = None
    shard_checks: list[ShardCheck] = field(default_factory=list)
    srun_problem: str = ""
    loss_policy: LossPolicy | None = None
    devices: list[list[DeviceFact]] = field(default_factory=list)

    @property
    def machines(self) -> int:
        """Number of machines of the store; 0 without a store."""
        return 0 if self.manifest is None else self.manifest.code.machines
