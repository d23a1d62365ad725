"""Run commands as a user does, with a time limit, and kill the processes that survive them.

A mark in the environment of all processes of a command identifies survivors even if their parents
have changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers import mpi_at_hand
from helpers.waiting import END_LIMIT, LIMIT

_MARK = "CEC_LAUNCH_MARK"  # in the environment of every process of one command
_BANNER = re.compile(r"^-{60,}\n.*?^-{60,}\n", re.DOTALL | re.MULTILINE)
# Messages that Open MPI's mpirun sometimes prints while it ends ranks.
_NOISE = re.compile(
    r"^(\[warn\] Epoll |\[\S+:\d+\] (PMIX ERROR|pmix_ptl_base): ).*\n?", re.MULTILINE
)
# How Open MPI's mpirun reports the end of a job.
_JOB_END = re.compile(
    r"^ +(?:Exit code: +|Errorcode: )(\d+)$|exited on\s+signal (\d+) ", re.MULTILINE
)


@dataclass
class RunningCommand:
    """A command that has been started."""

    process: subprocess.Popen[str]
    mark: str
    scratch: Path  # for files that Open MPI leaves when it is killed

    def processes(self) -> dict[int, str]:
        """Return the processes of this command that are alive, with their command lines."""
        command_lines = {}
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (directory / "environ").read_bytes():
                    args = (directory / "cmdline").read_bytes().split(b"\0")
                    command_lines[int(directory.name)] = b" ".join(args).decode(errors="replace")
            except OSError:  # it has ended, or belongs to another user
                continue
        return command_lines


@dataclass(frozen=True)
class CommandResult:
    """The result of a command; `returncode` is None if the command exceeded its time limit."""

    returncode: int | None
    stdout: str
    stderr: str
    survivors: tuple[str, ...]  # command lines of processes that were killed

    @property
    def errors(self) -> str:
        """Standard error without the messages of the launcher."""
        return _NOISE.sub("", _BANNER.sub("", self.stderr)).strip()


def environment(**variables: str) -> dict[str, str]:
    """Return an environment without variables of a launcher, for ranks on one computer."""
    inherited = remove_launcher_variables(os.environ)
    scripts = str(Path(sys.executable).parent)  # cec-mpi, and mpirun of an MPI wheel
    path = os.pathsep.join([scripts, inherited.get("PATH", os.defpath)])
    return {**inherited, **mpi_at_hand.single_host_variables(), "PATH": path, **variables}


def mpirun() -> str | None:
    """Return the command that starts ranks of this Python's MPI, or None."""
    return mpi_at_hand.mpirun(environment()["PATH"])


def start(
    command: Sequence[object],
    *,
    cwd: Path | None = None,
    variables: dict[str, str] | None = None,
    **options: Any,
) -> RunningCommand:
    """Start a command; `options` are those of `subprocess.Popen`.

    ``mpirun`` stands for the mpirun of this Python's MPI.
    """
    first, *rest = (str(word) for word in command)
    args = [(first == "mpirun" and mpirun()) or first, *rest]
    mark = uuid.uuid4().hex
    scratch = Path(tempfile.mkdtemp(prefix="cec-launch-"))
    # In the default directory, a launcher of Open MPI 5 that gets the process ID of a killed one
    # finds its files, and exits with 213, because it cannot start its PMIx server.
    directories = dict.fromkeys(
        ("OMPI_MCA_btl_sm_backing_directory", "PRTE_MCA_prte_tmpdir_base"), str(scratch)
    )
    extra = {_MARK: mark, **directories}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        args,
        env=environment(**extra, **(variables or {})),
        cwd=cwd,
        text=True,
        start_new_session=True,
        **{**pipes, **options},
    )
    return RunningCommand(process, mark, scratch)


def job_exit_code(returncode: int, stderr: str) -> int:
    """Return the exit code of a command; if mpirun crashed, that of the job that it reported.

    Open MPI 5.0's mpirun sometimes crashes in PMIx_server_finalize after it has reported the end of
    the job, if a rank aborted while others were in MPI_Finalize: in 6 of 24 jobs of mpi4py.
    """
    crashed = returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
    reported = reported_exit_code(stderr) if crashed else None
    return returncode if reported is None else reported


def reported_exit_code(stderr: str) -> int | None:
    """Return the exit code of the job that Open MPI's mpirun reported, or None."""
    match = _JOB_END.search(stderr)
    if not match:
        return None
    code, signal_number = match.groups()
    return int(code) if code else 128 + int(signal_number)


def finish(command: RunningCommand, limit: float = LIMIT) -> CommandResult:
    """Wait until a command ends, or kill it at the time limit; return its result.

    Open MPI 5.0's mpirun sometimes hangs after it has reported the end of the job and all ranks
    have ended: in 2 of 240 jobs in which a rank aborted.
    """
    process = command.process
    try:
        stdout, stderr = process.communicate(timeout=limit)
        returncode, survivors = job_exit_code(process.returncode, stderr or ""), {}
    except subprocess.TimeoutExpired:
        returncode, survivors = None, command.processes()
        is_launcher_alone = set(survivors) == {process.pid}
        _kill(survivors)
        stdout, stderr = process.communicate()
        if is_launcher_alone:
            returncode, survivors = reported_exit_code(stderr or ""), {}
    deadline = time.monotonic() + END_LIMIT
    while (remaining := command.processes()) and time.monotonic() < deadline:
        time.sleep(0.02)
    _kill(remaining)
    shutil.rmtree(command.scratch, ignore_errors=True)
    return CommandResult(
        returncode, stdout or "", stderr or "", tuple((survivors | remaining).values())
    )


def run_to_end(
    command: Sequence[object],
    *,
    cwd: Path | None = None,
    limit: float = LIMIT,
    variables: dict[str, str] | None = None,
) -> CommandResult:
    """Start a command and wait for its end."""
    return finish(start(command, cwd=cwd, variables=variables), limit)


def run_cec_mpi(
    args: Sequence[object], cwd: Path, limit: float, launcher: Sequence[object] = ()
) -> str:
    """Run a command of cec-mpi; return its output, or exit if it fails or exceeds the limit."""
    result = run_to_end([*launcher, sys.executable, "-m", "cec_mpi", *args], cwd=cwd, limit=limit)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, args))}: {result.errors}")
    return result.stdout


def _kill(processes: dict[int, str]) -> None:
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def count_steps(out: Path) -> int:
    """Return the number of recorded steps in a directory of results."""
    try:
        return (out / "steps.jsonl").read_bytes().count(b'"kind":"step"')
    except FileNotFoundError:
        return 0
