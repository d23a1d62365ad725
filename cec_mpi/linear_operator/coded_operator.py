"""X on machines that join and leave, as a SciPy linear operator."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from functools import cache
from math import prod
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.arrays import accept_device_arrays
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.store.format.manifest import Manifest


class _MaskCheckingOperator(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """A linear operator that raises for masked arrays, because SciPy would ignore the masks.

    So do its transpose, and sums and products with other operators. Products with arrays of torch,
    CuPy and JAX are arrays of the same library. NumPy cannot convert the operator to an array.
    """

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise InputError(
            "an operator cannot be converted to an array: cec_mpi.decode writes the matrix of a "
            f"store to a file, and X @ numpy.eye({self.shape[1]}) computes it"
        )

    @accept_device_arrays
    def matvec(self, x: Any) -> Any:
        return super().matvec(reject_masked("the vector", x))

    @accept_device_arrays
    def rmatvec(self, x: Any) -> Any:
        return super().rmatvec(reject_masked("the vector", x))

    @accept_device_arrays
    def matmat(self, X: Any) -> Any:
        return super().matmat(reject_masked("the block of vectors", X))

    @accept_device_arrays
    def rmatmat(self, X: Any) -> Any:
        return super().rmatmat(reject_masked("the block of vectors", X))

    @accept_device_arrays
    def dot(self, x: Any) -> Any:
        return _with_mask_check(super().dot(_reject_masked_factor("the right factor", x)))

    @accept_device_arrays
    def __rmul__(self, x: Any) -> Any:
        return _with_mask_check(super().__rmul__(_reject_masked_factor("the left factor", x)))

    def __add__(self, x: Any) -> Any:
        return _with_mask_check(super().__add__(x))

    def __neg__(self) -> Any:
        return _with_mask_check(super().__neg__())

    def __truediv__(self, other: Any) -> Any:
        return _with_mask_check(super().__truediv__(other))

    def __pow__(self, p: Any) -> Any:
        return _with_mask_check(super().__pow__(p))

    def _adjoint(self) -> Any:
        return _with_mask_check(super()._adjoint())

    def _transpose(self) -> Any:
        return _with_mask_check(super()._transpose())

    def __reduce__(self) -> Any:
        return _unpickle_with_mask_check, (type(self).__mro__[2], vars(self))  # SciPy's class


def _reject_masked_factor(name: str, factor: Any) -> Any:
    return factor if isinstance(factor, LinearOperator) else reject_masked(name, factor)


def _with_mask_check(result: Any) -> Any:
    """Return SciPy's result; if it is an operator, make it reject masked arrays."""
    if isinstance(result, LinearOperator) and not isinstance(result, _MaskCheckingOperator):
        operator_class: Any = type(result)
        result.__class__ = _mask_checking_class(operator_class)
    return result


def _unpickle_with_mask_check(operator_class: Any, state: dict[str, Any]) -> Any:
    result = operator_class.__new__(operator_class)
    vars(result).update(state)
    return _with_mask_check(result)


@cache
def _mask_checking_class(operator_class: Any) -> Any:
    return type(operator_class.__name__, (_MaskCheckingOperator, operator_class), {})


class _SingleStoreError(InputError, AttributeError):
    """An operator has no attribute `open`; `hasattr` returns False."""


class CodedOperator(_MaskCheckingOperator):
    """X in a coded store, as a SciPy `LinearOperator`.

    Each product is one step: rank 0 plans it for the available machines, they compute, and rank 0
    decodes. A block of vectors is also one step, and so is a batch of vectors or blocks (SciPy 1.18
    and newer). X can be used wherever SciPy accepts a linear operator, with ``@``, ``.H``, ``.T``
    and in sums and products with other operators.

    The machines start with the first product, when `start` is called, or when a ``with`` statement
    begins. They stop when `close` is called, when the ``with`` statement ends, when the operator is
    deleted, and at the end of the program.

    Parameters
    ----------
    lifetime : Lifetime
    manifest : Manifest
    path : path
        Path of the store, for `repr`.
    can_close : bool
        Whether `close` is allowed; otherwise it raises `InputError`.

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64.
    accurate_along : tuple of str
        Contains "rows" if the error of each entry of ``X w`` is relative to the entries of its row
        of X, and "columns" if the error of each entry of ``X' v`` is relative to its column. A
        store of copies has both. A code has "rows" if rows were scaled, otherwise "columns".
    column_names : tuple of str
        Names of the columns of X in the store; empty if it has none.
    args : tuple
        Empty, because the operator is not a sum or product of other operators.

    Notes
    -----
    With G the generator and P the machines of a block of rows, ``X w`` is decoded from the
    answers of P with the inverse of ``G_P``. For ``X' v`` the master sends each machine its
    part of ``inv(G_P') v`` on these rows, and the sum of the answers is the result. Both products
    therefore use the same store, machines and assignment, and take the same time.
    """

    args: tuple[LinearOperator, ...] = ()

    def __init__(
        self,
        lifetime: Lifetime,
        manifest: Manifest,
        path: str | os.PathLike[str],
        can_close: bool = True,
    ) -> None:
        self._lifetime, self._can_close = lifetime, can_close
        self._manifest, self._path = manifest, path
        self.column_names = manifest.column_names
        self.accurate_along = manifest.accurate_along
        super().__init__(np.dtype(np.float64), (manifest.rows, manifest.columns))

    def start(self) -> Self:
        """Start the machines before the first product; return this operator.

        Raises
        ------
        CecError
            The machines cannot be started, or cannot open the store.
        """
        self._lifetime.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lifetime.close(error)

    @property
    def attainable_tol(self) -> float:
        """Typical difference between products with the same vector from different machines.

        It is relative to the norm of X. With ``precision="shard"`` products always have this error.
        A solver may not reach a tolerance below it.
        """
        return self._lifetime.master.attainable_tol

    @property
    def product_error(self) -> float:
        """Estimated error of a product with the machines of the last step.

        It is relative to the magnitude of the terms, ``norm(c * w)`` with c the largest entry of
        each column of X; multiplied by the `cancellation` in a step's record, it is relative to the
        result. It is ``max(e, 8 * a)`` times the largest condition number in the decoding of the
        last step, with e and a the machine epsilons of the shards and of the arithmetic. Before the
        first step, it uses the worst condition number of the code, estimated from a sample if there
        are many sets of L machines.
        """
        return self._lifetime.master.product_error

    @property
    def available(self) -> tuple[int, ...]:
        """Numbers of the machines that are available for the next step.

        Assign machine numbers to set the available machines from the next step on. Assign None to
        restore the availability given to `open_operator`.
        """
        return self._lifetime.session.schedule.available

    @available.setter
    def available(self, machines: Iterable[int] | None) -> None:
        self._lifetime.session.schedule.set_available(machines)

    @property
    def pids(self) -> dict[int, int]:
        """Process ID of each machine on its node: ``os.kill(X.pids[2], 9)`` kills machine 2.

        It is updated after each step. It is empty if the machines are MPI ranks or run in this
        process.
        """
        return self._lifetime.session.pids

    @property
    def open(self) -> NoReturn:
        """Not supported: an operator serves one store."""
        raise _SingleStoreError(
            "an operator serves one store: open_operator(store) opens an operator for each store"
        )

    def close(self) -> None:
        """Stop the machines; the operator cannot be used afterwards.

        Later calls do nothing. Pending products of other threads raise `InputError`.

        Raises
        ------
        InputError
            It is called from a step or a forked process, or the operator belongs to a run of
            ``cec-mpi``.
        """
        if not self._can_close:
            raise InputError("a task cannot close its operator, because the run closes it")
        if self._lifetime.has_started:
            self._lifetime.session.lock.check()
        self._lifetime.close()

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._apply(np.asarray(x), axis=-1)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._apply(np.asarray(x), axis=-1, adjoint=True)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(np.asarray(X), axis=-2)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(np.asarray(X), axis=-2, adjoint=True)

    def _transpose(self) -> Any:  # X is real; SciPy would conjugate vectors of any dtype
        return self._adjoint()

    def _apply(self, vectors: NDArray[Any], axis: int, adjoint: bool = False) -> NDArray[Any]:
        """Multiply vectors that lie along `axis` in one step, or in no step if there are none.

        A complex vector becomes two real vectors.
        """
        length, is_complex = self.shape[not adjoint], np.iscomplexobj(vectors)
        if axis == -1 and vectors.shape == (length, 1):
            vectors = vectors[:, 0]
        if axis == -1 and vectors.shape == (length,) and not is_complex:
            master, session = self._lifetime.master, self._lifetime.session
            return session.run_step(master.rmatvec if adjoint else master.matvec, vectors)
        if vectors.ndim < -axis:
            raise InputError("found a sparse matrix or a number as a factor, expected an array")
        block = np.moveaxis(vectors, axis, 0)
        batch_shape = block.shape[1:]
        columns = prod(batch_shape)
        block = block.reshape(len(block), columns)
        if not columns:
            result = np.empty((self.shape[adjoint], 0), complex if is_complex else float)
        else:
            if is_complex:
                block = np.hstack((block.real, block.imag))
            master, session = self._lifetime.master, self._lifetime.session
            result = session.run_step(master.rmatmat if adjoint else master.matmat, block)
            if is_complex:
                result = result[:, :columns] + 1j * result[:, columns:]
        return np.moveaxis(result.reshape(len(result), *batch_shape), 0, axis)

    def __repr__(self) -> str:
        manifest = self._manifest
        rows, columns = self.shape
        return (
            f"<{rows}x{columns} CodedOperator with dtype={self.dtype}, store "
            f"{str(self._path)!r}, any {manifest.sufficient_machines} of "
            f"{manifest.code.machines} machines, {self._describe_state()}>"
        )

    def _repr_html_(self) -> str:
        """Return a table with the shape, the store and the states of the machines."""
        machines, (rows, columns) = self._manifest.code.machines, self.shape
        properties = {
            "X": f"{rows} x {columns} {self.dtype}",
            "store": str(self._path),
            "machines": f"{machines}, any {self._manifest.sufficient_machines} of which suffice",
        }
        if self._lifetime.closed or not self._lifetime.has_started:
            properties["state"] = self._describe_state()
        else:
            states = self._lifetime.session.schedule.states(machines)
            for state in sorted(set(states.values())):
                properties[state] = ", ".join(str(n) for n in states if states[n] == state)
        lines = "".join(
            f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>"
            for name, value in properties.items()
        )
        return f"<table>{lines}</table>"

    def _describe_state(self) -> str:
        if self._lifetime.closed:
            return "closed"
        if not self._lifetime.has_started:
            return "not started"
        available = self._lifetime.session.schedule.static_available
        if available is None:
            return "available machines set by a function"
        return f"available {','.join(map(str, available)) or 'none'}"

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "an operator cannot be pickled or copied, because its machines serve only this "
            "process: use threads instead of processes"
        )
