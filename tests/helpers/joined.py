"""How processes ended that joined a run, or were joined."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from helpers.waiting import LIMIT


def exit_codes(processes: Iterable[subprocess.Popen[str]]) -> list[int]:
    """Their exit codes, once they have ended."""
    return [process.wait(LIMIT) for process in processes]


def error_of(process: subprocess.Popen[str]) -> str:
    """Return the error message of a process that has ended or is ending."""
    _, stderr = process.communicate(timeout=LIMIT)
    return stderr.removeprefix("cec-mpi: error: ")
