"""When a step computes longer than it communicates: an estimate from a few measured numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

BYTES = 8  # of a number that is sent or multiplied


@dataclass(frozen=True)
class Balance:
    """What a step of a product X w costs, on machines and a wire of known rates.

    X has q rows and r columns of float64, or of float32, which take as long: they become
    float64 when they are multiplied. A step has two messages that go to all
    machines along a tree of depth d = ceil(log2(N + 1)), its header and w, and two in which
    all answer, their rows and their times. All rows come in at the master, q numbers in all:
    each is computed L times, by shards that have 1/L of the rows of X. So the machines read
    as many bytes together as X has.

    Attributes
    ----------
    machines : int
        N.
    latency : float
        Seconds that a short message takes.
    bandwidth : float
        Bytes per second of a long one.
    rate : float
        Bytes of shards per second that all machines multiply together.

    Examples
    --------
    >>> balance = Balance(machines=3, latency=0.0, bandwidth=1e9, rate=1e10)
    >>> balance.communication(1000, 1000), balance.computation(1000, 1000)
    (2.4e-05, 0.0008)
    >>> balance.even()
    30
    """

    machines: int
    latency: float
    bandwidth: float
    rate: float

    @property
    def depth(self) -> int:
        """Messages in a row until all machines have what the master sends, d."""
        return math.ceil(math.log2(self.machines + 1))

    def communication(self, rows: int, columns: int) -> float:
        """Seconds of messages: (2 d + 2) latencies, and w along the tree, and the answers."""
        numbers = self.depth * columns + rows
        return (2 * self.depth + 2) * self.latency + BYTES * numbers / self.bandwidth

    def computation(self, rows: int, columns: int) -> float:
        """Seconds of multiplying, when all machines are available and finish together."""
        return BYTES * rows * columns / self.rate

    def even(self) -> int:
        """Rows and columns of the smallest square X whose step computes as long as it talks."""
        per_row = (self.depth + 1) / self.bandwidth  # the two sides are s n^2 / rate and
        fixed = (2 * self.depth + 2) * self.latency / BYTES  # s (fixed + n per_row)
        half = self.rate * per_row / 2
        return math.ceil(half + math.sqrt(half**2 + self.rate * fixed))
