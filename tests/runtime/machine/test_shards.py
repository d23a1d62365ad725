"""A machine asks its shard for products, whatever kind of shard that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import cec_mpi
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.runtime.machine.machine import Machine
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.session.local import LocalHub, LocalMasterEndpoint
from cec_mpi.runtime.wire.orders import Opening
from cec_mpi.store.shard import Shard

MACHINES, RECOVERY, ROWS, COLUMNS = 4, 2, 200, 30


class SparseShard(Shard):
    """The numbers other than zero, and where they are."""

    def __init__(self, path, rows):
        self.path, self.rows, self.count = path, scipy.sparse.csr_array(rows), len(rows)

    def multiply(self, W, intervals, out):
        out[:] = np.vstack([self.rows[a:b] @ W.T for a, b in intervals])

    def multiply_transposed(self, U, intervals, out):
        out[:] = scipy.sparse.vstack([self.rows[a:b] for a, b in intervals]).T @ U


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Every third column of X has numbers."""
    path = tmp_path_factory.mktemp("sparse")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) * (np.arange(COLUMNS) % 3 == 0)
    np.save(path / "X.npy", X)
    cec_mpi.encode(path / "X.npy", path / "store", MACHINES, RECOVERY)
    return cec_mpi.open_store(path / "store")


def end_with(store, kind):
    """The machines 1, 2 and 4, each with a shard of this kind."""
    machines = [Machine(n, kind(n), COLUMNS, "float64") for n in (1, 2, 4)]
    served = store.path, store.manifest, (1, 2, 4)
    return LocalMasterEndpoint(LocalHub(), machines, Opening(*served, MachineOptions(), (1,) * 4))


@pytest.mark.parametrize(
    "product", [Product(), Product(columns=3), Product(True), Product(True, 3)]
)
def test_a_step_with_a_third_kind_of_shard(store, product):
    plan = plan_step((1, 2, 4), (1.0, 2.0, 1.0, 3.0), RECOVERY, ROWS // RECOVERY)
    rng, k = np.random.default_rng(1), product.columns
    shared = rng.standard_normal(ROWS * k if product.adjoint else k * COLUMNS)
    shared = shared if product.adjoint else shared.reshape(k, COLUMNS)
    answers = []
    for kind in (store.open_shard, lambda n: SparseShard(Path(), store.shard(n))):
        end = end_with(store, kind)
        end.announce(0, product, plan.assignment, shared)
        end.share(shared)
        answers.append(end.collect())
    assert answers[1].failed == []
    assert np.abs(answers[0].values).max() > 1
    np.testing.assert_allclose(answers[1].values, answers[0].values, atol=1e-12)


def test_its_speed_is_measured_as_that_of_any_other(store):
    machine = Machine(3, SparseShard(Path("sparse.npz"), store.shard(3)), COLUMNS, "float64")
    assert machine.measure_rate() > 0
    assert machine.shard_file == "sparse.npz"
