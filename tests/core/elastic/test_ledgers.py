"""The ledgers: rows are correct whichever machines answer, and a sum of terms counts as a whole."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import make_code
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.elastic import events
from cec_mpi.core.elastic.adjoint import TermLedger
from cec_mpi.core.elastic.forward import RowLedger
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.answers import DecoderCache, RowAnswers


class Step:
    """A product with exact results, the answers of its machines, and the decoded rows."""

    def __init__(self, machines, recovery, rows, columns, *, check=False, speeds=None, code=None):
        self.code = code or make_code(machines, recovery)
        self.machines, self.rows, self.columns = range(1, machines + 1), rows, columns
        self.exact = np.random.default_rng(0).standard_normal((recovery, rows * columns))
        self.coded = self.code.generator @ self.exact
        self.parts = np.full((recovery, rows * columns), np.nan)
        self.speeds, decoders = speeds or [1.0] * machines, DecoderCache(self.code)
        self.answers = RowAnswers(decoders, columns, self.parts, [np.empty(self.parts.size)])
        self.ledger = RowLedger(rows, recovery, self.speeds, decoders, check)

    def plan(self, machines_per_row):
        plan = plan_step(self.machines, self.speeds, machines_per_row, self.rows)
        self.ledger.assign_plan(plan.assignment.all_intervals())

    def next_requests(self, machines):
        """Return the next requests after reassignment of missing answers."""
        self.ledger.reassign(machines, machines)
        requests = [self.ledger.next_request(n) for n in machines]
        return [request for request in requests if request is not None]

    def answer(self, request):
        """Answer a request, and follow the instructions."""
        k, row = self.columns, self.coded[request.machine - 1]
        values = np.concatenate([row[start * k : stop * k] for start, stop in request.intervals])
        self.answers.add(request.machine, request.intervals, values)
        self.ledger.record_answer(request)
        while instructions := self.ledger.instructions():
            for instruction in instructions:
                self.follow(instruction)

    def answer_rows(self, machines, start, stop):
        for n in machines:
            self.answer(events.Request(n, ((start, stop),)))

    def follow(self, instruction):
        arguments = instruction.start, instruction.stop, instruction.machines
        match instruction:
            case events.Decode():
                self.answers.decode(*arguments)
            case events.Compare():
                self.ledger.record_comparison(events.RowsAgree(*arguments))

    def redecode(self):
        """Return whether rows were decoded again."""
        instruction = self.ledger.redecode()
        if instruction is not None:
            self.follow(instruction)
        return instruction is not None

    def max_error(self, rows=None):
        errors = np.abs(self.parts - self.exact)
        return errors[:, : (rows or self.rows) * self.columns].max()


@given(st.data())
def test_any_answers_and_losses_give_the_correct_result(data):
    machines = data.draw(st.integers(1, 8), "machines")
    recovery = data.draw(st.integers(1, machines), "recovery")
    rows, columns = data.draw(st.integers(1, 40), "rows"), data.draw(st.integers(1, 3), "columns")
    speeds = [data.draw(st.floats(0.1, 10)) for _ in range(machines)]
    step = Step(machines, recovery, rows, columns, speeds=speeds)
    step.plan(data.draw(st.integers(recovery, machines), "machines per row"))
    available = set(step.machines)
    requests = step.next_requests(available)
    while not step.ledger.is_done:
        assert requests, "rows are missing without a request"
        request = requests.pop(data.draw(st.integers(0, len(requests) - 1), "next"))
        if len(available) > recovery and data.draw(st.booleans(), "lost"):
            available.discard(request.machine)
            requests = [other for other in requests if other.machine != request.machine]
            step.ledger.release(request.machine)
            requests += step.next_requests(available)
        else:
            step.answer(request)
            condition = step.ledger.condition
            while data.draw(st.booleans(), "idle") and step.redecode():
                assert step.ledger.condition <= condition
    assert step.max_error() <= 1e-13 * step.ledger.condition
    assert step.next_requests(available) == []


def test_l_plus_3_disagreeing_answers_identify_the_faulty_machine():
    ledger = RowLedger(10, 2, (1.0,) * 6, DecoderCache(make_code(6, 2)), compare=True)
    arguments = 0, 10, (1, 2, 3, 4, 5)
    for n in arguments[2]:
        ledger.record_answer(events.Request(n, ((0, 10),)))
    assert ledger.instructions() == [events.Compare(*arguments)]
    ledger.record_comparison(events.RowsDisagree(*arguments))
    assert ledger.instructions() == [events.IdentifyFaults(*arguments)]


# --- the choice of answers ------------------------------------------------------------------


def make_nearly_singular_step(machines=(2,), **options):
    """Return a step in which these machines have nearly the same shard as machine 1."""
    generator = make_code(6, 3).generator.copy()
    for n in machines:
        generator[n - 1] = generator[0] + 1e-6 * np.array([1.0, n, n * n])
    return Step(6, 3, 10, 1, code=MDSCode(generator), **options)


def test_late_answers_make_rows_more_accurate():
    step = make_nearly_singular_step()
    step.answer_rows((1, 2, 3), 0, 8)
    assert step.ledger.condition > 1e5
    error = step.max_error(8)
    step.answer_rows((4,), 0, 5)
    assert step.redecode()
    assert step.ledger.condition > 1e5  # of rows 5..7
    assert not step.redecode()
    step.answer_rows((5,), 0, 8)
    while step.redecode():
        pass
    assert step.ledger.condition < 100
    assert step.max_error(8) < 1e-3 * error
    assert step.ledger.undecoded_rows == 2


def test_rows_are_decoded_from_the_best_conditioned_compared_answers():
    step = make_nearly_singular_step(check=True)
    step.answer_rows((1, 2, 3, 6), 0, 10)
    assert step.ledger.is_done
    assert step.ledger.condition < 100
    assert step.max_error() < 1e-13


def test_uncompared_answers_are_not_decoded():
    step = make_nearly_singular_step(machines=(2, 6), check=True)
    step.answer_rows((1, 2, 3, 6), 0, 10)
    assert step.ledger.condition > 1e5
    step.answer_rows((5,), 0, 10)
    assert not step.redecode()


def test_dropped_answers_are_not_decoded():
    step = make_nearly_singular_step()
    step.answer_rows((1, 2, 3, 4), 0, 10)
    step.ledger.drop(4)
    assert not step.redecode()
    step.ledger.drop(2)
    step.ledger.drop(3)
    step.answer_rows((5,), 0, 10)
    assert not step.redecode()  # two answers are too few
    step.answer_rows((6,), 0, 10)
    assert step.redecode()  # from machines 1, 5 and 6
    assert step.max_error() < 1e-13


def test_a_dropped_machine_invalidates_the_terms_in_its_sums():
    ledger = TermLedger(2, (1.0, 1.0, 1.0))
    ledger.assign_plan(dict.fromkeys((1, 2, 3), ((0, 4),)))
    requests = [ledger.next_request(n) for n in (1, 2, 3)]
    terms = [request.term for request in requests]
    for request in requests[:2]:
        ledger.record_answer(request, terms[:2])
    ledger.record_answer(requests[2])
    assert ledger.answered_terms() == terms
    ledger.drop(1)
    assert ledger.answered_terms() == terms[2:]
    assert not ledger.is_done
