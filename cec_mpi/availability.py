"""Who is up when: one set of available machines per tick.

A tick is a step unless wall-clock time is asked for. Availability comes from files (JSON
or CSV), from a seeded random model, from a function or command that is asked, or is simply
everyone.
"""

from __future__ import annotations

import csv
import json
import operator
import os
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cec_mpi.errors import InputError

__all__ = [
    "PAPER_AVAILABLE",
    "Asked",
    "Availability",
    "Listed",
    "RandomAvailability",
    "as_availability",
    "checked_set",
    "everyone",
    "from_counts",
    "read_availability",
    "seconds_between",
]

Machines = tuple[int, ...]


PAPER_AVAILABLE: tuple[Machines, ...] = (
    (1, 2, 3, 4, 5, 6),
    (1, 2, 3, 5, 6),
    (1, 2, 3, 5),
    (2, 3, 5),
)
"""The four steps of the paper's Section III (speeds 2, 2, 3, 3, 4, 4 and L = 3)."""


class Availability(Protocol):
    """Which machines are available at each tick."""

    def at(self, tick: int) -> Machines:
        """Numbers of the available machines at tick 0, 1, .., ascending."""

    def most_from(self, tick: int) -> int:
        """No tick from this one on has more machines available."""

    def among(self, machines: Sequence[int]) -> Availability:
        """The same with only these machines; the others are preempted for good."""


class Listed:
    """One listed set per tick; past the end the last one holds, or all are repeated.

    Parameters
    ----------
    ticks : sequence of sequences of int
        Numbers of the available machines at tick 0, 1, ..
    repeat : bool
        Start again past the end.

    Examples
    --------
    >>> listed = Listed([(1, 2), (1, 2, 3)])
    >>> listed.at(0), listed.at(7)
    ((1, 2), (1, 2, 3))
    """

    def __init__(self, ticks: Sequence[Sequence[int]], repeat: bool = False) -> None:
        if not ticks:
            raise InputError("an availability without entries: expected at least one")
        self._ticks = [tuple(sorted(machines)) for machines in ticks]
        self._repeat = repeat
        sizes = [len(machines) for machines in reversed(self._ticks)]
        self._most = list(accumulate(sizes, max))[::-1]  # from each tick on

    def __len__(self) -> int:
        return len(self._ticks)

    def at(self, tick: int) -> Machines:
        """Numbers of the available machines at tick 0, 1, .., ascending."""
        if self._repeat:
            return self._ticks[tick % len(self._ticks)]
        return self._ticks[min(tick, len(self._ticks) - 1)]

    def most_from(self, tick: int) -> int:
        """No tick from this one on has more machines available."""
        return self._most[0 if self._repeat else min(tick, len(self._ticks) - 1)]

    def among(self, machines: Sequence[int]) -> Listed:
        """The same with only these machines; the others are preempted for good."""
        kept = frozenset(machines)
        return Listed([[n for n in up if n in kept] for up in self._ticks], self._repeat)


class RandomAvailability:
    """Each machine is up with probability p at each tick, independently.

    Examples
    --------
    >>> RandomAvailability(4, 0.5, seed=1).at(3) == RandomAvailability(4, 0.5, seed=1).at(3)
    True
    """

    def __init__(self, machines: int, probability: float, seed: int = 0) -> None:
        if not 0 < probability <= 1:
            raise InputError(f"available probability {probability}: expected 0 < p <= 1")
        self._machines = machines
        self._probability = probability
        self._seed = seed
        self._kept = np.ones(machines, dtype=bool)

    def at(self, tick: int) -> Machines:
        """Numbers of the available machines at tick 0, 1, .., ascending."""
        rng = np.random.default_rng((self._seed, tick))
        up = rng.random(self._machines) < self._probability
        return tuple((np.flatnonzero(up & self._kept) + 1).tolist())

    def most_from(self, tick: int) -> int:
        """No tick from this one on has more machines available."""
        return int(self._kept.sum())

    def among(self, machines: Sequence[int]) -> RandomAvailability:
        """The same with only these machines; the others are preempted for good."""
        fewer = RandomAvailability(self._machines, self._probability, self._seed)
        chosen = np.isin(np.arange(self._machines) + 1, machines)
        fewer._kept = self._kept & chosen
        return fewer


class Asked:
    """A function of the user's is asked at each tick.

    Parameters
    ----------
    machines : int
        Machines of the store, N.
    function : callable
        Tick to numbers of the available machines.
    every : float
        Seconds that an answer holds, for all ticks: it is asked again only after them.

    Examples
    --------
    >>> Asked(4, lambda tick: {4, 1 + tick % 2}).at(3)
    (2, 4)
    """

    def __init__(
        self, machines: int, function: Callable[[int], Iterable[int]], every: float = 0.0
    ) -> None:
        self.every = every
        self._function = function
        self._machines = frozenset(range(1, machines + 1))
        self._kept = self._machines
        self._answer: Machines = ()
        self._holds_until = float("-inf")

    def at(self, tick: int) -> Machines:
        """Numbers of the available machines at tick 0, 1, .., ascending."""
        if time.monotonic() >= self._holds_until:
            answer = self._function(tick)
            up = checked_set(f"availability at tick {tick}", answer, self._machines)
            self._answer = tuple(n for n in up if n in self._kept)
            self._holds_until = time.monotonic() + self.every
        return self._answer

    def most_from(self, tick: int) -> int:
        """No tick from this one on has more machines available."""
        return len(self._kept)

    def among(self, machines: Sequence[int]) -> Asked:
        """The same with only these machines; the others are preempted for good."""
        fewer = Asked(len(self._machines), self._function, self.every)
        fewer._kept = self._kept & frozenset(machines)
        return fewer


def seconds_between(availability: Availability) -> float:
    """Seconds in which availability cannot change, whatever the tick; 0 for most."""
    return float(getattr(availability, "every", 0.0))


def checked_set(name: str, machines: Iterable[int], known: frozenset[int]) -> Machines:
    """Machine numbers, ascending and each once.

    Raises
    ------
    InputError
        They are not numbers, or not of known machines.
    """
    try:
        numbers = tuple(sorted({operator.index(n) for n in machines}))
    except TypeError:
        raise InputError(f"{name} is {machines!r}: expected a set of machine numbers") from None
    for number in numbers:
        if number not in known:
            raise InputError(f"{name} names machine {number}: expected some of {_listed(known)}")
    return numbers


def _listed(machines: frozenset[int]) -> str:
    if machines == frozenset(range(1, len(machines) + 1)):
        return f"1..{len(machines)}"
    return ",".join(map(str, sorted(machines)))


def as_availability(given: Any, machines: int) -> Availability:
    """What a user may say of who is available.

    Parameters
    ----------
    given : Availability, path, callable, iterable of int, sequence of sets, or None
        A path is read as `read_availability` does; a callable is given the tick and
        returns machine numbers; machine numbers are available until others are chosen; of
        several sets there is one per tick, and the last one holds; None is everyone.
    machines : int
        Machines of the store, N.

    Raises
    ------
    InputError
        It is nothing of these.
    """
    if given is None:
        return everyone(machines)
    if isinstance(given, str | os.PathLike):
        return read_availability([given], machines)
    if hasattr(given, "at") and hasattr(given, "among"):
        found: Availability = given
        return found
    if callable(given):
        return Asked(machines, given)
    known = frozenset(range(1, machines + 1))
    if isinstance(given, Sequence) and all(isinstance(up, Iterable) for up in given):
        return Listed(
            [
                checked_set(f"availability at tick {tick}", up, known)
                for tick, up in enumerate(given)
            ]
        )
    return Listed([checked_set("availability", given, known)])


def everyone(machines: int) -> Listed:
    """All machines, always."""
    return Listed([range(1, machines + 1)])


def from_counts(counts: Sequence[int], machines: int, repeat: bool = False) -> Listed:
    """Availability from how many machines are up at each tick.

    The highest numbers go first and the lowest preempted number comes back first, so a
    count c means machines 1..c. Counts above the number of machines mean all of them.

    Examples
    --------
    >>> from_counts([2, 9], 4).at(1)
    (1, 2, 3, 4)
    """
    return Listed([range(1, min(count, machines) + 1) for count in counts], repeat)


def read_availability(
    paths: Sequence[str | os.PathLike[str]], machines: int, repeat: bool = False
) -> Listed:
    """Availability from files.

    Parameters
    ----------
    paths : sequence of paths
        One JSON file ``{"available": [[1, 2, 3], ..]}``, one CSV file (a row per tick, a
        0/1 column per machine, an optional header), or one or more JSON files
        ``{"metadata": {"gap_seconds": g}, "data": [count, ..]}`` as public spot traces
        are published: several are groups of machines, and their counts are added.
    machines : int
        Machines of the store, N.
    repeat : bool
        Start again past the end.

    Returns
    -------
    Listed

    Raises
    ------
    InputError
        Names the file, the entry, what was found and what was expected.
    """
    contents = [_read(Path(path), machines) for path in paths]
    if len(contents) == 1 and isinstance(contents[0], Listed):
        return Listed(contents[0]._ticks, repeat)
    groups = []
    for path, content in zip(paths, contents, strict=True):
        if isinstance(content, Listed):
            raise InputError(f"{path} lists machines: only files of counts can be added up")
        groups.append(content)
    if len({gap for _, gap in groups}) > 1:
        gaps = ", ".join(str(gap) for _, gap in groups)
        raise InputError(f"availability files with different gap_seconds ({gaps}) cannot be added")
    # As for one file, the last count of a shorter one holds.
    length = max(len(counts) for counts, _ in groups)
    totals = [sum(counts[min(t, len(counts) - 1)] for counts, _ in groups) for t in range(length)]
    return from_counts(totals, machines, repeat)


def _read(path: Path, machines: int) -> Listed | tuple[list[int], float | None]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if path.suffix.lower() == ".csv":
        return _parse_csv(path, text, machines)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if isinstance(content, dict) and isinstance(content.get("available"), list):
        return _parse_sets(path, content["available"], machines)
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        return _parse_counts(path, content)
    raise InputError(f'{path}: expected an object with a list "available" or "data"')


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _parse_sets(path: Path, ticks: list[Any], machines: int) -> Listed:
    if not ticks:
        raise InputError(f'{path}: "available" is empty')
    for index, entry in enumerate(ticks):
        where = f'{path}: entry {index} of "available"'
        if not isinstance(entry, list):
            raise InputError(f"{where} is {entry!r}: expected a list of machine numbers")
        for machine in entry:
            if not _is_count(machine) or not 1 <= machine <= machines:
                raise InputError(f"{where} names machine {machine!r}: expected 1 to {machines}")
        if len(set(entry)) != len(entry):
            raise InputError(f"{where} names a machine twice: {entry}")
    return Listed(ticks)


def _parse_counts(path: Path, content: dict[str, Any]) -> tuple[list[int], float | None]:
    counts = content["data"]
    if not counts:
        raise InputError(f'{path}: "data" is empty')
    for index, count in enumerate(counts):
        if not _is_count(count):
            raise InputError(
                f'{path}: entry {index} of "data" is {count!r}: expected a number of machines'
            )
    metadata = content.get("metadata")
    gap = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if gap is not None and not isinstance(gap, int | float):
        raise InputError(f"{path}: gap_seconds is {gap!r}: expected a number")
    return counts, gap


def _parse_csv(path: Path, text: str, machines: int) -> Listed:
    reader = csv.reader(text.splitlines())
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise InputError(f"{path} is not CSV: {error}") from None
    if rows and not any(cell.replace(".", "").isdigit() for cell in rows[0][1]):
        del rows[0]  # a header
    if not rows:
        raise InputError(f"{path}: no rows of availability")
    for line, row in rows:
        if len(row) != machines or not set(row) <= {"0", "1"}:
            raise InputError(
                f"{path}: line {line} is {','.join(row)!r}: expected {machines} columns of 0 or 1"
            )
    return Listed([[n for n, up in enumerate(row, start=1) if up == "1"] for _, row in rows])
