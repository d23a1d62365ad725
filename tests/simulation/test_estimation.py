"""Rates estimated from the records of a run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.records import Recorder
from cec_mpi.simulation.estimation import estimate_rate_and_costs
from cec_mpi.simulation.scenario import Costs, Source

ROWS, COLUMNS = 120_000, 2
RATES = (1e6, 2e6, 4e6)  # rows per second of three machines


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The records of a real run in one process, line by line."""
    directory = tmp_path_factory.mktemp("run")
    X = np.random.default_rng(0).random((ROWS, COLUMNS))
    cec_mpi.encode(X, directory / "store", 3, 2)
    recorder = Recorder()
    with (
        (directory / "steps.jsonl").open("w") as stream,
        cec_mpi.open_operator(directory / "store", None, recorder=recorder) as X,
    ):
        recorder.write_to(stream)
        for _ in range(3):
            X @ np.ones(COLUMNS)
    return [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]


@pytest.fixture
def write_records(lines, tmp_path):
    """Return a function that writes records with changes, and returns their directory."""

    def write_records(header=(), **step):
        changed = [
            {**line, **(dict(header) if line["kind"] == "header" else step)} for line in lines
        ]
        text = "".join(json.dumps(line) + "\n" for line in changed)
        (tmp_path / "steps.jsonl").write_text(text)
        return tmp_path

    return write_records


def step_of(announce=0.0, share=0.0, collect=0.0, decode=0.0):
    rows = [80_000] * 3
    return {
        "rows": rows,
        "compute_seconds": [n / rate for n, rate in zip(rows, RATES, strict=True)],
        "load_seconds": [0.5, 0.25, 0.25],
        "load_bytes": [1000, 2000, 3000],
        "announce_seconds": announce,
        "share_seconds": share,
        "collect_seconds": collect,
        "decode_seconds": decode,
    }


def test_rates_of_products_reads_and_decoding_are_estimated(write_records):
    rate, costs = estimate_rate_and_costs(write_records(**step_of(decode=0.012)))
    assert rate == pytest.approx(2e6 * COLUMNS * 8)  # of the median machine
    assert costs.source == (pytest.approx(6000), False)
    assert costs.decoding_seconds(ROWS, 2) == pytest.approx(0.012)
    assert (costs.latency, costs.bandwidth) == (Costs.latency, Costs.bandwidth)


def test_messages_to_other_processes_have_costs(write_records):
    header = {"hosts": ["a"] * 4, "mpi_library": "Open MPI"}
    slowest = 0.5 + 80_000 / RATES[0]
    step = step_of(announce=0.001, share=0.002, collect=slowest + 0.005)
    # Depth 2 for the order with w, one message with the reports and one for answers.
    _, costs = estimate_rate_and_costs(write_records(header, **step))
    assert costs.latency == pytest.approx(0.008 / 4)
    assert costs.bandwidth == Costs.bandwidth
    _, costs = estimate_rate_and_costs(write_records({**header, "columns": 10**6}, **step))
    assert costs.latency == Costs.latency
    assert costs.bandwidth == pytest.approx((8 * 10**6 + 8 * ROWS) / 0.008)


def test_rates_that_a_short_run_does_not_show_keep_their_defaults(write_records):
    step = {**step_of(decode=1.0), "load_bytes": [0, 0, 0]}
    _, costs = estimate_rate_and_costs(write_records({"rows": 99}, **step))
    assert (costs.source, costs.decode) == (Source(), Costs.decode)


@pytest.mark.parametrize(
    ("header", "step", "message"),
    [
        ({"copies": 2}, {}, "found a run with copies of rows, expected a run with a code"),
        ({"simulated": {}}, {}, "found a simulated run, expected a real run"),
        ({}, {"adjoint": True}, "found no steps of X w"),
        ({}, {"columns": 3}, "found no steps of X w"),
        ({}, {"rows": [0, 0, 0]}, "no machine has computed rows"),
        ({}, {"compute_seconds": [1e-200] * 3}, "found rate "),
    ],
)
def test_records_without_rates_are_rejected(write_records, header, step, message):
    with pytest.raises(InputError, match=message):
        estimate_rate_and_costs(write_records(header, **{**step_of(), **step}))


def test_options_override_the_rates_of_a_run(call, write_records, tmp_path):
    write_records(**step_of(decode=0.012))
    shape = "--shape", "1000000,1000", "--machines", "4", "--recovery", "2", "--steps", "10"

    def run(*words):
        code, out, _ = call(["simulate", *shape, "--json", *words], tmp_path)
        assert code == 0
        return json.loads(out)

    rate, costs = estimate_rate_and_costs(tmp_path)
    source = f"each:{round(costs.source.rate)}"
    same = "--rate", math.floor(rate), "--source", source, "--decode", costs.decode
    assert run("--rates-of", ".") == run(*same)
    assert run("--rates-of", ".", "--source", "server:1GB") != run("--rates-of", ".")
