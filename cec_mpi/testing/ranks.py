"""The ranks of ``mpirun -n 4 python -m pytest --with-mpi`` as one run.

Every rank runs every test. Rank 0 alone reports. A rank that fails says so and ends the run,
since the others may wait for it; so does one that leaves, or that has collected other tests.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from cec_mpi.errors import InputError
from cec_mpi.processes.ending import end_job, leave_now, leaves_without_mpi, note_exit_status
from cec_mpi.processes.failing import complain, let_rank_0_print
from cec_mpi.processes.launcher import Launcher
from cec_mpi.processes.together import meet, start_anyway, start_mpi

if TYPE_CHECKING:
    from mpi4py import MPI

_HEAD_START = 1.0  # seconds of rank 0 before another rank prints what may have failed on all
_FURTHER = 0.1  # ... of each rank before the next


class OneRun:
    """Plugin of a rank.

    It withdraws when the tests are known and no rank has one that uses a fixture of cec_mpi:
    then all is as it would be without it, but that rank 0 alone writes what --junitxml asks for.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._comm: MPI.Intracomm | None = None  # until all have collected the same tests
        self._broken: list[str] = []
        self._output = _Held()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Hold back the report of this rank: who writes it is made right after this."""
        if self._launcher.rank:
            sys.stdout = self._output
            config.option.xmlpath = None  # --junitxml: rank 0 writes the file

    def pytest_sessionstart(self) -> None:
        """Let tests print where they would: only the report is held back."""
        if self._launcher.rank:
            sys.stdout = sys.__stdout__

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what is said of a module that cannot be collected."""
        if report.failed:
            self._broken.append(f"{report.nodeid}\n{report.longreprtext}")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Collective: decide whether this is a run of ours, and whether it is one run."""
        ours = any(map(_uses_a_fixture_of_ours, session.items))
        try:
            comm = start_mpi()
            meet(comm)
        except InputError as error:
            if ours:
                leave_unconnected(self._launcher, error)
            with suppress(ImportError, RuntimeError):
                start_anyway()  # as importing mpi4py.MPI would have done it
            self._withdraw(session)
            return
        if not any(comm.allgather(ours)):
            self._withdraw(session)
            return
        expected = comm.bcast([item.nodeid for item in session.items])
        broken, different = "\n".join(self._broken), _difference(session.items, expected)
        if len(set(comm.allgather((bool(broken), different)))) > 1:
            found = comm.allgather(broken or different)
            lines = [f"rank {rank}: {text}" for rank, text in enumerate(found) if text]
            message = "\n".join(["the ranks have not collected the same tests", *lines])
            if comm.rank == 0:
                raise pytest.UsageError(f"cec-mpi: error: {message}")
            pytest.exit("rank 0 says why", returncode=0)
        self._comm = comm

    def _withdraw(self, session: pytest.Session) -> None:
        self._output.release()
        session.config.pluginmanager.unregister(self)

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
        """End the run when this rank is to leave it."""
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
            time.sleep(_HEAD_START + _FURTHER * min(rank, 10))
        capture = config and config.pluginmanager.get_plugin("capturemanager")
        if capture:
            capture.suspend_global_capture(in_=True)
        print(f"\nrank {rank} failed: {why}", file=sys.__stderr__, flush=True)
        end_job(code)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Collective: rank 0 gives the launcher the exit code, as launchers want it."""
        comm = self._comm
        if comm is not None and not leaves_without_mpi():
            code = max(comm.allgather(int(session.exitstatus)))
            session.exitstatus = 0 if comm.rank else code
        note_exit_status(int(session.exitstatus))


def leave_unconnected(launcher: Launcher, error: object) -> NoReturn:
    """Leave where there is no MPI that a report at the end could ask."""
    let_rank_0_print(launcher)
    if launcher.rank == 0:
        complain(error)
    leave_now(pytest.ExitCode.USAGE_ERROR)


def _uses_a_fixture_of_ours(item: pytest.Item) -> bool:
    return any(name.startswith("cec_") for name in getattr(item, "fixturenames", ()))


def _difference(items: list[pytest.Item], expected: list[str]) -> str:
    for item, name in zip_longest(items, expected):
        if item is None or item.nodeid != name:
            return f"{item.nodeid if item else 'nothing'} where rank 0 has {name or 'nothing'}"
    return ""


class _Held(io.TextIOBase):
    """Text that is kept until it is known whether this rank is to print it."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._out: Any = None

    def write(self, text: str) -> int:
        if self._out is None:
            self._kept.append(text)
            return len(text)
        return int(self._out.write(text))

    def flush(self) -> None:
        if self._out is not None:
            self._out.flush()

    def release(self) -> None:
        """Print what was kept, and all that follows."""
        self._out = sys.__stdout__
        self.write("".join(self._kept))
