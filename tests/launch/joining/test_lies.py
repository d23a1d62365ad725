"""Machines that join and lie: with --check no result is wrong, and without it no step hangs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import cec_mpi
from cec_mpi.errors import CecError
from helpers.joined import LIMIT
from helpers.liar import ANSWERS, Liar

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]

MACHINES, JOBS, PATIENCE = 6, 2, 5.0
OPTIONS = {
    "local": MACHINES - 1,
    "threads": 1,
    "deadline": "1",
    "speeds": (1.0,) * MACHINES,  # so that liars get jobs, whatever they report
}


@pytest.fixture(scope="module")
def store(make_store):
    return make_store(np.random.default_rng(4).standard_normal((240, 40)), MACHINES, 2)


@pytest.mark.parametrize("check", [True, False])
def test_lies_give_no_wrong_result_and_no_hang(store, conn, check):
    random = np.random.default_rng(9)
    rows, columns = store.X.shape
    jobs = 0
    with cec_mpi.open_operator(store.path, accept=str(conn), check=check, **OPTIONS) as operator:
        for lie in ANSWERS:
            liar = Liar(conn, store.path, lie, random.spawn(1)[0])
            liar.start()
            due = time.monotonic() + PATIENCE
            try:
                while liar.is_alive() and liar.jobs < JOBS and time.monotonic() < due:
                    w, v = random.standard_normal(columns), random.standard_normal(rows)
                    begin = time.monotonic()
                    found, other = operator @ w, operator.rmatvec(v)
                    assert time.monotonic() - begin < LIMIT, lie
                    if check:
                        np.testing.assert_allclose(found, store.X @ w, atol=1e-8, err_msg=str(lie))
                        np.testing.assert_allclose(other, store.X.T @ v, atol=1e-8)
            except CecError:  # of an answer that is not finite, or too large
                assert not check, lie
            finally:
                liar.end()
            jobs += liar.jobs
    assert jobs  # lies of processes that had none are tried too
