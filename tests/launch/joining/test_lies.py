"""Machines with false messages: with --check no result is wrong, without it no step hangs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import CecError
from helpers.byzantine import FALSE_ANSWERS, ByzantineMachine
from helpers.waiting import LIMIT

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]

MACHINES, JOBS, PATIENCE = 6, 2, 2.0
OPTIONS = {
    "local": MACHINES - 1,
    "threads": 1,
    "deadline": "0.3",
    "speeds": (1.0,) * MACHINES,  # Byzantine machines get jobs, whatever speeds they report
}


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((240, 40)), MACHINES, 2)


@pytest.mark.parametrize("check", [True, False])
def test_false_messages_cause_no_wrong_result_and_no_hang(store, conn, check):
    random = np.random.default_rng(9)
    rows, columns = store.X.shape
    jobs = 0
    with cec_mpi.open_operator(store.path, accept=str(conn), check=check, **OPTIONS) as operator:
        for false_answer in FALSE_ANSWERS:
            machine = ByzantineMachine(conn, store.path, false_answer, random.spawn(1)[0])
            machine.start()
            deadline = time.monotonic() + PATIENCE
            try:
                while machine.is_alive() and machine.jobs < JOBS and time.monotonic() < deadline:
                    w, v = random.standard_normal(columns), random.standard_normal(rows)
                    start = time.monotonic()
                    product, adjoint_product = operator @ w, operator.rmatvec(v)
                    assert time.monotonic() - start < LIMIT, false_answer
                    if check:
                        np.testing.assert_allclose(
                            product, store.X @ w, atol=1e-8, err_msg=str(false_answer)
                        )
                        np.testing.assert_allclose(adjoint_product, store.X.T @ v, atol=1e-8)
            except CecError:  # for an answer that is not finite, or too large
                assert not check, false_answer
            finally:
                machine.stop()
            jobs += machine.jobs
    assert jobs
