"""Plan steps from availability and speeds, and learn speeds from the times of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.demand import CodedDemand, Demand
from cec_mpi.core.plan.assignment import Scheme
from cec_mpi.core.plan.placement import CodedPlacement
from cec_mpi.core.plan.planner import Plan, Planner
from cec_mpi.core.replicas.parts import Parts
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.core.replicas.planner import ReplicaDemand
from cec_mpi.core.speeds import FixedSpeeds, SpeedEstimator, Speeds, hindsight_makespan
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.master.step import Makespans, Step
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.format.scaling import Scaling


class StepPlanner:
    """Plans the steps of a session, and updates the speeds of machines after them.

    Parameters
    ----------
    schedule : Schedule
    speeds : Speeds
        Speeds of machines 1..N.
    placement : CodedPlacement or ReplicaPlacement
        Determines which sets of machines suffice.
    recovery : int
        L, the number of machines that compute each row.
    scheme : {"heterogeneous", "cyclic"}

    Attributes
    ----------
    placement : CodedPlacement or ReplicaPlacement
    uses_all_answers : bool
        Whether steps wait for all answers, so that hindsight makespans are defined.

    Examples
    --------
    The paper's machines without the fourth:

    >>> from cec_mpi.runtime.availability.models import ListedAvailability
    >>> from cec_mpi.core.speeds import FixedSpeeds
    >>> speeds = FixedSpeeds([2, 2, 3, 3, 4, 4], CodedDemand(6, 3, 420))
    >>> schedule = Schedule(ListedAvailability([(1, 2, 3, 5, 6)]), (1, 2, 3, 4, 5, 6))
    >>> planner = StepPlanner(schedule, speeds, CodedPlacement(6), 3)
    >>> step = planner.plan(planner.next_step())
    >>> step.available, step.plan.makespan
    ((1, 2, 3, 5, 6), 84.0)
    """

    def __init__(
        self,
        schedule: Schedule,
        speeds: Speeds,
        placement: CodedPlacement | ReplicaPlacement,
        recovery: int,
        scheme: Scheme = "heterogeneous",
    ) -> None:
        self.schedule = schedule
        self.speeds = speeds
        self.uses_all_answers = True
        self.placement, self._recovery, self._scheme = placement, recovery, scheme
        self._planners: dict[int, Planner] = {}
        self._host_names: Mapping[int, str] | None = None  # last passed to `speeds`
        self._last_plan: Plan | None = None
        self._cached_rows: tuple[Plan | None, list[int]] = None, []
        self._cached_work: tuple[Plan | None, Sequence[int], NDArray[np.number]] = (
            None,
            (),
            np.zeros(0),
        )

    @classmethod
    def for_store(
        cls,
        manifest: Manifest,
        schedule: Schedule,
        speeds: Sequence[float] | None,
        scheme: Scheme,
        parts: tuple[Parts, ReplicaPlacement] | None,
    ) -> StepPlanner:
        """Return the planner of a store.

        Parameters
        ----------
        manifest : Manifest
        schedule : Schedule
        speeds : sequence of float or None
            Speeds of machines 1..N; None to learn them from the times of machines.
        scheme : {"heterogeneous", "cyclic"}
        parts : (Parts, ReplicaPlacement) or None
            For copies of sparse rows, see `Manifest.read_parts`.
        """
        recovery = manifest.code.recovery
        demand: Demand
        if parts is None:
            demand = CodedDemand(manifest.machines, recovery, manifest.rows_per_shard)
        else:
            demand = ReplicaDemand(*parts)
        estimator = SpeedEstimator(demand) if speeds is None else FixedSpeeds(speeds, demand)
        return cls(schedule, estimator, manifest.placement, recovery, scheme)

    def next_step(self, extra_answers: int = 0, caller_waits: bool = False) -> Step:
        """Return the next step, with L + `extra_answers` answers for each row.

        See `Schedule.next_step`.
        """
        return self.schedule.next_step(self._recovery, self.placement, extra_answers, caller_waits)

    def plan(self, step: Step, extra_machines: int = 0) -> Step:
        """Plan a step, with L + `extra_machines` machines for each row if available; return it."""
        available, demand = step.available, self.speeds.demand
        if extra_machines not in self._planners:
            self._planners[extra_machines] = demand.make_planner(self._scheme, extra_machines)
        roster = self.schedule.roster
        if roster is not None and self._host_names is not roster.host_names:
            self._host_names = roster.host_names
            machines = range(1, self.placement.machines + 1)
            self.speeds.set_hosts(
                {n: host for n, host in self._host_names.items() if n in machines}
            )
        step.speeds = self.speeds.plan_speeds(available)
        step.plan = self._planners[extra_machines].plan(available, step.speeds)
        step.plan_changed = step.plan is not self._last_plan
        return step

    def count_rows(self, plan: Plan) -> list[int]:
        """Return the number of rows of each machine in a plan; the same list for the same plan."""
        if self._cached_rows[0] is not plan:
            rows = plan.assignment.row_counts(self.placement.machines).tolist()
            self._cached_rows = plan, rows
        return self._cached_rows[1]

    def estimate_work(self, plan: Plan, rows: Sequence[int]) -> NDArray[np.number]:
        """See `Plan.estimate_work`; cached for the last plan and object `rows`."""
        if self._cached_work[0] is not plan or self._cached_work[1] is not rows:
            self._cached_work = plan, rows, plan.estimate_work(np.asarray(rows))
        return self._cached_work[2]

    def begin(self, step: Step) -> None:
        """Commit a step whose first order is being sent."""
        if not step.has_begun:
            step.has_begun = True
            self.schedule.commit(step, self.placement.machines)
            self._last_plan = step.plan

    def learn(
        self,
        step: Step,
        rows: Sequence[int],
        seconds: NDArray[np.float64] | Sequence[float],
    ) -> Makespans:
        """Update speeds from the times of machines in a step, and return its makespans.

        Parameters
        ----------
        step : Step
        rows : (N,) sequence of int
            Number of rows that each machine computed. Do not modify this object afterwards, because
            the work of its rows is cached.
        seconds : (N,) sequence of float
            Computation time of each machine.
        """
        available, product, demand = step.available, step.product, self.speeds.demand
        work = self.estimate_work(step.plan, rows)
        makespans = Makespans(
            self.speeds.predict(product, work),
            self.speeds.bound(product, available),
            hindsight_makespan(work, seconds, demand) if self.uses_all_answers else None,
        )
        self.speeds.observe(product, work, seconds)
        return makespans


@dataclass(frozen=True)
class ServedStore:
    """A store that machines serve, with the planner and the recorder of its steps.

    Attributes
    ----------
    manifest : Manifest
    scaling : Scaling
        Exponents of the rows of X, and sizes of its columns.
    planner : StepPlanner
    recorder : Recorder
    arithmetic : numpy.dtype
        Dtype of computations on machines, and of vectors and answers in messages.
    threads : int
        Number of cores on which the master decodes.
    """

    manifest: Manifest
    scaling: Scaling
    planner: StepPlanner
    recorder: Recorder
    arithmetic: np.dtype[Any]
    threads: int
