"""`cec-mpi simulate`: output, messages and records."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.simulation.scenario import MachineEvent, Scenario
from cec_mpi.simulation.simulate import simulate

SPEEDS = "2,2,3,3,4,4"
X = ["--shape", "420000,1000", "--machines", "6", "--recovery", "3"]
COPIES = ["--shape", "100,10", "--machines", "2", "--copies", "2"]


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cec(call, tmp_path):
    return lambda *args: CommandResult(*call(args, tmp_path))


@pytest.fixture
def store(tmp_path):
    rows = np.random.default_rng(0).standard_normal((60, 4))
    cec_mpi.encode(rows, tmp_path / "store", 6, 3)
    return tmp_path / "store"


def test_simulate_gives_the_same_outcome_as_python(cec):
    args = "--emulate-noise", 0.1, "--seed", 3, "--elastic", "--lost", "1s:2", "--joins", "2s:2"
    result = cec("simulate", *X, "--emulate-speeds", SPEEDS, *args, "--steps", 20, "--json")
    assert result.code == 0
    options = SessionOptions(
        emulate_speeds=(2, 2, 3, 3, 4, 4), emulate_noise=0.1, seed=3, elastic=True
    )
    outcome = simulate(
        Scenario(
            machines=6,
            recovery=3,
            rows=420_000,
            columns=1000,
            options=options,
            steps=20,
            machine_events=(MachineEvent(1.0, 2, "lost"), MachineEvent(2.0, 2, "joins")),
        )
    )
    assert json.loads(result.out) == {"heterogeneous": asdict(outcome)}


def test_a_computer_carries_as_many_machines_as_fit_into_its_memory(cec):
    """Shards are 1.12 GB: three machines on computer 3, which is as fast as the other three."""
    computers = "--memory", "1.2GB,2GB,4GB,3GB", "--speeds", "1,1,3,1", "--elastic", "--price", 3600
    result = cec("simulate", *X, *computers, "--steps", 30, "--lost", "1s:3", "--json")
    outcome = json.loads(result.out)["heterogeneous"]
    assert outcome["events"] == {"lost": 2}  # machines 5 and 6 are on computers 3 and 4
    assert len(outcome["machine_seconds"]) == 4
    assert outcome["cost"] == pytest.approx(sum(outcome["machine_seconds"]))


def test_a_simulation_of_a_store_writes_records(cec, store, tmp_path):
    out = tmp_path / "out"
    result = cec("simulate", store, "--steps", 5, "--out", out)
    assert result.code == 0
    page = tmp_path / "report.html"
    assert cec("report", out, "--out", page).code == 0
    assert "All times are simulated." in page.read_text("utf-8")
    assert "times and bytes are modelled for an X of 60 x 4 numbers" in page.read_text("utf-8")
    again = cec("simulate", store, "--steps", 5, "--out", out)
    assert again.code == 2
    assert "holds results" in again.err


def test_a_simulation_can_use_the_speeds_of_a_recorded_run(cec, store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((3, 4)))
    args = "--serial", "--emulate-speeds", SPEEDS, "--emulate-base", 100
    assert cec("run", store, "vectors=W.npy", "--out", "out", *args).code == 0
    result = cec("simulate", store, "--speeds-of", "out", "--steps", 30, "--json")
    assert json.loads(result.out)["heterogeneous"]["seconds"] > 30 * 60 / (18 * 100)
    result = cec("simulate", *X, "--speeds-of", "out")
    assert result.code == 2
    assert "found a run with 4 columns of float64, expected 1000 columns of float64" in result.err
    few = "--shape", "60,4", "--machines", 2, "--recovery", 2
    result = cec("simulate", *few, "--speeds-of", "out")
    assert result.code == 2
    assert "found a run of 6 machines, expected 2 machines" in result.err


@pytest.mark.parametrize("options", [[], ["--compare"]])
def test_a_simulation_ends_if_too_few_machines_remain(cec, options):
    result = cec("simulate", *X, "--available-probability", 0.01, *options)
    assert result.code == 4
    assert "machines are available at tick 0" in result.err


@pytest.mark.parametrize(
    ("lines", "args", "end"),
    [
        ((4, 4, 2), [], "add --repeat to repeat it, or --steps 2 to end the run there\n"),
        ((4, 4, 2), ["--wait"], "add --repeat to repeat it, or --steps 2 to end the run there\n"),
        ((4, 2, 4), [], "(--wait, or wait=True in Python, waits for more machines)\n"),
        ((2, 4), ["--tick", "1s"], "(--wait, or wait=True in Python, waits for more machines)\n"),
    ],
)
def test_a_run_that_outlasts_its_availability_names_remedies(cec, tmp_path, lines, args, end):
    text = "\n".join(",".join("1" * count + "0" * (6 - count)) for count in lines)
    (tmp_path / "ticks.csv").write_text(text)
    result = cec("simulate", *X, "--steps", 5, "--availability", "ticks.csv", *args)
    assert result.code == 4
    assert result.err.endswith(end)


def test_losses_need_a_duration_if_the_availability_does_not_end(cec):
    args = "--available-probability", 0.9, "--lost-when-away", "--tick", "1s", "--steps", 5
    result = cec("simulate", *X, *args)
    assert result.code == 2
    assert "needs --duration TIME, such as 24h" in result.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "expected a store, or --shape Q,R and --machines N"),
        ([*X, "--copies", "2"], "--recovery and --copies cannot be combined"),
        ([*X, "--density", "7"], "density 7.0: expected a number above 0 and at most 1"),
        ([*X, "--lost", "3"], "expected TIME:MACHINE"),
        ([*X, "--lost", "1:7"], "expected a machine from 1 to 6"),
        ([*X, "--draw-speeds", "3:1"], "expected two positive numbers"),
        ([*X, "--draw-speeds", "1:2", "--emulate-speeds", SPEEDS], "cannot be combined"),
        ([*X, "--lost", "1:4", "--memory", "9G,9G,9G"], "expected a computer from 1 to 3"),
        (
            [*X, "--memory", "2GB,2GB,9G", "--speeds", SPEEDS],
            "6 speeds, expected one for each of 3 computers",
        ),
        ([*X, "--memory", "1GB,3GB"], "memory: found memory for 2 machines (0, 2), expected"),
        ([*X, "--memory", "1GB,"], "--memory: '': expected a size"),
        ([*X, "--speeds", "1,2"], "2 speeds, expected 6"),
        ([*COPIES, "--speeds", "1,2,3"], "3 speeds, expected 2"),
        (
            [*X, "--doctor", "doctor.json"],
            "it was removed; use the rates of a run (--rates-of DIR)",
        ),
        ([*X, "--availability-command", "date"], "--availability-command cannot be used"),
        (["nowhere"], "nowhere does not exist"),
        ([*X, "--price", "-1"], "--price: '-1': expected a number from 0 to"),
    ],
)
def test_simulate_refuses_bad_options(cec, args, message):
    result = cec("simulate", *args)
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("error:") == 1


def test_density_is_refused_with_a_store(cec, store):
    result = cec("simulate", store, "--density", "0.01")
    assert (result.code, result.out) == (2, "")
    assert "--density cannot be combined with a store" in result.err
