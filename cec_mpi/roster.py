"""Which process is which machine, and in what state: a method for each change.

How a machine of an elastic run is lost, in the order in which it happens:

1. `wire.sockets.listener` notices that a connection has ended, and `wire.sockets.hub` that this was
   the machine's. The hub also excludes one that cannot open its shard or sends an answer of the
   wrong length. Of a machine that is silent, `master.in_flight` decides that a step does
   not wait for it any longer (it is late), and `master.one_by_one` (`give_up_silent`) that it
   counts as lost. One that reports a failure, or was wrong in three steps, is excluded by them.
2. The roster changes the state of the process, and tells the change: `Lost`, `GivenUp`, `Left` or
   `Excluded`. It alone says who is there. The hub has a spare become the machine.
3. `master.one_by_one` (`note`) writes the change into the step's record, and
   `master.in_flight` (`_handle`) has `forward` or `adjoint` give the missing rows to others.
4. `master.schedule` and `master.planning` plan the next step for the machines that are there.

In lockstep the loss of a machine ends the job (`processes.ending`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

if TYPE_CHECKING:
    from cec_mpi.records.events import Event
    from cec_mpi.records.step import Why

    Short = Callable[[int, Literal["machine", "shard"], Iterable[int], Mapping[int, Why]], None]
    """Hears what a step waits for, as `Recorder.waiting` does."""

WARNED = "it was warned that it has to leave"  # why it has `Left`
_ANY_NUMBER = 1 << 62  # of shards


@dataclass(frozen=True)
class Gone:
    """A machine is not available any more."""

    machine: int
    reason: str
    word: ClassVar[Literal["lost", "given up", "left", "excluded"]]  # of records
    said: ClassVar[str]  # to people

    def __str__(self) -> str:
        return f"machine {self.machine} {self.said}: {self.reason}"

    @property
    def record(self) -> Event:
        """As an event in the records."""
        return {self.word: self.machine, "reason": self.reason}  # type: ignore[misc]


class Lost(Gone):
    """A machine has no process any more."""

    word, said = "lost", "is lost"


class GivenUp(Gone):
    """A machine has not answered for so long that it counts as lost, until it does."""

    word, said = "given up", "is given up"


class Left(Gone):
    """A machine has left: it is asked no more, since its process is to end."""

    word, said = "left", "has left"


class Excluded(Gone):
    """A machine is asked no more, since its answers are wrong."""

    word, said = "excluded", "is excluded"


@dataclass(frozen=True)
class Joined:
    """A process has become this machine, or one that was given up is back."""

    machine: int
    rank: int
    host: str = ""  # empty where nobody has said which

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{where} is machine {self.machine} now"

    @property
    def record(self) -> Event:
        """As an event in the records."""
        found: Event = {"joined": self.machine, "rank": self.rank}
        return {**found, "host": self.host} if self.host else found


Change = Gone | Joined


class State(Enum):
    """What a process is doing."""

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


class Room(NamedTuple):
    """What a process can have at most; None stands for anything.

    Attributes
    ----------
    shards : int or None
    memory : int or None
        Bytes of shards.
    """

    shards: int | None = None
    memory: int | None = None

    def most(self, shard_bytes: int) -> int:
        """Shards of this size."""
        shards = _ANY_NUMBER if self.shards is None else self.shards
        return shards if self.memory is None else min(shards, self.memory // shard_bytes)


_NO_LIMIT = Room()


@dataclass(eq=False)
class Process:
    """A process; only its roster changes it.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session, rank 0 being the master.
    state : State
    machine : int
        That it is or, while it joins, is to become; 0 for none.
    since : float
        When its state changed last, in seconds of the roster's clock.
    host : str
        Where it runs; empty as long as it has not said so.
    room : Room
        What it can have at most.
    """

    rank: int
    state: State
    machine: int
    since: float
    host: str = ""
    room: Room = _NO_LIMIT

    @property
    def is_free(self) -> bool:
        """Whether it waits for what it is asked next."""
        return self.state in (State.SPARE, State.IDLE)


class Roster:
    """The processes that serve a session, those that are gone too.

    ::

        come           join           joined        ask              late
        -----> SPARE -----> JOINING -------> IDLE -----> COMPUTING -----> LATE
                                              ^              |              |
                                              |    answer    |              |
                                              '--------------+--------------+
                                                             |   give_up    |
                    SPARE or IDLE <----- GIVEN_UP <----------+--------------'
                                 answer

    A process that was given up is IDLE when it answers, or a SPARE if another one has become its
    machine (`hand_over`). A machine that was computing while a store was opened is JOINING when it
    has answered, until it has opened that store too. A process in any of these states can be
    EXCLUDED (`exclude`) or LOST (`lose`); its machine is vacant then.

    Parameters
    ----------
    clock : callable
        Seconds.
    tell : callable
        Called with each change that concerns who plans steps.

    Attributes
    ----------
    processes : list of Process
        In the order of ranks, without those that were forgotten.
    vacant : list of int
        Machines that have lost their process, and have no other yet, the first first.
    there : set of int
        Machines that who plans steps can count on.
    gone : dict of int to Gone
        Machines that were there and are not any more, and what was told of them last.
    hosts : mapping of int to str
        Where machines are, as far as it is known; another mapping when one joins elsewhere.
    """

    def __init__(self, clock: Callable[[], float], tell: Callable[[Change], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._by_rank: dict[int, Process] = {}
        self._next_rank = 1
        self.vacant: list[int] = []
        self.there: set[int] = set()
        self.gone: dict[int, Gone] = {}
        self.hosts: Mapping[int, str] = {}
        self.short: Short = lambda missing, of, available, away: None

    def __getitem__(self, rank: int) -> Process:
        return self._by_rank[rank]

    @property
    def processes(self) -> list[Process]:  # noqa: D102
        return list(self._by_rank.values())

    def living(self) -> list[Process]:
        """Those that are not lost."""
        return [each for each in self._by_rank.values() if each.state is not State.LOST]

    def serving_as(self, machine: int) -> Process | None:
        """The process that is a machine now."""
        for each in self._by_rank.values():
            if each.machine == machine and each.state in _SERVING:
                return each
        return None

    def state_of(self, machine: int) -> State | None:
        """What the process does that is a machine now; None where there is none."""
        process = self.serving_as(machine)
        return None if process is None else process.state

    def most(self, shard_bytes: int) -> dict[int, int]:
        """Shards of this size that machines can have at most."""
        return {each.machine: each.room.most(shard_bytes) for each in self._by_rank.values()}

    def machines(self, *states: State) -> set[int]:
        """Machines whose processes are in one of these states."""
        return {each.machine for each in self._by_rank.values() if each.state in states}

    def spares(self) -> list[Process]:
        """Processes that can become machines now."""
        return [each for each in self._by_rank.values() if each.state is State.SPARE]

    # One for each change.

    def expect(self, machines: Iterable[int]) -> None:
        """These machines are vacant from the beginning."""
        self.vacant.extend(machines)

    def settle(self, rank: int, host: str, room: Room = _NO_LIMIT) -> None:
        """A process has said where it runs, and perhaps what it can have there."""
        self[rank].host, self[rank].room = host, room

    def come(self) -> Process:
        """A process has come: a spare."""
        process = Process(self._next_rank, State.SPARE, 0, self._clock())
        self._by_rank[process.rank] = process
        self._next_rank += 1
        return process

    def join(self, rank: int, machine: int) -> None:
        """A spare is to become a vacant machine, or a machine itself again."""
        is_spare = self[rank].state is State.SPARE
        if machine not in (self.vacant if is_spare else [self[rank].machine]):
            raise RuntimeError(f"rank {rank} cannot become machine {machine}: it is not vacant")
        self._change(rank, State.JOINING, State.SPARE, *_SERVING).machine = machine
        if is_spare:
            self.vacant.remove(machine)

    def joined(self, rank: int, quietly: bool = False) -> None:
        """A process has become its machine; `quietly`: before the first step, which is no news."""
        self._count(self._change(rank, State.IDLE, State.JOINING), quietly)

    def ask(self, rank: int) -> None:
        """A machine is asked for rows."""
        self._change(rank, State.COMPUTING, State.IDLE)

    def late(self, rank: int) -> None:
        """The step that waits for a machine waits for it no more."""
        self._change(rank, State.LATE, State.COMPUTING)

    def give_up(self, rank: int, reason: str) -> None:
        """A machine counts as lost, until it answers."""
        process = self._change(rank, State.GIVEN_UP, State.COMPUTING, State.LATE)
        self._take_away(GivenUp(process.machine, reason))

    def hand_over(self, rank: int) -> None:
        """The machine of a process that was given up is vacant."""
        self._vacate(self._change(rank, State.GIVEN_UP, State.GIVEN_UP))

    def answer(self, rank: int) -> None:
        """A process has answered: it is idle, back, or a spare if another is its machine."""
        process = self[rank]
        self._change(rank, State.IDLE if process.machine else State.SPARE, *_ASKED)
        if process.machine:
            self._count(process)

    def exclude(self, rank: int, reason: str, change: type[Gone] = Lost) -> None:
        """A process is asked no more: its machine is lost, or has left."""
        self._end(rank, State.EXCLUDED, change, reason)

    def lose(self, rank: int, reason: str) -> None:
        """A process is gone."""
        self._end(rank, State.LOST, Lost, reason)

    def forget(self, rank: int) -> None:
        """A process that is gone: nobody is going to ask for it."""
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
        """A process is its machine; who plans steps hears of it if that is news."""
        if process.machine in self.there:
            return
        self.there.add(process.machine)
        self.gone.pop(process.machine, None)
        if process.host and self.hosts.get(process.machine) != process.host:
            self.hosts = {**self.hosts, process.machine: process.host}
        if not quietly:
            self._tell(Joined(process.machine, process.rank, process.host))

    def _end(self, rank: int, state: State, change: type[Gone], reason: str) -> None:
        """Nothing where it is known."""
        process = self[rank]
        if process.state in (State.LOST, state):
            return
        process.state, process.since = state, self._clock()
        if process.machine:
            self._take_away(change(process.machine, reason))
            self._vacate(process)

    def _take_away(self, change: Gone) -> None:
        self.there.discard(change.machine)
        self.gone[change.machine] = change
        self._tell(change)

    def _vacate(self, process: Process) -> None:
        self.vacant.append(process.machine)
        process.machine = 0
