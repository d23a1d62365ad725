"""The master: plans each step, asks machines, decodes their answers, records what happened."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.rounding import answer_error
from cec_mpi.core.accuracy.vectors import Scales, cancellation, max_abs_of_columns, scale_by_powers
from cec_mpi.errors import InputError, MachineError, ScaleWarning
from cec_mpi.runtime.master.buffers import Buffers, as_block, check_out, column
from cec_mpi.runtime.master.elastic import ElasticExecutor
from cec_mpi.runtime.master.lockstep import LockstepExecutor
from cec_mpi.runtime.master.planning import OpenStore
from cec_mpi.runtime.master.postponed import PostponedWarnings
from cec_mpi.runtime.master.step import ProductResult, Step, StepInfeasibleError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import JobsEndpoint
from cec_mpi.runtime.wire.protocol import LockstepEndpoint
from cec_mpi.text import join_names

Floats = NDArray[np.float64]

_HUGE = 1e150  # squares of larger numbers overflow
_SAFE = 100  # exponent of a power of two: encoding smaller numbers does not overflow
_OUTSTANDING = 1e-3  # of the largest answer: those of good machines are far smaller
_FEW_DIGITS = 1e-3  # relative error above which a warning is issued


class Master:
    """X on machines that come and go: its products with vectors and blocks of vectors.

    In lockstep all machines make a step together, which fails if one does not answer. Elastic
    machines get jobs one by one, and steps end without machines that are late or lost.

    Parameters
    ----------
    endpoint : LockstepEndpoint or JobsEndpoint
        The wire.
    options : SessionOptions
        With S stragglers each row is computed by L + S machines, if as many are available.
    store : OpenStore

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64: answers are decoded in double precision, whatever the dtype of the shards.
    attainable : float
        Usual difference between products with different machines, relative to X: the machine
        epsilon of the shards times the median condition number. If the machines are always the
        same, the machine epsilon is that of the arithmetic.
    manifest : Manifest
        The manifest of the store.
    arithmetic : numpy.dtype
        The dtype in which vectors and answers are sent and products are computed.
    path : Path
        The store as it was opened.
    """

    def __init__(
        self, endpoint: LockstepEndpoint | JobsEndpoint, options: SessionOptions, store: OpenStore
    ) -> None:
        manifest = store.manifest
        self._endpoint = endpoint
        self.shape = (manifest.rows, manifest.columns)
        self.dtype = np.dtype(np.float64)
        self._condition = manifest.code.conditioning.worst  # of decoders in use, once there are any
        self._error = answer_error(manifest.dtype, store.arithmetic)
        code = manifest.code
        changes = code.machines > code.recovery  # of the machines that answer
        rounds = manifest.dtype if changes else store.arithmetic
        self.attainable = code.conditioning.median * float(np.finfo(rounds).eps)
        self.path = store.path
        self.recorder = store.recorder
        self.steps = store.steps
        self.manifest = manifest
        self.arithmetic = store.arithmetic
        self._warnings = PostponedWarnings()
        self._may_warn = code.recovery > 1  # with L = 1 nothing is decoded, so no digits are lost
        rows, largest = store.scaling.exponents, store.scaling.largest
        exponents = None if rows is None else rows.reshape(-1)
        self.scales = Scales(largest, store.arithmetic, exponents, manifest.rounded)
        self._threads = store.threads
        self._closed = False
        self._huge = ""  # about the last product, if its square overflows
        self._buffers: dict[int, Buffers] = {}
        self._executor: ElasticExecutor | LockstepExecutor
        if isinstance(endpoint, JobsEndpoint):
            self._executor = ElasticExecutor(endpoint, options, store, self._warnings)
        else:
            self._executor = LockstepExecutor(endpoint, self.steps, self.recorder)

    def matvec(self, w: ArrayLike, out: Floats | None = None) -> Floats:
        """Compute y = X w on the available machines, in one step.

        Parameters
        ----------
        w : (r,) or (r, 1) array_like
            Real and finite.
        out : (q,) ndarray of float64, optional
            Receives y; by default a new array.

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
        return self._product(False, "w", column("w", w, self.shape[1]), out)[:, 0]

    def rmatvec(self, v: ArrayLike, out: Floats | None = None) -> Floats:
        """Compute X' v in one step, with the assignment, loads and time of X w.

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
            See `matvec`.
        """
        return self._product(True, "v", column("v", v, self.shape[0]), out)[:, 0]

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
            See `matvec`.
        """
        return self._product(False, "W", as_block("W", W, self.shape[1]), None)

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
            See `matvec`.
        """
        return self._product(True, "V", as_block("V", V, self.shape[0]), None)

    @property
    def accuracy(self) -> float:
        """Possible error of a product, relative to the size of the terms of a row.

        This is the error of an answer times the largest condition number with which the last step
        was decoded; before the first step the worst condition number of the code. Answers have the
        error of shards, their machine epsilon, or that of sums, 8 machine epsilons of the
        arithmetic. The size of the terms is ``norm(c * w)``, with c the largest entry of each
        column of X. `StepRecord.cancellation` is this size over that of the result.
        """
        return self._condition * self._error

    @property
    def closed(self) -> bool:
        """Whether the operator is closed."""
        return self._closed

    def close(self) -> None:
        """Refuse further products."""
        self._closed = True

    def _product(self, adjoint: bool, name: str, block: NDArray[Any], out: Floats | None) -> Floats:
        """Compute a product, and issue its warnings when it is complete."""
        try:
            result = self._compute(adjoint, name, block, out)
        except BaseException:
            with suppress(Warning):  # the error says more than a warning that is raised
                self._warnings.issue()
            raise
        self._warnings.issue()
        return result

    def _compute(self, adjoint: bool, name: str, block: NDArray[Any], out: Floats | None) -> Floats:
        """Compute X W for W of shape (r, k), or X' V for V of shape (q, k).

        If the run waits for machines, a step that cannot end is repeated.
        """
        columns = block.shape[1]
        out = check_out(out, self.shape[1 if adjoint else 0])
        buffers = self._buffers_for(columns)
        while True:
            if isinstance(self._endpoint, JobsEndpoint):
                buffers.renew_if_sending(self._endpoint.is_sending)
            try:
                if adjoint:
                    terms = buffers.load_adjoint_vectors(name, block, self.scales)
                else:
                    terms = buffers.load_vectors(name, block, self.scales)
            except InputError as error:
                if not self._huge or block.dtype.kind != "f":  # others cannot be NaN
                    raise
                raise InputError(f"{error} ({self._huge})") from None
            self._check_open()
            step = self._executor.next(adjoint)
            step.product = Product(adjoint, columns)
            if adjoint:
                with step.timed("code"):
                    buffers.prepare(step.plan)
                    buffers.codec.coefficients(buffers.parts, buffers.coded)
            try:
                done = self._executor.multiply(step, buffers)
                break
            except StepInfeasibleError:
                if not self.steps.schedule.waits:
                    raise
        result = out if out is None else out.reshape(-1, 1)
        exponents, parts = buffers.exponents, None if adjoint else buffers.parts
        if adjoint:
            values = done.answers.values.reshape(-1, columns)
            if result is None and not any(exponents):
                result = values
            else:
                result = scale_by_powers(values, np.array(exponents), result)
        else:
            values = buffers.product[: self.shape[0]]
            if result is None and self.scales.row_exponents is None and not buffers.is_scaled:
                buffers.renew_product()
                result = values
            else:
                result = self.scales.scale_rows(values, exponents, result)
                exponents = [exponent + self.scales.max_row_exponent for exponent in exponents]
        largest = max_abs_of_columns(result)
        is_finite = all(map(math.isfinite, largest))
        if not is_finite:
            self._executor.check_finite(step, done)
        self._record_step(step, done, cancellation(terms, exponents, largest))
        self._note_size(step, largest[0] if columns == 1 else float(np.max(largest)), parts)
        if not is_finite:
            raise MachineError(
                f"{step.name} is too large for float64, so the product is not finite: {self._huge}"
            )
        if not adjoint:
            self._warn_of_underflow(largest, exponents)
        return result

    def _note_size(self, step: Step, size: float, parts: Floats | None) -> None:
        """Note a product whose square would overflow, and the machine with the largest answer.

        Parameters
        ----------
        step : Step
        size : float
            The largest number of the product.
        parts : (L, R * k) ndarray, optional
            The decoded rows of X W. Encoded again, they are what the machines answered.
        """
        self._huge = ""
        if size < _HUGE:
            return
        about = f"of about {size:.0e}" if np.isfinite(size) else "that are too large for float64"
        self._huge = f"the product of step {step.number} has numbers {about}"
        if parts is None or self.manifest.code.recovery == 1:
            return
        row = int(np.abs(parts).max(axis=0).argmax())
        with np.errstate(over="ignore", invalid="ignore"):
            answers = np.abs(self.manifest.code.generator @ np.ldexp(parts[:, row], -_SAFE))
        at, outstanding = row // step.product.columns, answers > answers.max() * _OUTSTANDING
        found = [n for n in step.available if outstanding[n - 1]]
        if not step.events:  # only machines of the plan have answered
            rows = step.plan.assignment.intervals
            found = [n for n in found if any(a <= at < b for a, b in rows(n))]
        if found and len(found) < len(step.available):  # otherwise X or w is large
            whose = "machine" if len(found) == 1 else "one of machines"
            self._huge += f", the largest in an answer of {whose} {join_names(found, len(found))}"

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("this operator is closed: its machines have left")

    def _record_step(self, step: Step, done: ProductResult, lost: float | None) -> None:
        """Update speeds from a step, record it, and warn of cancellation."""
        seconds = done.answers.seconds
        self._condition = done.condition
        known = self.steps.learn(step, done.rows, seconds)
        now = self.recorder.now()
        self.recorder.step(step.record(done, known, lost, now))
        if step.product.adjoint or lost is None:  # gradients vanish where least squares converge
            return
        if self._may_warn and self.accuracy * lost > _FEW_DIGITS:
            self._may_warn = False
            self._warnings.add(
                f"X w of step {step.number} may have fewer than three correct digits: its terms "
                f"are {lost:.0e} times larger than the result, and are computed with errors of up "
                f"to {self.accuracy:.0e} of their size; unless X w should vanish, "
                f"{self._remedy()}",
                ScaleWarning,
            )

    def _remedy(self) -> str:
        if self.manifest.dtype == "float32":
            return "encode X with --dtype float64"
        return "encode X with a code of smaller condition (--code), or subtract what cancels from X"

    def _warn_of_underflow(self, largest: list[float], exponents: list[int]) -> None:
        """Warn if entries of X w are smaller than the error from underflow in w."""
        threshold = self.scales.underflow_error
        if any(
            0 < size < threshold if not exponent else 0 < np.ldexp(size, -exponent) < threshold
            for size, exponent in zip(largest, exponents, strict=True)
        ):
            self._warnings.add(
                "X w is inexact: some numbers of w are too small for float64 beside others, and "
                "their columns of X are larger by as much; divide columns of X by powers of two, "
                "and multiply w by them",
                ScaleWarning,
            )

    def _buffers_for(self, columns: int) -> Buffers:
        """Return the arrays for k columns; those for k = 1 and for the last k are kept."""
        if columns not in self._buffers:
            self._buffers = {kept: b for kept, b in self._buffers.items() if kept == 1}
            self._buffers[columns] = Buffers(self.manifest, columns, self.arithmetic, self._threads)
        return self._buffers[columns]
