"""What a step by messages needs of its master."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from cec_mpi.core.plan.planner import Plan
from cec_mpi.master.planning import StepPlanner
from cec_mpi.options.deadline import Deadline
from cec_mpi.processes.waiting import Rhythm
from cec_mpi.roster.changes import Lost
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.wire.jobs import Event, Intervals, Jobs


class Context(Protocol):
    """The master, as its steps see it.

    Attributes
    ----------
    manifest : Manifest
    arithmetic : numpy.dtype
        What vectors and answers travel, and products are computed, in.
    end : Jobs
        The wire.
    deadline : Deadline or None
    samples : bool
        Only some rows are compared.
    up : set of int
        Machines that are up, lost or not.
    steps : StepPlanner
    rhythm : Rhythm
        Of waits for answers.
    """

    manifest: Manifest
    arithmetic: np.dtype[Any]
    end: Jobs
    deadline: Deadline | None
    samples: bool
    up: set[int]
    steps: StepPlanner
    rhythm: Rhythm

    def intervals_of(self, plan: Plan) -> Mapping[int, Intervals]:
        """The rows of each machine."""

    def check_loss(self, event: Lost, when: str) -> None:
        """Refuse to lose a machine, where the session does not go on without it."""

    def note(self, events: list[dict[str, Any]], event: Event) -> None:
        """Keep who is there, for the records and for the next steps."""

    def give_up_silent(self, allowed: float | None) -> None:
        """Give up machines that have not answered for long, though so many seconds were enough."""
