"""Steps in lockstep: warnings of machines, bounds of errors, and options that are not for it."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InfeasibleError, InputError
from helpers.products import check_products
from helpers.recording import Kept

pytestmark = pytest.mark.mpi(min_size=4)


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


@pytest.mark.parametrize(
    "options", [{"stragglers": 1}, {"deadline": 5}, {"check": True}, {"accept": "conn"}]
)
def test_elastic_options_are_refused_with_a_communicator(comm, store, options):
    with (
        pytest.raises(InputError, match="comm starts a lockstep run"),
        open_operator(store, comm, **options),
    ):
        pass
