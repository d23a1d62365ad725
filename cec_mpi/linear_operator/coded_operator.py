"""X on machines that come and go, as the linear operator that SciPy's solvers take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from math import prod
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from cec_mpi.core.masks import reject_masked
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.lifetime import Lifetime
from cec_mpi.store.format.manifest import Manifest


class _MaskCheckingOperator(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """A linear operator that refuses masked entries, whose masks SciPy drops.

    Transposes, sums and products of such operators refuse them, too.
    """

    def matvec(self, x: Any) -> Any:
        return super().matvec(reject_masked("the vector", x))

    def rmatvec(self, x: Any) -> Any:
        return super().rmatvec(reject_masked("the vector", x))

    def matmat(self, X: Any) -> Any:
        return super().matmat(reject_masked("the block of vectors", X))

    def rmatmat(self, X: Any) -> Any:
        return super().rmatmat(reject_masked("the block of vectors", X))

    def dot(self, x: Any) -> Any:
        return _with_mask_check(super().dot(reject_masked("the right factor", x)))

    def __rmul__(self, x: Any) -> Any:
        return _with_mask_check(super().__rmul__(reject_masked("the left factor", x)))

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
        return _unpickle_with_mask_check, (type(self).__mro__[2], vars(self))


def _with_mask_check(made: Any) -> Any:
    """Return what SciPy has made; an operator refuses masked entries from now on."""
    if isinstance(made, LinearOperator) and not isinstance(made, _MaskCheckingOperator):
        kind: Any = type(made)
        made.__class__ = _mask_checking_class(kind)
    return made


def _unpickle_with_mask_check(kind: Any, state: dict[str, Any]) -> Any:
    made = kind.__new__(kind)
    vars(made).update(state)
    return _with_mask_check(made)


@cache
def _mask_checking_class(kind: Any) -> Any:
    return type(kind.__name__, (_MaskCheckingOperator, kind), {})


class _SingleStoreError(InputError, AttributeError):
    """An attribute that operators do not have, so that `hasattr` is False."""


class CodedOperator(_MaskCheckingOperator):
    """X in a coded store, as a SciPy `LinearOperator`.

    Each product is one step: rank 0 plans it for the machines that are available, they compute, and
    rank 0 decodes. A block of vectors is one step too, and so is a batch of vectors or blocks
    (SciPy 1.18 and newer). X can be used wherever SciPy takes a linear operator, with ``@``,
    ``.H``, ``.T`` and in sums and products with other operators.

    The machines start when they are needed first, when `start` is called, or when a ``with``
    begins. They leave when `close` is called or the ``with`` ends, when the operator is deleted,
    and at the end of the program.

    Parameters
    ----------
    lifetime : Lifetime
    manifest : Manifest
    path : path
        The store, as it was given.
    closes : bool
        Whether `close` closes it; otherwise it raises `InputError`.

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64.
    accurate_along : tuple of str
        "rows" if the error of each entry of ``X w`` is relative to the entries of its own row, and
        "columns" if that of ``X' v`` is so for its column. A store of copies has both, a code has
        "rows" if rows were scaled, otherwise "columns".
    column_names : tuple of str
        Names of the columns of X in the store; empty if it has none.
    args : tuple
        Empty, because the operator is not a sum or product of other operators.

    Notes
    -----
    With G the generator and P the machines of a block of rows, ``X w`` is decoded from the
    answers of P with the inverse of ``G_P``. For ``X' v`` the master sends each machine its
    part of ``inv(G_P') v`` on these rows, and the sum of the answers is the result. So both
    products take the same machines, assignment and time, and need only one store.
    """

    args: tuple[LinearOperator, ...] = ()

    def __init__(
        self,
        lifetime: Lifetime,
        manifest: Manifest,
        path: str | os.PathLike[str],
        closes: bool = True,
    ) -> None:
        self._lifetime, self._closes = lifetime, closes
        self._manifest, self._path = manifest, path
        self.column_names = manifest.column_names
        self.accurate_along = manifest.accurate_along
        super().__init__(np.dtype(np.float64), (manifest.rows, manifest.columns))

    def start(self) -> Self:
        """Start the machines now, instead of with the first product; returns this operator.

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
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lifetime.close(error)

    @property
    def attainable(self) -> float:
        """Usual difference between two products with the same vector if other machines answer.

        It is relative to the norm of X. With ``precision="shard"`` products always have this error.
        A solver may not reach a tolerance below it.
        """
        return self._lifetime.master.attainable

    @property
    def accuracy(self) -> float:
        """Possible error of a product with the machines of the last step.

        It is relative to the size of the terms, ``norm(c * w)`` with c the largest entry of each
        column of X; times the `cancellation` of a step's record it is relative to the result. It is
        the machine epsilon of the shards, or 8 times that of the arithmetic if that is larger,
        times the largest condition number with which the last step was decoded. Before the first
        step it has the worst condition number of the code, which for many machines is the worst
        that a search has found.
        """
        return self._lifetime.master.accuracy

    @property
    def available(self) -> tuple[int, ...]:
        """Numbers of the machines that are available to the next step.

        Assign machine numbers to make them available from the next step on. Assign None to return
        to the availability with which the operator was opened.
        """
        return self._lifetime.session.schedule.available

    @available.setter
    def available(self, machines: Iterable[int] | None) -> None:
        self._lifetime.session.schedule.choose(machines)

    @property
    def pids(self) -> dict[int, int]:
        """Process number of each machine on its host: ``os.kill(X.pids[2], 9)`` ends machine 2.

        The numbers are those after the last step. Empty if the machines are ranks of MPI, or are in
        this process.
        """
        return self._lifetime.session.pids

    @property
    def open(self) -> NoReturn:
        """Raise: an operator serves one store."""
        raise _SingleStoreError(
            "an operator serves one store: open_operator(store) opens an operator for each store"
        )

    def close(self) -> None:
        """Make the machines leave: the operator cannot be used any more.

        Closing it again does nothing. Products for which other threads wait raise `InputError`.

        Raises
        ------
        InputError
            A step or a forked process calls it, or the operator belongs to a run of ``cec-mpi``.
        """
        if not self._closes:
            raise InputError("a task cannot close its operator: the run closes it")
        if self._lifetime.has_started:
            self._lifetime.session.turns.check()
        self._lifetime.close()

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x, length = np.asarray(x), self.shape[1]
        if x.shape in ((length,), (length, 1)) and x.dtype.kind != "c":
            return self._make_step(self._lifetime.master.matvec, x)
        return self._apply(False, x, -1)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x, length = np.asarray(x), self.shape[0]
        if x.shape in ((length,), (length, 1)) and x.dtype.kind != "c":
            return self._make_step(self._lifetime.master.rmatvec, x)
        return self._apply(True, x, -1)

    def _make_step(self, product: Callable[[Any], NDArray[Any]], factor: Any) -> NDArray[Any]:
        return self._lifetime.session.make_step(product, factor)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(False, np.asarray(X), -2)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(True, np.asarray(X), -2)

    def _transpose(self) -> Any:  # X is real; SciPy would conjugate vectors of any dtype
        return self._adjoint()

    def _apply(self, adjoint: bool, vectors: NDArray[Any], axis: int) -> NDArray[Any]:
        """Multiply all vectors along an axis in one step; without vectors no step is made.

        A complex vector is sent as two real vectors.
        """
        if axis == -1 and vectors.shape == (self.shape[not adjoint], 1):
            vectors = vectors[:, 0]
        if vectors.ndim < -axis:
            raise InputError("a product with a sparse matrix or a number: expected an array")
        block = np.moveaxis(vectors, axis, 0)
        batch = block.shape[1:]
        columns = prod(batch)
        block = block.reshape(len(block), columns)
        is_complex = np.iscomplexobj(block)
        if not columns:
            result = np.empty((self.shape[adjoint], 0), complex if is_complex else float)
        else:
            if is_complex:
                block = np.hstack((block.real, block.imag))
            master = self._lifetime.master
            result = self._make_step(master.rmatmat if adjoint else master.matmat, block)
            if is_complex:
                result = result[:, :columns] + 1j * result[:, columns:]
        return np.moveaxis(result.reshape(len(result), *batch), 0, axis)

    def __repr__(self) -> str:
        manifest = self._manifest
        rows, columns = self.shape
        return (
            f"<{rows}x{columns} CodedOperator with dtype={self.dtype}, store "
            f"{str(self._path)!r}, any {manifest.enough} of "
            f"{manifest.code.machines} machines, {self._state()}>"
        )

    def _state(self) -> str:
        if self._lifetime.closed:
            return "closed"
        if not self._lifetime.has_started:
            return "not started"
        available = self._lifetime.session.schedule.static_available
        if available is None:
            return "available machines given by a function"
        return f"available {','.join(map(str, available)) or 'none'}"

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "an operator cannot be pickled or copied: its machines serve this process only; "
            "use threads instead of processes"
        )
