"""Coded operators in the place of the matrices and operators that SciPy's tests make.

A matrix becomes a store and an operator of it, in the place of SciPy's `MatrixLinearOperator`; a
complex one becomes the sum of two. What cannot be in a store stays SciPy's: operators of
functions, batches of matrices, matrices has no entries, and NaN.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg._interface import MatrixLinearOperator

import cec_mpi
from cec_mpi.linear_operator.coded_operator import CodedOperator
from cec_mpi.runtime.records.recorder import Recorder

MACHINES, RECOVERY = 3, 2
COMING_AND_GOING = [{1, 2, 3}, {2, 3}, {1, 3}, {1, 2}]
EXACT = {1, 2}  # hold the rows of X themselves, where the code is systematic


class Operators:
    """Makes the operators of one session of tests.

    Parameters
    ----------
    directory : Path
        Where the stores go.
    stores : str
        "float32" has all stores of float32. So that only what products lose counts, and not what
        X has lost, a matrix is first rounded to float32 in place.

    Notes
    -----
    With stores of float64 machines come and go between products. With one of float32 those compute
    that hold rows of X: the rows of others are linear combinations, rounded to float32, and what
    they decode to is no longer the matrix that a test knows.
    """

    def __init__(self, directory: Path, stores: str) -> None:
        self._directory = directory
        self._single = stores == "float32"
        self._recorder = Recorder()
        self._open: list[CodedOperator] = []
        self._one_at_a_time = Lock()
        self._exact = False
        self._first_tick: int | None = None

    @property
    def products(self) -> int:
        """Products with coded operators so far."""
        return self._recorder.steps

    def begin(self, exact: bool) -> None:
        """The same availability for each test, whichever was before it."""
        self._exact = exact or self._single
        self._first_tick = None

    def end(self) -> None:
        """Close what a test has opened."""
        while self._open:
            self._open.pop().close()

    def _available(self, tick: int) -> set[int]:
        if self._exact:
            return EXACT
        if self._first_tick is None:
            self._first_tick = tick
        return COMING_AND_GOING[(tick - self._first_tick) // 3 % len(COMING_AND_GOING)]

    def of(self, given: Any) -> Any:
        """The coded operator of a matrix, and anything else as it is."""
        matrix = given.A if type(given) is MatrixLinearOperator else given
        if not (issparse(matrix) or isinstance(matrix, np.ndarray)):
            return given
        if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.char not in "?bhilBHILfdFD":
            return given
        if self._single and matrix.dtype.char in "dD":
            _round(matrix)
        dense = matrix.toarray() if issparse(matrix) else np.asarray(matrix)
        if not np.isfinite(dense).all():
            return given
        return self.of_array(dense)

    def of_array(self, dense: np.ndarray) -> LinearOperator:
        """The coded operator of an array, or if it is complex of its two parts."""
        if np.iscomplexobj(dense):
            real = self.of_array(dense.real)
            return real + 1j * self.of_array(dense.imag) if dense.imag.any() else real
        dtype = np.dtype(np.float32 if self._single or dense.dtype.char == "f" else np.float64)
        self._exact |= dtype == np.float32
        array = np.ascontiguousarray(dense, dtype)
        name = hashlib.sha256(array.tobytes() + repr((array.shape, dtype, self._exact)).encode())
        store = self._directory / name.hexdigest()
        with self._one_at_a_time:
            if not store.exists():
                cec_mpi.encode(array, store, MACHINES, RECOVERY, systematic=self._exact)
        operator = cec_mpi.open_operator(
            store, None, recorder=self._recorder, availability=self._available, speeds=(1, 2, 3)
        ).start()
        self._open.append(operator)
        return operator


def _round(matrix: Any) -> None:
    numbers = matrix.data if issparse(matrix) else matrix
    if numbers.dtype.char in "dD":  # rows of lists have others
        with np.errstate(over="ignore"):
            numbers[...] = numbers.astype({"d": "f", "D": "F"}[numbers.dtype.char])
