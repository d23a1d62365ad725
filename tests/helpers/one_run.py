"""The ranks of ``mpirun -n 4 python -m pytest --with-mpi tests/ranks`` as one run.

Every rank runs every test, and rank 0 reports. A rank whose test fails, or that exits, prints the
reason and ends the run, because other ranks may wait for it.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.ending import abort_job, exit_now, print_error, wait_for_rank_0
from cec_mpi.runtime.processes.launcher import Launcher
from cec_mpi.runtime.processes.start import start_barrier, start_mpi

if TYPE_CHECKING:
    from mpi4py import MPI

_HEAD_START = 1.0  # seconds of rank 0 before another rank prints what may have failed on all
_DELAY_PER_RANK = 0.1  # ... of each rank before the next


class OneRun:
    """Plugin of a rank."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._comm: MPI.Intracomm | None = None  # until MPI has started

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
            start_barrier(self._comm)
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
            where = f"{item.nodeid} ({report.when})"
            self._end(item.config, 1, "\n".join([where, report.longreprtext, *captured]))
        return report

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the run when this rank exits."""
        code, why = getattr(excinfo.value, "returncode", None), excinfo.typename
        if isinstance(excinfo.value, pytest.exit.Exception):
            why = f"pytest.exit: {excinfo.value.msg}"
        self._end(None, pytest.ExitCode.INTERRUPTED if code is None else code, why)

    def pytest_internalerror(self, excrepr: object) -> None:
        """End the run when pytest itself fails on this rank."""
        self._end(None, 3, f"internal error\n{excrepr}")

    def _end(self, config: pytest.Config | None, code: int, why: str) -> None:
        if self._comm is None:
            return
        rank = self._comm.rank
        if rank:
            time.sleep(_HEAD_START + _DELAY_PER_RANK * min(rank, 10))
        capture = config and config.pluginmanager.get_plugin("capturemanager")
        if capture:
            capture.suspend_global_capture(in_=True)
        print(f"\nrank {rank} failed: {why}", file=sys.__stderr__, flush=True)
        abort_job(code)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Collective: rank 0 exits with the largest exit code, the others with 0."""
        comm = self._comm
        if comm is not None:
            code = max(comm.allgather(int(session.exitstatus)))
            session.exitstatus = 0 if comm.rank else code
