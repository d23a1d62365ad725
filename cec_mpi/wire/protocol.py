"""What a step in lockstep, and what a machine needs of the wire.

The master's end and a machine's end of the same three verbs: *announce* a step, *share*
what is multiplied with, *collect* the answers. Each verb is collective: the master and
all machines call it in the same order, preempted machines too. Between steps the master
may *open* a further store, *close* one, or *stop*. Of steps that wait for nobody, the master's
end is `Jobs`; a machine's is the same.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from cec_mpi.core.plan.assignment import Assignment
from cec_mpi.core.step.product import Product
from cec_mpi.errors import CecError
from cec_mpi.machine.emulation import Emulation
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.processes.launch.places import Place
from cec_mpi.wire.answers import Answers
from cec_mpi.wire.opening import Opened, Opening
from cec_mpi.wire.orders import Announced, Multiply, Report


class Lockstep(Protocol):
    """The master's end, for the steps of one store: three verbs a step, which all call."""

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


End = TypeVar("End", covariant=True)


class Hub(Protocol[End]):
    """The master's end, for all stores that the same machines serve."""

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

    def absent(self) -> set[int]:
        """Return machines that do not serve the stores yet, and may join."""

    def pids(self) -> dict[int, int]:
        """Return the process number of each machine that is a process of its own, on its host."""

    def open(self, opening: Opening) -> list[Opened]:
        """Have the machines open a store; what each has to say, in the order of ranks."""

    def admit(self, emulation: Emulation | None) -> End:
        """The end for its steps: the machines serve the store that they opened last."""

    def refuse(self, error: CecError) -> None:
        """They do not."""

    def stop(self, error: BaseException | None) -> None:
        """All leave, raising this error if it is not None."""


class EveryRank:
    """Of a hub whose ranks are all there from the beginning, one for each machine."""

    def assigned(
        self, machines: tuple[int, ...], places: list[Place]
    ) -> tuple[tuple[int, ...], list[Place]]:
        """As `Hub.assigned`."""
        return machines, places

    def absent(self) -> set[int]:
        """As `Hub.absent`."""
        return set()

    def pids(self) -> dict[int, int]:
        """As `Hub.pids`: none, because the end of one of these ends all."""
        return {}


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
