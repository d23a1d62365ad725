"""Emulated speeds on one computer: machines sleep to be as slow as their emulated speeds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_MEASURE_SECONDS = 0.15
_SLICE_BYTES = 1 << 22


@dataclass(frozen=True)
class SpeedChange:
    """A change of the emulated speed of a machine by a factor, from a step on."""

    step: int
    machine: int
    factor: float


@dataclass(frozen=True)
class Emulation:
    """Emulated speeds.

    Attributes
    ----------
    speeds : tuple of float
        Relative speed of machines 1..N.
    base : float
        Rows per second of a machine with speed 1.
    noise : float
        Standard deviation of the logarithm of each machine's speed in each step.
    changes : tuple of SpeedChange
    seed : int
        Seed of the noise.
    """

    speeds: tuple[float, ...]
    base: float
    noise: float = 0.0
    changes: tuple[SpeedChange, ...] = ()
    seed: int = 0

    def rate(self, machine: int, step: int) -> float:
        """Return the rows per second of a machine (from 1) in a step (from 0).

        Examples
        --------
        >>> Emulation((1.0, 2.0), 1000.0, changes=(SpeedChange(5, 2, 0.5),)).rate(2, 7)
        1000.0
        """
        rate = self.speeds[machine - 1] * self.base
        for change in self.changes:
            if change.machine == machine and step >= change.step:
                rate *= change.factor
        if self.noise:
            rng = np.random.default_rng((self.seed, machine, step))
            rate *= float(np.exp(self.noise * rng.standard_normal()))
        return rate


def measure_rate(multiply: Callable[[int, int], object], count: int, row_bytes: int) -> float:
    """Measure the rows per second that this process multiplies.

    Call it on all machines of a node at once, so that the rates add up to that of the node.

    Parameters
    ----------
    multiply : callable
        Multiplies rows ``start <= row < stop``.
    count, row_bytes : int
        Number of rows, and bytes of a row.
    """
    slice_rows = max(1, min(count, _SLICE_BYTES // row_bytes))
    multiply(0, slice_rows)
    multiplied_rows, start = 0, 0
    begin = time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < _MEASURE_SECONDS:
        start = start if start + slice_rows <= count else 0
        multiply(start, start + slice_rows)
        start += slice_rows
        multiplied_rows += slice_rows
    return multiplied_rows / elapsed


def fit_base(
    speeds: Sequence[float], machines: Sequence[int], rates: Sequence[float], nodes: Sequence[str]
) -> float:
    """Return the largest base (rows per second at speed 1) that uses at most half of each node.

    Parameters
    ----------
    speeds : (N,) sequence of float
        Emulated speed of machines 1..N.
    machines : sequence of int
        Machine of each rank; 0 for none.
    rates : sequence of float
        Rows per second of each rank, measured while all ranks of its node computed.
    nodes : sequence of str
        Node of each rank.

    Examples
    --------
    >>> fit_base([1.0, 3.0], [1, 2], [400.0, 400.0], ["a", "a"])
    100.0
    """
    capacity: dict[str, float] = defaultdict(float)
    demand: dict[str, float] = defaultdict(float)
    for machine, rate, node in zip(machines, rates, nodes, strict=True):
        if machine:
            capacity[node] += rate
            demand[node] += speeds[machine - 1]
    return min(capacity[node] / (2 * demand[node]) for node in demand if capacity[node])
