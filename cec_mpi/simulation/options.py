"""Options of ``cec-mpi simulate`` in addition to those of a session."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import option

if TYPE_CHECKING:
    from cec_mpi.simulation.scenario import MachineEvent, Source

_X, _MODEL, _EVENTS = "X and its machines", "cost model", "machines that join and leave"
STEPS = 100


def _range(text: str) -> tuple[float, float]:
    """Parse ``1:4``."""
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
        if not values.MIN_VALUE <= bounds[0] <= bounds[1] <= values.MAX_VALUE:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected two positive numbers ({values.MIN_VALUE:.0e} to "
            f"{values.MAX_VALUE:.0e}), such as 1:4"
        ) from None
    return bounds


def _sizes(text: str) -> tuple[int, ...]:
    """Parse ``16G,64G``."""
    return tuple(values.size_with_unit(size) for size in text.split(","))


def _time_and_machine(text: str) -> tuple[float, int]:
    """Parse ``90s:3``."""
    time, _, machine = text.rpartition(":")
    try:
        return values.seconds(time), values.positive(machine)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected TIME:MACHINE, such as 90s:3"
        ) from None


def _source(text: str) -> Source:
    """Parse ``local``, ``server:1GB`` or ``each:200MB``."""
    from cec_mpi.simulation.scenario import Source

    kind, _, rate = text.partition(":")
    try:
        if text == "local":
            return Source(is_shared=False)
        if kind not in ("server", "each"):
            raise argparse.ArgumentTypeError
        return Source(values.size(rate), is_shared=kind == "server")
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected local, server:RATE or each:RATE, with bytes per second such as 1GB"
        ) from None


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Options of ``cec-mpi simulate``."""

    store: str | None = None
    shape: tuple[int, int] | None = option(
        None, "--shape Q,R", "rows and columns of X, without a store", values.shape, section=_X
    )
    count: int | None = option(
        None, "--machines N", "number of machines, without a store", values.positive, section=_X
    )
    recovery: int | None = option(
        None,
        "--recovery L",
        "number of machines that suffice to decode, without a store",
        values.positive,
        section=_X,
    )
    copies: int | None = option(
        None,
        "--copies J",
        "machines that hold each row, in place of a code (default without --recovery: 3)",
        values.positive,
        section=_X,
    )
    memory: tuple[int, ...] | None = option(
        None,
        "--memory SIZE,...",
        "memory for shards of each computer, such as 16G,16G,64G: each carries as many machines as "
        "fit; then availability, speeds, --lost and --joins refer to computers",
        _sizes,
        section=_X,
    )
    density: float | None = option(
        None, "--density D", "fraction of nonzeros of X (default: 1)", values.number, section=_X
    )
    dtype: str | None = option(
        None,
        "--dtype",
        "dtype of shards (default: float64)",
        choices=("float32", "float64"),
        section=_X,
    )
    steps: int | None = option(
        None,
        "--steps T",
        f"number of steps (default: {STEPS}, or those in --duration)",
        values.positive,
    )
    seconds: float | None = option(
        None, "--duration TIME", "end after this time, such as 24h", values.seconds
    )
    adjoint: bool = option(False, "--adjoint", "let every second step compute X' v")
    out: str | None = option(
        None, "--out DIR", "write records to DIR, which cec-mpi report shows", values.path
    )
    compares: bool = option(
        False, "--compare", "also simulate other schemes with the same machines"
    )
    price: float | None = option(
        None,
        "--price P",
        "price of a machine per hour, to print the cost of the run",
        values.amount,
    )
    lost: tuple[tuple[float, int], ...] = option(
        (),
        "--lost TIME:MACHINE",
        "end the process of a machine at this time, such as 90s:3; implies --elastic",
        _time_and_machine,
        section=_EVENTS,
    )
    joins: tuple[tuple[float, int], ...] = option(
        (),
        "--joins TIME:MACHINE",
        "let a process join as a machine at this time; the machine is absent before, unless it was "
        "lost; implies --elastic",
        _time_and_machine,
        section=_EVENTS,
    )
    loses: bool = option(
        False,
        "--lost-when-away",
        "end the process of a machine when it becomes unavailable; when it returns, a new process "
        "joins and reads the shard again; implies --elastic",
        section=_EVENTS,
    )
    drawn: tuple[float, float] | None = option(
        None, "--draw-speeds LOW:HIGH", "draw uniform random speeds", _range, section=_MODEL
    )
    speeds_of: str | None = option(
        None,
        "--speeds-of DIR",
        "use the speeds of machines, and their noise, from the run in DIR",
        values.path,
        section=_MODEL,
    )
    rates_of: str | None = option(
        None,
        "--rates-of DIR",
        "use the rates of the run in DIR: bytes that machines multiply and read per second, "
        "messages and decoding; the options below override them",
        values.path,
        section=_MODEL,
    )
    rate: int | None = option(
        None,
        "--rate SIZE",
        "bytes that a machine of speed 1 multiplies per second (default: 5e9)",
        values.size,
        section=_MODEL,
    )
    latency: float | None = option(
        None,
        "--latency TIME",
        "time of a short message (default: 1e-4)",
        values.seconds,
        section=_MODEL,
    )
    bandwidth: int | None = option(
        None,
        "--bandwidth SIZE",
        "bytes per second of the master's network (default: 1e9)",
        values.size,
        section=_MODEL,
    )
    source: Source | None = option(
        None,
        "--source SOURCE",
        "where machines read what they lack: local (the disk of each, 1 GB/s), server:RATE (one "
        "for all, such as server:10G), or each:RATE (an object store, a rate for each machine); "
        "default: server:1GB",
        _source,
        section=_MODEL,
    )
    decode: float | None = option(
        None,
        "--decode TIME",
        "time of each of the L multiplications that decode a number of X w; reading and writing it "
        "counts as 25 (default: 4e-11)",
        values.seconds,
        section=_MODEL,
    )

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """The events of processes."""
        from cec_mpi.simulation.scenario import MachineEvent

        lost = (MachineEvent(seconds, machine, "lost") for seconds, machine in self.lost)
        joins = (MachineEvent(seconds, machine, "joins") for seconds, machine in self.joins)
        return (*lost, *joins)
