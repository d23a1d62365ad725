"""A sparse X on several ranks, stored as copies of its rows."""

import numpy as np
import pytest
from scipy.sparse import save_npz

from cec_mpi import encode, open_operator
from helpers.sparse import sparse

pytestmark = pytest.mark.mpi(min_size=4)

X = sparse(200, 90, density=0.1)


def test_products_and_adjoints_are_those_of_scipy(comm, shared_directory):
    path = shared_directory / "sparse"
    if comm.rank == 0:
        encode(X, path, 3, copies=2)
    comm.Barrier()
    masks = [{1, 2, 3}, {1, 3}, {2, 3}]
    with open_operator(path, comm, availability=masks) as operator:
        if operator is not None:
            rng = np.random.default_rng(4)
            for _ in masks * 2:
                W, V = rng.standard_normal((90, 3)), rng.standard_normal((200, 3))
                np.testing.assert_allclose(operator @ W, X @ W, atol=1e-12)
                np.testing.assert_allclose(operator @ W[:, 0], X @ W[:, 0], atol=1e-12)
                np.testing.assert_allclose(operator.T @ V, X.T @ V, atol=1e-12)
                np.testing.assert_allclose(operator.T @ V[:, 0], X.T @ V[:, 0], atol=1e-12)


def test_several_ranks_write_the_store_that_one_writes(comm, shared_directory):
    alone = shared_directory / "alone"
    if comm.rank == 0:
        save_npz(shared_directory / "X.npz", X)
        encode(X, alone, 3, copies=2)
    comm.Barrier()
    for name, source in ("file", str(shared_directory / "X.npz")), ("array", X):
        encode(source, shared_directory / name, 3, copies=2, comm=comm)
        if comm.rank == 0:
            for path in alone.iterdir():
                assert path.read_bytes() == (shared_directory / name / path.name).read_bytes()
    comm.Barrier()
