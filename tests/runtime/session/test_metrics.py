"""Metrics of a run, as Prometheus reads them: at a port, and in a file."""

from __future__ import annotations

import json
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
from helpers import ROOT
from helpers.recording import Kept
from helpers.waiting import wait_until

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
    """The samples of metrics, by their names and labels."""
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
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.mark.any_mpi
def test_metrics_are_the_sums_of_the_records(store, port, tmp_path):
    recorder, file = Kept(), tmp_path / "metrics.txt"
    with cec_mpi.open_operator(store.path, recorder=recorder, metrics=file) as X:
        for available in ({1, 2, 3, 4}, {2, 4}, {1, 2, 3}):
            X.available = available
            X @ np.ones(60)
    found = parse(file.read_text())
    records = recorder.records
    assert found["cec_mpi_steps_total",] == found["cec_mpi_makespan_seconds_count",] == 3
    makespans = [record.measured_makespan for record in records]
    assert found["cec_mpi_makespan_seconds_sum",] == pytest.approx(sum(makespans))
    over = sum(record.measured_makespan - record.hindsight_makespan for record in records)
    assert found["cec_mpi_over_optimum_seconds_total",] == pytest.approx(over)
    assert found["cec_mpi_read_bytes_total",] == sum(sum(each.load_bytes) for each in records) > 0
    assert found["cec_mpi_waiting_seconds_total",] == 0
    assert found["cec_mpi_machines", "available"] == 3
    assert found["cec_mpi_machines", "preempted"] == 1
    assert found["cec_mpi_machines", "lost"] == 0


@pytest.mark.any_mpi
def test_a_port_of_this_computer_ends_with_the_operator(store, port):
    with cec_mpi.open_operator(store.path, metrics=port) as X:
        X @ np.ones(60)
        assert fetch(port)["cec_mpi_steps_total",] == 1
        X.H @ np.ones(600)
        assert fetch(port)["cec_mpi_steps_total",] == 2
        with pytest.raises(URLError):
            fetch(port, "127.0.0.2")  # as other addresses of this computer
    with pytest.raises(URLError):
        fetch(port)
    with cec_mpi.open_operator(store.path, metrics=f":{port}") as X:
        X @ np.ones(60)
        assert fetch(port, "127.0.0.2")["cec_mpi_steps_total",] == 1


@pytest.mark.any_mpi
def test_a_file_is_replaced_as_a_whole_and_once_a_second_at_most(store, tmp_path):
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
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.txt"]


@pytest.mark.any_mpi
def test_a_file_with_other_data_is_not_replaced(store, tmp_path):
    file = tmp_path / "X.npy"
    np.save(file, np.ones(3))
    with pytest.raises(InputError, match="exists and has other data than metrics: expected anothe"):
        cec_mpi.open_operator(store.path, metrics=file)
    assert np.load(file).sum() == 3
    file.write_bytes(b"")
    for _ in range(2):
        with cec_mpi.open_operator(store.path, metrics=file) as X:
            X @ np.ones(60)
    assert parse(file.read_text())["cec_mpi_steps_total",] == 1


@pytest.mark.any_mpi
def test_a_file_that_cannot_be_written_any_longer_ends_no_run(store, tmp_path, capfd):
    directory = tmp_path / "d"
    directory.mkdir()
    with cec_mpi.open_operator(store.path, metrics=str(directory / "m")) as X:
        X @ np.ones(60)
        (directory / "m").unlink()
        directory.rmdir()
        X @ np.ones(60)
    assert capfd.readouterr().err.count("m cannot be written: No such file or directory") == 1


@pytest.mark.any_mpi
@pytest.mark.usefixtures("no_launcher")
def test_waiting_and_losses_show_while_the_run_waits(store, port, start, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((40, 60)))
    words = ["--local", "2", "--wait", "--inject", "kill:2@10", "--metrics", port]
    run = start(["cec-mpi", "run", store.path, "vectors=W.npy", "--out", "out", *words])

    def waits():
        try:
            found = fetch(port)
        except (URLError, ConnectionError):
            return None
        return found if found["cec_mpi_waiting_seconds_total",] > 0 else None

    found = wait_until(waits, run)
    assert found["cec_mpi_machines", "available"] == 1
    assert found["cec_mpi_machines", "lost"] == 1
    assert found["cec_mpi_events_total", "lost"] == 0  # of the step that waits
    more = fetch(port)
    assert more["cec_mpi_waiting_seconds_total",] > found["cec_mpi_waiting_seconds_total",]
    (machine,) = [start(["cec-mpi", "join", "out/connection.json"])]
    run.wait(200)
    assert machine.wait(200) == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == 40


EXPECTED = "expected a port from 1 to 65535, HOST:PORT, or a file in an existing directory"


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ("0", f"--metrics '0': {EXPECTED}"),
        ("65536", f"--metrics '65536': {EXPECTED}"),
        ("-1", f"--metrics '-1': {EXPECTED}"),
        ("nowhere/m", f"--metrics 'nowhere/m': {EXPECTED}"),
        (".", f"--metrics '.': {EXPECTED}"),
        pytest.param("m" * 300, f"m': {EXPECTED}", id="a name that is too long"),
        ("203.0.113.1:9400", "Cannot assign requested address: expected a free port of this comp"),
        ("taken", "Address already in use: expected a free port of this computer"),
    ],
)
def test_what_is_no_place_for_metrics_is_refused_before_a_run(
    call, store, tmp_path, metrics, expected
):
    np.save(tmp_path / "W.npy", np.ones((4, 60)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        metrics = str(taken.getsockname()[1]) if metrics == "taken" else metrics
        words = ["run", store.path, "vectors=W.npy", "--out", "out", "--metrics", metrics]
        code, _, stderr = call(words, tmp_path)
    assert code == 2
    assert expected in stderr
    assert len(stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.any_mpi
@pytest.mark.parametrize("metrics", [0, True, 2.5])
def test_what_is_no_place_for_metrics_is_refused_in_python(store, metrics):
    with pytest.raises(InputError, match=f"metrics={metrics!r}: {EXPECTED}"):
        cec_mpi.open_operator(store.path, metrics=metrics)


@pytest.mark.any_mpi
def test_a_missing_library_is_named_with_the_extra_that_installs_it(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"metrics need prometheus_client: pip install 'cec_mpi\["):
        cec_mpi.open_operator(store.path, metrics=9400)
