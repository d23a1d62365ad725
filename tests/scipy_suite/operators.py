"""Coded operators in place of the matrices and operators of SciPy's tests.

A matrix becomes a store and its operator, instead of SciPy's `MatrixLinearOperator`; a complex one
becomes the sum of two. Operators of functions, batches of matrices, and matrices without entries or
with NaN stay those of SciPy, because no store can hold them.
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
AVAILABILITY = [{1, 2, 3}, {2, 3}, {1, 3}, {1, 2}]
ROW_MACHINES = {1, 2}  # hold rows of X if the code is systematic


class OperatorFactory:
    """Make the coded operators of one session of tests.

    Parameters
    ----------
    directory : Path
        Directory of the stores.

    Notes
    -----
    The available machines change between products. With stores of float32 only machines with rows
    of X compute, because shards that are linear combinations are rounded, and do not decode to
    exactly the matrix of the test.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._recorder = Recorder()
        self._open_operators: list[CodedOperator] = []
        self._lock = Lock()
        self._exact = False
        self._first_tick: int | None = None

    @property
    def products(self) -> int:
        """Number of products with coded operators."""
        return self._recorder.steps

    def start_test(self, exact: bool) -> None:
        """Start a test with the same availability, whichever test ran before."""
        self._exact = exact
        self._first_tick = None

    def end_test(self) -> None:
        """Close the operators of a test."""
        while self._open_operators:
            self._open_operators.pop().close()

    def _available(self, tick: int) -> set[int]:
        if self._exact:
            return ROW_MACHINES
        if self._first_tick is None:
            self._first_tick = tick
        return AVAILABILITY[(tick - self._first_tick) // 3 % len(AVAILABILITY)]

    def convert(self, operand: Any) -> Any:
        """Return the coded operator of a matrix, and any other operand unchanged."""
        matrix = operand.A if type(operand) is MatrixLinearOperator else operand
        if not (issparse(matrix) or isinstance(matrix, np.ndarray)):
            return operand
        if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.char not in "?bhilBHILfdFD":
            return operand
        dense = matrix.toarray() if issparse(matrix) else np.asarray(matrix)
        if not np.isfinite(dense).all():
            return operand
        return self.convert_array(dense)

    def convert_array(self, dense: np.ndarray) -> LinearOperator:
        """Return the coded operator of an array; for complex numbers, the sum of two operators."""
        if np.iscomplexobj(dense):
            real = self.convert_array(dense.real)
            return real + 1j * self.convert_array(dense.imag) if dense.imag.any() else real
        dtype = np.dtype(np.float32 if dense.dtype.char == "f" else np.float64)
        self._exact |= dtype == np.float32
        array = np.ascontiguousarray(dense, dtype)
        digest = hashlib.sha256(array.tobytes() + repr((array.shape, dtype, self._exact)).encode())
        store = self._directory / digest.hexdigest()
        with self._lock:
            if not store.exists():
                cec_mpi.encode(array, store, MACHINES, RECOVERY, systematic=self._exact)
        operator = cec_mpi.open_operator(
            store, None, recorder=self._recorder, availability=self._available, speeds=(1, 2, 3)
        ).start()
        self._open_operators.append(operator)
        return operator
