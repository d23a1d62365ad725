"""From who is available and how fast to who computes what, remembered while it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.assignment import Assignment, bounds_of
from cec_mpi.core.plan.load import (
    check_copies,
    check_speeds,
    fractional_load,
    makespan,
    optimal_load,
)
from cec_mpi.core.plan.numbers import Ints, check_available
from cec_mpi.core.plan.scheme import Scheme, check_scheme
from cec_mpi.core.plan.schemes import cyclic, heterogeneous
from cec_mpi.errors import InputError
from cec_mpi.text import plural

Intervals = tuple[tuple[int, int], ...]

# Plans that are remembered, with what was made of them; numbers in their decoders and the like,
# where the place of a machine in a block counts for what Python keeps of it (256 MiB).
_PLANS = 64
_NUMBERS, _NUMBERS_PER_PLACE = 1 << 25, 40


class Piece(NamedTuple):
    """Rows that a machine computes with one shard.

    Attributes
    ----------
    machine, shard : int
    intervals : tuple of (int, int)
        Of the shard: ascending and merged.
    """

    machine: int
    shard: int
    intervals: Intervals


@dataclass(frozen=True, eq=False)
class Plan:
    """Who computes which rows in a step, and what that should take.

    Attributes
    ----------
    assignment : Assignment
    makespan : float
        Time of the slowest machine, in rows per unit of speed: ``max(m / s)``.
    bound : float
        What no assignment can beat: c* of Theorem 1 times the rows per shard.
    numbers : int
        About how many numbers all of it takes; more with decoders.
    """

    assignment: Assignment
    makespan: float
    bound: float
    numbers: int = field(init=False)
    _decoders: dict[MDSCode, list[Decoder]] = field(default_factory=dict)
    _bounds: dict[int, list[list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = _NUMBERS_PER_PLACE * self.assignment.machines.size
        object.__setattr__(self, "numbers", size)

    def __repr__(self) -> str:
        return f"<Plan of makespan {self.makespan:g}, at least {self.bound:g}: {self.assignment!r}>"

    def bounds(self, machines: int) -> list[list[int]]:
        """Bounds of the rows of each of all machines (see `bounds_of`): always the same list."""
        if machines not in self._bounds:
            self._bounds[machines] = bounds_of(self.assignment, machines)
        return self._bounds[machines]

    def intervals(self, machine: int) -> Intervals:
        """The rows of a machine, in intervals: ascending and merged."""
        return self.assignment.intervals(machine)

    def pieces(self) -> list[Piece]:
        """The rows of each available machine, by shard, in the order of shards and rows."""
        return [Piece(n, n, rows) for n, rows in self.assignment.intervals_of_all().items()]

    @property
    def most_rows(self) -> int:
        """The largest number of rows of a machine."""
        return int(self.assignment.loads.max())

    def counts(self, machines: int) -> Ints:
        """Rows of each of the machines 1..`machines`, 0 for the preempted: shape (machines,)."""
        return self.assignment.counts(machines)

    def decoders(self, code: MDSCode) -> list[Decoder]:
        """The decoder of each block, all factored on first use and kept with the plan."""
        if code not in self._decoders:
            machines = self.assignment.machines
            keys = [each.tobytes() for each in machines]
            firsts = {key: f for f, key in reversed(list(enumerate(keys)))}
            found = code.decoders(machines[list(firsts.values())])
            known = dict(zip(firsts, found, strict=True))
            self._decoders[code] = [known[key] for key in keys]
            numbers = self.numbers + len(known) * self.assignment.copies**2
            object.__setattr__(self, "numbers", numbers)
        return self._decoders[code]


def plan_step(
    available: Sequence[int],
    speeds: Sequence[float],
    copies: int,
    rows: int,
    scheme: Scheme = "heterogeneous",
) -> Plan:
    """Plan one step.

    Parameters
    ----------
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending, from 1.
    speeds : (N,) sequence of float
        Speed of every machine, available or not, in rows per unit of time.
    copies : int
        Machines that compute each row.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}
        Algorithm 1 on the optimal load, or the equal loads of Yang et al.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A speed is not positive and finite, or there is none for an available machine.
    InfeasibleError
        Fewer machines are available than `copies`.

    Examples
    --------
    >>> plan = plan_step((1, 2, 3, 5), (2, 2, 3, 3, 4, 4), 3, 420)
    >>> plan.makespan, plan.bound
    (120.0, 120.0)
    """
    everyone = check_speeds(speeds)
    check_copies(len(available), copies)
    check_scheme(scheme)
    numbers = check_available(available)
    if numbers[-1] > everyone.size:
        given = plural(everyone.size, "speed", "is", "are")
        raise InputError(f"available machines {tuple(available)}: {given} given")
    present = everyone[numbers - 1]
    if scheme == "cyclic":
        c_star = float(fractional_load(present, copies).c_star)
        assignment = cyclic(available, copies, rows)
    else:
        loads, c_star = optimal_load(present, copies, rows)
        assignment = heterogeneous(available, loads, copies)
    return Plan(assignment, makespan(assignment.loads, present), c_star * rows)


class Planner:
    """Plans steps of one store, and gives the same plan back while nothing changes.

    Parameters
    ----------
    copies : int
        Machines that compute each row.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}

    Examples
    --------
    >>> planner = Planner(3, 420)
    >>> first = planner.plan((1, 2, 3), (1.0, 1.0, 2.0))
    >>> planner.plan((1, 2, 3), (1.0, 1.0, 2.0)) is first
    True
    """

    def __init__(self, copies: int, rows: int, scheme: Scheme = "heterogeneous") -> None:
        check_scheme(scheme)
        self.copies = copies
        self.rows = rows
        self.scheme: Scheme = scheme
        self._plans: OrderedDict[tuple[tuple[int, ...], tuple[float, ...]], Plan] = OrderedDict()
        self._last: tuple[object, object, Plan | None] = (None, None, None)

    def plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        """The plan for these machines and speeds (see `plan_step`), remembered.

        The cyclic scheme has one for all speeds, with the times that the first ones promise.
        """
        last_available, last_speeds, last = self._last
        if last is not None and available is last_available and speeds is last_speeds:
            return last
        key = (available, speeds if self.scheme == "heterogeneous" else ())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(available, speeds)
            self._plans[key] = plan
            self._forget()
        self._plans.move_to_end(key)
        self._last = available, speeds, plan
        return plan

    def _planned(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        return plan_step(available, speeds, self.copies, self.rows, self.scheme)

    def _forget(self) -> None:
        """Drop the plans used longest ago; the newest always stays."""
        numbers = sum(plan.numbers for plan in self._plans.values())
        while len(self._plans) > 1 and (len(self._plans) > _PLANS or numbers > _NUMBERS):
            _, oldest = self._plans.popitem(last=False)
            numbers -= oldest.numbers
