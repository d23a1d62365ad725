"""The output of a run on a terminal."""

from __future__ import annotations

import os

import pytest

from helpers.terminals import Terminal
from helpers.waiting import LIMIT

TASK = """
import time
from pathlib import Path
import numpy as np

def task(X, *, checkpoint):
    for step in range(31):
        result = X @ np.ones(X.shape[1])
        while step == 30 and not Path("seen").exists():
            time.sleep(0.01)
    print("the task prints", flush=True)
    return {"result": result}
"""


@pytest.mark.any_mpi
def test_a_terminal_shows_the_current_step(start, small_store, tmp_path):
    (tmp_path / "talking.py").write_text(TASK)
    terminal = Terminal(120, 24)
    os.write(terminal.tty, b"$ a command\n")  # as a shell leaves it
    process = start(
        ["cec-mpi", "run", small_store.path, "--out", "out", "talking:task"],
        variables={"TERM": "xterm-256color", "PYTHONPATH": str(tmp_path)},
        stdout=terminal.tty,
        stderr=terminal.tty,
    )
    os.close(terminal.tty)
    terminal.tty = -1
    terminal.await_text(" of 3 available")
    terminal.await_text("step 31")
    (tmp_path / "seen").touch()
    assert process.wait(LIMIT) == 0
    terminal.close()
    _, printed, done, results, report, *rest = terminal.lines
    assert printed == "the task prints"
    assert done.startswith("talking:task is done: 31 steps on 3 machines, ")
    assert results.startswith("results: ")
    assert "report: cec-mpi report " in f"{report}{''.join(rest)}"
