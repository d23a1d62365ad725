"""The master: plans each step, exchanges it, decodes the answers, records what happened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.planner import Plan, Planner
from cec_mpi.core.rounding import (
    answer_error,
    decode_error_bound,
    encoding_error,
    likely_scale,
)
from cec_mpi.core.speeds import Speeds, hindsight_makespan
from cec_mpi.errors import InputError
from cec_mpi.records import Recorder
from cec_mpi.runtime.buffers import Buffers, block_of, checked_out, column, take
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.exchange import Answers, Product
from cec_mpi.runtime.step import CannotEnd, Step
from cec_mpi.store.manifest import Manifest

__all__ = ["Master", "Multiplied", "shard_errors"]

Floats = NDArray[np.float64]


class Master(ABC):
    """X on machines that come and go: its products with vectors and blocks of vectors.

    Parameters
    ----------
    close : callable
        Tells the machines that they need not serve this store any more.
    manifest : Manifest
        Of the store that the machines opened.
    planner : Planner
    speeds : Speeds
        Of machines 1..N.
    schedule : Schedule
        Who is available at each step.
    recorder : Recorder
    store : int
        Which of the session's stores this is, for the records.

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64: answers are decoded in double precision whatever the shards are.
    accuracy : float
        Relative error that products can have: the machine epsilon of the shards times the
        worst condition number of the code.
    manifest : Manifest
        Of the store.
    """

    def __init__(
        self,
        close: Callable[[], None],
        manifest: Manifest,
        planner: Planner,
        speeds: Speeds,
        schedule: Schedule,
        recorder: Recorder,
        store: int,
    ) -> None:
        import scipy.linalg  # noqa: F401 - now, so that the first decoder does not wait for it

        self.shape = (manifest.rows, manifest.columns)
        self.dtype = np.dtype(np.float64)
        self.accuracy = manifest.code.conditioning.worst * float(np.finfo(manifest.dtype).eps)
        self.recorder = recorder
        self.speeds = speeds
        self.manifest = manifest
        self._tell_closed = close
        self._planner = planner
        self._schedule = schedule
        self._store = store
        code = manifest.code
        self._answer_error = float(
            answer_error(
                code.generator, manifest.dtype, manifest.columns, shard_errors(manifest)
            ).max()
        )
        self._reach = 0.0  # the largest scale of X W so far, over norm(W)
        self._closed = False
        self._plan: Plan | None = None
        self._buffers: dict[int, Buffers] = {}

    def matvec(self, w: ArrayLike, out: Floats | None = None) -> Floats:
        """Compute y = X w on the machines that are available now: one step.

        Parameters
        ----------
        w : (r,) or (r, 1) array_like
            Real and finite.
        out : (q,) ndarray of float64, optional
            Receives y; without it a new array does.

        Returns
        -------
        (q,) ndarray of float64

        Raises
        ------
        InputError
            w has another shape, or is not finite in the dtype of the shards.
        InfeasibleError
            Too few machines are available.
        MachineError
            A machine failed.
        """
        return self._until_it_ends(self._forward, "w", column("w", w, self.shape[1]), out)[:, 0]

    def rmatvec(self, v: ArrayLike, out: Floats | None = None) -> Floats:
        """Compute X' v: one step with the assignment, the load and the time of X w.

        Parameters
        ----------
        v : (q,) or (q, 1) array_like
            Real and finite.
        out : (r,) ndarray of float64, optional

        Returns
        -------
        (r,) ndarray of float64

        Raises
        ------
        InputError, InfeasibleError, MachineError
            As `matvec`.
        """
        return self._until_it_ends(self._adjoint, "v", column("v", v, self.shape[0]), out)[:, 0]

    def matmat(self, W: ArrayLike) -> Floats:
        """Compute X W for all columns of W in one step.

        Parameters
        ----------
        W : (r, k) array_like
            Real and finite.

        Returns
        -------
        (q, k) ndarray of float64

        Raises
        ------
        InputError, InfeasibleError, MachineError
            As `matvec`.
        """
        return self._until_it_ends(self._forward, "W", block_of("W", W, self.shape[1]), None)

    def rmatmat(self, V: ArrayLike) -> Floats:
        """Compute X' V for all columns of V in one step.

        Parameters
        ----------
        V : (q, k) array_like
            Real and finite.

        Returns
        -------
        (r, k) ndarray of float64

        Raises
        ------
        InputError, InfeasibleError, MachineError
            As `matvec`.
        """
        return self._until_it_ends(self._adjoint, "V", block_of("V", V, self.shape[0]), None)

    def close(self) -> None:
        """Make no more steps with this store."""
        if not self._closed:
            self._closed = True
            self._tell_closed()

    def _until_it_ends(
        self,
        product: Callable[[str, NDArray[Any], Floats | None], Floats],
        name: str,
        block: NDArray[Any],
        out: Floats | None,
    ) -> Floats:
        """Make a step, and if machines are waited for another one where it cannot end."""
        while True:
            try:
                return product(name, block, out).reshape(-1, block.shape[1])
            except CannotEnd:
                if not self._schedule.waits:
                    raise

    def _forward(self, name: str, W: NDArray[Any], out: Floats | None) -> Floats:
        """X W; W of shape (r, k)."""
        columns = W.shape[1]
        out = checked_out(out, self.shape[0])
        buffers = self._buffers_for(columns)
        take(name, W, buffers.shared.T, buffers.finite.T)
        step = self._begin(Product(False, columns))
        with np.errstate(over="ignore", invalid="ignore"):
            length = float(np.linalg.norm(buffers.shared))
            length = length if np.isfinite(length) else 0.0  # only this step tells then
            done = self._multiply(step, buffers, self._reach * length)
            bound = self._error_bound(done, buffers, length)
        self._end_of(step, done, bound)
        y = buffers.product[: self.shape[0]]
        if out is None:
            return y.copy()
        np.copyto(out, y[:, 0])
        return out

    def _adjoint(self, name: str, V: NDArray[Any], out: Floats | None) -> Floats:
        """X' V; V of shape (q, k)."""
        rows, columns = V.shape
        out = checked_out(out, self.shape[1])
        buffers = self._buffers_for(columns)
        take(name, V, buffers.product[:rows])
        buffers.product[rows:] = 0
        step = self._begin(Product(True, columns))
        with step.timed("code"), np.errstate(over="ignore"):
            buffers.prepare(step.plan)
            buffers.codec.coefficients(buffers.parts, buffers.coded)
        if not np.isfinite(buffers.coded, out=buffers.good).all():
            raise InputError(f"{name} is too large: its coded numbers overflow {self._dtype}")
        done = self._multiply_transposed(step, buffers)
        self._end_of(step, done)
        answers = done.answers
        if out is None:
            return answers.values.reshape(-1, columns).copy()
        np.copyto(out, answers.values)
        return out

    @abstractmethod
    def _multiply(self, step: Step, buffers: Buffers, scale: float) -> Multiplied:
        """From what is shared to the parts of X W, whose rounding has at least this scale."""

    @abstractmethod
    def _multiply_transposed(self, step: Step, buffers: Buffers) -> Multiplied:
        """From the coefficients of the machines to X' V, as the values of the answers."""

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("this operator is closed: its machines have left")

    def _begin(self, product: Product) -> Step:
        self._check_open()
        moment = self._schedule.next(self._planner.copies, self.manifest.code.machines)
        speeds = self.speeds.plan_speeds(moment.available)
        plan = self._planner.plan(moment.available, speeds)
        return Step(product, moment, plan, plan is not self._plan)

    def begun(self, step: Step) -> None:
        """The machines have heard of it: what was refused before has made no step."""
        self._schedule.taken(step.moment)
        self._plan = step.plan

    def _error_bound(self, done: Multiplied, buffers: Buffers, length: float) -> float:
        """Of X W: rounding can be as large as in any step so far, for a W as long as this."""
        sizes = buffers.work.reshape(buffers.parts.shape)
        scale = likely_scale(buffers.parts, sizes)
        if length:
            self._reach = max(self._reach, scale / length)
        errors = [self._answer_error] * len(sizes)
        largest, scale = float(sizes.max()), max(scale, self._reach * length)
        return decode_error_bound(done.condition, done.gain, errors, largest, scale)

    def _end_of(self, step: Step, done: Multiplied, error_bound: float | None = None) -> None:
        """Record a step, and learn from it."""
        answers, rows = done.answers, done.rows
        available = step.moment.available
        manifest, kind = self.manifest, step.product
        self.recorder.step(
            step.record(
                answers,
                store=self._store,
                rows=rows,
                predicted_makespan=self.speeds.predict(kind, rows),
                bound=self.speeds.bound(kind, available),
                hindsight_makespan=hindsight_makespan(
                    rows,
                    answers.seconds,
                    self._planner.copies,
                    manifest.rows_per_shard,
                ),
                condition=done.condition,
                error_bound=error_bound,
            )
        )
        self.speeds.observe(kind, rows, answers.seconds)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(self.manifest.dtype)

    def _buffers_for(self, columns: int) -> Buffers:
        """Arrays for products with this many columns; those of one and of the last are kept."""
        if columns not in self._buffers:
            self._buffers = {kept: b for kept, b in self._buffers.items() if kept == 1}
            self._buffers[columns] = Buffers(self.manifest, columns)
        return self._buffers[columns]


class Multiplied(NamedTuple):
    """What a product came to.

    Attributes
    ----------
    answers : Answers
        What the machines did; for X' V with the result.
    condition, gain : float
        The largest condition number, and norm of an inverse, that was decoded with.
    rows : list of int
        That machines 1..N computed.
    """

    answers: Answers
    condition: float
    gain: float
    rows: list[int]


def shard_errors(manifest: Manifest) -> NDArray[np.float64]:
    """Error bounds of the shards, (N,): of encoding, or of what was rebuilt from others."""
    rebuilt = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in manifest.shards]
    return np.maximum(encoding_error(manifest.code.generator, manifest.dtype), rebuilt)
