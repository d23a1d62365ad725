"""Scenarios to simulate, and their outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.holders import Holders
from cec_mpi.runtime.availability.models import Availability, is_constant_after
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.store.format.manifest import Manifest

RATE = 5e9  # typical number of bytes that a core multiplies per second
_MULTIPLICATIONS_PER_TRANSFER = 25  # time to read and write a number, in multiplications


class Source(NamedTuple):
    """Source from which machines read missing rows of X or of shards.

    Attributes
    ----------
    rate : float
        Bytes per second.
    is_shared : bool
        Whether this is the total rate of a server for all machines; otherwise it is the rate of
        each machine, from its own disk or an object store.

    Examples
    --------
    >>> sizes = [2e9, 1e9]
    >>> Source(1e9).read_seconds(sizes), Source(1e9, is_shared=False).read_seconds(sizes)
    (3.0, 2.0)
    """

    rate: float = 1e9
    is_shared: bool = True

    def read_seconds(self, sizes: Iterable[float]) -> float:
        """Return the seconds until all machines have read the bytes `sizes`."""
        return (sum(sizes) if self.is_shared else max(sizes, default=0.0)) / self.rate


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of a run except the multiplications of machines.

    Attributes
    ----------
    latency : float
        Seconds of a short message.
    bandwidth : float
        Bytes per second that the master sends to all machines, and receives from them.
    source : Source
        Source from which machines read.
    product_overhead : float
        Fixed seconds of each product on a machine.
    step_overhead, machine_overhead : float
        Fixed seconds of the master in each step, and for each machine in it.
    decode : float
        Seconds of a multiplication by the master. Decoding a number takes L multiplications, and
        its transfer from and to memory takes as long as 25 more.
    process_start : float
        Seconds until a process has started and joined, without reading.

    Notes
    -----
    The defaults are for cores of about 2.5 GHz. `step_overhead` is measured: with two
    ranks, each on its own core, a step with negligible computation takes 0.22 to 0.36 ms.
    `machine_overhead` is an estimate for one core per rank; with up to 64 ranks on two cores, each
    machine lengthens a step by 0.24 ms.
    `decode` is fitted to decoding 3 million numbers on one core.
    """

    latency: float = 1e-4
    bandwidth: float = 1e9
    source: Source = field(default_factory=Source)
    product_overhead: float = 0.0
    step_overhead: float = 2.5e-4
    machine_overhead: float = 1e-5
    decode: float = 4e-11
    process_start: float = 1.0

    def decoding_seconds(self, entries: float, recovery: int) -> float:
        """Return the seconds to decode entries of X w from L answers each, or to encode v for X' v.

        Examples
        --------
        >>> Costs(decode=1.0).decoding_seconds(10, recovery=100)
        1250.0
        """
        return entries * (_MULTIPLICATIONS_PER_TRANSFER + recovery) * self.decode


@dataclass(frozen=True)
class MachineEvent:
    """The loss or the start of the process of a machine.

    A machine whose first event is "joins" is absent at first.

    Attributes
    ----------
    seconds : float
        Time since the start of the run.
    machine : int
        Number of the machine, from 1.
    kind : {"lost", "joins"}
        The process of the machine ends, or a process joins as this machine, in an elastic run.
    """

    seconds: float
    machine: int
    kind: Literal["lost", "joins"]


def availability_events(
    availability: Availability, tick_seconds: float, seconds: float = math.inf
) -> tuple[MachineEvent, ...]:
    """Return the events of machines whose processes end when they become unavailable.

    Parameters
    ----------
    availability : Availability
    tick_seconds : float
        Length of a tick.
    seconds : float
        Duration, which may be infinite if the availability becomes constant.

    Examples
    --------
    >>> from cec_mpi.runtime.availability.models import ListedAvailability
    >>> availability_events(ListedAvailability([(1, 2), (1, 2), (2, 3)]), 60.0)[0]
    MachineEvent(seconds=120.0, machine=1, kind='lost')
    """
    events: list[MachineEvent] = []
    previous, tick = availability.at(0), 0
    while tick * tick_seconds < seconds and not is_constant_after(availability, tick):
        tick += 1
        if (current := availability.at(tick)) == previous:
            continue
        time, lost, joined = tick * tick_seconds, {*previous} - {*current}, {*current} - {*previous}
        events += [MachineEvent(time, n, "lost") for n in sorted(lost)]
        events += [MachineEvent(time, n, "joins") for n in sorted(joined)]
        previous = current
    return tuple(events)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run to simulate.

    Attributes
    ----------
    machines : int
        N.
    recovery : int or None
        L of a code; None for copies.
    copies : int
        Number of machines that hold each row, J.
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Fraction of nonzeros, which affects only copies.
    dtype : {"float64", "float32"}
    options : SessionOptions
        Options of the run. Machines have the speeds `emulate_speeds` (1 by default) with
        `emulate_base`, `emulate_noise` and `emulate_changes`; the master assumes `speeds`.
    rate : float
        Bytes of its shard that a machine of speed 1 multiplies per second, unless `emulate_base`
        sets the rows per second.
    costs : Costs
    steps : int or None
        Number of steps; None if only `seconds` limits them.
    seconds : float or None
        The run ends with the first step that ends after this time.
    adjoint : bool
        Whether every second step computes X' v, as in most solvers.
    machine_events : tuple of MachineEvent
    lost_when_away : bool
        Whether the process of a machine ends when the machine becomes unavailable, and a new
        process joins when it returns, as with spot instances. Otherwise the process stays idle.
    machines_per_computer : tuple of int
        Number of machines on each computer; empty if each computer has one.
    code : MDSCode or None
        Code of an existing store; by default a random code.
    holders : Holders or None
        Machines of each part of an existing store of copies; by default those that encode would
        choose.
    """

    machines: int
    recovery: int | None = None
    copies: int = 3
    rows: int
    columns: int
    density: float = 1.0
    dtype: str = "float64"
    options: SessionOptions = field(default_factory=SessionOptions)
    rate: float = RATE
    costs: Costs = field(default_factory=Costs)
    steps: int | None = None
    seconds: float | None = None
    adjoint: bool = False
    machine_events: tuple[MachineEvent, ...] = ()
    lost_when_away: bool = False
    machines_per_computer: tuple[int, ...] = ()
    code: MDSCode | None = None
    holders: Holders | None = None

    @property
    def max_seconds(self) -> float:
        """`seconds`, or infinity if only `steps` limits the run."""
        return math.inf if self.seconds is None else self.seconds

    @classmethod
    def from_store(cls, manifest: Manifest, **attributes: Any) -> Scenario:
        """Return a scenario with an existing store and these attributes."""
        return cls(
            machines=manifest.machines,
            rows=manifest.rows,
            columns=manifest.columns,
            dtype=manifest.dtype,
            **manifest.distribution,
            **attributes,
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Steps, times and events of a simulated run.

    Attributes
    ----------
    steps : int
        Number of completed steps.
    seconds : float
        Seconds from the start of the first step to the end of the run, including waiting.
    waiting_seconds : float
        Seconds of waiting for machines.
    excess_seconds : float
        Seconds, without waiting, in excess of the optimum, in which the available machines share
        the rows of X by their speeds, compute each row once, and nothing else takes time.
    bytes_read : int
        Bytes read from shards, or from X without a code.
    machine_seconds : list of float
        Seconds for which each machine was present.
    events : dict of str to int
        Number of events of each kind.
    end_reason : str
        Reason why the run ended early; empty if it did not.
    exit_code : int
        Exit code of ``cec-mpi run`` for this outcome.
    """

    steps: int
    seconds: float
    waiting_seconds: float
    excess_seconds: float
    bytes_read: int
    machine_seconds: list[float]
    events: dict[str, int] = field(default_factory=dict)
    end_reason: str = ""
    exit_code: int = 0

    @property
    def machine_hours(self) -> float:
        """Total hours for which machines were present."""
        return sum(self.machine_seconds) / 3600

    def cost(self, price: float) -> float:
        """Return the cost of the run for a price of a machine per hour."""
        return price * self.machine_hours
