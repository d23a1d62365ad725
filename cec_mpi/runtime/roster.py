"""Which process is which machine, and in what state: a method for each change.

How a machine of an elastic run is lost, in the order in which it happens:

1. `wire.sockets.listener` notices that a connection has ended, and `wire.sockets.hub` whose it was.
   The hub also excludes a machine that cannot open its shard or sends an answer of the
   wrong length. Of a machine that is silent, `core.elastic.step` decides that a step does not
   wait for it any longer (it is late), and later that it counts as lost. It also has machines
   excluded that report a failure or answer wrong numbers.
2. The roster changes the state of the process, and reports the change: `Lost`, `GivenUp`, `Left` or
   `Excluded`. Only the roster says which machines can be asked. The hub makes a spare the machine.
3. `master.elastic` has the change recorded and passes it to `core.elastic.step`, which asks others
   for what the machine has not answered. `core.elastic.losses` has a table of all such cases.
4. `master.schedule` and `master.planning` plan the next step for the machines that can be asked.

In lockstep the loss of a machine ends the job (`processes.ending`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cec_mpi.core.elastic.events import Change, GivenUp, Gone, Joined, Lost

if TYPE_CHECKING:
    from cec_mpi.runtime.records.step import Why

    Short = Callable[[int, Iterable[int], Mapping[int, Why]], None]
    """Receives what a step waits for: see `Recorder.waiting`."""

WARNED = "it was warned that it has to leave"  # why it has `Left`


class State(Enum):
    """What a process is doing."""

    SPARE = "spare"  # is not a machine, and can become one
    JOINING = "joining"  # opens the shards of the machine that it will be
    IDLE = "idle"  # is a machine that can be asked
    COMPUTING = "computing"
    LATE = "late"  # computes; the step does not wait for it any longer
    GIVEN_UP = "given up"  # has computed for so long that its machine counts as lost
    EXCLUDED = "excluded"  # lives, and gets no more jobs
    LOST = "lost"


_ASKED = State.COMPUTING, State.LATE, State.GIVEN_UP
_SERVING = State.IDLE, *_ASKED


@dataclass(eq=False)
class Process:
    """A process; only its roster changes it.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session, rank 0 being the master.
    state : State
    machine : int
        The machine that it is or, while it joins, will be; 0 for none.
    since : float
        When its state changed last, in seconds of the roster's clock.
    host : str
        Where it runs; empty until it has said so.
    """

    rank: int
    state: State
    machine: int
    since: float
    host: str = ""


class Roster:
    """The processes that serve a session, including those that are gone.

    ::

        add            join           joined        ask              late
        -----> SPARE -----> JOINING -------> IDLE -----> COMPUTING -----> LATE
                                              ^              |              |
                                              |    answer    |              |
                                              '--------------+--------------+
                                                             |   give_up    |
                    SPARE or IDLE <----- GIVEN_UP <----------+--------------'
                                 answer

    A process that was given up becomes IDLE when it answers, or a SPARE if another process has
    become its machine (`hand_over`). A machine that computes while another store is opened becomes
    JOINING when it has answered, until it has opened that store too. A process in any of these
    states can become EXCLUDED (`exclude`) or LOST (`lose`); its machine is vacant then.

    Parameters
    ----------
    clock : callable
        Seconds.
    tell : callable
        Called with each change that matters for the next step.

    Attributes
    ----------
    processes : list of Process
        In the order of ranks, without those that were forgotten.
    vacant : list of int
        Machines without a process, in the order in which they became vacant.
    available : set of int
        Machines that can be planned with.
    gone : dict of int to Gone
        Machines that were there before, with the last change of each.
    hosts : mapping of int to str
        Hosts of machines, as far as they are known; a new mapping when a machine joins on another.
    """

    def __init__(self, clock: Callable[[], float], tell: Callable[[Change], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._by_rank: dict[int, Process] = {}
        self._next_rank = 1
        self.vacant: list[int] = []
        self.available: set[int] = set()
        self.gone: dict[int, Gone] = {}
        self.hosts: Mapping[int, str] = {}
        self.short: Short = lambda missing, available, away: None

    def __getitem__(self, rank: int) -> Process:
        return self._by_rank[rank]

    @property
    def processes(self) -> list[Process]:  # noqa: D102
        return list(self._by_rank.values())

    def living(self) -> list[Process]:
        """Return the processes that are not lost."""
        return [each for each in self._by_rank.values() if each.state is not State.LOST]

    def serving_as(self, machine: int) -> Process | None:
        """Return the process of a machine."""
        for each in self._by_rank.values():
            if each.machine == machine and each.state in _SERVING:
                return each
        return None

    def state_of(self, machine: int) -> State | None:
        """Return the state of the process of a machine; None if it has none."""
        process = self.serving_as(machine)
        return None if process is None else process.state

    def machines(self, *states: State) -> set[int]:
        """Return the machines whose processes are in one of these states."""
        return {each.machine for each in self._by_rank.values() if each.state in states}

    def spares(self) -> list[Process]:
        """Return the processes that can become machines."""
        return [each for each in self._by_rank.values() if each.state is State.SPARE]

    # One method for each change.

    def expect(self, machines: Iterable[int]) -> None:
        """Note that these machines are vacant from the beginning."""
        self.vacant.extend(machines)

    def set_host(self, rank: int, host: str) -> None:
        """Note where a process runs."""
        self[rank].host = host

    def add(self) -> Process:
        """Add a process, as a spare."""
        process = Process(self._next_rank, State.SPARE, 0, self._clock())
        self._by_rank[process.rank] = process
        self._next_rank += 1
        return process

    def join(self, rank: int, machine: int) -> None:
        """Make a spare join as a vacant machine, or let a machine open another store."""
        is_spare = self[rank].state is State.SPARE
        if machine not in (self.vacant if is_spare else [self[rank].machine]):
            raise RuntimeError(f"rank {rank} cannot become machine {machine}: it is not vacant")
        self._change(rank, State.JOINING, State.SPARE, *_SERVING).machine = machine
        if is_spare:
            self.vacant.remove(machine)

    def joined(self, rank: int, quietly: bool = False) -> None:
        """Make a joining process its machine; `quietly`: without reporting it."""
        self._count(self._change(rank, State.IDLE, State.JOINING), quietly)

    def ask(self, rank: int) -> None:
        """Note that a machine has a job."""
        self._change(rank, State.COMPUTING, State.IDLE)

    def late(self, rank: int) -> None:
        """Note that the step does not wait for a machine any longer."""
        self._change(rank, State.LATE, State.COMPUTING)

    def give_up(self, rank: int, reason: str) -> None:
        """Count a machine as lost until it answers."""
        process = self._change(rank, State.GIVEN_UP, State.COMPUTING, State.LATE)
        self._take_away(GivenUp(process.machine, reason))

    def hand_over(self, rank: int) -> None:
        """Make the machine of a process that was given up vacant."""
        self._vacate(self._change(rank, State.GIVEN_UP, State.GIVEN_UP))

    def answer(self, rank: int) -> None:
        """Note an answer: the process is idle, or a spare if its machine has another process."""
        process = self[rank]
        self._change(rank, State.IDLE if process.machine else State.SPARE, *_ASKED)
        if process.machine:
            self._count(process)

    def exclude(self, rank: int, reason: str, change: type[Gone] = Lost) -> None:
        """Give a process no more jobs; its machine is lost, has left or is excluded."""
        self._end(rank, State.EXCLUDED, change, reason)

    def lose(self, rank: int, reason: str) -> None:
        """Note that a process is gone."""
        self._end(rank, State.LOST, Lost, reason)

    def forget(self, rank: int) -> None:
        """Forget a process that is gone."""
        if self[rank].state is not State.LOST:
            raise RuntimeError(f"rank {rank} is {self[rank].state.value}: it cannot be forgotten")
        del self._by_rank[rank]

    def _change(self, rank: int, state: State, *allowed: State) -> Process:
        process = self[rank]
        if process.state not in allowed:
            raise RuntimeError(f"rank {rank} is {process.state.value}: it cannot be {state.value}")
        process.state, process.since = state, self._clock()
        return process

    def _count(self, process: Process, quietly: bool = False) -> None:
        """Count a process as its machine, and report it if it was not one before."""
        if process.machine in self.available:
            return
        self.available.add(process.machine)
        self.gone.pop(process.machine, None)
        if process.host and self.hosts.get(process.machine) != process.host:
            self.hosts = {**self.hosts, process.machine: process.host}
        if not quietly:
            self._tell(Joined(process.machine, process.rank, process.host))

    def _end(self, rank: int, state: State, change: type[Gone], reason: str) -> None:
        """End a process, unless it has ended."""
        process = self[rank]
        if process.state in (State.LOST, state):
            return
        process.state, process.since = state, self._clock()
        if process.machine:
            self._take_away(change(process.machine, reason))
            self._vacate(process)

    def _take_away(self, change: Gone) -> None:
        self.available.discard(change.machine)
        self.gone[change.machine] = change
        self._tell(change)

    def _vacate(self, process: Process) -> None:
        self.vacant.append(process.machine)
        process.machine = 0
