"""Commands of one process are run in this one: to start another takes longer than most of them."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pytest

from helpers.commands import Done


@pytest.fixture
def cec(run, call, monkeypatch, tmp_path):
    """Run ``cec-mpi`` with these words: under mpirun when it takes ranks, else in this process.

    With variables of its own it is a process of its own.
    """
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which tasks of the user's add a directory

    def cec(*words, ranks=0, cwd=tmp_path, variables=None):
        if ranks or variables:
            launcher = ["mpirun", "-n", ranks] if ranks else []
            return run([*launcher, "cec-mpi", *words], cwd=cwd, variables=variables)
        importlib.invalidate_caches()
        known = {*sys.modules}
        # As Python has it, where these tests have warnings be errors.
        with warnings.catch_warnings(action="default", category=UserWarning):
            warnings.filterwarnings("ignore", "oversubscribed")
            code, stdout, stderr = call(words, cwd)
        for name in sys.modules.keys() - known:  # another test has other tasks of the same name
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(cwd):
                del sys.modules[name]
        return Done(code, stdout, stderr, ())

    return cec
