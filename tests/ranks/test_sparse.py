"""Products of a sparse X on several ranks, stored as copies of its rows."""

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from helpers.sparse import random_sparse

pytestmark = pytest.mark.mpi(min_size=4)


def test_products_and_adjoints_are_those_of_scipy(comm, shared_directory):
    path, X = shared_directory / "sparse", random_sparse(200, 90, density=0.1)
    if comm.rank == 0:
        encode(X, path, 3, copies=2)
    comm.Barrier()
    with open_operator(path, comm, availability=[{1, 2, 3}, {1, 3}, {2, 3}]) as operator:
        if operator is not None:
            rng = np.random.default_rng(4)
            for _ in range(6):
                W, V = rng.standard_normal((90, 3)), rng.standard_normal((200, 3))
                np.testing.assert_allclose(operator @ W, X @ W, atol=1e-12)
                np.testing.assert_allclose(operator @ W[:, 0], X @ W[:, 0], atol=1e-12)
                np.testing.assert_allclose(operator.T @ V, X.T @ V, atol=1e-12)
                np.testing.assert_allclose(operator.T @ V[:, 0], X.T @ V[:, 0], atol=1e-12)
