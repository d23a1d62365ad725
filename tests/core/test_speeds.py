"""Speeds given and speeds learned, against simulated machines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.core.demand import CodedDemand, optimal_loads
from cec_mpi.core.plan.load import fractional_load
from cec_mpi.core.plan.planner import Planner, plan_step
from cec_mpi.core.speeds import FixedSpeeds, SpeedEstimator, hindsight_makespan
from cec_mpi.errors import InfeasibleError, InputError

EVERYONE = (1, 2, 3, 4, 5, 6)
TRUE = np.array([2.0, 2.0, 3.0, 3.0, 4.0, 4.0])  # the example of the paper, Section III
COPIES, ROWS, BASE = 3, 4200, 1e4
FACTORS = {"matvec": 1.0, "rmatvec": 1.3, "block": 2.0}
OVERHEADS = 3000 / TRUE / BASE  # seconds of a call; a step takes about 0.1


class Cluster:
    """Machines whose speeds in each step differ log-normally from what they should be.

    Two clusters with the same seed and the same steps have the same noise.
    """

    def __init__(self, speeds, noise=0.0, seed=0, overheads=0.0):
        self.rates = np.array(speeds) * BASE
        self.noise, self.rng, self.overheads = noise, np.random.default_rng(seed), overheads

    def available(self, probability):
        while True:
            drawn = np.flatnonzero(self.rng.random(self.rates.size) < probability)
            if drawn.size >= COPIES:
                return tuple((drawn + 1).tolist())

    def seconds(self, rows, kind="matvec"):
        drawn = np.exp(self.noise * self.rng.standard_normal(self.rates.size))
        rates = self.rates / FACTORS[kind] * drawn
        return np.where(rows > 0, self.overheads + rows / rates, 0.0)


class Run:
    """Steps of a cluster, planned with `speeds` or, without, with the true ones."""

    def __init__(self, cluster, speeds=None, rows=ROWS):
        self.cluster, self.speeds = cluster, speeds
        self.planner = Planner(COPIES, rows)
        self.makespans, self.predicted, self.tuples, self.rows = [], [], [], []

    def steps(self, count, probability=1.0, kinds=("matvec",), late=None):
        for step in range(count):
            kind = kinds[step % len(kinds)]
            available = EVERYONE if probability == 1 else self.cluster.available(probability)
            if self.speeds is None:
                tuple_ = tuple(self.cluster.rates.tolist())
            else:
                tuple_ = self.speeds.plan_speeds(available)
            rows = self.planner.plan(available, tuple_).assignment.counts(len(TRUE))
            seconds = self.cluster.seconds(rows, kind)
            if late is not None and step == 0:
                seconds[late] *= 100
            if self.speeds is not None:
                self.predicted.append(self.speeds.predict(kind, rows))
                self.speeds.observe(kind, rows, seconds)
            self.tuples.append(tuple_)
            self.rows.append(rows)
            self.makespans.append(seconds.max())
        return self


def estimator(rows=ROWS):
    return SpeedEstimator(CodedDemand(6, COPIES, rows))


def taught(count=10, **cluster):
    return Run(Cluster(TRUE, **cluster), estimator()).steps(count)


def relative(speeds):
    """To the median, as the estimator publishes them."""
    return np.array(speeds) / np.median(speeds)


def pairs_of_runs(seeds=12, noise=0.1, **machines):
    """Runs with learned speeds and runs with known ones, under the same noise."""
    for seed in range(seeds):
        learned, known = (Cluster(TRUE, noise, seed, **machines) for _ in range(2))
        yield Run(learned, estimator()), Run(known)


def excess(learned, known, first, last):
    return np.mean(learned.makespans[first:last]) / np.mean(known.makespans[first:last]) - 1


# --- the bar ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"probability": 0.5},
        {"kinds": ("matvec", "rmatvec")},
        {"kinds": ("matvec", "block"), "probability": 0.6},
    ],
    ids=["everyone", "half of the machines", "two kinds", "two kinds, some machines"],
)
def test_learned_speeds_cost_less_than_5_percent_after_ten_steps_and_after_a_change(steps):
    first, again = [], []
    for machine, runs in enumerate(pairs_of_runs()):
        for run in runs:
            run.steps(30, **steps)
            run.cluster.rates[machine % 6] /= 2
            run.steps(30, **steps)
        first.append(excess(*runs, 10, 30))
        again.append(excess(*runs, 40, 60))
    assert np.mean(first) < 0.05
    assert np.mean(again) < 0.05
    assert max(first + again) < 0.05  # even the worst


def test_without_noise_two_steps_are_enough():
    learned, known = Run(Cluster(TRUE), estimator()).steps(5), Run(Cluster(TRUE)).steps(5)
    assert learned.makespans[1:] == pytest.approx(known.makespans[1:], rel=1e-3)
    assert learned.tuples[1] == pytest.approx(relative(TRUE), rel=1e-12)


# --- plans that stay ----------------------------------------------------------------------


def test_speeds_are_the_same_object_while_nothing_changes():
    speeds = estimator()
    first = speeds.plan_speeds(EVERYONE)
    assert speeds.plan_speeds(EVERYONE) is first
    assert speeds.plan_speeds((1, 2, 3)) is first
    run = Run(Cluster(TRUE), speeds).steps(40, probability=0.6)
    assert len({id(tuple_) for tuple_ in run.tuples}) <= 4  # until all machines were seen
    assert run.tuples[-1] is run.tuples[15]


@pytest.mark.parametrize(("factor", "same"), [(0.99, True), (1.01, True), (0.9, False)])
def test_only_a_change_worth_2_percent_makes_a_new_plan(factor, same):
    run = taught()
    run.cluster.rates[2] *= factor
    run.steps(30)
    assert (run.tuples[-1] is run.tuples[5]) == same


@pytest.mark.parametrize(("noise", "most"), [(0.0, 0.02), (0.02, 0.02), (0.1, 0.06)])
@pytest.mark.parametrize("seed", range(3))
def test_published_speeds_are_near_the_best_but_for_noise(seed, noise, most):
    run = Run(Cluster(TRUE, noise, seed), estimator()).steps(10)
    for _ in range(40):
        run.steps(1, probability=0.6)
        available = run.cluster.available(0.6)
        present = np.array(available) - 1
        tuple_ = run.speeds.plan_speeds(available)
        loads = np.zeros(6)
        loads[present] = np.multiply(fractional_load(np.array(tuple_)[present], 3).mu, ROWS)
        bound = run.speeds.bound("matvec", available)
        assert run.speeds.predict("matvec", loads) <= (1.00001 + most) * bound


@pytest.mark.parametrize("machine", [0, 2, 5])
@pytest.mark.parametrize("before", [1, 2, 3, 4, 5, 8])
def test_one_late_answer_does_not_move_the_plan(machine, before):
    run = taught(before)
    plan = run.speeds.plan_speeds(EVERYONE)
    run.steps(8, late=machine)
    assert all(tuple_ is plan for tuple_ in run.tuples[before:])


def test_a_late_answer_in_the_very_first_step_is_forgotten_after_the_second():
    run = Run(Cluster(TRUE), estimator()).steps(4, late=3)
    assert run.tuples[2] == pytest.approx(relative(TRUE), rel=1e-9)


@pytest.mark.parametrize("kinds", [("matvec",), ("matvec", "block")])
def test_when_all_machines_slow_down_predictions_follow_and_the_plan_stays(kinds):
    run = taught().steps(10, kinds=kinds)
    run.cluster.rates /= 3
    run.steps(10, kinds=kinds)
    assert all(tuple_ is run.tuples[5] for tuple_ in run.tuples[5:])
    assert run.predicted[-2:] == pytest.approx(run.makespans[-2:], rel=1e-9)
    assert run.predicted[18] * 3 == pytest.approx(run.predicted[-2], rel=1e-9)


def test_plans_settle_among_noise():
    plans = []
    for seed in range(3):
        run = taught(130, noise=0.1, seed=seed)
        plans.append(len({id(tuple_) for tuple_ in run.tuples[30:]}))
    assert np.mean(plans) < 25  # of 100 steps


def test_a_slow_first_step_of_all_machines_is_forgotten_after_the_second():
    speeds = estimator()
    for slow in (20, 1, 1):
        first = speeds.plan_speeds(EVERYONE)
        speeds.observe("matvec", 100 * TRUE, slow * np.ones(6))
    assert speeds.plan_speeds(EVERYONE) is first
    assert speeds.predict("matvec", 100 * TRUE) == pytest.approx(1.0)


# --- kinds --------------------------------------------------------------------------------


def test_each_kind_has_its_own_seconds_and_all_share_the_speeds():
    run = taught(2)
    run.steps(12, kinds=("rmatvec", "block", "matvec"))
    rows = run.rows[-1]
    once = run.speeds.predict("matvec", rows)
    assert once == pytest.approx(ROWS / 6 / BASE, rel=1e-3)
    for kind, factor in FACTORS.items():
        assert run.speeds.predict(kind, rows) == pytest.approx(factor * once, rel=1e-9)
        assert run.speeds.bound(kind, EVERYONE) == pytest.approx(factor * ROWS / 6 / BASE, rel=1e-9)
    assert run.tuples[-1] is run.tuples[1]
    assert run.speeds.scale == pytest.approx(3 * BASE)  # of the median machine


def test_nothing_is_predicted_of_a_kind_that_was_never_seen():
    speeds = estimator()
    assert speeds.scale is None
    assert speeds.predict("matvec", [1] * 6) is None
    assert speeds.bound("matvec", EVERYONE) is None
    speeds.observe("matvec", [100] * 6, [1.0] * 6)
    assert speeds.predict("matvec", [100] * 6) == pytest.approx(1.0)
    assert speeds.predict("rmatvec", [100] * 6) is None
    assert speeds.bound("rmatvec", EVERYONE) is None


# --- machines that come and go ------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [[[200, 200, 300, 0, 400, 400]], [[200, 200, 300, 0, 0, 0], [0, 0, 300, 0, 400, 400]]],
)
def test_a_machine_never_seen_starts_at_the_median_of_all_seen_so_far(steps):
    speeds = estimator()
    for seen in steps:
        speeds.observe("matvec", seen, np.sign(seen))
    assert speeds.plan_speeds(EVERYONE) == pytest.approx(relative([2, 2, 3, 3, 4, 4]))


def without_the_last(run, steps):
    """Steps in which machine 6 is away."""
    for _ in range(steps):
        run.speeds.plan_speeds((1, 2, 3, 4, 5))
        rows = np.array([600, 600, 900, 900, 1200, 0])
        run.speeds.observe("matvec", rows, run.cluster.seconds(rows))


@pytest.mark.parametrize("factor", [1 / 4, 1, 3])
def test_a_machine_that_returns_is_measured_with_few_rows_first(factor):
    run = taught()
    without_the_last(run, 60)
    run.cluster.rates[5] *= factor
    run.steps(3)
    doubted, found = relative([2, 2, 3, 3, 4, 4 / 3]), relative([2, 2, 3, 3, 4, 4 * factor])
    assert run.tuples[-3] == pytest.approx(doubted, rel=1e-9)
    assert run.tuples[-2] == run.tuples[-1] == pytest.approx(found, rel=1e-9)


def test_a_short_absence_is_no_reason_for_doubt():
    run = taught()
    without_the_last(run, 8)
    assert run.speeds.plan_speeds(EVERYONE) is run.tuples[-1]
    without_the_last(run, 10)
    last = run.speeds.plan_speeds(EVERYONE)
    assert 4 / 3 / 3 < last[5] < 4 / 3


HOSTS = {n: f"node{n}" for n in EVERYONE}


def test_speeds_are_those_of_hosts():
    """Machine 6 of speed 4 is away, another host is machine 6, and then it is back as machine 1."""
    speeds = estimator()
    speeds.set_hosts(HOSTS)
    run = Run(Cluster(TRUE), speeds).steps(10)
    assert run.tuples[-1] == pytest.approx(relative([2, 2, 3, 3, 4, 4]))
    speeds.set_hosts({**HOSTS, 6: "new"})
    assert speeds.plan_speeds(EVERYONE) == pytest.approx(relative([2, 2, 3, 3, 4, 3]))  # unknown
    run.cluster.rates[5] /= 4
    run.steps(10)
    assert run.tuples[-1] == pytest.approx(relative([2, 2, 3, 3, 4, 1]))
    speeds.set_hosts({**HOSTS, 6: "new", 1: "node6"})
    after = speeds.plan_speeds(EVERYONE)
    assert relative([2, 2, 3, 3, 4, 1])[1] < after[0] < relative([4, 2, 3, 3, 4, 1])[0]  # doubted
    run.cluster.rates[0] *= 2
    run.steps(2)
    assert run.tuples[-1] == pytest.approx(relative([4, 2, 3, 3, 4, 1]))


def test_who_comes_back_at_once_has_its_speed_at_once():
    speeds = estimator()
    speeds.set_hosts(HOSTS)
    Run(Cluster(TRUE), speeds).steps(10)
    speeds.set_hosts({**HOSTS, 5: "node1", 1: "node5"})
    assert speeds.plan_speeds(EVERYONE) == pytest.approx(relative([4, 2, 3, 3, 2, 4]))
    speeds.set_hosts({**HOSTS, 5: "node1", 1: "node5", 2: "node5"})  # as the other one there
    assert speeds.plan_speeds(EVERYONE) == pytest.approx(relative([4, 4, 3, 3, 2, 4]))


def test_a_machine_too_slow_for_a_single_row_is_tried_again():
    run = Run(Cluster(np.array([2, 2, 3, 3, 4, 0.001]) / 100), estimator(rows=30), rows=30)
    run.steps(5)
    assert [rows[5] for rows in run.rows[2:]] == [0, 0, 0]
    run.cluster.rates[5] = 4 * BASE / 100
    run.steps(600)
    assert run.rows[-1].tolist() == [10, 10, 15, 15, 20, 20]


@pytest.mark.parametrize(("machines", "copies"), [(1, 1), (2, 1), (2, 2)])
def test_one_or_two_machines_are_followed(machines, copies):
    speeds = SpeedEstimator(CodedDemand(machines, copies, 1000))
    available = tuple(range(1, machines + 1))
    rates = np.array([1000.0, 3000.0])[:machines]
    for step in range(20):
        if step == 10:
            rates[0] /= 2
        rows = plan_step(available, speeds.plan_speeds(available), copies, 1000).assignment.loads
        speeds.observe("matvec", rows, rows / rates)
    assert speeds.predict("matvec", rows) == pytest.approx((rows / rates).max())
    if copies < machines:
        assert rows.tolist() == pytest.approx([143, 857], abs=1)


# --- times that say little ----------------------------------------------------------------


def test_times_of_zero_teach_nothing():
    speeds = estimator()
    first = speeds.plan_speeds(EVERYONE)
    for _ in range(10):
        speeds.observe("matvec", [2100] * 6, [0.0] * 6)
        assert speeds.plan_speeds(EVERYONE) is first
    assert speeds.predict("matvec", [2100] * 6) is None
    run = taught()
    for _ in range(10):
        run.speeds.observe("matvec", [2100] * 6, [0.0] * 6)
        run.speeds.observe("matvec", [0] * 6, [0.0] * 6)
    assert run.speeds.plan_speeds(EVERYONE) is run.tuples[-1]


def test_a_coarse_clock_gives_plans_not_much_worse_than_equal_loads():
    tick = 1e-3
    speeds, cluster, planner = estimator(rows=60), Cluster(TRUE, 0.1), Planner(COPIES, 60)
    times = []
    for _ in range(60):
        rows = planner.plan(EVERYONE, speeds.plan_speeds(EVERYONE)).assignment.counts(6)
        seconds = cluster.seconds(rows)  # about a tick
        times.append((rows / cluster.rates).max())
        speeds.observe("matvec", rows, np.floor(seconds / tick + cluster.rng.random(6)) * tick)
    assert np.mean(times[10:]) < 1.25 * (30 / cluster.rates).max()


observations = st.tuples(
    st.sampled_from(["matvec", "rmatvec", 3]),
    st.lists(st.one_of(st.just(0), st.integers(1, 2**48)), min_size=4, max_size=4),
    st.lists(st.floats(0, allow_infinity=False, allow_nan=False), min_size=4, max_size=4),
    st.sampled_from([(1, 2, 3, 4), (1, 3), (2, 3, 4)]),
)


@given(st.lists(observations, min_size=1, max_size=30))
def test_whatever_is_observed_speeds_stay_positive_and_finite(steps):
    speeds = SpeedEstimator(CodedDemand(4, 2, 1000))
    for kind, rows, seconds, available in steps * 2:
        published = speeds.plan_speeds(available)
        assert speeds.plan_speeds(available) is published
        speeds.observe(kind, rows, seconds)
        published = np.array(speeds.plan_speeds(available))
        assert published.shape == (4,)
        assert np.isfinite(published).all()
        assert (published > 0).all()
        expected, bound = speeds.predict(kind, [500] * 4), speeds.bound(kind, available)
        assert (expected is None) == (bound is None)
        if expected is not None:
            assert 0 < bound < np.inf
            assert 0 < expected < np.inf
            assert 0 < speeds.scale < np.inf


# --- overhead -----------------------------------------------------------------------------


def is_proportional(speeds):
    """Whether twice the rows take twice the time on each machine."""
    return all(
        speeds.predict("matvec", 2000 * one)
        == pytest.approx(2 * speeds.predict("matvec", 1000 * one))
        for one in np.eye(6)
    )


def test_overheads_are_found_where_rows_differ_and_plans_and_predictions_gain():
    gains, errors = [], []
    for seed in range(3):
        clusters = [Cluster(TRUE, 0.02, seed, OVERHEADS) for _ in range(2)]
        learned, known = Run(clusters[0], estimator()), Run(clusters[1])
        for run in (learned, known):
            run.steps(200, probability=0.6)
        gains.append(-excess(learned, known, 50, 200))
        errors.append(np.log(learned.makespans[50:]) - np.log(np.array(learned.predicted[50:])))
        assert not is_proportional(learned.speeds)
    assert np.mean(gains) > 0.05  # over speeds that are right, but know of no overhead
    assert np.std(errors) < 0.06


def test_no_plan_beats_the_bound_with_overheads_and_its_own_comes_close():
    run = Run(Cluster(TRUE, 0.02, 1, OVERHEADS), estimator()).steps(200, probability=0.6)
    rng = np.random.default_rng(0)
    bound = run.speeds.bound("matvec", EVERYONE)
    loads = plan_step(EVERYONE, run.speeds.plan_speeds(EVERYONE), 3, ROWS).assignment.loads
    assert bound <= run.speeds.predict("matvec", loads) <= 1.021 * bound
    for _ in range(50):
        others = plan_step(EVERYONE, rng.uniform(1, 4, 6), 3, ROWS).assignment.loads
        assert run.speeds.predict("matvec", others) >= bound * (1 - 1e-12)
    assert run.speeds.bound("matvec", (2, 4, 6)) == pytest.approx(
        run.speeds.predict("matvec", [0, ROWS, 0, ROWS, 0, ROWS])
    )


@pytest.mark.parametrize(("noise", "probability"), [(0.0, 0.6), (0.1, 1.0), (0.3, 0.6)])
def test_noise_alone_is_not_taken_for_an_overhead(probability, noise):
    run = Run(Cluster(TRUE, noise, 1), estimator()).steps(150, probability=probability)
    assert is_proportional(run.speeds)


def test_a_machine_that_becomes_slow_and_fast_again_is_not_taken_for_one_with_overhead():
    run = taught(10, noise=0.02)
    for _ in range(8):
        run.cluster.rates[1] /= 2
        run.steps(12)
        run.cluster.rates[1] *= 2
        run.steps(12)
    assert is_proportional(run.speeds)


# --- what cannot be -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "copies", "rows", "error"),
    [(2, 3, 10, InfeasibleError), (3, 0, 10, InputError), (3, 2, 0, InputError)],
)
def test_what_cannot_be_planned_is_refused(machines, copies, rows, error):
    with pytest.raises(error):
        CodedDemand(machines, copies, rows)


@pytest.mark.parametrize(
    "speeds", [FixedSpeeds(TRUE, CodedDemand(6, 3, 420)), SpeedEstimator(CodedDemand(6, 3, 420))]
)
def test_too_few_machines_have_no_bound_and_do_no_harm(speeds):
    tuple_ = speeds.plan_speeds(EVERYONE)
    speeds.observe("matvec", 70 * TRUE, np.ones(6))
    assert speeds.plan_speeds((1, 2)) is tuple_  # the planner says what is wrong
    with pytest.raises(InfeasibleError):
        speeds.bound("matvec", (1, 2))
    assert speeds.bound("matvec", EVERYONE) == pytest.approx(1.0)


# --- given speeds -------------------------------------------------------------------------


def test_given_speeds_are_published_as_they_are():
    speeds = FixedSpeeds(TRUE, CodedDemand(6, 3, 420))
    first = speeds.plan_speeds(EVERYONE)
    assert first == (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)
    speeds.observe("matvec", [210] * 6, [1.0, 9.0, 1.0, 5.0, 1.0, 2.0])
    assert speeds.plan_speeds((1, 2, 3)) is first


def test_the_scale_of_given_speeds_is_a_median_over_the_first_five_steps_of_a_kind():
    speeds = FixedSpeeds([1.0, 2.0], CodedDemand(2, 1, 420))
    assert speeds.scale is None
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


def test_no_plan_is_made_for_less_than_it_costs():
    speeds, rows = SpeedEstimator(CodedDemand(6, COPIES, ROWS)), np.full(6, 2100)
    first = speeds.plan_speeds(EVERYONE)
    for _ in range(10):
        speeds.observe("matvec", rows, rows / TRUE * 1e-7)  # a step of 0.1 ms
        assert speeds.plan_speeds(EVERYONE) is first
    speeds.observe("block", rows, rows / TRUE * 1e-5)  # and one that takes longer
    assert speeds.plan_speeds(EVERYONE) is not first


# --- hindsight ----------------------------------------------------------------------------


def test_hindsight_of_the_papers_example():
    for available, c_star in ((EVERYONE, 1 / 6), ((1, 2, 3, 5, 6), 1 / 5), ((1, 2, 3, 5), 2 / 7)):
        present = np.isin(EVERYONE, available)
        rows = np.where(present, [10, 400, 70, 30, 5, 420], 0)
        best = hindsight_makespan(rows, rows / TRUE, CodedDemand(len(rows), 3, 420))
        assert best == pytest.approx(420 * c_star, rel=1e-12)


# --- drift, jumps, machines of few rows ---------------------------------------------------


def twenty(steps, seed=0, noise=0.05, drift=0.0, overhead=0.0, changes=(), calls=0.0, rows=600):
    """Regret of each step of 20 machines of which 10 are needed; and the estimator."""
    rng = np.random.default_rng(seed)
    true, everyone = rng.uniform(1, 4, 20) * rows * 20, tuple(range(1, 21))
    speeds, regrets, counts = SpeedEstimator(CodedDemand(20, 10, rows)), [], []
    for step in range(steps):
        for when, machine, factor in changes:
            true[machine] *= factor if when == step else 1
        true *= np.exp(drift * rng.standard_normal(20))
        tuple_ = speeds.plan_speeds(everyone)
        counts.append(plan_step(everyone, tuple_, 10, rows).assignment.loads)
        overheads = overhead * rows + calls * true
        seconds = (overheads + counts[-1]) / true
        best = optimal_loads(true, overheads, 10, rows)[0]
        regrets.append(seconds.max() / best - 1)
        speeds.observe("matvec", counts[-1], seconds * np.exp(noise * rng.standard_normal(20)))
    return np.array(regrets), np.array(counts), speeds


def test_drift_is_followed():
    """An average of weight 0.5 comes to 8 % here, one of weight 0.05 to 26 %."""
    regrets = [twenty(150, seed, drift=0.03)[0][30:].mean() for seed in range(3)]
    assert np.mean(regrets) < 0.1


@pytest.mark.parametrize("factor", [0.3, 0.5])
def test_a_slow_machine_costs_one_step(factor):
    regrets, _, _ = twenty(50, changes=[(40, 3, factor)])
    assert regrets[40] > 0.7 * (1 / factor - 1)
    assert regrets[41:].max() < 0.25


def test_a_common_overhead_is_found_in_a_few_steps():
    regrets, _, speeds = twenty(20, noise=0.02, overhead=0.3)
    assert regrets[2:].mean() < 0.06
    one = np.eye(20)[3]
    ratio = speeds.predict("matvec", 600 * one) / speeds.predict("matvec", 300 * one)
    assert ratio == pytest.approx(0.9 / 0.6, abs=0.2)


def test_single_hiccups_that_are_many_do_not_make_plans():
    run, plans = taught(60, noise=0.05), []
    for step in range(200):
        before = run.speeds.plan_speeds(EVERYONE)
        rows = run.planner.plan(EVERYONE, before).assignment.counts(6)
        seconds = run.cluster.seconds(rows)
        if step % 4 == 0:
            seconds[run.cluster.rng.integers(6)] *= 5
        run.speeds.observe("matvec", rows, seconds)
        plans.append(run.speeds.plan_speeds(EVERYONE) is not before)
    assert np.mean(plans[40:]) < 0.3


@pytest.mark.parametrize("calls", [0.0, 3e-4, 3e-3])
def test_a_machine_that_was_slow_for_long_is_found_to_be_fast_again(calls):
    """However few rows it had, and whatever a call costs besides."""
    changes = [(40, 3, 1 / 50), (120, 3, 50.0)]
    regrets, counts, speeds = twenty(200, 1, changes=changes, calls=calls, rows=4000)
    assert counts[60:120, 3].max() < 0.1 * counts[30, 3]
    assert counts[150:, 3].min() > 0.7 * counts[30, 3]
    assert speeds.predict("matvec", counts[-1]) < 0.2
    assert regrets[150:].mean() < 0.2


def test_a_machine_of_few_rows_is_not_judged_by_its_calls():
    """A third of the speed, and calls that cost a part of the step: it keeps its rows."""
    changes = [(40, 3, 1 / 3)]
    _, counts, speeds = twenty(340, 2, 0.1, changes=changes, calls=1e-3, rows=4000)
    assert counts[60:, 3].min() > 0.15 * counts[20:40, 3].mean()
    assert speeds.predict("matvec", counts[-1]) < 0.1


def test_equal_measurements_give_equal_speeds():
    first, second = (twenty(60, 4, drift=0.02, overhead=0.2)[1] for _ in range(2))
    assert (first == second).all()


TIMES = st.floats(1e-7, 1e4) | st.sampled_from([0.0, 1e-12, 1e12, math.inf, math.nan])


@given(st.data(), st.integers(1, 5))
def test_hindsight_is_theorem_1_at_the_speeds_that_were_shown(data, copies):
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 10**6), TIMES), min_size=1, max_size=9))
    rows, seconds = (list(each) for each in zip(*pairs, strict=True))
    speeds = [m / min(max(t, 1e-9), 1e9) for m, t in pairs if m > 0 and t > 0 and math.isfinite(t)]
    for some in (rows, np.array(rows, float)):
        found = hindsight_makespan(some, np.array(seconds), CodedDemand(9, copies, 420))
        if len(speeds) < copies:
            assert found is None
        else:
            best = float(fractional_load(np.array(speeds), copies).c_star) * 420
            assert found == pytest.approx(best)
