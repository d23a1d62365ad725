"""Bad input of several ranks ends like that of one process (`tests/cli/commands`)."""

from __future__ import annotations

import random

import pytest

from helpers import bad_inputs
from helpers.commands import run_to_end

CASES = random.Random(0).sample([case for case in bad_inputs.cases() if case.is_run], 3)


@pytest.mark.any_mpi
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_under_mpirun(case, good, tmp_path):
    words = bad_inputs.prepare(case, tmp_path, good)
    words.remove("--serial")
    done = run_to_end(["mpirun", "-n", 4, "cec-mpi", *words], cwd=tmp_path)
    assert bad_inputs.judge(done, case.code) is None
