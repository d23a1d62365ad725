"""Operands and answers of an elastic step."""

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
    FaultUndetermined,
    FaultyIdentified,
    IdentifyFaulty,
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
Outcome = RowsAgree | RowsDisagree | FaultUndetermined | FaultyIdentified


class Products(Protocol):
    """The numbers of a step: `ForwardProducts`, `AdjointProducts` or `ProbeProducts`.

    Attributes
    ----------
    product : Product
    """

    product: Product

    def content(self, request: Request) -> NDArray[Any]:
        """Return what the rows of a request are multiplied with."""

    def take(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """Keep the answer to a request, or the sum of the answers to several.

        Returns
        -------
        bool or NonfiniteAnswer
            True if it is kept, False if it fails its check, or the number that is not finite.
        """

    def execute(self, instruction: Compare | IdentifyFaulty | Decode) -> Outcome | None:
        """Compare or decode answers; returns the outcome of a comparison."""


class AnswerMemory:
    """Memory for the answers of a step to X W, which the next step uses again."""

    def __init__(self) -> None:
        self._octets = np.empty(0, np.uint8)
        self._used = self._needed = 0

    def clear(self) -> None:
        """Make all memory free, as much as the last step needed."""
        if not self._octets.size // 4 <= self._needed <= self._octets.size:
            self._octets = np.empty(self._needed, np.uint8)
        self._used = self._needed = 0

    def array(self, size: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a vector whose content is undefined."""
        octets = -(-size * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
        self._needed += octets
        if self._used + octets > self._octets.size:
            return np.empty(size, dtype)
        begin, self._used = self._used, self._used + octets
        return self._octets[begin : begin + size * dtype.itemsize].view(dtype)


def copy_finite(pieces: Sequence[NDArray[Any]], values: NDArray[Any]) -> bool:
    """Copy pieces into a vector, one after the other; returns whether they are finite."""
    begin, finite = 0, True
    for piece in pieces:
        end = begin + piece.size
        values[begin:end] = piece
        finite = is_finite(piece) and finite
        begin = end
    return finite


class ForwardProducts:
    """X W: answers to rows are compared and decoded.

    Parameters
    ----------
    product : Product
    shared : (k, r) ndarray
        W as it is sent.
    answers : RowAnswers
    memory : AnswerMemory
    """

    def __init__(
        self, product: Product, shared: NDArray[Any], answers: RowAnswers, memory: AnswerMemory
    ) -> None:
        self.product, self._shared, self._answers = product, shared, answers
        self._memory, self._not_finite = memory, NonfiniteChecker(product.columns)

    def content(self, request: Request) -> NDArray[Any]:
        """See `Products.content`."""
        return self._shared

    def take(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Products.take`; rows are checked by comparing them."""
        (request,) = requests
        values = self._memory.array(sum([piece.size for piece in pieces]), pieces[0].dtype)
        if not copy_finite(pieces, values):
            found = self._not_finite.check(request.machine, request.intervals, values)
            assert found is not None
            return found
        self._answers.add(request.machine, request.intervals, values)
        return True

    def execute(self, instruction: Compare | IdentifyFaulty | Decode) -> Outcome | None:
        """See `Products.execute`."""
        rows = instruction.start, instruction.stop, instruction.machines
        if isinstance(instruction, Decode):
            self._answers.decode(*rows)
            return None
        if isinstance(instruction, Compare):
            disagrees = self._answers.has_disagreement(*rows)
            return RowsDisagree(*rows) if disagrees else RowsAgree(*rows)
        return _outcome(rows, self._answers.identify_faulty(*rows))


class AdjointProducts:
    """X' V: terms have coefficients, and are added up.

    Parameters
    ----------
    product : Product
    coded : (L * R * k,) ndarray
        Coefficients of the plan, machine after machine.
    intervals : mapping of int to Intervals
        The rows of the plan, by machine.
    generator : (N, L) ndarray of float
    checks : TermChecker, optional
    """

    def __init__(
        self,
        product: Product,
        coded: NDArray[Any],
        intervals: Mapping[int, Intervals],
        generator: Floats,
        checks: TermChecker | None = None,
    ) -> None:
        self.product, self._generator, self._checks = product, generator, checks
        sizes = [count_rows(rows) * product.columns for rows in intervals.values()]
        ends = accumulate(sizes)
        self._planned = {
            machine: coded[end - size : end]
            for machine, size, end in zip(intervals, sizes, ends, strict=True)
        }
        self._replacements: dict[
            Term, NDArray[Any]
        ] = {}  # coefficients of terms that replace others
        self._weights: dict[tuple[int, tuple[int, ...]], dict[int, float]] = {}
        self._not_finite = NonfiniteChecker(product.columns, adjoint=True)
        self._pieces: dict[Term, list[NDArray[Any]]] = {}

    def content(self, request: Request) -> NDArray[Any]:
        """See `Products.content`."""
        assert request.term is not None
        return self._coefficients(request.term)

    def take(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Products.take`; a term is checked with the probe."""
        terms = [request.term for request in requests if request.term is not None]
        if not all(is_finite(piece) for piece in pieces):
            request = requests[0]
            given = request.machine, request.intervals, np.concatenate(pieces)
            found = self._not_finite.check(*given)
            assert found is not None
            return found
        if self._checks is not None:
            (term,), values = terms, np.concatenate(pieces)
            if self._checks.is_wrong(
                term.machine, term.intervals, self._coefficients(term), values
            ):
                del self._checks.products[term.machine]  # it may be the product that was wrong
                return False
        self._pieces |= dict.fromkeys(terms, pieces)
        return True

    def execute(self, instruction: Compare | IdentifyFaulty | Decode) -> Outcome | None:
        """Raise RuntimeError: terms are not compared."""
        raise RuntimeError(f"a step of X' V cannot {instruction}")

    def sum(self, terms: list[Term], size: int) -> Floats:
        """Return the sum of these terms, of this size; terms summed by a host share arrays."""
        total = np.zeros(size)
        for pieces in {id(pieces := self._pieces[term]): pieces for term in terms}.values():
            begin = 0
            for piece in pieces:
                total[begin : begin + piece.size] += piece
                begin += piece.size
        return total

    def _coefficients(self, term: Term) -> NDArray[Any]:
        above = term.replaces
        if above is None:
            return self._planned[term.machine]
        if term not in self._replacements:
            given = self._coefficients(above)
            if term.basis:
                weight = self._weights_of(above.machine, term.basis)[term.machine]
                self._replacements[term] = (weight * given).astype(given.dtype, copy=False)
            else:
                self._replacements[term] = self._select_rows(term.intervals, above.intervals, given)
        return self._replacements[term]

    def _weights_of(self, machine: int, basis: tuple[int, ...]) -> dict[int, float]:
        """Return the weights with which rows of L machines add up to those of another one."""
        if (machine, basis) not in self._weights:
            target = self._generator[[machine - 1]]
            recombination = Recombination(self._generator, basis, target)
            weights = recombination.coefficients[0].tolist()
            self._weights[machine, basis] = dict(zip(basis, weights, strict=True))
        return self._weights[machine, basis]

    def _select_rows(
        self, rows: Intervals, intervals: Intervals, given: NDArray[Any]
    ) -> NDArray[Any]:
        """Return those coefficients that belong to some of the rows."""
        parts, k = [], self.product.columns
        for start, stop in rows:
            position = 0
            for first, last in intervals:
                if first <= start and stop <= last:
                    begin = position + (start - first) * k
                    parts.append(given[begin : begin + (stop - start) * k])
                position += (last - first) * k
        found: NDArray[Any] = np.concatenate(parts)
        return found


class ProbeProducts:
    """The probe: products of shards with it are compared, and kept for checks of terms.

    Parameters
    ----------
    checks : TermChecker
    checker : ParityChecker
    rows : int
        R.
    """

    def __init__(self, checks: TermChecker, checker: ParityChecker, rows: int) -> None:
        self.product = Product(False, 1)
        self._checks, self._checker, self._rows = checks, checker, rows
        self._not_finite = NonfiniteChecker(1)
        self._new: dict[int, Floats] = {}

    def content(self, request: Request) -> NDArray[Any]:
        """See `Products.content`."""
        probe: NDArray[Any] = self._checks.probe
        return probe

    def take(
        self, requests: Sequence[Request], pieces: list[NDArray[Any]]
    ) -> bool | NonfiniteAnswer:
        """See `Products.take`."""
        (request,), values = requests, np.concatenate(pieces)
        found = self._not_finite.check(request.machine, request.intervals, values)
        if found is not None:
            return found
        products, position = np.full(self._rows, np.nan), 0
        for start, stop in request.intervals:
            products[start:stop] = values[position : position + stop - start]
            position += stop - start
        self._new[request.machine] = products
        return True

    def execute(self, instruction: Compare | IdentifyFaulty | Decode) -> Outcome | None:
        """See `Products.execute`."""
        rows = instruction.start, instruction.stop, instruction.machines
        known = self._checks.products | self._new
        answers = np.array([known[n][rows[0] : rows[1]] for n in instruction.machines])
        verdict = self._checker.identify_faulty(instruction.machines, answers, self._checks.scale)
        for machine in verdict.faulty:
            self._checks.products.pop(machine, None)
        return _outcome(rows, verdict)

    def keep(self, machines: Collection[int]) -> None:
        """Keep the products of these machines, which agree."""
        self._checks.products |= {machine: self._new[machine] for machine in machines}


def _outcome(rows: tuple[int, int, tuple[int, ...]], verdict: Comparison) -> Outcome:
    """Return the event that follows from comparing answers to rows."""
    if verdict.agree:
        return RowsAgree(*rows)
    return (
        FaultyIdentified(verdict.faulty)
        if verdict.faulty
        else FaultUndetermined(*rows, verdict.candidates)
    )
