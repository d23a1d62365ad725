"""Fixtures for operators whose machines Dask or Ray starts."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import numpy as np
import psutil
import pytest

from helpers.checked_operator import open_checked

MODULE = "cec_mpi.engines.machine_process"


@pytest.fixture(scope="session")
def store(make_store):
    """A store of four machines, any two of which suffice."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def open_operator(store, no_launcher):
    """Return a function that opens a `CheckedOperator` of the store."""
    return partial(open_checked, store)


@pytest.fixture
def machine_processes():
    """Return a function that maps process IDs of engines' machines to those of their parents."""

    def machine_processes():
        parents = {}
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess):
                if MODULE in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    parents[process.pid] = process.ppid()
        return parents

    return machine_processes
