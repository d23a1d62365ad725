"""Models of availability: a set of available machines for each tick.

A tick is a step, unless ticks have a duration. Availability comes from files, a seeded random
model, a function or a command. By default all machines are available.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.numbers import read_machines

Machines = tuple[int, ...]


PAPER_AVAILABLE: tuple[Machines, ...] = (
    (1, 2, 3, 4, 5, 6),
    (1, 2, 3, 5, 6),
    (1, 2, 3, 5),
    (2, 3, 5),
)
"""The four steps of the paper's Section III (speeds 2, 2, 3, 3, 4, 4 and L = 3)."""


class Availability(Protocol):
    """Availability of machines at each tick."""

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""

    def max_available(self, tick: int) -> int:
        """Return the maximum number of available machines from this tick on."""

    def restrict_to(self, machines: Sequence[int]) -> Availability:
        """Return this availability restricted to some machines."""


class ListedAvailability:
    """Availability as a list of sets, one for each tick.

    After the end of the list the last set remains, or the list repeats.

    Parameters
    ----------
    ticks : sequence of sequences of int
        Available machines at tick 0, 1, ..
    repeat : bool
        Whether the list repeats.
    gap_seconds : float, optional
        Seconds between ticks in the recording.

    Examples
    --------
    >>> listed = ListedAvailability([(1, 2), (1, 2, 3)])
    >>> listed.at(0), listed.at(7)
    ((1, 2), (1, 2, 3))
    """

    def __init__(
        self,
        ticks: Sequence[Sequence[int]],
        repeat: bool = False,
        gap_seconds: float | None = None,
    ) -> None:
        if not ticks:
            raise InputError("the availability has no entries, expected at least one")
        self._ticks = _map_distinct(lambda machines: tuple(sorted(machines)), list(ticks))
        self._repeat = repeat
        self.gap_seconds = gap_seconds
        sizes = [len(machines) for machines in reversed(self._ticks)]
        self._max_available = list(accumulate(sizes, max))[::-1]  # from each tick on

    def __len__(self) -> int:
        return len(self._ticks)

    @property
    def last_change(self) -> int | None:
        """The last listed tick, after which the set remains; None if the list repeats."""
        return None if self._repeat else len(self._ticks) - 1

    def __repr__(self) -> str:
        suffix = ", repeated" if self._repeat else ""
        return f"<availability listed for ticks 0..{len(self._ticks) - 1}{suffix}>"

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        if self._repeat:
            return self._ticks[tick % len(self._ticks)]
        return self._ticks[min(tick, len(self._ticks) - 1)]

    def max_available(self, tick: int) -> int:
        """Return the maximum number of available machines from this tick on."""
        return self._max_available[0 if self._repeat else min(tick, len(self._ticks) - 1)]

    def restrict_to(self, machines: Sequence[int]) -> ListedAvailability:
        """Return this availability restricted to some machines."""
        selected = frozenset(machines)
        ticks = _map_distinct(
            lambda available: tuple(n for n in available if n in selected), self._ticks
        )
        return ListedAvailability(ticks, self._repeat, self.gap_seconds)


def _map_distinct(function: Callable[[Any], Machines], ticks: Sequence[Any]) -> list[Machines]:
    """Map a function over ticks, with one call for each distinct object."""
    values = {key: function(tick) for key, tick in {id(tick): tick for tick in ticks}.items()}
    return [values[id(tick)] for tick in ticks]


class RandomAvailability:
    """Random availability: each machine is available at each tick with probability p.

    Examples
    --------
    >>> RandomAvailability(4, 0.5, seed=1).at(3) == RandomAvailability(4, 0.5, seed=1).at(3)
    True
    """

    def __init__(self, machines: int, probability: float, seed: int = 0) -> None:
        if not 0 < probability <= 1:
            raise InputError(
                f"available probability {probability}: expected a number above 0 and at most 1"
            )
        self._machines = machines
        self._probability = probability
        self._seed = seed
        self._selected = np.ones(machines, dtype=bool)

    def __repr__(self) -> str:
        selected = int(self._selected.sum())
        return f"<availability of {selected} machines, each with probability {self._probability:g}>"

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        rng = np.random.default_rng((self._seed, tick))
        available = rng.random(self._machines) < self._probability
        return tuple((np.flatnonzero(available & self._selected) + 1).tolist())

    def max_available(self, tick: int) -> int:
        """Return the maximum number of available machines from this tick on."""
        return int(self._selected.sum())

    def restrict_to(self, machines: Sequence[int]) -> RandomAvailability:
        """Return this availability restricted to some machines."""
        restricted = RandomAvailability(self._machines, self._probability, self._seed)
        chosen = np.isin(np.arange(self._machines) + 1, machines)
        restricted._selected = self._selected & chosen
        return restricted


class FunctionAvailability:
    """Availability from a function.

    Parameters
    ----------
    machines : int
        Number of machines of the store, N.
    function : callable
        Called with the tick; returns the numbers of the available machines.
    every : float
        Seconds for which a result is valid, at any tick; 0 calls the function at each query.

    Examples
    --------
    >>> FunctionAvailability(4, lambda tick: {4, 1 + tick % 2}).at(3)
    (2, 4)
    """

    def __init__(
        self, machines: int, function: Callable[[int], Iterable[int]], every: float = 0.0
    ) -> None:
        self.every = every
        self._function = function
        self._machines = frozenset(range(1, machines + 1))
        self._selected = self._machines
        self._result: Machines = ()
        self._valid_until = float("-inf")

    def __repr__(self) -> str:
        return f"<availability of {len(self._selected)} machines, from {self._function!r}>"

    def at(self, tick: int) -> Machines:
        """Return the numbers of the available machines at a tick, in ascending order."""
        if time.monotonic() >= self._valid_until:
            result = self._function(tick)
            available = validate_machines(f"availability at tick {tick}", result, self._machines)
            self._result = tuple(n for n in available if n in self._selected)
            self._valid_until = time.monotonic() + self.every
        return self._result

    def max_available(self, tick: int) -> int:
        """Return the maximum number of available machines from this tick on."""
        return len(self._selected)

    def restrict_to(self, machines: Sequence[int]) -> FunctionAvailability:
        """Return this availability restricted to some machines."""
        restricted = FunctionAvailability(len(self._machines), self._function, self.every)
        restricted._selected = self._selected & frozenset(machines)
        return restricted


def is_constant_after(availability: Availability, tick: int) -> bool:
    """Return whether availability is known not to change after a tick."""
    last = getattr(availability, "last_change", None)
    return last is not None and tick >= last


def polling_interval(availability: Availability) -> float:
    """Return the seconds between two queries of a tick; 0 if the machines of a tick are fixed."""
    return float(getattr(availability, "every", 0.0))


def validate_machines(name: str, machines: Iterable[int] | str, known: frozenset[int]) -> Machines:
    """Return the distinct machine numbers of a set or text, in ascending order.

    Raises
    ------
    InputError
        An entry is not a number, or a machine is unknown.
    """
    try:
        entries = read_machines(machines) if isinstance(machines, str) else machines
        numbers = tuple(sorted({operator.index(n) for n in entries}))
    except (TypeError, ValueError):
        raise InputError(f"{name} is {machines!r}, expected a set of machine numbers") from None
    for number in numbers:
        if number not in known:
            raise InputError(
                f"{name} has machine {number}, expected numbers from {_format_machines(known)}"
            )
    return numbers


def _format_machines(machines: frozenset[int]) -> str:
    if machines == frozenset(range(1, len(machines) + 1)):
        return f"1..{len(machines)}"
    return ",".join(map(str, sorted(machines)))


def all_available(machines: int) -> ListedAvailability:
    """Return the availability of all machines at all ticks."""
    return ListedAvailability([range(1, machines + 1)])


def from_counts(
    counts: Sequence[int], machines: int, repeat: bool = False, gap_seconds: float | None = None
) -> ListedAvailability:
    """Return the availability for a number of machines at each tick.

    A count c means that machines 1..c are available. Larger counts mean all machines.

    Examples
    --------
    >>> from_counts([2, 9], 4).at(1)
    (1, 2, 3, 4)
    """
    machines_of_count = {count: range(1, min(count, machines) + 1) for count in set(counts)}
    return ListedAvailability([machines_of_count[count] for count in counts], repeat, gap_seconds)
