"""How many shards each machine has: options of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cec_mpi.core.plan.placement import Placement
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.options import values
from cec_mpi.options.option import Group, option, whole_number
from cec_mpi.options.sharing import SpeedsOption, as_speeds, speeds_by_machine
from cec_mpi.text import plural, shown

if TYPE_CHECKING:
    from cec_mpi.processes.places import Place
    from cec_mpi.store.format.manifest import Manifest

ShardsOption = int | Sequence[int] | Literal["auto"] | Placement | None


@dataclass(frozen=True, kw_only=True)
class Placed(Group):
    """What machines have of a store.

    Attributes
    ----------
    shards_per_machine : int, sequence of int, or "auto", optional
        So many shards of the store on each machine, one behind the other, or as many as are
        listed, or all that there are, in proportion to speeds that are given and else as evenly
        as can be, but first as many as are in the memory of each node; by default each machine
        has one. The shards of all machines together have to
        be L or more.
    memory_per_machine : int, optional
        Bytes of shards that each machine may have; with ``"auto"`` shards for which there is no
        room are on no machine.
    """

    title = "speeds, threads and shards of machines"

    shards_per_machine: ShardsOption = option(
        None,
        "--shards-per-machine K|LIST|auto",
        "how many shards each machine holds: 2, or 4,2,2, or auto, which follows --speeds and the "
        "memory of nodes (default: 1)",
        values.shards_per_machine,
    )
    memory_per_machine: int | None = option(
        None,
        "--memory-per-machine SIZE",
        "at most so many bytes of shards on each machine, such as 64G",
        values.size,
    )

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """What these options have come to."""
        return {"shards_per_machine": placement}

    def most_shards(self, manifest: Manifest) -> int | None:
        """How many a machine may have, if that is limited."""
        if self.memory_per_machine is None:
            return None
        size = whole_number("memory per machine", self.memory_per_machine)
        if size < 1:
            raise InputError(f"memory per machine {size}: expected bytes, at least 1")
        return size // manifest.shard_bytes

    def placed(
        self,
        manifest: Manifest,
        places: Sequence[Place] | None,
        machines: object | None,
        speeds: SpeedsOption | None,
    ) -> Placement:
        """Which machine has which shards of a store.

        Parameters
        ----------
        manifest : Manifest
        places : sequence of Place or None
            Where the machines run that were started; None where all are in this process.
        machines : object or None
            Those that are named to take part, if that is so.
        speeds : sequence of float, mapping of str to float, or "learn"

        Raises
        ------
        InputError
            It is no number of shards, or of machines, that can be.
        InfeasibleError
            The machines have fewer shards than a step needs, or no room for so many.
        """
        given, code = self.shards_per_machine, manifest.code
        if given is None:
            found = Placement.plain(code.machines)
        elif isinstance(given, str) and given == "auto":
            if machines is not None:
                raise InputError(
                    "shards per machine auto: expected no machines to be named beside it, since "
                    "all that are started take part"
                )
            return self._spread(manifest, _speeds(speeds, places), places)
        else:
            started = None if machines is not None or places is None else len(places)
            found = _listed(given, code.machines, code.recovery, started)
        most, room = max(found.counts), self.most_shards(manifest)
        if room is not None and room < most:
            raise InfeasibleError(
                f"memory per machine {self.memory_per_machine}: {plural(most, 'shard')} of this "
                f"store {'take' if most > 1 else 'takes'} {most * manifest.shard_bytes} bytes"
            )
        return found

    def _spread(
        self, manifest: Manifest, speeds: Sequence[float], places: Sequence[Place] | None
    ) -> Placement:
        from cec_mpi.core.plan.load import check_speeds
        from cec_mpi.core.plan.placement import spread  # now: machines spread nothing

        code, room = manifest.code, self.most_shards(manifest)
        most = None if room is None else [room] * len(speeds)
        memory = None
        if places is not None and all(place.memory for place in places):
            memory = [place.memory // place.ranks // manifest.shard_bytes for place in places]
        try:
            rates = check_speeds(speeds).tolist()
            counts = spread(code.machines, rates, code.recovery, most, memory)
        except (InputError, InfeasibleError) as error:
            limit = "" if room is None else f" with memory per machine {self.memory_per_machine}"
            raise type(error)(f"shards per machine auto{limit}: {error}") from None
        return Placement(counts, code.machines)


def further_placement(first: Placement, manifest: Manifest) -> Placement:
    """All shards of a further store, in proportion to what machines have of the first one."""
    from cec_mpi.core.plan.placement import spread

    code = manifest.code
    if first.is_plain:
        return Placement.plain(code.machines)
    counts = spread(code.machines, first.counts[: code.machines], code.recovery)
    return Placement(counts, code.machines)


def _listed(given: Any, total: int, recovery: int, started: int | None) -> Placement:
    """As many shards for each machine, the last one may have fewer; or as they are listed."""
    if isinstance(given, str | bytes | bool | Mapping):
        raise InputError(
            f"shards per machine {shown(given)}: expected a whole number, one for each machine, or "
            "auto"
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
        raise InputError(f"{said}: expected at least 1 on each machine")
    if (held := sum(counts)) > total:
        raise InputError(f"{said}: the store has {plural(total, 'shard')}")
    if held < recovery:
        raise InfeasibleError(f"{said}: a step needs {recovery} shards of this store")
    return Placement(counts, total)


def _speeds(given: SpeedsOption | None, places: Sequence[Place] | None) -> Sequence[float]:
    """Of the machines that were started; of all machines here, those that were given."""
    if places is None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise InputError(
                "shards per machine auto: with accept, or all machines in one process, expected "
                "speeds of machines (--speeds LIST), whose number is not known else"
            )
        return tuple(given)
    machines, hosts = len(places), [place.host for place in places]
    if not machines:
        raise InputError("shards per machine auto: no rank was started for a machine")
    known = as_speeds(given, machines)
    found = speeds_by_machine(known, range(1, machines + 1), hosts, machines)
    return (1.0,) * machines if found is None else found
