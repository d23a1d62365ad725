"""Fixed and estimated speeds of simulated machines."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import Planner, plan_step
from cec_mpi.core.speeds import FixedSpeeds, SpeedEstimator, hindsight_makespan
from helpers.interrupts import interrupt_at_line

MACHINES = (1, 2, 3, 4, 5, 6)
SPEEDS = np.array([2.0, 2.0, 3.0, 3.0, 4.0, 4.0])  # the example of the paper, Section III
MACHINES_PER_ROW, ROWS, BASE_RATE = 3, 4200, 1e4
FACTORS = {"matvec": 1.0, "rmatvec": 1.3, "block": 2.0}  # relative time of an operation
OVERHEADS = 3000 / SPEEDS / BASE_RATE  # seconds for each call; a step takes about 0.1 s


class SimulatedRun:
    """A run whose steps are planned with `speeds`, or with the true speeds if None.

    The noise of the machines' rates is log-normal; equal seeds give equal noise.
    """

    def __init__(
        self, speeds=None, rows=ROWS, noise=0.0, seed=0, overheads=0.0, true_speeds=SPEEDS
    ):
        self.speeds, self.rates = speeds, np.array(true_speeds) * BASE_RATE
        self.noise, self.overheads, self.rng = noise, overheads, np.random.default_rng(seed)
        self.planner, self.plan = Planner(MACHINES_PER_ROW, rows), None
        self.makespans, self.predicted, self.plan_speeds, self.rows = [], [], [], []

    def draw_available(self, probability):
        while True:
            drawn = np.flatnonzero(self.rng.random(self.rates.size) < probability)
            if drawn.size >= MACHINES_PER_ROW:
                return tuple((drawn + 1).tolist())

    def draw_seconds(self, rows, operation="matvec"):
        factors = np.exp(self.noise * self.rng.standard_normal(self.rates.size))
        rates = self.rates / FACTORS[operation] * factors
        return np.where(rows > 0, self.overheads + rows / rates, 0.0)

    def advance(self, count, probability=1.0, operations=("matvec",), late=None, factor=100):
        """Run steps; in the first, the machine at index `late` takes `factor` times as long."""
        for step in range(count):
            operation = operations[step % len(operations)]
            available = MACHINES if probability == 1 else self.draw_available(probability)
            if self.speeds is None:
                speeds = tuple(self.rates.tolist())
            else:
                speeds = self.speeds.plan_speeds(available)
            plan = self.planner.plan(available, speeds)
            if plan is not self.plan:
                self.plan, self.plan_rows = plan, plan.assignment.row_counts(len(SPEEDS))
            rows = self.plan_rows
            seconds = self.draw_seconds(rows, operation)
            if late is not None and step == 0:
                seconds[late] *= factor
            if self.speeds is not None:
                self.predicted.append(self.speeds.predict(operation, rows))
                self.speeds.observe(operation, rows, seconds)
            self.plan_speeds.append(speeds)
            self.rows.append(rows)
            self.makespans.append(seconds.max())
        return self

    def count_plans(self, first):
        return len({id(speeds) for speeds in self.plan_speeds[first:]})


def make_estimator(rows=ROWS):
    return SpeedEstimator(CodedDemand(6, MACHINES_PER_ROW, rows))


def make_run(count=10, rows=ROWS, **options):
    """Return a run with estimated speeds, after `count` steps."""
    return SimulatedRun(make_estimator(rows), rows, **options).advance(count)


def approx_relative(speeds, rel=1e-6):
    """Return an approximation of speeds relative to their median."""
    return pytest.approx(np.array(speeds) / np.median(speeds), rel=rel)


def relative_excess(run, reference, first, last):
    return np.mean(run.makespans[first:last]) / np.mean(reference.makespans[first:last]) - 1


# --- accuracy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"operations": ("matvec", "block"), "probability": 0.6}], ids=["all", "some"]
)
def test_estimates_cost_less_than_5_percent_after_ten_steps_and_after_a_change(options):
    for seed in range(8):
        runs = make_run(0, noise=0.1, seed=seed), SimulatedRun(noise=0.1, seed=seed)
        for run in runs:
            run.advance(30, **options)
            run.rates[seed % 6] /= 2
            run.advance(30, **options)
        assert relative_excess(*runs, 10, 30) < 0.05
        assert relative_excess(*runs, 40, 60) < 0.05


# --- changes of plans ---------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "is_same"), [(0.99, True), (1.01, True), (0.9, False)])
def test_only_an_improvement_of_2_percent_changes_the_plan(factor, is_same):
    run = make_run()
    run.rates[2] *= factor
    run.advance(30)
    assert (run.plan_speeds[-1] is run.plan_speeds[5]) == is_same


def test_the_plan_changes_only_if_that_saves_more_time_than_planning_takes():
    speeds, rows = make_estimator(), np.full(6, 2100)
    first = speeds.plan_speeds(MACHINES)
    for _ in range(10):
        speeds.observe("matvec", rows, rows / SPEEDS * 1e-7)  # a step of 0.1 ms
        assert speeds.plan_speeds(MACHINES) is first
    speeds.observe("block", rows, rows / SPEEDS * 1e-5)
    assert speeds.plan_speeds(MACHINES) is not first


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_one_late_answer_does_not_change_the_plan(steps):
    run = make_run(steps)
    plan_speeds = run.speeds.plan_speeds(MACHINES)
    run.advance(8, late=2)
    assert all(speeds is plan_speeds for speeds in run.plan_speeds[steps:])


def test_a_late_first_answer_counts_only_until_the_second():
    run = make_run(0).advance(4, late=3)
    assert run.plan_speeds[2] == approx_relative(SPEEDS, rel=1e-9)
    speeds = make_estimator()
    for factor in (20, 1, 1):  # all machines are late
        first = speeds.plan_speeds(MACHINES)
        speeds.observe("matvec", 100 * SPEEDS, factor * np.ones(6))
    assert speeds.plan_speeds(MACHINES) is first
    assert speeds.predict("matvec", 100 * SPEEDS) == pytest.approx(1.0)


def test_a_change_too_small_to_be_an_outlier_is_detected_after_a_few_steps():
    """Averages alone would have a mean error of 13 %."""
    errors, one_row = [], np.eye(6)[2]
    for seed in range(20):
        run = make_run(40, noise=0.2, seed=seed)
        run.rates[2] *= 0.6
        run.advance(8)
        errors.append(np.log(run.speeds.predict("matvec", one_row) * run.rates[2]))
    assert np.mean(np.abs(errors)) < 0.1


def test_a_slowdown_of_all_machines_changes_predictions_but_not_the_plan():
    operations = "matvec", "block"
    run = make_run().advance(10, operations=operations)
    run.rates /= 3
    run.advance(10, operations=operations)
    assert all(speeds is run.plan_speeds[5] for speeds in run.plan_speeds[5:])
    assert run.predicted[-2:] == pytest.approx(run.makespans[-2:], rel=1e-9)


def test_noise_changes_the_plan_in_less_than_a_quarter_of_the_steps():
    counts = [make_run(130, noise=0.1, seed=seed).count_plans(30) for seed in range(3)]
    assert np.mean(counts) < 25


def test_frequent_late_answers_rarely_change_the_plan():
    run = make_run(60, noise=0.05)
    for _ in range(50):
        run.advance(4, late=run.rng.integers(6), factor=5)
    assert run.count_plans(100) < 0.3 * 160


def test_too_few_machines_do_not_change_the_plan():
    run = make_run()
    assert run.speeds.plan_speeds((1, 2)) is run.plan_speeds[-1]  # the planner raises the error


# --- operations and measurements ----------------------------------------------------------


def test_operations_share_speeds_but_not_times():
    run = make_run(2).advance(12, operations=("rmatvec", "block", "matvec"))
    rows, seconds = run.rows[-1], ROWS / 6 / BASE_RATE
    assert run.speeds.predict("matvec", rows) == pytest.approx(seconds, rel=1e-3)
    for operation, factor in FACTORS.items():
        assert run.speeds.predict(operation, rows) == pytest.approx(factor * seconds, rel=1e-3)
        assert run.speeds.bound(operation, MACHINES) == pytest.approx(factor * seconds, rel=1e-9)
    assert run.plan_speeds[-1] is run.plan_speeds[1]
    assert run.speeds.scale == pytest.approx(3 * BASE_RATE)  # of the median machine


def test_times_of_zero_are_ignored():
    speeds = make_estimator()
    first = speeds.plan_speeds(MACHINES)
    speeds.observe("matvec", [2100] * 6, [0.0] * 6)
    assert speeds.plan_speeds(MACHINES) is first
    assert speeds.scale is speeds.predict("matvec", [1] * 6) is speeds.bound("matvec", MACHINES)
    run = make_run()
    run.speeds.observe("matvec", [2100] * 6, [0.0] * 6)
    run.speeds.observe("matvec", [0] * 6, [0.0] * 6)
    assert run.speeds.plan_speeds(MACHINES) is run.plan_speeds[-1]


def test_times_of_short_steps_are_averaged():
    run = make_run(60, rows=60, noise=0.05)  # steps of 1 ms
    assert run.plan_speeds[-1] == approx_relative(SPEEDS, rel=0.1)
    for _ in range(15):
        run.rates *= 0.99
        run.advance(1)
    run.advance(40)
    seconds = 60 / 6 / BASE_RATE / 0.99**15
    assert run.speeds.predict("matvec", 60 * SPEEDS / 6) == pytest.approx(seconds, rel=0.05)


OBSERVATIONS = st.tuples(
    st.sampled_from(["matvec", "rmatvec", 3]),
    st.lists(st.one_of(st.just(0), st.integers(1, 2**48)), min_size=4, max_size=4),
    st.lists(st.floats(0, allow_infinity=False, allow_nan=False), min_size=4, max_size=4),
    st.sampled_from([(1, 2, 3, 4), (1, 3), (2, 3, 4)]),
)


@given(st.lists(OBSERVATIONS, min_size=1, max_size=30))
def test_speeds_stay_positive_and_finite(steps):
    speeds = SpeedEstimator(CodedDemand(4, 2, 1000))
    for operation, rows, seconds, available in steps * 2:
        assert speeds.plan_speeds(available) is speeds.plan_speeds(available)
        speeds.observe(operation, rows, seconds)
        plan_speeds = np.array(speeds.plan_speeds(available))
        assert plan_speeds.shape == (4,)
        assert (plan_speeds > 0).all()
        assert np.isfinite(plan_speeds).all()
        predicted, bound = speeds.predict(operation, [500] * 4), speeds.bound(operation, available)
        assert (predicted is None) == (bound is None)
        if predicted is not None:
            assert all(0 < value < np.inf for value in (predicted, bound, speeds.scale))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("steps", "probability"), [(0, 1.0), (3, 0.6)])
def test_estimates_recover_from_an_interrupt_at_any_line(steps, probability):
    for line in range(400):
        run = make_run(steps)
        run.rates *= [1, 1, 1, 1, 1, 1 / 4]
        was_interrupted = interrupt_at_line(
            line, "core/speeds", partial(run.advance, 1, probability)
        )
        run.advance(4)
        assert run.plan_speeds[-1] == approx_relative(run.rates, rel=1e-9)
        if not was_interrupted:
            break
    assert not was_interrupted
    assert line > 20


# --- machines that leave and return -------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [[[200, 200, 300, 0, 400, 400]], [[200, 200, 300, 0, 0, 0], [0, 0, 300, 0, 400, 400]]],
)
def test_a_new_machine_has_the_median_speed(steps):
    speeds = make_estimator()
    for rows in steps:
        speeds.observe("matvec", rows, np.sign(rows))
    assert speeds.plan_speeds(MACHINES) == approx_relative([2, 2, 3, 3, 4, 4])


def observe_without_machine_6(run, steps):
    for _ in range(steps):
        run.speeds.plan_speeds((1, 2, 3, 4, 5))
        rows = np.array([600, 600, 900, 900, 1200, 0])
        run.speeds.observe("matvec", rows, run.draw_seconds(rows))


@pytest.mark.parametrize("factor", [1 / 4, 3])
def test_a_machine_that_returns_after_a_long_absence_gets_few_rows_at_first(factor):
    run = make_run()
    observe_without_machine_6(run, 60)
    run.rates[5] *= factor
    run.advance(3)
    assert run.plan_speeds[-3] == approx_relative([2, 2, 3, 3, 4, 4 / 3], rel=1e-9)
    assert run.plan_speeds[-2] == approx_relative([2, 2, 3, 3, 4, 4 * factor], rel=1e-9)
    assert run.plan_speeds[-1] == run.plan_speeds[-2]


def test_a_short_absence_does_not_reduce_the_speed():
    run = make_run()
    observe_without_machine_6(run, 8)
    assert run.speeds.plan_speeds(MACHINES) is run.plan_speeds[-1]
    observe_without_machine_6(run, 10)
    assert 4 / 3 / 3 < run.speeds.plan_speeds(MACHINES)[5] < 4 / 3


def test_a_machine_that_moves_gets_the_estimate_of_its_new_host():
    hosts = {n: f"node{n}" for n in MACHINES}
    speeds = make_estimator()
    speeds.set_hosts(hosts)
    run = SimulatedRun(speeds).advance(10)
    speeds.set_hosts({**hosts, 5: "node1", 1: "node5"})  # machines 1 and 5 swap hosts
    assert speeds.plan_speeds(MACHINES) == approx_relative([4, 2, 3, 3, 2, 4])
    speeds.set_hosts({**hosts, 5: "node1", 1: "node5", 2: "node5"})
    assert speeds.plan_speeds(MACHINES) == approx_relative([4, 4, 3, 3, 2, 4])
    speeds.set_hosts({**hosts, 6: "new"})
    assert speeds.plan_speeds(MACHINES) == approx_relative([2, 2, 3, 3, 4, 3])
    run.rates[5] /= 4
    run.advance(10)
    assert run.plan_speeds[-1] == approx_relative([2, 2, 3, 3, 4, 1])
    speeds.set_hosts({**hosts, 6: "new", 1: "node6"})  # unavailable for ten steps
    assert 2 / 2.5 < speeds.plan_speeds(MACHINES)[0] < 4 / 2.5
    run.rates[0] *= 2
    run.advance(2)
    assert run.plan_speeds[-1] == approx_relative([4, 2, 3, 3, 4, 1])


def test_a_machine_too_slow_for_one_row_gets_rows_again_later():
    speeds = np.array([2, 2, 3, 3, 4, 0.001]) / 100
    run = make_run(5, rows=30, true_speeds=speeds)
    assert [rows[5] for rows in run.rows[2:]] == [0, 0, 0]
    run.rates[5] = 4 * BASE_RATE / 100
    run.advance(600)
    assert run.rows[-1].tolist() == [10, 10, 15, 15, 20, 20]


@pytest.mark.parametrize(("machines", "machines_per_row"), [(1, 1), (2, 1), (2, 2)])
def test_speeds_of_one_or_two_machines_are_tracked(machines, machines_per_row):
    speeds = SpeedEstimator(CodedDemand(machines, machines_per_row, 1000))
    available, rates = tuple(range(1, machines + 1)), np.array([1000.0, 3000.0])[:machines]
    for step in range(20):
        if step == 10:
            rates[0] /= 2
        plan = plan_step(available, speeds.plan_speeds(available), machines_per_row, 1000)
        rows = plan.assignment.loads
        speeds.observe("matvec", rows, rows / rates)
    assert speeds.predict("matvec", rows) == pytest.approx((rows / rates).max())
    if machines_per_row < machines:
        assert rows.tolist() == pytest.approx([143, 857], abs=1)


# --- overheads of calls -------------------------------------------------------------------


def has_overhead(speeds):
    """Return whether twice the rows are not predicted to take twice the time."""
    return any(
        speeds.predict("matvec", 2000 * unit)
        != pytest.approx(2 * speeds.predict("matvec", 1000 * unit))
        for unit in np.eye(6)
    )


def test_estimated_overheads_improve_plans_and_predictions():
    gains, errors = [], []
    for seed in range(3):
        options = {"noise": 0.02, "seed": seed, "overheads": OVERHEADS}
        run = make_run(0, **options).advance(200, probability=0.6)
        reference = SimulatedRun(**options).advance(200, probability=0.6)
        gains.append(-relative_excess(run, reference, 50, 200))
        errors.append(np.log(run.makespans[50:]) - np.log(run.predicted[50:]))
        assert has_overhead(run.speeds)
    assert np.mean(gains) > 0.05  # relative to true speeds without overheads
    assert np.std(errors) < 0.06


@pytest.mark.parametrize(("noise", "probability"), [(0.0, 0.6), (0.1, 1.0), (0.3, 0.6)])
def test_noise_and_changes_are_not_mistaken_for_an_overhead(probability, noise):
    run = make_run(0, noise=noise, seed=1).advance(150, probability=probability)
    assert not has_overhead(run.speeds)
    run = make_run(10, noise=min(noise, 0.02))
    for factor in [0.5, 2.0] * 8:
        run.rates[1] *= factor
        run.advance(12)
    assert not has_overhead(run.speeds)


def test_drifting_speeds_are_tracked():
    """Averages with weights 0.5 and 0.05 have regrets of 8 % and 26 %."""
    rng, machines = np.random.default_rng(0), tuple(range(1, 21))
    speeds, rates = SpeedEstimator(CodedDemand(20, 10, 600)), rng.uniform(1, 4, 20) * 12_000
    regrets = []
    for _ in range(250):
        rates *= np.exp(0.03 * rng.standard_normal(20))
        loads = plan_step(machines, speeds.plan_speeds(machines), 10, 600).assignment.loads
        seconds = loads / rates
        regrets.append(seconds.max() / hindsight_makespan(loads, seconds, speeds.demand) - 1)
        speeds.observe("matvec", loads, seconds * np.exp(0.05 * rng.standard_normal(20)))
    assert np.mean(regrets[30:]) < 0.1


# --- fixed speeds and hindsight -----------------------------------------------------------


def test_the_scale_of_fixed_speeds_is_the_median_of_the_first_five_steps():
    speeds = FixedSpeeds([1.0, 2.0], CodedDemand(2, 1, 420))
    plan_speeds = speeds.plan_speeds((1, 2))
    assert plan_speeds == (1.0, 2.0)
    assert speeds.predict("matvec", [1, 1]) is speeds.bound("matvec", (1, 2)) is None
    speeds.observe("matvec", [0, 0], [0.0, 0.0])
    assert speeds.scale is None
    for seconds in (1.0, 100.0, 0.5, 1.0):
        speeds.observe("matvec", [100, 0], [seconds, 0.0])
    assert speeds.scale == 100
    for _ in range(10):
        speeds.observe("matvec", [100, 200], [7.0, 7.0])
        speeds.observe("block", [100, 200], [0.5, 0.5])
    assert speeds.scale == 100
    assert speeds.predict("matvec", [200, 100]) == 2.0
    assert speeds.predict("block", [200, 100]) == 1.0
    assert speeds.bound("block", (1, 2)) == 420 / 3 / 200
    assert speeds.bound("block", (2,)) == 420 / 2 / 200
    assert speeds.plan_speeds((1,)) is plan_speeds


TIMES = st.floats(1e-7, 1e4) | st.sampled_from([0.0, 1e-12, 1e12, math.inf, math.nan])


@given(st.lists(st.tuples(st.integers(0, 10**6), TIMES), min_size=1, max_size=9), st.integers(1, 5))
def test_hindsight_is_theorem_1_at_the_measured_speeds(measurements, machines_per_row):
    rows, seconds = map(list, zip(*measurements, strict=True))
    speeds = [
        m / min(max(time, 1e-9), 1e9)
        for m, time in measurements
        if m > 0 and time > 0 and math.isfinite(time)
    ]
    for amounts in (rows, np.array(rows, float)):
        demand = CodedDemand(9, machines_per_row, 420)
        makespan = hindsight_makespan(amounts, np.array(seconds), demand)
        if len(speeds) < machines_per_row:
            assert makespan is None
        else:
            c_star = float(fractional_load(np.array(speeds), machines_per_row).c_star)
            assert makespan == pytest.approx(420 * c_star)
