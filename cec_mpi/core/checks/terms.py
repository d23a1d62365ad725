"""Checking terms of X' V with a product that is known.

The term of machine n is ``t = shard[rows]' u``. With a random vector g, the probe, ``g't =
(shard[rows] g)'u``: rank 0 computes both sides in time proportional to their length, if it knows
``shard g``. Machines compute it like an answer to any w before the first X' V, parity compares it,
and it is used from then on. Freivalds (Probabilistic machines can use less running time, 1977)
checks products of matrices this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import summation_error

Floats = NDArray[np.float64]
Intervals = Sequence[tuple[int, int]]

_DEVIATIONS = 8.0  # of a sum with random signs, taken for a bound: 2 exp(-32)


class TermChecks:
    """Checks of the terms of one store.

    Parameters
    ----------
    sizes : (N,) ndarray of float
        Largest numbers of each machine's shard, in units of the largest entry of X in their column:
        the sum of ``|G[n, l]|``, and the error of the shard.
    largest : (r,) ndarray of float
        The largest entry of each column of X.
    dtype : dtype
        Arithmetic of machines.
    rng : numpy.random.Generator
        Draws the probe.

    Attributes
    ----------
    probe : (1, r) ndarray
        g, as it is sent: signs are random, and sizes from 1 to 2, times a power of two.
    scale : float
        Sum over the columns of their largest entry times ``|g|``: S of products with g.
    products : dict of int to (R,) ndarray
        Products of shards with g, by machine, after they were compared. They are those of shards,
        whichever process has them.

    Examples
    --------
    >>> shard, rng = np.array([[1.0, 2.0], [3.0, 4.0]]), np.random.default_rng(0)
    >>> checks = TermChecks(np.ones(1), np.array([3.0, 4.0]), np.float64, rng)
    >>> checks.products[1] = shard @ checks.probe[0]
    >>> u = np.array([5.0, 6.0])
    >>> checks.fails(1, [(0, 2)], u, shard.T @ u)
    False
    >>> checks.fails(1, [(0, 2)], u, shard.T @ u + [0, 1e-9])
    True
    """

    def __init__(
        self,
        sizes: Floats,
        largest: Floats,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        self._sizes = sizes
        self._dtype = np.dtype(dtype)
        drawn = rng.uniform(1.0, 2.0, largest.size) * rng.choice([-1.0, 1.0], largest.size)
        _, exponent = np.frexp(largest.max(initial=0.0) * max(largest.size, 1))
        most = -np.finfo(self._dtype).minexp // 2
        power = -int(np.clip(exponent, -most, most))
        self.probe = np.ldexp(drawn.astype(self._dtype), power)[np.newaxis]
        with np.errstate(over="ignore", under="ignore"):
            weights = largest * np.abs(self.probe[0].astype(np.float64))
            self.scale = float(weights.sum())
            length = float(np.hypot.reduce(weights, initial=0.0))
        computing = summation_error(largest.size, self._dtype)
        checking = summation_error(largest.size, np.float64)
        self._fixed = self.scale * (computing + checking)
        self._scale_of_rows = min(self.scale, _DEVIATIONS * length)
        self.products: dict[int, Floats] = {}

    def fails(
        self,
        machine: int,
        intervals: Intervals,
        coefficients: NDArray[Any],
        values: NDArray[np.floating],
    ) -> bool:
        """Whether a term is wrong.

        Parameters
        ----------
        machine : int
        intervals : sequence of (int, int)
            Rows of the shard, whose products with g are known.
        coefficients : (count * k,) ndarray of float
            u, row after row.
        values : (r * k,) ndarray of float
            The term.

        Returns
        -------
        bool

        Notes
        -----
        With e an error bound of sums (`summation_error`), c_j the largest entries of the columns
        of X and s the machine's size, the term has an error of at most ``e_rows s c_j norm1(u)``
        in each entry. Signs of g are random and know nothing of it, so in ``g't`` it is at most
        8 times the root of the sum of squares, or of course the sum. The other side adds
        ``e_r s norm1(u) sum(c_j |g_j|)``.
        """
        known = self.products[machine]
        products = np.concatenate([known[start:stop] for start, stop in intervals])
        given = np.asarray(coefficients, dtype=np.float64).reshape(products.size, -1)
        term = np.asarray(values, dtype=np.float64).reshape(self.probe.size, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            left = np.abs(self.probe[0].astype(np.float64) @ term - products @ given)
        limits = self.limits(machine, products.size, np.abs(given).sum(axis=0))
        return not bool((left <= limits).all())

    def limits(self, machine: int, rows: int, lengths: Floats) -> Floats:
        """Return what rounding makes of both sides of a test.

        Parameters
        ----------
        machine, rows : int
        lengths : (k,) ndarray of float
            norm1(u) of each column of the coefficients.
        """
        computing = summation_error(rows + 1, self._dtype) * self._scale_of_rows
        relative = computing + summation_error(rows, np.float64) * self.scale + self._fixed
        # Of each product of numbers underflow makes as much as the smallest one.
        weights = float(np.abs(self.probe[0]).sum(dtype=np.float64))
        least = float(np.finfo(self._dtype).tiny) * (
            rows * weights + self.probe.size * (1 + lengths)
        )
        with np.errstate(over="ignore"):
            return np.asarray(self._sizes[machine - 1] * lengths * relative + least)
