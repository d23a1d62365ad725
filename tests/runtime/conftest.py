"""Tests on several ranks: mpirun -n 4 python -m pytest --with-mpi tests/runtime.

Every rank runs every test. Rank 0 reports; a rank that fails prints its traceback and
ends the whole run, since the others may already wait for it; a rank that hangs is ended
with its stacks by pytest-timeout.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))  # for `recording`

MACHINES, RECOVERY = 3, 2


def pytest_configure(config):
    if config.getoption("--with-mpi") and _comm().rank:
        # The terminal reporter, made right after this, takes the standard output of now.
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - for the whole run


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed and item.config.getoption("--with-mpi") and _comm().size > 1:
        if _comm().rank and _also_on_rank_0(call.excinfo.value):
            return
        item.config.pluginmanager.getplugin("capturemanager").suspend_global_capture(in_=True)
        print(
            f"\nrank {_comm().rank} failed: {item.nodeid} ({report.when})\n{report.longreprtext}",
            file=sys.__stderr__,
            flush=True,
        )
        _comm().Abort(1)


def _also_on_rank_0(error):
    from cec_mpi.runtime.leaving import was_raised_together

    return was_raised_together(error)


def _comm():
    from mpi4py import MPI

    return MPI.COMM_WORLD


@pytest.fixture(scope="session")
def comm():
    """The first four ranks; a fifth one and more have no part in the tests."""
    return _comm()


@pytest.fixture(scope="session")
def shared_directory(comm, tmp_path_factory):
    path = comm.bcast(str(tmp_path_factory.mktemp("shared")) if comm.rank == 0 else None)
    return Path(path)


@pytest.fixture(scope="session")
def X():
    return np.random.default_rng(7).standard_normal((1001, 40))


@pytest.fixture(scope="session")
def stores(comm, shared_directory, X):
    """Stores of X for three machines, any two of which are enough: dtype to path."""
    from cec_mpi import encode

    paths = {dtype: shared_directory / dtype for dtype in ("float64", "float32")}
    if comm.rank == 0:
        np.save(shared_directory / "X.npy", X)
        for dtype, path in paths.items():
            encode(shared_directory / "X.npy", path, MACHINES, RECOVERY, dtype=dtype)
    comm.Barrier()
    return paths


@pytest.fixture(scope="session")
def store(stores):
    return stores["float64"]
