"""How far from exact the shards of a store, the answers to a step and its product can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.deviation import (
    Amplification,
    AnswerErrors,
    Deviation,
    Largest,
    Lengths,
    PartErrors,
    TermSizes,
    amplification,
    answer_errors,
    largest_of_all,
    of_product,
    of_transposed_product,
    part_errors,
)
from cec_mpi.core.accuracy.rounding import answer_error, encoding_error
from cec_mpi.core.accuracy.scaling import ZEROS
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.plan.planner import Plan
from cec_mpi.errors import MachineError, ScaleWarning
from cec_mpi.master.buffers import Buffers
from cec_mpi.master.postponed import PostponedWarnings
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.format.scaling import Scaling

Floats = NDArray[np.float64]

_KEPT = 1 << 14  # sets of L machines


def checked(largest: Largest, multiplied: Floats, what: str) -> Floats:
    """Return the result; raises if it is too large for float64.

    Raises
    ------
    MachineError
        It is too large for float64.
    """
    with np.errstate(over="ignore"):
        fits = np.isfinite(np.ldexp(largest.decoded, largest.exponents)).all()
    if not fits and not np.isfinite(multiplied).all():
        raise MachineError(f"{what} is too large for float64")
    return multiplied


class ErrorBounds:
    """Error bounds of one store's shards, of answers and of products.

    Parameters
    ----------
    manifest : Manifest
    scaling : Scaling
    arithmetic : numpy.dtype
        The dtype in which products are computed.
    warnings : PostponedWarnings

    Attributes
    ----------
    shards : (N,) ndarray
        Error bounds of shards, from encoding or from rebuilding.
    answers : (N,) ndarray
        See `answer_error`.
    """

    answers: Floats

    def __init__(
        self,
        manifest: Manifest,
        scaling: Scaling,
        arithmetic: np.dtype[Any],
        warnings: PostponedWarnings,
    ) -> None:
        self._manifest = manifest
        self._warnings = warnings
        self._arithmetic = arithmetic
        self._sizes = TermSizes(scaling.largest, scaling.typical, arithmetic)
        self._rows: Floats | None = None  # powers of two of rows, over the largest one
        self._most_of_rows = 0  # the exponent of that
        if scaling.exponents is not None:
            exponents = scaling.exponents.reshape(-1, 1)[: manifest.rows].astype(np.int64)
            self._most_of_rows = int(exponents.max()) if (exponents != ZEROS).any() else 0
            self._rows = np.ldexp(1.0, exponents - self._most_of_rows)
        rebuilt = [max((m.error_bound for m in s.rebuilt), default=0.0) for s in manifest.shards]
        exact = encoding_error(manifest.code.generator, manifest.dtype)
        self.shards: Floats = np.maximum(exact, rebuilt)
        generator, dtype, columns = manifest.code.generator, manifest.dtype, manifest.columns
        self.answers = answer_error(generator, dtype, self._arithmetic, columns, self.shards)
        self._of_product = self._errors(columns)
        self._of_plan: WeakKeyDictionary[Plan, Amplification] = WeakKeyDictionary()
        self._of_set: Callable[[Decoder, tuple[int, ...]], Amplification] = lru_cache(_KEPT)(
            lambda decoder, machines: self._amplification([decoder], np.array([machines]))
        )
        self._of_terms: tuple[int, AnswerErrors] = 0, self._of_product

    def _errors(self, terms: int) -> AnswerErrors:
        manifest = self._manifest
        generator, dtype = manifest.code.generator, manifest.dtype
        arithmetic, rounded = self._arithmetic, manifest.rounded
        return answer_errors(generator, dtype, arithmetic, terms, self.shards, rounded=rounded)

    def of_plan(self, plan: Plan) -> Amplification:
        """Return how much the decoders of a plan amplify errors."""
        found = self._of_plan.get(plan)
        if found is None:
            decoders = plan.decoders(self._manifest.code)
            found = self._amplification(decoders, plan.assignment.machines)
            self._of_plan[plan] = found
        return found

    def of_sets(self, decoders: Mapping[tuple[int, ...], Decoder]) -> Amplification:
        """Return how much the decoders of some sets of machines amplify errors."""
        return largest_of_all(self._of_set(each, n) for n, each in decoders.items())

    def _amplification(
        self, decoders: list[Decoder], machines: NDArray[np.integer]
    ) -> Amplification:
        generator = self._manifest.code.generator
        return amplification(generator, self._of_product, decoders, machines)

    def of_terms(self, plan: Plan, parts: int) -> AnswerErrors:
        """Return the errors of the parts of X' V, for a plan and a number of parts."""
        terms = int(plan.assignment.loads.max()) + parts + 1  # the last of the coefficient
        if terms != self._of_terms[0]:
            self._of_terms = terms, self._errors(terms)
        return self._of_terms[1]

    def of_machines(self, plan: Plan) -> PartErrors:
        """Return the largest errors of a plan's machines, with one part of X' V each."""
        machines = plan.assignment.available
        return part_errors(self.of_terms(plan, len(machines)), machines)

    def lengths(self, buffers: Buffers, adjoint: bool) -> tuple[list[Lengths], ...]:
        """Return the lengths of W, or of V and the machines' coefficients.

        Call it before the step: buffers of late machines are replaced.
        """
        if not adjoint:
            return (self._sizes.of(buffers.shared.T),)
        coded = buffers.coded.reshape(buffers.product.shape)
        return self._sizes.of_transposed(buffers.product), self._sizes.of_transposed(coded)

    def largest(self, buffers: Buffers) -> Largest:
        """Return the largest numbers of X W, before powers of two are undone.

        Parameters
        ----------
        buffers : Buffers
            The decoded product; `Buffers.work` is overwritten.
        """
        rows = self._manifest.rows
        sizes = np.abs(buffers.product, out=buffers.work.reshape(buffers.product.shape))
        decoded = result = sizes.max(axis=0).tolist()
        if self._rows is not None:
            result = np.multiply(sizes[:rows], self._rows, out=sizes[:rows]).max(axis=0).tolist()
        return Largest(decoded, result, (buffers.exponents + self._most_of_rows).tolist())

    @staticmethod
    def largest_of_transposed(values: Floats, exponents: NDArray[np.int64]) -> Largest:
        """Return the largest numbers of X' V, (r, k), before powers of two are undone."""
        most = np.maximum(values.max(axis=0), -values.min(axis=0)).tolist()
        return Largest(most, most, exponents.tolist())

    def of_product(
        self, amplification: Amplification, lengths: list[Lengths], largest: Largest
    ) -> Deviation:
        """Return the error figures of X W.

        Parameters
        ----------
        amplification : Amplification
            Of the decoders.
        lengths : list of Lengths
            Of W.
        largest : Largest
            Of X W.
        """
        errors, sizes, rows = self._of_product, self._sizes, self._manifest.rows
        found = of_product(amplification, errors, sizes, lengths, largest, rows)
        if any(0 < size < sizes.lost for size in largest.result):
            self._warnings.add(
                "X w is inexact: some numbers of w are too small for float64 beside others, and "
                "their columns of X are larger by as much; divide columns of X by powers of two, "
                "and multiply w by them",
                ScaleWarning,
            )
        return self._warned_of(found, "X w")

    def of_transposed_product(
        self,
        amplification: Amplification,
        parts: PartErrors,
        given: list[Lengths],
        coded: list[Lengths],
        largest: Largest,
    ) -> Deviation:
        """Return the error figures of X' V.

        Parameters
        ----------
        amplification : Amplification
            Of the decoders.
        parts : PartErrors
            Of the machines' parts.
        given, coded : list of Lengths
            Of V and of the coefficients.
        largest : Largest
            Of X' V.
        """
        errors, columns = self._of_terms[1], self._manifest.columns
        found = of_transposed_product(amplification, parts, errors, given, coded, largest, columns)
        return self._warned_of(found, "X' v")

    def _warned_of(self, deviation: Deviation, what: str) -> Deviation:
        """Warn if a result has no error bound."""
        if np.isinf(deviation.bound):
            self._warnings.add(
                f"{what} has no error bound: it is too small for its digits to be known, or zero",
                ScaleWarning,
            )
        return deviation
