"""A sparse X that is stored as copies: products, losses, wrong answers and errors."""

import numpy as np
import pytest
import scipy.sparse as sp

from cec_mpi import encode, open_operator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.store import open_store
from helpers.elastic import open_master
from helpers.products import check_products
from helpers.recording import MemoryRecorder
from helpers.sparse import random_sparse

X = random_sparse(300, 40)
RNG = np.random.default_rng(2)
W, V = RNG.standard_normal((40, 3)), RNG.standard_normal((300, 3))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "S"
    encode(X, path, 5, copies=3)
    return path


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
            check_products(A, X)


def test_a_machine_without_rows_has_no_speed(tmp_path):
    """Emulated speeds are measured."""
    encode(sp.csr_array(np.eye(2, 5)), tmp_path / "S", 4, copies=2)
    with open_operator(tmp_path / "S", emulate_speeds=(1.0, 1.0, 2.0, 1.0)) as A:
        np.testing.assert_array_equal(A @ np.arange(5.0), [0, 1])


# --- losses and wrong answers -------------------------------------------------------------


def check_master(master):
    np.testing.assert_allclose(master.matmat(W), X @ W, atol=1e-9)
    np.testing.assert_allclose(master.rmatmat(V), X.T @ V, atol=1e-9)


def open_elastic(store, **options):
    recorder = MemoryRecorder()
    return *open_master(store, open_store(store).manifest, recorder, **options), recorder


@pytest.mark.parametrize("options", [{}, {"stragglers": 1}], ids=str)
def test_lost_machines_are_replaced_by_machines_with_the_same_rows(store, options):
    master, hub, _ = open_elastic(store, **options)
    for dying in (set(), {2}, {4}):
        hub.dying = dying
        check_master(master)


@pytest.mark.parametrize("adjoint", [False, True])
def test_four_copies_identify_the_wrong_machine(adjoint, tmp_path):
    encode(X, tmp_path / "S", 5, copies=4)
    master, hub, recorder = open_elastic(tmp_path / "S", check=True)
    multiply, factor, expected = (
        (master.rmatmat, V, X.T @ V) if adjoint else (master.matmat, W, X @ W)
    )
    hub.errors = {3: np.full((300, 40), 1e-3)}
    for _ in range(2):
        np.testing.assert_allclose(multiply(factor), expected, atol=1e-9)
    assert recorder.all_events == [{"wrong": 3}, {"excluded": 3, "reason": "wrong in step 0"}]
    check_master(master)


def test_steps_without_enough_copies_name_rows_and_machines(store, tmp_path):
    message = r"1 machine is available .*: rows \d+\.\.\d+ need 1 of these machines: "
    with (
        open_operator(store, availability=[{1}]) as A,
        pytest.raises(InfeasibleError, match=message),
    ):
        A @ W[:, 0]
    encode(X, tmp_path / "S", 4, copies=2)
    master, hub, _ = open_elastic(tmp_path / "S", check=True)
    hub.dying = {1}
    with pytest.raises(InfeasibleError, match=r"rows \d+\.\.\d+ need 2 of these machines: 1, \d"):
        master.matmat(W)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": True}, "a row has only 1 answer: encode with more copies"),
        ({"stragglers": 1}, r"stragglers 1: expected 0 to 0"),
    ],
)
def test_checks_and_stragglers_need_two_copies(tmp_path, options, message):
    encode(X, tmp_path / "S", 3, copies=1)
    with pytest.raises(InputError, match=message):
        open_elastic(tmp_path / "S", **options)
