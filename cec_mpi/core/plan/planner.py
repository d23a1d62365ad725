"""Planning a step: which available machine computes which rows, from speeds and shards."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.assignment import (
    Assignment,
    Ints,
    Scheme,
    check_available,
    check_scheme,
)
from cec_mpi.core.plan.load import (
    check_machines_per_row,
    check_rows,
    check_speeds,
    fractional_load,
    makespan,
    round_to_rows,
)
from cec_mpi.core.plan.schemes import cyclic, heterogeneous
from cec_mpi.errors import InputError
from cec_mpi.text import plural

# Plans that are remembered, with what was made of them; numbers in their decoders and the like,
# where the place of a machine in a block counts for what Python keeps of it (256 MiB).
_MAX_PLANS = 64
_NUMBERS, _OVERHEAD_PER_ENTRY = 1 << 25, 40


@dataclass(eq=False)
class Plan:
    """The plan of a step: which machine computes which rows, and the expected time.

    It keeps the decoders and bounds that were made of it, as long as a `Planner` keeps the plan.

    Attributes
    ----------
    assignment : Assignment
        Of rows to machines.
    makespan : float
        Time of the slowest machine, in rows per unit of speed: ``max(m / s)``.
    bound : float
        Lower bound of the makespan: c* of Theorem 1 times the rows per shard.
    costs : (N,) ndarray of float, or None
        Of a sparse X: what the rows of each machine cost, in nonzeros. None: all rows cost the
        same.
    """

    assignment: Assignment
    makespan: float
    bound: float
    costs: NDArray[np.float64] | None = None
    _decoders: dict[MDSCode, list[Decoder]] = field(default_factory=dict, init=False)
    _bounds: dict[int, list[list[int]]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<Plan of makespan {self.makespan:g}, at least {self.bound:g}: {self.assignment!r}>"

    @property
    def numbers(self) -> int:
        """About how many numbers the plan and the decoders made for it keep in memory."""
        different = {id(each) for made in self._decoders.values() for each in made}
        decoders = len(different) * self.assignment.machines_per_row**2
        return _OVERHEAD_PER_ENTRY * self.assignment.machines.size + decoders

    def bounds(self, machines: int) -> list[list[int]]:
        """Return the bounds of the intervals of each of the machines 1..`machines`.

        ``[0, 7, 9, 12]`` stands for the rows 0..6 and 9..11. The list is made once.
        """
        if machines not in self._bounds:
            found = self.assignment.intervals_of_all()
            self._bounds[machines] = [
                [bound for interval in found.get(n, ()) for bound in interval]
                for n in range(1, machines + 1)
            ]
        return self._bounds[machines]

    def amounts(self, rows: Ints) -> NDArray[np.number]:
        """What so many rows of each machine, (N,), come to: rows, or nonzeros of a sparse X.

        Where a machine has computed other rows than planned, they count like those planned.
        """
        if self.costs is None:
            return rows
        planned = self.assignment.counts(rows.size)
        mean = self.costs.sum() / max(1, planned.sum())
        cost_per_row = np.where(planned > 0, self.costs / np.maximum(planned, 1), mean)
        return rows * cost_per_row

    def decoders(self, code: MDSCode) -> list[Decoder]:
        """Return the decoder of each block, made on first use and kept with the plan."""
        if code not in self._decoders:
            machines = self.assignment.machines
            keys = [each.tobytes() for each in machines]
            different = dict(zip(keys, machines, strict=True))
            known = {key: code.make_decoder(each) for key, each in different.items()}
            self._decoders[code] = [known[key] for key in keys]
        return self._decoders[code]


def plan_step(
    available: Sequence[int],
    speeds: Sequence[float],
    machines_per_row: int,
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
    machines_per_row : int
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
        Fewer machines are available than `machines_per_row`.

    Examples
    --------
    >>> plan = plan_step((1, 2, 3, 5), (2, 2, 3, 3, 4, 4), 3, 420)
    >>> plan.makespan, plan.bound
    (120.0, 120.0)
    """
    everyone = check_speeds(speeds)
    check_machines_per_row(len(available), machines_per_row)
    check_scheme(scheme)
    check_rows(rows)
    numbers = check_available(available)
    if numbers[-1] > everyone.size:
        given = plural(everyone.size, "speed", "is", "are")
        raise InputError(f"available machines {tuple(available)}: {given} given")
    present = everyone[numbers - 1]
    best = fractional_load(present, machines_per_row)
    if scheme == "cyclic":
        assignment = cyclic(available, machines_per_row, rows)
    else:
        assignment = heterogeneous(
            available, round_to_rows(best, present, machines_per_row, rows), machines_per_row
        )
    bound = float(best.c_star) * rows
    return Plan(assignment, makespan(assignment.loads, present), bound)


class Planner:
    """Plans the steps of one store, and returns the same plan while nothing changes.

    Parameters
    ----------
    recovery : int
        Machines that compute each row, L.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}
    stragglers : int
        S: any S machines may be late; fewer if too few machines are available.

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
    ) -> None:
        check_scheme(scheme)
        self._recovery, self._rows, self._scheme = recovery, rows, scheme
        self._stragglers = stragglers
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
            plan = self._make_plan(available, speeds)
            self._plans[key] = plan
            self._evict()
        self._plans.move_to_end(key)
        self._last = available, speeds, plan
        return plan

    def _make_plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        spare = max(0, min(self._stragglers, len(available) - self._recovery))
        return plan_step(available, speeds, self._recovery + spare, self._rows, self._scheme)

    def _evict(self) -> None:
        """Drop the plans that were used longest ago; the newest plan always stays."""
        numbers = sum(plan.numbers for plan in self._plans.values())
        while len(self._plans) > 1 and (len(self._plans) > _MAX_PLANS or numbers > _NUMBERS):
            _, oldest = self._plans.popitem(last=False)
            numbers -= oldest.numbers
