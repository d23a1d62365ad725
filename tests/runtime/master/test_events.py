"""What a change of the available machines asks of the master."""

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.plan import planner as planner_module
from cec_mpi.core.step import codec as codec_module
from cec_mpi.errors import InfeasibleError, InputError

MACHINES, RECOVERY = 6, 3
X = np.random.default_rng(0).standard_normal((60, 20))
SETS = [{1, 2, 3, 4, 5, 6}, {1, 2, 4, 6}, {2, 3, 5}]


@pytest.fixture
def made(monkeypatch):
    """How often something was worked out, by name."""
    counts = dict.fromkeys(("plans", "codecs"), 0)

    def counted(owner, name, kind):
        original = getattr(owner, name)

        def counting(*given):
            counts[kind] += 1
            return original(*given)

        monkeypatch.setattr(owner, name, counting)

    counted(planner_module, "plan_step", "plans")
    counted(codec_module.Codec, "__init__", "codecs")
    return counts


@pytest.fixture
def A(tmp_path):
    cec_mpi.encode(X, tmp_path / "store", MACHINES, RECOVERY)
    with cec_mpi.open_operator(tmp_path / "store", None, speeds=[2, 2, 3, 3, 4, 4]) as operator:
        yield operator


def test_nothing_is_worked_out_for_machines_that_were_there_before(A, made):
    for available in SETS:
        A.available = available
        assert np.allclose(A @ np.ones(20), X.sum(axis=1))
    assert set(made.values()) == {len(SETS)}
    for available in SETS * 3:
        A.available = available
        assert np.allclose(A @ np.ones(20), X.sum(axis=1))
        assert np.allclose(A.T @ np.ones(60), X.sum(axis=0))
    assert set(made.values()) == {len(SETS)}


def test_the_caller_changes_who_is_available(A):
    def is_right():
        return np.allclose(A @ np.ones(20), X.sum(axis=1))

    for machines in ({1, 2, 3, 6}, {3, 1, 4}, (2, 3, 5), None):
        A.available = machines
        assert is_right()
    assert A.available == (1, 2, 3, 4, 5, 6)
    for wrong in ({1, 9}, {0}, 3, {"one"}):
        with pytest.raises(InputError, match="available"):
            A.available = wrong
    A.available = {2}
    with pytest.raises(InfeasibleError, match="1 machine is available"):
        is_right()
    A.available = {1, 2, 3}
    assert is_right()


def test_a_set_seen_before_is_as_accurate_as_it_was(A):
    accuracies = []
    for available in SETS * 2:
        A.available = available
        A @ np.ones(20)
        accuracies.append(A.accuracy)
    assert accuracies[: len(SETS)] == accuracies[len(SETS) :]
