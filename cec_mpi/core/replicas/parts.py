"""Partition of the rows of a sparse X into parts and cells of about equal cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PARTS_PER_MACHINE = 8
"""Default number of parts per machine."""
CELLS_PER_PART = 64
"""Default number of cells per part; a cell is the smallest unit of a plan."""
ROW_OVERHEAD = 2.0
"""Fixed cost of a row, in nonzeros: about 6 ns."""


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of X in P parts, which consist of C cells; plans assign whole cells to machines.

    Attributes
    ----------
    first_cells : (P + 1,) ndarray of int64
        First cell of each part, and the number of cells.
    first_rows : (C + 1,) ndarray of int64
        First row of each cell, and the number of rows.
    entries_before : (C + 1,) ndarray of int64
        Number of nonzeros of X before each cell, and their total.
    row_cost : float
        Fixed cost of a row, in nonzeros.

    Examples
    --------
    >>> indptr = np.arange(0, 31, 3)  # ten rows of three nonzeros each
    >>> parts = cut_parts(indptr, 2, 2)
    >>> parts.count, parts.first_rows.tolist(), parts.bounds.tolist(), parts.costs.tolist()
    (2, [0, 2, 5, 7, 10], [0, 5, 10], [25.0, 25.0])
    """

    first_cells: Ints
    first_rows: Ints
    entries_before: Ints
    row_cost: float = ROW_OVERHEAD

    @property
    def count(self) -> int:
        """Number of parts, P."""
        return self.first_cells.size - 1

    @cached_property
    def bounds(self) -> Ints:
        """First row of each part, and the number of rows, shape (P + 1,)."""
        return self.first_rows[self.first_cells]

    @cached_property
    def cost_before(self) -> Floats:
        """Cost of all rows before each cell, and the total, in nonzeros, shape (C + 1,)."""
        return self.entries_before + self.row_cost * self.first_rows

    @cached_property
    def cell_costs(self) -> Floats:
        """Cost of each cell in nonzeros, shape (C,)."""
        return np.diff(self.cost_before)

    @cached_property
    def costs(self) -> Floats:
        """Cost of each part in nonzeros, shape (P,)."""
        return np.diff(self.cost_before[self.first_cells])

    def cost(self, starts: Ints, stops: Ints) -> Floats:
        """Return the cost of intervals of rows in nonzeros, interpolated within cells.

        Parameters
        ----------
        starts, stops : (m,) ndarray of int64

        Returns
        -------
        (m,) ndarray of float64
        """
        before = np.interp(stops, self.first_rows, self.cost_before)
        return before - np.interp(starts, self.first_rows, self.cost_before)


def cut_parts(indptr: NDArray[np.integer], parts: int, cells: int = CELLS_PER_PART) -> Parts:
    """Cut the rows into parts of about equal cost, and each part into cells.

    Parameters
    ----------
    indptr : (q + 1,) ndarray of int
        Row pointers of a CSR matrix; may be a memory map.
    parts : int
        Requested number of parts. The result has fewer if single rows cost more than a part.
    cells : int
        Requested number of cells per part.

    Returns
    -------
    Parts

    Raises
    ------
    InputError
        There are no rows.
    """
    rows = indptr.size - 1
    if rows < 1:
        raise InputError("a matrix without rows: expected at least one")
    bounds = _cut_rows(indptr, 0, rows, parts)
    cuts_of_parts = [
        _cut_rows(indptr, start, stop, cells)[1:]
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    ]
    first_cells = np.cumsum([0] + [cuts.size for cuts in cuts_of_parts])
    first_rows = np.concatenate([np.zeros(1, np.int64), *cuts_of_parts])
    return Parts(first_cells, first_rows, np.asarray(indptr[first_rows], np.int64))


def _cut_rows(indptr: NDArray[np.integer], start: int, stop: int, pieces: int) -> Ints:
    """Return the bounds of nonempty pieces of about equal cost, ascending."""

    def cost(rows: Ints) -> Floats:
        return np.asarray(indptr[rows], np.float64) + ROW_OVERHEAD * rows

    ends = cost(np.array([start, stop]))
    targets = np.linspace(ends[0], ends[1], min(pieces, stop - start) + 1)[1:-1]
    low, high = np.full(targets.size, start), np.full(targets.size, stop)
    while (high - low > 1).any():  # cost(low) <= targets < cost(high)
        middle = (low + high) // 2
        is_above = cost(middle) > targets
        low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
    nearest = np.where(targets - cost(low) <= cost(high) - targets, low, high)
    return np.unique(np.concatenate([[start], nearest, [stop]])).astype(np.int64)
