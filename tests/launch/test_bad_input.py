"""Bad input of several ranks ends like that of one process (`tests/commands`)."""

from __future__ import annotations

import random

import pytest

from helpers import bad_inputs

PARALLEL = random.Random(0).sample([case for case in bad_inputs.cases() if case.ranks], 15)


ALIKE = [
    pytest.param(case, id=case.name, marks=[] if number < 4 else pytest.mark.any_mpi)
    for number, case in enumerate(PARALLEL)
]


@pytest.mark.parametrize("case", ALIKE)
def test_bad_input_under_mpirun(case, good, tmp_path):
    assert bad_inputs.attempt(case, tmp_path, good) is None
