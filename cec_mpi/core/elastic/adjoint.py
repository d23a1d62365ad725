"""The ledgers of X' V: which terms of the sum are missing, and which machines have the probe.

The plan gives each machine one term, ``shard[rows]' u`` with coefficients u. All are needed. A term
that is missing is the sum of terms of L other machines m, ``shard_m[rows]' (c_m u)``
(see `Recombination`), or for copies of rows of terms of their holders. Terms that replace another
one can be replaced in turn, again and again. The first complete replacement counts, or the term
itself if its machine was only late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cec_mpi.core.elastic.events import (
    Disagreement,
    FaultUndetermined,
    IdentifyFaulty,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.terms import AnswerStatus, Term
from cec_mpi.core.plan.assignment import Intervals

Span = tuple[int, int, tuple[int, ...]]
"""Rows ``start <= row < stop``, and the machines that hold them."""


class TermLedger:
    """Which terms are expected of whom, answered and replaced.

    Parameters
    ----------
    recovery : int
        L.
    speeds : (N,) sequence of float
        The fastest machines replace a term.
    spans : callable, optional
        For copies: the given rows, cut where other machines hold them.

    Attributes
    ----------
    is_lacking : bool
        Whether terms may be missing that nobody is asked for.

    Examples
    --------
    Any two of three machines are enough. Machine 2 is lost, and the others replace it:

    >>> ledger = TermLedger(2, (1.0, 1.0, 1.0))
    >>> ledger.plan({1: ((0, 4),), 2: ((0, 2),), 3: ((2, 4),)})
    >>> first = [ledger.next_request(n) for n in (1, 2, 3)]
    >>> for request in (first[0], first[2]):
    ...     ledger.answered(request)
    >>> ledger.release(2)
    >>> ledger.reassign({1, 3}, idle={1, 3})
    >>> ledger.is_lacking
    False
    >>> again = [ledger.next_request(n) for n in (1, 3)]
    >>> [(request.machine, request.intervals) for request in again]
    [(1, ((0, 2),)), (3, ((0, 2),))]
    >>> for request in again:
    ...     ledger.answered(request)
    >>> ledger.is_done, [term.machine for term in ledger.counted()]
    (True, [1, 1, 3, 3])
    """

    def __init__(
        self,
        recovery: int,
        speeds: Sequence[float],
        spans: Callable[[Intervals], Iterable[Span]] | None = None,
    ) -> None:
        self._recovery, self._speeds, self._spans = recovery, speeds, spans
        self._terms: list[Term] = []  # of the plan
        self._open: list[Term] = []  # of these, without some that are known
        self._pending: dict[int, Term] = {}  # by machine
        self._assigned: dict[int, list[Term]] = defaultdict(list)  # not asked for yet
        self.is_lacking = False

    @property
    def is_done(self) -> bool:
        """Whether all terms are known."""
        while self._open and self._open[-1].is_known:
            self._open.pop()
        return not self._open

    def counted(self) -> list[Term]:
        """Return the terms of the sum, in the order of the plan."""
        return [each for term in self._terms for each in term.counted()]

    # Who is asked.

    def plan(self, rows: Mapping[int, Intervals]) -> None:
        """Expect the terms of a plan, by machine."""
        for machine, intervals in rows.items():
            if intervals:
                self._terms.append(Term(machine, intervals))
                self._assigned[machine].append(self._terms[-1])
        self._open = list(self._terms)

    @property
    def assigned(self) -> Collection[int]:
        """Machines that are to be asked for terms."""
        return self._assigned.keys()

    def next_request(self, machine: int) -> Request | None:
        """Return the request for the next term of a machine that is still wanted."""
        terms = self._assigned.pop(machine, [])
        while terms:
            term = terms.pop(0)
            if term.is_wanted:
                self._pending[machine] = term
                if terms:
                    self._assigned[machine] = terms
                return Request(machine, term.intervals, term)
            term.prospect = AnswerStatus.NONE
        return None

    def reassign(self, helpers: Collection[int], idle: Collection[int]) -> None:
        """Assign missing terms to these machines.

        Parameters
        ----------
        helpers : collection of int
            Machines that can be asked, now or after their answers.
        idle : collection of int
            Those that can be asked now. A machine that is back computes its own terms.
        """
        self.is_lacking = False
        for term in [each for planned in self._terms for each in planned.missing()]:
            if term.machine in idle:
                term.prospect = AnswerStatus.EXPECTED
                self._assigned[term.machine].append(term)
                continue
            able = set(helpers) - {term.machine}
            term.replacements = (
                self._replace_by_code(term, able)
                if self._spans is None
                else self._replace_by_copies(term, able)
            )
            self.is_lacking |= not term.replacements
            for other in term.replacements:
                self._assigned[other.machine].append(other)

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Get the unanswered terms of a machine from others.

        A term of a machine that `may_answer` counts if it is answered first.
        """
        self.is_lacking = True
        if (asked := self._pending.get(machine)) is not None:
            asked.prospect = AnswerStatus.LATE if may_answer else AnswerStatus.NONE
            if not may_answer:
                del self._pending[machine]
        for term in self._assigned.pop(machine, ()):
            term.prospect = AnswerStatus.NONE

    def drop(self, machine: int) -> None:
        """Get all terms of a machine from others, also those that it has answered."""
        self.release(machine)
        self._open = list(self._terms)
        for term in [each for planned in self._terms for each in planned.family()]:
            if term.machine == machine:
                for each in (term, *term.summed):
                    each.is_answered, each.prospect = False, AnswerStatus.NONE

    # Answers.

    def answered(self, request: Request, summed: Sequence[Term] = ()) -> None:
        """Note an answer, also a late one, and of which terms it is the sum."""
        term = self._pending.pop(request.machine)
        term.is_answered, term.prospect, term.summed = True, AnswerStatus.NONE, tuple(summed)

    def judged(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Do nothing: terms are checked one by one."""

    def instructions(self) -> list[IdentifyFaulty]:
        """Return nothing: terms are not compared."""
        return []

    def conclude(self) -> None:
        """Return nothing: terms are not compared."""

    # What replaces a term.

    def _replace_by_code(self, term: Term, able: set[int]) -> list[Term]:
        """Return the terms of the L fastest machines; none if they are fewer."""
        fastest = sorted(able, key=lambda n: (-self._speeds[n - 1], n))
        basis = tuple(sorted(fastest[: self._recovery]))
        if len(basis) < self._recovery:
            return []
        return [Term(machine, term.intervals, term, basis) for machine in basis]

    def _replace_by_copies(self, term: Term, able: set[int]) -> list[Term]:
        """Return terms of machines that hold the rows; none if rows have no holder."""
        assert self._spans is not None
        rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        given: dict[int, int] = defaultdict(int)
        for start, stop, holders in self._spans(term.intervals):
            holding = able.intersection(holders)
            if not holding:
                return []
            size = stop - start
            machine = min(holding, key=lambda n: ((given[n] + size) / self._speeds[n - 1], n))
            given[machine] += size
            rows[machine].append((start, stop))
        return [Term(machine, tuple(each), term) for machine, each in rows.items()]


class ProbeLedger:
    """Which machines have answered the probe, and whether their answers agree.

    All rows of the shards of new machines are multiplied with one vector, the probe. Terms of X' V
    are checked with these products later (see `core.checks.terms`). They are compared when no
    answer is expected any more, with those that are known.

    Parameters
    ----------
    recovery : int
        L: more products of a row are needed to compare them.
    spans : sequence of (int, int, tuple of int)
        All rows, cut where other machines hold them.
    known : collection of int
        Machines whose products are known.

    Attributes
    ----------
    answered_by : set of int
        New machines whose products are there.
    is_lacking : bool
        Whether new machines may be there that have not been asked.
    """

    def __init__(self, recovery: int, spans: Sequence[Span], known: Collection[int]) -> None:
        self._recovery, self._spans = recovery, spans
        self._verified = set(known)
        self._expected: set[int] = set()
        self._assigned: set[int] = set()
        self._agreeing_machines: dict[tuple[int, int], tuple[int, ...]] = {}
        self._dispute: FaultUndetermined | None = None
        self.answered_by: set[int] = set()
        self.is_lacking = True

    @property
    def is_done(self) -> bool:
        """Whether all that have been asked have answered, and agree."""
        return not (self.is_lacking or self._expected or self._uncompared_spans())

    def reassign(self, helpers: Collection[int], idle: Collection[int]) -> None:
        """Ask these machines, unless their products are known or expected."""
        self.is_lacking = False
        new = set(helpers) - self._verified - self.answered_by - self._expected
        self._assigned |= new
        self._expected |= new

    @property
    def assigned(self) -> Collection[int]:
        """Machines that are to be asked for products."""
        return self._assigned

    def next_request(self, machine: int) -> Request | None:
        """Return the request for the rows that a machine holds."""
        if machine not in self._assigned:
            return None
        self._assigned.discard(machine)
        return Request(
            machine, tuple((start, stop) for start, stop, who in self._spans if machine in who)
        )

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Expect no answer of a machine."""
        self._expected.discard(machine)
        self._assigned.discard(machine)

    def drop(self, machine: int) -> None:
        """Do not use the answer of a machine."""
        self.release(machine)
        self.answered_by.discard(machine)
        self._verified.discard(machine)
        self._dispute = None

    def answered(self, request: Request, summed: Sequence[Term] = ()) -> None:
        """Note an answer."""
        self._expected.discard(request.machine)
        self.answered_by.add(request.machine)
        self._dispute = None

    def judged(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Take the outcome of a comparison."""
        if isinstance(event, RowsAgree):
            self._agreeing_machines[event.start, event.stop] = event.machines
        elif isinstance(event, FaultUndetermined):
            self._dispute = event

    def instructions(self) -> list[IdentifyFaulty]:
        """Return the products that are to be compared."""
        if self._expected or self._dispute is not None:
            return []
        rows = self._uncompared_spans()
        return [IdentifyFaulty(*each) for each in rows if len(each[2]) > self._recovery]

    def conclude(self) -> Disagreement | None:
        """Return the rows whose products disagree, if the wrong machine is not certain."""
        return None if self._dispute is None else Disagreement(self._dispute)

    def _uncompared_spans(self) -> list[Span]:
        """Return the rows whose products have not been compared, and their machines."""
        found = []
        for start, stop, holders in self._spans:
            machines = tuple(sorted((self._verified | self.answered_by).intersection(holders)))
            is_new = not self.answered_by.isdisjoint(machines)
            if is_new and self._agreeing_machines.get((start, stop)) != machines:
                found.append((start, stop, machines))
        return found
