"""Arrays of products: scaled vectors, coded coefficients, and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.vectors import NotFiniteError, Scaler
from cec_mpi.core.plan.planner import Plan
from cec_mpi.core.step.codec import Codec, make_scratch
from cec_mpi.errors import InputError
from cec_mpi.store.format.manifest import Manifest

Floats = NDArray[np.float64]


class Buffers:
    """The arrays of products with k columns, and the codec of the last plan.

    Parameters
    ----------
    manifest : Manifest
    columns : int
        k.
    arithmetic : dtype
        Dtype in which vectors are sent.
    threads : int
        Number of cores on which answers are decoded.

    Attributes
    ----------
    vectors : (k, r) ndarray
        W' as it is sent, divided by powers of two.
    exponents : list of int
        Exponents of these powers, one for each column of W or V.
    is_scaled : bool
        Whether any exponent is not 0; set for X W only.
    coefficients : (L * R * k,) ndarray
        The machines' coefficients for X' V.
    parts : (L, R * k) ndarray of float64
        The rows of X_1 W .. X_L W or of V_1 .. V_L.
    padded : (L * R, k) ndarray of float64
        A view of `parts` as one matrix: X W or V, padded with rows of zeros.
    scratch : list of ndarray of float64
        Scratch arrays for decoding, one for each thread.
    """

    codec: Codec

    def __init__(
        self, manifest: Manifest, columns: int, arithmetic: np.dtype[Any], threads: int
    ) -> None:
        recovery, rows = manifest.code.recovery, manifest.rows_per_shard
        size = recovery * rows * columns
        self._columns = columns
        self.vectors = np.empty((columns, manifest.columns), arithmetic)
        self.exponents = [0] * columns
        self.is_scaled = False
        self.coefficients = np.empty(size, arithmetic)
        self._shape = recovery, rows * columns
        self.renew_parts()
        self.scratch = make_scratch(recovery, rows * columns, threads)
        self._code = manifest.code
        self._codecs: WeakKeyDictionary[Plan, Codec] = WeakKeyDictionary()

    def load_vectors(self, name: str, W: NDArray[Any], scaler: Scaler) -> list[float]:
        """Scale W, of shape (r, k), into `vectors`; return the norms of the terms of X W.

        Raises
        ------
        InputError
            An entry is not a finite real number.
        """
        _check_real(name, W)
        try:
            self.exponents, term_norms = scaler.prepare(W, self.vectors)
        except NotFiniteError:
            raise _not_finite_error(name, W) from None
        self.is_scaled = any(self.exponents)
        return term_norms

    def load_adjoint_vectors(
        self, name: str, V: NDArray[Any], scaler: Scaler
    ) -> tuple[Floats, list[float]]:
        """Return V, of shape (q, k), as parts, and the norms of the terms of X' V.

        V is converted into `padded`, unless it is a C-contiguous float64 array with all rows, and
        needs no scaling.

        Raises
        ------
        InputError
            An entry is not a finite real number.
        """
        _check_real(name, V)
        if V.shape == self.padded.shape and V.dtype == np.float64 and V.flags.c_contiguous:
            term_norms = scaler.norms_of_unscaled_adjoint(V)
            if term_norms is not None:
                self.exponents = [0] * self._columns
                return V.reshape(self._shape), term_norms
        try:
            self.exponents, term_norms = scaler.prepare_adjoint(V, self.padded[: len(V)])
        except NotFiniteError:
            raise _not_finite_error(name, V) from None
        self.padded[len(V) :] = 0
        return self.parts, term_norms

    def prepare(self, plan: Plan) -> None:
        """Set `codec` to the codec of this plan, which is cached until the plan is deleted."""
        codec = self._codecs.get(plan)
        if codec is None:
            codec = self._codecs[plan] = Codec(plan, self._code, self._columns, self.scratch)
        self.codec = codec

    def renew_parts(self) -> None:
        """Allocate `parts` and `padded` again, because the caller keeps the last product."""
        self.parts = np.empty(self._shape)
        self.padded = self.parts.reshape(-1, self._columns)

    def renew_if_sending(self, is_sending: Callable[[NDArray[Any]], bool]) -> None:
        """Replace arrays that are still being sent with new ones."""
        self.vectors, self.coefficients = (
            np.empty_like(array) if is_sending(array) else array
            for array in (self.vectors, self.coefficients)
        )


def as_column(name: str, vector: ArrayLike, length: int) -> NDArray[Any]:
    """Return a vector as a block of one column."""
    array = np.asarray(vector)
    if array.shape not in ((length,), (length, 1)):
        raise InputError(f"{name} has shape {array.shape}: expected ({length},)")
    return array.reshape(length, 1)


def as_block(name: str, block: ArrayLike, length: int) -> NDArray[Any]:
    """Return a block of vectors of this length, one in each column."""
    array = np.asarray(block)
    if array.ndim != 2 or array.shape[0] != length or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: expected ({length}, k), k at least 1")
    return array


def _check_real(name: str, block: NDArray[Any]) -> None:
    if block.dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {block.dtype}: expected real numbers")


def _not_finite_error(name: str, block: NDArray[Any]) -> InputError:
    with np.errstate(over="ignore"):
        values = block.astype(np.float64)
    row, column = np.argwhere(~np.isfinite(values))[0].tolist()
    index = f"{row}, {column}" if block.shape[1] > 1 else row
    return InputError(f"{name}[{index}] is {block[row, column]}: expected finite float64 numbers")
