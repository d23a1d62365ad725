"""The output of a run on a terminal, without and with a launcher."""

from __future__ import annotations

import os

import pytest

from helpers.terminals import Terminal
from helpers.waiting import LIMIT

TASK = """
import time
import warnings
from pathlib import Path
import numpy as np

def task(X, *, checkpoint):
    for step in range(40):
        result = X @ np.ones(X.shape[1])
        if step == 15:
            print("the task prints", flush=True)
        if step == 25:
            warnings.warn("the task warns")
        while step == 30 and not Path("seen").exists():
            time.sleep(0.01)
    return {"result": result}
"""


@pytest.fixture
def words(small_store):
    """A run, whose task follows."""
    return ["cec-mpi", "run", str(small_store.path), "--out", "out"]


@pytest.fixture
def on_a_terminal(start, tmp_path):
    """Start a run of a task that prints, on a terminal; each of 40 steps takes 0.1 s."""
    (tmp_path / "talking.py").write_text(TASK)
    slowly = ["--speeds", "1,1,1", "--emulate-speeds", "1,1,1", "--emulate-base", "105"]

    def on_a_terminal(words):
        terminal = Terminal(120, 24)
        os.write(terminal.tty, b"$ a command\n")  # as a shell leaves it
        variables = {"TERM": "xterm-256color", "PYTHONPATH": str(tmp_path)}
        streams = {"stdout": terminal.tty, "stderr": terminal.tty}
        command = [*words, "talking:task", *slowly]
        process = start(command, cwd=tmp_path, variables=variables, **streams)
        os.close(terminal.tty)
        terminal.tty = -1
        return process, terminal

    return on_a_terminal


@pytest.mark.any_mpi
def test_a_terminal_shows_the_current_step(on_a_terminal, words, tmp_path):
    process, terminal = on_a_terminal(words)
    terminal.await_text(" of 3 available")
    terminal.await_text("step 31")
    (tmp_path / "seen").touch()
    assert process.wait(LIMIT) == 0
    terminal.close()
    seen = [text for text in terminal.history if " of 3 available" in text]
    assert all(text.count(" of 3 available") == text.count("talking:task") == 1 for text in seen)
    _, printed, warning, done, results, report, *rest = terminal.lines
    assert (printed, warning) == ("the task prints", "cec-mpi: warning: the task warns")
    assert done.startswith("talking:task is done: 40 steps on 3 machines, ")
    assert results.startswith("results: ")
    assert "report: cec-mpi report " in f"{report}{''.join(rest)}"


def test_a_run_under_a_launcher_prints_lines_of_progress(on_a_terminal, words, tmp_path):
    process, terminal = on_a_terminal(["mpirun", "-n", "4", *words])
    terminal.await_text("cec-mpi: step ")
    (tmp_path / "seen").touch()
    assert process.wait(LIMIT) == 0
    terminal.close()
    assert " of 3 available" not in terminal.text
