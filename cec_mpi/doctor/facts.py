"""What doctor has seen of all ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.step.costs import StepCosts
from cec_mpi.doctor.measure import Wire
from cec_mpi.processes.launcher import Continuity, Launcher
from cec_mpi.processes.library import Library
from cec_mpi.processes.places import Place, by_node
from cec_mpi.store.format.manifest import Manifest


@dataclass(frozen=True)
class Seen:
    """What a rank sees of the shard of a machine.

    Attributes
    ----------
    machine : int
    host : str
    path : str
        The file that it would read.
    problem : str
        What is wrong with it; empty when it is good as far as size and header show.
    only_here : bool
        It is missing, but rank 0 sees it.
    shard : int or None
        Its number, where machines have several.
    """

    machine: int
    host: str
    path: str
    problem: str = ""
    only_here: bool = False
    shard: int | None = None


@dataclass(frozen=True)
class Facts:
    """What was seen of all ranks.

    Attributes
    ----------
    launcher : Launcher or None
    library : Library
        Of MPI, on rank 0.
    mpirun : str
        Where mpirun of PATH is, and what it says of itself.
    srun : tuple of str or None
        What ``srun --mpi=list`` has; None where there is no Slurm.
    versions : list of dict of str to str
        Of each rank.
    places : list of Place
        Of each rank.
    threads : list of int
        BLAS threads of each rank.
    wires : list of Wire
        To ranks 1 and on.
    products : list of float
        Bytes of a shard per second that each rank multiplies; 0 for rank 0 of several.
    store : str
        As it was named; empty for none.
    manifest : Manifest or None
    seen : list of Seen
    srun_problem : str
        Why this Slurm cannot load what the library needs, though srun lists it.
    placement : Placement or None
        What machines have of the store.
    continuity : Continuity or None
        Whether the launcher lets the others continue when a process is killed.
    """

    launcher: Launcher | None
    library: Library
    mpirun: str
    srun: tuple[str, ...] | None
    versions: list[dict[str, str]]
    places: list[Place]
    threads: list[int]
    wires: list[Wire]
    products: list[float]
    store: str = ""
    manifest: Manifest | None = None
    seen: list[Seen] = field(default_factory=list)
    srun_problem: str = ""
    placement: Placement | None = None
    continuity: Continuity | None = None

    @property
    def shards(self) -> tuple[int, ...]:
        """Of each machine, if some have several; none if each has one, or there is no store."""
        placed = self.placement
        return () if placed is None or placed.is_plain else placed.counts

    @property
    def machines(self) -> int:
        """Of the store."""
        return len(self.shards) or (0 if self.manifest is None else self.manifest.code.machines)

    @property
    def costs(self) -> StepCosts | None:
        """Of the machines that were started; None for a process alone."""
        if not self.wires:
            return None
        return StepCosts(
            len(self.wires),
            max(wire.waking for wire in self.wires),
            min(wire.bandwidth for wire in self.wires),
            sum(self.products),
            recovery=1 if self.manifest is None else self.manifest.code.recovery,
            several_nodes=len(by_node(self.places)) > 1,
        )
