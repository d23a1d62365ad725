"""Scenarios to simulate, and their outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.holders import Holders
from cec_mpi.runtime.availability.models import Availability, is_settled
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.store.format.manifest import Manifest

RATE = 5e9  # bytes per second that a core multiplies, approximately
_READ_AND_WRITE = 25  # time to read and write a number, in multiplications


class Source(NamedTuple):
    """Where machines read rows of X, or of shards, that they lack.

    Attributes
    ----------
    rate : float
        Bytes per second.
    is_shared : bool
        Whether one server has this rate for all machines together; otherwise each machine has it,
        from its own disk or from an object store.

    Examples
    --------
    >>> Source(1e9).seconds([2e9, 1e9]), Source(1e9, is_shared=False).seconds([2e9, 1e9])
    (3.0, 2.0)
    """

    rate: float = 1e9
    is_shared: bool = True

    def seconds(self, sizes: Iterable[float]) -> float:
        """Return the seconds until all machines have read, given the bytes of each."""
        return (sum(sizes) if self.is_shared else max(sizes, default=0.0)) / self.rate


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of everything but the products of machines.

    Attributes
    ----------
    latency : float
        Seconds of a short message.
    bandwidth : float
        Bytes per second that the master sends to all machines, and receives from them.
    source : Source
        Where machines read.
    call : float
        Fixed seconds of each product on a machine.
    fixed, per_machine : float
        Fixed seconds of the master in each step, and for each machine in it.
    decode : float
        Seconds of each of the L multiplications by which the master decodes a number. Reading and
        writing it takes as long as 25 of them.
    start : float
        Seconds until a process that joins is ready, without reading.

    Notes
    -----
    The defaults are for cores of about 2.5 GHz. `fixed` is measured: 2 ranks on one core each take
    0.22 to 0.36 ms for a step with negligible computation. `per_machine` is an estimate for one
    core per rank; with up to 64 ranks on two cores, each machine lengthens a step by 0.24 ms.
    `decode` is fitted to decoding 3 million numbers on one core.
    """

    latency: float = 1e-4
    bandwidth: float = 1e9
    source: Source = field(default_factory=Source)
    call: float = 0.0
    fixed: float = 2.5e-4
    per_machine: float = 1e-5
    decode: float = 4e-11
    start: float = 1.0

    def decoding(self, numbers: float, recovery: int) -> float:
        """Return the seconds to decode numbers from L answers each, or to encode v for X'v.

        Examples
        --------
        >>> Costs(decode=1.0).decoding(10, recovery=100)
        1250.0
        """
        return numbers * (_READ_AND_WRITE + recovery) * self.decode


@dataclass(frozen=True)
class MachineEvent:
    """An event of the process of a machine.

    A machine whose first event is "joins" is absent at first.

    Attributes
    ----------
    seconds : float
        Time since the start of the run.
    machine : int
        Its number, from 1.
    kind : {"lost", "joins"}
        Its process ends, or a process joins as this machine. Both need an elastic run.
    """

    seconds: float
    machine: int
    kind: Literal["lost", "joins"]


def machine_events(
    availability: Availability, tick_seconds: float, seconds: float = math.inf
) -> tuple[MachineEvent, ...]:
    """Return the events of machines whose processes end whenever they are not available.

    Parameters
    ----------
    availability : Availability
    tick_seconds : float
        Length of a tick.
    seconds : float
        Duration; may be infinite if the availability becomes constant.

    Examples
    --------
    >>> from cec_mpi.runtime.availability.models import ListedAvailability
    >>> machine_events(ListedAvailability([(1, 2), (1, 2), (2, 3)]), 60.0)[0]
    MachineEvent(seconds=120.0, machine=1, kind='lost')
    """
    events: list[MachineEvent] = []
    before, tick = availability.at(0), 0
    while tick * tick_seconds < seconds and not is_settled(availability, tick):
        tick += 1
        if (now := availability.at(tick)) == before:
            continue
        moment = tick * tick_seconds
        events += [MachineEvent(moment, n, "lost") for n in sorted(set(before).difference(now))]
        events += [MachineEvent(moment, n, "joins") for n in sorted(set(now).difference(before))]
        before = now
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
        J, the machines that hold each row.
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Fraction of nonzeros; only copies exploit it.
    dtype : {"float64", "float32"}
    options : SessionOptions
        Options of a run. Machines have the speeds `emulate_speeds` (1 by default) with
        `emulate_base`, `emulate_noise` and `emulate_changes`; the master assumes `speeds`.
    rate : float
        Bytes of its shard that a machine of speed 1 multiplies per second, unless `emulate_base`
        gives the number of rows.
    costs : Costs
    steps : int or None
        Number of steps; None for no limit but `seconds`.
    seconds : float or None
        The run ends with the first step that finishes after this time.
    adjoint : bool
        Whether every second step computes X'v, as in most solvers.
    machine_events : tuple of MachineEvent
    loses : bool
        Whether the process of a machine ends when the machine becomes unavailable, and a new one
        joins when it returns, as with spot instances. Otherwise the process idles.
    carried : tuple of int
        Machines of each computer; empty if each is a computer of its own.
    code : MDSCode or None
        Code of an existing store; by default a random one.
    holders : Holders or None
        Machines of each part of an existing store of copies; by default they are chosen.
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
    loses: bool = False
    carried: tuple[int, ...] = ()
    code: MDSCode | None = None
    holders: Holders | None = None

    @classmethod
    def from_store(cls, manifest: Manifest, **more: Any) -> Scenario:
        """Return a scenario with an existing store; `more` are its other attributes."""
        return cls(
            machines=manifest.machines,
            rows=manifest.rows,
            columns=manifest.columns,
            dtype=manifest.dtype,
            **manifest.distribution,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a simulated run.

    Attributes
    ----------
    steps : int
        Number of completed steps.
    seconds : float
        From the start of the first step to the end of the last, including waiting.
    waiting : float
        The part of `seconds` with too few available machines.
    above_optimum : float
        The part of `seconds`, without waiting, in excess of the optimum, in which the available
        machines share the rows of X by their speeds, compute each once, and nothing else takes
        time.
    bytes_read : int
        Bytes read from shards.
    machine_seconds : list of float
        Seconds for which each machine was present.
    events : dict of str to int
        Number of events of each kind.
    ended : str
        Why the run ended early; empty if it did not.
    exit_code : int
        The exit code of ``cec-mpi run`` in this case.
    """

    steps: int
    seconds: float
    waiting: float
    above_optimum: float
    bytes_read: int
    machine_seconds: list[float]
    events: dict[str, int] = field(default_factory=dict)
    ended: str = ""
    exit_code: int = 0

    @property
    def machine_hours(self) -> float:
        """Total hours for which machines were present."""
        return sum(self.machine_seconds) / 3600

    def cost(self, price: float) -> float:
        """Return the cost of the run at this price of a machine per hour."""
        return price * self.machine_hours
