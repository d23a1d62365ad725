"""Answers in any order, from any machines, wrong ones among them: what is decoded is right."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import make_code
from cec_mpi.core.checks.parity import Verdict, answer_checker
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.plan.replan import replan
from cec_mpi.core.step.answers import Decoders, RowAnswers


class Step:
    """A product of known numbers: what each machine would answer, and what is collected."""

    def __init__(self, machines, recovery, rows, columns, *, check=False, seed=0):
        self.code = make_code(machines, recovery)
        self.rows, self.columns = rows, columns
        self.exact = np.random.default_rng(seed).standard_normal((recovery, rows * columns))
        self.right = self.code.generator @ self.exact
        self.parts = np.full((recovery, rows * columns), np.nan)
        checker = answer_checker(self.code.generator, "float64", 30) if check else None
        work = np.empty(self.parts.size)
        self.answers = RowAnswers(
            Decoders(self.code),
            recovery,
            rows,
            columns,
            self.parts,
            work,
            checker,
            np.full(columns, 10.0),
        )

    def give(self, machine, start, stop, wrong=0.0):
        k = self.columns
        values = self.right[machine - 1, start * k : stop * k].copy()
        values[-1:] += wrong
        self.answers.give(machine, start, stop, values)

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
    step = Step(machines, recovery, rows, columns)
    plan = plan_step(range(1, machines + 1), speeds, copies, rows).assignment
    jobs = [(n, a, b) for n in plan.available for a, b in plan.intervals(n)]
    for job in jobs:
        step.answers.expect(*job)
    alive = set(range(1, machines + 1))
    while step.answers.undecoded:
        assert jobs, "nothing is on its way, and not all is there"
        place = data.draw(st.integers(0, len(jobs) - 1), "next")
        machine = jobs[place][0]
        if len(alive) > recovery and data.draw(st.booleans(), "lost"):
            alive.discard(machine)
            jobs = [job for job in jobs if job[0] != machine]
            step.answers.give_up(machine)
            for share in replan(step.answers.missing(alive), speeds):
                jobs.append((share.machine, share.start, share.stop))
                step.answers.expect(*jobs[-1])
        else:
            step.give(*jobs.pop(place))
    assert step.error() <= 1e-13 * step.answers.condition
    assert step.answers.missing(alive) == []


@given(
    size=st.sampled_from([(6, 3), (5, 2), (12, 8)]),
    wrong=st.integers(1, 5),
    factor=st.sampled_from([1e-6, 1.0, 1e12, np.nan, np.inf]),
    order=st.randoms(use_true_random=False),
)
def test_a_wrong_machine_is_named_and_done_without(size, wrong, factor, order):
    machines, recovery = size
    step = Step(machines, recovery, 60, 2, check=True)
    speeds = [1.0] * machines
    plan = plan_step(range(1, machines + 1), speeds, recovery + 1, 60).assignment
    jobs = [(n, a, b) for n in plan.available for a, b in plan.intervals(n)]
    for job in jobs:
        step.answers.expect(*job)
    order.shuffle(jobs)
    while step.answers.undecoded:
        machine, start, stop = jobs.pop()
        step.give(machine, start, stop, wrong=factor if machine == wrong else 0.0)
        for share in replan(step.answers.missing(range(1, machines + 1)), speeds):
            jobs.append((share.machine, share.start, share.stop))
            step.answers.expect(*jobs[-1])
    assert step.error() < 1e-11
    assert step.answers.accused <= {wrong}
    assert step.answers.accused or not plan.intervals(wrong)


def test_with_one_to_spare_rows_are_doubted_and_nobody_is_accused():
    step = Step(4, 3, 10, 1, check=True)
    for machine in (1, 2, 3, 4):
        step.give(machine, 0, 10, wrong=1.0 if machine == 2 else 0.0)
    assert step.answers.undecoded == 10
    ((start, stop, verdict, machines),) = step.answers.doubtful()
    assert (start, stop, machines) == (0, 10, [1, 2, 3, 4])
    assert verdict == Verdict(agree=False, candidates=((1,), (2,), (3,), (4,)))
    assert step.answers.accused == set()
    (missing,) = step.answers.missing([1, 2, 3, 4])
    assert (missing.needed, missing.eligible) == (1, ())


def test_answers_that_come_too_late_change_nothing():
    step = Step(4, 2, 10, 1)
    step.give(1, 0, 10)
    step.give(3, 0, 10)
    before = step.parts.copy()
    step.give(2, 0, 10, wrong=5.0)
    assert step.answers.undecoded == 0
    assert np.array_equal(step.parts, before)


# --- which answers are decoded --------------------------------------------------------------


def nearly_singular_step(rows=10, **options):
    """Machines 1 and 2 have nearly the same shard: together with 3 they decode badly."""
    step = Step(6, 3, rows, 1, **options)
    generator = step.code.generator.copy()
    generator[1] = generator[0] + 1e-6 * np.array([1.0, 2.0, 4.0])
    step.code = MDSCode(generator)
    step.right = generator @ step.exact
    checker = answer_checker(generator, "float64", 30) if options.get("check") else None
    work = np.empty(step.parts.size)
    step.answers = RowAnswers(
        Decoders(step.code), 3, rows, 1, step.parts, work, checker, np.array([10.0])
    )
    return step


def test_answers_that_come_while_others_are_awaited_make_rows_more_exact():
    step = nearly_singular_step()
    for machine in (1, 2, 3):
        step.give(machine, 0, 8)
    assert step.answers.condition > 1e5
    before = step.error_of(8)
    step.give(4, 0, 5)
    assert step.answers.improve()
    assert step.answers.condition > 1e5  # of rows 5..7
    assert not step.answers.improve()
    step.give(5, 0, 8)
    while step.answers.improve():
        pass
    assert step.answers.condition < 100
    assert step.error_of(8) < 1e-3 * before
    assert step.answers.undecoded == 2


def test_where_answers_are_compared_the_best_of_those_that_agree_are_decoded():
    step = nearly_singular_step(check=True)
    for machine in (1, 2, 3, 6):
        step.give(machine, 0, 10)
    assert step.answers.undecoded == 0
    assert step.answers.condition < 100
    step.give(5, 0, 10, wrong=1.0)  # was not compared
    assert not step.answers.improve()
    assert step.error() < 1e-13


def test_a_machine_that_is_refused_makes_nothing_more_exact():
    step = nearly_singular_step()
    for machine in (1, 2, 3):
        step.give(machine, 0, 10)
    step.answers.do_without(4)
    step.give(4, 0, 10, wrong=np.nan)
    assert not step.answers.improve()
    step.answers.do_without(2)
    step.give(5, 0, 10)
    assert not step.answers.improve()
    assert np.isfinite(step.parts).all()


@given(st.data())
def test_rows_that_are_improved_stay_right(data):
    machines = data.draw(st.integers(2, 9), "machines")
    recovery = data.draw(st.integers(1, machines - 1), "recovery")
    copies = data.draw(st.integers(recovery + 1, machines), "copies")
    step = Step(machines, recovery, 30, 2)
    plan = plan_step(range(1, machines + 1), [1.0 + n for n in range(machines)], copies, 30)
    jobs = [(n, a, b) for n in plan.assignment.available for a, b in plan.assignment.intervals(n)]
    data.draw(st.randoms(use_true_random=False)).shuffle(jobs)
    for job in jobs:
        step.answers.expect(*job)
    while step.answers.undecoded:
        step.give(*jobs.pop())
        before = step.answers.condition
        while data.draw(st.booleans(), "idle") and step.answers.improve():
            assert step.answers.condition <= before
    assert step.error() <= 1e-13 * step.answers.condition
