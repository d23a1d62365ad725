"""X on machines that come and go, as the linear operator that SciPy's solvers take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from cec_mpi.core.plan.assignment import Scheme
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.opening import Entrance
from cec_mpi.master.master import Master
from cec_mpi.options.sharing import SpeedsOption
from cec_mpi.session.session import Session


class CodedOperator(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """X in a coded store, as a SciPy `LinearOperator`.

    Every product is one step: planned for the machines that are available then, computed
    by them, decoded. A block of vectors is one step too, and so is a batch of vectors or
    blocks, which SciPy 1.18 and newer take. It can be used wherever SciPy takes a linear
    operator, with ``@``, ``.H``, ``.T`` and in sums and products with other operators.

    Parameters
    ----------
    session : Session
    master : Master
    close : callable, optional
        What `close` does; without it only what has made the operator closes it.

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64.
    attainable : float
        What products with the same vector usually differ by, relative to the norm of X, when
        other machines answer, or with ``precision="shard"`` always: a tolerance below it may not
        be met.
    column_names : tuple of str
        As the store keeps them; empty where it has none.
    args : tuple
        Empty: it is no sum or product of other operators.

    Notes
    -----
    With G the generator and P the machines of a block of rows, ``X w`` is decoded from the
    answers of P by the inverse of ``G_P``; for ``X' v`` the master sends each machine its
    part of ``inv(G_P') v`` on these rows, and the answers add up to the result. So both
    take the same machines, assignment and time, and neither needs a second store.
    """

    args: tuple[LinearOperator, ...] = ()

    def __init__(
        self, session: Session, master: Master, close: Callable[[], None] | None = None
    ) -> None:
        self._session = session
        self._master = master
        self._close = close
        self.attainable = master.attainable
        self.column_names = master.manifest.column_names
        super().__init__(master.dtype, master.shape)

    @property
    def accuracy(self) -> float:
        """Relative error that a product can have, with the machines that were used last.

        The machine epsilon of the shards times the largest condition number that the last step
        decoded with; before the first step times the worst of the code, which for many machines
        is the worst that was found.
        """
        return self._master.accuracy

    @property
    def available(self) -> tuple[int, ...]:
        """Numbers of the machines that the next step finds.

        Set it to any machine numbers, and they are available from the next step on; set it
        to None, and the availability that the operator was opened with is in force again.
        """
        return self._session.schedule.available

    @available.setter
    def available(self, machines: Iterable[int] | None) -> None:
        self._session.schedule.choose(machines)

    @property
    def pids(self) -> dict[int, int]:
        """Process number of each machine on its host: ``os.kill(X.pids[2], 9)`` ends machine 2.

        As the last step has left it. Empty if machines are ranks, or are in this process.
        """
        return self._session.pids

    def open(
        self,
        store: str | os.PathLike[str],
        *,
        speeds: SpeedsOption = "learn",
        scheme: Scheme = "heterogeneous",
    ) -> Entrance[CodedOperator]:
        """A further store, served by the same machines until the end of the ``with``.

        Without a ``with``, ``Y = X.open(store).start()`` opens it, and ``Y.close()`` closes it.

        Parameters
        ----------
        store : path
            A machine with a number that it does not have takes no part in it.
        speeds, scheme
            As in `open_operator`.

        Returns
        -------
        Entrance
            In the ``with``, a `CodedOperator`.

        Raises
        ------
        CecError
            The store or an option cannot be used, or a shard cannot be opened; this
            operator is as it was.
        """

        @contextmanager
        def opened(close: Callable[[], None]) -> Iterator[CodedOperator]:
            with self._session.open_another(store, speeds, scheme) as master:
                yield CodedOperator(self._session, master, close)

        return Entrance(opened, f"X.open({os.fspath(store)!r})")

    def close(self) -> None:
        """Let the machines go, or for a store that `open` opened: make no more steps with it.

        The end of a ``with`` does the same, and closing it again does nothing. Products that
        other threads wait for raise `InputError`.

        Raises
        ------
        InputError
            A step calls it, or a process that was forked, or it is of a run of ``cec-mpi``.
        """
        if self._close is None:
            raise InputError("a task cannot close its operator: the run closes it")
        self._session.turns.check()
        self._close()

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x, length = np.asarray(x), self.shape[1]
        if x.shape in ((length,), (length, 1)) and x.dtype.kind != "c":
            return self._session.turns.run(self._master.matvec, x)
        return self._apply(False, x, -1)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        x, length = np.asarray(x), self.shape[0]
        if x.shape in ((length,), (length, 1)) and x.dtype.kind != "c":
            return self._session.turns.run(self._master.rmatvec, x)
        return self._apply(True, x, -1)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(False, np.asarray(X), -2)

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return self._apply(True, np.asarray(X), -2)

    def _apply(self, adjoint: bool, vectors: NDArray[Any], axis: int) -> NDArray[Any]:
        """To all vectors along an axis in one step; no vectors need none.

        Complex vectors are two real ones, side by side.
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
            product = self._master.rmatmat if adjoint else self._master.matmat
            result = self._session.turns.run(product, block)
            if is_complex:
                result = result[:, :columns] + 1j * result[:, columns:]
        return np.moveaxis(result.reshape(len(result), *batch), 0, axis)

    def __repr__(self) -> str:
        code = self._master.manifest.code
        available = self._session.schedule.known
        if self._session.ended or self._master.closed:
            state = "closed"
        elif available is None:
            state = "available machines given by a function"
        else:
            state = f"available {','.join(map(str, available)) or 'none'}"
        rows, columns = self.shape
        return (
            f"<{rows}x{columns} CodedOperator with dtype={self.dtype}, store "
            f"{str(self._master.path)!r}, any {code.recovery} of {code.machines} machines, {state}>"
        )

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "an operator cannot be pickled or copied: its machines serve this process only; "
            "use threads instead of processes"
        )
