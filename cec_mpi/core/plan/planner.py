"""Planning a step: which available machine computes which rows, from speeds and shards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.assignment import Assignment, Ints, Scheme, check_available, check_scheme
from cec_mpi.core.plan.load import (
    check_copies,
    check_rows,
    check_speeds,
    fractional_load,
    makespan,
    whole_rows,
)
from cec_mpi.core.plan.placement import Intervals, Placement
from cec_mpi.core.plan.schemes import cyclic, cyclic_most, heterogeneous, in_turns
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

# Plans that are remembered, with what was made of them; numbers in their decoders and the like,
# where the place of a machine in a block counts for what Python keeps of it (256 MiB).
_PLANS = 64
_NUMBERS, _NUMBERS_PER_PLACE = 1 << 25, 40
_Load = TypeVar("_Load", int, Fraction)


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
    """The plan of a step: which machine computes which rows, and the expected time.

    Attributes
    ----------
    assignment : Assignment
        Of rows to shards: its machines are shards. If each machine has one shard, shard n is
        machine n.
    makespan : float
        Time of the slowest machine, in rows per unit of speed: ``max(m / s)``.
    bound : float
        Lower bound of the makespan: c* of Theorem 1 times the rows per shard.
    placement : Placement
        Which machine computes with which shard.
    most_shards : int
        b: each row is computed with at most so many shards of one machine.
    costs : (N,) ndarray of float, or None
        Of a sparse X: what the rows of each machine cost, in nonzeros. None: all rows cost the
        same.
    numbers : int
        About how many numbers the plan and its decoders keep in memory.
    """

    assignment: Assignment
    makespan: float
    bound: float
    placement: Placement
    most_shards: int = 1
    costs: NDArray[np.float64] | None = None
    numbers: int = field(init=False)
    _decoders: dict[MDSCode, list[Decoder]] = field(default_factory=dict)
    _bounds: dict[int, list[list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = _NUMBERS_PER_PLACE * self.assignment.machines.size
        object.__setattr__(self, "numbers", size)

    def __repr__(self) -> str:
        return f"<Plan of makespan {self.makespan:g}, at least {self.bound:g}: {self.assignment!r}>"

    def bounds(self, machines: int) -> list[list[int]]:
        """Return the bounds of the `intervals` of each of the machines 1..`machines`.

        ``[0, 7, 9, 12]`` stands for the rows 0..6 and 9..11. The list is made once.
        """
        if machines not in self._bounds:
            found = self._intervals
            self._bounds[machines] = [
                [bound for interval in found.get(n, ()) for bound in interval]
                for n in range(1, machines + 1)
            ]
        return self._bounds[machines]

    def intervals(self, machine: int) -> Intervals:
        """Return the rows of a machine, counted through all of its shards: ascending and merged."""
        if self.placement.is_plain:
            return self.assignment.intervals(machine)
        return self._intervals.get(machine, ())

    def pieces(self) -> list[Piece]:
        """Return the rows that are computed with each shard, in the order of the shards."""
        return [
            Piece(self.placement.holder(shard), shard, rows)
            for shard, rows in self.assignment.intervals_of_all().items()
        ]

    def amounts(self, rows: Ints) -> NDArray[np.number]:
        """What so many rows of each machine, (N,), come to: rows, or nonzeros of a sparse X.

        Where a machine has computed other rows than planned, they count like those planned.
        """
        if self.costs is None:
            return rows
        planned = self.counts(rows.size)
        mean = self.costs.sum() / max(1, planned.sum())
        each = np.where(planned > 0, self.costs / np.maximum(planned, 1), mean)
        return rows * each

    @property
    def most_rows(self) -> int:
        """The largest number of rows of a machine, of all of its shards."""
        return int(self.counts(self.placement.machines).max())

    def counts(self, machines: int) -> Ints:
        """Return the rows of each of the machines 1..`machines`, over all of its shards."""
        if self.placement.is_plain:
            return self.assignment.counts(machines)
        return self.placement.rows(self.assignment.counts(self.placement.shards))

    @cached_property
    def _intervals(self) -> dict[int, Intervals]:
        of_shards = self.assignment.intervals_of_all()
        return self.placement.stacked(of_shards, self.assignment.rows)

    def decoders(self, code: MDSCode) -> list[Decoder]:
        """Return the decoder of each block, made on first use and kept with the plan."""
        if code not in self._decoders:
            machines = self.assignment.machines
            keys = [each.tobytes() for each in machines]
            different = dict(zip(keys, machines, strict=True))
            known = {key: code.decoder(each) for key, each in different.items()}
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
        A speed is not positive and finite, or an available machine has no speed.
    InfeasibleError
        Fewer machines are available than `copies`.

    Examples
    --------
    >>> plan = plan_step((1, 2, 3, 5), (2, 2, 3, 3, 4, 4), 3, 420)
    >>> plan.makespan, plan.bound
    (120.0, 120.0)
    """
    everyone = check_speeds(speeds)
    return plan_placed(
        Placement.plain(everyone.size), available, everyone, copies, rows, scheme=scheme
    )


def plan_placed(
    placement: Placement,
    available: Sequence[int],
    speeds: Sequence[float] | NDArray[np.float64],
    recovery: int,
    rows: int,
    stragglers: int = 0,
    scheme: Scheme = "heterogeneous",
) -> Plan:
    """Plan one step of machines with any numbers of shards.

    Parameters
    ----------
    placement : Placement
        Which machine computes with which shards.
    available : (N_t,) sequence of int
        Numbers of the available machines, ascending, from 1.
    speeds : (M,) sequence of float
        Speed of every machine, available or not, in rows per unit of time. A row that is computed
        with two shards of a machine counts twice.
    recovery : int
        Shards that each row needs, L.
    rows : int
        Rows per shard, R.
    stragglers : int
        S: any S machines may be late or lost.
    scheme : {"heterogeneous", "cyclic"}

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A speed is not positive and finite, or an available machine has no speed.
    InfeasibleError
        The available machines have too few shards for a row, with any S machines left out.

    Notes
    -----
    A machine with c shards is planned as c machines of speed s/c. It computes all rows with its
    first shards, and with one of them the rows that are left.

    If S machines may be late, each row is computed with ``L + S b`` shards, at most b of each
    machine: then L shards are left without any S machines. A machine uses the first ``min(c, b)``
    of its shards. The planner tries all b and takes the one with the least c*. Rows with different
    b could be faster, and so could a shard whose rows are split between several machines. The bound
    holds for these too: it is c* for ``L + S`` copies of each row on all shards.

    Examples
    --------
    >>> placement = Placement((1, 1, 1, 1, 1, 4), 9)
    >>> plan = plan_placed(placement, range(1, 7), (1, 1, 1, 1, 1, 20), 4, 100)
    >>> plan.makespan, plan.bound
    (16.0, 16.0)
    >>> plan.counts(6).tolist(), plan.intervals(6)
    ([16, 16, 16, 16, 16, 320], ((0, 300), (380, 400)))
    """
    everyone = check_speeds(speeds)
    plain = placement.is_plain
    if plain:
        check_copies(len(available), recovery + stragglers)
    check_scheme(scheme)
    check_rows(rows)
    numbers = check_available(available)
    if numbers[-1] > everyone.size:
        given = plural(everyone.size, "speed", "is", "are")
        raise InputError(f"available machines {tuple(available)}: {given} given")
    present = everyone[numbers - 1]
    held = [placement.asked(n) for n in numbers.tolist()]
    counts = [len(mine) for mine in held]
    if not plain:
        check_copies(numbers.size, recovery, sum(counts))
    least = recovery + stragglers  # shards of a row, whatever b is
    most_held = [len(placement.of(n)) for n in numbers.tolist()]  # also those asked from others
    if scheme == "cyclic":
        most = cyclic_most(held, recovery, stragglers)
    else:
        most = best_most(present, counts, recovery, stragglers)
    copies, best = recovery + stragglers * most, fractional_load(present, least, most_held)
    if scheme == "cyclic":
        assignment = cyclic(in_turns(held), copies, rows)
    else:
        load, used = best, [min(c, most) for c in counts]
        if (copies, used) != (least, most_held):
            load = fractional_load(present, copies, used)
        of_machines = whole_rows(load, present, copies, rows, used)
        shards_used = [mine[:c] for mine, c in zip(held, used, strict=True)]
        of_shards = loads_of_shards(shards_used, of_machines.tolist(), rows)
        shards = sorted(of_shards)
        assignment = heterogeneous(shards, [of_shards[k] for k in shards], copies)
    loads = placement.rows(assignment.counts(placement.shards))[numbers - 1]
    bound = float(best.c_star) * rows
    return Plan(assignment, makespan(loads, present), bound, placement, most)


def loads_of_shards(
    held: Sequence[Sequence[int]], loads: Sequence[_Load], whole: _Load
) -> dict[int, _Load]:
    """Return the rows of each shard: a machine computes all rows of one before it begins the next.

    Parameters
    ----------
    held : (N_t,) sequence of sequence of int
        Shards of each machine, in the order in which it uses them.
    loads : (N_t,) sequence of int or Fraction
        Load of each machine, in rows or in shards.
    whole : int or Fraction
        Load of a whole shard: R, or 1.

    Examples
    --------
    >>> loads_of_shards([(1,), (2, 3)], [6, 16], 10)
    {1: 6, 2: 10, 3: 6}
    """
    return {
        shard: min(max(load - place * whole, 0 * whole), whole)
        for mine, load in zip(held, loads, strict=True)
        for place, shard in enumerate(mine)
    }


def best_most(
    speeds: NDArray[np.float64], counts: Sequence[int], recovery: int, stragglers: int
) -> int:
    """Return the b with the least c* for ``L + S b`` copies (see `plan_placed`).

    Examples
    --------
    >>> best_most(np.array([1.0, 1.0, 8.0]), [2, 2, 2], 2, 1)
    1
    >>> best_most(np.array([1.0, 1.0, 8.0]), [2, 2, 2], 4, 1)
    2
    """
    most = max(counts)
    if not stragglers:
        return most
    levels = {}
    for b in range(1, most + 1):
        copies, used = recovery + stragglers * b, [min(c, b) for c in counts]
        if copies <= sum(used):
            levels[b] = fractional_load(speeds, copies, used).c_star
    if not levels:
        raise InfeasibleError(
            f"{plural(len(counts), 'machine')} with {plural(sum(counts), 'shard')} available: no "
            f"row can keep {recovery} of them when any "
            f"{plural(stragglers, 'machine', 'is', 'are')} late or lost"
        )
    return min(levels, key=lambda b: levels[b])


class Planner:
    """Plans the steps of one store, and returns the same plan while nothing changes.

    Parameters
    ----------
    recovery : int
        Shards that compute each row, L.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}
    stragglers : int
        S: any S machines may be late; fewer if too few machines are available.
    placement : Placement, optional
        By default machine n has shard n.
    by_speed : bool
        Whether a shard that several machines have is computed by the one that finishes first, or by
        the machine to which it belongs.

    Examples
    --------
    >>> planner = Planner(3, 420)
    >>> first = planner.plan((1, 2, 3), (1.0, 1.0, 2.0))
    >>> planner.plan((1, 2, 3), (1.0, 1.0, 2.0)) is first
    True
    """

    def __init__(
        self,
        recovery: int,
        rows: int,
        scheme: Scheme = "heterogeneous",
        stragglers: int = 0,
        placement: Placement | None = None,
        by_speed: bool = False,
    ) -> None:
        check_scheme(scheme)
        self._recovery, self._rows, self._scheme = recovery, rows, scheme
        self._stragglers, self._placement, self._by_speed = stragglers, placement, by_speed
        self._plans: OrderedDict[tuple[tuple[int, ...], tuple[float, ...]], Plan] = OrderedDict()
        self._last: tuple[object, object, Plan | None] = (None, None, None)

    def plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        """Return the plan for these machines and speeds (see `plan_step`), made once.

        The cyclic scheme has one plan for all speeds, with the times that the first speeds give.
        """
        last_available, last_speeds, last = self._last
        if last is not None and available is last_available and speeds is last_speeds:
            return last
        key = (available, speeds if self._scheme == "heterogeneous" else ())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(available, speeds)
            self._plans[key] = plan
            self._forget()
        self._plans.move_to_end(key)
        self._last = available, speeds, plan
        return plan

    def _planned(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        placement = self._placement or Placement.plain(len(speeds))
        placement = placement.among(available, speeds if self._by_speed else None)
        spare = min(self._stragglers, placement.to_spare(self._recovery, available))
        given = self._recovery, self._rows
        while spare > 0:
            try:
                return plan_placed(placement, available, speeds, *given, spare, self._scheme)
            except InfeasibleError:
                if self._scheme == "heterogeneous":
                    raise
                spare -= 1  # cyclic rows cannot be as many
        return plan_placed(placement, available, speeds, *given, 0, self._scheme)

    def _forget(self) -> None:
        """Drop the plans that were used longest ago; the newest plan always stays."""
        numbers = sum(plan.numbers for plan in self._plans.values())
        while len(self._plans) > 1 and (len(self._plans) > _PLANS or numbers > _NUMBERS):
            _, oldest = self._plans.popitem(last=False)
            numbers -= oldest.numbers
