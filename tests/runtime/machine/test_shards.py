"""A machine can use any kind of shard."""

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

AVAILABLE, RECOVERY, ROWS, COLUMNS = (1, 2, 4), 2, 200, 30


class SparseShard(Shard):
    """A shard in memory, as a sparse matrix."""

    def __init__(self, path, rows):
        self.path, self.rows, self.row_count = path, scipy.sparse.csr_array(rows), len(rows)

    def multiply(self, W, intervals, out):
        out[:] = np.vstack([self.rows[a:b] @ W.T for a, b in intervals])

    def multiply_transposed(self, U, intervals, out):
        out[:] = scipy.sparse.vstack([self.rows[a:b] for a, b in intervals]).T @ U


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "store"
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)) * (np.arange(COLUMNS) % 3 == 0)
    cec_mpi.encode(X, path, 4, RECOVERY)
    return cec_mpi.open_store(path)


@pytest.mark.parametrize(
    "product", [Product(), Product(columns=3), Product(True), Product(True, 3)]
)
def test_answers_do_not_depend_on_the_kind_of_shard(store, product):
    plan = plan_step(AVAILABLE, (1.0, 2.0, 1.0, 3.0), RECOVERY, ROWS // RECOVERY)
    opening = Opening(store.path, store.manifest, AVAILABLE, MachineOptions(), (1,) * 4)
    rng, k = np.random.default_rng(1), product.columns
    operand = rng.standard_normal(ROWS * k if product.adjoint else (k, COLUMNS))
    answers = []
    for open_shard in (store.open_shard, lambda n: SparseShard(Path(), store.shard(n))):
        machines = [Machine(n, open_shard(n), COLUMNS, "float64") for n in AVAILABLE]
        endpoint = LocalMasterEndpoint(LocalHub(), machines, opening)
        endpoint.announce(0, product, plan.assignment, operand)
        endpoint.share(operand)
        answers.append(endpoint.collect())
    assert answers[1].failed == []
    assert np.abs(answers[0].values).max() > 1
    np.testing.assert_allclose(answers[1].values, answers[0].values, atol=1e-12)


def test_the_speed_of_any_shard_is_measured(store):
    machine = Machine(3, SparseShard(Path("sparse.npz"), store.shard(3)), COLUMNS, "float64")
    assert machine.measure_rate() > 0
    assert machine.shard_file == "sparse.npz"
