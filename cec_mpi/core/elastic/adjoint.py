"""The ledgers of X' V: terms of the sum, and products with the probe.

The plan assigns one term to each machine, ``shard[rows]' u`` with coefficients u, and the sum needs
all of them. A missing term is the sum of terms of L other machines m, ``shard_m[rows]' (c_m u)``
(see `Recombination`), or of machines that hold copies of the rows. Replacements can be replaced in
turn. Whichever is complete first counts: a replacement, or the term itself if its machine was late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cec_mpi.core.elastic.events import (
    Disagreement,
    FaultUndetermined,
    IdentifyFaults,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.terms import Term, TermStatus
from cec_mpi.core.plan.assignment import Intervals

Span = tuple[int, int, tuple[int, ...]]
"""``(start, stop, holders)``: rows ``start <= row < stop`` and the machines that hold them."""


class TermLedger:
    """The terms of X' V: assigned, answered or replaced.

    Parameters
    ----------
    recovery : int
        L.
    speeds : (N,) sequence of float
        Missing terms are replaced by terms of the fastest machines.
    spans : callable, optional
        For copies of rows: splits intervals of rows into spans with the same holders.

    Attributes
    ----------
    may_have_unassigned_work : bool
        Whether there may be missing terms that no machine has been assigned.

    Examples
    --------
    Any two of three machines suffice. Machine 2 is lost, and the others replace it:

    >>> ledger = TermLedger(2, (1.0, 1.0, 1.0))
    >>> ledger.assign_plan({1: ((0, 4),), 2: ((0, 2),), 3: ((2, 4),)})
    >>> first = [ledger.next_request(n) for n in (1, 2, 3)]
    >>> for request in (first[0], first[2]):
    ...     ledger.record_answer(request)
    >>> ledger.release(2)
    >>> ledger.reassign({1, 3}, idle_machines={1, 3})
    >>> ledger.may_have_unassigned_work
    False
    >>> again = [ledger.next_request(n) for n in (1, 3)]
    >>> [(request.machine, request.intervals) for request in again]
    [(1, ((0, 2),)), (3, ((0, 2),))]
    >>> for request in again:
    ...     ledger.record_answer(request)
    >>> ledger.is_done, [term.machine for term in ledger.answered_terms()]
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
        self._unresolved_terms: list[Term] = []  # of the plan; resolved ones are popped
        self._pending_terms: dict[int, Term] = {}  # by machine
        self._assigned_terms: dict[int, list[Term]] = defaultdict(list)  # not requested yet
        self.may_have_unassigned_work = False

    @property
    def is_done(self) -> bool:
        """Whether all terms are resolved: answered or replaced."""
        while self._unresolved_terms and self._unresolved_terms[-1].is_resolved:
            self._unresolved_terms.pop()
        return not self._unresolved_terms

    def answered_terms(self) -> list[Term]:
        """Return the answered terms that add up to X' V, in the order of the plan."""
        return [answered for term in self._terms for answered in term.answered_terms()]

    # Assignment.

    def assign_plan(self, rows: Mapping[int, Intervals]) -> None:
        """Assign one term to each machine with rows in a plan."""
        for machine, intervals in rows.items():
            if intervals:
                self._terms.append(Term(machine, intervals))
                self._assigned_terms[machine].append(self._terms[-1])
        self._unresolved_terms = list(self._terms)

    @property
    def assigned_machines(self) -> Collection[int]:
        """Machines with assigned terms that have not been requested yet."""
        return self._assigned_terms.keys()

    def next_request(self, machine: int) -> Request | None:
        """Return a request for the next assigned and still needed term of a machine."""
        terms = self._assigned_terms.pop(machine, [])
        while terms:
            term = terms.pop(0)
            if term.is_needed:
                self._pending_terms[machine] = term
                if terms:
                    self._assigned_terms[machine] = terms
                return Request(machine, term.intervals, term)
            term.status = TermStatus.NONE
        return None

    def reassign(self, helpers: Collection[int], idle_machines: Collection[int]) -> None:
        """Assign missing terms to these machines.

        Parameters
        ----------
        helpers : collection of int
            Machines that can get a request, now or after they answer.
        idle_machines : collection of int
            Helpers that can get a request now.
        """
        self.may_have_unassigned_work = False
        for term in [missing for planned in self._terms for missing in planned.missing_terms()]:
            if term.machine in idle_machines:  # it has rejoined
                term.status = TermStatus.EXPECTED
                self._assigned_terms[term.machine].append(term)
                continue
            candidates = set(helpers) - {term.machine}
            term.replacements = (
                self._replace_by_code(term, candidates)
                if self._spans is None
                else self._replace_by_copies(term, candidates)
            )
            self.may_have_unassigned_work |= not term.replacements
            for replacement in term.replacements:
                self._assigned_terms[replacement.machine].append(replacement)

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Mark the unanswered terms of a machine as missing.

        If the machine `may_answer`, its pending term still counts if it is answered first.
        """
        self.may_have_unassigned_work = True
        if (pending := self._pending_terms.get(machine)) is not None:
            pending.status = TermStatus.LATE if may_answer else TermStatus.NONE
            if not may_answer:
                del self._pending_terms[machine]
        for term in self._assigned_terms.pop(machine, ()):
            term.status = TermStatus.NONE

    def drop(self, machine: int) -> None:
        """Mark all terms of a machine as missing, including answered ones."""
        self.release(machine)
        self._unresolved_terms = list(self._terms)
        for term in [member for planned in self._terms for member in planned.subtree()]:
            if term.machine == machine:
                for dropped in (term, *term.added_terms):
                    dropped.is_answered, dropped.status = False, TermStatus.NONE

    # Answers.

    def record_answer(self, request: Request, added_terms: Sequence[Term] = ()) -> None:
        """Record an answer: the sum of the requested term and `added_terms`."""
        term = self._pending_terms.pop(request.machine)
        term.is_answered, term.status, term.added_terms = True, TermStatus.NONE, tuple(added_terms)

    def record_comparison(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Do nothing: terms are checked one by one."""

    def instructions(self) -> list[IdentifyFaults]:
        """Return no instructions: terms are checked one by one."""
        return []

    def conclude_dispute(self) -> None:
        """Return None: terms are checked one by one."""

    # Replacement.

    def _replace_by_code(self, term: Term, machines: set[int]) -> list[Term]:
        """Return terms of the L fastest of these machines; none if there are fewer than L."""
        fastest = sorted(machines, key=lambda n: (-self._speeds[n - 1], n))
        basis = tuple(sorted(fastest[: self._recovery]))
        if len(basis) < self._recovery:
            return []
        return [Term(machine, term.intervals, term, basis) for machine in basis]

    def _replace_by_copies(self, term: Term, machines: set[int]) -> list[Term]:
        """Return terms of holders of the rows; none if a row has no holder among these machines."""
        assert self._spans is not None
        rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        loads: dict[int, int] = defaultdict(int)
        for start, stop, holders in self._spans(term.intervals):
            candidates = machines.intersection(holders)
            if not candidates:
                return []
            size = stop - start
            machine = min(candidates, key=lambda n: ((loads[n] + size) / self._speeds[n - 1], n))
            loads[machine] += size
            rows[machine].append((start, stop))
        return [Term(machine, tuple(intervals), term) for machine, intervals in rows.items()]


class ProbeLedger:
    """The products of shards with the probe, which are later used to check terms of X' V.

    Machines without a verified product multiply all rows of their shards by one vector, the probe
    (see `core.checks.terms`). When no answer is pending, their products are compared with each
    other and with verified products.

    Parameters
    ----------
    recovery : int
        L. A comparison of a row needs more products than that.
    spans : sequence of (int, int, tuple of int)
        All rows, split where the holders change.
    verified_machines : collection of int
        Machines with verified products.

    Attributes
    ----------
    answered_machines : set of int
        Machines without a verified product that have answered.
    may_have_unassigned_work : bool
        Whether new machines without a request may be available.
    """

    def __init__(
        self, recovery: int, spans: Sequence[Span], verified_machines: Collection[int]
    ) -> None:
        self._recovery, self._spans = recovery, spans
        self._verified_machines = set(verified_machines)
        self._expected_machines: set[int] = set()
        self._assigned_machines: set[int] = set()
        self._agreeing_machines: dict[tuple[int, int], tuple[int, ...]] = {}
        self._dispute: FaultUndetermined | None = None
        self.answered_machines: set[int] = set()
        self.may_have_unassigned_work = True

    @property
    def is_done(self) -> bool:
        """Whether all requests are answered, and all products agree."""
        return not (
            self.may_have_unassigned_work or self._expected_machines or self._uncompared_spans()
        )

    def reassign(self, helpers: Collection[int], idle_machines: Collection[int]) -> None:
        """Assign products to machines without a verified, answered or expected product."""
        self.may_have_unassigned_work = False
        machines_with_product = self._verified_machines | self.answered_machines
        new_machines = set(helpers) - machines_with_product - self._expected_machines
        self._assigned_machines |= new_machines
        self._expected_machines |= new_machines

    @property
    def assigned_machines(self) -> Collection[int]:
        """Machines whose assigned products have not been requested yet."""
        return self._assigned_machines

    def next_request(self, machine: int) -> Request | None:
        """Return a request for all rows of a machine."""
        if machine not in self._assigned_machines:
            return None
        self._assigned_machines.discard(machine)
        intervals = [(start, stop) for start, stop, holders in self._spans if machine in holders]
        return Request(machine, tuple(intervals))

    def release(self, machine: int, may_answer: bool = False) -> None:
        """Stop waiting for a machine's answer."""
        self._expected_machines.discard(machine)
        self._assigned_machines.discard(machine)

    def drop(self, machine: int) -> None:
        """Discard the answer of a machine."""
        self.release(machine)
        self.answered_machines.discard(machine)
        self._verified_machines.discard(machine)
        self._dispute = None

    def record_answer(self, request: Request, added_terms: Sequence[Term] = ()) -> None:
        """Record an answer."""
        self._expected_machines.discard(request.machine)
        self.answered_machines.add(request.machine)
        self._dispute = None

    def record_comparison(self, event: RowsAgree | RowsDisagree | FaultUndetermined) -> None:
        """Record the outcome of a comparison."""
        if isinstance(event, RowsAgree):
            self._agreeing_machines[event.start, event.stop] = event.machines
        elif isinstance(event, FaultUndetermined):
            self._dispute = event

    def instructions(self) -> list[IdentifyFaults]:
        """Return instructions to identify faults."""
        if self._expected_machines or self._dispute is not None:
            return []
        spans = self._uncompared_spans()
        return [IdentifyFaults(*span) for span in spans if len(span[2]) > self._recovery]

    def conclude_dispute(self) -> Disagreement | None:
        """Return the unresolved disagreement, if there is one."""
        return None if self._dispute is None else Disagreement(self._dispute)

    def _uncompared_spans(self) -> list[Span]:
        """Return the spans with uncompared products, and the machines to compare."""
        spans, machines_with_product = [], self._verified_machines | self.answered_machines
        for start, stop, holders in self._spans:
            machines = tuple(sorted(machines_with_product.intersection(holders)))
            has_new_product = not self.answered_machines.isdisjoint(machines)
            if has_new_product and self._agreeing_machines.get((start, stop)) != machines:
                spans.append((start, stop, machines))
        return spans
