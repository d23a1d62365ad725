"""Ranks on some hosts, and a machine that joins from another one."""

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("hosts", "hosts-that-meet")
LIMIT = 40  # seconds


def test_ranks_of_two_hosts_work_with_a_machine_of_a_third(hosts, multiply, tmp_path):
    join = [Path(sys.executable).parent / "cec-mpi", "join", tmp_path / "conn", "--retry", LIMIT]
    with hosts.begin("node3", *join) as machine:
        run = multiply("--accept", tmp_path / "conn", ranks=(2, 1, 0))
        assert machine.wait(LIMIT) == 0
    assert run.where() == {1: "node1", 2: "node2"}
    events = [event for step in run.steps for event in step["events"]]
    assert events == [{"joined": 3, "rank": 3, "host": "node3"}]
    assert {tuple(step["available"]) for step in run.steps} == {(1, 2, 3)}
