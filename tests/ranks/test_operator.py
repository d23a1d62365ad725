"""The operator on several ranks: adjoints, blocks, availability, leaving."""

from __future__ import annotations

import importlib
import os
import sys

import numpy as np
import pytest

from cec_mpi import encode, open_operator
from cec_mpi.errors import InfeasibleError, InputError
from helpers.products import check_products
from helpers.recording import MemoryRecorder
from helpers.sparse import random_sparse

pytestmark = pytest.mark.mpi(min_size=4)


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


def test_products_are_right_with_copies_of_rows(comm, shared_directory):
    X, path = random_sparse(200, 90, density=0.1), shared_directory / "sparse"
    encode(X, path, 3, copies=2, comm=comm)
    with open_operator(path, comm, availability=[{1, 2, 3}, {1, 3}, {2, 3}]) as operator:
        if operator is not None:
            for _ in range(2):
                check_products(operator, X, columns=3)


def test_a_second_operator_on_the_same_ranks_is_rejected_on_all(comm, store):
    copy = comm.Dup()
    for second in (comm, copy):
        with (
            pytest.raises(InputError, match="serve another operator"),
            open_operator(store, comm),
            open_operator(store, second),
        ):
            pass
    copy.Free()
    with open_operator(store, comm) as operator:
        if operator is not None:
            assert (operator @ np.ones(40)).shape == (1001,)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_cannot_use_the_machines_of_ranks(comm, store):
    with open_operator(store, comm) as operator:
        if operator is not None:
            for call, message in (
                (lambda: operator @ np.ones(40), "which the machines serve: use threads"),
                (open_operator(store, comm).start, "was forked from one that uses MPI"),
            ):
                child = os.fork()
                if not child:
                    try:
                        call()
                    except InputError as error:
                        os._exit(message in str(error))
                    os._exit(2)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            assert (operator @ np.ones(40)).shape == (1001,)


def test_disjoint_communicators_may_have_an_operator_each(comm, shared_directory):
    path = shared_directory / f"part{comm.rank % 2}"
    matrix = np.random.default_rng(comm.rank % 2).standard_normal((9, 4))
    if comm.rank < 2:
        encode(matrix, path, 1, 1)
    comm.Barrier()
    part = comm.Split(comm.rank % 2)
    with open_operator(path, part) as operator:
        if operator is not None:
            assert relative_error(operator @ np.ones(4), matrix.sum(axis=1)) < 1e-13
    part.Free()


def test_an_exception_of_a_module_of_rank_0_is_raised_as_text_elsewhere(comm, store, tmp_path):
    if comm.rank == 0:
        (tmp_path / "only_here.py").write_text("class ModuleError(Exception): pass\n")
        sys.path.insert(0, str(tmp_path))
    with pytest.raises(Exception, match="mine") as error, open_operator(store, comm):
        raise importlib.import_module("only_here").ModuleError("mine")
    assert type(error.value).__name__ == ("CecError" if comm.rank else "ModuleError")
    assert "mine" in str(error.value)
    if comm.rank == 0:
        sys.path.remove(str(tmp_path))


def test_an_exception_in_the_block_of_a_machine_is_not_shared(comm, store):
    text = ""
    try:
        with open_operator(store, comm) as operator:
            if operator is None and comm.rank == 2:
                np.ones((2, 3)) @ np.ones(12)
    except ValueError as error:
        text = str(error)
    assert bool(text) == (comm.rank == 2)


def test_an_operator_can_be_started_and_closed_without_a_block(comm, store, X):
    for _ in range(2):
        operator = open_operator(store, comm).start()
        if operator is not None:
            assert relative_error(operator @ np.ones(40), X.sum(axis=1)) < 1e-13
            operator.close()
            operator.close()
            with pytest.raises(InputError, match="closed"):
                operator @ np.ones(40)
        comm.Barrier()


def test_an_operator_can_be_closed_within_its_block(comm, store, X):
    with open_operator(store, comm) as operator:
        if operator is not None:
            assert relative_error(operator @ np.ones(40), X.sum(axis=1)) < 1e-13
            operator.close()
            comm.Barrier()  # the machines have left their block
            operator.close()
    if operator is None:
        comm.Barrier()


def test_speeds_are_learned_from_emulated_machines(comm, store):
    recorder = MemoryRecorder()
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


def test_a_machine_that_must_leave_gets_no_more_rows(comm, store, X):
    recorder = MemoryRecorder()
    with open_operator(store, comm, recorder=recorder, inject="leave:3@1") as operator:
        if operator is not None:
            check_products(operator, X)
            assert [r.rows[2] > 0 for r in recorder.records] == [True, True, False, False]
            (event,) = recorder.all_events
            assert event["left"] == 3
            operator.available = {1, 3}
            with pytest.raises(InfeasibleError):
                operator @ np.ones(40)


def test_machines_on_devices_and_on_the_cpu_serve_one_operator(comm, store, X):
    devices = ["cpu", "array_api_strict:cpu", "jax:cpu"]
    with open_operator(store, comm, device=devices) as operator:
        if operator is not None:
            for available in ({1, 2}, {1, 3}, {2, 3}, {1, 2, 3}):
                operator.available = available
                check_products(operator, X, tolerance=1e-13)
