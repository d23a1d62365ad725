"""Machines join from other hosts: by ssh, over a slow link, or over one that is cut."""

import json
import re
import sys

import numpy as np
import pytest

import cec_mpi
from helpers import ROOT
from helpers.waiting import LIMIT, wait_for_file

pytestmark = pytest.mark.needs("hosts")

RUN = """
import sys
import numpy as np
import cec_mpi
from cec_mpi.runtime.records.recorder import Recorder

store, file, matrix = sys.argv[1:]
X, random, events = np.load(matrix), np.random.default_rng(0), []
recorder = Recorder(on_step=lambda record: events.extend(record.events))
options = dict(accept=file, wait=True, deadline=0.5, recorder=recorder)
with cec_mpi.open_operator(store, None, **options) as operator:
    for kind, count in (("joined", 4), ("lost", 2), ("joined", 5)):
        while sum(kind in event for event in events) < count:
            w = random.standard_normal(X.shape[1])
            assert np.allclose(operator @ w, X @ w)
        hosts = [event["host"] for event in events if "joined" in event]
        print(kind, *(hosts if kind == "joined" else (next(iter(e)) for e in events)), flush=True)
"""


@pytest.fixture
def kill_at_end():
    """Kill the given processes after the test."""
    processes = []

    def kill_at_end(process):
        processes.append(process)
        return process

    yield kill_at_end
    for process in processes:
        process.kill()
        process.communicate()


def next_change(run):
    """Return the words of the next line about machines that joined or were lost."""
    while (line := run.stdout.readline()).split()[:1] not in (["joined"], ["lost"], []):
        pass
    return line.split()


@pytest.mark.any_mpi
@pytest.mark.usefixtures("no_survivors")
def test_machines_of_a_host_with_a_cut_link_are_lost_and_rejoin(
    hosts, inputs, kill_at_end, tmp_path
):
    conn = tmp_path / "conn"
    matrix, store = inputs.store.parent / "X.npy", tmp_path / "store"
    cec_mpi.encode(matrix, store, 4, 2)
    command = [sys.executable, "-c", RUN, store, conn, matrix]
    run = kill_at_end(hosts.start("node1", *command))
    join = [sys.executable, "-m", "cec_mpi", "join", conn, "-q"]
    hosts.set_link("node2", "rate", "20mbit", "delay", 10)
    wait_for_file(conn)  # one machine waits for it for only a second
    slow = [kill_at_end(hosts.start("node2", *join, "--retry", 20)) for _ in range(2)]
    patient = kill_at_end(hosts.start("node3", *join, "--retry", 60))
    impatient = kill_at_end(hosts.start("node3", *join, "--retry", 1))
    assert sorted(next_change(run)) == ["joined", "node2", "node2", "node3", "node3"]
    hosts.set_link("node3", "cut", "yes")
    try:
        words = next_change(run)
        assert words.index("late") < words.index("lost", 1)  # the step did not wait for the loss
        assert impatient.wait(LIMIT) == 3
        assert patient.poll() is None
    finally:
        hosts.set_link("node3", "cut", "no")
    assert next_change(run)[-1] == "node3"
    assert [process.wait(LIMIT) for process in (run, *slow, patient)] == [0] * 4


@pytest.mark.any_mpi
@pytest.mark.usefixtures("no_survivors")
def test_the_loop_of_the_page_starts_machines_on_each_host(hosts, inputs, tmp_path):
    page = (ROOT / "docs" / "howto" / "joining.md").read_text("utf-8")
    (loop,) = re.findall(r"\n    (for host in .*?\n    done\n    wait\n)", page, re.DOTALL)
    assert "desk laptop attic" in loop
    assert "~/conn" in loop
    loop = loop.replace("desk laptop attic", " ".join(hosts.names))
    # All three machines are needed, so that none joins after the end and waits for another run.
    cec_mpi.encode(inputs.store.parent / "X.npy", tmp_path / "store", 3, 3)
    run = f"cec-mpi run {tmp_path}/store --out {tmp_path}/out vectors={inputs.vectors}"
    script = f"{run} --accept ~/conn --wait &\n{loop}".replace("~/conn", f"{tmp_path}/conn")
    result = hosts.run("node1", "bash", "-c", script)
    assert result.returncode == 0, result.stderr
    found = np.load(tmp_path / "out" / "result.npy")
    np.testing.assert_allclose(found, inputs.expected, atol=1e-9)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == len(found)
