"""Which process is which machine, and in what state: a method for each change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cec_mpi.roster.changes import Change, GivenUp, Gone, Joined, Lost


class State(Enum):
    """What a process is doing."""

    STARTING = "starting"  # for a machine; it has not said where it runs
    SPARE = "spare"  # is no machine, and can become one
    JOINING = "joining"  # opens the shards of the machine that it is to become
    IDLE = "idle"  # is a machine that can be asked
    COMPUTING = "computing"
    LATE = "late"  # computes: the step that waits for it has its rows from others
    GIVEN_UP = "given up"  # computes, for so long that its machine counts as lost
    EXCLUDED = "excluded"  # lives, and is asked no more
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
        That it is or, while it starts or joins, is to become; 0 for none.
    since : float
        When its state changed last, in seconds of the roster's clock.
    """

    rank: int
    state: State
    machine: int
    since: float

    @property
    def is_free(self) -> bool:
        """Whether it waits for what it is asked next."""
        return self.state in (State.SPARE, State.IDLE)

    @property
    def is_joining(self) -> bool:
        """Whether it is about to become its machine."""
        return self.state in (State.STARTING, State.JOINING)


class Roster:
    """The processes that serve a session, those that are gone too.

    ::

        start          arrive         join           joined        ask              late
        -----> STARTING -----> SPARE -----> JOINING -------> IDLE -----> COMPUTING -----> LATE
                                 |                            ^ ^            |              |
                                 |           serve            | |   answer   |              |
                                 '----------------------------' '------------+--------------+
                                                                             |   give_up    |
                               SPARE or IDLE <----- GIVEN_UP <---------------+--------------'
                                            answer

    Who was given up is IDLE when it answers, or a SPARE if it was to `hand_over` its machine. A
    machine that has missed stores while it computed is JOINING when it has answered, to become
    itself again. From wherever it lives, a process is EXCLUDED (`exclude`) or LOST (`lose`): its
    machine is vacant then.

    Parameters
    ----------
    size : int
        Processes at the beginning: spares with ranks 1..size.
    clock : callable
        Seconds.
    tell : callable
        Called with each change that concerns who plans steps.

    Attributes
    ----------
    processes : list of Process
        In the order of ranks, from 1 on.
    vacant : list of int
        Machines that have lost their process, and have no other yet, the first first.
    """

    def __init__(
        self, size: int, clock: Callable[[], float], tell: Callable[[Change], None]
    ) -> None:
        self._clock = clock
        self._tell = tell
        self.processes: list[Process] = []
        self.vacant: list[int] = []
        for _ in range(size):
            self._add(State.SPARE, 0)

    def __getitem__(self, rank: int) -> Process:
        return self.processes[rank - 1]

    def living(self) -> list[Process]:
        """Those that are not lost."""
        return [each for each in self.processes if each.state is not State.LOST]

    def serving_as(self, machine: int) -> Process | None:
        """The process that is a machine now."""
        for each in self.processes:
            if each.machine == machine and each.state in _SERVING:
                return each
        return None

    def state_of(self, machine: int) -> State | None:
        """What the process does that is a machine now; None where there is none."""
        process = self.serving_as(machine)
        return None if process is None else process.state

    def machines(self, *states: State) -> set[int]:
        """Machines whose processes are in one of these states."""
        return {each.machine for each in self.processes if each.state in states}

    def spare(self) -> Process | None:
        """A process that can become a machine now."""
        return next((each for each in self.processes if each.state is State.SPARE), None)

    # One for each change.

    def serve(self, rank: int, machine: int) -> None:
        """A process is this machine from the beginning."""
        self._change(rank, State.IDLE, State.SPARE).machine = machine

    def start(self, machine: int) -> Process:
        """A process is started that is to become a vacant machine."""
        self.vacant.remove(machine)
        return self._add(State.STARTING, machine)

    def arrive(self, rank: int) -> None:
        """A process that was started is there: a spare, and its machine is vacant again."""
        process = self._change(rank, State.SPARE, State.STARTING)
        self._vacate(process)

    def join(self, rank: int, machine: int) -> None:
        """A spare is to become a vacant machine, or a machine itself again."""
        is_spare = self[rank].state is State.SPARE
        if machine not in (self.vacant if is_spare else [self[rank].machine]):
            raise RuntimeError(f"rank {rank} cannot become machine {machine}: it is not vacant")
        self._change(rank, State.JOINING, State.SPARE, *_SERVING).machine = machine
        if is_spare:
            self.vacant.remove(machine)

    def joined(self, rank: int) -> None:
        """A process has become its machine."""
        process = self._change(rank, State.IDLE, State.JOINING)
        self._tell(Joined(process.machine, rank))

    def ask(self, rank: int) -> None:
        """A machine is asked for rows."""
        self._change(rank, State.COMPUTING, State.IDLE)

    def late(self, rank: int) -> None:
        """The step that waits for a machine waits for it no more."""
        self._change(rank, State.LATE, State.COMPUTING)

    def give_up(self, rank: int, reason: str) -> None:
        """A machine counts as lost, until it answers."""
        process = self._change(rank, State.GIVEN_UP, State.COMPUTING, State.LATE)
        self._tell(GivenUp(process.machine, reason))

    def hand_over(self, rank: int) -> None:
        """The machine of a process that was given up is vacant."""
        self._vacate(self._change(rank, State.GIVEN_UP, State.GIVEN_UP))

    def answer(self, rank: int) -> None:
        """A process has answered: it is idle, back, or a spare if another is its machine."""
        process = self[rank]
        back = process.state is State.GIVEN_UP
        self._change(rank, State.IDLE if process.machine else State.SPARE, *_ASKED)
        if back and process.machine:
            self._tell(Joined(process.machine, rank))

    def exclude(self, rank: int, reason: str, change: type[Gone] = Lost) -> None:
        """A process is asked no more: its machine is lost, or has left."""
        self._end(rank, State.EXCLUDED, change, reason)

    def lose(self, rank: int, reason: str) -> None:
        """A process is gone."""
        self._end(rank, State.LOST, Lost, reason)

    def _add(self, state: State, machine: int) -> Process:
        process = Process(len(self.processes) + 1, state, machine, self._clock())
        self.processes.append(process)
        return process

    def _change(self, rank: int, state: State, *allowed: State) -> Process:
        process = self[rank]
        if process.state not in allowed:
            raise RuntimeError(f"rank {rank} is {process.state.value}: it cannot be {state.value}")
        process.state, process.since = state, self._clock()
        return process

    def _end(self, rank: int, state: State, change: type[Gone], reason: str) -> None:
        """Nothing where it is known."""
        process = self[rank]
        if process.state in (State.LOST, state):
            return
        process.state, process.since = state, self._clock()
        if process.machine:
            self._tell(change(process.machine, reason))
            self._vacate(process)

    def _vacate(self, process: Process) -> None:
        self.vacant.append(process.machine)
        process.machine = 0
