"""The computation of an elastic step: operands of requests, and checks and sums of answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.checks.finite import NonfiniteAnswer, NonfiniteChecker, is_finite
from cec_mpi.core.checks.parity import Comparison, ParityChecker
from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.core.elastic.events import (
    Compare,
    Decode,
    FaultsIdentified,
    FaultUndetermined,
    IdentifyFaults,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals, count_rows
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.runtime.product import Product

Floats = NDArray[np.float64]
_ALIGNMENT = 64  # bytes
CheckOutcome = RowsAgree | RowsDisagree | FaultUndetermined | FaultsIdentified


class Computation(Protocol):
    """Makes operands and processes answers.

    It is a `ForwardComputation`, an `AdjointComputation` or a `ProbeComputation`.

    Attributes
    ----------
    product : Product
    """

    product: Product

    def operand(self, request: Request) -> NDArray[Any]:
        """Return the operand that is sent with a request: vectors or coefficients."""

    def accept(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """Accept the answer to a request, or the sum of the answers to several.

        Returns
        -------
        bool or NonfiniteAnswer
            True if the answer is accepted, False if it fails its check; a `NonfiniteAnswer` if an
            entry is not finite.
        """

    def execute(self, instruction: Compare | IdentifyFaults | Decode) -> CheckOutcome | None:
        """Compare or decode answers, and return the outcome of a comparison."""


class AnswerMemory:
    """Memory for the answers of a step to X W, reused by the next step."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._used_bytes = self._needed_bytes = 0

    def clear(self) -> None:
        """Free all arrays, and resize the memory if the last step needed more or much less."""
        if not self._memory.size // 4 <= self._needed_bytes <= self._memory.size:
            self._memory = np.empty(self._needed_bytes, np.uint8)
        self._used_bytes = self._needed_bytes = 0

    def allocate(self, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a vector whose content is undefined."""
        aligned = -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        self._needed_bytes += aligned
        if self._used_bytes + aligned > self._memory.size:
            return np.empty(size, dtype)
        begin, self._used_bytes = self._used_bytes, self._used_bytes + aligned
        return self._memory[begin : begin + size * dtype.itemsize].view(dtype)


def copy_and_check_finite(pieces: Sequence[NDArray[Any]], values: NDArray[Any]) -> bool:
    """Concatenate pieces into `values`, and return whether all entries are finite."""
    begin, all_finite = 0, True
    for piece in pieces:
        end = begin + piece.size
        values[begin:end] = piece
        all_finite = is_finite(piece) and all_finite
        begin = end
    return all_finite


class ForwardComputation:
    """X W: answers are compared and decoded.

    Parameters
    ----------
    product : Product
    vectors : (k, r) ndarray
        W' as it is sent.
    answers : RowAnswers
    memory : AnswerMemory
    """

    def __init__(
        self, product: Product, vectors: NDArray[Any], answers: RowAnswers, memory: AnswerMemory
    ) -> None:
        self.product, self._vectors, self._answers = product, vectors, answers
        self._memory, self._finite_checker = memory, NonfiniteChecker(product.columns)

    def operand(self, request: Request) -> NDArray[Any]:
        """See `Computation.operand`."""
        return self._vectors

    def accept(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Computation.accept`; finite answers are accepted, and checked by `Compare`."""
        (request,) = requests
        values = self._memory.allocate(sum([piece.size for piece in pieces]), pieces[0].dtype)
        if not copy_and_check_finite(pieces, values):
            nonfinite = self._finite_checker.check(request.machine, request.intervals, values)
            assert nonfinite is not None
            return nonfinite
        self._answers.add(request.machine, request.intervals, values)
        return True

    def execute(self, instruction: Compare | IdentifyFaults | Decode) -> CheckOutcome | None:
        """See `Computation.execute`."""
        rows_and_machines = instruction.start, instruction.stop, instruction.machines
        if isinstance(instruction, Decode):
            self._answers.decode(*rows_and_machines)
            return None
        if isinstance(instruction, Compare):
            disagrees = self._answers.has_disagreement(*rows_and_machines)
            return RowsDisagree(*rows_and_machines) if disagrees else RowsAgree(*rows_and_machines)
        return _comparison_outcome(
            rows_and_machines, self._answers.identify_faulty(*rows_and_machines)
        )


class AdjointComputation:
    """X' V: terms are computed from coefficients, and summed.

    Parameters
    ----------
    product : Product
    coefficients : (L * R * k,) ndarray
        Coefficients of the planned terms, in the order of machines.
    intervals : mapping of int to Intervals
        The rows of the plan, by machine.
    generator : (N, L) ndarray of float
    checker : TermChecker or None
    """

    def __init__(
        self,
        product: Product,
        coefficients: NDArray[Any],
        intervals: Mapping[int, Intervals],
        generator: Floats,
        checker: TermChecker | None,
    ) -> None:
        self.product, self._generator, self._checker = product, generator, checker
        sizes = [count_rows(rows) * product.columns for rows in intervals.values()]
        ends = accumulate(sizes)
        self._planned_coefficients = {
            machine: coefficients[end - size : end]
            for machine, size, end in zip(intervals, sizes, ends, strict=True)
        }
        self._replacement_coefficients: dict[Term, NDArray[Any]] = {}
        self._weights: dict[tuple[int, tuple[int, ...]], dict[int, float]] = {}
        self._finite_checker = NonfiniteChecker(product.columns, adjoint=True)
        self._pieces: dict[Term, list[NDArray[Any]]] = {}

    def operand(self, request: Request) -> NDArray[Any]:
        """See `Computation.operand`."""
        assert request.term is not None
        return self._coefficients(request.term)

    def accept(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Computation.accept`; a term is checked by Freivalds' test with the probe."""
        terms = [request.term for request in requests if request.term is not None]
        if not all(is_finite(piece) for piece in pieces):
            request = requests[0]
            values = np.concatenate(pieces)
            nonfinite = self._finite_checker.check(request.machine, request.intervals, values)
            assert nonfinite is not None
            return nonfinite
        if self._checker is not None:
            (term,), values = terms, np.concatenate(pieces)
            if self._checker.is_wrong(
                term.machine, term.intervals, self._coefficients(term), values
            ):
                del self._checker.products[term.machine]  # this product may be the wrong one
                return False
        self._pieces |= dict.fromkeys(terms, pieces)
        return True

    def execute(self, instruction: Compare | IdentifyFaults | Decode) -> CheckOutcome | None:
        """Raise RuntimeError: terms are not compared."""
        raise RuntimeError(f"a step of X' V cannot {instruction}")

    def sum_terms(self, terms: list[Term]) -> Floats:
        """Return the sum of these terms."""
        # Terms that a host has summed share arrays.
        first, *others = {id(pieces := self._pieces[term]): pieces for term in terms}.values()
        total = np.concatenate(first)
        for pieces in others:
            begin = 0
            for piece in pieces:
                total[begin : begin + piece.size] += piece
                begin += piece.size
        return total

    def _coefficients(self, term: Term) -> NDArray[Any]:
        replaced = term.replaces
        if replaced is None:
            return self._planned_coefficients[term.machine]
        if term not in self._replacement_coefficients:
            coefficients = self._coefficients(replaced)
            if term.basis:
                weight = self._weights_of(replaced.machine, term.basis)[term.machine]
                coefficients = (weight * coefficients).astype(coefficients.dtype, copy=False)
            else:
                coefficients = self._select_rows(coefficients, replaced.intervals, term.intervals)
            self._replacement_coefficients[term] = coefficients
        return self._replacement_coefficients[term]

    def _weights_of(self, machine: int, basis: tuple[int, ...]) -> dict[int, float]:
        """Return the weights with which the shards of L machines sum to the shard of `machine`."""
        if (machine, basis) not in self._weights:
            target = self._generator[[machine - 1]]
            recombination = Recombination(self._generator, basis, target)
            weights = recombination.coefficients[0].tolist()
            self._weights[machine, basis] = dict(zip(basis, weights, strict=True))
        return self._weights[machine, basis]

    def _select_rows(
        self, coefficients: NDArray[Any], rows: Intervals, selected: Intervals
    ) -> NDArray[Any]:
        """Return the coefficients of selected rows."""
        parts, k = [], self.product.columns
        for start, stop in selected:
            position = 0
            for first, end in rows:
                if first <= start and stop <= end:
                    begin = position + (start - first) * k
                    parts.append(coefficients[begin : begin + (stop - start) * k])
                position += (end - first) * k
        selected_coefficients: NDArray[Any] = np.concatenate(parts)
        return selected_coefficients


class ProbeComputation:
    """The probe of Freivalds' test: its products with shards are compared and cached.

    Parameters
    ----------
    term_checker : TermChecker
        Receives the products.
    parity_checker : ParityChecker
        Compares them.
    rows : int
        R.
    """

    def __init__(self, term_checker: TermChecker, parity_checker: ParityChecker, rows: int) -> None:
        self.product = Product(False, 1)
        self._term_checker, self._parity_checker, self._rows = term_checker, parity_checker, rows
        self._finite_checker = NonfiniteChecker(1)
        self._received: dict[int, Floats] = {}

    def operand(self, request: Request) -> NDArray[Any]:
        """See `Computation.operand`."""
        probe: NDArray[Any] = self._term_checker.probe
        return probe

    def accept(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Computation.accept`."""
        (request,), values = requests, np.concatenate(pieces)
        nonfinite = self._finite_checker.check(request.machine, request.intervals, values)
        if nonfinite is not None:
            return nonfinite
        products, position = np.full(self._rows, np.nan), 0
        for start, stop in request.intervals:
            products[start:stop] = values[position : position + stop - start]
            position += stop - start
        self._received[request.machine] = products
        return True

    def execute(self, instruction: Compare | IdentifyFaults | Decode) -> CheckOutcome | None:
        """See `Computation.execute`."""
        rows_and_machines = instruction.start, instruction.stop, instruction.machines
        products = self._term_checker.products | self._received
        answers = np.array(
            [products[n][instruction.start : instruction.stop] for n in instruction.machines]
        )
        comparison = self._parity_checker.identify_faulty(
            instruction.machines, answers, self._term_checker.scale
        )
        for machine in comparison.faulty:
            self._term_checker.products.pop(machine, None)
        return _comparison_outcome(rows_and_machines, comparison)

    def keep_products(self, machines: Collection[int]) -> None:
        """Add the products of these machines, which agree, to the term checker."""
        self._term_checker.products |= {machine: self._received[machine] for machine in machines}


def _comparison_outcome(
    rows_and_machines: tuple[int, int, tuple[int, ...]], comparison: Comparison
) -> CheckOutcome:
    """Return the event for a comparison of the answers of machines for the same rows."""
    if comparison.agree:
        return RowsAgree(*rows_and_machines)
    return (
        FaultsIdentified(comparison.faulty)
        if comparison.faulty
        else FaultUndetermined(*rows_and_machines, comparison.candidates)
    )
