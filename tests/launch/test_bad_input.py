"""Bad input of several ranks ends like that of one process (`tests/cli/commands`)."""

from __future__ import annotations

import random

import pytest

from helpers import bad_inputs

CASES = random.Random(0).sample([case for case in bad_inputs.cases() if case.ranks], 3)


@pytest.mark.any_mpi
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_under_mpirun(case, good, tmp_path):
    assert bad_inputs.attempt(case, tmp_path, good) is None
