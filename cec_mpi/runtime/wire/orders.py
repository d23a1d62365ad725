"""The messages between the master and machines.

An order is a header of five integers, followed by a payload. The report of an answer is eight
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.packing import Failure, pack, unpack, unpack_fields
from cec_mpi.runtime.product import Product
from cec_mpi.store.files.paths import expand_host
from cec_mpi.store.format.manifest import Manifest

MASTER = 0  # rank
# Limits, in bytes, on an operand that is sent in the message of its order (its size, and its size
# times the number of machines), and on answers that are sent in the message of their report.
MAX_INLINE_OPERAND, MAX_INLINE_TOTAL, MAX_INLINE_ANSWERS = 1 << 16, 1 << 22, 1 << 17

Number = TypeVar("Number")

HUB_POISONED = (
    "the previous step was interrupted: open the operator again, or restart the job if a launcher "
    "has started it"
)


class OrderKind(IntEnum):
    """The kinds of orders."""

    MULTIPLY = 1
    MULTIPLY_TRANSPOSED = 2
    LAST_ERRORS = 3
    OPEN = 4
    STOP = 5
    CLOSE = 6


class Order(NamedTuple):
    """The header of an order.

    Attributes
    ----------
    kind : int
        An `OrderKind`.
    machine_or_count : int
        For OPEN and CLOSE, the machine. For jobs over a socket, the number of jobs.
    step_or_threads : int
        Number of the step, from 0. For OPEN, the number of BLAS threads.
    columns : int
        Columns of W or V, k.
    length : int
        Length of the payload: numbers of an assignment, otherwise bytes. For jobs over a socket,
        bytes of their operands in the message of the order; 0 if these have frames of their own.
    """

    kind: int
    machine_or_count: int = 0
    step_or_threads: int = 0
    columns: int = 0
    length: int = 0

    @classmethod
    def for_step(cls, product: Product, step: int, length: int, jobs: int = 0) -> Order:
        """Return the header of an order for a step, or for a number of its jobs."""
        kind = OrderKind.MULTIPLY_TRANSPOSED if product.adjoint else OrderKind.MULTIPLY
        return cls(kind, jobs, step, product.columns, length)

    @property
    def is_step(self) -> bool:
        """Whether the order is for a step."""
        return self.kind in (OrderKind.MULTIPLY, OrderKind.MULTIPLY_TRANSPOSED)

    @property
    def product(self) -> Product:
        """The product of a step."""
        return Product(self.kind == OrderKind.MULTIPLY_TRANSPOSED, self.columns)


class ReportFields(NamedTuple, Generic[Number]):
    """The fields of a report as numbers, or as arrays for several reports.

    Attributes
    ----------
    machine
        Machine (from 1) that has answered; 0 if it has no shard.
    seconds
        Time of the computation.
    load_seconds, load_bytes
        Time and bytes of reading rows before it.
    failed, leaving, not_finite, damaged
        1 if, respectively, the machine raised an exception; it must leave soon; its part of X' V
        has NaN or infinity (in lockstep, where MPI sums the parts); its shard is damaged.
    """

    machine: Number
    seconds: Number
    load_seconds: Number
    load_bytes: Number
    failed: Number
    leaving: Number
    not_finite: Number
    damaged: Number

    @classmethod
    def size(cls) -> int:
        """Return the number of fields."""
        return len(cls._fields)


def clip_report(
    report: ReportFields[float], max_seconds: float, shard_bytes: int
) -> ReportFields[float]:
    """Clip the times and bytes of a report to possible values.

    Parameters
    ----------
    report : ReportFields
    max_seconds : float
        Longest time that the job can have taken.
    shard_bytes : int

    Examples
    --------
    >>> clip_report(ReportFields(1, 7.0, -1.0, float("nan"), 0, 0, 0, 0), 2.0, 800)[1:4]
    (2.0, 0.0, 0.0)
    """
    if 0.0 <= report.seconds <= max_seconds and report.load_seconds == report.load_bytes == 0.0:
        return report  # in nearly every step
    return report._replace(
        seconds=_clip(report.seconds, max_seconds),
        load_seconds=_clip(report.load_seconds, max_seconds),
        load_bytes=_clip(report.load_bytes, shard_bytes),
    )


def _clip(number: float, maximum: float) -> float:
    return min(number, maximum) if number >= 0.0 else 0.0  # also for NaN


class Part(NamedTuple):
    """The part of a step that a machine computes.

    Attributes
    ----------
    machine : int
        0 if it has no shard.
    intervals : tuple of (int, int) or None
        Assigned rows, ascending; None if they are those of the last step.
    """

    machine: int
    intervals: tuple[tuple[int, int], ...] | None


class Multiply(NamedTuple):
    """An order to compute a process's parts of a step.

    Attributes
    ----------
    step : int
        Number of the step, from 0.
    product : Product
    parts : tuple of Part
        The part of each of its machines.
    """

    step: int
    product: Product
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Open:
    """An order to open the shard of a machine and serve it.

    Attributes
    ----------
    opening : Opening
    machine : int
        Number of the machine; 0 if this process serves none.
    threads : int
        Number of BLAS threads.
    """

    opening: Opening
    machine: int
    threads: int


@dataclass(frozen=True)
class Close:
    """An order to stop serving a machine."""

    machine: int


@dataclass(frozen=True)
class Stop:
    """An order to leave, with the exception that ended the session of the master, if any."""

    error: BaseException | None = None

    def pack_payload(self) -> bytes:
        """Return the payload of the order."""
        return pack(None if self.error is None else Failure.from_exception(self.error))


ParsedOrder = Multiply | Open | Close | Stop
"""An order with its payload; the operand of a `Multiply` is received separately."""


def parse_order(order: Order, payload: bytes, rank: int = 0) -> Open | Close | Stop:
    """Parse an order other than a step, and its payload.

    Parameters
    ----------
    order : Order
    payload : bytes
    rank : int
        Rank of this process in lockstep, where all ranks get the same order. With 0, the machine is
        in the header.
    """
    match order.kind:
        case OrderKind.OPEN:
            opening = unpack_fields(payload, Opening)
            if rank:
                return Open(opening, opening.machines[rank - 1], opening.threads[rank])
            return Open(opening, order.machine_or_count, order.step_or_threads)
        case OrderKind.CLOSE:
            return Close(order.machine_or_count)
        case OrderKind.STOP:
            failure: Failure | None = unpack(payload, Failure | None)  # type: ignore[arg-type]
            return Stop(None if failure is None else failure.to_exception())
    raise RuntimeError(f"unknown order: {order}")


def pack_report(report: Report, machine: int, is_finite: bool = True) -> ReportFields[float]:
    """Return the fields of a report as numbers."""
    load_cost = report.load_cost
    return ReportFields(
        machine,
        report.seconds,
        load_cost.seconds,
        load_cost.bytes,
        bool(report.problem),
        report.leaving,
        not is_finite,
        report.damaged,
    )


@dataclass(frozen=True)
class Opening:
    """The store that machines serve, and how they open it.

    Attributes
    ----------
    store : Path
        Its path, which contains ``{host}`` if each node has a directory of its own.
    manifest : Manifest
    machines : tuple of int
        Machine of each rank, from rank 1; 0 for a spare.
    options : MachineOptions
    threads : tuple of int
        BLAS threads of each rank, from rank 0.
    log_directory : Path or None
        Directory for a log of each machine.
    is_multi_node : bool
        Whether ranks are on more than one node.
    unassigned_machines : tuple of int
        Machines for processes that join later.
    """

    store: Path
    manifest: Manifest
    machines: tuple[int, ...]
    options: MachineOptions
    threads: tuple[int, ...]
    log_directory: Path | None = None
    is_multi_node: bool = False
    unassigned_machines: tuple[int, ...] = ()

    @property
    def measures_speed(self) -> bool:
        """Whether the machines measure their speed for an emulation."""
        return self.options.measures_speed

    @cached_property
    def arithmetic(self) -> np.dtype[Any]:
        """The dtype in which vectors and answers are sent and products are computed."""
        is_double = self.options.precision == "double"
        return np.dtype(np.float64 if is_double else self.manifest.dtype)

    def shard_file(self, machine: int) -> Path:
        """Return the path of the shard of a machine (from 1) in the store."""
        return expand_host(self.store) / self.manifest.shards[machine - 1].file

    def is_shard_missing(self, machine: int) -> bool:
        """Whether the shard file of a machine does not exist."""
        return not self.shard_file(machine).exists()


@dataclass(frozen=True)
class Admission:
    """The master's decision on whether a machine serves the store that it has opened.

    Attributes
    ----------
    emulation : Emulation or None
        Emulated speeds.
    failure : Failure or None
        Why the machine does not serve the store; None if it does.
    """

    emulation: Emulation | None = None
    failure: Failure | None = None


@dataclass(frozen=True)
class OpenReport:
    """The report of a machine on a store that it has opened.

    Attributes
    ----------
    problem : str
        Why it cannot serve the store; empty if it can.
    shard_path : str
        Path of the shard, in the store or a cache; empty if it has none.
    rate : float
        Measured rows per second, if an emulation needs them.
    is_shard_missing : bool
        Whether the file of its shard does not exist.
    is_damaged : bool
        Whether its shard is damaged or missing.
    log_problem : str
        Why it has no log; empty if it has one.
    cache_problem : str
        Why the cache is not used; empty if it is used, or not configured.
    is_usage_error : bool
        Whether the problem is an option that this host does not support.
    device : str
        Device that multiplies its shard; empty for the processor.
    """

    problem: str = ""
    shard_path: str = ""
    rate: float = 0.0
    is_shard_missing: bool = False
    is_damaged: bool = False
    log_problem: str = ""
    cache_problem: str = ""
    is_usage_error: bool = False
    device: str = ""
