"""One machine more: a row that is about as good with the others as theirs."""

import numpy as np
import pytest

from cec_mpi.core.code.conditioning import measure_conditioning
from cec_mpi.core.code.extension import add_row
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.code.mds import make_code


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("machines", "recovery"), [(3, 3), (4, 1), (6, 3), (10, 5)])
def test_the_other_rows_stay_and_the_new_one_is_no_worse_than_they_are(machines, recovery, family):
    code = make_code(machines, recovery, family)
    bigger = add_row(code, np.float64)
    assert bigger.machines == machines + 1
    assert np.array_equal(bigger.generator[:-1], code.generator)
    assert bigger.conditioning == measure_conditioning(bigger.generator)
    fresh = make_code(machines + 1, recovery).conditioning.worst
    assert bigger.conditioning.worst <= max(4 * fresh, 1.01 * code.conditioning.worst)


def test_machines_can_be_added_again_and_again():
    code = make_code(6, 3)
    for _ in range(6):
        code = add_row(code, np.float32)
    assert code.machines == 12
    assert code.conditioning.worst < 200


def test_the_row_is_of_the_kind_of_the_shards_and_repeatable():
    code = make_code(6, 3, dtype=np.float32)
    row = add_row(code, np.float32).generator[-1]
    assert np.array_equal(row, row.astype(np.float32))
    assert np.array_equal(row, add_row(code, np.float32).generator[-1])


def test_the_worst_set_of_the_other_machines_stays_in_the_sample():
    code = make_code(60, 4, "gaussian")
    bigger = add_row(code, np.float64)
    assert not bigger.conditioning.complete
    assert bigger.conditioning.worst >= code.conditioning.worst * (1 - 1e-9)
    assert bigger.conditioning.worst <= 100 * code.conditioning.worst
