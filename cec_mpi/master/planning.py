"""What the next step will be, from who is available and how fast; and what it has taught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from numpy.typing import ArrayLike

from cec_mpi.core.plan.planner import Plan, Planner
from cec_mpi.core.plan.scheme import Scheme
from cec_mpi.core.speeds.given import GivenSpeeds, Speeds, hindsight_makespan
from cec_mpi.core.speeds.learned import SpeedEstimator
from cec_mpi.core.step.product import Product
from cec_mpi.master.schedule import Moment, Schedule
from cec_mpi.store.format.manifest import Manifest


class Planned(NamedTuple):
    """A step as it is planned.

    Attributes
    ----------
    moment : Moment
        Its number, when, and with whom.
    speeds : (N,) tuple of float
        With which it was planned, relative.
    plan : Plan
    changed : bool
        Whether the plan is another one than in the step before.
    """

    moment: Moment
    speeds: tuple[float, ...]
    plan: Plan
    changed: bool


class Makespans(NamedTuple):
    """What a step could take, in seconds; None where that is not known.

    Attributes
    ----------
    predicted : float or None
        With the rows that machines computed, at the speeds known before it.
    bound : float or None
        With the best assignment, at the same speeds.
    hindsight : float or None
        With the best assignment, at the speeds that they showed; None with stragglers, where
        machines whose answers do not count show no speed.
    """

    predicted: float | None
    bound: float | None
    hindsight: float | None


class StepPlanner:
    """Plans the steps of one store, and learns from them; without MPI, and on any clock.

    Parameters
    ----------
    schedule : Schedule
        Who is available at each step, also of other stores. It has the clock.
    speeds : Speeds
        Of machines 1..N.
    machines : int
        N.
    recovery : int
        Machines that a step needs, and that compute each row, L.
    rows : int
        Rows per shard, R.
    scheme : {"heterogeneous", "cyclic"}

    Attributes
    ----------
    all_count : bool
        Whether steps wait for all answers, so that each machine shows its speed; at first they do.

    Examples
    --------
    The paper's machines without the fourth:

    >>> from cec_mpi.availability.models import Listed
    >>> from cec_mpi.core.speeds.given import GivenSpeeds
    >>> schedule = Schedule(Listed([(1, 2, 3, 5, 6)]), (1, 2, 3, 4, 5, 6))
    >>> steps = StepPlanner(schedule, GivenSpeeds([2, 2, 3, 3, 4, 4], 3, 420), 6, 3, 420)
    >>> planned = steps.plan(steps.next())
    >>> planned.moment.available, planned.plan.makespan
    ((1, 2, 3, 5, 6), 84.0)
    """

    def __init__(
        self,
        schedule: Schedule,
        speeds: Speeds,
        machines: int,
        recovery: int,
        rows: int,
        scheme: Scheme = "heterogeneous",
    ) -> None:
        self.schedule = schedule
        self.speeds = speeds
        self.all_count = True
        self._machines, self._recovery = machines, recovery
        self._rows, self._scheme = rows, scheme
        self._planners: dict[int, Planner] = {}
        self._last: Plan | None = None  # of a step that has begun

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        schedule: Schedule,
        speeds: Sequence[float] | None,
        scheme: Scheme,
    ) -> StepPlanner:
        """Of a store: with speeds that are given, or with None learned from times of machines."""
        code, rows = manifest.code, manifest.rows_per_shard
        rates: Speeds
        if speeds is None:
            rates = SpeedEstimator(code.machines, code.recovery, rows)
        else:
            rates = GivenSpeeds(speeds, code.recovery, rows)
        return cls(schedule, rates, code.machines, code.recovery, rows, scheme)

    def next(self, more: int = 0) -> Moment:
        """The moment of the next step, with so many machines more than it needs.

        As `Schedule.next`: waits for it, and raises `InfeasibleError` where that is in vain.
        """
        return self.schedule.next(self._recovery + more, self._machines)

    def plan(self, moment: Moment, stragglers: int = 0) -> Planned:
        """Who computes what at a moment; each row by S machines more where they are available."""
        available = moment.available
        copies = min(self._recovery + stragglers, len(available))
        if copies not in self._planners:
            self._planners[copies] = Planner(copies, self._rows, self._scheme)
        speeds = self.speeds.plan_speeds(available)
        plan = self._planners[copies].plan(available, speeds)
        return Planned(moment, speeds, plan, plan is not self._last)

    def begun(self, planned: Planned) -> None:
        """The machines have heard of it: what was refused before has made no step."""
        self.schedule.taken(planned.moment)
        self._last = planned.plan

    def learn(
        self, planned: Planned, product: Product, rows: ArrayLike, seconds: ArrayLike
    ) -> Makespans:
        """Take what each machine did in a step; returns what it could have come to.

        Parameters
        ----------
        planned : Planned
        product : Product
        rows : (N,) array_like
            Rows that each machine computed, 0 where preempted.
        seconds : (N,) array_like
            Seconds that it took.
        """
        known = Makespans(
            self.speeds.predict(product, rows),
            self.speeds.bound(product, planned.moment.available),
            hindsight_makespan(rows, seconds, self._recovery, self._rows)
            if self.all_count
            else None,
        )
        self.speeds.observe(product, rows, seconds)
        return known
