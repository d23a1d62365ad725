"""Steps in lockstep: warnings of machines, bounds of errors, and options that are not for it."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InfeasibleError, InputError
from helpers.products import check_products
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)

RNG = np.random.default_rng(3)


def test_a_machine_that_was_warned_gets_no_more_rows(comm, store, X):
    recorder = Kept()
    with open_operator(store, comm, recorder=recorder, inject="leave:3@1") as operator:
        if operator is not None:
            check_products(operator, X)
            assert [r.rows[2] > 0 for r in recorder.records] == [True, True, False, False]
            (event,) = recorder.happened
            assert event["left"] == 3
            operator.available = {1, 3}
            with pytest.raises(InfeasibleError):
                operator @ np.ones(40)


def test_errors_are_below_accuracy_times_cancellation(comm, stores, X):
    for dtype in ("float32", "float64"):
        recorder = Kept()
        with open_operator(stores[dtype], comm, recorder=recorder) as operator:
            if operator is not None:
                wide = X.astype(np.longdouble)
                for _ in range(5):
                    w, v = RNG.standard_normal(40), RNG.standard_normal(1001)
                    y, z = operator @ w, operator.rmatvec(v)
                    forward, adjoint = recorder.records[-2:]
                    for found, exact, step in (
                        (y, wide @ w, forward),
                        (z, wide.T @ v, adjoint),
                    ):
                        wrong = np.abs(found - exact).max() / np.abs(found).max()
                        assert wrong <= operator.accuracy * step.cancellation < 1e-2


@pytest.mark.parametrize(
    "options", [{"stragglers": 1}, {"deadline": 5}, {"check": True}, {"accept": "conn"}]
)
def test_elastic_options_are_refused_with_a_communicator(comm, store, options):
    with (
        pytest.raises(InputError, match="a communicator makes a lockstep run"),
        open_operator(store, comm, **options),
    ):
        pass
