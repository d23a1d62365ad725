"""Interfaces of a wire: the endpoints of the master and of a machine.

A `Hub` is the master's endpoint for a session. Its roster and its events show which machines can
get jobs. When the machines have opened their shards, it returns an endpoint for steps, of one of
two kinds. In *lockstep* a step is three collective operations: *announce* the step, *share* the
operand, and *collect* the answers. The master and all machines, including preempted ones, call them
in this order. *Elastic* machines get jobs one by one (`jobs.JobsEndpoint`), and may never answer;
their hub (`jobs.ElasticHub`) reports answers and losses as events.
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
from cec_mpi.runtime.processes.waiting import Clock
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import LEAVE_REASON, Roster
from cec_mpi.runtime.wire.answers import Answers
from cec_mpi.runtime.wire.jobs import Event, JobsEndpoint
from cec_mpi.runtime.wire.orders import Admission, Multiply, Opening, OpenReport, ParsedOrder


class Hub(Protocol):
    """The master's endpoint for a session.

    Attributes
    ----------
    clock : Clock
        The clock of the master.
    roster : Roster
        The hosts of machines, and the state of each machine.
    """

    clock: Clock
    roster: Roster

    def assign_machines(self, machines: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """Return the machine of each rank, starting at rank 1; 0 for none.

        Parameters
        ----------
        machines : tuple of int
            The machines that take part, in the order of ranks.
        ranks : int
            Number of ranks, excluding the master, that joined before the start.
        """

    def pids(self) -> dict[int, int]:
        """Return the process ID of each machine whose process the run can lose."""

    def open(self, opening: Opening) -> list[OpenReport]:
        """Make the machines open their shards; return their reports in the order of ranks."""

    def admit(self, emulation: Emulation | None) -> LockstepEndpoint | JobsEndpoint:
        """Let the machines serve the store that they have opened; return the endpoint for steps."""

    def refuse(self, error: CecError) -> None:
        """Make the machines close the store, because of this error."""

    def stop(self, error: BaseException | None) -> None:
        """Make all machines leave, and send them this error unless it is None."""

    def events(self) -> Iterator[Event]:
        """Yield the events since the last call, without waiting."""


class LockstepEndpoint(Protocol):
    """The master's endpoint for steps in lockstep."""

    @property
    def hub(self) -> Hub:
        """The hub of the session."""

    def announce(
        self, step: int, product: Product, assignment: Assignment, operand: NDArray[Any]
    ) -> int:
        """Begin a step, and send the assignment if it has changed; return the bytes sent.

        A short operand is sent with the announcement, but `share` counts its bytes.
        """

    def share(self, operand: NDArray[Any]) -> int:
        """Send the operand that was passed to `announce`, unless it was sent; return its bytes.

        The operand is W', shape (k, r), or the coefficients, (machines_per_row * R * k,); each
        machine gets its part of them.
        """

    def collect(self) -> Answers:
        """Wait for the answers of all available machines."""

    def last_errors(self) -> dict[int, str]:
        """Return the last error of each machine that reported one, by machine number."""


class StaticHub:
    """Base of a hub whose machines all join before the start.

    Attributes
    ----------
    clock, roster
        See `Hub`.
    """

    def __init__(self, clock: Clock = time) -> None:
        self.clock = clock
        self._events: deque[Event] = deque()
        self.roster = Roster(self._events.append)

    def assign_machines(self, machines: tuple[int, ...], ranks: int) -> tuple[int, ...]:
        """See `Hub.assign_machines`; the n-th machine for rank n."""
        return machines

    def pids(self) -> dict[int, int]:
        """See `Hub.pids`; empty, because the run ends if one of its processes ends."""
        return {}

    def events(self) -> Iterator[Event]:
        """See `Hub.events`."""
        while self._events:
            yield self._events.popleft()

    def fill_roster(self, machines: tuple[int, ...]) -> None:
        """Add a host for each rank, with its machine (0 for none), unless the roster has hosts."""
        if self.roster.hosts:
            return
        self.roster.add_vacant(filter(None, machines))
        for machine in machines:
            rank = self.roster.add_host().rank
            if machine:
                self.roster.assign(rank, machine)
                self.roster.mark_joined(rank, machine, notify=False)

    def exclude_leaving(self, answers: Answers) -> Answers:
        """Exclude the machines that report that they are leaving; return the answers unchanged."""
        for machine in answers.leaving:
            host = self.roster.serving_host(machine)
            if host is not None:
                self.roster.exclude(host.rank, LEAVE_REASON, MachineLeft)
        return answers


class MachineEndpoint(Protocol):
    """A machine's endpoint."""

    def receive_order(self, signals: SignalRecorder) -> ParsedOrder:
        """Wait for the next order of the master, without using a whole core.

        The endpoint may report to the master the signals that this process has received.
        """

    def send_open_report(self, report: OpenReport) -> Admission:
        """Report whether a store was opened; return whether this machine may serve it."""

    def wait_for_all(self) -> None:
        """Wait until all machines have called this method."""

    def check_connection(self) -> None:
        """Raise if the master is lost or this machine must leave; called during long operations."""

    def receive_operand(self, order: Multiply) -> NDArray[Any]:
        """Receive W', shape (k, r), or the coefficients of all parts of the order, (rows, k)."""

    def send_answer(
        self, order: Multiply, values: Sequence[NDArray[Any]], reports: Sequence[Report]
    ) -> None:
        """Send the answers to a step, with a report for each part of the order.

        For X' V `values` has only the sum of the parts. Preempted machines send no values.
        """
