"""Probabilistic checks of the terms of X' V, after Freivalds.

The term of machine n is ``t = shard[rows]' u``. For a random vector g, the probe,
``g' t = (shard[rows] g)' u``. The master computes both sides in linear time from the product
``shard g``. Machines compute this product before the first X' V, parity checks verify it, and all
later checks use it. Freivalds (Probabilistic machines can use less running time, 1977)
checks matrix products this way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cec_mpi.core.accuracy.rounding import summation_error_bound
from cec_mpi.core.plan.assignment import Intervals

Floats = NDArray[np.float64]

_DEVIATIONS = 8.0  # bound on a sum with random signs, exceeded with probability 2 exp(-32)


class TermChecker:
    """Checks terms of X' V against products of the shards with a random probe.

    Parameters
    ----------
    entry_bounds : (N,) ndarray of float
        Bound on the entries of each machine's shard, relative to the largest entry of X in their
        column: the sum of ``|G[n, l]|`` plus the error of the shard.
    column_max : (r,) ndarray of float
        c, the largest absolute value in each column of X.
    dtype : dtype
        Dtype in which machines compute.
    rng : numpy.random.Generator
        Draws the probe.

    Attributes
    ----------
    probe : (1, r) ndarray
        g, in `dtype`: random signs, and magnitudes from ``2**p`` to ``2**(p + 1)`` for some p.
    scale : float
        Scale S of products with g: ``sum(c * abs(g))``.
    products : dict of int to (R,) ndarray
        Verified products of shards with g, by machine. They depend only on the shard, not on the
        process that has it.

    Examples
    --------
    >>> shard, rng = np.array([[1.0, 2.0], [3.0, 4.0]]), np.random.default_rng(0)
    >>> checker = TermChecker(np.ones(1), np.array([3.0, 4.0]), np.float64, rng)
    >>> checker.products[1] = shard @ checker.probe[0]
    >>> u = np.array([5.0, 6.0])
    >>> checker.is_wrong(1, ((0, 2),), u, shard.T @ u)
    False
    >>> checker.is_wrong(1, ((0, 2),), u, shard.T @ u + [0, 1e-9])
    True
    """

    def __init__(
        self,
        entry_bounds: Floats,
        column_max: Floats,
        dtype: DTypeLike,
        rng: np.random.Generator,
    ) -> None:
        self._entry_bounds = entry_bounds
        self._dtype = np.dtype(dtype)
        size = column_max.size
        entries = rng.uniform(1.0, 2.0, size) * rng.choice([-1.0, 1.0], size)
        _, exponent = np.frexp(column_max.max(initial=0.0) * max(size, 1))
        max_power = -np.finfo(self._dtype).minexp // 2
        power = -int(np.clip(exponent, -max_power, max_power))
        self.probe = np.ldexp(entries.astype(self._dtype), power)[np.newaxis]
        with np.errstate(over="ignore", under="ignore"):
            weights = column_max * np.abs(self.probe[0].astype(np.float64))
            self.scale = float(weights.sum())
            norm = float(np.hypot.reduce(weights, initial=0.0))
        product_error = summation_error_bound(size, self._dtype)
        check_error = summation_error_bound(size, np.float64)
        self._probe_error = self.scale * (product_error + check_error)
        self._term_scale = min(self.scale, _DEVIATIONS * norm)
        self.products: dict[int, Floats] = {}

    def is_wrong(
        self,
        machine: int,
        intervals: Intervals,
        coefficients: NDArray[Any],
        values: NDArray[np.floating],
    ) -> bool:
        """Return whether a term is wrong.

        Parameters
        ----------
        machine : int
            A machine with a verified product.
        intervals : tuple of (int, int)
            Rows of the shard.
        coefficients : (count * k,) ndarray of float
            u, in row-major order.
        values : (r * k,) ndarray of float
            The term.

        Returns
        -------
        bool

        Notes
        -----
        Let e be the error bound for a sum (`summation_error_bound`), and s the bound on the entries
        of the machine's shard. Entry j of the term has an error of at most ``e_rows s c_j
        norm1(u)``. The signs of g are independent of these errors, so the error of ``g' t`` is at
        most 8 times the root of the sum of their squares, and at most their sum. The right side
        adds ``e_r s norm1(u) sum(c_j |g_j|)``.
        """
        shard_product = self.products[machine]
        products = np.concatenate([shard_product[start:stop] for start, stop in intervals])
        u = np.asarray(coefficients, dtype=np.float64).reshape(products.size, -1)
        term = np.asarray(values, dtype=np.float64).reshape(self.probe.size, -1)
        with np.errstate(over="ignore", invalid="ignore"):
            differences = np.abs(self.probe[0].astype(np.float64) @ term - products @ u)
        tolerances = self.tolerances(machine, products.size, np.abs(u).sum(axis=0))
        return not bool((differences <= tolerances).all())

    def tolerances(self, machine: int, rows: int, norms: Floats) -> Floats:
        """Return bounds on the difference between the two sides that rounding can cause.

        Parameters
        ----------
        machine, rows : int
        norms : (k,) ndarray of float
            norm1(u) of each column of the coefficients.
        """
        term_error = summation_error_bound(rows + 1, self._dtype) * self._term_scale
        check_error = summation_error_bound(rows, np.float64) * self.scale
        relative = term_error + check_error + self._probe_error
        # The underflow of a product is at most the smallest normal number.
        weights = float(np.abs(self.probe[0]).sum(dtype=np.float64))
        underflow = float(np.finfo(self._dtype).tiny) * (
            rows * weights + self.probe.size * (1 + norms)
        )
        with np.errstate(over="ignore"):
            return np.asarray(self._entry_bounds[machine - 1] * norms * relative + underflow)
