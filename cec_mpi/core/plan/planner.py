"""Planning of steps: the assignment of rows to the available machines."""

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
from cec_mpi.core.plan.schemes import assign_cyclically, assign_loads
from cec_mpi.errors import InputError
from cec_mpi.text import plural

_MAX_CACHED_PLANS = 64
_MAX_CACHED_SIZE = 1 << 25  # of all plans and decoders, in float64 numbers (256 MiB)
_SIZE_PER_MACHINE_OF_BLOCK = 40  # of Python objects, in float64 numbers


@dataclass(eq=False)
class Plan:
    """The plan of a step: an assignment and its predicted makespan.

    A plan caches its decoders and interval bounds.

    Attributes
    ----------
    assignment : Assignment
    makespan : float
        Time of the slowest machine, in rows per unit of speed: ``max(m / s)``.
    bound : float
        Lower bound on the makespan: c* of Theorem 1 times the rows per shard.
    costs : (N,) ndarray of float, or None
        Cost of each machine's rows in nonzeros, for a sparse X. None if all rows cost the same.
    """

    assignment: Assignment
    makespan: float
    bound: float
    costs: NDArray[np.float64] | None = None
    _decoders: dict[MDSCode, list[Decoder]] = field(default_factory=dict, init=False)
    _interval_bounds: dict[int, list[list[int]]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"<Plan of makespan {self.makespan:g}, at least {self.bound:g}: {self.assignment!r}>"

    @property
    def cached_size(self) -> int:
        """Approximate memory of the plan and its decoders, in float64 numbers."""
        decoder_ids = {id(decoder) for decoders in self._decoders.values() for decoder in decoders}
        decoder_size = len(decoder_ids) * self.assignment.machines_per_row**2
        return _SIZE_PER_MACHINE_OF_BLOCK * self.assignment.machines.size + decoder_size

    def interval_bounds(self, machines: int) -> list[list[int]]:
        """Return the bounds of the intervals of each machine 1..`machines`.

        ``[0, 7, 9, 12]`` stands for the rows 0..6 and 9..11. The list is cached.
        """
        if machines not in self._interval_bounds:
            intervals = self.assignment.all_intervals()
            self._interval_bounds[machines] = [
                [bound for interval in intervals.get(n, ()) for bound in interval]
                for n in range(1, machines + 1)
            ]
        return self._interval_bounds[machines]

    def estimate_work(self, rows: Ints) -> NDArray[np.number]:
        """Return the work of each machine for these numbers of rows, shape (N,).

        Work is counted in rows, or in nonzeros of a sparse X. A row has the mean cost of the
        machine's planned rows, or of all planned rows if the machine has none.
        """
        if self.costs is None:
            return rows
        plan_rows = self.assignment.row_counts(rows.size)
        mean_cost = self.costs.sum() / max(1, plan_rows.sum())
        cost_per_row = np.where(plan_rows > 0, self.costs / np.maximum(plan_rows, 1), mean_cost)
        return rows * cost_per_row

    def decoders(self, code: MDSCode) -> list[Decoder]:
        """Return the decoder of each block; decoders are cached with the plan."""
        if code not in self._decoders:
            machines = self.assignment.machines
            keys = [row.tobytes() for row in machines]
            machines_by_key = dict(zip(keys, machines, strict=True))
            decoders = {key: code.make_decoder(row) for key, row in machines_by_key.items()}
            self._decoders[code] = [decoders[key] for key in keys]
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
        The available machines, ascending, from 1.
    speeds : (N,) sequence of float
        Speed of every machine, whether available or not, in rows per unit of time.
    machines_per_row : int
        Number of machines that compute each row.
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
        A speed is not positive and finite, an available machine has no speed, or another argument
        is invalid.
    InfeasibleError
        Fewer machines are available than `machines_per_row`.

    Examples
    --------
    >>> plan = plan_step((1, 2, 3, 5), (2, 2, 3, 3, 4, 4), 3, 420)
    >>> plan.makespan, plan.bound
    (120.0, 120.0)
    """
    all_speeds = check_speeds(speeds)
    check_machines_per_row(len(available), machines_per_row)
    check_scheme(scheme)
    check_rows(rows)
    machines = check_available(available)
    if machines[-1] > all_speeds.size:
        speed_count = plural(all_speeds.size, "speed", "is", "are")
        raise InputError(f"available machines {tuple(available)}: only {speed_count} specified")
    available_speeds = all_speeds[machines - 1]
    optimum = fractional_load(available_speeds, machines_per_row)
    if scheme == "cyclic":
        assignment = assign_cyclically(available, machines_per_row, rows)
    else:
        loads = round_to_rows(optimum, available_speeds, machines_per_row, rows)
        assignment = assign_loads(available, loads, machines_per_row)
    bound = float(optimum.c_star) * rows
    return Plan(assignment, makespan(assignment.loads, available_speeds), bound)


class Planner:
    """A planner that caches its plans: the same arguments give the same plan object.

    Parameters
    ----------
    recovery : int
        Number of answers needed for each row, L.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}
    stragglers : int
        S, the number of stragglers to tolerate; fewer if too few machines are available.

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
        self._last_call: tuple[object, object, Plan | None] = (None, None, None)

    def plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        """Return the plan for these machines and speeds; see `plan_step`.

        The cyclic scheme has one plan for all speeds, with the makespan of the first speeds.
        """
        last_available, last_speeds, last_plan = self._last_call
        if last_plan is not None and available is last_available and speeds is last_speeds:
            return last_plan
        key = (available, speeds if self._scheme == "heterogeneous" else ())
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make_plan(available, speeds)
            self._plans[key] = plan
            self._evict()
        self._plans.move_to_end(key)
        self._last_call = available, speeds, plan
        return plan

    def _make_plan(self, available: tuple[int, ...], speeds: tuple[float, ...]) -> Plan:
        spare = max(0, min(self._stragglers, len(available) - self._recovery))
        return plan_step(available, speeds, self._recovery + spare, self._rows, self._scheme)

    def _evict(self) -> None:
        """Drop the least recently used plans, but never the newest plan."""
        size = sum(plan.cached_size for plan in self._plans.values())
        while len(self._plans) > 1 and (
            len(self._plans) > _MAX_CACHED_PLANS or size > _MAX_CACHED_SIZE
        ):
            _, oldest = self._plans.popitem(last=False)
            size -= oldest.cached_size
