"""Answers in any order, from any machines, wrong ones among them: what is decoded is right."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import make_code
from cec_mpi.core.checks.parity import answer_checker
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.elastic.events import (
    Compare,
    Decode,
    Disagreement,
    FaultUndetermined,
    IdentifyFaulty,
    Request,
    RowsAgree,
    RowsDisagree,
)
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.answers import Decoders, RowAnswers


class Step:
    """A product of known numbers: what each machine would answer, and what is decoded."""

    def __init__(self, machines, recovery, rows, columns, *, check=False, speeds=None, code=None):
        self.code = code or make_code(machines, recovery)
        self.machines, self.rows, self.columns = range(1, machines + 1), rows, columns
        self.exact = np.random.default_rng(0).standard_normal((recovery, rows * columns))
        self.right = self.code.generator @ self.exact
        self.parts = np.full((recovery, rows * columns), np.nan)
        checker = answer_checker(self.code.generator, "float64", 30) if check else None
        self.decoders, work = Decoders(self.code), [np.empty(self.parts.size)]
        given_ = columns, self.parts, work, checker, np.full(columns, 50.0)
        self.answers = RowAnswers(self.decoders, *given_)
        self.speeds = speeds or [1.0] * machines
        self.ledger = RowLedger(rows, recovery, self.speeds, self.decoders, check)
        self.named = set()

    def plan(self, copies):
        """Expect the rows of a plan."""
        plan = plan_step(self.machines, self.speeds, copies, self.rows).assignment
        self.ledger.plan(plan.all_intervals())

    def requests(self, alive):
        """Return the next requests, after what is missing is reassigned."""
        self.ledger.reassign(alive, alive)
        found = [self.ledger.next_request(n) for n in alive]
        return [request for request in found if request is not None]

    def answer(self, request, wrong=0.0):
        """Answer a request, and do what follows."""
        k, row = self.columns, self.right[request.machine - 1]
        values = np.concatenate([row[start * k : stop * k] for start, stop in request.intervals])
        values[-1:] += wrong
        self.answers.add(request.machine, request.intervals, values)
        self.ledger.record_answer(request)
        self.follow()

    def give(self, machine, start, stop, wrong=0.0):
        self.answer(Request(machine, ((start, stop),)), wrong)

    def follow(self):
        while instructions := self.ledger.instructions():
            for each in instructions:
                rows = each.start, each.stop, each.machines
                if isinstance(each, Decode):
                    self.answers.decode(*rows)
                elif isinstance(each, Compare):
                    differ = self.answers.has_disagreement(*rows)
                    self.ledger.record_comparison(
                        RowsDisagree(*rows) if differ else RowsAgree(*rows)
                    )
                else:
                    self.judge(each)

    def judge(self, doubted):
        rows = doubted.start, doubted.stop, doubted.machines
        verdict = self.answers.identify_faulty(*rows)
        for machine in verdict.faulty:
            self.named.add(machine)
            self.ledger.drop(machine)
        if not verdict.faulty:
            self.ledger.record_comparison(FaultUndetermined(*rows, verdict.candidates))

    def improve(self):
        """Decode some rows again, if that makes them more exact."""
        rows = self.ledger.refine()
        if rows is None:
            return False
        self.answers.decode(rows.start, rows.stop, rows.machines)
        return True

    def error(self):
        return np.abs(self.parts - self.exact).max()

    def error_of(self, rows):
        return np.abs(self.parts - self.exact)[:, : rows * self.columns].max()


@given(st.data())
def test_whoever_answers_or_is_lost_the_result_is_right(data):
    machines = data.draw(st.integers(1, 8), "machines")
    recovery = data.draw(st.integers(1, machines), "recovery")
    copies = data.draw(st.integers(recovery, machines), "copies")
    rows, columns = data.draw(st.integers(1, 40), "rows"), data.draw(st.integers(1, 3), "columns")
    speeds = [data.draw(st.floats(0.1, 10)) for _ in range(machines)]
    step = Step(machines, recovery, rows, columns, speeds=speeds)
    step.plan(copies)
    alive = set(step.machines)
    requests = step.requests(alive)
    while not step.ledger.is_done:
        assert requests, "nothing is on its way, and not all is there"
        request = requests.pop(data.draw(st.integers(0, len(requests) - 1), "next"))
        if len(alive) > recovery and data.draw(st.booleans(), "lost"):
            alive.discard(request.machine)
            requests = [each for each in requests if each.machine != request.machine]
            step.ledger.release(request.machine)
            requests += step.requests(alive)
        else:
            step.answer(request)
    assert step.error() <= 1e-13 * step.ledger.condition
    assert step.requests(alive) == []


@given(
    size=st.sampled_from([(6, 3), (5, 2), (12, 8)]),
    wrong=st.integers(1, 5),
    factor=st.sampled_from([1e-6, 1.0, 1e12, np.nan, np.inf]),
    order=st.randoms(use_true_random=False),
)
def test_a_wrong_machine_is_named_and_done_without(size, wrong, factor, order):
    step = Step(*size, 60, 2, check=True)
    step.plan(size[1] + 1)
    requests = step.requests(set(step.machines))
    has_rows = any(request.machine == wrong for request in requests)
    order.shuffle(requests)
    while not step.ledger.is_done:
        request = requests.pop()
        step.answer(request, wrong=factor if request.machine == wrong else 0.0)
        requests += step.requests(set(step.machines) - step.named)
    assert step.error() < 1e-11
    assert step.named <= {wrong}
    assert step.named or not has_rows


def test_with_one_to_spare_rows_are_doubted_and_nobody_is_accused():
    step = Step(4, 3, 10, 1, check=True)
    for machine in (1, 2, 3, 4):
        step.give(machine, 0, 10, wrong=1.0 if machine == 2 else 0.0)
    assert step.requests({1, 2, 3, 4}) == []
    doubted = step.ledger.conclude()
    assert doubted == IdentifyFaulty(0, 10, (1, 2, 3, 4))
    step.judge(doubted)
    found = FaultUndetermined(0, 10, (1, 2, 3, 4), ((1,), (2,), (3,), (4,)))
    assert step.ledger.conclude() == Disagreement(found)
    assert step.named == set()
    assert step.ledger.undecoded == 10


def test_rows_that_disagree_do_not_stop_requests_for_others():
    """With L + 2 machines nobody is named; other rows are reassigned all the same."""
    step = Step(5, 3, 20, 1, check=True)
    for machine in (1, 2, 3, 4):
        step.give(machine, 0, 10, wrong=1.0 if machine == 2 else 0.0)
    for machine in (1, 2, 3):
        step.give(machine, 10, 20)
    (first,) = step.requests({1, 2, 3, 5})
    assert (first.machine, first.intervals) == (5, ((0, 20),))
    step.answer(first)
    assert step.ledger.undecoded == 10
    assert not step.ledger.is_done


def test_answers_that_come_too_late_change_nothing():
    step = Step(4, 2, 10, 1)
    step.give(1, 0, 10)
    step.give(3, 0, 10)
    before = step.parts.copy()
    step.give(2, 0, 10, wrong=5.0)
    assert step.ledger.is_done
    assert np.array_equal(step.parts, before)


# --- which answers are decoded --------------------------------------------------------------


def nearly_singular_step(rows=10, **options):
    """Machines 1 and 2 have nearly the same shard: together with 3 they decode badly."""
    generator = make_code(6, 3).generator.copy()
    generator[1] = generator[0] + 1e-6 * np.array([1.0, 2.0, 4.0])
    return Step(6, 3, rows, 1, code=MDSCode(generator), **options)


def test_answers_that_come_while_others_are_awaited_make_rows_more_exact():
    step = nearly_singular_step()
    for machine in (1, 2, 3):
        step.give(machine, 0, 8)
    assert step.ledger.condition > 1e5
    before = step.error_of(8)
    step.give(4, 0, 5)
    assert step.improve()
    assert step.ledger.condition > 1e5  # of rows 5..7
    assert not step.improve()
    step.give(5, 0, 8)
    while step.improve():
        pass
    assert step.ledger.condition < 100
    assert step.error_of(8) < 1e-3 * before
    assert step.ledger.undecoded == 2


def test_where_answers_are_compared_the_best_of_those_that_agree_are_decoded():
    step = nearly_singular_step(check=True)
    for machine in (1, 2, 3, 6):
        step.give(machine, 0, 10)
    assert step.ledger.is_done
    assert step.ledger.condition < 100
    step.give(5, 0, 10, wrong=1.0)  # was not compared
    assert not step.improve()
    assert step.error() < 1e-13


def test_a_machine_that_is_dropped_makes_nothing_more_exact():
    step = nearly_singular_step()
    for machine in (1, 2, 3):
        step.give(machine, 0, 10)
    step.give(4, 0, 10)
    step.ledger.drop(4)
    assert not step.improve()
    step.ledger.drop(2)
    step.ledger.drop(3)
    step.give(5, 0, 10)
    assert not step.improve()  # 1 and 5 are too few
    step.give(6, 0, 10)
    assert step.improve()  # from 1, 5 and 6
    assert step.error() < 1e-13


@given(st.data())
def test_rows_that_are_improved_stay_right(data):
    machines = data.draw(st.integers(2, 9), "machines")
    recovery = data.draw(st.integers(1, machines - 1), "recovery")
    copies = data.draw(st.integers(recovery + 1, machines), "copies")
    step = Step(machines, recovery, 30, 2, speeds=[1.0 + n for n in range(machines)])
    step.plan(copies)
    requests = step.requests(set(step.machines))
    data.draw(st.randoms(use_true_random=False)).shuffle(requests)
    while not step.ledger.is_done:
        step.answer(requests.pop())
        before = step.ledger.condition
        while data.draw(st.booleans(), "idle") and step.improve():
            assert step.ledger.condition <= before
    assert step.error() <= 1e-13 * step.ledger.condition
