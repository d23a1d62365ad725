"""Commands of one process run in the process of the tests, which saves the start of another."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from helpers.commands import CommandResult


@pytest.fixture
def cec(run, call, monkeypatch, tmp_path):
    """Run ``cec-mpi`` with these words: under mpirun with ranks, otherwise in this process.

    Environment variables need a new process.
    """
    monkeypatch.setattr(sys, "path", [*sys.path])  # a user's task adds a directory

    def cec(*words, ranks=0, cwd=tmp_path, variables=None):
        if ranks or variables:
            launcher = ["mpirun", "-n", ranks] if ranks else []
            return run([*launcher, "cec-mpi", *words], cwd=cwd, variables=variables)
        importlib.invalidate_caches()
        loaded = {*sys.modules}
        # Python's default; in these tests, warnings are errors.
        with warnings.catch_warnings(action="default", category=UserWarning):
            warnings.filterwarnings("ignore", "oversubscribed")
            code, stdout, stderr = call(words, cwd)
        for name in sys.modules.keys() - loaded:  # another test may have a task of the same name
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(cwd):
                del sys.modules[name]
        return CommandResult(code, stdout, stderr, ())

    return cec


@pytest.fixture(scope="module")
def symmetric(make_store):
    """Three machines, any two of which are enough; power iteration finds 10 in about 150 steps."""
    basis, _ = np.linalg.qr(np.random.default_rng(6).standard_normal((60, 60)))
    return make_store(basis * np.append(np.linspace(0, 9, 59), 10) @ basis.T, 3, 2)
