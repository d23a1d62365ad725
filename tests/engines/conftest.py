"""A store, and an operator whose machines Dask or Ray starts."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import psutil
import pytest

import cec_mpi
from helpers.checked_operator import CheckedOperator
from helpers.recording import MemoryRecorder

MODULE = "cec_mpi.engines.machine_process"


@pytest.fixture(scope="session")
def store(make_store):
    """Four machines, two of which are enough."""
    return make_store(np.random.default_rng(4).standard_normal((600, 60)), 4, 2)


@pytest.fixture
def conn(tmp_path):
    return tmp_path / "conn"


@pytest.fixture
def opened(store, no_launcher):
    @contextmanager
    def opened(**options):
        recorder = MemoryRecorder()
        with cec_mpi.open_operator(store.path, recorder=recorder, **options) as operator:
            yield CheckedOperator(operator, store.X, recorder)

    return opened


@pytest.fixture
def machine_processes():
    """Return the process numbers of machines that an engine has started, and of their parents."""

    def machine_processes():
        found = {}
        for process in psutil.process_iter():
            try:
                if MODULE in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = process.ppid()
            except psutil.NoSuchProcess:
                continue
        return found

    return machine_processes
