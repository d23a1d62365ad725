"""How far from exact the shards of a store, the answers to a step and its product can be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import (
    answer_error,
    decode_error_bound,
    encoding_error,
    likely_scale,
)
from cec_mpi.master.numbers.buffers import Buffers
from cec_mpi.store.format.manifest import Manifest

Floats = NDArray[np.float64]


class ErrorBounds:
    """Error bounds of one store's shards, of answers and of products.

    Parameters
    ----------
    manifest : Manifest
    arithmetic : numpy.dtype
        What products are computed in.

    Attributes
    ----------
    shards : (N,) ndarray
        Of encoding, or of what was rebuilt from others.
    answers : (N,) ndarray
        See `answer_error`.
    """

    def __init__(self, manifest: Manifest, arithmetic: np.dtype[Any]) -> None:
        self._manifest = manifest
        self._arithmetic = arithmetic
        rebuilt = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in manifest.shards]
        exact = encoding_error(manifest.code.generator, manifest.dtype)
        self.shards: Floats = np.maximum(exact, rebuilt)
        self._reach = 0.0  # the largest scale of X W so far, over norm(W)
        self._update()

    def _update(self) -> None:
        generator, columns = self._manifest.code.generator, self._manifest.columns
        self.answers = answer_error(generator, self._arithmetic, columns, self.shards)
        self._largest = float(self.answers.max())

    def allow(self, machine: int, bound: float) -> bool:
        """Expect this error of a machine's shard from now on; False where it was expected."""
        if bound > self.shards[machine - 1]:  # NaN is none
            self.shards[machine - 1] = bound
            self._update()
            return True
        return False

    def least_scale(self, length: float) -> float:
        """What the rounding of X W is relative to is at least this, for a W of this norm."""
        return self._reach * length

    def of_product(
        self,
        condition: float,
        gain: float,
        buffers: Buffers,
        length: float,
        relative: Floats | None = None,
    ) -> float:
        """Of X W: rounding can be as large as in any step so far, for a W as long as this.

        Parameters
        ----------
        condition, gain : float
            The largest that it was decoded with.
        buffers : Buffers
            With X W.
        length : float
            Norm of W, 0 where it overflows: only this step tells then.
        relative : (L * R, 1) ndarray of float64, optional
            What rows of X are multiplied with, of which the largest is 1. The error may be in
            that one.
        """
        sizes = buffers.work.reshape(buffers.parts.shape)
        scale = likely_scale(buffers.parts, sizes)
        if length:
            self._reach = max(self._reach, scale / length)
        errors = [self._largest] * len(sizes)
        largest, scale = float(sizes.max()), max(scale, self.least_scale(length))
        bound = decode_error_bound(condition, gain, errors, largest, scale)
        if relative is None or not bound < np.inf:
            return bound
        rows = buffers.work.reshape(buffers.product.shape)
        after = float(np.multiply(rows, relative, out=rows).max())
        wrong = largest * (bound / (1 + bound))
        return wrong / (after - wrong) if wrong < after else (np.inf if wrong else 0.0)
