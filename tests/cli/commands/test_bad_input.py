"""Bad input ends with one message and the right exit code (see helpers/bad_inputs.py)."""

from __future__ import annotations

import re
import sys

import pytest

from helpers import bad_inputs

CASES = bad_inputs.cases()


def test_cases_are_distinct():
    assert len({(case.words, case.make) for case in CASES}) == len(CASES) > 200


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The files that cases share."""
    directory = tmp_path_factory.mktemp("good")
    bad_inputs.make_good_files(directory)
    return directory


def files_in(directory):
    """Return all files except those of a run."""
    found = {path.relative_to(directory) for path in directory.rglob("*")}
    return {path for path in found if path.parts[0] not in ("__pycache__", "out")}


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_in_one_process(case, good, call, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "my_task", raising=False)
    words = bad_inputs.prepare(case, tmp_path, good)
    before = files_in(tmp_path), files_in(good)
    code, stdout, stderr = call(words, tmp_path)
    assert code == case.code, stderr
    assert re.fullmatch(r"cec-mpi: error: [^\n]+\n", stderr)
    assert stdout == "" or words[0] in ("info", "verify")
    assert (files_in(tmp_path), files_in(good)) == before
