"""The time of a step besides its products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from cec_mpi.core.step.product import SHORT_ANSWERS, SHORT_VECTOR

BYTES = 8  # of a number that is sent or multiplied

# About what a core of 2.5 GHz takes.
# FIXED is measured: 2 ranks, each on a core of its own, take 0.22 to 0.36 ms for a step that
# computes next to nothing. EACH is estimated, for ranks on cores of their own: where up to 64 ranks
# share two cores, each machine makes a step 0.24 ms longer, as they take turns.
FIXED = 2.5e-4
EACH = 1e-5
DECODE = 6e-10


class Terms(NamedTuple):
    """The terms of the time of a step of X w besides its products.

    Attributes
    ----------
    steps : float
        1.
    machines : float
        N, because rank 0 does some work for each machine.
    messages : float
        Number of consecutive messages.
    bytes : float
        Bytes that the master's node sends and receives, one after the other.
    decoded : float
        q L: numbers of the result times answers for each.
    """

    steps: float
    machines: float
    messages: float
    bytes: float
    decoded: float


def terms_of(
    machines: int,
    recovery: int,
    rows: int,
    columns: int,
    several_nodes: bool = True,
) -> Terms:
    """The terms of a step of X w in lockstep.

    A Bcast has a tree of depth d = ceil(log2(N + 1)). The order and a short w are one message. With
    several nodes the master sends a long w once; on one node all N machines copy it from the same
    memory. Short answers are sent with the reports. This does not hold for elastic runs, in which
    the master sends w to each machine.

    Parameters
    ----------
    machines, recovery : int
        N and L.
    rows, columns : int
        Shape (q, r) of X.
    several_nodes : bool

    Examples
    --------
    >>> terms_of(6, 3, rows=600, columns=500)
    Terms(steps=1.0, machines=6.0, messages=4.0, bytes=16800.0, decoded=1800.0)
    """
    depth = math.ceil(math.log2(machines + 1))
    vector, answers = BYTES * columns, BYTES * rows
    short = vector <= SHORT_VECTOR
    copies = depth if short else (1 if several_nodes else machines)
    messages = depth * (1 if short else 2) + (1 if answers <= SHORT_ANSWERS else 2)
    sent = copies * vector + answers
    return Terms(1.0, float(machines), float(messages), float(sent), float(rows * recovery))


@dataclass(frozen=True)
class StepCosts:
    """Seconds of a step X w besides its products, for a wire of known rates.

    Attributes
    ----------
    machines : int
        N.
    latency : float
        Seconds of a short message.
    bandwidth : float
        Bytes per second of a long message.
    recovery : int
        L.
    several_nodes : bool
    fixed : float
        Seconds of rank 0 in each step.
    each : float
        Seconds of rank 0 for each machine.
    decode : float
        Seconds for each number of the result and each of its L answers.

    Examples
    --------
    >>> costs = StepCosts(3, latency=0.0, bandwidth=1e9, fixed=0, each=0, decode=0)
    >>> costs.overhead(1000, 1000)
    2.4e-05
    """

    machines: int
    latency: float
    bandwidth: float
    recovery: int = 1
    several_nodes: bool = True
    fixed: float = FIXED
    each: float = EACH
    decode: float = DECODE

    def overhead(self, rows: int, columns: int) -> float:
        """Return the seconds of rank 0, of messages, and of decoding."""
        shape = self.machines, self.recovery, rows, columns
        steps, machines, messages, sent, decoded = terms_of(*shape, self.several_nodes)
        return (
            steps * self.fixed
            + machines * self.each
            + messages * self.latency
            + sent / self.bandwidth
            + decoded * self.decode
        )
