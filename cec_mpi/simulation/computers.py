"""Computers that carry several machines; machines are numbered computer by computer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import Availability, Machines
from cec_mpi.text import plural


def distribute_machines(capacities: Sequence[int], machines: int) -> tuple[int, ...]:
    """Distribute machines as evenly as memory allows; return their number on each computer.

    Parameters
    ----------
    capacities : sequence of int
        Number of machines whose shards fit into the memory of each computer.
    machines : int
        Number of machines, N.

    Raises
    ------
    InputError
        The machines do not fit.

    Examples
    --------
    >>> distribute_machines([1, 2, 4], 6)
    (1, 2, 3)
    """
    if sum(capacities) < machines:
        fit = ", ".join(map(str, capacities))
        raise InputError(
            f"memory: found memory for {plural(sum(capacities), 'machine')} ({fit}), expected "
            f"memory for {machines}"
        )
    counts = [0] * len(capacities)
    for _ in range(machines):
        candidates = [n for n, capacity in enumerate(capacities) if counts[n] < capacity]
        counts[min(candidates, key=counts.__getitem__)] += 1
    return tuple(counts)


def machine_ranges(counts: Sequence[int]) -> list[range]:
    """Return the machine numbers of each computer from their counts.

    Examples
    --------
    >>> machine_ranges([1, 2, 0, 3])
    [range(1, 2), range(2, 4), range(4, 4), range(4, 7)]
    """
    return [range(first, end) for first, end in pairwise(accumulate(counts, initial=1))]


def machine_speeds(speeds: Sequence[float], counts: Sequence[int]) -> tuple[float, ...]:
    """Return the speed of each machine: those of a computer share its speed equally.

    Examples
    --------
    >>> machine_speeds([1.0, 4.0], [1, 2])
    (1.0, 2.0, 2.0)
    """
    computers = zip(speeds, counts, strict=True)
    return tuple(speed / count for speed, count in computers for _ in range(count))


def count_tolerated_losses(counts: Sequence[int], min_machines: int) -> int:
    """Return how many arbitrary computers may be lost if `min_machines` must remain.

    Examples
    --------
    >>> count_tolerated_losses([1, 1, 2, 4], 3)
    1
    """
    remaining, tolerated = sum(counts), 0
    for count in sorted(counts, reverse=True):
        remaining -= count
        if remaining < min_machines:
            break
        tolerated += 1
    return tolerated


class ComputerAvailability:
    """Availability of machines that depends on their computers.

    Parameters
    ----------
    computers : Availability
    machines : sequence of sequence of int
        Machines of each computer.

    Examples
    --------
    >>> from cec_mpi.runtime.availability.models import ListedAvailability
    >>> ComputerAvailability(ListedAvailability([(1, 2), (2,)]), machine_ranges([1, 2])).at(1)
    (2, 3)
    """

    def __init__(self, computers: Availability, machines: Sequence[Sequence[int]]) -> None:
        self._computers, self._machines = computers, machines
        self._cache: dict[Machines, Machines] = {}  # returns the same object for equal sets

    @property
    def last_change(self) -> int | None:
        """Tick after which nothing changes; None if there may always be changes."""
        return getattr(self._computers, "last_change", None)

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        available_computers = self._computers.at(tick)
        if available_computers not in self._cache:
            self._cache[available_computers] = tuple(
                n for computer in available_computers for n in self._machines[computer - 1]
            )
        return self._cache[available_computers]

    def max_available(self, tick: int) -> int:
        """Return an upper bound on the number of available machines from this tick on."""
        largest = sorted(map(len, self._machines), reverse=True)
        return sum(largest[: self._computers.max_available(tick)])

    def restrict_to(self, machines: Sequence[int]) -> ComputerAvailability:
        """Return this availability restricted to some machines."""
        selected = frozenset(machines)
        return ComputerAvailability(
            self._computers,
            [[n for n in numbers if n in selected] for numbers in self._machines],
        )
