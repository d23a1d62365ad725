"""The arrays of products, and how what users give gets into them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.step.codec import Codec
from cec_mpi.errors import InputError
from cec_mpi.store.format.manifest import Manifest

Floats = NDArray[np.float64]


class Buffers:
    """The arrays of products with k columns, and the codec of the last plan.

    Attributes
    ----------
    shared, finite : (k, r) ndarray
        W as it is sent, and which of its entries are finite.
    coded, good : (L * R * k,) ndarray
        The machines' coefficients of an adjoint, and which numbers are finite.
    parts : (L, R * k) ndarray of float64
        The rows of X_1 W .. X_L W or of V_1 .. V_L.
    product : (L * R, k) ndarray of float64
        The same as one matrix: X W or V, with zero rows below.
    work : (L * R * k,) ndarray of float64
        Scratch for decoding.
    """

    codec: Codec

    def __init__(self, manifest: Manifest, columns: int) -> None:
        recovery, rows, dtype = manifest.code.recovery, manifest.rows_per_shard, manifest.dtype
        size = recovery * rows * columns
        self.shared = np.empty((columns, manifest.columns), dtype)
        self.finite = np.empty(self.shared.shape, dtype=bool)
        self.coded = np.empty(size, dtype)
        self.good = np.empty(size, dtype=bool)
        self.parts = np.empty((recovery, rows * columns))
        self.product = self.parts.reshape(recovery * rows, columns)
        self.work = np.empty(size)
        self._code = manifest.code
        self._columns = columns
        self._plan: Plan | None = None

    def prepare(self, plan: Plan) -> None:
        """Have the codec of this plan."""
        if plan is not self._plan:
            self.codec = Codec(plan, self._code, self._columns, self.work)
            self._plan = plan

    def renew(self) -> None:
        """Leave what was sent to machines that may still be receiving it."""
        self.shared = np.empty_like(self.shared)
        self.coded = np.empty_like(self.coded)


def column(name: str, vector: ArrayLike, length: int) -> NDArray[Any]:
    """A vector as a block of one column."""
    array = np.asarray(vector)
    if array.shape not in ((length,), (length, 1)):
        raise InputError(f"{name} has shape {array.shape}: expected ({length},)")
    return array.reshape(length, 1)


def block_of(name: str, block: ArrayLike, length: int) -> NDArray[Any]:
    """Vectors of this length, one in each column."""
    array = np.asarray(block)
    if array.ndim != 2 or array.shape[0] != length or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: expected ({length}, k), k at least 1")
    return array


def take(
    name: str,
    block: NDArray[Any],
    buffer: NDArray[Any],
    finite: NDArray[np.bool_] | None = None,
) -> None:
    """Convert once to the buffer's dtype, before anything goes on the wire."""
    if block.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {block.dtype}: expected real numbers")
    with np.errstate(over="ignore"):
        np.copyto(buffer, block, casting="unsafe")
    good = np.isfinite(buffer, out=finite)
    if not good.all():
        row, column = np.argwhere(~good)[0].tolist()
        where = f"{row}, {column}" if block.shape[1] > 1 else row
        raise InputError(
            f"{name}[{where}] is {block[row, column]}: expected finite {buffer.dtype} numbers"
        )


def checked_out(out: Floats | None, length: int) -> Floats | None:
    """Where a user wants a result, if it can have one of this length."""
    if out is not None and (out.shape != (length,) or out.dtype != np.float64):
        raise InputError(
            f"out has shape {out.shape} and dtype {out.dtype}: expected ({length},) of float64"
        )
    return out
