"""The output of commands on a terminal."""

from __future__ import annotations

import os
import re

import pytest

from helpers.blocking_source import BlockingSource
from helpers.terminals import Terminal
from helpers.waiting import LIMIT

pytestmark = pytest.mark.any_mpi

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


@pytest.fixture
def start_on_terminal(start, tmp_path):
    """Return a function that starts ``cec-mpi`` on a terminal: its process, and the terminal."""

    def start_on_terminal(*words):
        terminal = Terminal(120, 24)
        os.write(terminal.tty, b"$ a command\n")  # like the line of a shell
        process = start(
            ["cec-mpi", *words],
            variables={"TERM": "xterm-256color", "PYTHONPATH": str(tmp_path)},
            stdout=terminal.tty,
            stderr=terminal.tty,
        )
        os.close(terminal.tty)
        terminal.tty = -1
        return process, terminal

    return start_on_terminal


def test_a_terminal_shows_the_current_step(start_on_terminal, small_store, tmp_path):
    (tmp_path / "talking.py").write_text(TASK)
    process, terminal = start_on_terminal("run", small_store.path, "--out", "out", "talking:task")
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


def test_a_terminal_shows_rate_and_remaining_time_of_encode(start_on_terminal, tmp_path):
    source = BlockingSource(tmp_path)
    words = ["encode", source.path, "store", "--machines", 5, "--recovery", 3]
    process, terminal = start_on_terminal(*words)
    text = terminal.await_text(" left")
    assert re.search(r"encoding .* \d+% of 0\.04 GB, \d+ MB/s, \d+:\d\d left", text)
    source.release(source.await_reader())
    assert process.wait(LIMIT) == 0
    terminal.close()
    assert "encoding" not in terminal.text
