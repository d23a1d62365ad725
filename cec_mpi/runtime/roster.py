"""The roster: hosts, the machines that they carry, and the states of these machines.

A host is a process that carries machines. The loss of a machine in an elastic run is handled in
this order:

1. `wire.sockets.listener` detects a disconnect, and `wire.sockets.hub` finds the host. The hub also
   excludes a host that cannot open its shard or sends an answer of the wrong length. If a machine
   does not answer in time, `core.elastic.step` first stops waiting for it (late), then counts it as
   lost (unresponsive). It also excludes machines that report a failure or return wrong values.
2. The roster changes the states of all machines of the host, and reports each change:
   `MachineLost`, `MachineUnresponsive`, `MachineLeft` or `MachineExcluded`. Only the roster
   determines which machines are available. The hub assigns the vacant machines to spares.
3. `master.elastic` records the change and passes it to `core.elastic.step`, which reassigns the
   rows that the machine has not answered. `core.elastic.states` has a table of all such cases.
4. `master.schedule` and `master.planning` plan the next step for the available machines.
5. With ``--adopt``, `core.elastic.step` decides that a host must adopt a missing machine, the
   roster chooses the host (`Roster.adoption_hosts`), and the hub makes it open the machine. If
   another host joins later, the hub moves the machine to that host.

In lockstep the loss of a machine ends the job (`processes.ending`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from cec_mpi.core.elastic.events import (
    MachineJoined,
    MachineLost,
    MachineUnavailable,
    MachineUnresponsive,
    RosterChange,
)

if TYPE_CHECKING:
    from cec_mpi.runtime.records.step import AbsenceReason

    ShortageCallback = Callable[[int, Iterable[int], Mapping[int, AbsenceReason]], None]
    """Called while a step waits for machines: see `Recorder.record_wait`."""

LEAVE_REASON = "it received a shutdown signal or notice"  # reason for `MachineLeft`


class State(Enum):
    """State of a machine on its host."""

    JOINING = "joining"  # its shard is being opened
    IDLE = "idle"  # can get a job
    COMPUTING = "computing"
    LATE = "late"  # computes, but the step no longer waits for it
    UNRESPONSIVE = "unresponsive"  # treated as lost, because its host has not answered for too long


_JOB_STATES = State.COMPUTING, State.LATE, State.UNRESPONSIVE
_SERVING_STATES = State.IDLE, *_JOB_STATES


@dataclass(eq=False)
class Host:
    """A process that carries machines.

    Only the roster changes `machines`, `is_excluded` and `is_silent`. The hub sets `slots`,
    `capacity`, `is_slow`, `failed_machines` and `devices`.

    Attributes
    ----------
    rank : int
        Rank of the process in the session; the master has rank 0.
    slots : int
        Number of machines that it carries by default.
    name : str
        Name of its computer; empty if unknown.
    machines : dict of int to State
        States of the machines that it carries or is opening, in the order of their assignment.
    capacity : int
        Number of machines that it can carry if too few remain for a step.
    is_excluded : bool
        Whether it is running, but gets no more jobs.
    is_silent : bool
        Whether its machines became unresponsive, and it has not answered since.
    is_slow : bool
        Whether it has been opening a machine for a long time without progress.
    failed_machines : set of int
        Machines that it could not open.
    pid : int
        Process ID on its computer; 0 if unknown.
    devices : dict of int to str
        Devices of its machines; empty for the processor.
    """

    rank: int
    slots: int = 1
    name: str = ""
    machines: dict[int, State] = field(default_factory=dict)
    capacity: int = 1
    is_excluded: bool = False
    is_silent: bool = False
    is_slow: bool = False
    failed_machines: set[int] = field(default_factory=set)
    devices: dict[int, str] = field(default_factory=dict)
    pid: int = 0

    @property
    def free_slots(self) -> int:
        """Number of free slots; 0 while it cannot open machines."""
        if not self._can_open:
            return 0
        return max(0, self.slots - len(self.machines))

    @property
    def spare_capacity(self) -> int:
        """Number of additional machines that fit in its memory; 0 while it is opening one."""
        if not self._can_open or self.opening:
            return 0
        return max(0, self.capacity - len(self.machines))

    @property
    def _can_open(self) -> bool:
        return not (self.is_excluded or self.is_silent or self.is_slow)

    @property
    def opening(self) -> list[int]:
        """Machines whose shards it is opening."""
        return [n for n, state in self.machines.items() if state is State.JOINING]

    @property
    def adopted(self) -> list[int]:
        """Machines that it carries beyond its slots."""
        return list(self.machines)[self.slots :]

    @property
    def replaceable(self) -> list[int]:
        """Machines that another host may take over."""
        if self.is_silent:
            return list(self.machines)
        opening = self.opening
        adopted = [n for n in self.adopted if n not in opening]
        return [*opening, *adopted] if self.is_slow else adopted


class Roster:
    """Hosts of a session, and the states of their machines.

    ::

        assign           joined        job              late
        -----> JOINING -------> IDLE -----> COMPUTING -----> LATE
                                  ^             |              |
                                  |   answer    |              |
                                  '-------------+--------------+
                                                | mark_unresponsive
                  IDLE <----- UNRESPONSIVE <----+--------------'
                      answer

    All machines of a host become unresponsive at once, even idle ones. They become idle when the
    host answers, except those that another host has taken over (`vacate`). Another host can also
    take over a machine that a slow host is opening. An adopted machine stays on its host until
    another host has opened it. A machine without a host is vacant.

    Parameters
    ----------
    on_change : callable
        Called with each change that affects the next step.

    Attributes
    ----------
    hosts : list of Host
        Hosts in the order of ranks, without lost ones.
    vacant : list of int
        Machines without a host, in the order in which they became vacant.
    available : set of int
        Machines for which steps can be planned.
    unavailable : dict of int to MachineUnavailable
        Machines that are no longer available, with the change that made each unavailable.
    host_names : mapping of int to str
        Name of the computer of each machine, if known. A change replaces the mapping.
    """

    def __init__(self, on_change: Callable[[RosterChange], None]) -> None:
        self._on_change = on_change
        self._hosts_by_rank: dict[int, Host] = {}
        self._serving_hosts: dict[int, Host] = {}
        self._next_rank = 1
        self.vacant: list[int] = []
        self.available: set[int] = set()
        self.unavailable: dict[int, MachineUnavailable] = {}
        self.host_names: Mapping[int, str] = {}
        self.on_shortage: ShortageCallback = lambda missing, available, reasons: None

    def __getitem__(self, rank: int) -> Host:
        return self._hosts_by_rank[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self._hosts_by_rank

    @property
    def hosts(self) -> list[Host]:  # noqa: D102
        return list(self._hosts_by_rank.values())

    def serving_host(self, machine: int) -> Host | None:
        """Return the host that serves a machine; None if there is none."""
        return self._serving_hosts.get(machine)

    def host_of(self, machine: int) -> Host:
        """Return the host that serves a machine.

        Raises
        ------
        RuntimeError
            No host serves it.
        """
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
        hosts = self._hosts_by_rank.values()
        return {n for host in hosts for n, state in host.machines.items() if state in states}

    @property
    def opening(self) -> set[int]:
        """Machines that are being opened and that no host serves."""
        opening = self.machines(State.JOINING)
        return opening - self.machines(*_SERVING_STATES) if opening else opening

    def adoption_hosts(self, machine: int) -> list[Host]:
        """Return the hosts that can adopt a missing machine, the best first.

        The best host has memory for the most additional machines, then the fewest machines, then
        the lowest rank.
        """
        candidates = [
            host
            for host in self.hosts
            if host.spare_capacity and machine not in host.failed_machines
        ]
        return sorted(
            candidates, key=lambda host: (-host.spare_capacity, len(host.machines), host.rank)
        )

    @property
    def missing(self) -> set[int]:
        """Machines that are vacant or unresponsive, or that only slow hosts are opening."""
        slow = {n for host in self._hosts_by_rank.values() if host.is_slow for n in host.opening}
        unresponsive = self.machines(State.UNRESPONSIVE)
        return {*self.vacant, *unresponsive, *slow.difference(self._serving_hosts)}

    @property
    def adoptable(self) -> set[int]:
        """Missing machines that a host can adopt."""
        missing = self.missing
        candidates = [
            host for host in self._hosts_by_rank.values() if missing and host.spare_capacity
        ]
        return {n for n in missing if any(n not in host.failed_machines for host in candidates)}

    def spares(self) -> list[Host]:
        """Return the hosts with free slots."""
        return [host for host in self._hosts_by_rank.values() if host.free_slots]

    # --- changes ----------------------------------------------------------------------------------

    def add_vacant(self, machines: Iterable[int]) -> None:
        """Add machines that no host has opened yet."""
        self.vacant.extend(machines)

    def add_host(self, slots: int = 1, name: str = "", pid: int = 0) -> Host:
        """Add a host without machines."""
        host = Host(self._next_rank, slots, name, pid=pid)
        self._hosts_by_rank[host.rank] = host
        self._next_rank += 1
        return host

    def assign(self, rank: int, machine: int) -> None:
        """Let a host open a machine that is vacant, or that another host has adopted."""
        host, current = self[rank], self.serving_host(machine)
        if machine in self.vacant:
            self.vacant.remove(machine)
        elif current is None or current is host or machine not in current.adopted:
            raise RuntimeError(f"rank {rank} cannot open machine {machine}: it is not vacant")
        host.machines[machine] = State.JOINING

    def mark_joined(self, rank: int, machine: int, notify: bool = True) -> None:
        """Mark a machine as served by a host; `notify`: whether to report the change."""
        previous = self.serving_host(machine)
        self._change_state(rank, machine, State.IDLE, State.JOINING)
        if previous is not None:
            del previous.machines[machine]
        self._serving_hosts[machine] = self[rank]
        self._mark_available(self[rank], machine, notify)

    def mark_computing(self, machine: int) -> None:
        """Mark a machine as computing."""
        self._change_state(self.host_of(machine).rank, machine, State.COMPUTING, State.IDLE)

    def mark_late(self, machine: int) -> None:
        """Mark a machine as late: the step no longer waits for it."""
        self._change_state(self.host_of(machine).rank, machine, State.LATE, State.COMPUTING)

    def mark_unresponsive(self, rank: int, reason: str) -> None:
        """Treat the machines of a host as lost until it answers."""
        host = self[rank]
        host.is_silent = True
        for machine, state in host.machines.items():
            if state in _SERVING_STATES and state is not State.UNRESPONSIVE:
                host.machines[machine] = State.UNRESPONSIVE
                self._mark_unavailable(MachineUnresponsive(machine, reason))

    def vacate(self, machine: int) -> None:
        """Take a machine that is unresponsive, or is opening slowly, from its host."""
        for host in self.hosts:
            state = host.machines.get(machine)
            if state is State.UNRESPONSIVE or (state is State.JOINING and host.is_slow):
                self._detach(host, machine)
                return
        raise RuntimeError(f"machine {machine} has no host that is silent or slow")

    def mark_answered(self, rank: int, machine: int) -> None:
        """Mark a machine as idle after an answer, if the host still carries it."""
        host = self[rank]
        host.is_silent = False
        if host.machines.get(machine) in _JOB_STATES:
            host.machines[machine] = State.IDLE
            if machine not in self.available:
                self._mark_available(host, machine)

    def remove_machine(self, rank: int, change: MachineUnavailable) -> None:
        """Remove one machine from a host."""
        self._remove(self[rank], change)

    def exclude(
        self, rank: int, reason: str, event_type: type[MachineUnavailable] = MachineLost
    ) -> None:
        """Exclude a host from further jobs, and report an event for each of its machines."""
        host = self[rank]
        host.is_excluded = True
        for machine in list(host.machines):
            self._remove(host, event_type(machine, reason))

    def remove_host(self, rank: int, reason: str) -> None:
        """Remove a host and its rank; its machines are lost."""
        host = self._hosts_by_rank.pop(rank)
        for machine in list(host.machines):
            self._remove(host, MachineLost(machine, reason))

    def _change_state(self, rank: int, machine: int, state: State, expected: State) -> None:
        host = self[rank]
        current = host.machines.get(machine)
        if current is not expected:
            description = "on another host" if current is None else current.value
            raise RuntimeError(f"machine {machine} is {description}: expected {expected.value}")
        host.machines[machine] = state

    def _mark_available(self, host: Host, machine: int, notify: bool = True) -> None:
        """Make a machine available, and report the change if `notify`."""
        self.available.add(machine)
        self.unavailable.pop(machine, None)
        if host.name and self.host_names.get(machine) != host.name:
            self.host_names = {**self.host_names, machine: host.name}
        if notify:
            self._on_change(
                MachineJoined(
                    machine, host.rank, host.name, host.devices.get(machine, ""), host.pid
                )
            )

    def _remove(self, host: Host, change: MachineUnavailable) -> None:
        """Remove a machine from a host; it is unavailable unless another host serves it."""
        machine = change.machine
        if self.serving_host(machine) in (None, host):
            self._mark_unavailable(change)
        self._detach(host, machine)

    def _mark_unavailable(self, change: MachineUnavailable) -> None:
        self.available.discard(change.machine)
        self.unavailable[change.machine] = change
        self._on_change(change)

    def _detach(self, host: Host, machine: int) -> None:
        """Remove a machine from a host; it is vacant unless another host has it."""
        del host.machines[machine]
        if self._serving_hosts.get(machine) is host:
            del self._serving_hosts[machine]
        if not any(machine in other.machines for other in self._hosts_by_rank.values()):
            self.vacant.append(machine)
