"""How large the terms of the sums of a step are, of which rounding is a small part."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Columns = Any  # (k,) ndarray of float, or a number

_PIECES = 16  # of a sum, and
_LANES = 8  # every so manieth of its terms: where partial sums are looked for
_REACH = 2.0**-300, 2.0**300  # numbers whose squares can be summed
_FAR_APART = 300  # log2 of sizes of columns, from where on sums are made in long double
_NORMAL, _SMALLEST = 2.0**-1022, 2.0**-1074  # numbers with all digits, and all numbers


class Lengths(NamedTuple):
    """Norms of the columns of a block, (k,) arrays: all but the first relative to it.

    Of a block of one column they are numbers, which takes a fraction of the time.

    Attributes
    ----------
    unit : ndarray of float
        1 where numbers can be squared as they are, or the largest number of the column.
    plain : ndarray of float
        At least ``sum_j |w_j|``; 0 only where w is zeros.
    total : ndarray of float
        ``sum_j c_j |w_j|``, with c the largest entries of what the numbers are multiplied with.
    longest, typical : ndarray of float
        ``sqrt(sum_j (c_j w_j)**2)``, and with root mean squares.
    partial : ndarray of float
        What partial sums have that cancels later, where all entries of X have one sign and the
        size d_j: ``sum_s |p_s| - |sum_s p_s|``, where p_s are the sums of ``d_j w_j`` over
        pieces, or over every eighth j, as processors add up. The larger of both.
    terms : ndarray of int
        Numbers that are not 0.
    lost : ndarray of float
        At least ``sum_j c_j |e_j|``, where e_j is what w_j has lost by underflow.
    """

    unit: Columns
    plain: Columns
    total: Columns
    longest: Columns
    typical: Columns
    partial: Columns
    terms: Columns
    lost: Columns = 0.0


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
    >>> float(found.total * scale), round(float(found.typical * scale), 3)
    (15.0, 6.708)
    """

    def __init__(self, largest: ArrayLike, typical: ArrayLike) -> None:
        sizes = np.array([largest, typical], dtype=np.float64)
        places = np.frexp(sizes[0][sizes[0] > 0])[1]
        self._is_wide = places.size > 0 and int(places.max() - places.min()) > _FAR_APART
        if self._is_wide:  # of 15 bits for exponents, and so no need for a common one
            sizes = sizes.astype(np.longdouble)
        self.exponent = 0 if self._is_wide else int(places.max(initial=0))
        self._largest, self._typical = np.ldexp(sizes, -self.exponent)
        self._most = [each.max(initial=0.0) for each in (self._largest, self._typical)]

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
        unit, block, length, scratch = self._prepared(W, work)
        lost: Columns = 0.0
        if self._is_wide:
            lost = _sum_of_sizes(self._largest * (abs(block) < _NORMAL) * _SMALLEST)
        signed = np.multiply(block, self._typical, out=scratch)
        typical, partial = _norm(signed), _each(_partial, signed)
        terms = np.multiply(block, self._largest, out=scratch)
        longest, total = _norm(terms), _sum_of_sizes(terms, scratch)
        plain = block.shape[1] ** 0.5 * length
        return Lengths(unit, plain, total, longest, typical, partial, _each(_used, block), lost)

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
        unit, block, length, scratch = self._prepared(V, work)
        largest, typical = self._most
        partial = terms = 0.0 * unit
        if summed:
            partial, terms = typical * _each(_partial, block), _each(_used, block)
        plain = _sum_of_sizes(block, scratch)
        # No column is longer than its root mean square says, and no number larger than the most.
        most_of_all = _each(np.max, scratch)
        longest = least(largest * length, len(V) ** 0.5 * typical * most_of_all)
        return Lengths(unit, plain, largest * plain, longest, typical * length, partial, terms)

    def _prepared(
        self, W: NDArray[np.floating], work: Floats | None
    ) -> tuple[Columns, NDArray[np.floating], Columns, NDArray[np.floating]]:
        """As `_squarable`, of the columns of W; and scratch."""
        if self._is_wide:
            block = W.T.astype(np.longdouble)
            unit = np.ones(len(block), np.longdouble)
            return unit[0] if len(block) == 1 else unit, block, _norm(block), np.empty_like(block)
        unit, block, length = _squarable(W.T, work)
        return unit, block, length, np.empty(block.shape) if work is None else work.T


def largest_of(values: Floats) -> Columns:
    """The largest size of a number in each column of (n, k), as `Lengths` has such numbers."""
    if values.shape[1] == 1:
        return max(float(values.max()), -float(values.min()))
    return np.maximum(values.max(axis=0), -values.min(axis=0))


def largest_size(sizes: Floats) -> Columns:
    """The same of (n, k) numbers of which none is negative."""
    return float(sizes.max()) if sizes.shape[1] == 1 else sizes.max(axis=0)


def _squarable(
    block: NDArray[np.floating], work: Floats | None
) -> tuple[Columns, NDArray[np.floating], Columns]:
    """What the vectors of (k, n) were divided by, the quotients, and their norms."""
    wide = block
    if block.dtype != np.float64:
        wide = np.empty(block.shape) if work is None else work.T
        np.copyto(wide, block)
    with np.errstate(over="ignore"):
        norms = _norm(wide)
    lowest, highest = (norms, norms) if len(block) == 1 else (norms.min(), norms.max())
    if _REACH[0] < lowest and highest < _REACH[1]:
        return 1.0 if len(block) == 1 else np.ones(len(block)), block, norms
    units = abs(wide).max(axis=1, initial=0.0)
    units[units == 0] = 1.0
    block = wide / units[:, np.newaxis]
    return float(units[0]) if len(block) == 1 else units, block, _norm(block)


def _norm(block: NDArray[np.floating]) -> Columns:
    if len(block) == 1:
        square = block[0] @ block[0]
        return math.sqrt(square) if block.dtype == np.float64 else np.sqrt(square)
    return np.sqrt(np.einsum("ij,ij->i", block, block))


def _sum_of_sizes(
    block: NDArray[np.floating], scratch: NDArray[np.floating] | None = None
) -> Columns:
    sizes = np.abs(block, out=scratch)
    return np.add.reduce(sizes[0]).item() if len(sizes) == 1 else sizes.sum(axis=1)


def _each(function: Callable[[NDArray[Any]], Any], block: NDArray[Any]) -> Columns:
    """A function of each vector of (k, n)."""
    return function(block[0]) if len(block) == 1 else np.array([function(each) for each in block])


def _used(vector: NDArray[np.floating]) -> int:
    return int(np.count_nonzero(vector))


@lru_cache(8)
def _ones(length: int) -> Floats:
    ones = np.ones(length)
    ones.flags.writeable = False
    return ones


def _partial(terms: NDArray[np.floating]) -> float:
    """What partial sums have that cancels later: see `Lengths.partial`."""
    length = len(terms) // (_PIECES * _LANES)
    if length:
        whole = terms[: _PIECES * length * _LANES].reshape(_PIECES, length, _LANES)
        sums = np.matmul(_ones(length), whole)
        pieces, lanes = sums.dot(_ones(_LANES)).tolist(), _ones(_PIECES).dot(sums).tolist()
    else:
        pieces, lanes = terms.tolist(), []
    passed: float = max(sum(map(abs, pieces)), sum(map(abs, lanes))) - abs(sum(pieces))
    return passed


def least(some: Columns, others: Columns) -> Columns:
    """The smaller of two numbers, or of each pair."""
    return np.minimum(some, others) if isinstance(some, np.ndarray) else min(some, others)


def most(some: Columns, others: Columns) -> Columns:
    """The larger of two numbers, or of each pair."""
    return np.maximum(some, others) if isinstance(some, np.ndarray) else max(some, others)
