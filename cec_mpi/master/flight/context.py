"""What an elastic step needs of its master."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from cec_mpi.master.flight.adopting import Adopting
from cec_mpi.master.planning import StepPlanner
from cec_mpi.options.deadline import Deadline
from cec_mpi.processes.waiting import Rhythm
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.wire.jobs import Event, Jobs


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
    adopting : Adopting or None
        Where machines take over shards of those that are away.
    spare : int
        Machines, whichever they are, that a product X W is to be able to miss.
    """

    manifest: Manifest
    arithmetic: np.dtype[Any]
    end: Jobs
    deadline: Deadline | None
    samples: bool
    up: set[int]
    steps: StepPlanner
    rhythm: Rhythm
    adopting: Adopting | None
    spare: int

    def to_spare(self, machines: Sequence[int]) -> int:
        """How many of these, whichever they are, a step can miss; -1 where they are too few."""

    def note(self, events: list[dict[str, Any]], event: Event) -> None:
        """Keep who is there, for the records and for the next steps."""

    def give_up_silent(self, allowed: float | None) -> None:
        """Give up machines that have not answered for long, though so many seconds were enough."""
