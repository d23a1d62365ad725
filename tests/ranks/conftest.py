"""Tests on several ranks: mpirun -n 4 python -m pytest --with-mpi tests/ranks.

A rank that hangs is ended by pytest-timeout, which prints its stacks.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.runtime.processes.launcher import detect_launcher
from cec_mpi.runtime.processes.start import call_on_master, start_barrier, start_mpi
from helpers.one_run import OneRun
from helpers.stores import SmallStore


def pytest_configure(config):
    launcher = detect_launcher()
    if launcher is not None and launcher.size > 1:
        config.pluginmanager.register(OneRun(launcher))


@pytest.fixture(scope="session")
def comm():
    """All ranks: a master and three machines."""
    comm = start_mpi()
    start_barrier(comm)
    return comm


@pytest.fixture(scope="session")
def shared_directory(comm, tmp_path_factory):
    return call_on_master(comm, lambda: tmp_path_factory.mktemp("ranks"), Path)


@pytest.fixture(scope="session")
def make_store(comm, shared_directory):
    """Collective: make a store of X with a machine for each rank but rank 0."""
    numbers = itertools.count(1)

    def make_store(X, machines=None, recovery=None, **options):
        machines = machines or comm.size - 1
        recovery = recovery or machines - 1
        path = shared_directory / f"store-{next(numbers)}"

        def write():
            np.save(path.with_suffix(".npy"), X)
            encode(path.with_suffix(".npy"), path, machines, recovery, **options)

        call_on_master(comm, write, type(None))
        return SmallStore(path, X, machines, recovery)

    return make_store


@pytest.fixture(scope="session")
def X():
    return np.random.default_rng(7).standard_normal((1001, 40))


@pytest.fixture(scope="session")
def stores(X, make_store):
    """Stores of X for three machines, any two of which are enough: dtype to path."""
    return {dtype: make_store(X, dtype=dtype).path for dtype in ("float64", "float32")}


@pytest.fixture(scope="session")
def store(stores):
    return stores["float64"]
