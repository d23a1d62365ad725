"""What is simulated, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.replicas.holders import Holders
from cec_mpi.runtime.availability.models import Availability, is_settled
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.store.format.manifest import Manifest

RATE = 5e9  # bytes per second, about what a core multiplies
_READ_AND_WRITE = 25  # multiplications that take as long


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of everything but the products of machines.

    Attributes
    ----------
    latency : float
        Seconds of a short message.
    bandwidth : float
        Bytes per second that the master sends, and receives, to and from all machines together.
    disk : float
        Bytes per second with which each machine reads its shards.
    call : float
        Seconds of a product on a machine, whatever its rows.
    fixed, each : float
        Seconds of the master in each step, and for each machine in it.
    decode : float
        Seconds of each of the L multiplications by which the master decodes a number. To read and
        write it takes as long as 25.
    start : float
        Seconds until a process that comes can be asked, without reading.

    Notes
    -----
    The defaults are those of cores of about 2.5 GHz. `fixed` is measured: 2 ranks, each on a core
    of its own, take 0.22 to 0.36 ms for a step that computes next to nothing. `each` is estimated
    for ranks on cores of their own: where up to 64 ranks share two cores, each machine makes a step
    0.24 ms longer, as they take turns. `decode` is fitted to decoding 3 million numbers with
    one core.
    """

    latency: float = 1e-4
    bandwidth: float = 1e9
    disk: float = 1e9
    call: float = 0.0
    fixed: float = 2.5e-4
    each: float = 1e-5
    decode: float = 4e-11
    start: float = 1.0

    def decoding(self, numbers: float, recovery: int) -> float:
        """Return the seconds of decoding numbers from L answers each, or of coding v for X' v.

        Examples
        --------
        >>> Costs(decode=1.0).decoding(10, recovery=100)
        1250.0
        """
        return numbers * (_READ_AND_WRITE + recovery) * self.decode


@dataclass(frozen=True)
class Happening:
    """What happens to the process of a machine.

    A machine whose first happening is that it joins is not there at first.

    Attributes
    ----------
    seconds : float
        When, from the beginning of the run.
    machine : int
        From 1.
    kind : {"lost", "joins"}
        Its process ends, or a process joins as this machine. With either the run is elastic.
    """

    seconds: float
    machine: int
    kind: Literal["lost", "joins"]


def happenings_of(
    availability: Availability, tick_seconds: float, seconds: float = math.inf
) -> tuple[Happening, ...]:
    """Return when machines are lost and join, if processes end when a machine is not available.

    Parameters
    ----------
    availability : Availability
    tick_seconds : float
        Length of a tick.
    seconds : float
        Time that counts; it may be infinite if the availability does not change for ever.

    Examples
    --------
    >>> from cec_mpi.runtime.availability.models import Listed
    >>> happenings_of(Listed([(1, 2), (1, 2), (2, 3)]), 60.0)[0]
    Happening(seconds=120.0, machine=1, kind='lost')
    """
    found: list[Happening] = []
    before, tick = availability.at(0), 0
    while tick * tick_seconds < seconds and not is_settled(availability, tick):
        tick += 1
        if (now := availability.at(tick)) == before:
            continue
        moment = tick * tick_seconds
        found += [Happening(moment, n, "lost") for n in sorted(set(before).difference(now))]
        found += [Happening(moment, n, "joins") for n in sorted(set(now).difference(before))]
        before = now
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run to simulate.

    Attributes
    ----------
    machines : int
        N.
    recovery : int or None
        L of a code; None for replicas.
    copies : int
        Machines that hold each row of replicas, J.
    rows, columns : int
        Shape (q, r) of X.
    density : float
        Share of nonzeros; only replicas take advantage of it.
    dtype : {"float64", "float32"}
    options : SessionOptions
        Those of a run. Machines have the speeds `emulate_speeds` (1 by default) with
        `emulate_base`, `emulate_noise` and `emulate_changes`; `speeds` is what the master knows.
    rate : float
        Bytes of its shard that a machine of speed 1 multiplies in a second, unless
        `emulate_base` says how many rows.
    costs : Costs
    steps : int or None
        Number of steps; None for as many as begin in `seconds`.
    seconds : float or None
        The run ends with the first step that ends after this time.
    adjoint : bool
        Whether every second step computes X' v, as in most solvers.
    happenings : tuple of Happening
    loses : bool
        Whether the processes of machines end when availability takes these away, and others join in
        their place, as with spot instances. Otherwise they are only not asked.
    carried: tuple[int, ...] = ()
    code : MDSCode or None
        Code of a store that exists; otherwise there is a random one.
    holders : Holders or None
        Machines of each part of a store of copies that exists; otherwise they are chosen.
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
    happenings: tuple[Happening, ...] = ()
    loses: bool = False
    carried: tuple[int, ...] = ()
    code: MDSCode | None = None
    holders: Holders | None = None

    @classmethod
    def of_store(cls, manifest: Manifest, **more: Any) -> Scenario:
        """Return a scenario with a store that exists; `more` are its other attributes."""
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
    """What came of a simulated run.

    Attributes
    ----------
    steps : int
        Steps that ended.
    seconds : float
        From the beginning of the first step, with all waiting, to the end of the last.
    waiting : float
        Of these, in which too few machines were available.
    over : float
        Of these, without waiting, above the optimum: the machines that were available to each step
        sharing all rows of X by their speeds, each row computed once, in no other time.
    bytes_read : int
        From shards.
    machine_seconds : list of float
        Seconds for which each machine was there.
    events : dict of str to int
        How often each kind of event happened.
    ended : str
        Why the run ended before all steps; empty if it did not.
    exit_code : int
        That of ``cec-mpi run`` then.
    """

    steps: int
    seconds: float
    waiting: float
    over: float
    bytes_read: int
    machine_seconds: list[float]
    events: dict[str, int] = field(default_factory=dict)
    ended: str = ""
    exit_code: int = 0

    @property
    def machine_hours(self) -> float:
        """Hours for which machines were there, all of them added up."""
        return sum(self.machine_seconds) / 3600

    def cost(self, price: float) -> float:
        """Return what the run costs if an hour of a machine costs `price`."""
        return price * self.machine_hours
