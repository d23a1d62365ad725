"""Answers with NaN or infinity in lockstep: the machine is named, or an overflow is."""

from __future__ import annotations

import numpy as np
import pytest

from cec_mpi import open_operator
from cec_mpi.errors import MachineError

pytestmark = pytest.mark.mpi(min_size=4)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_machine_is_named(comm, store, X, adjoint):
    with open_operator(store, comm, inject="nan:2@0") as operator:
        if operator is not None:
            operator.available = {1, 2}
            product = operator.rmatvec if adjoint else operator.matvec
            v = np.ones(X.shape[0 if adjoint else 1])
            with pytest.raises(MachineError, match=r"machine 2 answered .* step 0, .*--elastic"):
                product(v)
            np.testing.assert_allclose(product(v), (X.T if adjoint else X) @ v, atol=1e-10)
