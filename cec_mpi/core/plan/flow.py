"""Maximum flows of rows to machines, exact for any number of rows.

SciPy's ``maximum_flow`` is fast but limited to capacities of 32 bits. So larger capacities are
first rounded down to multiples of a power of two, the unit. The residual network is then augmented
in smaller and smaller units (capacity scaling, Edmonds and Karp 1972).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cec_mpi.core.plan.assignment import Ints

_MAX_CAPACITY = 2**31 - 1  # of an edge in SciPy
# Bits between successive units; residuals counted in the next unit then rarely exceed 32 bits.
_UNIT_SHIFT = 15


class Network:
    """A flow network from a source through groups of rows and machines to a sink.

    Parameters
    ----------
    supplies : (G,) sequence of int
        Number of missing answers in each group: rows times answers per row.
    pair_capacities : (E,) sequence of int
        Capacity of each pair: the number of rows in its group, because a machine computes a row at
        most once.
    pairs : (E, 2) array_like of int
        Groups and the machines that may compute their rows, both counted from 0.
    machines : int
    """

    def __init__(
        self,
        supplies: Sequence[int] | Ints,
        pair_capacities: Sequence[int] | Ints,
        pairs: Sequence[tuple[int, int]] | Ints,
        machines: int,
    ) -> None:
        groups = len(supplies)
        self._sink = 1 + groups + machines
        group, machine = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        source, sink = np.zeros(groups, np.int64), np.full(machines, self._sink)
        group_nodes, machine_nodes = 1 + np.arange(groups), 1 + groups + np.arange(machines)
        self._tails = np.concatenate([source, 1 + group, machine_nodes])
        self._heads = np.concatenate([group_nodes, 1 + groups + machine, sink])
        edges = np.stack([self._tails, self._heads])
        edges = np.concatenate([edges, edges[::-1]], axis=1)  # edges and reverse edges
        self._order = np.lexsort(edges[::-1])
        tails, self._indices = edges[:, self._order].astype(np.int32)
        self._indptr = np.searchsorted(tails, np.arange(self._sink + 2)).astype(np.int32)
        self._edge_capacities = np.concatenate(
            [np.asarray(values, np.int64) for values in (supplies, pair_capacities)]
        )
        self._pair_edges = slice(groups, groups + group.size)

    def max_flow(self, capacities: Ints) -> Ints:
        """Return the number of rows that a maximum flow assigns to each pair.

        Parameters
        ----------
        capacities : (N,) ndarray of int64
            Maximum number of rows of each machine.

        Returns
        -------
        (E,) ndarray of int64
        """
        residual = np.concatenate([self._edge_capacities, capacities])
        flow = np.zeros_like(residual)
        for unit in _units(int(residual.max(initial=0))):
            while (increments := self._increments(residual // unit, flow // unit)).any():
                flow += increments * unit
                residual -= increments * unit
                if unit == 1 and int(max(residual.max(), flow.max())) <= _MAX_CAPACITY:
                    break  # no capacity was truncated, so this flow is maximal
        return flow[self._pair_edges]

    def _increments(self, residual: Ints, flow: Ints) -> Ints:
        """Return a maximum flow in the residual network: the increment of each edge's flow."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        capacities = np.minimum(np.concatenate([residual, flow]), _MAX_CAPACITY)
        data = capacities.astype(np.int32)[self._order]
        shape = (self._sink + 1,) * 2
        graph = csr_array((data, self._indices, self._indptr), shape)
        increments = maximum_flow(graph, 0, self._sink).flow.tocsr()
        return np.asarray(increments[self._tails, self._heads]).ravel().astype(np.int64)


def _units(largest: int) -> list[int]:
    """Return the units: descending powers of two that end with 1."""
    bits = max(0, largest.bit_length() - _MAX_CAPACITY.bit_length())
    return [1 << power for power in range(bits, 0, -_UNIT_SHIFT)] + [1]
