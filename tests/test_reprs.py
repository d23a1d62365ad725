"""What users see of objects, in a notebook or a debugger: one line that says what they are."""

from __future__ import annotations

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli.run.checkpoints import CheckpointFile, ResumeState
from cec_mpi.errors import InfeasibleError
from cec_mpi.runtime.availability.command import from_command
from cec_mpi.runtime.availability.models import ListedAvailability, RandomAvailability
from cec_mpi.runtime.options.values import Interval
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.tasks.common.checkpoint import NO_CHECKPOINT
from helpers.sparse import random_sparse


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("store")
    np.save(path / "X.npy", np.random.default_rng(0).standard_normal((31, 12)))
    cec_mpi.encode(path / "X.npy", path / "store", 3, 2)
    return path / "store"


def test_an_operator_says_what_it_is_and_who_is_available(store):
    about = f"<31x12 CodedOperator with dtype=float64, store '{store}', any 2 of 3 machines"
    with cec_mpi.open_operator(store, None) as X:
        assert repr(X) == f"{about}, available 1,2,3>"
        X.available = {1, 3}
        assert repr(X) == f"{about}, available 1,3>"
        X.available = ()
        assert repr(X) == f"{about}, available none>"
        assert "31x12" in repr(X.H @ X) or "12x12" in repr(X.H @ X)
    assert repr(X) == f"{about}, closed>"


def test_an_operator_of_a_sparse_store_says_how_many_machines_suffice(tmp_path):
    cec_mpi.encode(random_sparse(30, 12), tmp_path / "sparse", 5, copies=2)
    with cec_mpi.open_operator(tmp_path / "sparse") as X:
        assert "any 4 of 5 machines" in repr(X)


def test_looking_at_an_operator_asks_nobody(store):
    def available(tick):
        asked.append(tick)
        return {1, 2}

    asked = []
    with cec_mpi.open_operator(store, None, availability=available) as X:
        assert repr(X).endswith("available machines set by a function>")
        assert asked == []


def test_an_operator_that_met_an_error_can_be_looked_at(store):
    with cec_mpi.open_operator(store, None, availability={2}) as X:
        with pytest.raises(InfeasibleError):
            X @ np.ones(12)
        assert repr(X).endswith("available 2>")


def test_what_stores_and_plans_are(store):
    opened = cec_mpi.open_store(store)
    about = "31x12 float64, any 2 of 3 machines, "
    assert repr(opened).startswith(f"<Store '{store}' of {about}")
    assert repr(opened.manifest).startswith(f"<Manifest of {about}")
    assert repr(opened.manifest.code).startswith("<MDSCode of any 2 of 3 machines, ")
    shard = opened.open_shard(2)
    assert repr(shard) == f"<Shard of machine 2, 16x12 float64, in '{store}/shard-0002.npy'>"
    plan = cec_mpi.plan_step((1, 2, 3), (1.0, 1.0, 2.0), 2, 16)
    assert repr(plan).startswith("<Plan of makespan 8, at least 8: <Assignment of 16 rows")


def test_what_a_task_gets_and_what_one_passes(tmp_path):
    found = ResumeState({"w": np.ones(3), "done": np.array(4)})
    checkpoint = CheckpointFile(tmp_path, {}, found, Interval(steps=50), lambda: 0)
    assert repr(checkpoint) == f"<checkpoint of done, w in '{tmp_path}', written every 50 steps>"
    checkpoint = CheckpointFile(tmp_path, {}, ResumeState({}), Interval(seconds=60), lambda: 0)
    assert repr(checkpoint) == f"<checkpoint of nothing in '{tmp_path}', written every 60 s>"
    checkpoint = CheckpointFile(tmp_path, {}, ResumeState({}), Interval(), lambda: 0)
    assert repr(checkpoint).endswith("written when the run ends early>")
    assert repr(NO_CHECKPOINT) == "<no checkpoint>"
    assert repr(Recorder()) == "<Recorder of 0 steps>"
    assert (
        repr(ListedAvailability([(1, 2)], repeat=True))
        == "<availability listed for ticks 0..0, repeated>"
    )
    assert "probability 0.5" in repr(RandomAvailability(4, 0.5))
    assert repr(from_command("cat up.txt", 4)).startswith("<availability of 4 machines, from ")
