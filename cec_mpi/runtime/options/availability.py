"""Options of a session: the available machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.availability.numbers import read_machines
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import (
    SIMULATION_TITLE,
    Options,
    as_float,
    as_int,
    as_tuple,
    option,
)
from cec_mpi.text import plural

if TYPE_CHECKING:
    from cec_mpi.runtime.availability.models import Availability
    from cec_mpi.store.format.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class AvailabilityFlags:
    """Flags that determine which machines are available."""

    availability: tuple[str, ...] = option(
        (),
        "--availability FILE",
        "file that lists the available machines of each step (or tick), or a trace of nodes, spot "
        "instances or jobs; 'example' is an included trace; counts of several files are added",
        exclusive=True,
    )
    available_probability: float | None = option(
        None,
        "--available-probability P",
        "probability that a machine is available in a step (or tick)",
        values.number,
        exclusive=True,
    )
    availability_command: str | None = option(
        None,
        "--availability-command CMD",
        "command that prints the numbers of the available machines",
        exclusive=True,
    )
    availability_every: float | None = option(
        None,
        "--availability-every TIME",
        "time between two calls of the command (default: 1s)",
        values.seconds,
    )
    repeat: bool = option(False, "--repeat", "repeat the availability file from its beginning")
    seed: int = field(default=0, compare=False)

    def load(self, machines: int) -> Availability:
        """Return the availability of machines 1..N that the flags describe."""
        from cec_mpi.runtime.availability.command import from_command
        from cec_mpi.runtime.availability.models import RandomAvailability
        from cec_mpi.runtime.availability.reading import read_availability

        command, every = self.availability_command, self.availability_every
        if self.availability:
            return read_availability(self.availability, machines, self.repeat)
        if self.repeat:
            raise InputError("--repeat needs --availability FILE")
        if command is not None:
            return from_command(command, machines, 1.0 if every is None else every)
        if every is not None:
            raise InputError("--availability-every needs --availability-command CMD")
        assert self.available_probability is not None
        return RandomAvailability(machines, self.available_probability, self.seed)


@dataclass(frozen=True, kw_only=True)
class AvailabilityOptions(Options):
    """The available machines.

    Attributes
    ----------
    availability : Availability, path, callable, set of int, sequence of sets, optional
        Available machines of each step (see `as_availability`). By default all.
    tick_seconds : float, optional
        Length of a tick of availability in seconds. By default each step is a tick.
    machines : iterable of int or str, optional
        Machines that take part, as numbers or as text such as ``"1-3,5"``. The others are never
        available. By default all machines take part.
    """

    title = SIMULATION_TITLE

    availability: Any = option(None, flags_of=AvailabilityFlags)
    tick_seconds: float | None = option(
        None,
        "--tick TIME",
        "duration of each tick of the availability, such as 5s (default: one step)",
        values.seconds,
    )
    machines: tuple[int, ...] | None = option(
        None,
        "--machines LIST",
        "use only these machines, such as 1-3,5 (default: all)",
        values.machines,
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        return self.resolve_machines(manifest.code.machines)

    def resolve_machines(self, total: int) -> dict[str, Any]:
        """Return the availability of machines 1..total, and the machines that take part."""
        from cec_mpi.runtime.availability.reading import as_availability

        tick = self.tick_seconds
        if tick is not None and not 1e-6 <= as_float("tick_seconds", tick) < float("inf"):
            raise InputError(f"tick {tick}: expected at least 1e-6 seconds")
        value = self.availability
        if isinstance(value, AvailabilityFlags):
            value = value.load(total)
        return {
            "availability": as_availability(value, total),
            "machines": _parse_participants(self.machines, total),
        }


def _parse_participants(value: Iterable[int] | str | None, total: int) -> tuple[int, ...]:
    """Return the numbers of the machines that take part, in ascending order."""
    if value is None:
        return tuple(range(1, total + 1))
    try:
        numbers = read_machines(value) if isinstance(value, str) else None
    except ValueError as error:
        raise InputError(f"machines {error}") from None
    numbers = as_tuple("machines", value, "numbers of machines") if numbers is None else numbers
    machines = tuple(sorted(as_int("machines", n) for n in numbers))
    listed = ",".join(map(str, machines)) or "(none)"
    if len(set(machines)) != len(machines):
        raise InputError(f"machines {listed}: a machine is listed twice")
    if not machines or machines[0] < 1 or machines[-1] > total:
        raise InputError(f"machines {listed}: expected machines from 1 to {total}")
    return machines


def check_enough_machines(machines: Sequence[int], manifest: Manifest) -> None:
    """Raise `InfeasibleError` if the machines are too few for a step."""
    placement, recovery = manifest.placement, manifest.code.recovery
    if placement.tolerated_losses(recovery, machines) < 0:
        raise InfeasibleError(
            f"{plural(len(machines), 'machine', 'takes', 'take')} part, but "
            f"{placement.describe_need(recovery, machines)}"
        )
