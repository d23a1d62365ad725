"""What a step needs from the wire.

The master's end and a machine's end of the same three verbs: *announce* a step, *share*
what is multiplied with, *collect* the answers. Each verb is collective: the master and
all machines call it in the same order, preempted machines too. Between steps the master
may *open* a further store, *close* one, or *stop*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.errors import CecError
from cec_mpi.runtime.emulation import Emulation
from cec_mpi.runtime.options import SessionOptions
from cec_mpi.runtime.signals import NotedSignals
from cec_mpi.store.manifest import Manifest
from cec_mpi.store.reader import Loaded
from cec_mpi.store.staging import node_directory

__all__ = [
    "Announcement",
    "AnswerBuffers",
    "Answers",
    "Hub",
    "MachineEnd",
    "MasterEnd",
    "Opened",
    "Opening",
    "Product",
    "Report",
]


class Product(NamedTuple):
    """What a step computes.

    Attributes
    ----------
    adjoint : bool
        X' V instead of X W.
    columns : int
        Of W or V, k.
    """

    adjoint: bool = False
    columns: int = 1


@dataclass(frozen=True)
class Answers:
    """What the machines answered to a step.

    Attributes
    ----------
    values : ndarray
        For X W of shape (copies * R * k,): all answers, machine after machine, as
        `Assignment.positions` counts them; NaN where an answer was short. For X' V of
        shape (r * k,), float64: the sum of all answers. Overwritten by the next step.
    seconds : (N,) ndarray of float64
        Computation time of machines 1..N, 0 for the preempted.
    load_seconds, load_bytes : (N,) ndarray of float64
        What machines 1..N spent on reading rows that they had not read before, and how
        many bytes that was.
    failed : list of int
        Machines that raised an exception.
    leaving : list of int
        Machines that have to leave soon.
    """

    values: NDArray[Any]
    seconds: NDArray[np.float64]
    load_seconds: NDArray[np.float64]
    load_bytes: NDArray[np.float64]
    failed: list[int]
    leaving: list[int] = field(default_factory=list)


class AnswerBuffers:
    """Arrays for the `Answers.values` of a store; the last of each kind is kept.

    Parameters
    ----------
    manifest : Manifest
    """

    def __init__(self, manifest: Manifest) -> None:
        self._forward = manifest.code.recovery * manifest.rows_per_shard, np.dtype(manifest.dtype)
        self._adjoint = manifest.columns, np.dtype(np.float64)
        self._kept: dict[Product, NDArray[Any]] = {}

    def of(self, product: Product) -> NDArray[Any]:
        """For the answers to this product; what it holds is left over from the last one."""
        if product not in self._kept:
            others = {p: v for p, v in self._kept.items() if p.adjoint != product.adjoint}
            self._kept = {p: v for p, v in self._kept.items() if p.columns == 1} | others
            rows, dtype = self._adjoint if product.adjoint else self._forward
            self._kept[product] = np.empty(rows * product.columns, dtype)
        return self._kept[product]


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
    """

    seconds: float = 0.0
    loaded: Loaded = field(default_factory=Loaded)
    failed: bool = False
    leaving: bool = False


@dataclass(frozen=True)
class Opening:
    """A store that the machines are to serve.

    Attributes
    ----------
    store : Path
        With ``{host}`` where nodes have directories of their own.
    manifest : Manifest
    machines : tuple of int
        The machine of each rank from 1 on; 0 for a rank that has no part in this store.
    options : SessionOptions
        How shards are read; availability is not a machine's business.
    threads : tuple of int
        BLAS threads of each rank from 0 on.
    logs : Path or None
        Directory for a log of each machine, for as long as the session lasts.
    """

    store: Path
    manifest: Manifest
    machines: tuple[int, ...]
    options: SessionOptions
    threads: tuple[int, ...]
    logs: Path | None = None

    @property
    def measured(self) -> bool:
        """Whether the machines measure how fast they are, for an emulation."""
        return self.options.emulate_speeds is not None and self.options.emulate_base is None

    def for_machines(self, machines: Sequence[int]) -> Opening:
        """With these machines; processes that were started since have threads as the others."""
        missing = 1 + len(machines) - len(self.threads)
        threads = self.threads + missing * self.threads[-1:]
        return replace(self, machines=tuple(machines), threads=threads)

    def shard_file(self, machine: int) -> Path:
        """Where the shard of a machine (from 1) is in the store, as this node sees it."""
        return node_directory(self.store) / self.manifest.shards[machine - 1].file


@dataclass(frozen=True)
class Opened:
    """What a machine says of a store that it was to open.

    Attributes
    ----------
    problem : str
        Why it cannot serve it; empty when it can.
    shard : str
        The file that it reads, the store's own or a copy; empty when it has no shard.
    rate : float
        Rows per second that it can do, measured if an emulation is to be based on it.
    unseen : bool
        There is no file where its shard should be.
    """

    problem: str = ""
    shard: str = ""
    rate: float = 0.0
    unseen: bool = False


@dataclass(frozen=True)
class Announcement:
    """What the master says first: a step of a store, unless one of the last four is set.

    Attributes
    ----------
    store : int
        Which of the open stores, counted from 0 in the order of opening.
    step : int
        The step that begins, counted from 0.
    product : Product
    intervals : tuple of (int, int) or None
        The rows of this machine, ascending; None for the same as in the last step.
    report : bool
        Say what went wrong.
    open : Opening or None
        Serve one more store.
    close : bool
        Forget a store.
    stop : BaseException or bool
        Leave; with the exception that the master leaves with, or True.
    """

    store: int = 0
    step: int = 0
    product: Product = field(default_factory=Product)
    intervals: tuple[tuple[int, int], ...] | None = None
    report: bool = False
    open: Opening | None = None
    close: bool = False
    stop: BaseException | bool = False


class MasterEnd(Protocol):
    """The master's end, for the steps of one store."""

    def announce(self, step: int, product: Product, assignment: Assignment) -> int:
        """Begin a step; sends the assignment if it is not the last one. Returns bytes."""

    def share(self, values: NDArray[Any]) -> int:
        """Give W, shape (k, r), to all, or each its part of (copies * R * k,). Returns bytes."""

    def collect(self) -> Answers:
        """Wait for the answers of all available machines."""

    def reports(self) -> dict[int, str]:
        """Ask the machines what went wrong: machine number to text."""

    def close(self) -> None:
        """The machines need not serve this store any more."""


class Hub(Protocol):
    """The master's end, for all stores that the same machines serve."""

    def open(self, opening: Opening) -> list[Opened]:
        """Have the machines open a store; what each has to say, in the order of ranks."""

    def admit(self, emulation: Emulation | None) -> Any:
        """The end for its steps: the machines serve the store that they opened last."""

    def refuse(self, error: CecError) -> None:
        """They do not."""

    def stop(self, error: BaseException | None) -> None:
        """All leave, raising this error if it is not None."""


class MachineEnd(Protocol):
    """A machine's end."""

    def announced(self, signals: NotedSignals) -> Announcement:
        """Wait for what the master says next, without burning a core.

        Where nothing else would tell the master of signals that have come, say so.
        """

    def opened(self, opened: Opened) -> Emulation | CecError | None:
        """Say whether a store could be opened; returns what the master makes of it."""

    def together(self) -> None:
        """Wait until all machines are here."""

    def shared(self, order: Announcement) -> NDArray[Any]:
        """Receive W, shape (k, r), or this machine's part, (rows, k); overwritten next time."""

    def answer(self, order: Announcement, values: NDArray[Any], report: Report) -> None:
        """Send the answers of a step; no values when preempted."""

    def report(self, text: str) -> None:
        """Answer a request for a report, with an empty text when nothing went wrong."""
