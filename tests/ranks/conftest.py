"""Tests on several ranks: mpirun -n 4 python -m pytest --with-mpi tests/ranks.

A rank that hangs is ended by pytest-timeout, which prints its stacks.
"""

from __future__ import annotations

import io
import itertools
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.ending import abort_job, exit_now, print_error, wait_for_rank_0
from cec_mpi.runtime.processes.launcher import Launcher, detect_launcher
from cec_mpi.runtime.processes.start import call_on_master, finish_start, start_mpi
from helpers.stores import SmallStore

_DELAY = 1.0  # seconds before a rank other than 0 prints a failure that all ranks may have
_DELAY_PER_RANK = 0.1  # seconds


class RankPlugin:
    """Plugin that makes the ranks one run.

    Every rank runs every test, and rank 0 reports. A rank whose test fails, or that exits, prints
    the reason and ends the run, because other ranks may wait for it.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._comm = None  # until MPI has started

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Drop the report of a rank other than 0: its writer is created right after this."""
        if self._launcher.rank:
            sys.stdout = io.StringIO()

    def pytest_sessionstart(self) -> None:
        """Restore the output of tests: only the report is dropped."""
        if self._launcher.rank:
            sys.stdout = sys.__stdout__

    def pytest_collection_finish(self) -> None:
        """Collective: start MPI."""
        try:
            self._comm = start_mpi()
            finish_start(self._comm)
        except InputError as error:
            wait_for_rank_0(self._launcher)
            if self._launcher.rank == 0:
                print_error(error)
            exit_now(pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """End the run when a test fails on this rank."""
        report = yield
        if report.failed:
            captured = [f"--- {title} ---\n{text}" for title, text in report.sections]
            test = f"{item.nodeid} ({report.when})"
            self._end(item.config, 1, "\n".join([test, report.longreprtext, *captured]))
        return report

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the run when this rank exits."""
        code, reason = getattr(excinfo.value, "returncode", None), excinfo.typename
        if isinstance(excinfo.value, pytest.exit.Exception):
            reason = f"pytest.exit: {excinfo.value.msg}"
        self._end(None, pytest.ExitCode.INTERRUPTED if code is None else code, reason)

    def pytest_internalerror(self, excrepr: object) -> None:
        """End the run when pytest itself fails on this rank."""
        self._end(None, 3, f"internal error\n{excrepr}")

    def _end(self, config: pytest.Config | None, code: int, reason: str) -> None:
        if self._comm is None:
            return
        rank = self._comm.rank
        if rank:
            time.sleep(_DELAY + _DELAY_PER_RANK * min(rank, 10))
        capture = config and config.pluginmanager.get_plugin("capturemanager")
        if capture:
            capture.suspend_global_capture(in_=True)
        print(f"\nrank {rank} failed: {reason}", file=sys.__stderr__, flush=True)
        abort_job(code)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Collective: rank 0 exits with the largest exit code, other ranks with 0."""
        comm = self._comm
        if comm is not None:
            code = max(comm.allgather(int(session.exitstatus)))
            session.exitstatus = 0 if comm.rank else code


def pytest_configure(config):
    launcher = detect_launcher()
    if launcher is not None and launcher.size > 1:
        config.pluginmanager.register(RankPlugin(launcher))


@pytest.fixture(scope="session")
def comm():
    """The communicator of all ranks: a master and three machines."""
    comm = start_mpi()
    finish_start(comm)
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
