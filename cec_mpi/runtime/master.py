"""The master: plans each step, exchanges it, decodes the answers, records what happened."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.codec import Codec
from cec_mpi.core.planner import Plan, Planner
from cec_mpi.core.speeds import Speeds, hindsight_makespan
from cec_mpi.errors import InputError, MachineError
from cec_mpi.records import Recorder
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.exchange import Answers, MasterEnd, Product
from cec_mpi.runtime.step import Step
from cec_mpi.store.manifest import Manifest

__all__ = ["Master"]

Floats = NDArray[np.float64]


class Master:
    """X on machines that come and go: its products with vectors and blocks of vectors.

    Parameters
    ----------
    manifest : Manifest
        Of the store that the machines opened.
    end : MasterEnd
        The wire.
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
    """

    def __init__(
        self,
        manifest: Manifest,
        end: MasterEnd,
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
        self._manifest = manifest
        self._end = end
        self._planner = planner
        self._schedule = schedule
        self._store = store
        self._closed = False
        self._plan: Plan | None = None
        self._rows: list[int] = []
        self._buffers: dict[int, _Buffers] = {}

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
        return self._forward("w", _column("w", w, self.shape[1]), out).reshape(-1)

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
        return self._adjoint("v", _column("v", v, self.shape[0]), out).reshape(-1)

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
        return self._forward("W", _block("W", W, self.shape[1]), None)

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
        return self._adjoint("V", _block("V", V, self.shape[0]), None)

    def close(self) -> None:
        """Make no more steps with this store."""
        if not self._closed:
            self._closed = True
            self._end.close()

    def _forward(self, name: str, W: NDArray[Any], out: Floats | None) -> Floats:
        """X W; W of shape (r, k)."""
        columns = W.shape[1]
        out = _checked_out(out, self.shape[0])
        buffers = self._buffers_for(columns)
        _take(name, W, buffers.shared.T, buffers.finite.T)
        step = self._begin(Product(False, columns))
        self._announce(step)
        step.share(buffers.shared)
        answers = step.collect(meanwhile=lambda: buffers.prepare(step.plan))
        self._check(step, answers, buffers)
        with step.coding(), np.errstate(over="ignore", invalid="ignore"):
            buffers.codec.decode(answers.values, buffers.parts)
        self._end_of(step, answers, buffers)
        y = buffers.product[: self.shape[0]]
        if out is None:
            return y.copy()
        np.copyto(out, y[:, 0])
        return out

    def _adjoint(self, name: str, V: NDArray[Any], out: Floats | None) -> Floats:
        """X' V; V of shape (q, k)."""
        rows, columns = V.shape
        out = _checked_out(out, self.shape[1])
        buffers = self._buffers_for(columns)
        _take(name, V, buffers.product[:rows])
        buffers.product[rows:] = 0
        step = self._begin(Product(True, columns))
        with step.coding(), np.errstate(over="ignore"):
            buffers.prepare(step.plan)
            buffers.codec.coefficients(buffers.parts, buffers.coded)
        if not np.isfinite(buffers.coded, out=buffers.good).all():
            raise InputError(f"{name} is too large: its coded numbers overflow {self._dtype}")
        self._announce(step)
        step.share(buffers.coded)
        answers = step.collect()
        self._check(step, answers, buffers)
        self._end_of(step, answers, buffers)
        if out is None:
            return answers.values.reshape(-1, columns).copy()
        np.copyto(out, answers.values)
        return out

    def _begin(self, product: Product) -> Step:
        if self._closed:
            raise InputError("this operator is closed: its machines have left")
        moment = self._schedule.next(self._planner.copies, self._manifest.code.machines)
        speeds = self.speeds.plan_speeds(moment.available)
        plan = self._planner.plan(moment.available, speeds)
        return Step(self._end, product, moment, plan, plan is not self._plan)

    def _announce(self, step: Step) -> None:
        """From here on it counts: what was refused before has made no step."""
        step.announce()
        self._schedule.taken(step.moment)
        if step.plan is not self._plan:
            self._rows = step.plan.assignment.counts(self._manifest.code.machines).tolist()
            self._plan = step.plan

    def _end_of(self, step: Step, answers: Answers, buffers: _Buffers) -> None:
        """Record a step, and learn from it."""
        available = step.moment.available
        manifest, kind = self._manifest, step.product
        self.recorder.step(
            step.record(
                answers,
                store=self._store,
                rows=self._rows,
                predicted_makespan=self.speeds.predict(kind, self._rows),
                bound=self.speeds.bound(kind, available),
                hindsight_makespan=hindsight_makespan(
                    self._rows,
                    answers.seconds,
                    self._planner.copies,
                    manifest.rows_per_shard,
                ),
                condition=buffers.codec.condition,
            )
        )
        self.speeds.observe(kind, self._rows, answers.seconds)

    def _check(self, step: Step, answers: Answers, buffers: _Buffers) -> None:
        if answers.failed:
            reports = self._end.reports()
            told = [f"machine {n}: {reports.get(n, 'no report')}" for n in answers.failed]
            raise MachineError(f"step {step.number} failed on {'; '.join(told)}")
        values = answers.values
        if step.product.adjoint:
            if not np.isfinite(values).all():
                raise MachineError(
                    f"the machines' answers to step {step.number} are not finite: X' v is too "
                    f"large for {self._dtype}, or an answer was short"
                )
        elif not np.isfinite(values, out=buffers.good).all():
            position = int(np.flatnonzero(~buffers.good)[0])
            ends = np.cumsum(self._rows) * step.product.columns
            machine = int(np.searchsorted(ends, position, side="right")) + 1
            raise MachineError(
                f"machine {machine} answered {values[position]} in step {step.number}: "
                f"X w is too large for {self._dtype}, or the answer was short"
            )

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(self._manifest.dtype)

    def _buffers_for(self, columns: int) -> _Buffers:
        """Arrays for products with this many columns; those of one and of the last are kept."""
        if columns not in self._buffers:
            self._buffers = {kept: b for kept, b in self._buffers.items() if kept == 1}
            self._buffers[columns] = _Buffers(self._manifest, columns)
        return self._buffers[columns]


class _Buffers:
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
        self._work = np.empty(size)
        self._code = manifest.code
        self._columns = columns
        self._plan: Plan | None = None

    def prepare(self, plan: Plan) -> None:
        """Have the codec of this plan."""
        if plan is not self._plan:
            self.codec = Codec(plan, self._code, self._columns, self._work)
            self._plan = plan


def _column(name: str, vector: ArrayLike, length: int) -> NDArray[Any]:
    array = np.asarray(vector)
    if array.shape not in ((length,), (length, 1)):
        raise InputError(f"{name} has shape {array.shape}: expected ({length},)")
    return array.reshape(length, 1)


def _block(name: str, block: ArrayLike, length: int) -> NDArray[Any]:
    array = np.asarray(block)
    if array.ndim != 2 or array.shape[0] != length or not array.shape[1]:
        raise InputError(f"{name} has shape {array.shape}: expected ({length}, k), k at least 1")
    return array


def _take(
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


def _checked_out(out: Floats | None, length: int) -> Floats | None:
    if out is not None and (out.shape != (length,) or out.dtype != np.float64):
        raise InputError(
            f"out has shape {out.shape} and dtype {out.dtype}: expected ({length},) of float64"
        )
    return out
