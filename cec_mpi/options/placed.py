"""Options of a session: how many shards each machine has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.options import values
from cec_mpi.options.option import Group, option, whole_number
from cec_mpi.options.sharing import SpeedsOption, as_speeds, speeds_by_machine
from cec_mpi.text import plural, shown

if TYPE_CHECKING:
    from cec_mpi.processes.places import Place
    from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.replicas.layout import Layout

ShardsOption = int | Sequence[int] | Literal["auto"] | Placement | None

_USED = 0.9  # of a node's memory, by the shards of its machines: the rest stays free


@dataclass(frozen=True, kw_only=True)
class Placed(Group):
    """Which shards of a store each machine has.

    Attributes
    ----------
    shards_per_machine : int, sequence of int, or "auto", optional
        Number of consecutive shards on each machine, the same for all or one number for each.
        "auto" distributes all shards in proportion to given speeds, or evenly, and prefers what
        fits into 90 % of the memory of each node. By default each machine has one shard. All
        machines together must have at least L.
    memory_per_machine : int, optional
        Largest number of bytes of shards on each machine. With ``"auto"``, shards that do not fit
        are on no machine.
    """

    title = "speeds, threads and shards of machines"

    shards_per_machine: ShardsOption = option(
        None,
        "--shards-per-machine K|LIST|auto",
        "number of shards on each machine: 2, or 4,2,2, or auto, which follows --speeds and the "
        "memory of nodes (default: 1)",
        values.shards_per_machine,
    )
    memory_per_machine: int | None = option(
        None,
        "--memory-per-machine SIZE",
        "largest size of the shards on each machine, such as 64G",
        values.size,
    )

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """Return the placement, which these options gave."""
        return {"shards_per_machine": placement}

    def most_shards(self, manifest: Manifest) -> int | None:
        """Return the largest number of shards of a machine, or None if it is not limited."""
        if self.memory_per_machine is None:
            return None
        size = whole_number("memory per machine", self.memory_per_machine)
        if size < 1:
            raise InputError(f"memory per machine {size}: expected at least 1 byte")
        return size // manifest.shard_bytes

    def placed(
        self,
        manifest: Manifest,
        places: Sequence[Place] | None,
        machines: object | None,
        speeds: SpeedsOption | None,
    ) -> Placement:
        """Return which machine has which shards of a store.

        Parameters
        ----------
        manifest : Manifest
        places : sequence of Place or None
            Nodes of the machines that were started; None if all machines are in this process.
        machines : object or None
            Machines that the user has named to take part, if any.
        speeds : sequence of float, mapping of str to float, or "learn"

        Raises
        ------
        InputError
            The numbers of shards or machines do not fit the store.
        InfeasibleError
            The machines have fewer shards than a step needs, or not enough memory.
        """
        given, code = self.shards_per_machine, manifest.code
        if manifest.replicas is not None:
            if given is not None:
                raise InputError(
                    f"shards per machine {shown(given)}: machines of a sparse X have the rows "
                    "that encode gave them"
                )
            found = replica_placement(manifest.replicas)
        elif given is None:
            found = Placement.plain(code.machines)
        elif isinstance(given, str) and given == "auto":
            if machines is not None:
                raise InputError(
                    "shards per machine auto cannot be combined with machines: all that are "
                    "started take part"
                )
            return self._spread(manifest, _speeds(speeds, places), places)
        else:
            started = None if machines is not None or places is None else len(places)
            found = _listed(given, code.machines, code.recovery, started)
        most, room = max(found.counts), self.most_shards(manifest)
        if room is not None and room < most:
            raise InfeasibleError(
                f"memory per machine {self.memory_per_machine} bytes: "
                f"{plural(most, 'shard', 'needs', 'need')} {most * manifest.shard_bytes}"
            )
        return found

    def _spread(
        self, manifest: Manifest, speeds: Sequence[float], places: Sequence[Place] | None
    ) -> Placement:
        from cec_mpi.core.plan.load import check_speeds
        from cec_mpi.core.plan.placement import spread  # here, because machines do not need it

        code, room = manifest.code, self.most_shards(manifest)
        most = None if room is None else [room] * len(speeds)
        memory = None
        if places is not None and all(place.memory for place in places):
            memory = [
                int(_USED * place.memory) // place.ranks // manifest.shard_bytes for place in places
            ]
        try:
            rates = check_speeds(speeds).tolist()
            counts = spread(code.machines, rates, code.recovery, most, memory)
        except (InputError, InfeasibleError) as error:
            limit = "" if room is None else f" with memory per machine {self.memory_per_machine}"
            raise type(error)(f"shards per machine auto{limit}: {error}") from None
        return Placement(counts, code.machines)


def further_placement(first: Placement, manifest: Manifest) -> Placement:
    """Place all shards of a further store in proportion to those of the first one."""
    from cec_mpi.core.plan.placement import spread

    code = manifest.code
    if manifest.replicas is not None:
        return replica_placement(manifest.replicas)
    if first.is_plain:
        return Placement.plain(code.machines)
    counts = spread(code.machines, first.counts[: code.machines], code.recovery)
    return Placement(counts, code.machines)


def replica_placement(layout: Layout) -> Placement:
    """Which machine holds which parts of a sparse X."""
    return ReplicaPlacement(layout.holders, layout.bounds.tolist(), layout.machines)


def _listed(given: Any, total: int, recovery: int, started: int | None) -> Placement:
    """Place the same number of shards on each machine but the last, or the listed numbers."""
    if isinstance(given, str | bytes | bool | Mapping):
        raise InputError(
            f"shards per machine {shown(given)}: expected a whole number, a list with one "
            "for each machine, or auto"
        )
    if isinstance(given, Iterable):
        counts = tuple(whole_number("shards per machine", each) for each in given)
        said = f"shards per machine {','.join(map(str, counts))}"
    else:
        each = whole_number("shards per machine", given)
        said, counts = f"shards per machine {each}", (each,)
        if each > 0:
            machines = -(-total // each)
            if started is not None:
                machines = max(1, min(machines, started))
            said += f" on {plural(machines, 'machine')}"
            counts = tuple(min(each, total - n * each) for n in range(machines))
    if not counts or min(counts) < 1:
        raise InputError(f"{said}: expected at least 1 shard on each machine")
    if (held := sum(counts)) > total:
        raise InputError(f"{said}: {held} in total, but the store has {plural(total, 'shard')}")
    if held < recovery:
        raise InfeasibleError(
            f"{said}: {held} in total, but a step with this store needs {recovery}"
        )
    return Placement(counts, total)


def _speeds(given: SpeedsOption | None, places: Sequence[Place] | None) -> Sequence[float]:
    """Return the speeds of the machines that were started, or the given ones in one process."""
    if places is None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InputError(
                "shards per machine auto needs speeds (--speeds LIST) with accept, or if all "
                "machines are in one process, because the number of machines is not known otherwise"
            )
        return tuple(given)
    machines, hosts = len(places), [place.host for place in places]
    if not machines:
        raise InputError(
            "shards per machine auto: the launcher started no machine, expected at least 2 ranks"
        )
    known = as_speeds(given, machines)
    found = speeds_by_machine(known, range(1, machines + 1), hosts, machines)
    return (1.0,) * machines if found is None else found
