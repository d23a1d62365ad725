"""Additional options of ``cec-mpi simulate``."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import option

if TYPE_CHECKING:
    from cec_mpi.simulation.scenario import MachineEvent, Source

_X_SECTION, _MODEL_SECTION, _EVENTS_SECTION = (
    "X and its machines",
    "cost model",
    "machines that join and leave",
)
DEFAULT_STEPS = 100


def _parse_range(text: str) -> tuple[float, float]:
    """Parse ``1:4``."""
    low, _, high = text.partition(":")
    try:
        bounds = float(low), float(high)
        if not values.MIN_VALUE <= bounds[0] <= bounds[1] <= values.MAX_VALUE:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected two positive numbers ({values.MIN_VALUE:.0e} to "
            f"{values.MAX_VALUE:.0e}), the first at most the second, such as 1:4"
        ) from None
    return bounds


def _parse_sizes(text: str) -> tuple[int, ...]:
    """Parse ``16G,64G``."""
    return tuple(values.size_with_unit(size) for size in text.split(","))


def _parse_event(text: str) -> tuple[float, int]:
    """Parse ``90s:3``."""
    time, _, machine = text.rpartition(":")
    try:
        return values.seconds(time), values.positive(machine)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected TIME:MACHINE, such as 90s:3"
        ) from None


def _parse_source(text: str) -> Source:
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
        None,
        "--shape Q,R",
        "rows and columns of X, if no store is given",
        values.shape,
        section=_X_SECTION,
    )
    machine_count: int | None = option(
        None,
        "--machines N",
        "number of machines, if no store is given",
        values.positive,
        section=_X_SECTION,
    )
    recovery: int | None = option(
        None,
        "--recovery L",
        "number of machines that suffice to decode, if no store is given",
        values.positive,
        section=_X_SECTION,
    )
    copies: int | None = option(
        None,
        "--copies J",
        "number of machines that hold each row, instead of a code (default without --recovery: 3)",
        values.positive,
        section=_X_SECTION,
    )
    memory: tuple[int, ...] | None = option(
        None,
        "--memory SIZE,...",
        "memory for shards of each computer, such as 16G,16G,64G; machines are distributed over "
        "computers as evenly as memory allows; then availability, speeds, --lost and --joins refer "
        "to computers",
        _parse_sizes,
        section=_X_SECTION,
    )
    density: float | None = option(
        None,
        "--density D",
        "fraction of nonzeros of X (default: 1)",
        values.number,
        section=_X_SECTION,
    )
    dtype: str | None = option(
        None,
        "--dtype",
        "dtype of shards (default: float64)",
        choices=("float32", "float64"),
        section=_X_SECTION,
    )
    steps: int | None = option(
        None,
        "--steps T",
        f"number of steps (default: {DEFAULT_STEPS}, or as many as --duration allows)",
        values.positive,
    )
    seconds: float | None = option(
        None, "--duration TIME", "end the run after this time, such as 24h", values.seconds
    )
    adjoint: bool = option(False, "--adjoint", "compute X' v in every second step")
    out: str | None = option(
        None, "--out DIR", "write records to DIR, for cec-mpi report", values.path
    )
    compare: bool = option(False, "--compare", "also simulate other schemes on the same machines")
    price: float | None = option(
        None,
        "--price P",
        "price of a machine (with --memory, of a computer) per hour, for the cost of the run",
        values.amount,
    )
    lost: tuple[tuple[float, int], ...] = option(
        (),
        "--lost TIME:MACHINE",
        "end the process of a machine at this time, such as 90s:3; implies --elastic",
        _parse_event,
        section=_EVENTS_SECTION,
    )
    joins: tuple[tuple[float, int], ...] = option(
        (),
        "--joins TIME:MACHINE",
        "start a process that joins as a machine at this time; without an earlier --lost, the "
        "machine is absent until then; implies --elastic",
        _parse_event,
        section=_EVENTS_SECTION,
    )
    lost_when_away: bool = option(
        False,
        "--lost-when-away",
        "end the process of a machine when it becomes unavailable; when it returns, a new process "
        "joins and reads the shard again; implies --elastic",
        section=_EVENTS_SECTION,
    )
    speed_range: tuple[float, float] | None = option(
        None,
        "--draw-speeds LOW:HIGH",
        "draw uniform random speeds",
        _parse_range,
        section=_MODEL_SECTION,
    )
    speeds_of: str | None = option(
        None,
        "--speeds-of DIR",
        "use the speeds of machines, and their noise, from the run in DIR",
        values.path,
        section=_MODEL_SECTION,
    )
    rates_of: str | None = option(
        None,
        "--rates-of DIR",
        "use the rates of the run in DIR (multiplying, reading, messages and decoding); the "
        "options below override them",
        values.path,
        section=_MODEL_SECTION,
    )
    rate: int | None = option(
        None,
        "--rate SIZE",
        "bytes that a machine of speed 1 multiplies per second (default: 5e9)",
        values.size,
        section=_MODEL_SECTION,
    )
    latency: float | None = option(
        None,
        "--latency TIME",
        "time of a short message (default: 1e-4)",
        values.seconds,
        section=_MODEL_SECTION,
    )
    bandwidth: int | None = option(
        None,
        "--bandwidth SIZE",
        "bytes per second of the master's network (default: 1e9)",
        values.size,
        section=_MODEL_SECTION,
    )
    source: Source | None = option(
        None,
        "--source SOURCE",
        "source from which machines read missing rows: local (their own disks, 1 GB/s), "
        "server:RATE (a shared file server, such as server:10G), or each:RATE (an object store, "
        "with this rate for each machine) (default: server:1GB)",
        _parse_source,
        section=_MODEL_SECTION,
    )
    decode: float | None = option(
        None,
        "--decode TIME",
        "time of a multiplication on the master; decoding an entry of X w takes L + 25 of them "
        "(default: 4e-11)",
        values.seconds,
        section=_MODEL_SECTION,
    )

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """Losses and starts of processes, from --lost and --joins."""
        from cec_mpi.simulation.scenario import MachineEvent

        lost = (MachineEvent(seconds, machine, "lost") for seconds, machine in self.lost)
        joins = (MachineEvent(seconds, machine, "joins") for seconds, machine in self.joins)
        return (*lost, *joins)
