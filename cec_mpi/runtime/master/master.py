"""The master: it plans each step, requests products from machines, decodes and records them."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.accuracy.rounding import estimate_answer_error
from cec_mpi.core.accuracy.vectors import Scaler, cancellation, scale_by_powers, vector_max_abs
from cec_mpi.errors import InputError, MachineError, ScaleWarning
from cec_mpi.runtime.master.buffers import Buffers, as_block, as_column
from cec_mpi.runtime.master.elastic import ElasticExecutor
from cec_mpi.runtime.master.lockstep import LockstepExecutor
from cec_mpi.runtime.master.planning import ServedStore
from cec_mpi.runtime.master.postponed import PostponedWarnings
from cec_mpi.runtime.master.step import ProductResult, Step, StepInfeasibleError
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.wire.jobs import JobsEndpoint
from cec_mpi.runtime.wire.protocol import LockstepEndpoint
from cec_mpi.text import join_names

Floats = NDArray[np.float64]

_HUGE = 1e150  # sums of squares of larger numbers may overflow
_HEADROOM_BITS = 100  # numbers are divided by 2**100 before they are encoded, against overflow
_SUSPECT_RATIO = 1e-3  # machines with answers below this times the largest are not suspects
_MAX_ERROR = 1e-3  # relative error above which a warning is issued


class Master:
    """Computes products with X in steps, on machines that may join and leave.

    In lockstep a step is collective, and fails if a machine does not answer. Elastic machines get
    separate jobs, and a step does not wait for machines that are late or lost.

    Parameters
    ----------
    endpoint : LockstepEndpoint or JobsEndpoint
        Connects the master with the machines.
    options : SessionOptions
    store : ServedStore

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64: answers are decoded in double precision, whatever the dtype of the shards.
    attainable_tol : float
        Typical relative difference between products from different sets of machines: the machine
        epsilon of the shards times the median condition number. If only one set is possible, the
        machine epsilon is that of the arithmetic.
    manifest : Manifest
        The manifest of the store.
    arithmetic : numpy.dtype
        Dtype of computations on machines, and of vectors and answers in messages.
    """

    def __init__(
        self, endpoint: LockstepEndpoint | JobsEndpoint, options: SessionOptions, store: ServedStore
    ) -> None:
        manifest = store.manifest
        self._endpoint = endpoint
        self.shape = (manifest.rows, manifest.columns)
        self.dtype = np.dtype(np.float64)
        self._condition_number = manifest.code.conditioning.worst  # later that of the last step
        self._answer_error = estimate_answer_error(manifest.dtype, store.arithmetic)
        code = manifest.code
        has_many_sets = code.machines > code.recovery  # of L machines
        rounding_dtype = manifest.dtype if has_many_sets else store.arithmetic
        self.attainable_tol = code.conditioning.median * float(np.finfo(rounding_dtype).eps)
        self.recorder = store.recorder
        self.planner = store.planner
        self.manifest = manifest
        self.arithmetic = store.arithmetic
        self._warnings = PostponedWarnings()
        self._may_warn_of_cancellation = code.recovery > 1  # L = 1 needs no decoding
        exponents, column_maxima = store.scaling.exponents, store.scaling.column_maxima
        row_exponents = None if exponents is None else exponents.reshape(-1)
        self.scaler = Scaler(column_maxima, store.arithmetic, row_exponents, manifest.rounded)
        self._threads = store.threads
        self._overflow_note = ""  # describes the last product if its square may overflow
        self._buffers: dict[int, Buffers] = {}
        self._executor: ElasticExecutor | LockstepExecutor
        if isinstance(endpoint, JobsEndpoint):
            self._executor = ElasticExecutor(endpoint, options, store, self._warnings)
        else:
            self._executor = LockstepExecutor(endpoint, self.planner, self.recorder)

    def matvec(self, w: ArrayLike) -> Floats:
        """Compute y = X w on the available machines, in one step.

        Parameters
        ----------
        w : (r,) or (r, 1) array_like
            Real and finite.

        Returns
        -------
        (q,) ndarray of float64

        Raises
        ------
        InputError
            w has the wrong shape, is not real, or is not finite in float64.
        InfeasibleError
            Too few machines are available.
        DamagedStoreError
            In lockstep: the shard of a machine is damaged.
        MachineError
            A machine failed, or the product is too large for float64.
        """
        return self._multiply(False, "w", as_column("w", w, self.shape[1]))[:, 0]

    def rmatvec(self, v: ArrayLike) -> Floats:
        """Compute X' v in one step, with rows assigned as for X w.

        There are no extra machines for stragglers or checks.

        Parameters
        ----------
        v : (q,) or (q, 1) array_like
            Real and finite.

        Returns
        -------
        (r,) ndarray of float64

        Raises
        ------
        InputError, InfeasibleError, DamagedStoreError, MachineError
            See `matvec`.
        """
        return self._multiply(True, "v", as_column("v", v, self.shape[0]))[:, 0]

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
        InputError, InfeasibleError, DamagedStoreError, MachineError
            See `matvec`.
        """
        return self._multiply(False, "W", as_block("W", W, self.shape[1]))

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
        InputError, InfeasibleError, DamagedStoreError, MachineError
            See `matvec`.
        """
        return self._multiply(True, "V", as_block("V", V, self.shape[0]))

    @property
    def product_error(self) -> float:
        """Possible error of a product, relative to the magnitude of the terms of a row.

        This is the error of an answer times the largest condition number in the decoding of the
        last step; before the first step the worst condition number of the code. The error of an
        answer is the larger of the machine epsilon of the shards and, for rounding in sums, 8
        machine epsilons of the arithmetic. The magnitude of the terms is ``norm(c * w)``, with c
        the largest entry of each column of X. `StepRecord.cancellation` is the ratio of this
        magnitude to that of the result.
        """
        return self._condition_number * self._answer_error

    def _multiply(self, adjoint: bool, name: str, block: NDArray[Any]) -> Floats:
        """Compute a product, and issue its warnings when it is complete."""
        try:
            result = self._execute(adjoint, name, block)
        except BaseException:
            with suppress(Warning):  # if warnings are errors, the original error is more useful
                self._warnings.issue()
            raise
        self._warnings.issue()
        return result

    def _execute(self, adjoint: bool, name: str, block: NDArray[Any]) -> Floats:
        """Compute X W for W of shape (r, k), or X' V for V of shape (q, k).

        If the run waits for machines, a step that loses too many machines is repeated.
        """
        columns = block.shape[1]
        buffers = self._buffers_for(columns)
        while True:
            if isinstance(self._endpoint, JobsEndpoint):
                buffers.renew_if_sending(self._endpoint.is_sending)
            try:
                if adjoint:
                    parts, term_norms = buffers.load_adjoint_vectors(name, block, self.scaler)
                else:
                    term_norms = buffers.load_vectors(name, block, self.scaler)
            except InputError as error:
                if not self._overflow_note or block.dtype.kind != "f":  # integers are finite
                    raise
                raise InputError(f"{error} ({self._overflow_note})") from None
            step = self._executor.next_step(adjoint)
            step.product = Product(adjoint, columns)
            if adjoint:
                with step.timed("decode"):
                    buffers.prepare(step.plan)
                    buffers.codec.compute_coefficients(parts, buffers.coefficients)
            try:
                result = self._executor.multiply(step, buffers)
                break
            except StepInfeasibleError:
                if not self.planner.schedule.waits:
                    raise
        exponents, decoded = buffers.exponents, None if adjoint else buffers.parts
        if adjoint:
            values = result.answers.values.reshape(-1, columns)
            if any(exponents):
                values = scale_by_powers(values, np.array(exponents))
        else:
            values = buffers.padded[: self.shape[0]]
            if self.scaler.row_exponents is None and not buffers.is_scaled:
                buffers.renew_parts()
            else:
                values = self.scaler.scale_rows(values, exponents)
                exponents = [exponent + self.scaler.max_row_exponent for exponent in exponents]
        maxima = vector_max_abs(values)
        is_finite = all(map(math.isfinite, maxima))
        if not is_finite:
            self._executor.check_finite(step, result)
        self._record_step(step, result, cancellation(term_norms, exponents, maxima))
        self._note_overflow(step, maxima[0] if columns == 1 else float(np.max(maxima)), decoded)
        if not is_finite:
            raise MachineError(
                f"{step.product_name} is too large for float64, so the product is not finite: "
                f"{self._overflow_note}"
            )
        if not adjoint:
            self._warn_of_underflow(maxima, exponents)
        return values

    def _note_overflow(self, step: Step, maximum: float, parts: Floats | None) -> None:
        """Describe a product whose square may overflow, for an error of this or a later product.

        Parameters
        ----------
        step : Step
        maximum : float
            The largest absolute value in the product.
        parts : (L, R * k) ndarray, optional
            The decoded rows of X W; encoding them gives the answers of the machines. None for X' V.
        """
        self._overflow_note = ""
        if maximum < _HUGE:
            return
        size_text = (
            f"of about {maximum:.0e}" if np.isfinite(maximum) else "that are too large for float64"
        )
        self._overflow_note = f"the product of step {step.number} has numbers {size_text}"
        if parts is None or self.manifest.code.recovery == 1:
            return
        index = int(np.abs(parts).max(axis=0).argmax())
        with np.errstate(over="ignore", invalid="ignore"):
            answers = np.abs(
                self.manifest.code.generator @ np.ldexp(parts[:, index], -_HEADROOM_BITS)
            )
        row, is_suspect = index // step.product.columns, answers > answers.max() * _SUSPECT_RATIO
        suspects = [n for n in step.available if is_suspect[n - 1]]
        if not step.events:  # only machines of the plan have answered
            intervals = step.plan.assignment.intervals
            suspects = [n for n in suspects if any(a <= row < b for a, b in intervals(n))]
        if suspects and len(suspects) < len(step.available):  # otherwise X or w is large
            machine = "machine" if len(suspects) == 1 else "one of machines"
            names = join_names(suspects, len(suspects))
            self._overflow_note += f", the largest in an answer of {machine} {names}"

    def _record_step(
        self, step: Step, result: ProductResult, cancellation_ratio: float | None
    ) -> None:
        """Update speeds from a step, record it, and warn once of cancellation."""
        self._condition_number = result.condition_number
        makespans = self.planner.learn(step, result.rows, result.answers.seconds)
        timestamp = self.recorder.timestamp()
        self.recorder.record_step(
            step.make_record(result, makespans, cancellation_ratio, timestamp)
        )
        # X' v tends to zero as a least-squares solver converges, so a warning would be wrong.
        if step.product.adjoint or cancellation_ratio is None:
            return
        if self._may_warn_of_cancellation and self.product_error * cancellation_ratio > _MAX_ERROR:
            self._may_warn_of_cancellation = False
            self._warnings.add(
                f"X w of step {step.number} may have fewer than three correct digits: its terms "
                f"are {cancellation_ratio:.0e} times larger than the result, and are computed with "
                f"errors of up to {self.product_error:.0e} of their size; unless X w should "
                f"vanish, {self._cancellation_remedy()}",
                ScaleWarning,
            )

    def _cancellation_remedy(self) -> str:
        if self.manifest.dtype == "float32":
            return "encode X with --dtype float64"
        return (
            "encode X with a code of smaller condition number (--code), or subtract from X what "
            "cancels"
        )

    def _warn_of_underflow(self, maxima: list[float], exponents: list[int]) -> None:
        """Warn if all entries of a column of X W are smaller than the error from underflow in W."""
        threshold = self.scaler.underflow_error
        if any(
            0 < (maximum if not exponent else np.ldexp(maximum, -exponent)) < threshold
            for maximum, exponent in zip(maxima, exponents, strict=True)
        ):
            self._warnings.add(
                f"X w is inexact: some entries of w underflow in {self.arithmetic}, but multiply "
                "very large columns of X; divide each of these columns by a power of two, and "
                "multiply its entry of w by the same power",
                ScaleWarning,
            )

    def _buffers_for(self, columns: int) -> Buffers:
        """Return the arrays for k columns; those for k = 1 and for the last k are cached."""
        if columns not in self._buffers:
            self._buffers = {k: buffers for k, buffers in self._buffers.items() if k == 1}
            self._buffers[columns] = Buffers(self.manifest, columns, self.arithmetic, self._threads)
        return self._buffers[columns]
