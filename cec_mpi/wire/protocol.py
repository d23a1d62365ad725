"""What a master and a machine need of a wire.

A `Hub` is the master's end for all stores that the same machines serve; there is one for each
wire. It says who is there, as the roster and events, and gives an end for the steps of one store.
There are two kinds of ends. In *lockstep* all machines make a step together by three verbs:
*announce* it, *share* what is multiplied with, *collect* the answers. The master and all machines
call each in the same order, preempted machines too. Of *elastic* machines each is asked for jobs
(`jobs.JobsEnd`), which it answers, or not, while the hub hears of events.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending import NotedSignals
from cec_mpi.processes.places import Place
from cec_mpi.processes.waiting import Clock
from cec_mpi.roster import WARNED, Gone, Left, Roster
from cec_mpi.wire.jobs import Answers, Event, Job, JobsEnd
from cec_mpi.wire.orders import Announced, Multiply, Opened, Opening, Report


class Hub(Protocol):
    """The master's end, for all stores that the same machines serve.

    Attributes
    ----------
    clock : Clock
        What times and waits of the master are taken from.
    roster : Roster
        Which process is which machine, and in what state.
    """

    clock: Clock
    roster: Roster

    def assigned(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """Return the machine of each rank from 1 on, and the places of ranks from 0 on.

        Parameters
        ----------
        machines : tuple of int
            Those that are to serve the next store, in the order of ranks; 0 for none.
        places : list of Place
            Of the ranks that were there at first.
        """

    def pids(self) -> dict[int, int]:
        """Return the process number of each machine that is a process of its own, on its host."""

    def open(self, opening: Opening) -> list[Opened]:
        """Have the machines open a store; what each has to say, in the order of ranks."""

    def admit(self, emulation: Emulation | None) -> LockstepEnd | JobsEnd:
        """The end for its steps: the machines serve the store that they opened last."""

    def refuse(self, error: CecError) -> None:
        """They do not."""

    def stop(self, error: BaseException | None) -> None:
        """All leave, raising this error if it is not None."""

    def events(self) -> Iterator[Event]:
        """What has happened since the last time, as it shows in the roster; never waits."""


class ElasticHub(Hub, Protocol):
    """A hub whose machines are asked one by one, and may be late, lost or new.

    Attributes
    ----------
    is_cut_off : bool
        The last call was interrupted, or is still under way: it must not be asked for more.
    """

    is_cut_off: bool

    def awaited(self) -> set[int]:
        """Machines that the run waits for: processes open their shards, or are still to come."""

    def busy(self) -> dict[int, Job]:
        """The jobs that are not answered, by machine; without those of machines given up."""

    def ask(self, job: Job, content: NDArray[Any]) -> None:
        """Give a job to its machine, which is idle."""

    def late(self, machine: int) -> None:
        """The step that waits for a machine waits for it no more."""

    def give_up(self, machine: int, reason: str) -> None:
        """Treat a machine that does not answer as lost; a spare takes its place.

        If its process answers after all, it becomes a spare, or the same machine again if
        there was no spare.
        """

    def exclude(self, machine: int, reason: str, change: type[Gone]) -> None:
        """Stop asking a machine; a spare takes its place."""

    def report(self, machine: int) -> str:
        """Ask a machine what went wrong."""

    def close(self, store: int) -> None:
        """The machines need not serve this store any more; those that are busy keep it open."""


class LockstepEnd(Protocol):
    """The master's end for the steps of one store, which all machines make together."""

    @property
    def hub(self) -> Hub:
        """Of all stores."""

    def announce(
        self, step: int, product: Product, assignment: Assignment, values: NDArray[Any]
    ) -> int:
        """Begin a step; sends the assignment if it is not the last one. Returns bytes.

        What is to be shared goes along where it is short.
        """

    def share(self, values: NDArray[Any]) -> int:
        """Give W, shape (k, r), to all, or each its part of (copies * R * k,). Returns bytes.

        The same values as those of `announce`.
        """

    def collect(self) -> Answers:
        """Wait for the answers of all available machines."""

    def reports(self) -> dict[int, str]:
        """Ask the machines what went wrong: machine number to text."""

    def close(self) -> None:
        """The machines need not serve this store any more."""


class Together:
    """Of a hub in lockstep: each machine is there from the beginning, and none is replaced.

    Attributes
    ----------
    clock, roster
        As of `Hub`.
    """

    def __init__(self, clock: Clock = time) -> None:
        self.clock = clock
        self._events: deque[Event] = deque()
        self.roster = Roster(clock.monotonic, self._events.append)

    def assigned(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """As `Hub.assigned`."""
        return machines, places

    def pids(self) -> dict[int, int]:
        """As `Hub.pids`: none, because the end of one of these ends all."""
        return {}

    def events(self) -> Iterator[Event]:
        """As `Hub.events`."""
        while self._events:
            yield self._events.popleft()

    def begin(self, machines: tuple[int, ...]) -> None:
        """Ranks serve as these machines from now on, 0 for none; nothing if they do already."""
        if self.roster.processes:
            return
        self.roster.expect(filter(None, machines))
        for machine in machines:
            process = self.roster.come()
            if machine:
                self.roster.join(process.rank, machine)
                self.roster.joined(process.rank, quietly=True)

    def told(self, answers: Answers) -> Answers:
        """Take from answers which machines have to leave; returns the answers."""
        for machine in answers.leaving:
            process = self.roster.serving_as(machine)
            if process is not None:
                self.roster.exclude(process.rank, WARNED, Left)
        return answers


class MachineEnd(Protocol):
    """A machine's end."""

    def announced(self, signals: NotedSignals) -> Announced:
        """Wait for what the master says next, without burning a core.

        Where nothing else would tell the master of signals that have come, say so.
        """

    def opened(self, opened: Opened) -> Emulation | CecError | None:
        """Say whether a store could be opened; returns what the master makes of it."""

    def together(self) -> None:
        """Wait until all machines are here."""

    def shared(self, order: Multiply) -> NDArray[Any]:
        """Receive W, shape (k, r), or this machine's part, (rows, k); overwritten next time."""

    def answer(self, order: Multiply, values: NDArray[Any], report: Report) -> None:
        """Send the answers of a step; no values when preempted."""

    def report(self, text: str) -> None:
        """Answer a request for a report, with an empty text when nothing went wrong."""
