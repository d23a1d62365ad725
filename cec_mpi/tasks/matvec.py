"""Products with a sequence of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from cec_mpi.errors import InputError
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT, Checkpoint, restore_state
from cec_mpi.tasks.common.options import check_real_array
from cec_mpi.tasks.common.scaling import binary_exponent, rescale
from cec_mpi.text import plural

_CHECKSUM_SIZE = 4  # 32-bit numbers
_MIN_ACCURATE_PRODUCT = 2.0**-970  # smaller products may have lost digits
_RETRY_LOG2 = 900  # w is multiplied by 2**900 for a second product


def matvec(
    X: Any,
    *,
    vectors: NDArray[Any],
    out: NDArray[np.float64] | None = None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> dict[str, Any]:
    """Multiply X by T vectors, one per step.

    Parameters
    ----------
    X : operator
        Shape (q, r).
    vectors : (T, r) ndarray
        One vector per row.
    out : (T, q) ndarray of float64, optional
        Receives the products as they are computed.
    checkpoint : Checkpoint
        Saves the number of products, ``done``, and their ``checksum``. A later run needs the `out`
        of the earlier run, so `checkpoint` must write `out` to disk before its own file.

    Returns
    -------
    dict
        ``result``: (T, q) ndarray of float64, one product per row.

    Raises
    ------
    InputError
        `vectors` has another shape, or entries that are masked or not real, the checkpoint does not
        match, `out` has changed since it was written, or a product is too large or too small for
        float64.
    """
    vectors = check_real_array("vectors", vectors)
    if vectors.ndim != 2 or vectors.shape[1] != X.shape[1]:
        raise InputError(f"vectors have shape {vectors.shape}, expected (T, {X.shape[1]})")
    state = restore_state(checkpoint, done=(), checksum=(_CHECKSUM_SIZE,))
    done = int(state["done"]) if state else 0
    if state and (out is None or done > len(vectors)):
        call = "without out" if out is None else f"with {plural(len(vectors), 'vector')}"
        raise InputError(
            f"the checkpoint does not fit a task {call}: it states that "
            f"{plural(done, 'product', 'is', 'are')} done"
        )
    if out is None:
        out = np.empty((len(vectors), X.shape[0]))
    digest = xxhash.xxh3_128()
    for row in range(done):
        digest.update(out[row].tobytes())
    if state and not np.array_equal(_checksum(digest), state["checksum"]):
        products = "first product" if done == 1 else f"first {done} products"
        raise InputError(
            f"{getattr(out, 'filename', None) or 'out'} has changed since the checkpoint was "
            f"written: the checksum of the {products} differs; restore these products, or use "
            "--overwrite to start from the beginning"
        )
    for row in range(done, len(vectors)):
        out[row] = _multiply(X, np.asarray(vectors[row], dtype=np.float64), row)
        digest.update(out[row].tobytes())
        checkpoint.save(done=row + 1, checksum=_checksum(digest))
    return {"result": out}


def _checksum(digest: xxhash.xxh3_128) -> NDArray[np.float64]:
    """Return a digest as float64 values, each holding 32 bits of it."""
    return np.frombuffer(digest.digest(), ">u4").astype(np.float64)


def _multiply(X: Any, vector: NDArray[Any], row: int) -> NDArray[np.float64]:
    """Return X w, computed from a scaled w to avoid overflow and underflow."""
    exponent = w_exponent = binary_exponent(vector)
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray(X.matvec(np.ldexp(vector, -exponent)))
        if np.abs(product).max(initial=0.0) < _MIN_ACCURATE_PRODUCT and np.any(vector):
            exponent -= _RETRY_LOG2
            product = np.asarray(X.matvec(np.ldexp(vector, -exponent)))
    return rescale(f"X w of vector {row} (counted from 0)", product, exponent, {"w": w_exponent})  # type: ignore[no-any-return]
