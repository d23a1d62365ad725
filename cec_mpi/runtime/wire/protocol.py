"""The interfaces of a wire: the master's end and a machine's end.

A `Hub` is the master's end of a session. Its roster and its events tell which machines can get
jobs. When the machines have opened their shards, it returns the end for steps. There are two kinds
of ends. In *lockstep* all machines make a step together with three verbs: *announce* the step,
*share* what is multiplied, *collect* the answers. The master and all machines, also preempted ones,
call each verb in the same order. *Elastic* machines get jobs one by one (`jobs.JobsEnd`), and may
answer or not; their hub (`jobs.ElasticHub`) reports what happens as events.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from cec_mpi.core.elastic.events import MachineLeft
from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.errors import CecError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.processes.ending import SignalRecorder
from cec_mpi.runtime.processes.places import Place
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import LEAVE_REASON, Roster
from cec_mpi.runtime.wire.answers import Answers
from cec_mpi.runtime.wire.jobs import Event, JobsEnd
from cec_mpi.runtime.wire.orders import Multiply, Opening, OpenReport, OrderContent, Verdict


class Hub(Protocol):
    """The master's end of a session.

    Attributes
    ----------
    clock : Clock
        The clock of the master.
    roster : Roster
        Which process is which machine, and in what state.
    """

    clock: Clock
    roster: Roster

    def assign_machines(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """Return the machine of each rank from 1 on, and the places of ranks from 0 on.

        Parameters
        ----------
        machines : tuple of int
            The machines of the store, in the order of ranks; 0 for none.
        places : list of Place
            Places of the ranks that were there at first.
        """

    def pids(self) -> dict[int, int]:
        """Return the process number of each machine that is a process of its own, on its host."""

    def open(self, opening: Opening) -> list[OpenReport]:
        """Make the machines open their shards; returns what each reports, in the order of ranks."""

    def admit(self, emulation: Emulation | None) -> LockstepEnd | JobsEnd:
        """Make the machines serve what they have opened; returns the end for steps."""

    def refuse(self, error: CecError) -> None:
        """Tell the machines that the store cannot be served, because of this error."""

    def stop(self, error: BaseException | None) -> None:
        """Make all machines leave; they raise this error if it is not None."""

    def events(self) -> Iterator[Event]:
        """Yield what has happened since the last call; never waits."""


class LockstepEnd(Protocol):
    """The master's end for steps that all machines make together."""

    @property
    def hub(self) -> Hub:
        """The hub of the session."""

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Begin a step, and send the assignment if it has changed; returns the bytes sent.

        Short values are sent with the announcement.
        """

    def share(self, values: NDArray[Any]) -> int:
        """Send W, or to each machine its part of the coefficients.

        W has the shape (k, r), and the coefficients have (machines_per_row * R * k,). These are the
        values of `announce`. Returns the bytes sent.
        """

    def collect(self) -> Answers:
        """Wait for the answers of all available machines."""

    def last_errors(self) -> dict[int, str]:
        """Ask the machines for their last errors, by number of the machine."""


class StaticHub:
    """Base of a hub whose machines are there from the beginning, and are not replaced.

    Attributes
    ----------
    clock, roster
        See `Hub`.
    """

    def __init__(self, clock: Clock = time) -> None:
        self.clock = clock
        self._events: deque[Event] = deque()
        self.roster = Roster(self._events.append)

    def assign_machines(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """See `Hub.assign_machines`."""
        return machines, places

    def pids(self) -> dict[int, int]:
        """See `Hub.pids`; empty, because the end of one process ends all."""
        return {}

    def events(self) -> Iterator[Event]:
        """See `Hub.events`."""
        while self._events:
            yield self._events.popleft()

    def begin(self, machines: tuple[int, ...]) -> None:
        """Enter ranks into the roster as these machines, 0 for none, unless they are in it."""
        if self.roster.hosts:
            return
        self.roster.add_vacant(filter(None, machines))
        for machine in machines:
            rank = self.roster.add_host().rank
            if machine:
                self.roster.assign(rank, machine)
                self.roster.mark_joined(rank, machine, notify=False)

    def exclude_leaving(self, answers: Answers) -> Answers:
        """Exclude the machines whose reports have the leaving flag; returns the answers."""
        for machine in answers.leaving:
            host = self.roster.serving_host(machine)
            if host is not None:
                self.roster.exclude(host.rank, LEAVE_REASON, MachineLeft)
        return answers


class MachineEnd(Protocol):
    """A machine's end."""

    def receive_order(self, signals: SignalRecorder) -> OrderContent:
        """Wait for the next order of the master, without using a core.

        An end may tell the master about signals that this process has received.
        """

    def send_open_report(self, report: OpenReport) -> Verdict:
        """Report whether a store was opened; returns whether this machine serves it."""

    def wait_for_all(self) -> None:
        """Wait until all machines have called this."""

    def check_connection(self) -> None:
        """Raise if the master has gone or this machine must leave, during long work."""

    def receive_vector(self, order: Multiply) -> NDArray[Any]:
        """Receive W, shape (k, r), or the coefficients of all parts of the order, (rows, k)."""

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send the answers to a step: a report for each part, and of X' V only the sum.

        Preempted machines have no values.
        """
