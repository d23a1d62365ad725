"""Bad input ends with one message and the right exit code: the cases of helpers/bad_inputs.py."""

from __future__ import annotations

import pytest

from helpers import bad_inputs, commands

CASES = bad_inputs.cases()
SERIAL = [case for case in CASES if not case.ranks]


def test_the_cases_are_many_and_different():
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({(case.words, case.ranks, case.make) for case in CASES}) >= 100


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("case", SERIAL, ids=lambda case: case.name)
def test_bad_input_in_one_process(case, good, call, tmp_path):
    words = bad_inputs.prepare(case, tmp_path, good)
    assert bad_inputs.judge(commands.Done(*call(words, tmp_path), ()), case.code) is None
