"""Steps in lockstep: faults of machines, and options of elastic runs."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from helpers.products import check_products
from helpers.recording import MemoryRecorder

pytestmark = pytest.mark.mpi(min_size=4)


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


@pytest.mark.parametrize("adjoint", [False, True])
def test_a_machine_with_a_nonfinite_answer_is_named(comm, store, X, adjoint):
    with open_operator(store, comm, inject="nan:2@0") as operator:
        if operator is not None:
            operator.available = {1, 2}
            product = operator.rmatvec if adjoint else operator.matvec
            v = np.ones(X.shape[0 if adjoint else 1])
            with pytest.raises(MachineError, match=r"machine 2 answered .* step 0, .*--elastic"):
                product(v)
            np.testing.assert_allclose(product(v), (X.T if adjoint else X) @ v, atol=1e-10)


def test_elastic_options_are_rejected_with_a_communicator(comm, store):
    for options in ({"stragglers": 1}, {"deadline": 5}, {"check": True}, {"accept": "conn"}):
        with pytest.raises(InputError, match="comm starts a lockstep run"):
            open_operator(store, comm, **options).__enter__()
