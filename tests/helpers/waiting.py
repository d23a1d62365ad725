"""Wait for other processes, with limits that only a hang reaches."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 200  # seconds
END_LIMIT = 50  # seconds for processes to end; a lost machine tries to reconnect for 60


def wait_until(
    condition: Callable[[], Any],
    process: subprocess.Popen[str] | None = None,
    describe: Callable[[], object] = lambda: "",
    pause: float = 0.01,
) -> Any:
    """Wait until a condition is true; return its value.

    Parameters
    ----------
    condition : callable
    process : subprocess.Popen, optional
        Fail if this process ends first.
    describe : callable
        Returns the message of a timeout.
    pause : float
        Seconds between two tests of the condition.
    """
    deadline = time.monotonic() + LIMIT
    while not (value := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, describe()
        time.sleep(pause)
    return value


def wait_for_file(path: Path, text: str = "", process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a file exists and contains a text."""
    wait_until(lambda: path.exists() and text.encode() in path.read_bytes(), process, lambda: path)
