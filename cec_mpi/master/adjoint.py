"""X' V of an elastic step: the terms of a sum, and what replaces missing terms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError, MachineError
from cec_mpi.master.in_flight import StepInFlight
from cec_mpi.master.step import Step
from cec_mpi.text import plural
from cec_mpi.wire.jobs import Intervals, Job

if TYPE_CHECKING:
    from cec_mpi.master.one_by_one import MadeOneByOne


@dataclass(eq=False)
class _Term:
    """A part of the sum X' V: some rows of a machine's shard, each with its coefficients.

    Its value comes from its machine or from the terms that replace it, whichever is first.
    """

    machine: int
    intervals: Intervals
    coefficients: NDArray[Any]
    stands_in_for: _Term | None = None
    made_of: list[_Term] = field(default_factory=list)
    value: NDArray[Any] | None = None
    lost: bool = False  # its machine will not answer

    @property
    def is_known(self) -> bool:
        return self.value is not None or (
            bool(self.made_of) and all(term.is_known for term in self.made_of)
        )

    @property
    def is_wanted(self) -> bool:
        """Whether neither the term nor the one that it replaces is known."""
        above = self.stands_in_for
        return not self.is_known and (above is None or above.is_wanted)

    def used(self) -> Iterator[_Term]:
        """Yield the terms whose values count."""
        if self.value is not None:
            yield self
        else:
            for term in self.made_of:
                yield from term.used()

    def add_to(self, total: NDArray[np.float64]) -> None:
        """Add the value of the term."""
        for term in self.used():
            assert term.value is not None
            total += term.value


class AdjointStep(StepInFlight):
    """X' V: all terms are needed, and a missing one is computed from L others.

    ``shard_lost[rows]' u`` is the sum of ``shard_m[rows]' (c_m u)`` over L other machines m
    (see `Recombination`).
    """

    def __init__(self, master: MadeOneByOne, step: Step, coded: NDArray[Any], columns: int) -> None:
        super().__init__(master, step)
        self._coded = coded
        self._size = columns * step.product.columns
        self._terms: list[_Term] = []  # of the plan
        self._asked: dict[Job, _Term] = {}
        self._aside: dict[int, list[_Term]] = defaultdict(list)
        self._missing: list[_Term] = []  # to be computed by other machines
        self._checks = master.terms

    def helpers(self) -> set[int]:
        """See `StepInFlight.helpers`; only machines whose terms can be checked."""
        found = super().helpers()
        return found if self._checks is None else found & self._checks.products.keys()

    def first_jobs(self) -> None:
        """Send the jobs of the plan, or have others do them where terms cannot be checked."""
        k = self.step.product.columns
        position = 0
        for machine, intervals in self.step.plan.assignment.intervals_of_all().items():
            size = sum(stop - start for start, stop in intervals) * k
            if size:
                term = _Term(machine, intervals, self._coded[position : position + size])
                self._terms.append(term)
                self._aside[machine].append(term)
            position += size
        for machine in list(self._aside):
            if machine in self.helpers():
                self.next_job(machine)
            else:
                self.drop(machine)
        self._hand_on()

    def is_done(self) -> bool:
        """Whether all terms are known."""
        return all(term.is_known for term in self._terms)

    def take(self, job: Job) -> None:
        """Use an answer, also a late one, if it passes its check."""
        term, checks = self._asked.pop(job), self._checks
        if checks is not None:
            with self.step.timed("code"):
                fails = checks.fails(job.machine, job.intervals, term.coefficients, job.values)
            if fails:
                checks.products.pop(job.machine)  # it may have been the product that was wrong
                self._lose(term)
                self.exclude(job.machine)
                return
        term.value = job.values

    def drop(self, machine: int) -> None:
        """Get the terms of a machine from others."""
        is_late = machine in self.outstanding
        for job, term in list(self._asked.items()):
            if term.machine == machine and term.is_wanted:
                if not is_late:
                    del self._asked[job]
                    term.lost = True
                elif term.stands_in_for is not None and not term.stands_in_for.lost:
                    continue  # as late as the term that it replaces: more work would not help
                if not term.made_of:
                    self._missing.append(term)
        for term in self._aside.pop(machine, ()):
            self._lose(term)

    def _lose(self, term: _Term) -> None:
        if term.is_wanted:
            term.lost = True
            self._missing.append(term)

    def hand_on(self) -> None:
        """Send missing terms to other machines."""
        while self._missing:
            term = self._missing[-1]
            if term.machine in self.helpers() and term.machine not in self.outstanding:
                self._aside[term.machine].append(term)
            elif term.is_wanted:
                self._make_of_others(term)
            self._missing.pop()
        for machine in self.ready() & set(self._aside):
            self.next_job(machine)

    def next_job(self, machine: int) -> None:
        """Send a machine its next term that is still needed."""
        terms = self._aside.get(machine, [])
        while terms and machine not in self.outstanding:
            term = terms.pop(0)
            if term.is_wanted:
                self._give(term)

    def result(self) -> NDArray[Any]:
        """Return the sum of all terms, in the order of machines."""
        total = np.zeros(self._size)
        for term in self._terms:
            term.add_to(total)
        return total

    def disagreement(self) -> MachineError | None:
        """Return the error that names wrong machines which the step needs."""
        if not self.wrong:
            return None
        numbers = ", ".join(map(str, sorted(self.wrong)))
        return MachineError(
            f"step {self.step.number} has failed: machine {numbers} answered wrong numbers, and "
            "too few other machines are available to compute its part of X' v"
        )

    def _give(self, term: _Term) -> None:
        self.ask(term.machine, term.intervals, term.coefficients)
        self._asked[self.outstanding[term.machine]] = term

    def _make_of_others(self, term: _Term) -> None:
        placement = self.master.steps.placement
        if isinstance(placement, ReplicaPlacement):
            self._copy_to_others(term, placement)
            return
        generator, dtype = self.master.manifest.code.generator, self._coded.dtype
        others = self._others(term.machine)
        made_of = Recombination(generator, others, generator[[term.machine - 1]])
        for machine, weight in zip(others, made_of.coefficients[0], strict=True):
            part = (weight * term.coefficients).astype(dtype, copy=False)
            made = _Term(machine, term.intervals, part, stands_in_for=term)
            term.made_of.append(made)
            self._aside[machine].append(made)

    def _copy_to_others(self, term: _Term, placement: ReplicaPlacement) -> None:
        """Have each row of a term from another machine that holds it."""
        k, speeds = self.step.product.columns, self.step.speeds
        helpers = self.helpers() - {term.machine}
        rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
        parts: dict[int, list[NDArray[Any]]] = defaultdict(list)
        given: dict[int, int] = defaultdict(int)
        position = 0
        for start, stop, holders in placement.spans(term.intervals):
            able = helpers.intersection(holders)
            if not able:
                raise InfeasibleError(
                    f"step {self.step.number} has lost machine {term.machine}: no other machine "
                    f"that is there holds rows {start}..{stop - 1}"
                )
            machine = min(able, key=lambda n: ((given[n] + stop - start) / speeds[n - 1], n))
            given[machine] += stop - start
            size = (stop - start) * k
            rows[machine].append((start, stop))
            parts[machine].append(term.coefficients[position : position + size])
            position += size
        for machine, intervals in rows.items():
            part = np.concatenate(parts[machine])
            made = _Term(machine, tuple(intervals), part, stands_in_for=term)
            term.made_of.append(made)
            self._aside[machine].append(made)

    def _others(self, machine: int) -> tuple[int, ...]:
        """Return the L machines that replace one: the fastest."""
        needed, speeds = self.master.manifest.code.recovery, self.step.speeds
        others = sorted(self.helpers() - {machine}, key=lambda n: (-speeds[n - 1], n))
        if len(others) < needed:
            raise InfeasibleError(
                f"step {self.step.number} has lost machine {machine}: its part needs "
                f"{plural(needed, 'other machine')}, and {len(others)} are available"
            )
        return tuple(sorted(others[:needed]))
