"""Injected faults, for testing how a run handles them.

``kill:3@10,stop:2@20,slow:5@30x4,corrupt:1@40`` lists faults, each with its machine and step.
``random:0.01`` injects a random fault with a probability of 1 % per machine and step, and
``random:0.01:kill+stop`` one of these two kinds.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

log = logging.getLogger(__name__)

FAULT_KINDS = ("kill", "stop", "slow", "corrupt", "nan", "inf", "leave")
_SCHEDULED_FAULT = re.compile(
    r"(?P<kind>[a-z]+):(?P<machine>\d+)@(?P<step>\d+)(x(?P<factor>[0-9.]+))?"
)
_RANDOM_FAULTS = re.compile(r"random:(?P<rate>[0-9.e-]+)(:(?P<kinds>[a-z+]+))?")
_RANDOM_FACTOR = 4.0  # of random "slow"


@dataclass(frozen=True)
class Fault:
    """A fault of a machine in a step.

    Attributes
    ----------
    kind : {"kill", "stop", "slow", "corrupt", "nan", "inf", "leave"}
        The process is killed or stopped; it takes `factor` times as long from this step on (if the
        fault is random: only in this step); one value of its answer is wrong, NaN or infinite; it
        must leave (SIGTERM).
    machine, step : int
    factor : float
    """

    kind: str
    machine: int
    step: int
    factor: float = 1.0


@dataclass(frozen=True)
class Faults:
    """The injected faults of a session.

    Attributes
    ----------
    scheduled : tuple of Fault
    rate : float
        Probability of a random fault, per machine and step.
    kinds : tuple of str
        Kinds of random faults.
    seed : int
        Seed of random faults.
    """

    scheduled: tuple[Fault, ...] = ()
    rate: float = 0.0
    kinds: tuple[str, ...] = FAULT_KINDS
    seed: int = 0

    def __bool__(self) -> bool:
        """Whether a fault may be injected."""
        return bool(self.scheduled) or self.rate > 0

    def at(self, machine: int, step: int) -> list[Fault]:
        """Return the faults of a machine in a step, "slow" last."""
        if not self:
            return []
        faults = [
            fault
            for fault in self.scheduled
            if fault.machine == machine
            and (fault.step == step or (fault.kind == "slow" and fault.step < step))
        ]
        if self.rate:
            rng = np.random.default_rng((self.seed, machine, step))
            if rng.random() < self.rate:
                kind = self.kinds[rng.integers(len(self.kinds))]
                faults.append(Fault(kind, machine, step, _RANDOM_FACTOR))
        return sorted(faults, key=lambda fault: fault.kind == "slow")

    def inject_signals(self, machine: int, step: int) -> None:
        """Send the signals of faults to this process."""
        for fault in self.at(machine, step):
            signal_number = _SIGNALS.get(fault.kind)
            if signal_number is not None:
                log.warning("machine %d in step %d: %s, injected", machine, step, fault.kind)
                os.kill(os.getpid(), signal_number)

    def inject_into_answer(
        self,
        machine: int,
        step: int,
        values: NDArray[Any],
        seconds: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> float:
        """Apply faults to an answer; return the seconds of the computation with these faults.

        Parameters
        ----------
        machine, step : int
        values : ndarray
            The answer.
        seconds : float
            Seconds of the computation.
        sleep : callable
            Delays the answer of a slow machine.
        """
        for fault in self.at(machine, step):
            if fault.kind in _VALUE_FAULTS and values.size:
                index = int(np.random.default_rng((self.seed, machine, step)).integers(values.size))
                log.warning(
                    "machine %d in step %d: wrong value at index %d, injected", machine, step, index
                )
                wrong_value = -2 * values[index] - np.abs(values).max() - 1
                values[index] = wrong_value if fault.kind == "corrupt" else float(fault.kind)
            elif fault.kind == "slow":
                sleep(seconds * (fault.factor - 1))
                seconds *= fault.factor
        return seconds


_VALUE_FAULTS = ("corrupt", "nan", "inf")
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "leave": signal.SIGTERM}


def parse_faults(text: str, machines: int, seed: int = 0) -> Faults:
    """Parse faults, for example ``kill:3@10,slow:5@30x4`` or ``random:0.01:kill+stop``.

    Parameters
    ----------
    text : str
    machines : int
        N.
    seed : int
        Seed of random faults.

    Raises
    ------
    InputError
        The text has the wrong format, or the machine does not exist.

    Examples
    --------
    >>> parse_faults("kill:3@10,slow:5@30x4", 6).scheduled[1]
    Fault(kind='slow', machine=5, step=30, factor=4.0)
    """
    scheduled, rate, kinds = [], 0.0, FAULT_KINDS
    for entry in filter(None, text.split(",")):
        is_valid = False
        with suppress(ValueError):
            if match := _RANDOM_FAULTS.fullmatch(entry):
                rate, names = float(match["rate"]), match["kinds"]
                kinds = tuple(names.split("+")) if names else FAULT_KINDS
                is_valid = 0 < rate <= 1 and set(kinds) <= set(FAULT_KINDS)
            elif match := _SCHEDULED_FAULT.fullmatch(entry):
                kind, machine, step, factor = match.group("kind", "machine", "step", "factor")
                fault = Fault(kind, int(machine), int(step), float(factor or 1))
                scheduled.append(fault)
                is_valid = (
                    fault.kind in FAULT_KINDS
                    and 1 <= fault.machine <= machines
                    and (fault.factor > 1) == (fault.kind == "slow")
                )
        if not is_valid:
            raise InputError(
                f"fault {entry!r}: expected KIND:MACHINE@STEP (kinds: {', '.join(FAULT_KINDS)}; "
                f"machines: 1..{machines}), slow:5@30x4 for 4 times slower, or "
                "random:RATE[:kill+stop]"
            )
    return Faults(tuple(scheduled), rate, kinds, seed)
