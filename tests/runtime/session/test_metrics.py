"""Metrics of a run for Prometheus, at a port and in a file."""

from __future__ import annotations

import re
import socket
import sys
import time
from urllib.error import URLError
from urllib.request import Request, build_opener

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import cec_mpi
from cec_mpi.errors import InputError
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.session.metrics import publish_metrics
from helpers import ROOT
from helpers.processes import find_free_port
from helpers.recording import MemoryRecorder
from helpers.steps import record

TYPES = {
    "cec_mpi_steps": "counter",
    "cec_mpi_makespan_seconds": "summary",
    "cec_mpi_over_optimum_seconds": "counter",
    "cec_mpi_waiting_seconds": "counter",
    "cec_mpi_read_bytes": "counter",
    "cec_mpi_machines": "gauge",
    "cec_mpi_events": "counter",
}


def parse(text):
    """Return samples of metrics by names and labels."""
    families = list(text_string_to_metric_families(text))
    assert {family.name: family.type for family in families} == TYPES
    assert all(family.documentation for family in families)
    samples = (sample for family in families for sample in family.samples)
    return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


def fetch(port, host="127.0.0.1"):
    accept = "application/openmetrics-text; version=1.0.0"
    request = Request(f"http://{host}:{port}/metrics", headers={"Accept": accept})
    with build_opener().open(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        return parse(answer.read().decode())


def test_the_documentation_lists_all_metrics():
    page = (ROOT / "docs" / "howto" / "watching.md").read_text()
    rows = dict(re.findall(r"^\| `(cec_mpi_\w+?)(?:_total)?(?:\{.*?\})?` \| (\w+) \|", page, re.M))
    assert rows == TYPES


@pytest.fixture
def port():
    return find_free_port()


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.mark.any_mpi
def test_metrics_are_the_sums_of_the_records(store, tmp_path):
    recorder, file = MemoryRecorder(), tmp_path / "metrics.txt"
    with cec_mpi.open_operator(store.path, recorder=recorder, metrics=file) as X:
        for available in ({1, 2, 3, 4}, {2, 4}, {1, 2, 3}):
            X.available = available
            X @ np.ones(60)
    metrics = parse(file.read_text())
    records = recorder.records
    assert metrics["cec_mpi_steps_total",] == metrics["cec_mpi_makespan_seconds_count",] == 3
    makespans = [record.measured_makespan for record in records]
    assert metrics["cec_mpi_makespan_seconds_sum",] == pytest.approx(sum(makespans))
    excess = sum(record.measured_makespan - record.hindsight_makespan for record in records)
    assert metrics["cec_mpi_over_optimum_seconds_total",] == pytest.approx(excess)
    assert metrics["cec_mpi_read_bytes_total",] == sum(sum(r.load_bytes) for r in records) > 0
    assert metrics["cec_mpi_waiting_seconds_total",] == 0
    states = {"available": 3, "preempted": 1, "lost": 0}
    assert {state: metrics["cec_mpi_machines", state] for state in states} == states
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.txt"]


@pytest.mark.any_mpi
def test_metrics_are_served_at_a_port_until_the_operator_closes(store, port):
    with cec_mpi.open_operator(store.path, metrics=port) as X:
        for steps in (1, 2):
            X @ np.ones(60)
            assert fetch(port)["cec_mpi_steps_total",] == steps
        with pytest.raises(URLError):
            fetch(port, "127.0.0.2")  # another address of this computer
    with pytest.raises(URLError):
        fetch(port)
    with cec_mpi.open_operator(store.path, metrics=f":{port}") as X:
        X @ np.ones(60)
        assert fetch(port, "127.0.0.2")["cec_mpi_steps_total",] == 1


def test_losses_and_waiting_time_are_published_during_a_wait(port):
    recorder = Recorder()
    with publish_metrics(port, recorder):
        recorder.record_step(record(0))
        recorder.record_wait(1, [1, 3], {2: "lost"})
        first_metrics = fetch(port)
        assert first_metrics["cec_mpi_machines", "available"] == 2
        assert first_metrics["cec_mpi_machines", "lost"] == 1
        assert first_metrics["cec_mpi_events_total", "lost"] == 0  # until the step has ended
        recorder.record_wait(2, [1], {2: "lost", 3: "lost"})
        later_metrics = fetch(port)
        assert (
            later_metrics["cec_mpi_waiting_seconds_total",]
            > first_metrics["cec_mpi_waiting_seconds_total",]
            > 0
        )
        recorder.record_step(record(1, events=[{"lost": 2, "reason": "gone"}], waited_seconds=7.0))
        final_metrics = fetch(port)
        assert final_metrics["cec_mpi_events_total", "lost"] == 1
        assert final_metrics["cec_mpi_waiting_seconds_total",] == 7


@pytest.mark.any_mpi
def test_a_file_is_replaced_at_most_once_a_second(store, tmp_path):
    file, versions, steps = tmp_path / "metrics.txt", set(), 0
    with cec_mpi.open_operator(store.path, metrics=file) as X:
        X @ np.ones(60)
        begin = time.monotonic()
        while len(versions) < 3:
            X @ np.ones(60)
            versions.add(parse(file.read_text())["cec_mpi_steps_total",])
            steps += 1
        assert time.monotonic() - begin >= 1
    assert parse(file.read_text())["cec_mpi_steps_total",] == steps + 1


@pytest.mark.any_mpi
def test_a_run_continues_if_its_file_cannot_be_written(store, tmp_path, capfd):
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "m").write_bytes(b"")
    for _ in range(2):  # an empty file and earlier metrics are replaced
        with cec_mpi.open_operator(store.path, metrics=str(directory / "m")) as X:
            X @ np.ones(60)
    with cec_mpi.open_operator(store.path, metrics=str(directory / "m")) as X:
        X @ np.ones(60)
        (directory / "m").unlink()
        directory.rmdir()
        X @ np.ones(60)
    assert capfd.readouterr().err.count("m cannot be written: No such file or directory") == 1


EXPECTED = "expected a port from 1 to 65535, HOST:PORT, or a file in an existing directory"


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        *((value, f"metrics={value}: {EXPECTED}") for value in (0, True, 2.5)),
        *((value, f"{value!r}: {EXPECTED}") for value in ("65536", "-1", "nowhere/m", ".")),
        pytest.param("m" * 300, f"m': {EXPECTED}", id="a name that is too long"),
        ("203.0.113.1:9400", "Cannot assign requested address: expected a free port of this comp"),
        ("busy port", "Address already in use: expected a free port of this computer"),
        ("X.npy", "exists and contains data other than metrics: expected another file"),
    ],
)
def test_an_unusable_destination_is_rejected(store, tmp_path, monkeypatch, metrics, message):
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.ones(3))
    with socket.create_server(("127.0.0.1", 0)) as busy_socket:
        metrics = busy_socket.getsockname()[1] if metrics == "busy port" else metrics
        with pytest.raises(InputError, match=re.escape(message)):
            cec_mpi.open_operator(store.path, metrics=metrics)
    assert np.load("X.npy").sum() == 3


@pytest.mark.any_mpi
def test_an_unusable_destination_is_rejected_before_a_run(call, store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((4, 60)))
    words = ["run", store.path, "vectors=W.npy", "--out", "out", "--metrics", "0"]
    code, _, stderr = call(words, tmp_path)
    assert (code, stderr) == (2, f"cec-mpi: error: --metrics '0': {EXPECTED}\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.any_mpi
def test_a_missing_library_is_named_with_the_extra_that_installs_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"metrics need prometheus_client: pip install 'cec_mpi\["):
        cec_mpi.open_operator(store.path, metrics=9400)
