"""Runs with a sparse X that is stored as copies: products, losses, wrong answers and tasks."""

import numpy as np
import pytest
import scipy.sparse as sp

from cec_mpi import encode, open_operator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.store import open_store
from helpers.elastic_here import master_of, opened_here
from helpers.recording import Kept
from helpers.sparse import sparse

X = sparse(300, 40)
RNG = np.random.default_rng(2)
W, V = RNG.standard_normal((40, 3)), RNG.standard_normal((300, 3))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    encode(X, path, 5, copies=3)
    return path


def check(A):
    """Products with vectors and blocks, and with the transpose."""
    np.testing.assert_allclose(A @ W[:, 0], X @ W[:, 0], atol=1e-12)
    np.testing.assert_allclose(A @ W, X @ W, atol=1e-12)
    np.testing.assert_allclose(A.T @ V[:, 0], X.T @ V[:, 0], atol=1e-12)
    np.testing.assert_allclose(A.T @ V, X.T @ V, atol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"speeds": (1.0, 2.0, 3.0, 4.0, 5.0)},
        {"availability": [{1, 2, 3, 4, 5}, {2, 3, 4, 5}, {1, 2, 4, 5}]},
    ],
    ids=str,
)
def test_products_are_those_of_scipy(store, options):
    with open_operator(store, **options) as A:
        for _ in range(3):
            check(A)


def test_a_run_ends_when_no_machine_holds_a_part(store):
    message = r"1 machine is available .*: rows \d+\.\.\d+ are on machine "
    with (
        open_operator(store, availability=[{1}]) as A,
        pytest.raises(InfeasibleError, match=message),
    ):
        A @ W[:, 0]


def test_machines_of_equal_speeds_get_rows_with_equally_many_nonzeros(tmp_path):
    dense, thin = sparse(400, 200, density=0.5), sparse(400, 200, density=0.05)
    skewed = sp.csr_array(sp.vstack([dense, thin]))
    encode(skewed, tmp_path / "S", 4, copies=4)
    recorder = Kept()
    with opened_here(tmp_path / "S", recorder=recorder, speeds=(1.0, 1.0, 1.0, 1.0)) as A:
        np.testing.assert_allclose(A @ np.ones(200), skewed @ np.ones(200))
    loads = recorder.records[0].rows
    assert max(loads) > 2 * min(loads)
    assert sum(loads) == skewed.shape[0]


def check_elastic(master):
    np.testing.assert_allclose(master.matmat(W), X @ W, atol=1e-9)
    np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-9)


def elastic(store, **options):
    recorder = Kept()
    return *master_of(store, open_store(store).manifest, recorder, **options), recorder


@pytest.mark.parametrize("options", [{}, {"stragglers": 1}], ids=str)
def test_machines_that_die_are_replaced_by_others_with_the_same_rows(store, options):
    master, hub, _ = elastic(store, **options)
    check_elastic(master)
    hub.dying = {2}
    check_elastic(master)
    hub.dying = {4}
    check_elastic(master)


@pytest.mark.parametrize("adjoint", [False, True])
def test_four_copies_tell_which_machine_is_wrong(adjoint, tmp_path):
    encode(X, tmp_path / "S", 5, copies=4)
    master, hub, recorder = elastic(tmp_path / "S", check=True)
    product, exact = (
        (lambda: master.rmatmat(V), X.T @ V)
        if adjoint
        else (
            lambda: master.matmat(W),
            X @ W,
        )
    )
    hub.errors = {3: np.full((300, 40), 1e-3)}
    for _ in range(2):
        np.testing.assert_allclose(product(), exact, atol=1e-9)
    assert recorder.happened == [{"wrong": 3}, {"excluded": 3, "reason": "wrong in step 0"}]
    check_elastic(master)


def test_a_check_needs_two_copies(tmp_path):
    encode(X, tmp_path / "S", 3, copies=1)
    with pytest.raises(InputError, match="a row has only 1 answer: encode with more copies"):
        elastic(tmp_path / "S", check=True)
    with pytest.raises(InputError, match=r"stragglers 1: expected 0 to 0"):
        elastic(tmp_path / "S", stragglers=1)


def test_a_compared_step_names_the_machines_that_it_needs(tmp_path):
    encode(X, tmp_path / "S", 4, copies=2)
    master, hub, _ = elastic(tmp_path / "S", check=True)
    hub.dying = {1}
    with pytest.raises(InfeasibleError, match=r"rows \d+\.\.\d+ need 2 of the machines 1 or \d"):
        master.matmat(W)


def test_a_machine_without_rows_has_no_speed(tmp_path):
    """Its speed is measured where speeds are emulated."""
    X = sp.csr_array(np.eye(2, 5))
    encode(X, tmp_path / "S", 4, copies=2)
    with open_operator(tmp_path / "S", None, emulate_speeds=(1.0, 1.0, 2.0, 1.0)) as operator:
        np.testing.assert_array_equal(operator @ np.arange(5.0), [0, 1])
