"""Who is available: options of a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cec_mpi.availability.command import from_command
from cec_mpi.availability.given import as_availability, read_availability
from cec_mpi.availability.models import Availability, RandomAvailability
from cec_mpi.availability.numbers import read_machines
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.options import values
from cec_mpi.options.option import STUDIES, Group, option, real_number, several, whole_number
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.core.plan.placement import Placement
    from cec_mpi.store.format.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class AvailabilityFlags:
    """What the flags of a command say of who is available."""

    availability: tuple[str, ...] = option(
        (),
        "--availability FILE",
        "JSON or CSV file that says who is available at each step (or tick); given several times, "
        "one after the other",
        alone=True,
    )
    available_probability: float | None = option(
        None,
        "--available-probability P",
        "each machine is available with this probability at each step (or tick)",
        values.number,
        alone=True,
    )
    availability_command: str | None = option(
        None,
        "--availability-command CMD",
        "a command that prints the numbers of the machines that are available",
        alone=True,
    )
    availability_every: float | None = option(
        None,
        "--availability-every SECONDS",
        "how often the command is asked (default: 1)",
        values.seconds,
    )
    repeat: bool = option(False, "--repeat", "start the availability file again at its end")
    seed: int = field(default=0, compare=False)

    def source(self, machines: int) -> Availability:
        """Of the machines 1..machines of a store."""
        command, every = self.availability_command, self.availability_every
        if self.availability:
            return read_availability(self.availability, machines, self.repeat)
        if self.repeat:
            raise InputError("--repeat: expected --availability FILE with it")
        if command is not None:
            return from_command(command, machines, 1.0 if every is None else every)
        if every is not None:
            raise InputError("--availability-every: expected --availability-command CMD with it")
        assert self.available_probability is not None
        return RandomAvailability(machines, self.available_probability, self.seed)


@dataclass(frozen=True, kw_only=True)
class Available(Group):
    """Who is available.

    Attributes
    ----------
    availability : Availability, path, callable, set of int, sequence of sets, optional
        Who is available (see `as_availability`); by default all machines, always.
    tick_seconds : float, optional
        Wall-clock length of a tick of availability; by default each step is a tick.
    machines : iterable of int or str, optional
        Machines that take part, also as text, ``"1-3,5"``; the others are preempted for good.
        By default all.
    """

    title = STUDIES

    availability: Any = option(None, flags_of=AvailabilityFlags)
    tick_seconds: float | None = option(
        None,
        "--tick SECONDS",
        "seconds for which each line of the availability holds (default: one step)",
        values.number,
    )
    machines: tuple[int, ...] | None = option(
        None, "--machines LIST", "run with these machines only, such as 1-3,5", values.machines
    )

    def completed(self, manifest: Manifest, placement: Placement) -> dict[str, Any]:
        """Check these options against a store."""
        total = placement.machines
        tick = self.tick_seconds
        if tick is not None and not 1e-6 <= real_number("tick_seconds", tick) < float("inf"):
            raise InputError(f"tick {tick}: expected a positive number of seconds, at least 1e-6")
        given = self.availability
        if isinstance(given, AvailabilityFlags):
            given = given.source(total)
        return {
            "availability": as_availability(given, total),
            "machines": _taking_part(self.machines, placement),
        }


def _taking_part(given: Iterable[int] | str | None, placement: Placement) -> tuple[int, ...]:
    """Numbers of the machines that take part, ascending."""
    total = placement.machines
    if given is None:
        return tuple(range(1, total + 1))
    try:
        numbers = read_machines(given) if isinstance(given, str) else None
    except ValueError as error:
        raise InputError(f"machines {error}") from None
    numbers = several("machines", given, "numbers of machines") if numbers is None else numbers
    machines = tuple(sorted(whole_number("machines", n) for n in numbers))
    listed = ",".join(map(str, machines))
    if len(set(machines)) != len(machines):
        raise InputError(f"machines {listed}: one is named twice")
    if not machines or machines[0] < 1 or machines[-1] > total:
        raise InputError(f"machines {listed}: {which_there_are(placement)}")
    return machines


def which_there_are(placement: Placement) -> str:
    """The numbers that machines have, as it is told to who names others."""
    there = "the store has" if placement.is_plain else "there are"
    return f"{there} machines 1..{placement.machines}"


def check_enough(machines: Sequence[int], placement: Placement, recovery: int) -> None:
    """Refuse machines that have fewer shards than a step needs, L, together."""
    if (held := placement.count(machines)) < recovery:
        shards = "" if placement.is_plain else f", with {plural(held, 'shard')}"
        raise InfeasibleError(
            f"{plural(len(machines), 'machine', 'takes', 'take')} part{shards}: a step needs "
            f"{recovery} of this store"
        )
