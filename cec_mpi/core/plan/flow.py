"""The largest flow of rows to machines, exact for any number of rows.

SciPy's ``maximum_flow`` is fast and takes capacities of 32 bits. Larger ones are rounded down to
multiples of a power of two first; what such a flow leaves is sent with smaller and smaller units,
back along earlier flow too where that lets more through (scaling, Edmonds and Karp 1972).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

_MAX_CAPACITY = 2**31 - 1  # that an edge of SciPy's can carry
_STEP = 15  # bits by which the unit shrinks: what a unit left is seldom cut off in the next


class Network:
    """From a source over groups of rows and over machines to a sink.

    Parameters
    ----------
    supplies : (G,) sequence of int
        Answers that each group misses, in rows.
    sizes : (E,) sequence of int
        Rows that each pair takes at most: those of its group, where a machine computes each once.
    pairs : (E, 2) array_like of int
        Group and machine, both counted from 0: who may compute what.
    machines : int
    """

    def __init__(
        self,
        supplies: Sequence[int] | Rows,
        sizes: Sequence[int] | Rows,
        pairs: Sequence[tuple[int, int]] | Rows,
        machines: int,
    ) -> None:
        groups = len(supplies)
        self._sink = 1 + groups + machines
        group, machine = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        source, sink = np.zeros(groups, np.int64), np.full(machines, self._sink)
        at_group, at_machine = 1 + np.arange(groups), 1 + groups + np.arange(machines)
        self._begins = np.concatenate([source, 1 + group, at_machine])
        self._ends = np.concatenate([at_group, 1 + groups + machine, sink])
        both = np.stack([self._begins, self._ends])
        both = np.concatenate([both, both[::-1]], axis=1)
        self._order = np.lexsort(both[::-1])
        begins, self._columns = both[:, self._order].astype(np.int32)
        self._rows = np.searchsorted(begins, np.arange(self._sink + 2)).astype(np.int32)
        self._sizes = np.concatenate([np.asarray(values, np.int64) for values in (supplies, sizes)])
        self._pairs = slice(groups, groups + group.size)

    def flow(self, capacities: Rows) -> Rows:
        """As many rows of each pair as can be.

        Parameters
        ----------
        capacities : (N,) ndarray of int64
            Rows that each machine computes at most.

        Returns
        -------
        (E,) ndarray of int64
        """
        left = np.concatenate([self._sizes, capacities])  # of each edge
        sent = np.zeros_like(left)
        for unit in _units(int(left.max(initial=0))):
            while (more := self._augmenting_flow(left // unit, sent // unit)).any():
                sent += more * unit
                left -= more * unit
                if unit == 1 and int(max(left.max(), sent.max())) <= _MAX_CAPACITY:
                    break  # nothing was cut off: no more goes through
        return sent[self._pairs]

    def _augmenting_flow(self, left: Rows, sent: Rows) -> Rows:
        """What one largest flow adds to each edge, where `sent` may be taken back."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        sizes = np.minimum(np.concatenate([left, sent]), _MAX_CAPACITY).astype(np.int32)[
            self._order
        ]
        shape = (self._sink + 1,) * 2
        graph = csr_array((sizes, self._columns, self._rows), shape)
        flow = maximum_flow(graph, 0, self._sink).flow.tocsr()
        return np.asarray(flow[self._begins, self._ends]).ravel().astype(np.int64)


def _units(largest: int) -> list[int]:
    """Powers of two to count in, the last of them 1."""
    bits = max(0, largest.bit_length() - _MAX_CAPACITY.bit_length())
    return [1 << power for power in range(bits, 0, -_STEP)] + [1]
