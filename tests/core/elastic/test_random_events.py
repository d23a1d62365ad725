"""Random events: a step ends with every row from L right answers, or with the true reason."""

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
from cec_mpi.core.elastic.adjoint import ProbeLedger, TermLedger
from cec_mpi.core.elastic.events import (
    Adopt,
    AnswerRejected,
    AvailabilityTick,
    BusyMachineAnswered,
    Compare,
    ComputationFailed,
    Decode,
    Disagreement,
    Done,
    Exclude,
    FaultUndetermined,
    FaultyIdentified,
    GiveUp,
    IdentifyFaulty,
    MachineExcluded,
    MachineGivenUp,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MarkLate,
    PendingMachines,
    Request,
    RequestAnswered,
    RequestsSent,
    RowsAgree,
    RowsDisagree,
    StartStep,
    StepFailed,
    TooFewMachines,
    WaitUntil,
)
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.elastic.losses import Deadline, State
from cec_mpi.core.elastic.step import ElasticStep
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.answers import Decoders

ROWS = 12
KINDS = st.sampled_from(["terms", "compared rows", "rows", "probe"])
PLACES = st.integers(0, 10**6)  # which of those that are possible


class Process:
    """What a host does as one of its machines.

    Attributes
    ----------
    host : int
    is_liar : bool
        Whether its answers are wrong.
    request : Request or None
        What it computes; `is_busy` without one: for an earlier step.
    message : tuple
        What it was sent with; requests of one message are answered with one sum.
    """

    def __init__(self, host, is_liar=False, is_busy=False):
        self.host = host
        self.is_liar, self.is_busy = is_liar, is_busy
        self.request, self.message = None, ()
        self.is_given_up = False


class World(RuleBasedStateMachine):
    """A hub and its machines, to which anything may happen at any time."""

    # --- the beginning --------------------------------------------------------------------

    @initialize(data=st.data())
    def begin(self, data):
        draw = data.draw
        self.recovery = draw(st.integers(1, 4), "recovery")
        self.count = self.recovery + draw(st.sampled_from([3, 2, 4, 1, 0]), "machines beyond L")
        everyone = range(1, self.count + 1)
        few = st.sets(st.sampled_from(everyone), max_size=1)
        liars = draw(st.sets(st.sampled_from(everyone), max_size=2), "liars")
        busy, absent = draw(few, "busy"), draw(few, "absent")
        self.hosts, self.turn = count(self.count + 1), 0
        together = draw(st.integers(1, 3), "machines of a host at first")
        self.processes = {
            n: Process(n // together, n in liars, n in busy) for n in everyone if n not in absent
        }
        self.opening = {}  # machines, and which host opens their shards
        self.vacant = draw(st.booleans(), "waits for vacant machines")
        self.capacity = draw(st.integers(1, 5), "machines of a host")
        self.can_adopt_machines = draw(st.booleans(), "adopts")
        self.now, self.predicted = 100.0, draw(st.sampled_from([None, 1.0]), "predicted")
        self.code = make_code(self.count, self.recovery)
        self.speeds = [draw(st.sampled_from([1.0, 2.0, 0.1])) for _ in everyone]
        self.deadline = draw(st.sampled_from([None, Deadline(factor=1.5)]), "deadline")
        self.stale = []
        self.start(draw(KINDS, "kind"), draw(few, "preempted"))

    def start(self, kind, preempted):
        """Begin a step, with machines that may still compute for the one before."""
        self.with_absent = kind == "terms" and self.now % 2 < 1  # their terms are replaced at once
        self.kind, self.compares = kind, kind in ("compared rows", "probe")
        self.listed = set(range(1, self.count + 1)) - preempted
        for process in self.processes.values():
            if process.request is not None:
                self.stale.append(process.request)
                process.request, process.is_busy = None, True
        self.expected_events = []
        self.answers = defaultdict(dict)  # rows to whether they are right, by machine
        self.usable = defaultdict(set)  # rows, by machine
        self.decoded, self.outcome, self.begun, self.moment = set(), None, False, math.inf
        self.short_since = math.inf
        self.adopt_after = 2.0 if self.can_adopt_machines and not self.compares else math.inf
        states = {
            n: State.BUSY if p.is_busy else State.IDLE
            for n, p in self.processes.items()
            if not p.is_given_up
        }
        self.step = ElasticStep(
            states,
            {n: self.now - 1 for n, state in states.items() if state is State.BUSY},
            lambda machines: max(0, self.recovery + self.compares - len(machines)),
            self.deadline,
            None,
            self.vacant,
            self.adopt_after,
        )
        self.step.handle(AvailabilityTick(frozenset(self.listed)), self.now)
        self.follow()

    def plan(self, machines):
        """Return the ledger of a step with these machines."""
        copies = self.recovery + (self.kind == "compared rows")
        plan = plan_step(
            machines, [self.speeds[n - 1] for n in range(1, self.count + 1)], copies, ROWS
        )
        rows = plan.assignment.all_intervals()
        if self.kind == "probe":
            everyone = tuple(range(1, self.count + 1))
            return ProbeLedger(self.recovery, [(0, ROWS, everyone)], ())
        if self.kind == "terms":
            ledger = TermLedger(self.recovery, self.speeds)
            self.coefficients = np.random.default_rng(0).standard_normal((self.count + 1, ROWS))
            self.sum = sum(
                self.contribution(n, intervals, self.coefficients[n])
                for n, intervals in rows.items()
            )
        else:
            decoders = Decoders(self.code)
            ledger = RowLedger(ROWS, self.recovery, self.speeds, decoders, self.compares)
        ledger.plan(rows)
        return ledger

    # --- what happens ---------------------------------------------------------------------

    def tell(self, *events):
        self.note_shortage()
        for event in events:
            self.step.handle(event, self.now)
        self.follow()

    def computing(self):
        return [n for n, p in sorted(self.processes.items()) if p.request is not None]

    def alive(self):
        return sorted(self.processes)

    @property
    def is_running(self):
        return self.outcome is None

    @precondition(lambda self: self.is_running and self.computing())
    @rule(place=PLACES)
    def answer(self, place):
        self.answer_one(place)

    @precondition(lambda self: self.is_running and self.computing())
    @rule(places=st.lists(PLACES, min_size=2, max_size=8))
    def answer_several(self, places):
        for place in places:
            if self.is_running and self.computing():
                self.answer_one(place)

    def answer_one(self, place):
        machine = pick(self.computing(), place)
        process = self.processes[machine]
        request, process.request = process.request, None
        if process.is_given_up:
            process.is_given_up = False
            self.tell(RequestAnswered(request), MachineJoined(machine))
        elif self.kind == "terms" and process.is_liar:
            self.tell(AnswerRejected(request))
        elif self.kind == "terms":
            others = self.sent_with(process, request)
            for other in others:
                self.processes[other.machine].request = None
            sum_terms = tuple(each.term for each in (request, *others))
            self.tell(*(RequestAnswered(each, sum_terms) for each in (request, *others)))
        else:
            if self.step.is_pending(request):
                for row in rows_of(request.intervals):
                    self.answers[machine][row] = not (process.is_liar and self.compares)
                    self.usable[machine].add(row)
            self.tell(RequestAnswered(request))

    def sent_with(self, process, request):
        """The requests of other machines that a host answers with the same sum."""
        if not self.step.is_pending(request):
            return []
        return [
            other.request
            for other in self.processes.values()
            if other.message == process.message
            and other.request is not None
            and not (other.is_given_up or other.is_liar)
        ]

    @precondition(lambda self: self.is_running and self.computing())
    @rule(place=PLACES)
    def answer_not_finite(self, place):
        machine = pick(self.computing(), place)
        process = self.processes[machine]
        if process.is_given_up:
            return
        request, process.request = process.request, None
        self.tell(AnswerRejected(request, NonfiniteAnswer(machine, math.nan, 0)))

    @precondition(lambda self: self.is_running and self.computing())
    @rule(place=PLACES, is_replaced=st.booleans())
    def answer_wrongly_and_be_lost(self, place, is_replaced):
        """A process that is excluded afterwards would be another one."""
        machine = pick(self.computing(), place)
        process = self.processes[machine]
        if process.is_given_up:
            return
        request, process.request = process.request, None
        self.remove(machine)
        events = [AnswerRejected(request), MachineLost(machine, "its process ended")]
        if is_replaced:
            self.processes[machine] = Process(next(self.hosts))
            events.append(MachineJoined(machine))
        self.usable[machine].clear()
        self.tell(*events)

    @precondition(lambda self: self.is_running and self.computing())
    @rule(place=PLACES)
    def fail(self, place):
        machine = pick(self.computing(), place)
        process = self.processes[machine]
        if not process.is_given_up:
            request, process.request = process.request, None
            self.tell(ComputationFailed(request))

    @precondition(lambda self: self.is_running and self.processes)
    @rule(place=PLACES, event=st.sampled_from([MachineLost, MachineLeft]))
    def lose(self, place, event):
        machine = pick(self.alive(), place)
        self.remove(machine)
        self.tell(event(machine, "it happens"))

    @precondition(lambda self: self.is_running and self.processes)
    @rule(place=PLACES, event=st.sampled_from([MachineLost, MachineLeft]))
    def lose_host(self, place, event):
        host = self.processes[pick(self.alive(), place)].host
        machines = [n for n in self.alive() if self.processes[n].host == host]
        self.opening = {n: by for n, by in self.opening.items() if by != host}
        for machine in machines:
            self.remove(machine)
        self.tell(*(event(machine, "its host has gone") for machine in machines))

    @precondition(lambda self: self.is_running and self.absent())
    @rule(place=PLACES)
    def open(self, place):
        self.opening[pick(self.absent(), place)] = next(self.hosts)
        self.follow()

    @precondition(lambda self: self.is_running and len(self.processes) > 1)
    @rule(place=PLACES)
    def give_back(self, place):
        """A host leaves a machine to a newcomer, which opens its shard."""
        machine = pick(self.alive(), place)
        self.remove(machine)
        self.opening[machine] = next(self.hosts)
        self.tell(MachineLeft(machine, "it is given back"))

    @precondition(lambda self: self.is_running and self.opening)
    @rule(place=PLACES, joins=st.sampled_from([True, True, False]), is_liar=st.booleans())
    def end_opening(self, place, joins, is_liar):
        machine = pick(sorted(self.opening), place)
        host = self.opening.pop(machine)
        if joins:
            self.processes[machine] = Process(host, is_liar)
            self.tell(MachineJoined(machine))
        else:
            self.follow()

    @precondition(lambda self: self.is_running and any(p.is_busy for p in self.processes.values()))
    @rule()
    def free(self):
        machine = next(n for n, p in sorted(self.processes.items()) if p.is_busy)
        process = self.processes[machine]
        process.is_busy = False
        if process.is_given_up:
            process.is_given_up = False
            self.tell(MachineJoined(machine))
        else:
            self.tell(BusyMachineAnswered(machine))

    @precondition(lambda self: self.is_running and self.moment < math.inf)
    @rule()
    def let_time_pass(self):
        self.now = max(self.now, self.moment)
        self.follow()

    @precondition(lambda self: self.is_running and self.stale)
    @rule(place=PLACES, event=st.sampled_from([RequestAnswered, AnswerRejected, ComputationFailed]))
    def tell_of_a_request_that_was_dropped(self, place, event):
        self.tell(event(pick(self.stale, place)))

    @precondition(lambda self: self.is_running)
    @rule(place=PLACES)
    def repeat_what_is_known(self, place):
        gone = sorted(set(range(1, self.count + 1)) - set(self.processes))
        if gone:
            self.tell(MachineLost(pick(gone, place), "again"))

    @precondition(lambda self: not self.is_running)
    @rule(kind=KINDS, preempted=st.sets(st.integers(1, 8), max_size=1))
    def begin_the_next_step(self, kind, preempted):
        self.start(kind, preempted)

    def remove(self, machine):
        process = self.processes.pop(machine)
        if process.request is not None:
            self.stale.append(process.request)

    # --- instructions ---------------------------------------------------------------------

    def follow(self):
        for _ in range(1000):
            self.step.handle(
                PendingMachines(frozenset(self.opening), self.without_process(), self.adoptable()),
                self.now,
            )
            for event in self.expected_events:
                self.step.handle(event, self.now)
            self.expected_events = []
            self.note_shortage()
            self.turn += 1
            for instruction in self.step.instructions(self.now):
                if isinstance(instruction, Done | StepFailed | WaitUntil | StartStep):
                    self.conclude(instruction)
                    if not isinstance(instruction, StartStep):
                        return
                else:
                    self.do(instruction)
        raise AssertionError("the instructions do not end")

    def absent(self):
        return sorted(set(range(1, self.count + 1)) - set(self.processes) - set(self.opening))

    def without_process(self):
        return frozenset(self.absent() if self.vacant else ())

    def spacious_hosts(self):
        carried = Counter([*(p.host for p in self.processes.values()), *self.opening.values()])
        alive = {p.host for p in self.processes.values() if not p.is_given_up}
        return sorted(host for host in alive if carried[host] < self.capacity)

    def adoptable(self):
        return frozenset(self.absent() if self.spacious_hosts() else ())

    def left(self):
        """Machines that a step can count on, now or later."""
        return (self.processes.keys() - self.given_up() | self.opening.keys()) & self.listed

    def note_shortage(self):
        is_short = len(self.left()) < self.recovery
        self.short_since = min(self.short_since, self.now) if is_short else math.inf

    def do(self, instruction):
        match instruction:
            case Request(machine):
                process = self.processes[machine]
                assert machine in self.listed
                assert process.request is None
                assert not process.is_busy
                assert machine not in self.opening
                self.check_reason(instruction)
                process.request = instruction
                replaced = instruction.term and instruction.term.replaces
                process.message = process.host, self.turn, replaced
                self.step.handle(RequestsSent([instruction]), self.now)
            case Compare(start, stop, machines):
                rows = start, stop, machines
                self.step.handle(
                    RowsAgree(*rows) if self.are_right(*rows) else RowsDisagree(*rows), self.now
                )
            case IdentifyFaulty(start, stop, machines):
                self.step.handle(self.verdict(start, stop, machines), self.now)
            case Decode(start, stop, machines):
                assert len(set(machines)) == self.recovery
                assert self.are_right(start, stop, machines)
                assert all(self.usable[n] >= set(range(start, stop)) for n in machines)
                self.decoded.update(range(start, stop))
            case MarkLate(machine):
                assert self.processes[machine].request is not None
            case GiveUp(machine):
                process = self.processes[machine]
                assert process.is_busy or process.request is not None
                if process.request is not None:
                    self.stale.append(process.request)
                process.is_given_up = True
                self.expected_events.append(MachineGivenUp(machine, "silent"))
            case Adopt(machine):
                assert machine in self.adoptable() & self.listed
                assert self.now >= self.short_since + self.adopt_after
                self.opening[machine] = self.spacious_hosts()[0]
            case Exclude(machine, kind):
                self.remove(machine)
                reason = kind(machine, "by the step")
                self.expected_events.append(reason)
                if kind is MachineExcluded:
                    self.usable[machine].clear()

    def check_reason(self, request):
        """No request is for known rows, or for rows that enough machines compute."""
        machine = request.machine
        if self.kind in ("rows", "compared rows"):
            for row in rows_of(request.intervals):
                assert row not in self.usable[machine], "it has answered this row"
                assert row not in self.decoded, "this row is decoded"
        elif self.kind == "terms":
            assert request.term.is_needed

    def are_right(self, start, stop, machines):
        """Whether the answers of machines, which must be there, are right."""
        return all(self.answers[n][row] for n in machines for row in range(start, stop))

    def verdict(self, start, stop, machines):
        assert len(machines) > self.recovery
        wrong = tuple(n for n in machines if not self.are_right(start, stop, (n,)))
        if not wrong:
            return RowsAgree(start, stop, machines)
        if len(machines) >= self.recovery + 3 and len(wrong) <= len(machines) - self.recovery - 1:
            for n in wrong:
                self.usable[n].clear()
            return FaultyIdentified(wrong)
        return FaultUndetermined(start, stop, machines, ())

    # --- the end --------------------------------------------------------------------------

    def conclude(self, instruction):
        idle_or_asked = {
            n
            for n, p in self.processes.items()
            if n in self.listed and not p.is_given_up and not p.is_busy
        }
        match instruction:
            case StartStep(machines):
                assert not self.begun
                assert set(machines) <= idle_or_asked
                self.begun = True
                planned = sorted({*machines, *(self.listed if self.with_absent else ())})
                self.step.begin(self.plan(planned), self.listed, self.predicted, self.now)
            case WaitUntil(moment):
                self.moment = moment
                assert moment > self.now or not self.begun
                waits_for = self.computing() or self.opening or self.without_process()
                waits_for = waits_for or (self.adopt_after < math.inf and self.adoptable())
                assert waits_for or any(p.is_busy for p in self.processes.values())
            case Done(unanswered):
                self.outcome = instruction
                assert set(unanswered) <= set(self.computing())
                self.check_result()
            case StepFailed(cause):
                self.outcome = instruction
                self.check_failure(cause, idle_or_asked)

    def check_result(self):
        if self.kind in ("rows", "compared rows"):
            assert self.decoded == set(range(ROWS))
        elif self.kind == "terms":
            counted = self.step._ledger.answered_terms()
            assert all({*term.sum_terms} <= {*counted} for term in counted)
            total = sum(self.value(term) for term in counted)
            np.testing.assert_allclose(total, self.sum, atol=1e-6)
        else:
            new = self.step._ledger.answered_by
            assert all(self.answers[n][row] for n in new for row in range(ROWS))

    def check_failure(self, cause, available):
        """It is true that the machines that are left are not enough."""
        assert not self.begun or not (set(self.computing()) & self.listed - self.given_up())
        needed = self.recovery + self.compares
        if isinstance(cause, TooFewMachines) and self.adopt_after < math.inf:
            assert not self.adoptable() & self.listed
        if isinstance(cause, TooFewMachines):
            able = len(available)
            if self.begun and self.kind in ("rows", "compared rows"):
                lacking = set(range(ROWS)) - self.decoded
                able = min(
                    len(available | {n for n in self.usable if row in self.usable[n]})
                    for row in lacking
                )
            if self.begun and self.kind == "terms":
                needed += 1  # and the machine whose term is missing
            assert able < needed
        elif isinstance(cause, Disagreement):
            found = cause.rows
            assert not self.are_right(found.start, found.stop, found.machines)
            assert set(found.machines) >= available or len(found.machines) < self.recovery + 3

    def given_up(self):
        return {n for n, p in self.processes.items() if p.is_given_up}

    def contribution(self, machine, intervals, coefficients):
        """Return what rows of a shard add to the parts of X."""
        found = np.zeros((self.recovery, ROWS))
        for row in rows_of(intervals):
            found[:, row] = coefficients[row] * self.code.generator[machine - 1]
        return found

    def value(self, term):
        return self.contribution(term.machine, term.intervals, self.coefficients_of(term))

    def coefficients_of(self, term):
        if term.replaces is None:
            return self.coefficients[term.machine]
        generator, replaced = self.code.generator, term.replaces.machine
        weights = Recombination(generator, term.basis, generator[[replaced - 1]]).coefficients[0]
        return weights[term.basis.index(term.machine)] * self.coefficients_of(term.replaces)

    def teardown(self):
        """Whoever computes answers, whoever opens a shard joins, and nobody else comes."""
        if not hasattr(self, "outcome"):
            return
        self.vacant = False
        self.step._waits_for_vacant = False
        for _ in range(10_000):  # each loss of a replacement makes L terms of one
            if not self.is_running:
                return
            if self.computing():
                self.answer_one(0)
            elif any(p.is_busy for p in self.processes.values()):
                self.free()
            elif self.opening:
                self.end_opening(0, True, False)
            elif self.moment < math.inf:
                self.let_time_pass()
            else:
                self.follow()
        raise AssertionError("the step does not end")


def pick(several, place):
    return several[place % len(several)]


def rows_of(intervals):
    return [row for start, stop in intervals for row in range(start, stop)]


TestRandomEvents = World.TestCase
TestRandomEvents.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
