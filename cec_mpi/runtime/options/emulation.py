"""Options of a session: emulation of slower machines and of faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import SIMULATION_TITLE, Options, as_float, as_tuple, option
from cec_mpi.runtime.options.shards import validate_speeds
from cec_mpi.text import plural, shorten

if TYPE_CHECKING:
    from cec_mpi.runtime.machine.emulation import SpeedChange
    from cec_mpi.store.format.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class EmulationOptions(Options):
    """Emulation of slower machines and of faults.

    Attributes
    ----------
    emulate_speeds : tuple of float, optional
        Machine n takes at least ``rows / (emulate_speeds[n - 1] * emulate_base)`` seconds. Each row
        of a sparse X counts as its cost relative to the mean row.
    emulate_base : float, optional
        Rows per second of a machine with speed 1. By default it is derived from measurements, so
        that the emulated machines use half of each node.
    emulate_noise : float
        Standard deviation of the logarithm of each machine's speed in each step.
    emulate_changes : iterable of SpeedChange
        Changes of speeds during the run.
    inject : str
        Faults of machines, such as ``kill:3@10`` (see `parse_faults`).
    """

    title = SIMULATION_TITLE

    emulate_speeds: tuple[float, ...] | None = option(
        None,
        "--emulate-speeds LIST",
        "slow down machines 1 to N to these relative speeds, such as 2,2,3",
        values.speeds,
    )
    emulate_base: float | None = option(
        None,
        "--emulate-base B",
        "rows per second of a machine with speed 1 (default: measured)",
        values.number,
    )
    emulate_noise: float = option(
        0.0,
        "--emulate-noise SIGMA",
        "standard deviation of the logarithm of each speed in each step (default: 0)",
        values.number,
    )
    emulate_changes: tuple[SpeedChange, ...] = option(
        (),
        "--emulate-change STEP:MACHINE:FACTOR",
        "multiply the speed of a machine by FACTOR from this step on",
        values.speed_change,
    )
    inject: str = option(
        "",
        "--inject FAULTS",
        "cause faults of machines, KIND:MACHINE@STEP or random:PROBABILITY, such as "
        "kill:3@10,stop:2@20,slow:5@30x4,corrupt:1@40,nan:1@45,leave:4@50",
    )

    def resolve(self, manifest: Manifest) -> dict[str, Any]:
        """Check these options against a store."""
        from cec_mpi.runtime.machine.emulation import SpeedChange
        from cec_mpi.runtime.machine.faults import parse_faults

        if not isinstance(self.inject, str):
            raise InputError(f"inject {shorten(self.inject)}: expected text, such as kill:3@10")
        total, base = manifest.code.machines, self.emulate_base
        parse_faults(self.inject, total, 0)
        speeds = self.emulate_speeds
        changes = as_tuple("emulate_changes", self.emulate_changes, "SpeedChange objects")
        noise = as_float("emulate_noise", self.emulate_noise)
        if base is not None:
            base = as_float("emulate_base", base)
        if speeds is not None:
            speeds = as_tuple("emulate_speeds", speeds, plural(total, "number"))
            speeds = validate_speeds("emulated speed", speeds, total)
        elif base is not None or noise or changes:
            raise InputError(
                "--emulate-noise, --emulate-change and --emulate-base need --emulate-speeds LIST"
            )
        if base is not None and not 0 < base < float("inf"):
            raise InputError(f"emulation base {base}: expected a positive number")
        if not 0 <= noise <= 10:
            raise InputError(f"emulation noise {noise}: expected 0 to 10")
        if speeds is not None and base is not None and base * min(speeds) < 1e-3:
            raise InputError(
                f"emulated speed of {base * min(speeds)} rows per second: expected at least 0.001"
            )
        for change in changes:
            if not isinstance(change, SpeedChange):
                raise InputError(f"emulated change {change!r}: expected a SpeedChange")
            if not (1 <= change.machine <= total and 1e-6 <= change.factor <= 1e6):
                raise InputError(
                    f"emulated change of machine {change.machine} by {change.factor}: expected a "
                    f"machine from 1 to {total} and a factor from 1e-6 to 1e6"
                )
        return {"emulate_speeds": speeds, "emulate_changes": changes}
