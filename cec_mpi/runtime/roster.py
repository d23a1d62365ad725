"""Which host carries which machine, and in what state: a method for each change.

A host is a process. How a machine of an elastic run is lost, in the order in which it happens:

1. `wire.sockets.listener` notices that a connection has ended, and `wire.sockets.hub` whose it was.
   The hub also excludes a host that cannot open its shard or sends an answer of the
   wrong length. If a machine is unresponsive, `core.elastic.step` first stops waiting for it
   (late), then gives it up. It also excludes machines that report a failure or return wrong
   numbers.
2. The roster changes the states of all machines of the host, and reports each change: `Lost`,
   `GivenUp`, `Left` or `Excluded`. Only the roster says which machines can be asked. The hub makes
   spares carry the machines.
3. `master.elastic` has the change recorded and passes it to `core.elastic.step`, which asks others
   for what the machine has not answered. `core.elastic.losses` has a table of all such cases.
4. `master.schedule` and `master.planning` plan the next step for the machines that can be asked.
5. With ``--adopt``, `core.elastic.step` decides that a host is to carry a missing machine as well,
   the roster chooses the host (`Roster.adoption_hosts`), and the hub lets hosts that join later
   take it over.

In lockstep the loss of a machine ends the job (`processes.ending`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from cec_mpi.core.elastic.events import Change, GivenUp, Joined, Lost, MachineUnavailable

if TYPE_CHECKING:
    from cec_mpi.runtime.records.step import AbsenceReason

    ShortageCallback = Callable[[int, Iterable[int], Mapping[int, AbsenceReason]], None]
    """Receives what a step waits for: see `Recorder.waiting`."""

LEAVE_REASON = "it received a shutdown signal"  # why it has `Left`


class State(Enum):
    """What a machine is doing on its host."""

    JOINING = "joining"  # its shard is being opened
    IDLE = "idle"  # can be asked
    COMPUTING = "computing"
    LATE = "late"  # computes; the step does not wait for it any longer
    GIVEN_UP = "given up"  # its host is silent for so long that it counts as lost


_JOB_STATES = State.COMPUTING, State.LATE, State.GIVEN_UP
_SERVING_STATES = State.IDLE, *_JOB_STATES


@dataclass(eq=False)
class Host:
    """A process that carries machines; only its roster changes it.

    Attributes
    ----------
    rank : int
        Its number among the processes of the session, rank 0 being the master.
    slots : int
        How many machines it takes.
    name : str
        Name of its computer; empty until its hello has arrived.
    machines : dict of int to State
        The machines that it carries or is opening, in the order in which it took them.
    capacity : int
        How many machines it can carry when too few remain for a step.
    is_excluded : bool
        It is running, but gets no more jobs.
    is_silent : bool
        It was given up, and has not answered since.
    is_slow : bool
        It has been opening a machine for long, without progress.
    cannot_carry : set of int
        Machines that have failed on it.
    """

    rank: int
    slots: int = 1
    name: str = ""
    machines: dict[int, State] = field(default_factory=dict)
    capacity: int = 1
    is_excluded: bool = False
    is_silent: bool = False
    is_slow: bool = False
    cannot_carry: set[int] = field(default_factory=set)

    @property
    def free(self) -> int:
        """How many more machines it takes now."""
        if not self._can_open:
            return 0
        return max(0, self.slots - len(self.machines))

    @property
    def spare_capacity(self) -> int:
        """How many more machines it can open now: as many as fit in its memory, one by one."""
        if not self._can_open or self.opening:
            return 0
        return max(0, self.capacity - len(self.machines))

    @property
    def _can_open(self) -> bool:
        return not (self.is_excluded or self.is_silent or self.is_slow)

    @property
    def opening(self) -> list[int]:
        """The machines whose shards it is opening."""
        return [n for n, state in self.machines.items() if state is State.JOINING]

    @property
    def adopted(self) -> list[int]:
        """The machines that it carries beyond those that it takes by itself."""
        return list(self.machines)[self.slots :]

    @property
    def replaceable(self) -> list[int]:
        """The machines that another host may take over."""
        if self.is_silent:
            return list(self.machines)
        opening = self.opening
        adopted = [n for n in self.adopted if n not in opening]
        return [*opening, *adopted] if self.is_slow else adopted


class Roster:
    """The hosts that serve a session, and the states of their machines.

    ::

        join             joined        ask              late
        -----> JOINING -------> IDLE -----> COMPUTING -----> LATE
                                  ^             |              |
                                  |   answer    |              |
                                  '-------------+--------------+
                                                |   give_up    |
                      IDLE <----- GIVEN_UP <----+--------------'
                          answer

    All machines of a host are given up together, idle ones too. One that was given up becomes idle
    when its host answers, unless another host has taken it meanwhile (`hand_over`). Another host
    can also take a machine that a slow host is opening. A machine that a host has adopted stays
    there until another host has opened it. A machine without a host is vacant.

    Parameters
    ----------
    on_change : callable
        Called with each change that matters for the next step.

    Attributes
    ----------
    processes : list of Host
        In the order of ranks, without those that are lost.
    vacant : list of int
        Machines without a host, in the order in which they became vacant.
    available : set of int
        Machines that can be planned with.
    gone : dict of int to MachineUnavailable
        Machines that were there before, with the last change of each.
    hosts : mapping of int to str
        Names of the hosts of machines, as far as they are known; a new mapping when a machine joins
        on another.
    """

    def __init__(self, on_change: Callable[[Change], None]) -> None:
        self._on_change = on_change
        self._by_rank: dict[int, Host] = {}
        self._carriers: dict[int, Host] = {}
        self._next_rank = 1
        self.vacant: list[int] = []
        self.available: set[int] = set()
        self.gone: dict[int, MachineUnavailable] = {}
        self.hosts: Mapping[int, str] = {}
        self.on_shortage: ShortageCallback = lambda missing, available, away: None

    def __getitem__(self, rank: int) -> Host:
        return self._by_rank[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self._by_rank

    @property
    def processes(self) -> list[Host]:  # noqa: D102
        return list(self._by_rank.values())

    def serving_host(self, machine: int) -> Host | None:
        """Return the host that serves a machine."""
        return self._carriers.get(machine)

    def host_of(self, machine: int) -> Host:
        """Return the host that serves a machine; RuntimeError if there is none."""
        host = self.serving_host(machine)
        if host is None:
            raise RuntimeError(f"machine {machine} has no host")
        return host

    def state_of(self, machine: int) -> State | None:
        """Return the state of a machine; None if no host serves it."""
        host = self.serving_host(machine)
        return None if host is None else host.machines[machine]

    def machines(self, *states: State) -> set[int]:
        """Return the machines in one of these states."""
        hosts = self._by_rank.values()
        return {n for host in hosts for n, state in host.machines.items() if state in states}

    @property
    def opening(self) -> set[int]:
        """The machines that are being opened, and that no host serves meanwhile."""
        opening = self.machines(State.JOINING)
        return opening - self.machines(*_SERVING_STATES) if opening else opening

    def adoption_hosts(self, machine: int) -> list[Host]:
        """Return the hosts that can carry a missing machine as well, the best first.

        The best has memory for the most further machines; then the fewest machines; then the lowest
        rank.
        """
        able = [
            host
            for host in self.processes
            if host.spare_capacity and machine not in host.cannot_carry
        ]
        return sorted(able, key=lambda host: (-host.spare_capacity, len(host.machines), host.rank))

    @property
    def missing(self) -> set[int]:
        """The machines without a host, or with a silent or slow one."""
        slow = {n for host in self._by_rank.values() if host.is_slow for n in host.opening}
        return {*self.vacant, *self.machines(State.GIVEN_UP), *slow.difference(self._carriers)}

    @property
    def adoptable(self) -> set[int]:
        """The missing machines that a host can carry as well."""
        missing = self.missing
        able = [host for host in self._by_rank.values() if missing and host.spare_capacity]
        return {n for n in missing if any(n not in host.cannot_carry for host in able)}

    def spares(self) -> list[Host]:
        """Return the hosts that take more machines."""
        return [host for host in self._by_rank.values() if host.free]

    # One method for each change.

    def expect(self, machines: Iterable[int]) -> None:
        """Note that these machines are vacant from the beginning."""
        self.vacant.extend(machines)

    def add(self, slots: int = 1, name: str = "") -> Host:
        """Add a host without machines."""
        host = Host(self._next_rank, slots, name)
        self._by_rank[host.rank] = host
        self._next_rank += 1
        return host

    def join(self, rank: int, machine: int) -> None:
        """Let a host open a machine, which is vacant or adopted by another host."""
        host, before = self[rank], self.serving_host(machine)
        if machine in self.vacant:
            self.vacant.remove(machine)
        elif before is None or before is host or machine not in before.adopted:
            raise RuntimeError(f"rank {rank} cannot take machine {machine}: it is not vacant")
        host.machines[machine] = State.JOINING

    def mark_joined(self, rank: int, machine: int, silent: bool = False) -> None:
        """Note that a host serves a machine now; `silent`: without reporting it."""
        before = self.serving_host(machine)
        self._change(rank, machine, State.IDLE, State.JOINING)
        if before is not None:
            del before.machines[machine]
        self._carriers[machine] = self[rank]
        self._mark_available(self[rank], machine, silent)

    def mark_computing(self, machine: int) -> None:
        """Note that a machine has a job."""
        self._change(self.host_of(machine).rank, machine, State.COMPUTING, State.IDLE)

    def mark_late(self, machine: int) -> None:
        """Note that the step does not wait for a machine any longer."""
        self._change(self.host_of(machine).rank, machine, State.LATE, State.COMPUTING)

    def give_up(self, rank: int, reason: str) -> None:
        """Count the machines of a host as lost until it answers."""
        host = self[rank]
        host.is_silent = True
        for machine, state in host.machines.items():
            if state in _SERVING_STATES and state is not State.GIVEN_UP:
                host.machines[machine] = State.GIVEN_UP
                self._mark_gone(GivenUp(machine, reason))

    def hand_over(self, machine: int) -> None:
        """Make a machine vacant whose host was given up, or is slow to open it."""
        for host in self.processes:
            state = host.machines.get(machine)
            if state is State.GIVEN_UP or (state is State.JOINING and host.is_slow):
                self._vacate(host, machine)
                return
        raise RuntimeError(f"machine {machine} has no host that is silent or slow")

    def mark_answered(self, rank: int, machine: int) -> None:
        """Note an answer of a machine, which becomes idle if the host still carries it."""
        host = self[rank]
        host.is_silent = False
        if host.machines.get(machine) in _JOB_STATES:
            host.machines[machine] = State.IDLE
            if machine not in self.available:
                self._mark_available(host, machine)

    def release(self, rank: int, change: MachineUnavailable) -> None:
        """Take a machine from a host, which keeps its others."""
        self._end(self[rank], change)

    def exclude(self, rank: int, reason: str, change: type[MachineUnavailable] = Lost) -> None:
        """Give a host no more jobs; its machines are lost, have left or are excluded."""
        host = self[rank]
        host.is_excluded = True
        for machine in list(host.machines):
            self._end(host, change(machine, reason))

    def lose(self, rank: int, reason: str) -> None:
        """Remove a host and its rank."""
        host = self._by_rank.pop(rank)
        for machine in list(host.machines):
            self._end(host, Lost(machine, reason))

    def _change(self, rank: int, machine: int, state: State, allowed: State) -> None:
        host = self[rank]
        before = host.machines.get(machine)
        if before is not allowed:
            found = "not there" if before is None else before.value
            raise RuntimeError(f"machine {machine} is {found}: it cannot be {state.value}")
        host.machines[machine] = state

    def _mark_available(self, host: Host, machine: int, silent: bool = False) -> None:
        """Count a machine as available, and report it."""
        self.available.add(machine)
        self.gone.pop(machine, None)
        if host.name and self.hosts.get(machine) != host.name:
            self.hosts = {**self.hosts, machine: host.name}
        if not silent:
            self._on_change(Joined(machine, host.rank, host.name))

    def _end(self, host: Host, change: MachineUnavailable) -> None:
        """Take a machine from a host; it is gone unless another host serves it."""
        machine = change.machine
        if self.serving_host(machine) in (None, host):
            self._mark_gone(change)
        self._vacate(host, machine)

    def _mark_gone(self, change: MachineUnavailable) -> None:
        self.available.discard(change.machine)
        self.gone[change.machine] = change
        self._on_change(change)

    def _vacate(self, host: Host, machine: int) -> None:
        """Take a machine from a host; it is vacant unless another host has it."""
        del host.machines[machine]
        if self._carriers.get(machine) is host:
            del self._carriers[machine]
        if not any(machine in other.machines for other in self._by_rank.values()):
            self.vacant.append(machine)
