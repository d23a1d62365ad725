"""What the master tells a machine, and a machine of its answer and of a store: the layout of all.

An order is six whole numbers, and what they announce; the report of an answer is eleven numbers.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.step.product import Product
from cec_mpi.options.machines import MachineOptions
from cec_mpi.processes.failing import pack_error, unpack_error
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.shard import Loaded, Mended
from cec_mpi.store.staging import node_directory

MASTER = 0  # rank

Number = TypeVar("Number")


CUT_OFF = "the previous step was interrupted; restart the job"


class Kind(IntEnum):
    """What an order asks for."""

    MULTIPLY = 1
    MULTIPLY_TRANSPOSED = 2
    EXPLAIN = 3
    OPEN = 4
    CLOSE = 5
    STOP = 6
    ADOPT = 7


class Order(NamedTuple):
    """The numbers that come first.

    Attributes
    ----------
    kind : int
        A `Kind`.
    store : int
        Which of the open stores, counted from 0 in the order of opening.
    shard : int
        Of which machine (from 1); 0 where each machine is to take its own. With OPEN, the machine
        that a process is to be.
    step : int
        Counted from 0. With OPEN, the BLAS threads of that machine.
    columns : int
        Of W or V, k.
    length : int
        Of what follows: numbers of an assignment, or bytes.
    """

    kind: int
    store: int = 0
    shard: int = 0
    step: int = 0
    columns: int = 0
    length: int = 0

    @classmethod
    def of(
        cls, product: Product, store: int, shard: int = 0, step: int = 0, length: int = 0
    ) -> Order:
        """A step of a store."""
        kind = Kind.MULTIPLY_TRANSPOSED if product.adjoint else Kind.MULTIPLY
        return cls(kind, store, shard, step, product.columns, length)

    @property
    def is_step(self) -> bool:
        """Whether it asks for a part of a step."""
        return self.kind in (Kind.MULTIPLY, Kind.MULTIPLY_TRANSPOSED)

    @property
    def product(self) -> Product:
        """Of a step."""
        return Product(self.kind == Kind.MULTIPLY_TRANSPOSED, self.columns)


class Reported(NamedTuple, Generic[Number]):
    """The numbers of a report, or of several: arrays then.

    Attributes
    ----------
    shard
        Of which machine (from 1); 0 where it has none.
    seconds
        Of the computation.
    load_seconds, load_bytes
        Of what was read first.
    failed, leaving, not_finite
        1 for yes: it raised an exception; has to leave soon; its part of X' V, where all parts
        are added up on the way, has NaN or infinity.
    rows, first, last, error_bound
        `Mended`.
    """

    shard: Number
    seconds: Number
    load_seconds: Number
    load_bytes: Number
    failed: Number
    leaving: Number
    not_finite: Number
    rows: Number
    first: Number
    last: Number
    error_bound: Number

    @classmethod
    def size(cls) -> int:
        """How many numbers."""
        return len(cls._fields)


@dataclass(frozen=True)
class Report:
    """What a machine says of its answer.

    Attributes
    ----------
    seconds : float
        Of the computation.
    loaded : Loaded
        What was read first.
    failed : bool
        It raised an exception.
    leaving : bool
        It was warned that it has to leave soon.
    mended : Mended
        Rows of its shard that it has computed from others.
    """

    seconds: float = 0.0
    loaded: Loaded = field(default_factory=Loaded)
    failed: bool = False
    leaving: bool = False
    mended: Mended = field(default_factory=Mended)


@dataclass(frozen=True)
class Multiply:
    """A machine's part of a step.

    Attributes
    ----------
    store, step : int
        As in `Order`.
    shard : int
        Whose rows are asked for, by its machine: those of this one; 0 where it has none.
    product : Product
    intervals : tuple of (int, int) or None
        The rows of this machine, ascending; None for the same as in the last step.
    """

    store: int
    step: int
    shard: int
    product: Product
    intervals: tuple[tuple[int, int], ...] | None


@dataclass(frozen=True)
class Adopt:
    """Take over shards of other machines.

    Attributes
    ----------
    store, step : int
        As in `Order`.
    shard : int
        Whose order it is, by its machine.
    shards : tuple of int
        All that lie behind its own ones from now on, in this order.
    """

    store: int
    step: int
    shard: int
    shards: tuple[int, ...]


@dataclass(frozen=True)
class Explain:
    """Say what went wrong, if something did: an answer in any case."""


@dataclass(frozen=True)
class Open:
    """Serve one more store.

    Attributes
    ----------
    store : int
    opening : Opening
    machine : int
        That this process is; 0 if it has no part in the store.
    threads : int
        BLAS threads.
    """

    store: int
    opening: Opening
    machine: int
    threads: int


@dataclass(frozen=True)
class Close:
    """Forget a store."""

    store: int


@dataclass(frozen=True)
class Stop:
    """Leave, with the exception that the master leaves with."""

    error: BaseException | None = None

    def packed(self) -> bytes:
        """As the bytes that follow the order."""
        return pack_error(self.error)


Announced = Multiply | Adopt | Explain | Open | Close | Stop
"""What the master says first."""


def announced(order: Order, content: bytes, rank: int = 0) -> Explain | Open | Close | Stop:
    """What an order says that is not a step, with the bytes that follow it.

    Parameters
    ----------
    order : Order
    content : bytes
    rank : int
        Of this process, where all ranks are told the same; else the order says which machine it
        is.
    """
    match order.kind:
        case Kind.EXPLAIN:
            return Explain()
        case Kind.OPEN:
            opening = pickle.loads(content)
            if rank:
                return Open(order.store, opening, opening.machines[rank - 1], opening.threads[rank])
            return Open(order.store, opening, order.shard, order.step)
        case Kind.CLOSE:
            return Close(order.store)
        case Kind.STOP:
            return Stop(unpack_error(content))
    raise RuntimeError(f"{order} is no order")


def reported(report: Report, shard: int, finite: bool = True) -> Reported[float]:
    """What a machine says of its answer for a shard."""
    loaded = report.loaded
    return Reported(
        shard,
        report.seconds,
        loaded.seconds,
        loaded.bytes,
        report.failed,
        report.leaving,
        not finite,
        *report.mended,
    )


@dataclass(frozen=True)
class Opening:
    """A store that the machines are to serve.

    Attributes
    ----------
    store : Path
        With ``{host}`` where nodes have directories of their own.
    manifest : Manifest
    placement : Placement
        Which machine has which shards.
    machines : tuple of int
        The machine of each rank from 1 on; 0 for a rank that has no part in this store.
    options : MachineOptions
    threads : tuple of int
        BLAS threads of each rank from 0 on.
    logs : Path or None
        Directory for a log of each machine, for as long as the session lasts.
    several_nodes : bool
        Ranks are on more than one.
    expected : tuple of int
        Further machines, which processes that join later can become.
    """

    store: Path
    manifest: Manifest
    placement: Placement
    machines: tuple[int, ...]
    options: MachineOptions
    threads: tuple[int, ...]
    logs: Path | None = None
    several_nodes: bool = False
    expected: tuple[int, ...] = ()

    @property
    def measured(self) -> bool:
        """Whether the machines measure how fast they are, for an emulation."""
        return self.options.measured

    @property
    def arithmetic(self) -> np.dtype[Any]:
        """What vectors and answers travel, and products are computed, in."""
        wide = self.options.precision == "double"
        return np.dtype(np.float64 if wide else self.manifest.dtype)

    def shard_files(self, machine: int) -> list[Path]:
        """Where the shards of a machine (from 1) are in the store, as this node sees it."""
        directory, shards = node_directory(self.store), self.manifest.shards
        return [directory / shards[n - 1].file for n in self.placement.of(machine)]

    def unseen(self, machine: int) -> list[Path]:
        """Those of its files that are not there."""
        return [file for file in self.shard_files(machine) if not file.exists()]


@dataclass(frozen=True)
class Opened:
    """What a machine says of a store that it was to open.

    Attributes
    ----------
    problem : str
        Why it cannot serve it; empty when it can.
    shards : tuple of str
        The files that it reads, the store's own or copies; none when it has no shard.
    rate : float
        Rows per second that it can do, measured if an emulation is to be based on it.
    unseen : bool
        There is no file where one of its shards should be.
    unlogged : str
        Why it has no log; empty when it has one.
    """

    problem: str = ""
    shards: tuple[str, ...] = ()
    rate: float = 0.0
    unseen: bool = False
    unlogged: str = ""
