"""Recommended stores: known answers, infeasible requests, the Pareto front, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cec_mpi.core.code.mds import make_code
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from cec_mpi.simulation.advise import advise, dominates
from cec_mpi.simulation.choices import AdviceRequest, Choice, MachineGroup
from cec_mpi.simulation.forecast import Forecaster, mean_interval
from cec_mpi.simulation.scenario import Costs, Source
from helpers.costs import FREE

GB = 10**9
# X has 8 GB; a machine of speed 1 multiplies 1 GB in a second.
X = {"rows": 1_000_000, "columns": 1000, "rate": 1e9, "costs": FREE, "steps": 1000}


def make_request(*groups, **more):
    return AdviceRequest(**{**X, "groups": groups or (MachineGroup(6),), **more})


def absences(*sets, gap=3600.0):
    """Availability that lacks each of these sets in turn, for `gap` seconds."""

    def make_availability(machines):
        everyone = set(range(1, machines + 1))
        return ListedAvailability([sorted(everyone - absent) for absent in sets], gap_seconds=gap)

    return make_availability


def find_choice(advice, machines, recovery):
    """Return the choice with N machines and the recovery threshold L."""
    return next(c for c in advice.front if (c.machines, c.recovery) == (machines, recovery))


# --- known answers ------------------------------------------------------------------------


def test_a_choice_takes_the_time_of_theorem_1():
    advice = advise(make_request(MachineGroup(6), availability=absences(set(), {1, 2}), steps=5000))
    choice = find_choice(advice, 6, 4)
    full, four = 8 / 6, 8 / 4
    # Each set lasts half the time, so the numbers of steps are inverse to their durations.
    assert choice.step.mean == pytest.approx(2 / (1 / full + 1 / four), rel=0.05)
    assert choice.step.low <= choice.step.mean <= choice.step.high
    assert (choice.storage, choice.max_computer_bytes) == (12 * GB, 2 * GB)
    assert choice.tolerated_losses == 2
    assert choice.waiting_fraction == 0
    assert choice.total.mean == pytest.approx(5000 * choice.step.mean)


def test_waiting_has_a_fraction_and_a_mean_duration():
    availability = absences(set(), set(), set(), {1, 2})
    five = find_choice(advise(make_request(availability=availability, steps=50_000)), 6, 5)
    assert five.waiting_fraction == 0.25
    assert five.mean_wait == 3600
    assert five.total.mean == pytest.approx(50_000 * five.step.mean / 0.75, rel=0.05)


def test_independent_machines_have_exact_waiting_and_a_range_of_runs():
    """Fewer than 5 of 6 are available in 1 - 0.8**6 - 6 0.8**5 0.2 of the ticks."""
    advice = advise(make_request(probability=0.8, tick_seconds=600.0))
    five, waiting = find_choice(advice, 6, 5), 1 - 0.8**6 - 6 * 0.8**5 * 0.2
    assert five.waiting_fraction == pytest.approx(waiting)
    assert five.mean_wait == pytest.approx(600 / (1 - waiting))
    best = advice.recommended
    low, high = best.single_run_range
    assert low < best.total.low < best.total.mean < best.total.high < high


def test_intervals_cover_the_mean():
    """Of 40 intervals of 95 %, fewer than 32 contain the mean in one of 30,000 cases."""
    request = make_request(probability=0.9, tick_seconds=1800.0)
    choice = Choice(machines=6, recovery=4)
    mean = Forecaster(request).run_seconds(choice, range(10_000, 11_000)).mean()
    hits = 0
    for seed in range(40):
        total = Forecaster(replace(request, first_seed=200 * seed)).forecast(choice).total
        hits += total.low <= mean <= total.high
    assert hits >= 32


def test_the_choice_is_compared_with_restarting_and_equal_shares():
    """X is 8 GB and is read 1,000 times as fast as it is multiplied, or in 80 s at each change."""
    availability = absences({1}, {2}, gap=600.0)
    cheap = advise(make_request(availability=absences({1}, {2}, gap=36_000.0)))
    assert "a code gains little over restarting and equal shares" in cheap.summary
    slow = advise(make_request(availability=availability, costs=replace(FREE, source=Source(1e8))))
    assert set(slow.baselines) == {"restarting", "equal shares"}
    choice = slow.recommended.total.mean
    assert slow.baselines["restarting"].mean > 1.05 * choice
    ratio = slow.baselines["restarting"].mean / choice
    assert f"restarting would take {ratio:.2f} times" in slow.summary
    assert "(all machines together read X at 100 MB/s)" in slow.summary


def test_the_summary_states_if_the_length_of_outages_matters():
    request = make_request(
        MachineGroup(16, 1, 29 * GB), rows=20_000_000, probability=0.9, rate=5e9, costs=Costs()
    )
    short = advise(request)
    long = advise(replace(request, tick_seconds=7200.0))
    assert short.recommended.threshold_text != long.recommended.threshold_text
    assert f"with --tick 2h, take {long.recommended.threshold_text}." in short.summary
    assert "The length of outages" not in long.summary


def test_two_machines_that_are_absent_at_any_time_need_two_spare_machines():
    availability = absences({1, 2}, {3, 4}, {5, 6})
    advice = advise(make_request(availability=availability, steps=50_000))
    assert advice.recommended.tolerated_losses == 2
    assert advice.recommended.recovery == 4
    assert "there are never enough available machines" in advice.rejections["N = 6, L = 5 to 6"]
    assert "L = 4: any 4 of 6 machines are enough, 2 machines may be away" in advice.summary
    assert advice.alternative == ""


def test_digits_and_errors_are_those_of_the_code_that_encode_makes():
    advice = advise(make_request(MachineGroup(8), probability=0.8))
    digits = int(-np.log10(advice.recommended.error))
    assert f"Results have about {digits} correct digits." in advice.summary
    for choice in advice.front:
        assert choice.copies is None
        if choice.machines == 8:
            worst = make_code(8, choice.recovery).conditioning.worst
            assert choice.lost_digits == pytest.approx(np.log10(worst), abs=0.1)
            assert choice.error == pytest.approx(worst * 2.2e-16, rel=0.3)


def test_a_sparse_x_is_stored_as_copies_of_its_rows():
    advice = advise(make_request(MachineGroup(6), probability=0.9, density=0.001))
    best = advice.recommended
    assert best.copies
    assert best.recovery is None
    assert best.storage < 0.1 * GB
    assert best.lost_digits == 0
    command = best.encode_command("float64", [1] * 6)
    assert f"--machines {best.machines} --copies {best.copies}" in command


def test_noise_makes_simulated_steps_longer_and_stragglers_worth_it():
    availability = absences(set(), {1}, {2, 3})
    calm, noisy = (
        advise(make_request(MachineGroup(6), availability=availability, noise=noise))
        for noise in (0.0, 0.8)
    )
    simulated = [choice for choice in calm.front if choice.simulated_total is not None]
    assert calm.recommended in simulated
    assert 1 <= len(simulated) <= 3
    for choice in simulated:
        assert choice.stragglers == 0
        assert choice.simulated_total.mean == pytest.approx(choice.total.mean, rel=0.05)
    assert any(choice.stragglers for choice in noisy.front)
    assert noisy.recommended.simulated_total.mean > 1.1 * noisy.recommended.total.mean


def test_machines_cost_while_they_are_available():
    cheap, dear = MachineGroup(5, price=1.0), MachineGroup(1, price=100.0)
    advice = advise(make_request(cheap, dear, availability=absences({6}), steps=3600))
    for choice in advice.front:
        assert choice.machines == 6
        assert choice.cost == pytest.approx(5 * choice.total.mean / 3600, rel=1e-3)


def test_free_machines_give_the_choice_without_prices():
    free, plain = (
        advise(
            make_request(MachineGroup(6, price=price), availability=absences(set(), {1, 2}), runs=2)
        )
        for price in (0.0, None)
    )
    assert free.recommended.cost == 0
    assert replace(free.recommended, cost=None) == plain.recommended


def test_advice_is_repeatable_and_one_run_gives_no_interval():
    request = make_request(availability=absences(set(), {1}, {2, 3}), steps=3000)
    advice = advise(request)
    assert advise(request) == advice
    total = find_choice(advice, 6, 3).total
    assert total.low < total.mean < total.high
    once = find_choice(advise(replace(request, runs=1)), 6, 3).total
    assert once.low == once.mean == once.high


@pytest.mark.parametrize(("count", "student"), [(2, 12.706), (10, 2.262)])
def test_intervals_are_those_of_students_t_distribution(count, student):
    values = np.random.default_rng(count).uniform(100, 101, count)
    exact = student * np.std(values, ddof=1) / count**0.5
    mean, low, high = mean_interval(values)
    assert mean == pytest.approx(np.mean(values))
    assert high - mean == pytest.approx(exact, rel=1e-3)
    assert mean - low == pytest.approx(high - mean)


# --- alternatives -------------------------------------------------------------------------


def test_no_code_is_recommended_if_all_machines_stay_available():
    advice = advise(make_request(MachineGroup(4, 1), MachineGroup(2, 2)))
    assert "all machines are always available" in advice.alternative
    assert "a step takes 1.00 s and X needs 8.00 GB" in advice.alternative


def test_one_machine_that_stays_available_and_holds_x_is_recommended():
    groups = MachineGroup(3, 1, 4 * GB), MachineGroup(1, 2, 16 * GB)
    advice = advise(make_request(*groups, availability=absences(set(), {1}, {2, 3})))
    expected = "fits on machine 4, which is always available. A step on it takes 4.00 s"
    assert expected in advice.alternative
    leaving = advise(make_request(*groups, availability=absences({4}, {1}, {2, 3})))
    assert leaving.alternative == ""


# --- infeasible and invalid requests ------------------------------------------------------


def test_memory_that_is_too_small_is_named():
    advice = advise(make_request(MachineGroup(5), MachineGroup(1, 1, 3 * GB), probability=0.9))
    assert advice.rejections["N = 6, L = 1 to 2"] == (
        "its shards do not fit in the memory of computer 6 "
        "(4.00 GB needed, 3.00 GB usable, with L = 2)"
    )
    assert all(choice.max_computer_bytes <= 3 * GB for choice in advice.front)


def test_a_computer_with_more_memory_carries_more_machines():
    availability = absences(set(), {1}, {3})
    groups = MachineGroup(2, 1, 4 * GB, price=1.0), MachineGroup(1, 4, 17 * GB, price=2.0)
    advice = advise(make_request(*groups, availability=availability, steps=20_000))
    choice = find_choice(advice, 6, 2)  # of 4 GB each, with equal speeds
    assert choice.machines_per_computer == (1, 1, 4)
    assert (choice.storage, choice.max_computer_bytes) == (24 * GB, 16 * GB)
    assert choice.tolerated_losses == 1
    times = 8 / 6, 8 / 5, 8 / 2
    assert choice.step.mean == pytest.approx(3 / sum(1 / seconds for seconds in times), rel=0.05)
    hours = choice.total.mean / 3600
    assert 4 * hours * 0.4 < choice.cost < 4 * hours  # of three computers, not of six machines
    three = find_choice(advice, 3, 2)  # the fastest does half of the work
    assert choice.step.mean < three.step.mean


def test_computers_that_are_alike_carry_one_machine_each():
    advice = advise(make_request(MachineGroup(6, 1, 32 * GB)))
    assert not any(choice.machines_per_computer for choice in advice.front)


def test_an_error_that_is_too_large_is_named():
    advice = advise(
        make_request(MachineGroup(12), probability=0.8, dtype="float32", max_error=2e-6)
    )
    assert all(choice.error <= 2e-6 for choice in advice.front)
    assert any("its error may exceed 2e-06" in reason for reason in advice.rejections.values())


def test_infeasible_requests_have_reasons():
    reason = "no choice is feasible: N = 2, L = 1 to 2: its shard"
    with pytest.raises(InfeasibleError, match=reason):
        advise(make_request(MachineGroup(1, 1, GB), MachineGroup(1, 2, GB)))


def test_an_infeasible_request_names_a_machine_that_holds_x():
    groups = MachineGroup(1, 10, GB // 10), MachineGroup(3, 1, 64 * GB)
    reason = "X is 8.00 GB and fits on machine 4, which is always available: a step takes 8.00 s$"
    with pytest.raises(InfeasibleError, match=reason):
        advise(make_request(*groups, availability=absences({2}, {3})))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"density": 0.0}, "density 0"),
        ({"max_error": 0.0}, "error 0"),
        ({"noise": -1.0}, "noise -1"),
        ({"steps": 0}, "steps 0"),
        ({"groups": ()}, "machines: expected at least one"),
        (
            {"groups": (MachineGroup(1), MachineGroup(1, price=1.0))},
            "a price for all of them or for none",
        ),
        ({"groups": (MachineGroup(0),)}, "expected a positive count"),
        ({"groups": (MachineGroup(1, price=float("nan")),)}, "a price of at least 0"),
        ({"groups": (MachineGroup(1, price=-1.0),)}, "a price of at least 0"),
        ({"probability": 0.5, "availability": absences(set())}, "cannot be combined"),
        ({"probability": 1.5}, "probability 1.5"),
        ({"probability": 1e-9}, "probability 1e-09: expected at least 0.001"),
    ],
)
def test_invalid_requests_are_rejected(more, message):
    with pytest.raises(InputError, match=message):
        advise(replace(make_request(), **more))


# --- properties ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_no_choice_on_the_front_is_dominated_and_one_is_recommended(seed):
    random = np.random.default_rng(seed)
    numbers = random.integers((1, 1, 2), (4, 4, 9), (random.integers(1, 4), 3)).tolist()
    groups = [MachineGroup(count, speed, memory * GB) for count, speed, memory in numbers]
    advice = advise(make_request(*groups, probability=float(random.uniform(0.6, 1)), runs=3))
    assert any(choice is advice.recommended for choice in advice.front)
    figures = [
        (choice.storage, choice.total.mean, -choice.tolerated_losses, round(choice.lost_digits, 1))
        for choice in advice.front
    ]
    for first, second in product(figures, figures):
        assert not dominates(first, second)


# --- the command --------------------------------------------------------------------------

WORDS = "advise --shape 1000000,1000 --steps 500 --rate 1000000000 --seeds 2 "


@pytest.fixture
def run_advise(call, tmp_path):
    """Return a function that runs the command with more words; it returns code, output, errors."""
    return lambda words: call([*WORDS.split(), *words.split()], tmp_path)


def test_the_command_prints_a_table_and_a_recommendation(run_advise):
    code, out, _ = run_advise("--machines 6:1:16G:0.10 --available-probability 0.9 --tick 10m")
    assert code == 0
    assert "cec-mpi encode X store --dtype float64" in out
    assert "*  --machines 6 --recovery " in out
    assert "\n\nTake N = 6, L = " in out


def test_the_command_prints_json(run_advise):
    _, out, _ = run_advise("--machines 16 --availability example --json")
    output = json.loads(out)
    assert sum(choice["recommended"] for choice in output["choices"]) == 1
    assert output["alternative"] == ""
    assert output["choices"][0]["encode"].startswith("cec-mpi encode X store ")
    assert set(output["choices"][0]["total"]) == {"mean", "low", "high"}
    best = next(choice for choice in output["choices"] if choice["recommended"])
    assert set(best["simulated_total"]) == {"mean", "low", "high"}


@pytest.mark.parametrize("text", ["0,1,1,1\n", '{"available": [[2, 3, 4]]}'])
def test_fewer_machines_than_a_table_has_are_its_first_ones(run_advise, tmp_path, text):
    (tmp_path / "trace").write_text(text)
    code, out, _ = run_advise("--machines 4 --availability trace --json")
    assert code == 0
    assert json.loads(out)["rejected"] == {
        "N = 2, L = 2": "there are never enough available machines",
        "N = 3, L = 3": "there are never enough available machines",
        "N = 4, L = 4": "there are never enough available machines",
    }


@pytest.mark.parametrize(
    ("memory", "fits"),
    [
        ("8.8GB", False),  # X is 8 GB, and a tenth stays free
        ("8.3G", True),  # 8.9 GB
        ("8.8GB --free-memory 0", True),
    ],
)
def test_memory_has_units_and_a_tenth_of_it_stays_free(run_advise, memory, fits):
    code, out, _ = run_advise(f"--machines 4:1:{memory} --json")
    assert code == 0
    assert ("N = 4, L = 1" in out.partition('"rejected"')[2]) is not fits


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--machines 4:fast", "--machines '4:fast': expected COUNT"),
        ("--machines 4:1:2:3:4", "expected COUNT"),
        ("--machines 4:1:lots", "expected COUNT"),
        ("--machines 4:1e-310", "numbers from 1e-100 to 1e+100"),
        ("--machines 4 --latency 1e300", "--latency: '1e300': expected a time from 1e-15 to 1e+09"),
        ("--machines 4 --free-memory 1", "--free-memory 1.0: expected a number from 0"),
        ("", "missing --machines: expected cec-mpi advise --shape Q,R"),
        ("--machines 4 --figure front.svg", "it was removed; the table lists all choices"),
    ],
)
def test_bad_input_is_named(run_advise, words, message):
    code, _, err = run_advise(words)
    assert code == 2
    assert message in err
