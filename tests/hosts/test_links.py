"""The time of a slow link is recorded as communication, not as computation."""

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.records.recorder import read_steps

pytestmark = pytest.mark.needs("hosts", "hosts-that-meet")

ROWS, COLUMNS, STEPS = 60_000, 20, 5
RATE = 40e6 / 8  # bytes per second
DELAY = 0.03  # seconds, one way


@pytest.fixture
def steps_of(two_hosts, start, tmp_path):
    """Multiply on a master on the one host and two machines on the other."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((ROWS, COLUMNS)), rng.standard_normal((STEPS, COLUMNS))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "W.npy", W)
    cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 2, 1)

    def steps_of(name):
        out = tmp_path / name
        words = ["run", tmp_path / "store", "--out", out, f"vectors={tmp_path / 'W.npy'}"]
        done = start(*words, "--speeds", "1,1", ranks=(1, 2), on=two_hosts)
        assert done.returncode == 0, done.stderr
        assert np.allclose(np.load(out / "result.npy"), W @ X.T)
        return read_steps(out / "steps.jsonl")[1]

    return steps_of


def communication(step):
    """Return the seconds of a step without its computation."""
    parts = ("announce_seconds", "share_seconds", "collect_seconds")
    return sum(step[part] for part in parts) - step["measured_makespan"]


@pytest.mark.any_mpi
def test_a_slow_link_is_recorded_as_communication(two_hosts, steps_of):
    """The link needs at least these times."""
    two_hosts.link("node2", "rate", "40mbit")
    answers = ROWS * 8  # bytes that come to the master in each step
    assert all(communication(step) > 0.5 * answers / RATE for step in steps_of("narrow"))
    two_hosts.link("node2", "rate", "1gbit", "delay", 1e3 * DELAY)
    assert all(communication(step) > 2 * DELAY for step in steps_of("far"))  # there and back
