"""The operator on several ranks: adjoints, blocks, availability, leaving."""

from __future__ import annotations

import importlib
import itertools
import sys

import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, lsmr, svds

from cec_mpi import encode, open_operator
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.runtime.availability.models import ListedAvailability
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)

MASKS = [m for k in (2, 3) for m in itertools.combinations((1, 2, 3), k)]
RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def other(comm, shared_directory):
    """A square matrix for two machines only, any of them enough, and its store."""
    matrix = np.random.default_rng(2).standard_normal((40, 40))
    if comm.rank == 0:
        np.save(shared_directory / "other.npy", matrix)
        encode(shared_directory / "other.npy", shared_directory / "other", 2, 1)
    comm.Barrier()
    return matrix, shared_directory / "other"


def difference(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 3e-6)])
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_products_and_adjoints_in_every_mask(comm, stores, X, scheme, dtype, tolerance, columns):
    options = {"availability": ListedAvailability(MASKS, repeat=True), "speeds": (1.0, 2.0, 5.0)}
    with open_operator(stores[dtype], comm, scheme=scheme, **options) as operator:
        if operator is not None:
            for _ in MASKS + MASKS:
                W = RNG.standard_normal((X.shape[1], columns))
                V = RNG.standard_normal((X.shape[0], columns))
                assert difference(operator @ W, X @ W) < tolerance
                assert difference(operator.H @ V, X.T @ V) < tolerance
                w, v = W[:, 0], V[:, 0]
                assert difference(operator @ w, X @ w) < tolerance
                assert difference(operator.T @ v, X.T @ v) < tolerance


def test_an_adjoint_has_the_assignment_of_a_product_and_a_block_is_one_step(comm, store, X):
    recorder = Kept()
    options = {"speeds": (1.0, 2.0, 5.0), "recorder": recorder}
    with open_operator(store, comm, **options) as operator:
        if operator is not None:
            operator.matvec(np.ones(X.shape[1]))
            operator.rmatvec(np.ones(X.shape[0]))
            operator.matmat(np.ones((X.shape[1], 5)))
            operator.rmatmat(np.ones((X.shape[0], 5)))
            assert [(r.adjoint, r.columns) for r in recorder.records] == [
                (False, 1),
                (True, 1),
                (False, 5),
                (True, 5),
            ]
            assert len({tuple(r.rows) for r in recorder.records}) == 1
            assert [r.plan_changed for r in recorder.records] == [True, False, False, False]


def test_it_is_a_linear_operator_of_scipy(comm, store, X):
    with open_operator(
        store, comm, availability=ListedAvailability(MASKS, repeat=True)
    ) as operator:
        if operator is not None:
            assert isinstance(operator, LinearOperator)
            assert (operator @ np.empty((40, 0))).shape == (1001, 0)
            w = RNG.standard_normal(40) + 1j * RNG.standard_normal(40)
            assert difference(operator @ w, X @ w) < 1e-13
            gram = operator.H @ operator + 2 * LinearOperator((40, 40), matvec=lambda x: x)
            assert difference(gram @ w.real, X.T @ (X @ w.real) + 2 * w.real) < 1e-13
            s = svds(operator, k=3, v0=np.ones(40), return_singular_vectors=False)
            assert difference(np.sort(s)[::-1], np.linalg.svd(X)[1][:3]) < 1e-12
            b = RNG.standard_normal(len(X))
            assert difference(lsmr(operator, b, atol=1e-13)[0], np.linalg.lstsq(X, b)[0]) < 1e-10


def test_the_caller_changes_who_is_available(comm, store, X):
    recorder = Kept()
    with open_operator(store, comm, availability={1, 2, 3}, recorder=recorder) as operator:
        if operator is not None:
            w = np.ones(40)
            for machines in ({1, 2, 3}, {3, 1}, (2, 3), None):
                operator.available = machines
                assert difference(operator @ w, X @ w) < 1e-13
            assert [r.available for r in recorder.records] == [(1, 2, 3), (1, 3), (2, 3), (1, 2, 3)]
            assert operator.available == (1, 2, 3)
            for wrong in ({1, 9}, {0}, 3, {"one"}):
                with pytest.raises(InputError, match="available"):
                    operator.available = wrong
            operator.available = {2}
            with pytest.raises(InfeasibleError, match="1 machine is available"):
                operator @ w
            operator.available = {1, 2}
            assert difference(operator @ w, X @ w) < 1e-13


def test_a_function_says_who_is_available(comm, store, X):
    asked = []

    def available(tick):
        asked.append(tick)
        return MASKS[tick % len(MASKS)]

    recorder = Kept()
    with open_operator(store, comm, availability=available, recorder=recorder) as operator:
        if operator is not None:
            for _ in range(5):
                operator @ np.ones(40)
            assert asked == [0, 1, 2, 3, 4]
            assert [r.available for r in recorder.records] == (MASKS + MASKS)[:5]


def test_a_second_operator_on_the_same_ranks_is_refused_on_all(comm, store):
    with (
        pytest.raises(InputError, match="serve another operator"),
        open_operator(store, comm),
        open_operator(store, comm),
    ):
        pass
    copy = comm.Dup()
    with (
        pytest.raises(InputError, match="serve another operator"),
        open_operator(store, comm),
        open_operator(store, copy),
    ):
        pass
    copy.Free()
    with open_operator(store, comm) as operator:
        if operator is not None:
            assert (operator @ np.ones(40)).shape == (1001,)


def test_parts_of_the_ranks_have_an_operator_each(comm, shared_directory):
    matrix = np.random.default_rng(comm.rank % 2).standard_normal((9, 4))
    if comm.rank < 2:
        np.save(shared_directory / f"part{comm.rank}.npy", matrix)
        encode(
            shared_directory / f"part{comm.rank}.npy", shared_directory / f"part{comm.rank}", 1, 1
        )
    comm.Barrier()
    part = comm.Split(comm.rank % 2)
    with open_operator(shared_directory / f"part{comm.rank % 2}", part) as operator:
        if operator is not None:
            assert difference(operator @ np.ones(4), matrix.sum(axis=1)) < 1e-13
    part.Free()


class Unusual(Exception):
    """An exception that cannot be made from its `args`."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def test_an_exception_whose_class_takes_other_arguments_is_the_same_on_all_ranks(comm, store):
    with pytest.raises(Unusual, match="one and two"), open_operator(store, comm):
        raise Unusual("one", "two")


def test_an_exception_of_a_module_that_only_rank_0_has_is_told_in_words(comm, store, tmp_path):
    if comm.rank == 0:
        (tmp_path / "only_here.py").write_text("class Own(Exception): pass\n")
        sys.path.insert(0, str(tmp_path))
    with pytest.raises(Exception, match="mine") as caught, open_operator(store, comm):
        raise importlib.import_module("only_here").Own("mine")
    assert type(caught.value).__name__ == ("CecError" if comm.rank else "Own")
    assert "mine" in str(caught.value)
    if comm.rank == 0:
        sys.path.remove(str(tmp_path))


def test_solvers_that_give_up_raise_their_own_error_on_all_ranks(comm, store):
    with pytest.raises(ArpackNoConvergence), open_operator(store, comm) as X:
        svds(X, k=3, maxiter=1, tol=1e-300)


def test_what_a_machine_does_itself_in_the_block_is_its_own(comm, store):
    told = ""
    try:
        with open_operator(store, comm) as operator:
            if operator is None and comm.rank == 2:
                np.ones((2, 3)) @ np.ones(12)
    except ValueError as error:
        told = str(error)
    assert bool(told) == (comm.rank == 2)


def test_an_operator_is_opened_by_hand_and_closed_twice(comm, store, X):
    for _ in range(2):
        operator = open_operator(store, comm).start()
        if operator is not None:
            assert difference(operator @ np.ones(40), X.sum(axis=1)) < 1e-13
            operator.close()
            operator.close()
        comm.Barrier()


def test_an_operator_is_closed_within_its_with(comm, store, X):
    with open_operator(store, comm) as operator:
        if operator is not None:
            assert difference(operator @ np.ones(40), X.sum(axis=1)) < 1e-13
            operator.close()
            comm.Barrier()  # the machines are behind their block
            operator.close()
    if operator is None:
        comm.Barrier()


def test_a_product_after_the_end_is_refused(comm, store):
    for where in (comm, None):
        with open_operator(store, where) as X:
            pass
        if X is not None:
            with pytest.raises(InputError, match="closed"):
                X @ np.ones(40)


def test_a_refused_product_makes_no_step(comm, store, X):
    recorder = Kept()
    mask = ListedAvailability([(2, 3), (1, 2)])
    with open_operator(store, comm, recorder=recorder, availability=mask) as operator:
        if operator is not None:
            for refused in (np.full(1001, np.nan), np.full(1001, np.inf)):
                with pytest.raises(InputError, match="finite"):
                    operator.rmatvec(refused)
            operator.rmatvec(np.ones(1001))
            record = recorder.records[0]
            assert (record.step, record.tick, record.plan_changed) == (0, 0, True)
            assert record.available == (2, 3)


def test_the_results_without_mpi_are_the_same(comm, store):
    mask = ListedAvailability(MASKS, repeat=True)
    W, V = np.ones((40, 3)), np.ones((1001, 3))
    options = {"availability": mask, "speeds": (1.0, 2.0, 3.0)}
    with open_operator(store, comm, **options) as operator:
        found = operator and [operator @ W, operator.H @ V, operator @ W[:, 0]]
    if comm.rank == 0:
        with open_operator(store, None, **options) as alone:
            expected = [alone @ W, alone.H @ V, alone @ W[:, 0]]
        for one, two in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)


def test_speeds_are_learned_from_emulated_machines(comm, store):
    recorder = Kept()
    emulated = {"emulate_speeds": (1.0, 2.0, 4.0), "emulate_base": 4_000.0}
    with open_operator(store, comm, recorder=recorder, **emulated) as operator:
        if operator is not None:
            for _ in range(6):
                operator @ np.ones(40)
            first, last = recorder.records[0], recorder.records[-1]
            assert first.rows == [334, 334, 334]
            assert last.rows[0] < last.rows[1] < last.rows[2]
            assert first.hindsight_makespan < first.measured_makespan
            assert last.predicted_makespan > 0
