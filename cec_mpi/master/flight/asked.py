"""Who is asked in an elastic step: machines that can be, and what they have."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from cec_mpi.core.accuracy.finite import Unusable
from cec_mpi.core.placement.placement import Placement
from cec_mpi.errors import InfeasibleError
from cec_mpi.master.step import Step
from cec_mpi.roster import State
from cec_mpi.wire.jobs import Intervals, Job

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne

log = logging.getLogger(__name__)


class Asked:
    """The machines of a step, and what they were asked for.

    Parameters
    ----------
    master : MadeOneByOne
    step : Step

    Attributes
    ----------
    machines : set of int
        That may have a part in it.
    outstanding : dict of int to Job
        What has not been answered yet.
    refused : dict of int to Unusable
        Machines with an answer that is not finite.
    wrong : set of int
        Machines of which nothing more is used.
    """

    def __init__(self, master: MadeOneByOne, step: Step) -> None:
        self.master = master
        self.step = step
        self.end = master.end
        self.hub = master.end.hub
        self.roster = self.hub.roster
        self.machines = set(step.available)
        self.outstanding: dict[int, Job] = {}
        self.refused: dict[int, Unusable] = {}
        self.wrong: set[int] = set()

    def ask(self, machine: int, intervals: Intervals, content: NDArray[Any]) -> None:
        """Give a job to an idle machine."""
        step = self.step
        job = self.end.ask(machine, step.number, step.product, intervals, content)
        self.outstanding[machine] = job
        step.count(announce=16 * len(intervals), share=content.nbytes)

    def ready(self) -> set[int]:
        """Machines that can be given a job: idle, and their last answer is taken."""
        return self.roster.machines(State.IDLE) - set(self.outstanding)

    def helpers(self) -> set[int]:
        """Machines that may be asked for what others do not answer."""
        computing = self.roster.machines(State.COMPUTING) & set(self.outstanding)
        usable = self.roster.machines(State.IDLE) | computing
        return (self.machines & usable) - set(self.refused) - self.wrong

    @property
    def placement(self) -> Placement:
        """Which machine has which shards; of several, who may be asked for one now."""
        placement = self.master.steps.placement
        return placement.among(sorted(self.helpers())) if placement.adopted else placement

    def helping(self) -> tuple[int, ...]:
        """The shards of these."""
        return self.placement.of_all(sorted(self.helpers()))

    def unusable(self) -> set[int]:
        """Shards of which no answer counts, whoever gives it."""
        return set()

    def adopt_missing(self) -> bool:
        """Whether others take over what is missing, or will be asked when they have answered."""
        adopting = self.master.adopting
        if adopting is None or self.roster.machines(State.JOINING) & self.master.up:
            return False
        helpers = sorted(self.helpers())
        if any(self.outstanding[n].adopted is None for n in helpers if n in self.outstanding):
            return True
        spare = 0 if self.step.product.adjoint else self.master.spare
        given = helpers, self.ready() & set(helpers), self.step.number, spare
        try:
            self.take_over(adopting.begin(*given, self.unusable()))
        except InfeasibleError as error:
            log.warning("no shards are taken over: %s", error)
            return adopting.is_reading
        return adopting.is_reading

    def take_over(self, jobs: list[Job]) -> bool:
        """Wait for machines that take over shards; whether there are any."""
        self.outstanding.update((job.machine, job) for job in jobs)
        return bool(jobs)
