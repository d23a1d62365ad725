"""A sparse X in parts of rows: what they cost, and where they may be cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cec_mpi.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PARTS = 8
"""Parts for each machine."""
CELLS = 64
"""Cells of a part: what plans tell apart."""
ROW_OVERHEAD = 2.0
"""Nonzeros that take as long as the rest of a row: about 6 ns."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows of X in P parts, each of them in cells: a plan gives whole cells to machines.

    Attributes
    ----------
    cells : (P + 1,) ndarray of int64
        The cells of part p are ``cells[p] <= c < cells[p + 1]``.
    rows : (C + 1,) ndarray of int64
        The rows of cell c are ``rows[c] <= row < rows[c + 1]``.
    entries : (C + 1,) ndarray of int64
        Nonzeros of X before each cell, and in the end all.
    row_cost : float
        Nonzeros that take as long as the rest of a row.

    Examples
    --------
    >>> indptr = np.arange(0, 31, 3)  # ten rows of three nonzeros each
    >>> parts = cut_parts(indptr, 2, 2)
    >>> parts.count, parts.rows.tolist(), parts.bounds.tolist(), parts.costs.tolist()
    (2, [0, 2, 5, 7, 10], [0, 5, 10], [25.0, 25.0])
    """

    cells: Ints
    rows: Ints
    entries: Ints
    row_cost: float = ROW_OVERHEAD

    @property
    def count(self) -> int:
        """How many parts there are, P."""
        return self.cells.size - 1

    @cached_property
    def bounds(self) -> Ints:
        """First row of each part, and in the end the number of rows: shape (P + 1,)."""
        return self.rows[self.cells]

    @cached_property
    def cost_before(self) -> Floats:
        """What all rows before each cell cost, in nonzeros: shape (C + 1,)."""
        return self.entries + self.row_cost * self.rows

    @cached_property
    def cell_costs(self) -> Floats:
        """What each cell costs, in nonzeros: shape (C,)."""
        return np.diff(self.cost_before)

    @cached_property
    def costs(self) -> Floats:
        """What each part costs, in nonzeros: shape (P,)."""
        return np.diff(self.cost_before[self.cells])

    def cost(self, starts: Ints, stops: Ints) -> Floats:
        """What intervals of rows cost, in nonzeros; within a cell all rows cost the same.

        Parameters
        ----------
        starts, stops : (m,) ndarray of int64

        Returns
        -------
        (m,) ndarray of float64
        """
        before = np.interp(stops, self.rows, self.cost_before)
        return before - np.interp(starts, self.rows, self.cost_before)


def cut_parts(indptr: NDArray[np.integer], parts: int, cells: int = CELLS) -> Parts:
    """Cut rows into parts that cost about the same, and each of these into cells.

    Parameters
    ----------
    indptr : (q + 1,) ndarray of int
        Nonzeros before each row, as of SciPy's CSR; it may be mapped from a file.
    parts : int
        How many parts there should be. There are fewer where single rows cost more than a part.
    cells : int
        How many cells a part should have.

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
    found = [np.zeros(1, np.int64)]
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found.append(_cut_rows(indptr, start, stop, cells)[1:])
    places = np.cumsum([0] + [cuts.size for cuts in found[1:]])
    at = np.concatenate(found)
    return Parts(places, at, np.asarray(indptr[at], np.int64))


def _cut_rows(indptr: NDArray[np.integer], start: int, stop: int, pieces: int) -> Ints:
    """Rows at which to cut these into pieces of about the same cost: ascending, no piece empty."""

    def cost(rows: Ints) -> Floats:
        return np.asarray(indptr[rows], np.float64) + ROW_OVERHEAD * rows

    ends = cost(np.array([start, stop]))
    wanted = np.linspace(ends[0], ends[1], min(pieces, stop - start) + 1)[1:-1]
    low, high = np.full(wanted.size, start), np.full(wanted.size, stop)
    while (high - low > 1).any():  # cost(low) <= wanted < cost(high)
        middle = (low + high) // 2
        above = cost(middle) > wanted
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    nearest = np.where(wanted - cost(low) <= cost(high) - wanted, low, high)
    return np.unique(np.concatenate([[start], nearest, [stop]])).astype(np.int64)
