"""Injected faults, for testing how a run handles them.

A text such as ``kill:3@10,stop:2@20,slow:5@30x4,corrupt:1@40`` names the fault, the machine and the
step. ``random:0.01`` injects any fault with a probability of 1 % per machine and step, and
``random:0.01:kill+stop`` one of these two.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

log = logging.getLogger(__name__)

FAULTS = ("kill", "stop", "slow", "corrupt", "nan", "inf", "leave")
_ORDERED = re.compile(r"(?P<kind>[a-z]+):(?P<machine>\d+)@(?P<step>\d+)(x(?P<factor>[0-9.]+))?")
_RANDOM = re.compile(r"random:(?P<rate>[0-9.e-]+)(:(?P<kinds>[a-z+]+))?")
_RANDOM_FACTOR = 4.0


@dataclass(frozen=True)
class Fault:
    """A fault of a machine in a step.

    Attributes
    ----------
    kind : {"kill", "stop", "slow", "corrupt", "nan", "inf", "leave"}
        The process is killed or stopped; it takes `factor` times as long from this step on; one
        number of its answer is wrong, NaN or infinite; it is told to leave (SIGTERM).
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
    kinds: tuple[str, ...] = FAULTS
    seed: int = 0

    def __bool__(self) -> bool:
        """Whether there can be a fault."""
        return bool(self.scheduled) or self.rate > 0

    def at(self, machine: int, step: int) -> list[Fault]:
        """Return the faults of a machine in a step; slow ones last."""
        if not self:
            return []
        found = [
            fault
            for fault in self.scheduled
            if fault.machine == machine
            and (fault.step == step or (fault.kind == "slow" and fault.step < step))
        ]
        if self.rate:
            rng = np.random.default_rng((self.seed, machine, step))
            if rng.random() < self.rate:
                kind = self.kinds[rng.integers(len(self.kinds))]
                found.append(Fault(kind, machine, step, _RANDOM_FACTOR))
        return sorted(found, key=lambda fault: fault.kind == "slow")

    def inject_before(self, machine: int, step: int) -> None:
        """Cause the faults that come before the answer."""
        for fault in self.at(machine, step):
            number = _SIGNALS.get(fault.kind)
            if number is not None:
                log.warning("machine %d in step %d: %s, injected", machine, step, fault.kind)
                os.kill(os.getpid(), number)

    def inject_after(
        self,
        machine: int,
        step: int,
        values: NDArray[Any],
        seconds: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> float:
        """Cause the faults of an answer; returns the seconds of the computation with them.

        Parameters
        ----------
        machine, step : int
        values : ndarray
            The answer.
        seconds : float
            Seconds of the computation.
        sleep : callable
            Makes a slow machine slower.
        """
        for fault in self.at(machine, step):
            if fault.kind in _WRONG and values.size:
                where = int(np.random.default_rng((self.seed, machine, step)).integers(values.size))
                log.warning("machine %d in step %d: number %d is wrong", machine, step, where)
                wrong = -2 * values[where] - np.abs(values).max() - 1
                values[where] = wrong if fault.kind == "corrupt" else float(fault.kind)
            elif fault.kind == "slow":
                sleep(seconds * (fault.factor - 1))
                seconds *= fault.factor
        return seconds


_WRONG = ("corrupt", "nan", "inf")
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "leave": signal.SIGTERM}


def read_faults(text: str, machines: int, seed: int = 0) -> Faults:
    """Read ``kill:3@10,slow:5@30x4``, ``random:0.01`` or ``random:0.01:kill+stop``.

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
        The text has another form, or the machine does not exist.

    Examples
    --------
    >>> read_faults("kill:3@10,slow:5@30x4", 6).scheduled[1]
    Fault(kind='slow', machine=5, step=30, factor=4.0)
    """
    scheduled, rate, kinds = [], 0.0, FAULTS
    for word in filter(None, text.split(",")):
        found, random = _ORDERED.fullmatch(word), _RANDOM.fullmatch(word)
        try:
            if random is not None:
                rate = float(random["rate"])
                kinds = tuple(random["kinds"].split("+")) if random["kinds"] else FAULTS
                good = 0 < rate <= 1 and set(kinds) <= set(FAULTS)
            else:
                assert found is not None
                fault = Fault(
                    found["kind"],
                    int(found["machine"]),
                    int(found["step"]),
                    float(found["factor"] or 1),
                )
                scheduled.append(fault)
                good = (
                    fault.kind in FAULTS
                    and 1 <= fault.machine <= machines
                    and (fault.factor > 1) == (fault.kind == "slow")
                )
        except (AssertionError, ValueError):
            good = False
        if not good:
            raise InputError(
                f"fault {word!r}: expected KIND:MACHINE@STEP with {', '.join(FAULTS)} and machine "
                f"1..{machines}, slow:5@30x4 for 4 times slower, or random:RATE[:kill+stop]"
            )
    return Faults(tuple(scheduled), rate, kinds, seed)
