"""Waiting for what other processes do, however busy the computer is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 200  # seconds; only what hangs takes longer
LEAVING = 50  # seconds for processes that are about to end; a lost machine looks for its run for 60


def wait_until(
    condition: Callable[[], Any],
    process: subprocess.Popen[str] | None = None,
    describe: Callable[[], object] = lambda: "",
    pause: float = 0.01,
) -> Any:
    """Wait until a condition is true; return what it has returned.

    Parameters
    ----------
    condition : callable
    process : subprocess.Popen, optional
        Fail if it ends before.
    describe : callable
        Returns what to show if the condition does not become true.
    pause : float
        Seconds before the condition is examined again.
    """
    due = time.monotonic() + LIMIT
    while not (value := condition()):
        assert process is None or process.poll() is None, process.communicate()[1]
        assert time.monotonic() < due, describe()
        time.sleep(pause)
    return value


def wait_for_file(path: Path, text: str = "", process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a file exists and contains a text."""
    wait_until(lambda: path.exists() and text.encode() in path.read_bytes(), process, lambda: path)
