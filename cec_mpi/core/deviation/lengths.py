"""How large the terms of the sums of a step are, of which rounding is a small part."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Columns = Any  # (k,) ndarray of float, or a number

_PIECES = 16  # of a sum, and
_LANES = 8  # every so manieth of its terms: where partial sums are looked for
_GATHERED = np.vstack(  # from sums of both to those of each
    (np.kron(np.eye(_PIECES), np.ones(_LANES)), np.tile(np.eye(_LANES), _PIECES))
)


class Lengths(NamedTuple):
    """Norms of the columns of a block, (k,) arrays: all but the first relative to it.

    Of a block of one column they are numbers, which takes a fraction of the time.

    Attributes
    ----------
    unit : ndarray of float
        The largest number of the column, 1 where that is 0.
    plain : ndarray of float
        ``sum_j |w_j|``.
    total, typical_total : ndarray of float
        ``sum_j c_j |w_j|``, with c the largest entries of what the numbers are multiplied with,
        and with their root mean squares.
    longest, typical : ndarray of float
        ``sqrt(sum_j (c_j w_j)**2)``, and with root mean squares.
    partial : ndarray of float
        What partial sums have that cancels later, where all entries of X have one sign and the
        size d_j: ``sum_s |p_s| - |sum_s p_s|``, where p_s are the sums of ``d_j w_j`` over
        pieces, or over every eighth j, as processors add up. The larger of both.
    terms : ndarray of int
        Numbers that are not 0.
    """

    unit: Columns
    plain: Columns
    total: Columns
    typical_total: Columns
    longest: Columns
    typical: Columns
    partial: Columns
    terms: Columns


class TermSizes:
    """How large the terms of products are, from the sizes of the columns of X.

    Parameters
    ----------
    largest, typical : (r,) array_like of float
        The largest size of an entry of each column, and the root mean square.

    Attributes
    ----------
    exponent : int
        What is computed with them is relative to two to this power.

    Examples
    --------
    >>> sizes = TermSizes([4.0, 1.0], [2.0, 1.0])
    >>> found = sizes.of(np.array([[3.0], [-3.0]]))
    >>> scale = found.unit * 2.0**sizes.exponent
    >>> float(found.total * scale), float(found.typical_total * scale)
    (15.0, 9.0)
    """

    def __init__(self, largest: ArrayLike, typical: ArrayLike) -> None:
        sizes = np.array([largest, typical], dtype=np.float64)
        self.exponent = int(np.frexp(sizes[0].max(initial=0.0))[1])
        sizes = np.ldexp(sizes, -self.exponent)
        self._sums: Floats = np.vstack((np.ones(sizes.shape[1]), sizes))
        self._squares: Floats = sizes**2
        self._most: list[float] = sizes.max(axis=1, initial=0.0).tolist()

    def of(self, W: NDArray[np.floating], work: Floats | None = None) -> Lengths:
        """The sizes of the terms of X W, of which each column of X has its own.

        Parameters
        ----------
        W : (r, k) ndarray of float
        work : (r, k) ndarray of float64, optional
            Scratch.

        Returns
        -------
        Lengths
        """
        sizes, unit = _relative(W, work)
        plain, total, typical_total = _columns(self._sums @ sizes)
        terms = _nonzero(sizes)
        squares = self._squares @ np.multiply(sizes, sizes, out=sizes)
        longest, typical = _columns(np.sqrt(squares, out=squares))
        typical_sizes = self._sums[2]
        signed = W[:, 0] * typical_sizes if W.shape[1] == 1 else (W.T * typical_sizes).T
        partial = _partial(signed) / unit
        return Lengths(unit, plain, total, typical_total, longest, typical, partial, terms)

    def of_transposed(
        self, V: NDArray[np.floating], work: Floats | None = None, *, summed: bool = True
    ) -> Lengths:
        """The sizes of the terms of any column of X' V.

        Parameters
        ----------
        V : (m, k) ndarray of float
        work : (m, k) ndarray of float64, optional
            Scratch.
        summed : bool
            Whether machines add up terms of this V: otherwise nothing is said of partial sums.

        Returns
        -------
        Lengths
        """
        sizes, unit = _relative(V, work)
        largest, typical = self._most
        if sizes.ndim == 1:
            plain, length = float(sizes.sum()), math.sqrt(float(sizes @ sizes))
        else:
            plain, length = sizes.sum(axis=0), np.sqrt(np.einsum("ij,ij->j", sizes, sizes))
        # No column is longer than its root mean square says, and no number larger than the unit.
        longest = least(largest * length, len(V) ** 0.5 * typical)
        partial = terms = 0.0 * unit
        if summed:
            partial = typical * _partial(V[:, 0] if V.shape[1] == 1 else V) / unit
            terms = _nonzero(sizes)
        total, typical_total, typical = largest * plain, typical * plain, typical * length
        return Lengths(unit, plain, total, typical_total, longest, typical, partial, terms)


def largest_of(values: Floats) -> Columns:
    """The largest size of a number in each column of (n, k), as `Lengths` has such numbers."""
    if values.shape[1] == 1:
        return max(float(values.max()), -float(values.min()))
    return np.maximum(values.max(axis=0), -values.min(axis=0))


def _relative(columns: NDArray[np.floating], work: Floats | None) -> tuple[Floats, Columns]:
    """Sizes of numbers over the largest of their column, and that."""
    sizes: Floats = np.abs(columns, out=work) if work is not None else abs(columns.astype(float))
    if sizes.shape[1] == 1:
        sizes = sizes[:, 0]
        largest = float(sizes.max(initial=0.0)) or 1.0
        np.divide(sizes, largest, out=sizes)
        return sizes, largest
    unit = sizes.max(axis=0, initial=0.0)
    unit[unit == 0] = 1.0
    np.divide(sizes, unit, out=sizes)
    return sizes, unit


def _nonzero(sizes: Floats) -> Columns:
    return int(np.count_nonzero(sizes != 0)) if sizes.ndim == 1 else (sizes != 0).sum(axis=0)


def _partial(terms: NDArray[np.floating]) -> Columns:
    """What partial sums have that cancels later, of (n,) or (n, k): see `Lengths.partial`."""
    width = 1 if terms.ndim == 1 else terms.shape[1]
    length = len(terms) // (_PIECES * _LANES)
    if length:
        whole = terms[: _PIECES * length * _LANES].reshape(_PIECES, length, _LANES * width)
        sums = _GATHERED @ np.matmul(np.ones(length), whole).reshape(-1, width)
    else:
        sums = np.vstack((terms.reshape(-1, width), np.zeros((_LANES, width))))
    if width == 1:
        several = sums[:, 0].tolist()
        pieces, lanes = several[:-_LANES], several[-_LANES:]
        return max(sum(map(abs, pieces)), sum(map(abs, lanes))) - abs(sum(pieces))
    sizes, signed = abs(sums), abs(sums[:-_LANES].sum(axis=0))
    return np.maximum(sizes[:-_LANES].sum(axis=0), sizes[-_LANES:].sum(axis=0)) - signed


def _columns(rows: Floats) -> Any:
    return rows.tolist() if rows.ndim == 1 else rows


def least(some: Columns, others: Columns) -> Columns:
    """The smaller of two numbers, or of each pair."""
    return np.minimum(some, others) if isinstance(some, np.ndarray) else min(some, others)


def most(some: Columns, others: Columns) -> Columns:
    """The larger of two numbers, or of each pair."""
    return np.maximum(some, others) if isinstance(some, np.ndarray) else max(some, others)
