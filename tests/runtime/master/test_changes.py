"""Changes of the available machines between steps."""

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.plan import planner
from cec_mpi.core.step.codec import Codec
from cec_mpi.errors import InfeasibleError, InputError

X = np.random.default_rng(0).standard_normal((60, 20))
SETS = [{1, 2, 3, 4, 5, 6}, {1, 2, 4, 6}, {2, 3, 5}]


@pytest.fixture
def calls(monkeypatch):
    """Numbers of plans and codecs that were made."""
    counts = {"plan_step": 0, "__init__": 0}

    def count_calls(owner, name):
        original = getattr(owner, name)

        def counting(*arguments):
            counts[name] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, counting)

    count_calls(planner, "plan_step")
    count_calls(Codec, "__init__")
    return counts


@pytest.fixture
def A(tmp_path):
    cec_mpi.encode(X, tmp_path / "store", 6, 3)
    with cec_mpi.open_operator(tmp_path / "store", None, speeds=[2, 2, 3, 3, 4, 4]) as operator:
        yield operator


def test_plans_and_codecs_of_earlier_sets_are_cached(A, calls):
    accuracies = []
    for available in SETS * 3:
        A.available = available
        assert np.allclose(A @ np.ones(20), X.sum(axis=1))
        assert np.allclose(A.T @ np.ones(60), X.sum(axis=0))
        accuracies.append(A.accuracy)
    assert set(calls.values()) == {len(SETS)}
    assert accuracies == accuracies[: len(SETS)] * 3


def test_the_program_sets_the_available_machines(A):
    for machines in ({1, 2, 3, 6}, {3, 1, 4}, (2, 3, 5), None):
        A.available = machines
        assert np.allclose(A @ np.ones(20), X.sum(axis=1))
    assert A.available == (1, 2, 3, 4, 5, 6)
    for invalid in ({1, 9}, {0}, 3, {"one"}):
        with pytest.raises(InputError, match="available"):
            A.available = invalid
    A.available = {2}
    with pytest.raises(InfeasibleError, match="1 machine is available"):
        A @ np.ones(20)
    A.available = {1, 2, 3}
    assert np.allclose(A @ np.ones(20), X.sum(axis=1))
