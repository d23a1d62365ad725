"""X on machines that come and go, as the linear operator that SciPy's solvers take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from cec_mpi.core.planner import Scheme
from cec_mpi.runtime.master import Master
from cec_mpi.runtime.options import SpeedsOption
from cec_mpi.runtime.session import Session

__all__ = ["CodedOperator"]


class CodedOperator(LinearOperator):  # type: ignore[misc]  # SciPy has no types
    """X in a coded store, as a SciPy `LinearOperator`.

    Every product is one step: planned for the machines that are available then, computed
    by them, decoded. A block of vectors is one step too. It can be used wherever SciPy
    takes a linear operator, with ``@``, ``.H``, ``.T`` and in sums and products with other
    operators.

    Parameters
    ----------
    session : Session
    master : Master

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64.
    accuracy : float
        Relative error that a product can have: the machine epsilon of the shards times
        the worst condition number of the code.

    Notes
    -----
    With G the generator and P the machines of a block of rows, ``X w`` is decoded from the
    answers of P by the inverse of ``G_P``; for ``X' v`` the master sends each machine its
    part of ``inv(G_P') v`` on these rows, and the answers add up to the result. So both
    take the same machines, assignment and time, and neither needs a second store.
    """

    def __init__(self, session: Session, master: Master) -> None:
        self._session = session
        self._master = master
        self.accuracy = master.accuracy
        super().__init__(master.dtype, master.shape)

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

    @contextmanager
    def open(
        self,
        store: str | os.PathLike[str],
        *,
        speeds: SpeedsOption = "learn",
        scheme: Scheme = "heterogeneous",
    ) -> Iterator[CodedOperator]:
        """A further store, served by the same machines until the end of the ``with``.

        Parameters
        ----------
        store : path
            A machine with a number that it does not have takes no part in it.
        speeds, scheme
            As in `open_operator`.

        Raises
        ------
        CecError
            The store or an option cannot be used, or a shard cannot be opened; this
            operator is as it was.
        """
        with self._session.open_another(store, speeds, scheme) as master:
            yield CodedOperator(self._session, master)

    def _matvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._matmat(x.reshape(-1, 1)) if np.iscomplexobj(x) else self._master.matvec(x)

    def _rmatvec(self, x: NDArray[Any]) -> NDArray[Any]:
        return self._rmatmat(x.reshape(-1, 1)) if np.iscomplexobj(x) else self._master.rmatvec(x)

    def _matmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return _apply(self._master.matmat, np.asarray(X), self.shape[0])

    def _rmatmat(self, X: NDArray[Any]) -> NDArray[Any]:
        return _apply(self._master.rmatmat, np.asarray(X), self.shape[1])


def _apply(product: Callable[..., NDArray[Any]], block: NDArray[Any], rows: int) -> NDArray[Any]:
    """Complex vectors are two real ones, side by side in one step; no vectors need none."""
    if not block.shape[1]:
        return np.empty((rows, 0))
    if not np.iscomplexobj(block):
        return product(block)
    columns = block.shape[1]
    both = product(np.hstack((block.real, block.imag)))
    return both[:, :columns] + 1j * both[:, columns:]
