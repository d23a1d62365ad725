"""Random events: a step gives correct results from L answers, or fails with the true cause."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import count

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from cec_mpi import make_code
from cec_mpi.core.accuracy.recombine import Recombination
from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic import events
from cec_mpi.core.elastic.adjoint import ProbeLedger, TermLedger
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.states import Deadline, State
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.answers import DecoderCache

ROWS = 12
KINDS = st.sampled_from(["terms", "compared rows", "compared rows", "rows", "probe"])
INDEX = st.integers(0, 10**6)  # taken modulo the number of candidates


class Process:
    """A simulated process of one machine."""

    def __init__(self, host, is_faulty=False, is_busy=False):
        self.host, self.is_faulty = host, is_faulty
        self.is_busy = is_busy  # with a request of an earlier step
        self.request = None  # the request of this step that it computes
        self.message = ()  # of the request; a host answers all requests of a message with one sum
        self.is_unresponsive = False


def has_computing_machines(cluster):
    return cluster.is_running and bool(cluster.computing_machines())


class Cluster(RuleBasedStateMachine):
    """A simulated hub and its machines, with any event at any time."""

    @initialize(data=st.data())
    def set_up(self, data):
        draw = data.draw
        self.recovery = draw(st.integers(1, 4), "recovery")
        self.count = self.recovery + draw(st.sampled_from([3, 4, 2, 1, 0]), "machines beyond L")
        self.all_machines = tuple(range(1, self.count + 1))
        at_most_one = st.sets(st.sampled_from(self.all_machines), max_size=1)
        faulty = draw(st.sets(st.sampled_from(self.all_machines), max_size=2), "faulty")
        busy, absent = draw(at_most_one, "busy"), draw(at_most_one, "absent")
        self.hosts, self.turn = count(self.count + 1), 0
        per_host = draw(st.integers(1, 3), "initial machines of a host")
        self.processes = {
            n: Process(n // per_host, n in faulty, n in busy)
            for n in self.all_machines
            if n not in absent
        }
        self.opening = {}  # host by machine
        self.waits_for_joins = draw(st.booleans(), "waits for vacant machines")
        self.capacity = draw(st.integers(1, 5), "machines of a host")
        self.can_adopt = draw(st.booleans(), "adopts")
        self.now, self.predicted = 100.0, draw(st.sampled_from([None, 1.0]), "predicted")
        self.code = make_code(self.count, self.recovery)
        self.speeds = [draw(st.sampled_from([1.0, 2.0, 0.1])) for _ in self.all_machines]
        self.deadline = draw(st.sampled_from([None, Deadline(factor=1.5)]), "deadline")
        self.stale_requests = []
        self.start(draw(KINDS, "kind"), draw(at_most_one, "preempted"))

    def start(self, kind, preempted):
        """Begin a step; machines may still compute for the previous one."""
        self.plans_absent = kind == "terms" and self.now % 2 < 1
        self.kind, self.compares = kind, kind in ("compared rows", "probe")
        self.listed = set(self.all_machines) - preempted
        for process in self.processes.values():
            if process.request is not None:
                self.stale_requests.append(process.request)
                process.request, process.is_busy = None, True
        self.roster_events = []
        self.answers = defaultdict(dict)  # by machine: whether each answered row is correct
        self.usable_rows = defaultdict(set)  # by machine
        self.decoded_rows, self.outcome, self.ledger = set(), None, None
        self.wait_end = self.shortage_start = math.inf
        self.adopt_after = 2.0 if self.can_adopt and not self.compares else math.inf
        states = {
            n: State.BUSY if p.is_busy else State.IDLE
            for n, p in self.processes.items()
            if not p.is_unresponsive
        }
        self.step = ElasticStep(
            states,
            {n: self.now - 1 for n, state in states.items() if state is State.BUSY},
            lambda machines: max(0, self.recovery + self.compares - len(machines)),
            self.deadline,
            None,
            self.waits_for_joins,
            self.adopt_after,
        )
        self.step.handle(events.AvailabilityChanged(frozenset(self.listed)), self.now)
        self.follow_instructions()

    def plan(self, machines):
        """Return the ledger of a step with these machines."""
        machines_per_row = self.recovery + (self.kind == "compared rows")
        plan = plan_step(machines, self.speeds, machines_per_row, ROWS)
        rows = plan.assignment.all_intervals()
        if self.kind == "probe":
            return ProbeLedger(self.recovery, [(0, ROWS, self.all_machines)], ())
        if self.kind == "terms":
            ledger = TermLedger(self.recovery, self.speeds)
            self.coefficients = np.random.default_rng(0).standard_normal((self.count + 1, ROWS))
            self.sum = sum(
                self.contribution(n, intervals, self.coefficients[n])
                for n, intervals in rows.items()
            )
        else:
            decoders = DecoderCache(self.code)
            ledger = RowLedger(ROWS, self.recovery, self.speeds, decoders, self.compares)
        ledger.assign_plan(rows)
        return ledger

    # --- events ---------------------------------------------------------------------------

    def report(self, *new_events):
        self.update_shortage()
        for event in new_events:
            self.step.handle(event, self.now)
        self.follow_instructions()

    def computing_machines(self):
        return [n for n, p in sorted(self.processes.items()) if p.request is not None]

    @property
    def is_running(self):
        return self.outcome is None

    def take_request(self, index):
        """Take the request of a machine; return both, or None if the machine is unresponsive."""
        machine = pick(self.computing_machines(), index)
        process = self.processes[machine]
        if process.is_unresponsive:
            return None, None
        request, process.request = process.request, None
        return machine, request

    @precondition(has_computing_machines)
    @rule(indices=st.lists(INDEX, min_size=1, max_size=12))
    def answer(self, indices):
        for index in indices:
            if has_computing_machines(self):
                self.answer_one(index)

    def answer_one(self, index):
        machine = pick(self.computing_machines(), index)
        process = self.processes[machine]
        request, process.request = process.request, None
        if process.is_unresponsive:
            process.is_unresponsive = False
            self.report(events.RequestAnswered(request), events.MachineJoined(machine))
        elif self.kind == "terms" and process.is_faulty:
            self.report(events.AnswerRejected(request))
        elif self.kind == "terms":
            requests = [request, *self.take_requests_of_message(process, request)]
            terms = tuple(request.term for request in requests)
            self.report(*(events.RequestAnswered(request, terms) for request in requests))
        else:
            if self.step.is_pending(request):
                for row in list_rows(request.intervals):
                    self.answers[machine][row] = not (process.is_faulty and self.compares)
                    self.usable_rows[machine].add(row)
            self.report(events.RequestAnswered(request))

    def take_requests_of_message(self, process, request):
        """Return the requests of other machines that a host answers with the same sum."""
        if not self.step.is_pending(request):
            return []
        requests = []
        for other in self.processes.values():
            has_same_message = other.message == process.message and other.request is not None
            if has_same_message and not (other.is_unresponsive or other.is_faulty):
                requests.append(other.request)
                other.request = None
        return requests

    @precondition(has_computing_machines)
    @rule(index=INDEX, is_failure=st.booleans())
    def answer_not_finite_or_fail(self, index, is_failure):
        machine, request = self.take_request(index)
        if request is not None:
            nonfinite = NonfiniteAnswer(machine, math.nan, 0)
            rejected = events.AnswerRejected(request, nonfinite)
            self.report(events.ComputationFailed(request) if is_failure else rejected)

    @precondition(has_computing_machines)
    @rule(index=INDEX, is_replaced=st.booleans())
    def answer_wrongly_and_lose(self, index, is_replaced):
        """Lose a faulty process before the step can exclude it."""
        machine, request = self.take_request(index)
        if request is None:
            return
        self.remove(machine)
        new_events = [events.AnswerRejected(request), events.MachineLost(machine, "process ended")]
        if is_replaced:
            self.processes[machine] = Process(next(self.hosts))
            new_events.append(events.MachineJoined(machine))
        self.usable_rows[machine].clear()
        self.report(*new_events)

    @precondition(lambda self: self.is_running and self.processes)
    @rule(index=INDEX, event=st.sampled_from([events.MachineLost, events.MachineLeft]))
    def lose_host(self, index, event):
        host = self.processes[pick(sorted(self.processes), index)].host
        machines = [n for n, p in sorted(self.processes.items()) if p.host == host]
        self.opening = {n: opener for n, opener in self.opening.items() if opener != host}
        for machine in machines:
            self.remove(machine)
        self.report(*(event(machine, "loss of the host") for machine in machines))

    @precondition(lambda self: self.is_running and self.absent_machines())
    @rule(index=INDEX)
    def open_machine(self, index):
        self.opening[pick(self.absent_machines(), index)] = next(self.hosts)
        self.follow_instructions()

    @precondition(lambda self: self.is_running and self.opening)
    @rule(index=INDEX, joins=st.sampled_from([True, True, False]), is_faulty=st.booleans())
    def end_opening(self, index, joins, is_faulty):
        machine = pick(sorted(self.opening), index)
        host = self.opening.pop(machine)
        if joins:
            self.processes[machine] = Process(host, is_faulty)
            self.report(events.MachineJoined(machine))
        else:
            self.follow_instructions()

    @precondition(lambda self: self.is_running and self.busy_processes())
    @rule()
    def answer_previous_step(self):
        machine, process = self.busy_processes()[0]
        process.is_busy = False
        if process.is_unresponsive:
            process.is_unresponsive = False
            self.report(events.MachineJoined(machine))
        else:
            self.report(events.BusyMachineAnswered(machine))

    @precondition(lambda self: self.is_running and self.wait_end < math.inf)
    @rule()
    def time_out(self):
        self.now = max(self.now, self.wait_end)
        self.follow_instructions()

    @precondition(lambda self: self.is_running and self.stale_requests)
    @rule(
        index=INDEX,
        event=st.sampled_from(
            [events.RequestAnswered, events.AnswerRejected, events.ComputationFailed]
        ),
    )
    def answer_stale_request(self, index, event):
        self.report(event(pick(self.stale_requests, index)))

    @precondition(lambda self: self.is_running and len(self.processes) < self.count)
    @rule(index=INDEX)
    def repeat_loss(self, index):
        lost = sorted(set(self.all_machines) - set(self.processes))
        self.report(events.MachineLost(pick(lost, index), "repeated"))

    @precondition(lambda self: not self.is_running)
    @rule(
        kind=KINDS,
        preempted=st.sets(st.integers(1, 8), max_size=1),
        join=st.sampled_from([True, True, False]),
        faulty=st.sets(st.integers(1, 8), max_size=2),
    )
    def start_next_step(self, kind, preempted, join, faulty):
        for machine in self.absent_machines() if join else ():
            self.processes[machine] = Process(next(self.hosts), machine in faulty)
        self.start(kind, preempted)

    def remove(self, machine):
        process = self.processes.pop(machine)
        if process.request is not None:
            self.stale_requests.append(process.request)

    # --- the state of machines ------------------------------------------------------------

    def busy_processes(self):
        return [(n, p) for n, p in sorted(self.processes.items()) if p.is_busy]

    def absent_machines(self):
        return sorted(set(self.all_machines) - set(self.processes) - set(self.opening))

    def vacant_machines(self):
        return frozenset(self.absent_machines() if self.waits_for_joins else ())

    def hosts_with_capacity(self):
        machines = Counter([*(p.host for p in self.processes.values()), *self.opening.values()])
        running = {p.host for p in self.processes.values() if not p.is_unresponsive}
        return sorted(host for host in running if machines[host] < self.capacity)

    def adoptable_machines(self):
        return frozenset(self.absent_machines() if self.hosts_with_capacity() else ())

    def unresponsive_machines(self):
        return {n for n, p in self.processes.items() if p.is_unresponsive}

    def update_shortage(self):
        present = self.processes.keys() - self.unresponsive_machines() | self.opening.keys()
        remaining = present & self.listed
        is_short = len(remaining) < self.recovery
        self.shortage_start = min(self.shortage_start, self.now) if is_short else math.inf

    # --- instructions ---------------------------------------------------------------------

    def follow_instructions(self):
        for _ in range(1000):
            pending = events.ExpectedMachines(
                frozenset(self.opening), self.vacant_machines(), self.adoptable_machines()
            )
            for event in (pending, *self.roster_events):
                self.step.handle(event, self.now)
            self.roster_events = []
            self.update_shortage()
            self.turn += 1
            for instruction in self.step.instructions(self.now):
                if self.follow(instruction):
                    return
        raise AssertionError("the instructions do not end")

    def follow(self, instruction):
        """Check and follow an instruction; return whether it is the last one for now."""
        available = {
            n
            for n, p in self.processes.items()
            if n in self.listed and not p.is_unresponsive and not p.is_busy
        }
        match instruction:
            case events.Request(machine):
                process = self.processes[machine]
                assert machine in self.listed
                assert process.request is None
                assert not process.is_busy
                assert machine not in self.opening
                self.check_request(instruction)
                process.request = instruction
                replaced = instruction.term and instruction.term.replaces
                process.message = process.host, self.turn, replaced
                self.step.handle(events.RequestsSent([instruction]), self.now)
            case events.Compare(start, stop, machines):
                agree = self.are_correct(start, stop, machines)
                outcome = events.RowsAgree if agree else events.RowsDisagree
                self.step.handle(outcome(start, stop, machines), self.now)
            case events.IdentifyFaults(start, stop, machines):
                self.step.handle(self.identify_faulty(start, stop, machines), self.now)
            case events.Decode(start, stop, machines):
                assert len(set(machines)) == self.recovery
                assert self.are_correct(start, stop, machines)
                assert all(self.usable_rows[n] >= set(range(start, stop)) for n in machines)
                self.decoded_rows.update(range(start, stop))
            case events.MarkLate(machine):
                assert self.processes[machine].request is not None
            case events.MarkUnresponsive(machine):
                process = self.processes[machine]
                assert process.is_busy or process.request is not None
                if process.request is not None:
                    self.stale_requests.append(process.request)
                process.is_unresponsive = True
                self.roster_events.append(events.MachineUnresponsive(machine, "silent"))
            case events.Adopt(machine):
                assert machine in self.adoptable_machines() & self.listed
                assert self.now >= self.shortage_start + self.adopt_after
                self.opening[machine] = self.hosts_with_capacity()[0]
            case events.Exclude(machine, event):
                self.remove(machine)
                self.roster_events.append(event(machine, "by the step"))
                if event is events.MachineExcluded:
                    self.usable_rows[machine].clear()
            case events.StartStep(machines):
                assert self.ledger is None
                assert set(machines) <= available
                planned = sorted({*machines, *(self.listed if self.plans_absent else ())})
                self.ledger = self.plan(planned)
                self.step.begin(self.ledger, self.listed, self.predicted, self.now)
            case events.WaitUntil(clock_time):
                self.wait_end = clock_time
                assert clock_time > self.now or self.ledger is None
                may_adopt = self.adopt_after < math.inf and self.adoptable_machines()
                may_join = self.opening or self.vacant_machines() or may_adopt
                assert self.computing_machines() or self.busy_processes() or may_join
                return True
            case events.Done():
                self.outcome = instruction
                assert set(self.step.pending) <= set(self.computing_machines())
                self.check_result()
                return True
            case events.StepFailed(cause):
                self.outcome = instruction
                self.check_failure(cause, available)
                return True
        return False

    def check_request(self, request):
        """Check that a request is for missing rows or for a needed term."""
        if self.kind in ("rows", "compared rows"):
            rows = set(list_rows(request.intervals))
            assert not rows & (self.usable_rows[request.machine] | self.decoded_rows)
        elif self.kind == "terms":
            assert request.term.is_needed

    def are_correct(self, start, stop, machines):
        return all(self.answers[n][row] for n in machines for row in range(start, stop))

    def identify_faulty(self, start, stop, machines):
        assert len(machines) > self.recovery
        faulty = tuple(n for n in machines if not self.are_correct(start, stop, (n,)))
        if not faulty:
            return events.RowsAgree(start, stop, machines)
        if len(machines) >= self.recovery + 3 and len(faulty) <= len(machines) - self.recovery - 1:
            for n in faulty:
                self.usable_rows[n].clear()
            return events.FaultsIdentified(faulty)
        return events.FaultUndetermined(start, stop, machines, ())

    # --- results --------------------------------------------------------------------------

    def check_result(self):
        if self.kind in ("rows", "compared rows"):
            assert self.decoded_rows == set(range(ROWS))
        elif self.kind == "terms":
            terms = self.ledger.answered_terms()
            assert all({*term.added_terms} <= {*terms} for term in terms)
            total = sum(
                self.contribution(term.machine, term.intervals, self.term_coefficients(term))
                for term in terms
            )
            np.testing.assert_allclose(total, self.sum, atol=1e-6)
        else:
            assert all(self.are_correct(0, ROWS, (n,)) for n in self.ledger.answered_machines)

    def check_failure(self, cause, available):
        """Check that the remaining machines do not suffice."""
        has_begun = self.ledger is not None
        responsive = self.listed - self.unresponsive_machines()
        assert not has_begun or not set(self.computing_machines()) & responsive
        if isinstance(cause, events.TooFewMachines):
            assert self.adopt_after == math.inf or not self.adoptable_machines() & self.listed
            needed, usable = self.recovery + self.compares, len(available)
            if has_begun and self.kind in ("rows", "compared rows"):
                usable = min(
                    len(available | {n for n, rows in self.usable_rows.items() if row in rows})
                    for row in set(range(ROWS)) - self.decoded_rows
                )
            if has_begun and self.kind == "terms":
                needed += 1  # including the machine whose term is missing
            assert usable < needed
        elif isinstance(cause, events.Disagreement):
            start, stop, machines = cause.dispute.start, cause.dispute.stop, cause.dispute.machines
            assert not self.are_correct(start, stop, machines)
            assert set(machines) >= available or len(machines) < self.recovery + 3

    def contribution(self, machine, intervals, coefficients):
        """Return the contribution of rows of a shard to the parts of X' V."""
        parts = np.zeros((self.recovery, ROWS))
        for row in list_rows(intervals):
            parts[:, row] = coefficients[row] * self.code.generator[machine - 1]
        return parts

    def term_coefficients(self, term):
        if term.replaces is None:
            return self.coefficients[term.machine]
        generator, replaced = self.code.generator, term.replaces.machine
        weights = Recombination(generator, term.basis, generator[[replaced - 1]]).coefficients[0]
        return weights[term.basis.index(term.machine)] * self.term_coefficients(term.replaces)

    def teardown(self):
        """Let all pending events happen, without new machines: the step must end."""
        if not hasattr(self, "outcome"):
            return
        self.waits_for_joins = False
        for _ in range(10_000):  # a loss replaces a term by L terms
            if not self.is_running:
                return
            if self.computing_machines():
                self.answer_one(0)
            elif self.busy_processes():
                self.answer_previous_step()
            elif self.opening:
                self.end_opening(0, True, False)
            elif self.wait_end < math.inf:
                self.time_out()
            else:
                self.follow_instructions()
        raise AssertionError("the step does not end")


def pick(candidates, index):
    return candidates[index % len(candidates)]


def list_rows(intervals):
    return [row for start, stop in intervals for row in range(start, stop)]


TestRandomEvents = Cluster.TestCase
TestRandomEvents.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
